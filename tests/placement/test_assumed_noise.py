"""Searches assume a little measurement noise: sites where nearly nothing moves are not informative."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from example_data import smooth
from keyhole.core.run import Run
from keyhole.data import Sensors
from keyhole.placement import SELECTORS
from keyhole.placement.failures import harden_against_failures
from keyhole.placement.sketch import sketch

SHARE = 0.01  # of a channel's spread, as the documentation says


def wake(samples: int = 120) -> np.ndarray:
    """Two waves along the middle of a channel; in its corners next to nothing, perfectly correlated with them."""
    y, x = np.meshgrid(np.linspace(-1, 1, 9), np.linspace(0, 1, 12), indexing="ij")
    middle, phase = np.exp(-12 * y**2) * x, 2 * np.pi * np.arange(samples) / 17.3
    modes = [middle * np.cos(7 * x), middle * np.sin(7 * x), middle * y * np.cos(14 * x), middle * y * np.sin(14 * x)]
    scores = np.stack([np.cos(phase), np.sin(phase), 0.4 * np.cos(2 * phase), 0.4 * np.sin(2 * phase)], axis=1)
    field = np.tensordot(scores, modes, axes=1)
    field[:, [0, 0, -1, -1], [0, -1, 0, -1]] = 1e-4 * scores @ np.random.default_rng(0).normal(size=(4, 4))
    return field


def spread_at(field: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the standard deviation of some sites, relative to that of all values."""
    return field.std(axis=0).ravel()[indices] / field.std()


@pytest.mark.parametrize("method", ["greedy", "qr", "exchange", "kernel_exchange"])
def test_corners_where_nothing_moves_are_not_selected(method):
    field = wake()
    plan = kh.select(field, k=4, method=method, reconstructor="ridge", refit=False)
    assert spread_at(field, plan.indices).min() > 0.1
    assert plan.metadata["assumed_noise"] == SHARE


def test_perfect_sensors_may_be_asked_for():
    field = wake()
    plan = kh.select(field, k=4, method="greedy", reconstructor="ridge", refit=False, noise=0)
    assert spread_at(field, plan.indices).min() < SHARE
    assert "assumed_noise" not in plan.metadata


def test_failures_and_drop_assume_it_too():
    """Of sites that are as good without noise, those in the corners fail first and are dropped first."""
    field = wake()
    samples = kh.read(field).as_scaled()
    found = SELECTORS.make("qr", {}).select(samples, 5, validation=None, run=Run())
    hardened = harden_against_failures(found, samples, 1, Run())
    assert spread_at(field, samples.positions(hardened.sites)).min() > 0.1
    corner = {"existing": [0, 107]}
    plan = kh.select(field, k=4, method="greedy", reconstructor="ridge", constraints=corner, refit=False)
    assert set(kh.drop(plan, field, k=2, refit=False).indices) == set(plan.indices[2:])


def test_what_is_assumed_of_each_reading():
    """A share of the spread of the channel, unless noise is given or the data are a table; never in the readings."""
    fields = smooth(40, 3, 4)
    both = kh.read(np.stack([fields, 30 * fields], axis=-1), channels=-1)
    sites = np.arange(12)
    scaled = both.as_scaled()
    np.testing.assert_allclose(scaled.assumed_noise(sites), SHARE)
    np.testing.assert_array_equal(scaled.readings(sites), scaled.values.transpose(0, 2, 1))
    assert (both.with_noise(0).as_scaled().assumed_noise(sites) == 0).all()
    assert (both.with_noise(0.5).as_scaled().search_noise(sites) == 0.25).all()
    assert (kh.read(_table(fields)).as_scaled().assumed_noise(sites) == 0).all()


def test_channels_that_are_sites_have_a_spread_each():
    fields = smooth(40, 3, 4)
    apart = kh.read(np.stack([fields, 30 * fields], axis=-1), channels=-1).channels_apart().as_scaled()
    assumed = apart.assumed_noise(np.arange(24))[0]
    np.testing.assert_allclose(assumed[:12], SHARE * fields.var(axis=0).mean() ** 0.5, rtol=1e-5)
    np.testing.assert_allclose(assumed[12:], 30 * assumed[:12], rtol=1e-5)


def test_sensors_with_noise_of_their_own_keep_it():
    fields = kh.read(smooth(40, 3, 4))
    kinds = {
        "known": Sensors.at({"row": [0.5], "column": [1.0]}, noise=0.0),
        "unknown": Sensors.at({"row": [1.5], "column": [2.0]}),
    }
    assumed = fields.with_sensors(kinds).as_scaled().assumed_noise(np.arange(2))
    np.testing.assert_allclose(assumed, [[0, SHARE]])
    given = fields.with_noise(0.1).with_sensors(kinds).as_scaled()
    assert (given.assumed_noise(np.arange(2)) == 0).all()


def test_samples_that_stand_for_many_keep_it():
    samples = kh.read(smooth(40, 3, 4)).as_scaled()
    few = sketch(samples, 40)
    np.testing.assert_allclose(few.search_noise(np.arange(12)), SHARE**2, rtol=0.1)


def _table(fields: np.ndarray) -> object:
    import pandas as pd

    return pd.DataFrame(fields.reshape(len(fields), -1))
