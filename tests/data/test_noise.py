"""Measurement noise is keyed by sample, site and channel: the same wherever and in whatever order it is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import keyhole as kh
from keyhole.data.noise import standard_noise


def test_noise_is_standard_normal():
    """Moments and the whole distribution, by Kolmogorov and Smirnov."""
    draws = standard_noise(np.arange(500), np.arange(300), 2)
    assert draws.shape == (500, 2, 300)
    assert draws.mean() == pytest.approx(0, abs=4 / draws.size**0.5)
    assert draws.var() == pytest.approx(1, abs=4 * (2 / draws.size) ** 0.5)
    assert stats.kstest(draws.ravel()[:100_000], "norm").pvalue > 1e-3
    assert 4 < np.abs(draws).max() < 6


def test_samples_sites_and_channels_are_independent():
    """Correlations along and between the axes, also of neighbours, are those of chance; so are those of squares."""
    draws = standard_noise(np.arange(2000), np.arange(40), 2)
    for values in (draws, np.square(draws) - 1, np.abs(draws) - np.sqrt(2 / np.pi)):
        columns = values.reshape(2000, -1)
        correlations = np.corrcoef(columns.T)[np.triu_indices(80, 1)]
        assert np.abs(correlations).max() < 5 / 2000**0.5
        assert correlations.std() == pytest.approx(1 / 2000**0.5, rel=0.1)
        for one, other in ((values[1:], values[:-1]), (values[..., 1:], values[..., :-1])):
            assert np.corrcoef(one.ravel(), other.ravel())[0, 1] == pytest.approx(0, abs=4 / one.size**0.5)


def test_numbers_far_apart_and_large_ones_differ():
    """Sites and samples beyond 32 bits are as good as others, and none repeats another."""
    rows, sites = (np.concatenate([base + np.arange(50) for base in (0, 2**20, 2**33, 2**53)]) for _ in range(2))
    draws = standard_noise(rows, sites, 1)
    assert len(np.unique(draws)) == draws.size
    assert stats.kstest(draws.ravel(), "norm").pvalue > 1e-3


@given(seed=st.integers(0, 1000), channels=st.integers(1, 3))
def test_noise_does_not_depend_on_what_else_is_drawn(seed, channels):
    """Any samples and sites in any order, with repetitions."""
    rng = np.random.default_rng(seed)
    whole = standard_noise(np.arange(30), np.arange(20), channels)
    rows, sites = rng.integers(0, 30, rng.integers(1, 9)), rng.integers(0, 20, rng.integers(1, 9))
    part = standard_noise(rows, sites, channels)
    np.testing.assert_array_equal(part, whole[rows][:, :, sites])


def noisy(land: bool = False):
    """Samples of ten sites with noise that grows along the line, the third of them land or not."""
    values = np.random.default_rng(0).normal(size=(40, 10))
    if land:
        values[:, 2] = np.nan
    return kh.read(values).with_noise(np.linspace(0.1, 1.0, 10))


def test_samples_keep_their_noise_in_every_part():
    """Taken in any order, twice, or one by one; and with fewer sites."""
    samples, order = noisy(), np.array([17, 3, 3, 39])
    whole = samples.noisy_readings(np.arange(10))
    np.testing.assert_array_equal(samples.take(order).noisy_readings(np.arange(10)), whole[order])
    again = samples.take(np.arange(10, 40)).take(np.array([7, 29]))
    np.testing.assert_array_equal(again.noisy_readings(np.array([8, 1])), whole[[17, 39]][:, [8, 1]])
    fewer = samples.restrict(np.arange(10) % 2 == 0)
    np.testing.assert_array_equal(fewer.noisy_readings(np.array([0, 4, 8])), whole[:, [0, 4, 8]])


def test_land_does_not_move_the_noise_of_other_sites():
    """Noise is keyed by the position in the data, not by the number among the valid sites."""
    valid = np.delete(np.arange(10), 2)
    np.testing.assert_array_equal(noisy(land=True).noisy_readings(valid), noisy().noisy_readings(valid))


def test_noise_has_the_standard_deviation_asked_for():
    samples = noisy().as_scaled()
    many = standard_noise(np.arange(20_000), samples.sites.index, 1) * samples.noise
    np.testing.assert_allclose(many.std(axis=0), samples.noise, rtol=0.03)
    np.testing.assert_allclose(samples.draw_noise(np.array([9, 0])), many[:40][:, :, [9, 0]])


def test_scaled_samples_read_the_same_noise_in_their_units():
    """Readings of scaled samples are scaled readings, noise included; weights have no part in them."""
    from keyhole.data.scaler import Scaler

    samples, sites = noisy().with_weights(np.linspace(1, 5, 10)), np.array([8, 1])
    scaler = Scaler.fit(samples)
    expected = scaler.scale_readings(samples.noisy_readings(sites), sites, None)
    np.testing.assert_allclose(scaler.apply(samples).readings(sites), expected, atol=1e-5)
    observed = scaler.apply(samples).observed()
    np.testing.assert_allclose(observed[:, :, sites].transpose(0, 2, 1), expected, atol=1e-5)
