"""Scaling: mean or climatology and scale are removed and restored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhole.data.climatology import Climatology
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.sites import Sites
from keyhole.errors import DataError, PlanError

MONTHS = np.arange("1999-11", "2002-11", dtype="datetime64[M]").astype("datetime64[ns]")


def make(values: np.ndarray, kind="none") -> Samples:
    time = None if kind == "none" else MONTHS[: len(values)]
    return Samples.build(values, Sites.plain(values.shape[2:]), time=time, anomalies=kind)


@given(
    seed=st.integers(0, 1000),
    channels=st.integers(1, 3),
    grid=st.sampled_from([(5,), (3, 4), (2, 2, 3)]),
    kind=st.sampled_from(["none", "month", "harmonics"]),
    dtype=st.sampled_from([np.float32, np.float64]),
    offset=st.floats(-1e3, 1e3),
    size=st.floats(1e-9, 1e9),
)
def test_what_is_scaled_comes_back(seed, channels, grid, kind, dtype, offset, size):
    rng = np.random.default_rng(seed)
    offset *= size
    values = (offset + size * rng.normal(size=(36, channels, *grid))).astype(dtype)
    values.reshape(36, channels, -1)[:, :, 1] = np.nan
    signals = make(values, kind)
    scaling = Scaler.fit(signals)
    back = scaling.undo(scaling.apply(signals).targets, signals.time)
    assert back.dtype == values.dtype
    tolerance = 1e-6 * (abs(offset) + 10 * size)
    np.testing.assert_allclose(signals.sites.to_grid(back), values, rtol=0, atol=tolerance)


def test_the_baseline_is_the_mean_and_the_scale_is_of_each_channel(rng):
    values = rng.normal(size=(50, 2, 3, 4)) * np.array([2.0, 30.0])[:, None, None] + 7
    scaling = Scaler.fit(make(values))
    np.testing.assert_allclose(scaling.baseline, values.mean(axis=0).reshape(1, 2, 12))
    np.testing.assert_allclose(scaling.scale, np.sqrt(values.var(axis=0).mean(axis=(1, 2))))


def test_scaled_samples_have_no_mean_unit_size_and_zeros_where_values_are_missing(rng):
    values = 5 + 3 * rng.normal(size=(40, 1, 6))
    values[:, :, 2] = np.nan
    values[3:7, :, 4] = np.nan
    signals = make(values)
    scaled = Scaler.fit(signals).apply(signals)
    assert scaled.values.dtype == np.float32
    assert scaled.values.shape == (40, 1, 5)
    assert (scaled.values[3:7, :, 3] == 0).all()
    known = np.where(scaled.missing, np.nan, scaled.values)
    np.testing.assert_allclose(np.nanmean(known, axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(np.nanmean(np.square(known)), 1, rtol=1e-5)


def test_targets_are_values_weighted_by_the_root(rng):
    """A plain sum of squared errors of targets is the weighted one of values; readings are not weighted."""
    weights = rng.uniform(0.1, 2, 6)
    samples = make(rng.normal(size=(40, 1, 6))).with_weights(weights)
    scaler = Scaler.fit(samples)
    scaled = scaler.apply(samples)
    np.testing.assert_allclose(
        np.square(scaled.targets), np.square(scaled.values) * weights / weights.mean(), rtol=1e-5
    )
    np.testing.assert_allclose(scaled.readings(np.array([4, 1]))[:, :, 0], scaled.values[:, 0, [4, 1]])
    np.testing.assert_allclose(scaler.undo(scaled.targets, None), samples.values, atol=1e-5)
    np.testing.assert_allclose(np.square(scaled.targets).mean(), 1, rtol=1e-5)


def test_the_climatology_is_the_mean_of_each_calendar_month(rng):
    signals = make(rng.normal(size=(36, 1, 4)), "month")
    scaling = Scaler.fit(signals)
    assert scaling.baseline.shape == (12, 1, 4)
    month = np.array([int(str(t)[5:7]) for t in signals.time])
    for number in range(1, 13):
        np.testing.assert_allclose(scaling.baseline[number - 1], signals.values[month == number].mean(axis=0))
    np.testing.assert_allclose(scaling.expected(signals), scaling.baseline[month - 1])


def test_the_climatology_is_of_the_samples_fitted_on_alone(rng):
    """Later samples are judged against the training block's climatology, not their own."""
    values = rng.normal(size=(36, 1, 4))
    scaling = Scaler.fit(make(values, "month").take(np.arange(24)))
    other = values.copy()
    other[24:] += 100
    again = Scaler.fit(make(other, "month").take(np.arange(24)))
    np.testing.assert_array_equal(scaling.baseline, again.baseline)
    np.testing.assert_array_equal(scaling.scale, again.scale)


@pytest.mark.parametrize("kind", ["none", "month", "harmonics"])
def test_readings_are_scaled_as_the_samples_are(rng, kind):
    signals = make(rng.normal(size=(36, 2, 3, 4)), kind)
    scaling, sites = Scaler.fit(signals), np.array([7, 0, 3])
    readings = scaling.scale_readings(signals.readings(sites), sites, signals.time)
    np.testing.assert_allclose(readings, scaling.apply(signals).readings(sites), rtol=1e-6)


def test_dates_before_1970_have_their_own_month():
    scaling = Scaler(np.arange(12.0).reshape(12, 1, 1), np.ones(1), Climatology("month"))
    time = np.array(["1948-03-01", "1969-12-31", "1970-01-01"], "datetime64[ns]")
    np.testing.assert_array_equal(scaling.undo(np.zeros((3, 1, 1)), time).ravel(), [2, 11, 0])


def test_a_channel_that_never_changes_is_left_at_its_size(rng):
    values = rng.normal(size=(10, 2, 3))
    values[:, 1] = 4
    scaling = Scaler.fit(make(values))
    assert scaling.scale[1] == 1
    np.testing.assert_array_equal(scaling.apply(make(values)).values[:, 1], 0)


def test_a_climatology_without_some_month_is_refused(rng):
    signals = make(rng.normal(size=(10, 1, 3)), "month")
    with pytest.raises(DataError, match="no sample of month 9, 10; a climatology needs all twelve"):
        Scaler.fit(signals)


def test_anomalies_cannot_be_undone_without_time():
    scaling = Scaler(np.zeros((12, 1, 1)), np.ones(1), Climatology("month"))
    with pytest.raises(PlanError, match=r"monthly anomalies: give the time of each reading \(time="):
        scaling.undo(np.zeros((1, 1, 1)), None)
    with pytest.raises(PlanError, match="time has 2 entries for 1 readings"):
        scaling.undo(np.zeros((1, 1, 1)), MONTHS[:2])
