"""Log probabilities and entropies: against numerical integration, frequencies, and dense normal distributions."""

from __future__ import annotations

import pytest
import torch
from mask_helpers import make_distribution, roughened, seeded, standard_error

from keyhole.masks import CorrelatedLogitNormal, GraphLogitNormal, MaskDistribution

SITE_DENSITIES = ["iln", "vln", "graph_vln", "sct"]
CASES = [(name, temperature) for name in SITE_DENSITIES for temperature in (0.15, 0.6)]


def rough(name: str, temperature: float) -> MaskDistribution:
    options = {"temperature": temperature, "gamma": -0.2, "eta": 1.3}
    return roughened(make_distribution(name, 4, **options)).double()


def inside(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes and weights of midpoints, finer towards 0 and 1, on (0, 1)."""
    t = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    return t**2 * (3 - 2 * t), 6 * t * (1 - t) / n


@pytest.mark.parametrize(("name", "temperature"), CASES)
def test_the_marginal_density_and_its_atoms_integrate_to_one(name, temperature):
    """Lebesgue measure on (0, 1) plus the point masses at 0 and 1."""
    distribution = rough(name, temperature)
    nodes, weights = inside(20_000)
    density = distribution.marginal_log_prob(nodes[:, None].expand(-1, 4)).exp()
    atoms = [distribution.marginal_log_prob(torch.full((4,), edge).double()).exp() for edge in (0.0, 1.0)]
    total = weights @ density + sum(atoms)
    torch.testing.assert_close(total, torch.ones(4).double(), atol=1e-7, rtol=0)
    torch.testing.assert_close(1 - atoms[0], distribution.probs_open)


@pytest.mark.parametrize(("name", "temperature"), CASES)
def test_the_marginal_density_is_that_of_the_samples(name, temperature):
    """Share of masks at 0, at 1, and in three intervals between, of 200000 draws."""
    distribution = rough(name, temperature)
    s = torch.cat([distribution.sample((20_000,), seeded(seed)) for seed in range(10)])
    for edge in (0.0, 1.0):
        chance = distribution.marginal_log_prob(torch.full((4,), edge).double()).exp().detach()
        assert (((s == edge).double().mean(0) - chance).abs() < 4.5 * standard_error(chance, len(s))).all()
    nodes, weights = inside(20_000)
    density = distribution.marginal_log_prob(nodes[:, None].expand(-1, 4)).exp().detach() * weights[:, None]
    for low, high in ((0.0, 0.3), (0.3, 0.6), (0.6, 1.0)):
        share = ((s > low) & (s < high)).double().mean(0)
        chance = density[(nodes > low) & (nodes < high)].sum(0)
        assert ((share - chance).abs() < 4.5 * standard_error(chance, len(s)) + 1e-4).all()


@pytest.mark.parametrize("name", ["iln", "sct"])
def test_log_prob_is_the_sum_over_valid_sites(name):
    """Of any sample shape; impossible masks have none."""
    distribution = roughened(make_distribution(name))
    masks = distribution.sample((2, 5), seeded(1))
    of_sites = distribution.marginal_log_prob(masks)
    assert of_sites.shape == (2, 5, 3, 4)
    torch.testing.assert_close(distribution.log_prob(masks), of_sites.sum((-1, -2)))
    assert distribution.log_prob(masks).isfinite().all()
    assert distribution.log_prob(masks[0, 0]).shape == ()
    for cell, value in ((0, 1.5), (0, -0.1), (1, 0.5)):  # cell 1 is not valid
        impossible = masks[0, 0].clone()
        impossible.view(-1)[cell] = value
        assert distribution.log_prob(impossible) == -torch.inf


@pytest.mark.parametrize("name", ["iln", "sct"])
@pytest.mark.parametrize("temperature", [0.15, 0.6])
def test_entropy_is_the_mean_of_the_log_probability(name, temperature):
    """Of 200000 draws, within 4.5 standard errors; and its gradient, by central differences."""
    distribution = rough(name, temperature)
    logs = -torch.cat([distribution.log_prob(distribution.sample((20_000,), seeded(s))) for s in range(10)])
    entropy = distribution.entropy()
    assert entropy.shape == ()
    assert float((logs.mean() - entropy).abs().detach()) < 4.5 * float(logs.std().detach()) / len(logs) ** 0.5
    entropy.backward()
    for parameter in distribution.parameters():
        for at in range(4):
            ends = []
            for step in (1e-5, -1e-5):
                with torch.no_grad():
                    parameter[at] += step
                    ends.append(float(distribution.entropy()))
                    parameter[at] -= step
            assert float(parameter.grad[at]) == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6)


@pytest.mark.parametrize("name", ["iln", "sct"])
@pytest.mark.parametrize("shift", [0.0, 60.0, -60.0])
def test_entropy_of_masks_that_are_nearly_certain(name, shift):
    """No entropy where all masks are 0 or 1, and no nan, also in single precision."""
    distribution = make_distribution(name)
    distribution.shift(shift)
    entropy = distribution.entropy()
    entropy.backward()
    assert entropy.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in distribution.parameters())
    assert (abs(float(entropy.detach())) < 1e-5) == bool(shift)


def dense_log_prob(distribution: MaskDistribution, logits: torch.Tensor) -> torch.Tensor:
    normal = torch.distributions.MultivariateNormal(distribution.bias, distribution.covariance)
    return normal.log_prob(logits)


@pytest.mark.parametrize(
    "distribution",
    [
        CorrelatedLogitNormal(7, rank=3, independent_std=0.3, generator=seeded()),
        CorrelatedLogitNormal(5, rank=8, independent_std=0.1, generator=seeded()),
        GraphLogitNormal((3, 4), rank=3, n_eigenvectors=4, generator=seeded()),
    ],
    ids=["vln", "vln of full rank", "graph_vln"],
)
def test_log_density_of_correlated_logits(distribution):
    """By the Woodbury identity, against the dense covariance; and that is the covariance of the draws."""
    distribution = roughened(distribution.double(), by=0.1)
    logits = distribution.draw(6, seeded(1)).logits.detach()
    torch.testing.assert_close(distribution.logit_log_prob(logits), dense_log_prob(distribution, logits))
    with torch.no_grad():
        many = distribution.draw(200_000, seeded(2)).logits
    expected = distribution.covariance
    variance = expected.diagonal()
    error = ((variance[:, None] * variance + expected.square()) / len(many)).sqrt()
    assert ((torch.cov(many.T) - expected).abs() < 4.5 * error).all()
    torch.testing.assert_close(distribution.moments()[1].square().detach(), variance)


@pytest.mark.parametrize("name", ["iln", "sct"])
def test_log_density_of_independent_logits(name):
    """Against torch's own distributions."""
    distribution = roughened(make_distribution(name, 5)).double()
    logits = distribution.draw(6, seeded(1)).logits.detach()
    if name == "iln":
        expected = torch.distributions.Normal(*distribution.moments()).log_prob(logits)
    else:
        y = torch.sigmoid(logits - distribution.log_alpha)
        expected = (y * (1 - y)).log()
    torch.testing.assert_close(distribution.logit_log_prob(logits), expected.sum(1))


def test_an_independent_part_keeps_the_initial_state():
    """`P(S = 0) = P(S = 1) = 0.2` with any share of independent variance; more than there is, is refused."""
    distribution = CorrelatedLogitNormal(6, independent_std=0.5)
    assert distribution.moments()[1].tolist() == pytest.approx([0.8548] * 6, abs=1e-4)
    torch.testing.assert_close(distribution.probs_open, torch.full((6,), 0.8))
    with pytest.raises(ValueError, match="independent_std must be from 0 to below"):
        CorrelatedLogitNormal(6, independent_std=0.9)


@pytest.mark.parametrize("name", ["vln", "hnet", "graph_vln", "simplex"])
def test_what_correlated_distributions_do_not_have_is_refused(name):
    """With a sentence that says why."""
    distribution = make_distribution(name)
    mask = distribution.sample(generator=seeded())
    for ask in (distribution.entropy, lambda: distribution.log_prob(mask)):
        with pytest.raises(NotImplementedError, match=f"{type(distribution).__name__} are correlated"):
            ask()
    if name in ("hnet", "simplex"):
        with pytest.raises(NotImplementedError, match="no density in closed form"):
            distribution.marginal_log_prob(mask)
