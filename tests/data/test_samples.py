"""Samples: validation of the input, their properties, and the small examples that other tests use."""

from __future__ import annotations

import numpy as np
import pytest

from keyhole.data.grid import Grid
from keyhole.data.samples import Samples
from keyhole.data.splits import Split
from keyhole.errors import DataError, SettingsError


def build(values: np.ndarray, **options) -> Samples:
    return Samples.build(values, Grid.plain(values.shape[2:]), **options)


@pytest.fixture
def signals(rng) -> Samples:
    values = rng.normal(size=(5, 2, 3, 4))
    values[:, :, 0, 1] = np.nan
    return build(values, time=np.arange("2000-01", "2000-06", dtype="datetime64[M]"), split=Split.blocks(5))


def test_cells_without_values_are_outside_and_not_observable(signals):
    expected = np.ones((3, 4), bool)
    expected[0, 1] = False
    np.testing.assert_array_equal(signals.grid.inside, expected)
    np.testing.assert_array_equal(signals.observable, expected)


def test_a_cell_that_the_grid_leaves_out_stays_out(rng):
    inside = np.array([True, False, True])
    signals = Samples.build(rng.normal(size=(4, 1, 3)), Grid.plain((3,), inside))
    np.testing.assert_array_equal(signals.grid.inside, inside)
    np.testing.assert_array_equal(signals.observable, inside)


def test_packed_holds_the_inside_cells_in_c_order(signals):
    packed = signals.valid_values()
    assert packed.shape == (5, 2, 11)
    np.testing.assert_array_equal(packed, signals.values[:, :, signals.grid.inside])


def test_readings_are_samples_by_sites_by_channels(signals):
    readings = signals.readings(np.array([11, 2]))
    assert readings.shape == (5, 2, 2)
    np.testing.assert_array_equal(readings[:, 0], signals.values[:, :, 2, 3])
    np.testing.assert_array_equal(readings[:, 1], signals.values[:, :, 0, 2])


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


def test_fingerprint_follows_values_cycle_and_observable_cells(signals):
    changed = signals.values.copy()
    changed[0, 0, 2, 2] += 1
    others = [build(changed), signals.anomalies("month"), signals.take(np.arange(4))]
    prints = {s.fingerprint() for s in (signals, *others)}
    assert len(prints) == 4
    assert signals.fingerprint() == build(signals.values).fingerprint()


def test_anomalies_switch_on_and_off(signals):
    assert signals.anomalies("month").cycle == "month"
    assert signals.anomalies("month").anomalies(None).cycle is None


def test_anomalies_need_time(rng):
    values = rng.normal(size=(4, 1, 3))
    with pytest.raises(DataError, match="monthly anomalies need a time"):
        build(values).anomalies("month")
    with pytest.raises(DataError, match="monthly anomalies need a time"):
        build(values, cycle="month")


def test_a_cycle_that_is_not_known_is_refused(signals):
    with pytest.raises(SettingsError, match="cycle='day': 'month' or None is needed"):
        signals.anomalies("day")


def test_time_must_be_there_for_each_sample(rng):
    values = rng.normal(size=(2, 1, 3))
    with pytest.raises(DataError, match="time has 3 entries for 2 samples"):
        build(values, time=np.arange("2000-01", "2000-04", dtype="datetime64[M]"))
    with pytest.raises(DataError, match="time of 1 sample is missing"):
        build(values, time=np.array(["2000-01-01", "NaT"], "datetime64[ns]"))


def test_values_must_fit_the_grid(rng):
    with pytest.raises(DataError, match=r"shape \(4, 1, 3\) do not end with the grid's shape \(2,\)"):
        Samples.build(rng.normal(size=(4, 1, 3)), Grid.plain((2,)))
