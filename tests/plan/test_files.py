"""Files of the command line: readings in, reconstructions out."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import keyhole as kh
from example_data import monthly_field, quick, smooth
from keyhole.errors import DataError, KeyholeError, PlanError, StorageError
from keyhole.plan.files import check_writable, make_folder, read_readings, write_reconstruction

DATES = ["2010-07-01", "2010-08-01"]


@pytest.fixture
def field_readings(field_plan, tmp_path) -> Path:
    """A CSV of two readings, sites in any order."""
    values = field_plan.scaling.baseline[[6, 7], 0].reshape(2, -1)[:, field_plan.indices] + 0.5
    frame = pd.DataFrame(values, columns=field_plan.names)[field_plan.names[::-1]]
    frame.insert(0, "time", DATES)
    frame.to_csv(tmp_path / "readings.csv", index=False)
    return tmp_path / "readings.csv"


# Readings in --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["plain", "with a byte-order mark"])
def test_a_csv_gives_the_labelled_readings(table_plan, tmp_path, start):
    path = tmp_path / "readings.csv"
    a, b, c = table_plan.names
    path.write_text(f"{start}{c},{a},{b}\n3,1,2\n", encoding="utf-8")
    np.testing.assert_array_equal(table_plan.reconstruct(read_readings(path)), table_plan.reconstruct([1, 2, 3]))


def test_a_npy_gives_readings_in_rank_order(tmp_path):
    np.save(tmp_path / "readings.npy", np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(read_readings(tmp_path / "readings.npy"), [[0, 1, 2], [3, 4, 5]])


def test_a_site_of_a_csv_may_be_called_time(tmp_path):
    table = pd.DataFrame(smooth(30, 3), columns=["time", "a", "b"])
    (tmp_path / "readings.csv").write_text("time,b,a\n0.5,1,2\n")
    plan = quick(table, k=3)
    assert plan.reconstruct(read_readings(tmp_path / "readings.csv"))["time"].item() == pytest.approx(0.5, abs=0.1)


BAD_CSV = {
    "empty": ("", DataError, "cannot be read as CSV"),
    "header alone": ("time,a,b,c\n", DataError, "contains no readings"),
    "repeated name": ("a,b,c,a\n1,2,3,4\n", DataError, "column 'a' stands more than once"),
    "row too long": ("a,b,c\n1,2,3,4\n", DataError, "more values than the header has names"),
    "one row too long": ("a,b,c\n1,2,3\n1,2,3,4\n", DataError, "cannot be read as CSV"),
    "row cut short": ("a,b,c\n1,2,3\n1,2\n", DataError, "fewer values than the header has names"),
    "site missing": ("a,b\n1,2\n", PlanError, "no column for site 'c'"),
    "site unknown": ("a,b,c,z\n1,2,3,4\n", PlanError, "'z' is not a site of this plan"),
    "text for a number": ("a,b,c\n1,2,high\n", PlanError, "a value is not a number"),
    "time that is no date": ("time,a,b,c\nsoon,1,2,3\n", PlanError, "time: not dates"),
    "time as a number": ("time,a,b,c\n202301,1,2,3\n", PlanError, "time: not dates"),
    "time missing": ("time,a,b,c\n2023-01-01,1,2,3\n,1,2,3\n", PlanError, "time: 1 of 2 is missing"),
    "another delimiter": ("a;b;c\n1;2;3\n", PlanError, "3 of 3 are missing"),
    "not text": ("\udcff\udcfe\udc80", DataError, "cannot be read as CSV"),
    "one endless word": ("x" * 200_000, DataError, "cannot be read as CSV"),
    "cut in a quote": ('a,b,c\n1,2,"3', DataError, "cannot be read as CSV"),
}


@pytest.mark.parametrize(("text", "error", "says"), BAD_CSV.values(), ids=BAD_CSV)
def test_a_csv_that_cannot_be_used_is_refused(tmp_path, text, error, says):
    path = tmp_path / "readings.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    plan = quick(pd.DataFrame(smooth(30, 3), columns=list("abc")))
    with pytest.raises(error, match=says):
        plan.reconstruct(read_readings(path))


def test_readings_that_are_not_there_or_of_another_type_are_refused(tmp_path):
    with pytest.raises(StorageError, match=r"missing.csv: no such file"):
        read_readings(tmp_path / "missing.csv")
    (tmp_path / "readings.txt").touch()
    with pytest.raises(DataError, match=r"readings.txt: readings are .csv or .npy, not .txt"):
        read_readings(tmp_path / "readings.txt")


# Signals out --------------------------------------------------------------------------------------------------------


def test_netcdf_in_csv_readings_netcdf_out(tmp_path):
    """Units, coordinates, dimensions, dates and land survive the whole way."""
    field = monthly_field()
    field.to_netcdf(tmp_path / "field.nc")
    plan = quick(kh.read(tmp_path / "field.nc").anomalies("month"), k=4)
    plan.save(tmp_path / "plan.keyhole")
    plan = kh.load(tmp_path / "plan.keyhole")
    last = field.isel(time=slice(-6, None))
    frame = pd.DataFrame(last.values.reshape(6, -1)[:, plan.indices], columns=plan.names)
    frame.insert(2, "time", last.time.dt.strftime("%Y-%m-%d").values)
    frame.to_csv(tmp_path / "readings.csv", index=False)
    shape = write_reconstruction(plan, read_readings(tmp_path / "readings.csv"), tmp_path / "out.nc")
    assert shape == (6, 4, 5)
    with xr.open_dataset(tmp_path / "out.nc") as out:
        back = out["sst"].load()
    assert back.dims == ("time", "lat", "lon")
    assert back.attrs["units"] == "degC"
    np.testing.assert_array_equal(back.attrs["valid_range"], [-5, 40])
    assert back.dtype == np.float32
    for dim in ("lat", "lon"):
        np.testing.assert_array_equal(back[dim], field[dim])
        assert back[dim].attrs == field[dim].attrs
    assert back.time.dtype.kind == "M"
    assert back.time.encoding["calendar"] == "proleptic_gregorian"
    np.testing.assert_array_equal(back.time, last.time)
    np.testing.assert_array_equal(np.isnan(back), np.isnan(last))
    np.testing.assert_allclose(back, last, atol=0.5)


@pytest.mark.parametrize("suffix", [".nc", ".npy", ".csv"])
def test_every_type_of_output_holds_what_reconstruct_gives(field_plan, field_readings, tmp_path, suffix):
    """A table has a column for each valid site."""
    path = tmp_path / f"out{suffix}"
    readings = read_readings(field_readings)
    assert write_reconstruction(field_plan, readings, path) == (2, 4, 5)
    expected = field_plan.reconstruct(readings).values
    if suffix == ".nc":
        with xr.open_dataset(path) as out:
            found = out["sst"].values
    elif suffix == ".npy":
        found = np.load(path)
    else:
        frame = pd.read_csv(path, index_col="time", parse_dates=True)
        assert list(frame.index) == list(pd.DatetimeIndex(DATES))
        assert list(frame.columns) == [field_plan.domain.name(site) for site in range(18)]
        found = field_plan.domain.to_grid(frame.to_numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_channels_of_a_npy_are_where_they_were(channel_plan, tmp_path, rng):
    readings = rng.normal(size=(2, 3, 2))
    assert write_reconstruction(channel_plan, readings, tmp_path / "out.npy") == (2, 4, 5, 2)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), channel_plan.reconstruct(readings))


def test_channels_of_a_netcdf_have_a_dimension(channel_plan, tmp_path, rng):
    assert write_reconstruction(channel_plan, rng.normal(size=(2, 3, 2)), tmp_path / "out.nc") == (2, 2, 4, 5)
    with xr.open_dataset(tmp_path / "out.nc") as out:
        assert out["signals"].dims == ("sample", "channel", "row", "column")


def test_channels_do_not_fit_a_table(channel_plan, tmp_path, rng):
    with pytest.raises(DataError, match=r"out.csv: several channels do not fit a table; write .nc or .npy"):
        write_reconstruction(channel_plan, rng.normal(size=(2, 3, 2)), tmp_path / "out.csv")


def test_a_table_of_readings_without_time_has_no_time_column(table_plan, tmp_path):
    write_reconstruction(table_plan, [1.0, 2.0, 3.0], tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "a,b,c,d,e,f"


ODD = {
    "flag": True,
    "empty": [],
    "numbers": [1, 2],
    "words": ["a", "b"],
    "mixed": [1, "a"],
    "nothing": None,
    "nan": np.nan,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_attributes_do_not_keep_a_field_from_being_written(tmp_path, name):
    field = monthly_field().assign_attrs({name: ODD[name]})
    field["lat"].attrs[name] = ODD[name]
    plan = quick(field)
    write_reconstruction(plan, [1.0, 2.0, 3.0], tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as out:
        assert out["sst"].attrs["units"] == "degC"


def test_stations_by_name_are_written(tmp_path):
    stations = xr.DataArray(smooth(12, 3), {"station": ["buoy", "pier", "reef"]}, ("time", "station"), "level")
    write_reconstruction(quick(stations, k=2), [1.0, 2.0], tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as out:
        assert list(out.station.values) == ["buoy", "pier", "reef"]


def test_an_output_of_another_type_is_refused_before_the_work(field_plan, tmp_path):
    with pytest.raises(DataError, match=r"out.png: reconstructions are written as .nc, .npy or .csv, not .png"):
        write_reconstruction(field_plan, None, tmp_path / "out.png")


@pytest.mark.parametrize("suffix", [".nc", ".npy", ".csv"])
def test_a_full_disk_leaves_the_last_good_output(table_plan, tmp_path, monkeypatch, suffix):
    path = tmp_path / f"out{suffix}"
    write_reconstruction(table_plan, [1.0, 2.0, 3.0], path)
    good = path.read_bytes()

    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=f"{path}: cannot be written: No space left on device"):
        write_reconstruction(table_plan, [3.0, 2.0, 1.0], path)
    assert path.read_bytes() == good
    assert list(tmp_path.iterdir()) == [path]


# Where to write -----------------------------------------------------------------------------------------------------


def test_a_place_that_can_be_written_passes(tmp_path):
    check_writable(tmp_path / "new.keyhole")
    (tmp_path / "old.keyhole").touch()
    check_writable(tmp_path / "old.keyhole")
    check_writable(Path("new.keyhole"))


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("missing/plan.keyhole", "missing: no such folder"),
        ("file/plan.keyhole", "file: no such folder"),
        ("folder", "folder: is a folder; name a file"),
        ("pipe", "pipe: is not a file; name one"),
    ],
)
def test_a_place_that_cannot_be_written_is_named(tmp_path, where, says):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match=says):
        check_writable(tmp_path / where)


def test_a_folder_without_permission_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StorageError, match=f"{tmp_path}: cannot be written to"):
        check_writable(tmp_path / "plan.keyhole")


def test_a_folder_is_made_with_those_above_it(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_folder_cannot_be_made_under_a_file(tmp_path):
    (tmp_path / "file").touch()
    for where in ("file", "file/folder"):
        with pytest.raises(StorageError, match=f"{where}: cannot be created: "):
            make_folder(tmp_path / where)


def test_every_error_of_files_is_one_of_keyhole():
    assert issubclass(StorageError, KeyholeError)
    assert issubclass(StorageError, OSError)
