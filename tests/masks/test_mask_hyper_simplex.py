"""What is particular to HNet-LN and to the simplex distribution."""

from __future__ import annotations

import pytest
import torch
from mask_helpers import make_distribution, roughened, seeded, standard_error
from torch.utils._python_dispatch import TorchDispatchMode

from keyhole.core.errors import SettingsError

LINE = torch.ones(5, dtype=torch.bool)
DRAWS = 1_000_000


class Largest(TorchDispatchMode):
    """Remember the largest tensor that any operation makes."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for item in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(item, torch.Tensor):
                self.numel = max(self.numel, item.numel())
        return result


@pytest.mark.parametrize("temperature", [0.1, 0.3, 1.0])
def test_hnet_surrogate_is_exact_for_an_independent_latent(temperature):
    """Given `W(r)` and `b(r)`, the closed forms hold for `W z' + b` with a fresh `z'`."""
    distribution = roughened(make_distribution("hnet", LINE, temperature=temperature), by=0.1)
    sample = distribution.draw(12, seeded(1))
    with torch.no_grad():
        weight, bias = distribution.conditional(distribution.latent_draws(12, seeded(1)))
        opened, positive = torch.zeros(2, 8, 5).double()
        for seed in range(10):
            z = torch.randn(DRAWS // 10, 16, generator=seeded(60 + seed))
            for row in range(8):
                u = z @ weight[row].T + bias[row]
                opened[row] += (u > temperature * distribution.lower_logit).sum(0)
                positive[row] += (u > 0).sum(0)
    for estimate, field in ((opened, sample.open_probability), (positive, sample.zero_temperature)):
        expected = field.detach().double()
        assert expected.shape == (8, 5)
        assert ((estimate / DRAWS - expected).abs() < 4.5 * standard_error(expected, DRAWS)).all()


def test_hnet_surrogate_is_not_the_distribution():
    """With the latent that made `W` and `b` it does not hold: the reason why the collapse samples."""
    distribution = roughened(make_distribution("hnet", LINE))
    surrogate = torch.stack([distribution.draw(8, seeded(s)).zero_temperature.detach() for s in range(500)])
    assert float((surrogate.mean((0, 1)) - distribution.pack(distribution.marginals)).abs().max()) > 0.05


def test_hnet_contraction_is_w_z_plus_b():
    """Contracting the outer product first gives the logits of the formula."""
    distribution = roughened(make_distribution("hnet")).double()
    z = distribution.latent_draws(7, seeded(2))
    weight, bias = distribution.conditional(z)
    expected = torch.einsum("rsd,rd->rs", weight, z) + bias
    torch.testing.assert_close(distribution.draw(7, seeded(2)).logits, expected)


def test_hnet_never_builds_draws_by_sites_by_latent():
    """Forwards and backwards, 64 draws on 500 sites make nothing near 64 x 500 x 16."""
    distribution = make_distribution("hnet", torch.ones(500, dtype=torch.bool))
    with Largest() as largest:
        sample = distribution.draw(64, seeded())
        (sample.values.sum() + sample.expected_l0).backward()
    assert largest.numel <= distribution.weight_head.numel()
    assert distribution.weight_head.numel() < 64 * 500 * 16 / 3


def test_hnet_few_draws_give_few_rows():
    """The closed forms have a row per draw, up to eight."""
    distribution = make_distribution("hnet")
    assert [len(distribution.draw(n, seeded()).open_probability) for n in (1, 3, 8, 20)] == [1, 3, 8, 8]


@pytest.mark.parametrize("choices", [1, 2, 3])
def test_simplex_composition(choices):
    """Compositions sum to one; their log-ratios are normal with mean `b / lam`, covariance `W W' / lam^2`."""
    distribution = roughened(make_distribution("simplex", LINE, n_options=choices, temperature=0.4)).double()
    with torch.no_grad():
        y = torch.cat([distribution.composition(20_000, seeded(s)) for s in range(5)])
    assert y.shape == (100_000, 5, choices + 1)
    torch.testing.assert_close(y.sum(-1), torch.ones(100_000, 5).double())
    ratios = (y[..., :-1] / y[..., -1:]).log().flatten(1)
    weight = distribution.weight.detach().flatten(0, 1)
    expected = weight @ weight.T / 0.16
    variance = expected.diagonal()
    error = ((variance[:, None] * variance + expected.square()) / 100_000).sqrt()
    assert ((torch.cov(ratios.T) - expected).abs() < 4.5 * error).all()
    offset = (ratios.mean(0) - distribution.bias.detach().flatten() / 0.4).abs()
    assert (offset < 4.5 * (variance / 100_000).sqrt()).all()


@pytest.mark.parametrize("choices", [1, 2, 3])
def test_simplex_mask_is_what_none_leaves(choices):
    """`sigmoid(logit / lam) = 1 - Y_none`, from the same draw; a site opens when "none" is not the largest."""
    distribution = roughened(make_distribution("simplex", LINE, n_options=choices)).double()
    sample, y = distribution.draw(50, seeded(3)), distribution.composition(50, seeded(3))
    torch.testing.assert_close(torch.sigmoid(sample.logits / distribution.temperature), 1 - y[..., -1])
    assert torch.equal(sample.opened, y.argmax(-1) != choices)


@pytest.mark.parametrize("choices", [1, 2, 3])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_simplex_open_probability_against_sampling(choices, temperature):
    """`1 - P("none" is largest)` by simulation, and the marginals, against a million draws."""
    distribution = roughened(make_distribution("simplex", LINE, n_options=choices, temperature=temperature))
    with torch.no_grad():
        opened = sum(distribution.draw(100_000, seeded(s)).opened.double().sum(0) for s in range(10)) / DRAWS
        rows = torch.cat([distribution.draw(1, seeded(s)).open_probability for s in range(1000)]).double()
    error = standard_error(opened, DRAWS)
    assert ((rows.mean(0) - opened).abs() < 4 * (error + rows.std(0) / len(rows) ** 0.5)).all()
    assert ((distribution.pack(distribution.marginals) - opened).abs() < 4 * error + 1e-3).all()


def test_simplex_with_one_choice_is_vln():
    """Same closed forms for the same parameters."""
    simplex, vln = roughened(make_distribution("simplex", n_options=1)), make_distribution("vln")
    with torch.no_grad():
        vln.weight.copy_(simplex.weight[:, 0])
        vln.bias.copy_(simplex.bias[:, 0])
    torch.testing.assert_close(simplex.pack(simplex.marginals), vln.pack(vln.marginals))
    torch.testing.assert_close(simplex.draw(9, seeded()).logits, vln.draw(9, seeded()).logits)


def test_simplex_refuses_more_choices_than_latents():
    """The rows of a site could not be orthogonal."""
    with pytest.raises(SettingsError, match="n_options"):
        make_distribution("simplex", n_options=5, rank=4)


@pytest.mark.parametrize("n_options", [1, 2, 3])
def test_simplex_option_marginals_against_sampling(n_options):
    """How often each option is the largest component; they add up to the marginals of the sites."""
    distribution = roughened(make_distribution("simplex", n_options=n_options)).double()
    with torch.no_grad():
        chosen = torch.cat([distribution.composition(20_000, seeded(s)).argmax(-1) for s in range(5)])
    found = distribution.option_marginals
    assert found.shape == (n_options, 3, 4)
    for option in range(n_options):
        share = (chosen == option).double().mean(0)
        error = 4.5 * standard_error(share, len(chosen)) + 1e-3
        assert ((distribution.pack(found[option]) - share).abs() < error).all()
    torch.testing.assert_close(found.sum(0), distribution.marginals, atol=2e-3, rtol=0)


def test_simplex_says_which_option_to_put_where():
    """Sites in the order of `top`, each with the option that is most probable there."""
    distribution = make_distribution("simplex", (2, 3), n_options=3)
    with torch.no_grad():
        distribution.bias[4, 2] += 6
        distribution.bias[1, 0] += 5
    sites, options = distribution.top_options(2)
    assert torch.equal(sites, distribution.top(2))
    assert dict(zip(sites.tolist(), options.tolist(), strict=True)) == {4: 2, 1: 0}
    assert options.dtype == torch.int64
