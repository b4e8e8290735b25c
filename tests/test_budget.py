"""Budgets: the number of sites is held, and gradients say which sites."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest
import torch

import keyhole as kh
from keyhole.budget import Budget, DualAscent, ExactK, Penalty
from keyhole.collapse import marginal
from keyhole.errors import BudgetError
from keyhole.laws import LAWS, Law, share
from keyhole.preparation import prepare
from keyhole.run import Run
from keyhole.selectors.learned import Learned
from keyhole.settings import LearnedSettings
from samples import smooth

NOISE = 0.3
every_law = pytest.mark.parametrize("name", LAWS)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_law(name: str, *grid: int, seed: int = 0) -> Law:
    return LAWS[name](torch.ones(grid, dtype=torch.bool), generator=seeded(seed))


def train(law: Law, budget: Budget, signals, *, steps: int, rate: float, coolest: float | None = None):
    """Learn a law together with a linear reconstructor; the last squared errors are returned."""
    generator, sites = seeded(1), law.sites
    linear = torch.zeros(sites, sites, requires_grad=True)
    groups = [{"params": law.parameters(), "lr": rate}, {"params": [linear], "lr": 0.03}]
    optimiser = torch.optim.Adam(groups, betas=(0.9, 0.99))
    slower = torch.optim.lr_scheduler.LambdaLR(optimiser, [lambda t: min(1, 2 - 2 * t / steps), lambda t: 1])
    start, errors = law.temperature, []
    for step in range(steps):
        law.temperature = start * ((coolest or start) / start) ** (step / steps)
        x, sample = signals(generator), law.sample(32, generator)
        seen = x * share(budget.masks(law, sample), len(x))
        error = (seen.flatten(1) @ linear - x.flatten(1)).square().mean()
        optimiser.zero_grad()
        (error + budget.loss(law, sample)).backward()
        optimiser.step()
        slower.step()
        budget.update(law, sample)
        if isinstance(budget, DualAscent) and not budget.hard:
            law.polarise(sample, 0.02 * budget.k / sites)
        errors.append(error.item())
    return sum(errors[-50:]) / 50


def low_rank(generator: torch.Generator) -> torch.Tensor:
    """64 noisy signals on an 8 x 8 grid, of rank 8."""
    basis = torch.randn(8, 64, generator=seeded(5)) / 8**0.5
    clean = torch.randn(64, 8, generator=generator) @ basis
    return (clean + NOISE * torch.randn(64, 64, generator=generator)).reshape(64, 8, 8)


@every_law
@pytest.mark.parametrize("hard", [False, True])
def test_dual_ascent_ends_with_the_count(name, hard):
    """Whatever the law, and though HNet-LN's differentiable count is a surrogate: within 3 % of K."""
    law = make_law(name, 8, 8)
    assert law.count() > 30
    train(law, DualAscent(12, hard=hard), low_rank, steps=500, rate=0.005 if name == "hnet" else 0.02)
    assert law.count() == pytest.approx(12, rel=0.03)


@pytest.mark.parametrize("hard", [False, True])
def test_no_mask_shows_sites_that_are_not_counted(hard):
    """With 12 sites the noise of the others cannot be rebuilt, unless half-open masks show it."""
    floor = NOISE**2 * (64 - 12) / 64
    law = make_law("vln", 8, 8)
    assert train(law, DualAscent(12, hard=hard), low_rank, steps=500, rate=0.02) > floor


def test_dual_ascent_price_rises_and_falls():
    """Too many sites raise the price, too few lower it below zero; the state survives a round trip."""
    law, budget = make_law("iln", 6, 6), DualAscent(6)
    law.shift(5.0)
    sample = law.sample(16, seeded())
    budget.update(law, sample)
    assert 0 < budget.multiplier.item() <= budget.rate
    law.shift(-9.0)
    for _ in range(5):
        budget.update(law, law.sample(16, seeded()))
    assert budget.multiplier.item() < 0
    other = DualAscent(9)
    other.load_state_dict(budget.state_dict())
    assert other.k == 6
    assert torch.equal(other.multiplier, budget.multiplier)
    assert torch.equal(other.loss(law, sample), budget.loss(law, sample))


def test_dual_ascent_gradient_points_to_the_budget():
    """Above k, a step down the gradient lowers the count; below k it raises it."""
    for shift, sign in ((1.0, 1), (-3.0, -1)):
        law = make_law("vln", 6, 6)
        law.shift(shift)
        DualAscent(6).loss(law, law.sample(16, seeded())).backward()
        assert (sign * law.bias.grad > 0).all()


def test_dual_ascent_sees_what_is_sampled():
    """Draws that open nothing lower the price, though the differentiable count says that all is well."""
    law = make_law("hnet", 6, 6)
    sample = law.sample(64, seeded())
    budget = DualAscent(round(sample.soft_count.item()), smoothing=0.0)
    budget.update(law, dataclasses.replace(sample, opened=torch.zeros_like(sample.opened)))
    assert budget.multiplier.item() == pytest.approx(-budget.rate)


def test_penalty_is_the_papers():
    """Weight times expected L0 over sites; masks are the law's own; nothing to update."""
    law = make_law("vln", 5, 5)
    sample, budget = law.sample(8, seeded()), Penalty(0.3)
    assert budget.masks(law, sample) is sample.values
    loss = budget.loss(law, sample)
    assert loss.item() == pytest.approx(0.3 * sample.open_probability.mean().item())
    loss.backward()
    assert (law.bias.grad > 0).all()
    before = law.bias.detach().clone()
    budget.update(law, sample)
    assert torch.equal(before, law.bias)


