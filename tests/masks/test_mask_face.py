"""The face of every registered distribution: the habits of `torch.distributions` and of `torch.nn.Module`."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from mask_helpers import holed, make_distribution, roughened, seeded, standard_error

from keyhole.core.errors import DataError, SettingsError
from keyhole.masks import MASK_DISTRIBUTIONS, CorrelatedLogitNormal

every_distribution = pytest.mark.parametrize("name", MASK_DISTRIBUTIONS)


@every_distribution
@pytest.mark.parametrize(
    ("sites", "shape"),
    [
        (12, (12,)),
        ((3, 4), (3, 4)),
        ([3, 4], (3, 4)),
        (torch.Size([2, 3, 2]), (2, 3, 2)),
        (np.int64(12), (12,)),
        (holed(3, 4), (3, 4)),
        (holed(3, 4).numpy(), (3, 4)),
        (holed(12).tolist(), (12,)),
    ],
)
def test_made_from_a_shape_or_from_valid_sites(name, sites, shape):
    """An integer, a shape, or a boolean tensor, array or list."""
    distribution = MASK_DISTRIBUTIONS[name](sites)
    assert distribution.event_shape == shape
    n_valid = int(np.asarray(sites).sum()) if np.asarray(sites).dtype == bool else 12
    assert distribution.n_sites == n_valid
    assert distribution.rsample((2,)).shape == (2, *shape)


def test_an_array_of_valid_sites_is_copied():
    """Also where it may not be written to."""
    valid = holed(3, 4).numpy().copy()
    valid.flags.writeable = False
    assert MASK_DISTRIBUTIONS["vln"](valid).n_sites == int(valid.sum())


@pytest.mark.parametrize("sites", [0, (3, 0), -1, (2.0, 3.0), (), "ab", [[1, 0], [0, 1]], 3.5])
def test_what_is_no_shape_is_refused(sites):
    with pytest.raises(SettingsError, match="neither a shape of positive integers nor a boolean array"):
        MASK_DISTRIBUTIONS["iln"](sites)


@pytest.mark.parametrize("sites", [np.ones((3, 3)), np.ones(4, dtype=int), torch.ones(3)])
def test_numbers_for_valid_sites_are_refused(sites):
    """They could be a shape or a mask."""
    with pytest.raises(SettingsError, match=f"an array of {sites.dtype}; give a boolean array"):
        MASK_DISTRIBUTIONS["iln"](sites)


def test_no_valid_site_is_refused():
    with pytest.raises(DataError, match=r"no site of the \(2, 2\) grid is valid"):
        MASK_DISTRIBUTIONS["iln"](np.zeros((2, 2), dtype=bool))


@every_distribution
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), torch.Size([2, 1])])
def test_rsample_and_sample_have_the_shapes_of_torch(name, shape):
    """`(*sample_shape, *event_shape)`; with and without gradient, the same masks from the same generator."""
    distribution = roughened(make_distribution(name))
    masks, same = distribution.rsample(shape, seeded(1)), distribution.sample(shape, seeded(1))
    assert masks.shape == same.shape == (*shape, 3, 4)
    assert masks.dtype == torch.float32
    assert masks.requires_grad
    assert not same.requires_grad
    assert torch.equal(masks, same)
    n = torch.Size(shape).numel()
    assert torch.equal(masks.reshape(n, 3, 4), distribution.draw(n, seeded(1)).values)


@every_distribution
def test_without_a_generator_torchs_own_is_used(name):
    """In the constructor and in draws: `torch.manual_seed` decides."""
    found = []
    for _ in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            distribution = MASK_DISTRIBUTIONS[name]((3, 4))
            found.append((distribution.rsample((4,)), distribution.draw(4).logits, distribution.expected_l0()))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        twin = MASK_DISTRIBUTIONS[name]((3, 4), generator=torch.default_generator)
        assert torch.equal(twin.rsample((4,)), found[0][0])


@every_distribution
def test_summaries_are_on_the_grid_and_without_gradient(name):
    """`marginals` and `probs_open`: probabilities, zero at sites that are not valid, the same whenever asked."""
    distribution = roughened(make_distribution(name))
    for summary in ("marginals", "probs_open"):
        values = getattr(distribution, summary)
        assert values.shape == distribution.event_shape
        assert not values.requires_grad
        assert values.min() >= 0
        assert values.max() <= 1
        assert (values[~holed(3, 4)] == 0).all()
        assert torch.equal(values, getattr(distribution, summary))
    assert (distribution.probs_open >= distribution.marginals - 1e-6).all()


@every_distribution
@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_probs_open_are_the_frequency_of_masks_above_zero(name, temperature):
    """Of the stretched masks at the temperature, also where the paper's expected L0 is another number."""
    distribution = roughened(make_distribution(name, temperature=temperature))
    opened = torch.stack([distribution.sample((20_000,), seeded(s)) > 0 for s in range(5)]).double().mean((0, 1))
    draws = 4096 if name in ("hnet", "simplex") else 100_000
    assert ((opened - distribution.probs_open).abs() <= 4.5 * standard_error(opened, draws)).all()


