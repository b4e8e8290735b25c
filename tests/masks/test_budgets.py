"""Budgets: the number of sites is held, and gradients say which sites."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest
import torch

import keyhole as kh
from example_data import smooth
from keyhole.core.errors import InfeasibleError
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.masks import MASK_DISTRIBUTIONS, Budget, DualAscent, ExactK, L0Penalty, MaskDistribution, Reinforce, share
from keyhole.placement.learned import Learned
from keyhole.placement.settings import LearnedSettings

NOISE = 0.3
every_distribution = pytest.mark.parametrize("name", MASK_DISTRIBUTIONS)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_distribution(name: str, *grid: int, seed: int = 0) -> MaskDistribution:
    return MASK_DISTRIBUTIONS[name](torch.ones(grid, dtype=torch.bool), generator=seeded(seed))


def train(
    distribution: MaskDistribution, budget: Budget, batch_of, *, steps: int, rate: float, coolest: float | None = None
):
    """Learn a distribution together with a linear reconstructor; the last squared errors are returned."""
    generator, sites = seeded(1), distribution.n_sites
    linear = torch.zeros(sites, sites, requires_grad=True)
    groups = [{"params": distribution.parameters(), "lr": rate}, {"params": [linear], "lr": 0.03}]
    optimiser = torch.optim.Adam(groups, betas=(0.9, 0.99))
    slower = torch.optim.lr_scheduler.LambdaLR(optimiser, [lambda t: min(1, 2 - 2 * t / steps), lambda t: 1])
    start, errors = distribution.temperature, []
    for step in range(steps):
        distribution.temperature = start * ((coolest or start) / start) ** (step / steps)
        x, sample = batch_of(generator), distribution.draw(32, generator)
        seen = x * share(budget.masks(distribution, sample), len(x))
        error = (seen.flatten(1) @ linear - x.flatten(1)).square().mean()
        optimiser.zero_grad()
        (error + budget.loss(distribution, sample)).backward()
        optimiser.step()
        slower.step()
        budget.update(distribution, sample)
        if isinstance(budget, DualAscent) and not budget.hard:
            distribution.polarise(sample, 0.02 * budget.k / sites)
        errors.append(error.item())
    return sum(errors[-50:]) / 50


def low_rank(generator: torch.Generator) -> torch.Tensor:
    """64 noisy samples on an 8 x 8 grid, of rank 8."""
    basis = torch.randn(8, 64, generator=seeded(5)) / 8**0.5
    clean = torch.randn(64, 8, generator=generator) @ basis
    return (clean + NOISE * torch.randn(64, 64, generator=generator)).reshape(64, 8, 8)


@every_distribution
@pytest.mark.parametrize("hard", [False, True])
def test_dual_ascent_ends_with_the_count(name, hard):
    """Whatever the distribution, and though HNet-LN's differentiable count is a surrogate: within 3 % of K."""
    distribution = make_distribution(name, 8, 8)
    assert distribution.count() > 30
    train(distribution, DualAscent(12, hard=hard), low_rank, steps=500, rate=0.005 if name == "hnet" else 0.02)
    assert distribution.count() == pytest.approx(12, rel=0.03)


@pytest.mark.parametrize("hard", [False, True])
def test_no_mask_shows_sites_that_are_not_counted(hard):
    """With 12 sites the noise of the others cannot be reconstructed, unless half-open masks show it."""
    floor = NOISE**2 * (64 - 12) / 64
    distribution = make_distribution("vln", 8, 8)
    assert train(distribution, DualAscent(12, hard=hard), low_rank, steps=300, rate=0.02) > floor


def test_dual_ascent_multiplier_rises_and_falls():
    """Too many sites raise the multiplier, too few lower it below zero; the state survives a round trip."""
    distribution, budget = make_distribution("iln", 6, 6), DualAscent(6)
    distribution.shift(5.0)
    sample = distribution.draw(16, seeded())
    budget.update(distribution, sample)
    assert 0 < budget.multiplier.item() <= budget.rate
    distribution.shift(-9.0)
    for _ in range(5):
        budget.update(distribution, distribution.draw(16, seeded()))
    assert budget.multiplier.item() < 0
    other = DualAscent(9)
    other.load_state_dict(budget.state_dict())
    assert other.k == 6
    assert torch.equal(other.multiplier, budget.multiplier)
    assert torch.equal(other.loss(distribution, sample), budget.loss(distribution, sample))


