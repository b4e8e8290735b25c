"""The score-function estimator: against the gradient by enumeration, and what it refuses."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from mask_helpers import make_distribution, seeded

from keyhole.core.errors import DataError
from keyhole.masks import CorrelatedLogitNormal, ExactK, IndependentLogitNormal, MaskDistribution, Reinforce

WORTH = torch.tensor([0.3, -1.0, 0.5, 2.0], dtype=torch.float64)


def error_of(masks: torch.Tensor) -> torch.Tensor:
    """An error with interactions between sites."""
    return masks @ WORTH + 3 * masks[:, 0] * masks[:, 1] - 2 * masks[:, 2] * masks[:, 3]


def chance(chosen: tuple[int, ...], location: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    """Probability that these of some independent normal variables are the largest, by a sum over a fine grid."""
    t = torch.linspace(-8, 8, 4001, dtype=torch.float64)[:, None]
    normal = torch.distributions.Normal(location, spread)
    below, density = normal.cdf(t), normal.log_prob(t).exp()
    others = below[:, [j for j in range(4) if j not in chosen]].prod(1)
    smallest = sum(density[:, i] * (1 - below[:, [j for j in chosen if j != i]]).prod(1) for i in chosen)
    return (smallest * others).sum() * (16 / 4000)


def by_enumeration(distribution: IndependentLogitNormal) -> torch.Tensor:
    sets = list(combinations(range(4), 2))
    masks = torch.stack([torch.eye(4, dtype=torch.float64)[list(one)].sum(0) for one in sets])
    chances = torch.stack([chance(one, *distribution.moments()) for one in sets])
    assert float(chances.sum().detach()) == pytest.approx(1)
    return flat(chances @ error_of(masks), distribution)


def flat(value: torch.Tensor, distribution: MaskDistribution) -> torch.Tensor:
    return torch.cat([one.flatten() for one in torch.autograd.grad(value, list(distribution.parameters()))])


def test_the_estimate_is_unbiased():
    """Mean of 4000 estimates from 8 draws within 4.5 standard errors of the gradient by enumeration."""
    distribution = IndependentLogitNormal(4).double()
    with torch.no_grad():
        distribution.mu.copy_(torch.tensor([0.3, -0.2, 0.1, 0.5]))
        distribution.log_sigma.add_(torch.tensor([0.1, -0.3, 0.2, 0.0]))
    budget, generator, found = Reinforce(2), seeded(), []
    for _ in range(4000):
        sample = distribution.draw(8, generator)
        errors = error_of(budget.masks(distribution, sample))
        found.append(flat(budget.surrogate(distribution, sample, errors), distribution))
    found, expected = torch.stack(found), by_enumeration(distribution)
    assert ((found.mean(0) - expected).abs() < 4.5 * found.std(0) / len(found) ** 0.5).all()
    assert (found.std(0) / len(found) ** 0.5 < 0.1 * expected.norm()).all()


def test_masks_are_those_of_exact_k_without_gradient():
    distribution = make_distribution("vln")
    sample = distribution.draw(5, seeded())
    masks, penalty = Reinforce(3)(distribution, sample)
    assert torch.equal(masks, ExactK(3).masks(distribution, sample))
    assert not masks.requires_grad
    assert penalty == 0


def test_the_value_is_zero_and_a_constant_changes_nothing():
    """The surrogate does not change the loss that is logged; the baseline removes what all errors share."""
    distribution, budget = IndependentLogitNormal(5), Reinforce(2)
    sample = distribution.draw(6, seeded())
    errors = torch.randn(6, generator=seeded(1))
    surrogate = budget.surrogate(distribution, sample, errors)
    assert surrogate == 0
    torch.testing.assert_close(
        flat(surrogate, distribution),
        flat(budget.surrogate(distribution, sample, errors + 100), distribution),
        atol=1e-4, rtol=1e-4,
    )  # fmt: skip
    by_hand = sum(
        (errors[i] - (errors.sum() - errors[i]) / 5) * distribution.logit_log_prob(sample.logits.detach())[i]
        for i in range(6)
    ) / 6  # fmt: skip
    torch.testing.assert_close(
        flat(budget.surrogate(distribution, sample, errors), distribution), flat(by_hand, distribution)
    )


def test_correlated_masks_with_an_independent_part_learn():
    """An error without a gradient, least with sites 1 and 4 together."""
    generator = seeded()
    distribution = CorrelatedLogitNormal(6, rank=2, independent_std=0.4, generator=generator)
    budget, optimiser = Reinforce(2), torch.optim.Adam(distribution.parameters(), lr=0.05)
    for _ in range(200):
        sample = distribution.draw(32, generator)
        masks = budget.masks(distribution, sample)
        errors = 1 - masks[:, 1] * masks[:, 4]
        optimiser.zero_grad()
        budget.surrogate(distribution, sample, errors).backward()
        optimiser.step()
        budget.update(distribution, sample)
    assert sorted(distribution.top(2).tolist()) == [1, 4]
    assert float(errors.mean()) < 0.2


@pytest.mark.parametrize("name", ["vln", "hnet", "simplex"])
def test_logits_without_a_density_are_refused(name):
    distribution = make_distribution(name)
    sample = distribution.draw(4, seeded())
    with pytest.raises(NotImplementedError, match="density"):
        Reinforce(2).surrogate(distribution, sample, torch.zeros(4))


@pytest.mark.parametrize(("draws", "shape"), [(4, (3,)), (4, (4, 1)), (1, (1,)), (4, ())])
def test_errors_that_are_not_one_for_each_draw_are_refused(draws, shape):
    distribution = IndependentLogitNormal(5)
    with pytest.raises(DataError, match="one error for each of at least two draws"):
        Reinforce(2).surrogate(distribution, distribution.draw(draws), torch.zeros(shape))
