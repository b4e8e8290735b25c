"""Samples: what is checked on the way in, and what they give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from example_data import gridded
from keyhole.data.samples import Samples
from keyhole.data.sites import Sites
from keyhole.data.splits import Split
from keyhole.errors import DataError, SettingsError


def build(values: np.ndarray, **options) -> Samples:
    return Samples.build(values, Sites.plain(values.shape[2:]), **options)


@pytest.fixture
def signals(rng) -> Samples:
    values = rng.normal(size=(5, 2, 3, 4))
    values[:, :, 0, 1] = np.nan
    return build(values, time=np.arange("2000-01", "2000-06", dtype="datetime64[M]"), split=Split.blocks(5))


def test_positions_without_values_are_no_sites(signals):
    np.testing.assert_array_equal(signals.sites.index, np.delete(np.arange(12), 1))
    assert signals.observable.all()
    assert signals.observable.shape == (11,)


def test_a_position_that_is_not_valid_stays_out(rng):
    values = rng.normal(size=(4, 1, 3))
    signals = Samples.build(values, Sites.plain((3,), np.array([True, False, True])))
    np.testing.assert_array_equal(signals.sites.index, [0, 2])
    np.testing.assert_array_equal(signals.values, values[:, :, [0, 2]])


def test_values_are_those_of_the_sites_in_c_order(rng):
    """NaN in all samples and channels is land, in some of them a missing value."""
    values = rng.normal(size=(5, 2, 3, 4))
    values[:, :, 0, 1] = np.nan
    values[2, 0, 2, 2] = values[:, 1, 1, 0] = np.nan
    samples = build(values)
    np.testing.assert_array_equal(samples.values, values.reshape(5, 2, 12)[:, :, samples.sites.index])
    np.testing.assert_array_equal(samples.missing, np.isnan(samples.values))
    np.testing.assert_array_equal(gridded(samples), values)
    for one in (samples, samples.restrict(np.arange(11) > 2)):
        assert one.values.flags.c_contiguous
    assert build(np.nan_to_num(values)).missing is None


def test_readings_are_samples_by_sites_by_channels(signals):
    readings = signals.readings(np.array([11, 2]))
    assert readings.shape == (5, 2, 2)
    whole = gridded(signals)
    np.testing.assert_array_equal(readings[:, 0], whole[:, :, 2, 3])
    np.testing.assert_array_equal(readings[:, 1], whole[:, :, 0, 2])
    np.testing.assert_array_equal(signals.noisy_readings(np.array([11, 2])), readings)
    noisy = signals.with_noise(1.0)
    noise = noisy.noisy_readings(np.array([11, 2])) - readings
    np.testing.assert_allclose(noise, noisy.draw_noise(np.array([10, 1])).transpose(0, 2, 1))
    with pytest.raises(SettingsError, match="site 1 is not valid"):
        signals.readings(np.array([0, 1]))


def test_take_gives_samples_with_their_times_and_drops_the_split(signals):
    part = signals.take(np.array([4, 0]))
    np.testing.assert_array_equal(part.values, signals.values[[4, 0]])
    np.testing.assert_array_equal(part.time, signals.time[[4, 0]])
    assert part.split is None
    assert signals.split is not None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.float64, np.float64),
        (np.longdouble, np.float64),
        (np.float32, np.float32),
        (np.float16, np.float32),
        (np.int8, np.float32),
        (np.uint16, np.float32),
        (np.bool_, np.float32),
        (np.int32, np.float64),
        (np.uint64, np.float64),
        (">f8", np.float64),
        (">i2", np.float32),
    ],
)
def test_values_become_the_narrowest_float_that_holds_them(given, kept):
    values = np.array([[[0, 1]], [[1, 0]]]).astype(given)
    assert build(values).values.dtype == kept


def test_large_integers_stay_apart():
    """Dates as integers and identifiers exceed what single precision can tell apart."""
    signals = build(np.array([[[2**24]], [[2**24 + 1]]]))
    np.testing.assert_array_equal(signals.values.ravel(), [2**24, 2**24 + 1])


def test_fingerprint_follows_values_cycle_sites_and_observable_sites(signals):
    whole = gridded(signals)
    changed, moved = whole.copy(), whole.copy()
    changed[0, 0, 2, 2] += 1
    moved[:, :, 0, :2] = whole[:, :, 0, 1::-1]
    fewer = replace(signals, observable=np.arange(11) > 0)
    others = [build(changed), build(moved), fewer, signals.anomalies("month"), signals.take(np.arange(4))]
    prints = {s.fingerprint() for s in (signals, *others)}
    assert len(prints) == 6
    assert signals.fingerprint() == build(whole).fingerprint()


def test_anomalies_switch_on_and_off(signals):
    assert signals.anomalies("month").climatology.kind == "month"
    assert signals.anomalies("month").anomalies("none").climatology.kind == "none"


def test_anomalies_need_time(rng):
    values = rng.normal(size=(4, 1, 3))
    with pytest.raises(DataError, match="monthly anomalies need a time"):
        build(values).anomalies("month")
    with pytest.raises(DataError, match="monthly anomalies need a time"):
        build(values, anomalies="month")


def test_a_cycle_that_is_not_known_is_refused(signals):
    with pytest.raises(SettingsError, match="anomalies='day': one of 'auto', 'none', 'month', 'harmonics' is needed"):
        signals.anomalies("day")


def test_time_must_be_there_for_each_sample(rng):
    values = rng.normal(size=(2, 1, 3))
    with pytest.raises(DataError, match="time has 3 entries for 2 samples"):
        build(values, time=np.arange("2000-01", "2000-04", dtype="datetime64[M]"))
    with pytest.raises(DataError, match="time of 1 sample is missing"):
        build(values, time=np.array(["2000-01-01", "NaT"], "datetime64[ns]"))


def test_values_must_fit_the_sites(rng):
    with pytest.raises(DataError, match=r"shape \(4, 1, 3\) do not end with .* \(2,\)"):
        Samples.build(rng.normal(size=(4, 1, 3)), Sites.plain((2,)))
