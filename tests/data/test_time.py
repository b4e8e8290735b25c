"""Time of samples: in any order, of dates or of numbers, kept from the data to the reconstruction."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import keyhole as kh
from example_data import left_in_file, monthly_field, quick, smooth
from keyhole.data.preparation import prepare
from keyhole.errors import DataError, PlanError


def numbered(n: int = 60, step: float = 0.1) -> xr.DataArray:
    """A field whose time is numbers, with what it says about itself."""
    time = ("time", step * np.arange(n), {"units": "turnover times", "long_name": "simulated time"})
    return xr.DataArray(smooth(n, 4, 5), {"time": time}, ("time", "y", "x"), "u")


def stored(field: xr.DataArray, folder) -> object:
    field.to_netcdf(folder / "field.nc")
    return folder / "field.nc"


def random_split(n: int) -> np.ndarray:
    return np.random.default_rng(3).permutation(n)


def latest(split: kh.Split, time: np.ndarray) -> bool:
    """Whether each part is later than the one before it."""
    parts = [split.train, split.validation, split.test]
    return all(time[one].max() < time[other].min() for one, other in itertools.pairwise(parts))


@pytest.mark.parametrize("make", [lambda: monthly_field(120), lambda: numbered(120)], ids=["dates", "numbers"])
def test_samples_in_any_order_are_split_by_their_time(make):
    field = make().isel(time=random_split(120))
    signals = kh.read(field)
    np.testing.assert_array_equal(signals.time, field.time.values)
    prepared = prepare(signals, None, 0)
    assert prepared.split.kind == "blocks"
    assert latest(prepared.split, field.time.values)


def test_the_order_of_samples_does_not_change_the_plan():
    field = monthly_field(120)
    plan, other = (quick(one) for one in (field, field.isel(time=random_split(120))))
    assert other.metrics["test"]["rmse"] == pytest.approx(plan.metrics["test"]["rmse"], rel=1e-6)
    np.testing.assert_array_equal(other.indices, plan.indices)


def test_a_store_is_split_by_time_too(tmp_path):
    field = monthly_field(120)
    options = {"method": "qr", "reconstructor": "ridge"}
    plan = kh.select(left_in_file(stored(field.isel(time=random_split(120)), tmp_path)), 3, **options)
    sorted_plan = kh.select(left_in_file(stored(field, tmp_path)), 3, **options)
    assert plan.metrics["test"]["rmse"] == pytest.approx(sorted_plan.metrics["test"]["rmse"], rel=1e-4)


def test_a_store_without_a_time_is_split_as_in_memory(tmp_path):
    slow = smooth(100, 4, 5).cumsum(axis=0)
    for values, kind in ((slow, "blocks"), (smooth(100, 4, 5), "random")):
        field = xr.DataArray(values, dims=("sample", "y", "x"), name="u")
        (tmp_path / kind).mkdir()
        samples = left_in_file(stored(field, tmp_path / kind))
        plan = kh.select(samples, 3, method="qr")
        asked = kh.select(samples, 3, method="qr", split="random")
        assert plan.metadata["split"] == quick(field).metadata["split"]
        assert (plan.metadata["split"]["kind"], asked.metadata["split"]["kind"]) == (kind, "random")


@pytest.mark.parametrize("each", [3, 7])
def test_samples_of_one_time_stay_in_one_part(each):
    """Members of an ensemble at the same time are alike."""
    time = np.repeat(np.datetime64("2000-01-01", "ns") + np.arange(20) * np.timedelta64(1, "D"), each)
    order = np.random.default_rng(0).permutation(len(time))
    split = kh.Split.blocks(len(time), time=time[order])
    assert latest(split, time[order])


def test_fewer_than_three_times_make_no_blocks():
    field = monthly_field(60).assign_coords(time=np.repeat(np.array(["2000", "2001"], "datetime64[ns]"), 30))
    with pytest.raises(DataError, match=r"three different times.*split='random'"):
        quick(field)
    assert quick(field, split="random").metadata["split"]["kind"] == "random"


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, "timedelta64[ns]"])
def test_a_time_of_numbers_or_durations_is_kept(kind, tmp_path):
    field = numbered(60, step=10.0)
    field = field.assign_coords(time=("time", field.time.values.astype("int64").astype(kind), field.time.attrs))
    plan = quick(field)
    assert plan.metadata["split"]["kind"] == "blocks"
    plan.save(tmp_path / "plan.keyhole")
    for one in (plan, kh.load(tmp_path / "plan.keyhole")):
        readings = field.values.reshape(60, -1)[:5, plan.indices]
        reconstructed = one.reconstruct(readings, time=field.time.values[:5])
        xr.testing.assert_identical(reconstructed.time, field.time[:5].drop_vars([]))
        assert reconstructed.time.dtype == field.time.dtype


def test_a_time_of_numbers_that_is_not_given_is_not_made_up():
    field = numbered()
    plan = quick(field)
    assert "time" not in plan.reconstruct(np.zeros((2, 3))).coords


@pytest.mark.parametrize("attributes", [{"axis": "T"}, {"standard_name": "time"}])
def test_numbers_are_time_by_their_attributes_too(attributes):
    field = xr.DataArray(smooth(60, 4, 5), {"step": ("step", np.arange(60), attributes)}, ("step", "y", "x"))
    assert kh.read(field).time is not None


def test_numbers_of_another_dimension_are_no_time():
    assert kh.read(numbered().rename(time="member")).time is None


def test_dates_are_kept_with_what_they_say(tmp_path, command):
    field = monthly_field()
    field.time.attrs = {"long_name": "middle of the month", "axis": "T"}
    plan = quick(field)
    reconstructed = plan.reconstruct(np.zeros((1, 3)), time="2004-01-01")
    assert reconstructed.time.attrs == field.time.attrs


def test_readings_in_a_file_give_numbers_as_time(tmp_path, command):
    plan = quick(numbered())
    plan.save(tmp_path / "plan.keyhole")
    header = ",".join(["time", *(f'"{name}"' for name in plan.names)])
    (tmp_path / "readings.csv").write_text(f"{header}\n0.5,1,2,3\n0.75,1,2,3\n")
    out = tmp_path / "rebuilt.nc"
    assert command("reconstruct", tmp_path / "plan.keyhole", tmp_path / "readings.csv", "--out", out).code == 0
    with xr.open_dataset(out) as reconstructed:
        np.testing.assert_array_equal(reconstructed.time, [0.5, 0.75])
        assert reconstructed.time.attrs["units"] == "turnover times"
    np.save(tmp_path / "readings.npy", np.ones((1, 3)))
    done = command("reconstruct", tmp_path / "plan.keyhole", tmp_path / "readings.npy", "--out", out, "--time", "0.25")
    assert done.code == 0
    with xr.open_dataset(out) as reconstructed:
        np.testing.assert_array_equal(reconstructed.time, [0.25])


@pytest.mark.parametrize("time", ["soon", "2000-01-01", np.datetime64("2000-01-01"), [np.nan], [[1.0]], [1.0, 2.0]])
def test_what_is_no_number_is_refused_where_time_is_numbers(time):
    with pytest.raises(PlanError, match="time"):
        quick(numbered()).reconstruct(np.zeros((1, 3)), time=time)


def test_numbers_have_no_month_and_no_rhythm():
    with pytest.raises(DataError, match=r"monthly anomalies need dates.*numbers \(0\.0"):
        kh.read(numbered()).anomalies("month")
    with pytest.raises(DataError, match=r"monthly anomalies need dates"):
        quick(numbered(), anomalies="month")
    with pytest.raises(DataError, match=r"covariate 'year' needs dates"):
        kh.read(numbered()).with_covariates("year")


def test_a_time_that_is_not_a_number_is_refused():
    field = numbered()
    field = field.assign_coords(time=field.time.where(field.time < 5))
    with pytest.raises(DataError, match="the time of 10 samples is missing"):
        kh.read(field)


def test_a_report_shows_numbers_as_time_and_why_the_split_is_so():
    from keyhole.report import page_text
    from keyhole.report.report_data import ReportData
    from keyhole.workflow.comparison import single

    plan, prepared = quick(numbered(), intervals=False), prepare(kh.read(numbered()), None, 0)
    made = page_text.metadata(ReportData.of(single(plan, prepared)))
    assert made["samples"] == "60, 0 to 5.9"
    assert made["split"] == (
        "blocks (samples have a time): 36 train, 10 validation, 12 test; 2 left out between them "
        "(decorrelation time: 1 sample)"
    )


def frame(index: object) -> pd.DataFrame:
    return pd.DataFrame(smooth(40, 5), columns=list("abcde"), index=index)


def test_whole_numbers_are_never_nanoseconds_since_1970(tmp_path):
    months = [100 * year + month for year in (2000, 2001, 2002, 2003) for month in range(1, 11)]
    table = frame(None).assign(time=months)
    table.to_parquet(tmp_path / "table.parquet")
    table.to_csv(tmp_path / "table.csv", index=False)
    for name in ("table.parquet", "table.csv"):
        with pytest.raises(DataError, match=r"time: not dates.*rename the column"):
            kh.read(tmp_path / name)


@pytest.mark.parametrize(
    "times",
    [
        pd.date_range("2000-01-01", periods=40),
        pd.date_range("2000-01-01", periods=40, tz="Europe/Zurich"),
        pd.date_range("2000-01-01", periods=40).strftime("%Y-%m-%d"),
        [day.date() for day in pd.date_range("2000-01-01", periods=40)],
    ],
    ids=["dates", "with a zone", "texts", "days"],
)
def test_dates_of_every_kind_are_read_from_parquet(times, tmp_path):
    frame(None).assign(time=times).to_parquet(tmp_path / "table.parquet")
    found = kh.read(tmp_path / "table.parquet").time
    assert found is not None
    assert abs(found[0] - np.datetime64("2000-01-01")) < np.timedelta64(1, "D")


def test_an_index_of_numbers_is_time_if_it_is_called_so():
    order = random_split(40)
    table = frame(pd.Index(order, name="time"))
    plan = quick(table)
    assert plan.metadata["split"]["kind"] == "blocks"
    assert latest(prepare(kh.read(table), None, 0).split, order)
    reconstructed = plan.reconstruct(table.iloc[:3][plan.names])
    pd.testing.assert_index_equal(reconstructed.index, table.index[:3])
    assert kh.read(frame(order)).time is None
    assert kh.read(frame(None)).time is None