def test_dual_ascent_gradient_points_to_the_budget():
    """Above k, a step down the gradient lowers the count; below k it raises it."""
    for shift, sign in ((1.0, 1), (-3.0, -1)):
        distribution = make_distribution("vln", 6, 6)
        distribution.shift(shift)
        DualAscent(6).loss(distribution, distribution.draw(16, seeded())).backward()
        assert (sign * distribution.bias.grad > 0).all()


def test_dual_ascent_sees_what_is_sampled():
    """Draws that open nothing lower the multiplier, though the differentiable count says that all is well."""
    distribution = make_distribution("hnet", 6, 6)
    sample = distribution.draw(64, seeded())
    budget = DualAscent(round(sample.soft_count.item()), smoothing=0.0)
    budget.update(distribution, dataclasses.replace(sample, opened=torch.zeros_like(sample.opened)))
    assert budget.multiplier.item() == pytest.approx(-budget.rate)


def test_penalty_is_the_papers():
    """Weight times expected L0 over sites; masks are the distribution's own; nothing to update."""
    distribution = make_distribution("vln", 5, 5)
    sample, budget = distribution.draw(8, seeded()), L0Penalty(0.3)
    assert budget.masks(distribution, sample) is sample.values
    loss = budget.loss(distribution, sample)
    assert loss.item() == pytest.approx(0.3 * sample.open_probability.mean().item())
    loss.backward()
    assert (distribution.bias.grad > 0).all()
    before = distribution.bias.detach().clone()
    budget.update(distribution, sample)
    assert torch.equal(before, distribution.bias)


@every_distribution
@pytest.mark.parametrize("budget", [L0Penalty(0.1), DualAscent(4), DualAscent(4, hard=True), ExactK(4), Reinforce(4)])
def test_a_budget_gives_masks_and_penalty_in_one_call(name, budget):
    """In any loop: `masks, penalty = budget(distribution, draw)`, and an update afterwards."""
    distribution = make_distribution(name, 3, 3)
    sample = distribution.draw(5)
    masks, penalty = budget(distribution, sample)
    assert torch.equal(masks, budget.masks(distribution, sample))
    assert torch.equal(penalty, budget.loss(distribution, sample))
    assert masks.shape == (5, 3, 3)
    assert penalty.shape == ()
    budget.update(distribution, sample)


@every_distribution
@pytest.mark.parametrize("k", [1, 7, 19, 20])
def test_exact_k_opens_exactly_k(name, k):
    """Every draw opens k observable sites, those with the largest logits, and nothing in between."""
    observable = (torch.arange(25) % 5 != 2).reshape(5, 5)
    distribution = MASK_DISTRIBUTIONS[name](observable, generator=seeded())
    sample, budget = distribution.draw(9, seeded(1)), ExactK(k)
    masks = budget.masks(distribution, sample)
    assert masks.shape == (9, 5, 5)
    assert ((masks == 0) | (masks == 1)).all()
    assert (masks.sum((1, 2)) == k).all()
    assert (masks[:, ~observable] == 0).all()
    chosen = distribution.pack(masks) == 1
    rest = sample.logits.masked_fill(chosen, -torch.inf).amax(1)
    assert (sample.logits.masked_fill(~chosen, torch.inf).amin(1) >= rest).all()
    assert budget.loss(distribution, sample).item() == 0


def test_exact_k_breaks_ties_in_order():
    """Equal logits: the first sites are taken, never more than k."""
    distribution = make_distribution("iln", 3, 3)
    with torch.no_grad():
        distribution.log_sigma.fill_(-torch.inf)
    masks = ExactK(4).masks(distribution, distribution.draw(2, seeded()))
    assert masks.flatten(1).tolist() == [[1, 1, 1, 1, 0, 0, 0, 0, 0]] * 2


