"""Closed forms against a million draws, and the distributions' starting points."""

from __future__ import annotations

import math

import pytest
import torch
from mask_helpers import holed, make_distribution, roughened, seeded, standard_error

from keyhole.masks.normal import cdf
from keyhole.masks.orthant import all_below_zero, sobol

DRAWS = 1_000_000
LINE = torch.ones(5, dtype=torch.bool)


@torch.no_grad()
def frequencies(distribution, chunks: int = 10):
    """How often masks are above 0 and below 1, and logits above 0, over a million draws."""
    above = torch.zeros(3, distribution.n_sites, dtype=torch.float64)
    for seed in range(chunks):
        sample = distribution.draw(DRAWS // chunks, seeded(100 + seed))
        values = distribution.pack(sample.values)
        for row, event in enumerate((values > 0, values < 1, sample.logits > 0)):
            above[row] += event.double().sum(0)
    return above / DRAWS


def agrees(estimate, expected, draws: int = DRAWS):
    expected = expected.detach().double()
    return bool(((estimate - expected).abs() < 4 * standard_error(expected, draws)).all())


@pytest.mark.parametrize("name", ["iln", "vln", "graph_vln", "sct"])
@pytest.mark.parametrize("temperature", [0.1, 0.3, 1.0])
def test_open_probability_and_zero_temperature(name, temperature):
    """`P(S > 0)` and `P(u > 0)` hold at every temperature."""
    distribution = roughened(make_distribution(name, LINE, temperature=temperature))
    sample = distribution.draw(1, seeded())
    opened, _, positive = frequencies(distribution)
    assert agrees(opened, sample.open_probability[0])
    assert agrees(positive, sample.zero_temperature[0])
    assert sample.expected_l0.item() == pytest.approx(sample.open_probability.sum().item())
    assert sample.soft_count.item() == pytest.approx(distribution.count())


@pytest.mark.parametrize("name", ["iln", "vln"])
@pytest.mark.parametrize("temperature", [0.1, 0.3])
def test_the_papers_formula_forgets_the_temperature(name, temperature):
    """Without `lam` the printed formula is far from the truth; at `lam = 1` it is the same."""
    distribution = roughened(make_distribution(name, LINE, temperature=temperature))
    location, spread = distribution.moments()
    printed = 1 - cdf((math.log(0.1 / 1.1) - location) / spread)
    opened, _, _ = frequencies(distribution)
    assert not agrees(opened, printed)
    assert float((opened - printed.detach()).abs().max()) > 0.05
    distribution.temperature = 1.0
    torch.testing.assert_close(printed, distribution.draw(1, seeded()).open_probability[0])


@pytest.mark.parametrize("temperature", [0.2, 0.5])
@pytest.mark.parametrize("stretch", [(-0.1, 1.1), (-0.3, 1.2)])
@pytest.mark.parametrize("name", ["iln", "vln", "graph_vln", "simplex"])
def test_every_site_starts_with_atoms_of_a_fifth(name, temperature, stretch):
    """`P(S = 0) = P(S = 1) = 0.2`, whatever the temperature and the stretch."""
    distribution = make_distribution(name, LINE, temperature=temperature, gamma=stretch[0], eta=stretch[1])
    opened, below_one, _ = frequencies(distribution)
    assert torch.allclose(1 - opened, torch.tensor(0.2).double(), atol=2.5e-3)
    assert torch.allclose(1 - below_one, torch.tensor(0.2).double(), atol=2.5e-3)


def test_initial_spread_is_the_documented_one():
    """At temperature 0.3, `sigma = 0.855`."""
    for name in ("iln", "vln", "graph_vln"):
        _, spread = make_distribution(name).moments()
        assert spread.tolist() == pytest.approx([0.8548] * len(spread), abs=1e-4)


def test_vln_rows_differ():
    """Rows are scaled to one norm, not to one direction."""
    weight = make_distribution("vln", holed(6, 6)).weight
    assert torch.linalg.matrix_rank(weight) == 16


def test_concrete_starts_with_its_own_atoms():
    """At temperature 2/3 both atoms are 0.168."""
    distribution = make_distribution("sct", LINE)
    opened, below_one, _ = frequencies(distribution)
    assert torch.allclose(1 - opened, torch.tensor(0.168).double(), atol=2e-3)
    assert torch.allclose(1 - below_one, torch.tensor(0.168).double(), atol=2e-3)


@pytest.mark.parametrize("stretch", [(-0.1, 1.1), (-0.3, 1.2)])
def test_hnet_starts_with_atoms_of_a_fifth_at_every_site(stretch):
    """Not only on average over the sites, and by other draws than those that it was made with."""
    distribution = make_distribution("hnet", (10, 10), gamma=stretch[0], eta=stretch[1])
    opened, below_one, _ = frequencies(distribution)
    error = 4.5 * (0.2 * 0.8 / 4096) ** 0.5  # of quantiles of the 4096 reference draws
    assert (1 - opened - 0.2).abs().max() < error
    assert (1 - below_one - 0.2).abs().max() < error


def test_vln_samples_have_covariance_w_w():
    """The logits of a million draws have covariance `W W'` and mean `b`, within 4 standard errors."""
    distribution = roughened(make_distribution("vln", LINE))
    with torch.no_grad():
        logits = torch.cat([distribution.draw(DRAWS // 10, seeded(s)).logits for s in range(10)]).double()
        expected = (distribution.weight @ distribution.weight.T).double()
    variance = expected.diagonal()
    error = ((variance[:, None] * variance + expected.square()) / DRAWS).sqrt()
    assert ((torch.cov(logits.T) - expected).abs() < 4 * error).all()
    assert ((logits.mean(0) - distribution.bias.detach()).abs() < 4 * (variance / DRAWS).sqrt()).all()
    torch.testing.assert_close(distribution.covariance.double(), expected)


@pytest.mark.parametrize("choices", [1, 2, 3])
def test_orthant_probability_against_sampling(choices):
    """The GHK simulator against a million normal vectors: correlated, off-centre, several choices."""
    location = torch.randn(4, choices, generator=seeded(1)).double()
    factor = torch.randn(4, choices, choices, generator=seeded(2)).double()
    covariance = factor @ factor.mT
    below = torch.zeros(4).double()
    for seed in range(10):
        noise = torch.randn(DRAWS // 10, 4, choices, 1, generator=seeded(50 + seed)).double()
        below += ((factor @ noise).squeeze(-1) + location <= 0).all(-1).sum(0)
    noise = torch.rand(20_000, 4, choices - 1, generator=seeded(4)).double()
    simulated = all_below_zero(location, covariance, noise)
    error = standard_error(below / DRAWS, DRAWS) + simulated.std(0) / math.sqrt(20_000)
    assert ((simulated.mean(0) - below / DRAWS).abs() < 4 * error).all()
    even = all_below_zero(location, covariance, sobol(256, choices - 1, like=location)[:, None]).mean(0)
    assert ((even - below / DRAWS).abs() < 4 * standard_error(even, DRAWS) + 1e-3).all()


def test_orthant_probability_of_one_choice_is_exact():
    """One choice needs no noise: `Phi(-b / sigma)`."""
    location, variance = torch.tensor([[0.3], [-2.0]]).double(), torch.tensor([[[4.0]], [[0.25]]]).double()
    simulated = all_below_zero(location, variance, torch.zeros(1, 2, 0).double())
    torch.testing.assert_close(simulated[0], cdf(torch.tensor([-0.15, 4.0]).double()))


def test_orthant_probability_of_collinear_choices():
    """Two copies of one choice are as likely shut as the one."""
    covariance = torch.ones(1, 2, 2)
    noise = torch.rand(4000, 1, 1, generator=seeded())
    simulated = all_below_zero(torch.full((1, 2), 0.5), covariance, noise)
    assert float(simulated.mean()) == pytest.approx(float(cdf(torch.tensor(-0.5))), abs=0.01)