@every_distribution
def test_expected_l0_is_the_papers_penalty(name):
    """Differentiable; the sum of `probs_open` where that has a closed form; of the draws' rows otherwise."""
    distribution = roughened(make_distribution(name))
    expected = distribution.expected_l0(seeded(1))
    assert expected.shape == ()
    torch.testing.assert_close(expected, distribution.draw(8, seeded(1)).expected_l0)
    if name not in ("hnet", "simplex"):
        torch.testing.assert_close(expected.detach(), distribution.probs_open.sum())
    expected.backward()
    assert any(p.grad is not None and p.grad.any() for p in distribution.parameters())


@every_distribution
def test_top(name):
    """A LongTensor of flat grid indices on the distribution's device, the largest marginals in descending order."""
    distribution = roughened(make_distribution(name))
    top = distribution.top(4)
    assert top.dtype == torch.int64
    marginals = distribution.marginals.flatten()
    torch.testing.assert_close(marginals[top], marginals.topk(4).values)
    distribution.warm_start(top[2:])
    assert set(distribution.top(2).tolist()) == set(top[2:].tolist())


@every_distribution
def test_moves_like_a_module(name):
    """`.to(dtype)`, `.to(device)`, `state_dict`, deep copies."""
    distribution = roughened(make_distribution(name))
    twin = copy.deepcopy(distribution).to(torch.float64)
    assert twin.rsample((2,)).dtype == twin.marginals.dtype == twin.expected_l0().dtype == torch.float64
    assert twin.index.dtype == torch.int64
    draws_differ = 0.04 if name == "hnet" else 2e-3  # its marginals are frequencies, in either precision
    torch.testing.assert_close(twin.marginals, distribution.marginals.double(), atol=draws_differ, rtol=0)
    elsewhere = copy.deepcopy(distribution).to("meta")
    assert {p.device.type for p in [*elsewhere.parameters(), *elsewhere.buffers()]} == {"meta"}
    assert elsewhere.n_sites == distribution.n_sites
    assert elsewhere.rsample((2,)).device.type == elsewhere.rsample((2,), seeded()).device.type == "meta"
    other = make_distribution(name, seed=9, temperature=2.0)
    other.load_state_dict(distribution.state_dict())
    assert torch.equal(other.rsample((3,), seeded()), distribution.rsample((3,), seeded()))
    assert torch.equal(other.marginals, distribution.marginals)


@every_distribution
def test_repr_names_sites_and_temperature(name):
    assert "(3, 4), n_sites=9, temperature=0.5" in repr(make_distribution(name, temperature=0.5))


def test_a_compiled_loop_takes_batches_of_several_sizes():
    """As the last batch of an epoch, for which torch.compile makes the number of draws a variable."""
    masks = CorrelatedLogitNormal((3, 4), rank=2)
    drawn = torch.compile(lambda n: masks.rsample((n,)), backend="aot_eager", fullgraph=True)
    assert [len(drawn(n)) for n in (4, 5, 7)] == [4, 5, 7]
