"""Collapse: exactly k distinct observable sites, in the right order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keyhole.core.errors import InfeasibleError
from keyhole.masks import MASK_DISTRIBUTIONS, CorrelatedLogitNormal, IndependentLogitNormal, MaskDistribution
from keyhole.masks.collapse import best_of, frequency, rounded

OBSERVABLE = (torch.arange(30) % 4 != 1).reshape(5, 6)
every_distribution = pytest.mark.parametrize("name", MASK_DISTRIBUTIONS)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_distribution(name: str, observable: torch.Tensor = OBSERVABLE) -> MaskDistribution:
    distribution = MASK_DISTRIBUTIONS[name](observable, generator=seeded())
    distribution.warm_start(distribution.index[[7, 3, 11]], selected_marginal=0.9)
    return distribution


def graded(marginals: list[float]) -> IndependentLogitNormal:
    """Independent sites in a row with these marginals."""
    distribution = IndependentLogitNormal(torch.ones(len(marginals), dtype=torch.bool), generator=seeded())
    with torch.no_grad():
        distribution.mu.copy_(torch.special.ndtri(torch.tensor(marginals)))
        distribution.log_sigma.zero_()
    return distribution


def all_collapses(distribution: MaskDistribution, k: int) -> list[torch.Tensor]:
    return [
        distribution.top(k),
        frequency(distribution, k, draws=300, generator=seeded(1)),
        best_of(distribution, k, candidates=9, score=lambda sites: float(sites.sum()), generator=seeded(1)),
    ]


@every_distribution
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_exactly_k_distinct_observable_sites(name, data):
    """Whatever the distribution and k, a LongTensor of flat indices."""
    distribution = make_distribution(name)
    k = data.draw(st.integers(1, distribution.n_sites))
    for sites in all_collapses(distribution, k):
        assert sites.dtype == torch.int64
        assert sites.shape == (k,)
        assert len(set(sites.tolist())) == k
        assert set(sites.tolist()) <= set(distribution.index.tolist())


@every_distribution
def test_likely_sites_come_first(name):
    """The three sites of the warm start are the first three, by marginals and by frequency."""
    distribution = make_distribution(name)
    favourites = set(distribution.index[[3, 7, 11]].tolist())
    assert set(distribution.top(3).tolist()) == favourites
    assert set(frequency(distribution, 5, draws=500, generator=seeded(2))[:3].tolist()) == favourites


@pytest.mark.parametrize("k", [0, -1, 24])
def test_impossible_k_is_refused(k):
    """Less than one site, or more than are observable."""
    distribution = make_distribution("vln")
    for collapse in (
        lambda: distribution.top(k),
        lambda: frequency(distribution, k, draws=5, generator=seeded()),
        lambda: best_of(distribution, k, candidates=5, score=len, generator=seeded()),
    ):
        with pytest.raises(InfeasibleError, match=f"got {k}"):
            collapse()


def test_top_ranks_by_probability():
    """Likeliest first; the order of sites does not matter."""
    assert graded([0.1, 0.7, 0.3, 0.9, 0.2]).top(4).tolist() == [3, 1, 2, 4]


def test_top_breaks_ties_by_logit():
    """Sites whose marginals are all rounded to 1 are ranked by how far they are from shutting."""
    distribution = graded([0.5, 0.5, 0.5, 0.5])
    with torch.no_grad():
        distribution.mu.copy_(torch.tensor([20.0, 40.0, 0.0, 30.0]))
    assert distribution.pack(distribution.marginals)[[0, 1, 3]].tolist() == [1, 1, 1]
    assert distribution.top(4).tolist() == [1, 3, 0, 2]


def test_frequency_follows_the_draws():
    """Open most often first; sites that are never open, or always, by mean logit."""
    distribution = graded([0.2, 0.8, 0.5, 0.5, 0.5])
    with torch.no_grad():
        distribution.mu[2:] = torch.tensor([9.0, -30.0, -20.0])
        distribution.log_sigma[2] = 5.0  # a large mean logit, but open about half of the time
    assert frequency(distribution, 5, draws=2000, generator=seeded(1)).tolist() == [1, 2, 0, 4, 3]


def test_frequency_takes_any_number_of_draws():
    """Also more than are held at once, and the same from the same generator."""
    distribution = make_distribution("vln")
    first = frequency(distribution, 9, draws=777, generator=seeded(4))
    assert torch.equal(first, frequency(distribution, 9, draws=777, generator=seeded(4)))


@pytest.mark.parametrize(
    ("marginals", "sizes"),
    [
        ([0.5] * 46, (20, 30)),  # 23
        ([0.5] * 40, (20, 20)),  # 20: nothing to round
        ([0.5] * 15, (7, 10)),  # 7.5: below ten, down to a whole number
        ([0.1] * 4, (1, 4)),  # 0.4: at least one, at most all
        ([0.9] * 14, (10, 14)),  # 12.6: only 14 sites
    ],
)
def test_rounded_takes_tens(marginals, sizes):
    """The count rounded down and up to tens, within what there is; the smaller choice leads the larger."""
    down, up = rounded(graded(marginals))
    assert (len(down), len(up)) == sizes
    assert torch.equal(down, up[: len(down)])


def test_best_of_takes_the_lowest_score():
    """Of the sets that the draws propose, the one with the lowest score, ranked by marginals."""
    distribution, seen = CorrelatedLogitNormal(12, generator=seeded()), []

    def score(sites):
        seen.append(sites)
        return abs(float(sites.sum()) - 20)

    best = best_of(distribution, 3, candidates=60, score=score, generator=seeded(1))
    assert score(best) == min(abs(float(sites.sum()) - 20) for sites in seen)
    assert torch.equal(seen[0], distribution.top(3))
    sets = [tuple(sorted(sites.tolist())) for sites in seen[:-1]]
    assert len(set(sets)) == len(sets) > 10
    order = distribution.top(12).tolist()
    assert [order.index(site) for site in best] == sorted(order.index(site) for site in best)


def test_best_of_proposes_joint_draws():
    """Two groups of sites that never open together: no proposal mixes them, as the marginals do."""
    distribution = CorrelatedLogitNormal(torch.ones(6, dtype=torch.bool), generator=seeded(), rank=1)
    with torch.no_grad():
        distribution.weight.copy_(torch.tensor([[1.0], [-1.0]]).repeat(3, 1))
        distribution.bias.copy_(torch.tensor([3.0, 2.0, 1.0, 0.0, 0.0, 0.0]) * 1e-3)
    seen = []
    best_of(distribution, 3, candidates=40, score=lambda s: seen.append(set(s.tolist())) or 0.0, generator=seeded(1))
    assert seen[0] == {0, 1, 2}
    assert sorted(map(sorted, seen[1:])) == [[0, 2, 4], [1, 3, 5]]


def test_best_of_falls_back_on_the_marginal_choice():
    """No candidates, equal scores, or scores that are not numbers."""
    distribution = make_distribution("vln")
    expected = distribution.top(4)
    for candidates, value in ((0, 1.0), (20, 1.0), (20, float("nan"))):
        best = best_of(distribution, 4, candidates=candidates, score=lambda _, v=value: v, generator=seeded())
        assert torch.equal(best, expected)
