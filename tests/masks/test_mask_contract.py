"""What every registered distribution must do: a new distribution is tested by joining `MASK_DISTRIBUTIONS`."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mask_helpers import holed, make_distribution, roughened, seeded, standard_error

from keyhole.core.errors import SettingsError
from keyhole.masks import MASK_DISTRIBUTIONS, DualAscent, ExactK, MaskSample, Reinforce, share

FIELDS = ("values", "logits", "open_probability", "zero_temperature", "opened")
every_distribution = pytest.mark.parametrize("name", MASK_DISTRIBUTIONS)


def same(a: MaskSample, b: MaskSample) -> bool:
    return all(torch.equal(getattr(a, field), getattr(b, field)) for field in FIELDS)


@every_distribution
def test_registered_under_its_name(name):
    """The registry's key is the distribution's own name."""
    assert MASK_DISTRIBUTIONS[name].name == name


@every_distribution
def test_sample_has_the_promised_shapes_and_ranges(name):
    """Masks on the grid, logits on the sites, probabilities in few rows."""
    distribution = roughened(make_distribution(name))
    sample = distribution.draw(20, seeded(1))
    assert distribution.event_shape == (3, 4)
    assert distribution.n_sites == int(holed(3, 4).sum())
    assert sample.values.shape == (20, 3, 4)
    assert sample.logits.shape == sample.opened.shape == (20, distribution.n_sites)
    assert sample.open_probability.shape == sample.zero_temperature.shape
    assert 1 <= len(sample.open_probability) <= 8
    for field in (
        sample.values,
        sample.open_probability,
        sample.zero_temperature,
        distribution.pack(distribution.marginals),
    ):
        assert field.min() >= 0
        assert field.max() <= 1
    assert (sample.open_probability >= sample.zero_temperature).all()
    assert sample.open_probability.requires_grad
    assert sample.values.requires_grad
    assert not distribution.pack(distribution.marginals).requires_grad


@every_distribution
def test_masks_are_squashed_stretched_logits(name):
    """`S = clip((eta - gamma) sigmoid(u / lam) + gamma, 0, 1)` with the distribution's own stretch."""
    distribution = roughened(make_distribution(name, temperature=0.5, gamma=-0.2, eta=1.4))
    sample = distribution.draw(50, seeded(1))
    expected = (1.6 * torch.sigmoid(sample.logits / 0.5) - 0.2).clamp(0, 1)
    torch.testing.assert_close(distribution.pack(sample.values), expected)
    assert torch.equal(distribution.pack(sample.values) == 0, sample.logits / 0.5 <= distribution.lower_logit)


@every_distribution
def test_nothing_happens_outside_the_observable_sites(name):
    """Masks are zero there, and no parameter feels a loss that lives there."""
    distribution = roughened(make_distribution(name))
    values = distribution.draw(30, seeded(1)).values
    outside = ~holed(3, 4)
    assert (values[:, outside] == 0).all()
    loss = (values[:, outside] * torch.randn(30, int(outside.sum()), generator=seeded(2))).sum()
    gradients = torch.autograd.grad(loss, list(distribution.parameters()), allow_unused=True)
    assert all(gradient is None or not gradient.any() for gradient in gradients)


@every_distribution
def test_same_generator_same_sample(name):
    """Samples depend on the generator alone, and move with it."""
    distribution = make_distribution(name)
    assert same(distribution.draw(5, seeded(3)), distribution.draw(5, seeded(3)))
    assert not same(distribution.draw(5, seeded(3)), distribution.draw(5, seeded(4)))


@every_distribution
def test_global_generator_is_left_alone(name):
    """Nothing a distribution does draws from, or seeds, torch's own generator."""
    before = torch.get_rng_state()
    distribution = make_distribution(name)
    distribution.draw(9, seeded())
    distribution.warm_start([0, 3])
    distribution.shift(0.1)
    distribution.pack(distribution.marginals), distribution.interior_modes(), distribution.concentration(2)
    assert torch.equal(before, torch.get_rng_state())


@every_distribution
def test_state_dict_carries_everything(name):
    """A distribution loaded into another of its kind samples the same, temperature included."""
    distribution = roughened(make_distribution(name))
    distribution.temperature = 0.123456789
    other = make_distribution(name, seed=5)
    other.load_state_dict(distribution.state_dict())
    assert other.temperature == 0.123456789
    assert same(distribution.draw(6, seeded(1)), other.draw(6, seeded(1)))


@every_distribution
def test_works_in_double(name):
    """`.double()` gives float64 samples and marginals, at the very same temperature."""
    distribution = roughened(make_distribution(name)).double()
    sample = distribution.draw(4, seeded())
    assert {getattr(sample, field).dtype for field in FIELDS[:4]} == {torch.float64}
    assert distribution.pack(distribution.marginals).dtype == torch.float64
    assert distribution.temperature == MASK_DISTRIBUTIONS[name].default_temperature


@every_distribution
def test_marginals_are_the_frequency_of_open_sites(name):
    """`marginals` against sampling, within 4 standard errors (of both, where it is itself sampled)."""
    distribution = roughened(make_distribution(name))
    with torch.no_grad():
        opened = torch.cat([distribution.draw(20_000, seeded(s)).opened for s in range(5)]).float().mean(0)
    marginals = distribution.pack(distribution.marginals)
    fewest = 4096 if name == "hnet" else 100_000
    assert ((opened - marginals).abs() < 4 * standard_error(opened, fewest)).all()
    assert torch.equal(marginals, distribution.pack(distribution.marginals))
    assert distribution.count() == pytest.approx(float(marginals.sum()))