@every_law
@pytest.mark.parametrize("k", [1, 7, 19, 20])
def test_exact_k_opens_exactly_k(name, k):
    """Every draw opens k observable sites, those with the largest logits, and nothing in between."""
    observable = (torch.arange(25) % 5 != 2).reshape(5, 5)
    law = LAWS[name](observable, generator=seeded())
    sample, budget = law.sample(9, seeded(1)), ExactK(k)
    masks = budget.masks(law, sample)
    assert masks.shape == (9, 5, 5)
    assert ((masks == 0) | (masks == 1)).all()
    assert (masks.sum((1, 2)) == k).all()
    assert (masks[:, ~observable] == 0).all()
    chosen = law.pack(masks) == 1
    rest = sample.logits.masked_fill(chosen, -torch.inf).amax(1)
    assert (sample.logits.masked_fill(~chosen, torch.inf).amin(1) >= rest).all()
    assert budget.loss(law, sample).item() == 0


def test_exact_k_breaks_ties_in_order():
    """Equal logits: the first sites are taken, never more than k."""
    law = make_law("iln", 3, 3)
    with torch.no_grad():
        law.log_sigma.fill_(-torch.inf)
    masks = ExactK(4).masks(law, law.sample(2, seeded()))
    assert masks.flatten(1).tolist() == [[1, 1, 1, 1, 0, 0, 0, 0, 0]] * 2


@every_law
def test_exact_k_gradients_reach_every_parameter(name):
    """A loss on the masks moves all that the law learns."""
    law = make_law(name, 5, 5)
    masks = ExactK(6).masks(law, law.sample(16, seeded()))
    (masks * torch.randn(5, 5, generator=seeded(2))).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in law.parameters())


def test_exact_k_gradient_is_that_of_an_exchange():
    """Sites that hurt rise and fall against each other: the gradients of a draw's logits sum to zero."""
    law, budget = make_law("vln", 5, 5).double(), ExactK(6)
    sample = law.sample(16, seeded())
    worth = torch.randn(5, 5, generator=seeded(2)).double()
    (gradient,) = torch.autograd.grad((budget.masks(law, sample) * worth).sum(), sample.logits)
    assert gradient.sum(1).abs().max() < 1e-12
    assert gradient.abs().max() > 0.1
    ordered = sample.logits.sort(dim=1, descending=True).values
    soft = torch.sigmoid((sample.logits - (ordered[:, 5:6] + ordered[:, 6:7]) / 2) / law.temperature)
    slope = (soft * (1 - soft) / law.temperature).detach()
    mean = (slope * worth.flatten()).sum(1, keepdim=True) / slope.sum(1, keepdim=True)
    torch.testing.assert_close(gradient, slope * (worth.flatten() - mean))


@every_law
def test_exact_k_keeps_the_count_near_k(name):
    """Updates alone bring a law that opens half of the sites to about k, and change no mask."""
    law, budget = make_law(name, 8, 8), ExactK(12)
    before = budget.masks(law, law.sample(4, seeded(1)))
    for seed in range(100):
        budget.update(law, law.sample(64, seeded(seed)))
    assert law.count() == pytest.approx(12, rel=0.1)
    assert torch.equal(before, budget.masks(law, law.sample(4, seeded(1))))


@pytest.mark.parametrize("seed", [0, 1])
def test_exact_k_solves_a_problem_with_a_known_best_set(seed):
    """Five sources, six sites each, one of the six without noise: the law finds those five."""
    clean = torch.tensor([2, 6, 17, 21, 29])

    def blocks(generator):
        source = torch.randn(64, 5, generator=generator).repeat_interleave(6, 1)
        return source + (0.7 * torch.randn(64, 30, generator=generator)).index_fill(1, clean, 0.0)

    law = make_law("vln", 30, seed=seed)
    law.temperature = 0.5
    train(law, ExactK(5), blocks, steps=800, rate=0.01, coolest=0.1)
    assert sorted(marginal(law, 5).tolist()) == clean.tolist()
    assert law.concentration(5) > 0.5
    assert law.count() == pytest.approx(5, rel=0.15)


def test_exact_k_follows_a_schedule():
    """`k` may change between steps and is part of the state."""
    law, budget = make_law("vln", 5, 5), ExactK(20)
    budget.k = 3
    assert budget.masks(law, law.sample(2, seeded())).sum() == 6
    other = ExactK(9)
    other.load_state_dict(budget.state_dict())
    assert other.k == 3


@pytest.mark.parametrize("budget", [ExactK(0), ExactK(26), DualAscent(0), DualAscent(26)])
def test_impossible_budgets_are_refused(budget):
    """The message names the number of observable sites and what was asked for."""
    law = make_law("iln", 5, 5)
    sample = law.sample(2, seeded())
    with pytest.raises(BudgetError, match=f"1 to 25.*got {budget.k}"):
        budget.masks(law, sample) if isinstance(budget, ExactK) else budget.loss(law, sample)


@pytest.mark.parametrize("name", get_args(LearnedSettings.model_fields["budget"].annotation))
def test_each_name_in_the_settings_has_its_budget(name):
    """What the learned selector trains under."""
    train = prepare(kh.read(smooth(20, 6)), None, seed=0).train
    task, _ = Learned(budget=name, train={"steps": 1, "batch": 8}).learn(train, 2, Run())
    assert type(task.budget) is {"penalty": Penalty, "dual": DualAscent, "exact": ExactK}[name]