@every_distribution
def test_exact_k_gradients_reach_every_parameter(name):
    """A loss on the masks moves all that the distribution learns."""
    distribution = make_distribution(name, 5, 5)
    masks = ExactK(6).masks(distribution, distribution.draw(16, seeded()))
    (masks * torch.randn(5, 5, generator=seeded(2))).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in distribution.parameters())


def test_exact_k_gradient_is_that_of_an_exchange():
    """Sites that hurt rise and fall against each other: the gradients of a draw's logits sum to zero."""
    distribution, budget = make_distribution("vln", 5, 5).double(), ExactK(6)
    sample = distribution.draw(16, seeded())
    worth = torch.randn(5, 5, generator=seeded(2)).double()
    (gradient,) = torch.autograd.grad((budget.masks(distribution, sample) * worth).sum(), sample.logits)
    assert gradient.sum(1).abs().max() < 1e-12
    assert gradient.abs().max() > 0.1
    ordered = sample.logits.sort(dim=1, descending=True).values
    soft = torch.sigmoid((sample.logits - (ordered[:, 5:6] + ordered[:, 6:7]) / 2) / distribution.temperature)
    slope = (soft * (1 - soft) / distribution.temperature).detach()
    mean = (slope * worth.flatten()).sum(1, keepdim=True) / slope.sum(1, keepdim=True)
    torch.testing.assert_close(gradient, slope * (worth.flatten() - mean))


@every_distribution
def test_exact_k_keeps_the_count_near_k(name):
    """Updates alone bring a distribution that opens half of the sites to about k, and change no mask."""
    distribution, budget = make_distribution(name, 8, 8), ExactK(12)
    before = budget.masks(distribution, distribution.draw(4, seeded(1)))
    for seed in range(100):
        budget.update(distribution, distribution.draw(64, seeded(seed)))
    assert distribution.count() == pytest.approx(12, rel=0.1)
    assert torch.equal(before, budget.masks(distribution, distribution.draw(4, seeded(1))))


@pytest.mark.parametrize("seed", [0, 1])
def test_exact_k_solves_a_problem_with_a_known_best_set(seed):
    """Five sources, six sites each, one of the six without noise: the distribution finds those five."""
    clean = torch.tensor([2, 6, 17, 21, 29])

    def blocks(generator):
        source = torch.randn(64, 5, generator=generator).repeat_interleave(6, 1)
        return source + (0.7 * torch.randn(64, 30, generator=generator)).index_fill(1, clean, 0.0)

    distribution = make_distribution("vln", 30, seed=seed)
    distribution.temperature = 0.5
    train(distribution, ExactK(5), blocks, steps=800, rate=0.01, coolest=0.1)
    assert sorted(distribution.top(5).tolist()) == clean.tolist()
    assert distribution.concentration(5) > 0.5
    assert distribution.count() == pytest.approx(5, rel=0.15)


def test_exact_k_follows_a_schedule():
    """`k` may change between steps and is part of the state."""
    distribution, budget = make_distribution("vln", 5, 5), ExactK(20)
    budget.k = 3
    assert budget.masks(distribution, distribution.draw(2, seeded())).sum() == 6
    other = ExactK(9)
    other.load_state_dict(budget.state_dict())
    assert other.k == 3


@pytest.mark.parametrize("budget", [ExactK(0), ExactK(26), DualAscent(0), DualAscent(26)])
def test_impossible_budgets_are_refused(budget):
    """The message names the number of observable sites and what was asked for."""
    distribution = make_distribution("iln", 5, 5)
    sample = distribution.draw(2, seeded())
    with pytest.raises(InfeasibleError, match=f"1 to 25.*got {budget.k}"):
        budget.masks(distribution, sample) if isinstance(budget, ExactK) else budget.loss(distribution, sample)


@pytest.mark.parametrize("name", get_args(LearnedSettings.model_fields["budget"].annotation))
def test_each_name_in_the_settings_has_its_budget(name):
    """What the learned selector trains under."""
    train = prepare(kh.read(smooth(20, 6)), None, seed=0).train
    task, _ = Learned(budget=name, train={"steps": 1, "batch_size": 8}).learn(train, 2, Run())
    assert type(task.budget) is {"penalty": L0Penalty, "dual": DualAscent, "exact": ExactK}[name]
