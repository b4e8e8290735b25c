"""Readings: in rank order or labelled, and refused with a reason."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import keyhole as kh
from example_data import monthly_field, quick, smooth
from keyhole.core.storage import read_container, write_container
from keyhole.errors import PlanError, ReadingsWarning
from keyhole.plan.readings import order_readings, same_units

NAMES = ("a", "b", "c")
DATES = np.array(["2000-01-01", "2000-02-01"], "datetime64[ns]")


@pytest.mark.parametrize(
    ("readings", "shape"),
    [
        ([1, 2, 3], (1, 3, 1)),
        ([[1, 2, 3]], (1, 3, 1)),
        ([[1, 2, 3], [4, 5, 6]], (2, 3, 1)),
        (np.arange(6).reshape(2, 3, 1), (2, 3, 1)),
        (np.arange(3).reshape(3, 1), (1, 3, 1)),
        (np.array([1, 2, 3], ">f4"), (1, 3, 1)),
        (np.array([True, False, True]), (1, 3, 1)),
    ],
)
def test_plain_readings_of_one_channel(readings, shape):
    values, time = order_readings(readings, NAMES, 1)
    assert values.shape == shape
    assert values.dtype == np.float64
    assert time is None
    np.testing.assert_array_equal(values.ravel(), np.ravel(readings))


@pytest.mark.parametrize(("given", "shape"), [((3, 2), (1, 3, 2)), ((5, 3, 2), (5, 3, 2))])
def test_plain_readings_of_two_channels(given, shape, rng):
    readings = rng.normal(size=given)
    values, _ = order_readings(readings, NAMES, 2)
    np.testing.assert_array_equal(values, readings.reshape(shape))


@given(order=st.permutations(NAMES), rows=st.integers(1, 4))
def test_labelled_readings_come_into_rank_order(order, rows):
    table = np.arange(3 * rows).reshape(rows, 3)
    frame = pd.DataFrame(table, columns=list(NAMES))[order]
    values, _ = order_readings(frame, NAMES, 1)
    np.testing.assert_array_equal(values[:, :, 0], table)


LABELLED = {
    "mapping": {"c": 3, "a": 1, "b": 2},
    "mapping with time": {"time": "2000-01-01", "c": 3, "a": 1, "b": 2},
    "mapping of lists": {"c": [3, 6], "a": [1, 4], "b": [2, 5]},
    "mapping of lists with times": {"c": [3, 6], "a": [1, 4], "b": [2, 5], "time": DATES},
    "series": pd.Series({"c": 3, "a": 1, "b": 2}),
    "series with time": pd.Series({"c": 3, "a": 1, "time": "2000-01-01", "b": 2}),
    "frame": pd.DataFrame({"c": [3, 6], "a": [1, 4], "b": [2, 5]}),
    "frame with times": pd.DataFrame({"time": ["2000-01-01", "2000-02-01"], "c": [3, 6], "a": [1, 4], "b": [2, 5]}),
    "frame with dates": pd.DataFrame({"b": [2, 5], "a": [1, 4], "c": [3, 6]}, index=pd.DatetimeIndex(DATES)),
}


@pytest.mark.parametrize("kind", LABELLED)
def test_labelled_readings_of_every_kind(kind):
    values, time = order_readings(LABELLED[kind], NAMES, 1)
    np.testing.assert_array_equal(values[:, :, 0], [[1, 2, 3], [4, 5, 6]][: len(values)])
    if "time" in kind or "dates" in kind:
        np.testing.assert_array_equal(time, DATES[: len(values)])
    else:
        assert time is None


def test_integer_column_names_are_compared_as_text():
    values, _ = order_readings(pd.DataFrame([[5.0, 6.0]], columns=[1, 0]), ("0", "1"), 1)
    np.testing.assert_array_equal(values[0, :, 0], [6, 5])


def test_a_site_may_be_called_time():
    values, time = order_readings(pd.DataFrame({"time": [2.0], "a": [1.0]}), ("a", "time"), 1)
    np.testing.assert_array_equal(values[0, :, 0], [1, 2])
    assert time is None


def test_time_given_outranks_the_labels():
    frame = LABELLED["frame with times"]
    _, time = order_readings(frame, NAMES, 1, ["2010-05-01", "2010-06-01"])
    np.testing.assert_array_equal(time, np.array(["2010-05-01", "2010-06-01"], "datetime64[ns]"))


@pytest.mark.parametrize(
    "time",
    [
        "2023-02-01",
        "2023-02",
        ["2023-02-01"],
        np.datetime64("2023-02"),
        pd.Timestamp("2023-02-01"),
        pd.Timestamp("2023-02-01T01:00+01:00"),
        pd.Timestamp("2023-02-01").to_pydatetime(),
        pd.DatetimeIndex(["2023-02-01"]),
        pd.DatetimeIndex(["2023-02-01"], tz="UTC"),
        pd.Series(["2023-02-01T00:00:00Z"]),
    ],
    ids=repr,
)
def test_time_is_taken_in_every_usual_form(time):
    _, when = order_readings([1, 2, 3], NAMES, 1, time)
    assert when.dtype == "datetime64[ns]"
    np.testing.assert_array_equal(when, np.array(["2023-02-01"], "datetime64[ns]"))


@pytest.mark.parametrize(
    ("time", "says"),
    [
        ("yesterday", "time: not dates"),
        ("01/02/2023", "time: not dates"),
        (2023, "time: not dates"),
        ([202301.0], "time: not dates"),
        (pd.NaT, "time: 1 of 1 is missing"),
        ([None], "time: 1 of 1 is missing"),
        (["2023-01-01", "2023-02-01"], "time has 2 entries for 1 readings"),
        ([["2023-01-01"]], "time: not dates"),
        ("99999-01-01", "time: not dates"),
    ],
)
def test_time_that_cannot_be_used_is_refused(time, says):
    """Numbers would be taken as nanoseconds since 1970, and all fall in January."""
    with pytest.raises(PlanError, match=says):
        order_readings([1, 2, 3], NAMES, 1, time)


@pytest.mark.parametrize(
    ("readings", "says"),
    [
        (5.0, "shape ().*takes (3,) or (N, 3)"),
        ([1, 2], "shape (2,).*takes (3,) or (N, 3)"),
        ([[1, 2, 3, 4]], "shape (1, 4).*takes (3,) or (N, 3)"),
        (np.zeros((2, 3, 2)), "shape (2, 3, 2).*takes (3,) or (N, 3)"),
        (np.zeros((2, 2, 3)), "shape (2, 2, 3)"),
        (np.zeros((0, 3)), "there are none"),
        ([[1, 2, 3], [1, 2]], "rows of different length"),
        (["x", "y", "z"], "numbers are needed"),
        ([1, 2, None], "numbers are needed"),
        ([1j, 2, 3], "numbers are needed"),
        ([1, -np.inf, np.inf], "2 of 3 are infinite"),
    ],
)
def test_plain_readings_that_do_not_fit_are_refused(readings, says):
    pattern = ".*".join(re.escape(part) for part in says.split(".*"))
    with pytest.raises(PlanError, match=f"readings: .*{pattern}"):
        order_readings(readings, NAMES, 1)


@pytest.mark.parametrize(
    ("readings", "says"),
    [
        ({"a": 1, "b": 2}, "no column for site 'c'; 1 of 3 are missing"),
        ({}, "no column for site 'a', 'b', 'c'; 3 of 3 are missing"),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, "'d' is not a site of this plan"),
        ({"a": 1, "b": 2, "c": "high"}, "a value is not a number"),
        ({"a": [1, 2], "b": [2], "c": [3]}, "rows of different length"),
        (pd.DataFrame([[1, 2, 3, 4]], columns=list("abca")), "site 'a' stands more than once"),
        (pd.DataFrame([["x", "y", "z"]], columns=list("abc")), "a value is not a number"),
    ],
)
def test_labelled_readings_that_do_not_fit_are_refused(readings, says):
    with pytest.raises(PlanError, match=f"readings: .*{says}"):
        order_readings(readings, NAMES, 1)


def test_many_missing_names_are_counted_not_listed():
    with pytest.raises(PlanError, match="'n0', 'n1', 'n2' and 7 more; 10 of 10 are missing"):
        order_readings({}, [f"n{i}" for i in range(10)], 1)


def test_labels_hold_one_value_for_a_site_so_several_channels_need_an_array():
    """Three rows of three sites must not pass for one reading of three sites and three channels."""
    with pytest.raises(PlanError, match=r"labelled readings hold one value.*\(3, 3\) or \(N, 3, 3\)"):
        order_readings(pd.DataFrame(np.eye(3), columns=list(NAMES)), NAMES, 3)


def test_a_pandas_index_is_not_labelled():
    np.testing.assert_array_equal(order_readings(pd.Index([1, 2, 3]), NAMES, 1)[0].ravel(), [1, 2, 3])


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA])
def test_a_reading_that_is_missing_is_nan(missing):
    """However it is written; the plan answers from the rest."""
    column = pd.array([missing], "Int64") if missing is pd.NA else [missing]
    values, _ = order_readings(pd.DataFrame({"a": [1], "b": [2], "c": column}), ["a", "b", "c"], 1)
    assert np.isnan(values[0, 2, 0])
    assert values[0, :2, 0].tolist() == [1, 2]


# Readings that no site ever showed ------------------------------------------------------------------------------------


def field_readings(plan, value=None):
    """Two months as they were, or with one reading put in place of the first."""
    field = monthly_field()
    readings = field.values.reshape(60, -1)[:2, plan.indices].astype(float)
    if value is not None:
        readings[1, 0] = value
    return readings, field.time.values[:2]


@pytest.mark.parametrize("value", [999.0, -999.0, 288.15])
def test_a_reading_far_from_all_of_training_is_warned_of(field_plan, value):
    """A fill value, or kelvin for degrees Celsius: the site, the value and its range are named."""
    readings, time = field_readings(field_plan, value)
    low, high = field_plan.ranges[:, 0, 0]
    shown = f"{field_plan.names[0]}.*{value:g} degC.*{low:.4g} to {high:.4g} degC"
    with pytest.warns(ReadingsWarning, match=shown) as caught:
        values = field_plan.reconstruct(readings, time=time)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "interval" not in str(caught[0].message)
    assert values.shape == (2, 4, 5)


def test_with_an_interval_the_warning_says_that_it_does_not_hold(field_plan):
    readings, time = field_readings(field_plan, 999)
    with pytest.warns(ReadingsWarning, match="90 % prediction interval does not hold"):
        field_plan.reconstruct(readings, time=time, interval=0.9)


def test_many_such_readings_are_one_warning(field_plan):
    readings, time = field_readings(field_plan)
    with pytest.warns(ReadingsWarning, match="2 samples.*at 3 sites") as caught:
        field_plan.reconstruct(readings + 273.15, time=time)
    assert len(caught) == 1


def test_the_range_is_that_of_all_samples_but_test(array_plan):
    whole = smooth(40, 4, 5).reshape(40, -1)[:, array_plan.indices]
    low, high = array_plan.ranges[:, :, 0]
    assert (low >= whole.min(axis=0)).all()
    assert (high <= whole.max(axis=0)).all()
    assert ((whole < low) | (whole > high)).any(axis=1).sum() < 8


def test_a_new_record_is_no_reason_to_warn(array_plan):
    """Beyond the range by less than its width: every longer series has such readings."""
    low, high = array_plan.ranges[:, :, 0]
    for readings in (high + 0.9 * (high - low), low - 0.9 * (high - low)):
        array_plan.reconstruct(readings)


def test_a_column_that_never_varied_has_the_range_of_its_value():
    """Constant in training: the unit of the column stands for the width."""
    values = smooth(40, 4)
    values[:, 2] = 5.0
    plan = quick(pd.DataFrame(values, columns=list("abcd")), k=1, constraints={"existing": ["c"]})
    at, typical = list(plan.names).index("c"), values[0, plan.indices]
    width = float(np.broadcast_to(plan.reading_scale, (plan.k, 1))[at, 0])
    typical[at] = 5.0 + 0.9 * width
    plan.reconstruct(typical)
    typical[at] = 5.0 + 1.1 * width
    with pytest.warns(ReadingsWarning, match="'c'"):
        plan.reconstruct(typical)


def test_a_missing_reading_is_not_out_of_range(array_plan):
    array_plan.reconstruct([np.nan, 0.0, 0.0])


def test_a_prediction_warns_too():
    table = pd.DataFrame(smooth(60, 5), columns=list("abcde"))
    plan = kh.select(table.assign(aim=2 * table["a"]), 2, target="aim", method="qr", predictor="linear")
    with pytest.warns(ReadingsWarning, match="999"):
        plan.predict([999.0, 0.0])


def test_a_channel_of_several_is_named(channel_plan):
    readings = channel_plan.ranges.mean(axis=0)
    readings[1, 1] = 1e4
    with pytest.warns(ReadingsWarning, match=f"{channel_plan.names[1]}' \\(channel 1\\)"):
        channel_plan.reconstruct(readings)


def test_a_plan_of_an_older_file_cannot_warn(array_plan, tmp_path):
    array_plan.save(tmp_path / "a.keyhole")
    header, arrays = read_container(tmp_path / "a.keyhole", "plan")
    np.testing.assert_array_equal(kh.load(tmp_path / "a.keyhole").ranges, array_plan.ranges)
    write_container(tmp_path / "a.keyhole", header, {n: a for n, a in arrays.items() if n != "sites.range"})
    older = kh.load(tmp_path / "a.keyhole")
    assert older.ranges is None
    older.reconstruct([999.0, 0.0, 0.0])
    with pytest.raises(PlanError, match="kept no ranges"):
        older.reconstruct([999.0, 0.0, 0.0], outliers="drop")


def test_dropped_readings_are_imputed_like_missing_ones(field_plan):
    readings, time = field_readings(field_plan, 999)
    missing = readings.copy()
    missing[1, 0] = np.nan
    expected = field_plan.reconstruct(missing, time=time, interval=0.9)
    said = f"1 of 6 readings, at 1 of 3 sites, are dropped.*{field_plan.names[0]}.*999 degC"
    with pytest.warns(ReadingsWarning, match=said) as caught:
        found = field_plan.reconstruct(readings, time=time, interval=0.9, outliers="drop")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.filterwarnings("error")
def test_trusted_readings_are_not_checked_and_ordinary_ones_not_dropped(field_plan):
    readings, time = field_readings(field_plan)
    plain = field_plan.reconstruct(readings, time=time)
    np.testing.assert_array_equal(field_plan.reconstruct(readings, time=time, outliers="drop"), plain)
    readings, time = field_readings(field_plan, 999)
    assert float(field_plan.reconstruct(readings, time=time, outliers="trust").max()) > 100


def test_a_prediction_can_do_without_such_readings():
    table = pd.DataFrame(smooth(60, 5), columns=list("abcde"))
    plan = kh.select(table.assign(aim=2 * table["a"]), 2, target="aim", method="qr", predictor="linear")
    with pytest.warns(ReadingsWarning, match="dropped"):
        found = plan.predict([999.0, 0.1], outliers="drop")
    np.testing.assert_array_equal(found, plan.predict([np.nan, 0.1]))


def test_another_treatment_of_outliers_is_refused(array_plan):
    with pytest.raises(PlanError, match="outliers='remove': 'flag', 'drop', 'trust' is needed"):
        array_plan.reconstruct([0.0, 0.0, 0.0], outliers="remove")


@pytest.mark.parametrize("method", ["reconstruct", "interval", "predict"])
def test_a_result_that_is_not_finite_is_an_error(method):
    table = pd.DataFrame(smooth(60, 5), columns=list("abcde"))
    options = {"target": "aim", "predictor": "linear"} if method == "predict" else {}
    source = table.assign(aim=2 * table["a"]) if options else table
    plan = replace(kh.select(source, 2, method="qr", reconstructor="ridge", **options), ranges=None)
    use = {"interval": partial(plan.reconstruct, interval=0.9)}.get(method) or getattr(plan, method)
    with pytest.raises(PlanError, match="not finite"):
        use([1e300, 0.0])


# Units ----------------------------------------------------------------------------------------------------------------


def labelled(plan, units):
    """Readings with units in every way that they can have them."""
    readings, time = field_readings(plan)
    frame = pd.DataFrame(readings, columns=plan.names).assign(time=time)
    frame.attrs["units"] = units
    each = {name: ("sample", readings[:, i], {"units": units}) for i, name in enumerate(plan.names)}
    yield xr.DataArray(readings, dims=("time", "site"), attrs={"units": units}), time
    yield xr.Dataset(each), time
    yield {name: xr.DataArray(readings[:, i], attrs={"units": units}) for i, name in enumerate(plan.names)}, time
    yield frame, None


@pytest.mark.parametrize("units", ["K", "kelvin", "degF", "m"])
def test_units_that_differ_are_refused(field_plan, units):
    for readings, time in labelled(field_plan, units):
        with pytest.raises(PlanError, match=f"readings are in '{units}'.*'degC'"):
            field_plan.reconstruct(readings, time=time)


@pytest.mark.parametrize("units", ["degC", "degree_Celsius", "celsius", "degrees_C", "°C", "", " degC "])
def test_other_spellings_of_a_unit_are_taken(field_plan, units):
    for readings, time in labelled(field_plan, units):
        field_plan.reconstruct(readings, time=time)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("m s-1", "m/s", True),
        ("m s-1", "m s**-1", True),
        ("m s-1", "m.s^-1", True),
        ("kg m-2 s-1", "kg/m2/s", True),
        ("K", "Kelvin", True),
        ("mm", "Mm", False),
        ("m s-1", "m", False),
        ("m", "mm", False),
        ("days since 2000-01-01", "days since 2001-01-01", False),
        ("psu", "1e-3", False),
        ("%", "percent", True),
    ],
)
def test_units_are_compared_by_what_they_say(one, other, same):
    assert same_units(one, other) is same


def test_units_of_several_channels_are_compared_with_each_other_s(rng):
    one = monthly_field()
    both = kh.read(xr.Dataset({"a": one, "b": one.assign_attrs(units="m/s")}))
    plan = quick(both)
    readings = plan.ranges.mean(axis=0)[np.newaxis]
    plan.reconstruct(xr.DataArray(readings, attrs={"units": "degC"}))
    with pytest.raises(PlanError, match=r"'K'.*'degC', 'm/s'"):
        plan.reconstruct(xr.DataArray(readings, attrs={"units": "K"}))