@every_distribution
def test_zero_temperature_limit(name):
    """Proposition 1: as the temperature falls the mask becomes a Bernoulli variable with the marginals."""
    distribution = roughened(make_distribution(name))
    distribution.temperature = 1e-5
    with torch.no_grad():
        values = torch.cat([distribution.pack(distribution.draw(20_000, seeded(s)).values) for s in range(5)])
    assert ((values == 0) | (values == 1)).float().mean() > 0.999
    fewest = 4096 if name == "hnet" else 100_000
    assert (
        (values.mean(0) - distribution.pack(distribution.marginals)).abs()
        < 5 * standard_error(distribution.pack(distribution.marginals), fewest)
    ).all()


@every_distribution
def test_gradients_match_central_differences(name):
    """Every differentiable field, along random directions, with the same noise (float64)."""
    distribution = roughened(make_distribution(name)).double()
    parameters = {key: value.detach() for key, value in distribution.named_parameters()}
    weights = seeded(9)
    shape = distribution.draw(6, seeded(1))
    mix = {f: torch.randn(getattr(shape, f).shape, generator=weights).double() for f in FIELDS[:4]}

    def objective(given_parameters):
        sample = torch.func.functional_call(distribution, given_parameters, (6, seeded(1)))
        return sum((getattr(sample, field) * weight).sum() for field, weight in mix.items())

    for seed in range(4):
        direction = {k: torch.randn(v.shape, generator=seeded(seed)).double() for k, v in parameters.items()}
        _, slope = torch.func.jvp(objective, (parameters,), (direction,))
        ends = [objective({k: v + step * direction[k] for k, v in parameters.items()}) for step in (1e-6, -1e-6)]
        assert float(slope) == pytest.approx(float(ends[0] - ends[1]) / 2e-6, rel=1e-5)
        leaves = {k: v.clone().requires_grad_() for k, v in parameters.items()}
        gradient = torch.autograd.grad(objective(leaves), list(leaves.values()))
        dot = sum((g * direction[k]).sum() for g, k in zip(gradient, leaves, strict=True))
        assert float(dot) == pytest.approx(float(slope), rel=1e-8)


@every_distribution
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_grid(name, data):
    """1-D to 3-D grids, any observable mask, any number of draws, any batch."""
    grid = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3), label="grid")
    cells = int(np.prod(grid))
    flags = data.draw(st.lists(st.booleans(), min_size=cells, max_size=cells).filter(any), label="observable")
    draws, batch = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 30))
    observable = torch.tensor(flags).reshape(grid)
    distribution = make_distribution(name, observable)
    sample = distribution.draw(draws, seeded())
    assert sample.values.shape == (draws, *grid)
    assert torch.equal(distribution.scatter(distribution.pack(sample.values)), sample.values)
    assert distribution.index.tolist() == np.flatnonzero(flags).tolist()
    assert share(sample.values, batch).shape == (batch, *grid)
    assert 0 < distribution.count() < distribution.n_sites + 1e-4
    sample.values.sum().backward()


@settings(deadline=None)
@given(draws=st.integers(1, 20), batch=st.integers(1, 60))
def test_sharing_is_even_and_in_order(draws, batch):
    """Consecutive signals share a mask; no mask serves two signals more than another."""
    owners = share(torch.arange(draws)[:, None], batch).flatten()
    assert torch.equal(owners, owners.sort().values)
    if batch >= draws:
        served = owners.bincount(minlength=draws)
        assert served.max() - served.min() <= 1
        assert served.min() >= 1


def test_deep_copies_are_independent():
    """A copy keeps the temperature and has parameters of its own."""
    distribution = make_distribution("vln", temperature=0.2)
    twin = copy.deepcopy(distribution)
    twin.shift(1.0)
    assert twin.temperature == 0.2
    assert twin.count() > distribution.count()


@every_distribution
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_everything_is_computed_in_the_precision_of_the_module(name, dtype):
    """Also where torch has no function for half precision (quantiles, Cholesky factors)."""
    distribution = roughened(make_distribution(name)).to(dtype)
    sample = distribution.draw(8, seeded(1))
    marginals, opened = distribution.marginals, distribution.probs_open
    distribution.expected_l0(seeded(1)).backward()
    distribution.warm_start(distribution.index[:2])
    for one in (sample.values, sample.logits, sample.open_probability, marginals, opened, *distribution.parameters()):
        assert one.dtype == dtype
        assert one.isfinite().all()
    if name not in ("hnet", "simplex"):  # whose logits have no density in closed form
        logs = distribution.marginal_log_prob(sample.values.detach())
        assert logs.dtype == dtype
        assert logs.isfinite().all()


@pytest.mark.parametrize("k", [2.5, 2.0, True, "2", None])
def test_a_number_of_sites_that_is_none_is_refused(k):
    """By every method that takes one, and by budgets, which rounded it down."""
    distribution = make_distribution("iln")
    for take in (distribution.top, distribution.concentration, ExactK, DualAscent, Reinforce):
        with pytest.raises(SettingsError, match="k must be a whole number"):
            take(k)
