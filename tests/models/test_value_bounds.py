"""Value bounds that reconstructions do not exceed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.models.reconstructors import Residual, ValueBounds

SITES = np.array([9, 14, 27, 36, 49, 54])


def rain(n=400, seed=0):
    """Smooth fields of which what is below zero is dry."""
    rng = np.random.default_rng(seed)
    waves = rng.normal(size=(3, 8, 8)).cumsum(axis=1).cumsum(axis=2) / 8
    return np.einsum("nc,chw->nhw", rng.normal(size=(n, 3)), waves).clip(min=0)


def prepared(values, **reading):
    return prepare(kh.read(values, **reading), None, seed=0)


def raw(train, limits):
    """Limits as the data had them."""
    zero = np.asarray(train.offset).ravel()
    return [array + zero for array in limits.arrays().values()]


def test_a_value_that_many_share_at_the_end_is_a_limit():
    """Dry is one, the strongest rain is not."""
    train = prepared(rain()).train
    low, high = raw(train, ValueBounds.found(train))
    np.testing.assert_allclose(low, 0, atol=1e-5)
    assert np.isposinf(high).all()


def test_a_tail_has_no_limit():
    """Nor have samples whose mean differs by month."""
    rng = np.random.default_rng(0)
    assert ValueBounds.found(prepared(rng.normal(size=(200, 5, 5))).train) is None
    assert ValueBounds.found(prepare(kh.datasets.sst(), None, seed=0).train) is None


def test_each_channel_has_its_own():
    """Zero for rain, none for the other, and one for a share of the sky."""
    rng = np.random.default_rng(0)
    values = np.stack([rain(), rng.normal(size=(400, 8, 8)), rng.uniform(-0.5, 1.5, (400, 8, 8)).clip(0, 1)], axis=1)
    train = prepared(values, channels=1).train
    low, high = (part.reshape(3, -1) for part in raw(train, ValueBounds.found(train)))
    scale = np.asarray(train.offset).reshape(3, -1).mean(axis=1) / values[:320].mean(axis=(0, 2, 3))
    assert np.isneginf(low[1]).all()
    assert np.isposinf(high[:2]).all()
    np.testing.assert_allclose(low[[0, 2]], 0, atol=1e-5)
    np.testing.assert_allclose(high[2], scale[2], rtol=0.1)


def test_the_slope_draws_back_from_beyond():
    """Beyond the limit the error counts from the limit: none where the truth is there, a full one elsewhere."""
    limits = ValueBounds(torch.zeros(3), torch.ones(3))
    whole = torch.tensor([[-2.0, -2.0, 0.25]], requires_grad=True)
    truth = torch.tensor([[0.0, 0.5, 0.5]])
    torch.square(limits(whole) - truth).sum().backward()
    np.testing.assert_allclose(whole.grad.numpy(), [[0.0, -1.0, -0.5]])


@pytest.mark.parametrize("inner", ["dense", "dense_conv"])
def test_a_network_stays_within_them(inner):
    """What is rebuilt is never less than dry, the linear part is; and so is the plan after a file."""
    data = prepared(rain())
    quick = {"train": {"steps": 120, "batch_size": 64, "ema_decay": 0.9}, "width": 32}
    fitted = Residual(inner, **quick).fit(data.train, SITES, validation=data.validation, run=Run())
    readings, zero = data.validation.readings(SITES), np.asarray(data.train.offset)
    reconstructed = fitted.reconstruct(readings)
    assert (fitted.linear.reconstruct(readings) + zero).min() < -0.1
    assert (reconstructed + zero).min() > -1e-5
    settings, arrays = fitted.state()
    again = Residual.restore(settings, arrays, data.train.sites, SITES)
    np.testing.assert_array_equal(again.reconstruct(readings), reconstructed)


def test_they_help_where_there_are_some():
    """The first look, with limits on the linear part alone, leaves less than that part."""
    data = prepared(rain())
    quick = {"train": {"steps": 5, "batch_size": 64}, "width": 32}
    fitted = Residual("dense", **quick).fit(data.train, SITES, validation=data.validation, run=Run())
    linear = fitted.linear.reconstruct(data.validation.readings(SITES))
    left = float(np.square(linear - data.validation.values, dtype=np.float64).mean())
    assert fitted.history[0]["validation"] < 0.95 * left
