"""Fields: DataArrays, Datasets and NetCDF files become the same samples, or an error names what is wrong."""

from __future__ import annotations

import contextlib
import re
import tracemalloc
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import keyhole as kh
from example_data import gridded, left_in_file, monthly_field, quick, smooth
from keyhole.core.memory import check_fits, free_memory
from keyhole.errors import DataError, KeyholeWarning, StorageError
from keyhole.plan.files import write_reconstruction


def test_a_field_keeps_coordinates_time_land_and_attributes():
    field = monthly_field()
    signals = kh.read(field)
    np.testing.assert_array_equal(gridded(signals)[:, 0], field.values)
    assert signals.sites.dims == ("lat", "lon")
    np.testing.assert_array_equal(signals.sites.axes["lat"], field.lat)
    np.testing.assert_array_equal(signals.time, field.time.values)
    assert signals.observable.sum() == 18
    assert signals.origin.units == "degC"
    assert signals.origin.attributes["valid_range"] == [-5.0, 40.0]


def test_a_field_called_like_one_of_its_axes_is_refused():
    with pytest.raises(DataError, match="lat: called like one of its own coordinates; rename it"):
        kh.read(monthly_field().rename("lat"))


def test_samples_run_along_time_wherever_it_is():
    signals = kh.read(monthly_field().transpose("lat", "time", "lon"))
    np.testing.assert_array_equal(signals.values, kh.read(monthly_field()).values)


def test_samples_run_along_the_first_dimension_where_there_is_no_time():
    signals = kh.read(xr.DataArray(smooth(6, 3), dims=("member", "depth")))
    assert (len(signals), signals.origin.sample_dim, signals.time) == (6, "member", None)


@pytest.mark.parametrize("suffix", [".nc", ".nc4"])
@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF4"])
def test_netcdf_is_read_as_the_field_is(tmp_path, kind, suffix):
    path, field = tmp_path / f"field{suffix}", monthly_field()
    field.to_netcdf(path, format=kind, engine="netcdf4")
    signals, expected = kh.read(path), kh.read(field)
    np.testing.assert_array_equal(signals.values, expected.values)
    np.testing.assert_array_equal(signals.time, expected.time)
    assert signals.origin.attributes == expected.origin.attributes


def test_packed_netcdf_is_unpacked(tmp_path):
    encoding = {"sst": {"dtype": "int16", "scale_factor": 0.01, "add_offset": 10.0, "_FillValue": -32768}}
    monthly_field().to_netcdf(tmp_path / "packed.nc", encoding=encoding)
    signals = kh.read(tmp_path / "packed.nc")
    np.testing.assert_allclose(gridded(signals)[:, 0], monthly_field().values, atol=0.006)
    assert signals.observable.sum() == 18


def test_the_variable_of_a_netcdf_must_be_clear(tmp_path):
    path, field = tmp_path / "two.nc", monthly_field()
    xr.Dataset({"sst": field, "other": field + 1}).to_netcdf(path)
    assert kh.read(path, variable="other").origin.name == "other"
    with pytest.raises(DataError, match=rf"{path}: holds 2 fields \(sst, other\); name one \(variable="):
        kh.read(path)
    with pytest.raises(DataError, match=f"{path}: no field 'air'; there is sst, other"):
        kh.read(path, variable="air")


def test_a_data_set_in_memory_is_read_by_variable():
    field = monthly_field()
    data = xr.Dataset({"sst": field, "other": field.isel(lat=0)})
    np.testing.assert_array_equal(kh.read(data, variable="sst").values, kh.read(field).values)
    with pytest.raises(DataError, match="holds 2 fields"):
        kh.read(data)


@pytest.mark.parametrize("history", ["", "2020-01-01T00:00:00Z: made", "2020-01-01T00:00:00Z: made\n"])
@pytest.mark.parametrize("how", ["read", "file", "stored"])
def test_global_attributes_come_back_with_a_line_of_history(tmp_path, how, history):
    """On a Dataset of several variables, and in NetCDF files, also of one variable."""
    field = monthly_field()
    about = {"title": "Two fields", "Conventions": "CF-1.11", "history": history, "version": np.int32(3)}
    for data in (xr.Dataset({"sst": field, "wind": 2 * field}, attrs=about), field.to_dataset().assign_attrs(about)):
        data.to_netcdf(tmp_path / "in.nc")
        names = list(data.data_vars)
        if how == "stored":
            plan = kh.select(left_in_file(tmp_path / "in.nc", variable=names), 3, method="qr")
        else:
            plan = quick(kh.read(data) if how == "read" else kh.read(tmp_path / "in.nc", variable=names))
        plan.save(tmp_path / "a.keyhole")
        plan = kh.load(tmp_path / "a.keyhole")
        readings = plan.ranges.mean(axis=0)[np.newaxis]
        write_reconstruction(plan, readings, tmp_path / "out.nc", ["2001-01-01"])
        with xr.open_dataset(tmp_path / "out.nc") as out:
            outputs = [out.attrs]
        outputs += [plan.reconstruct(readings, time="2001-01-01").attrs] if len(names) > 1 else []
        for attrs in outputs:
            assert (attrs["title"], attrs["Conventions"], attrs["version"]) == ("Two fields", "CF-1.11", 3)
            *before, last = attrs["history"].split("\n")
            assert before == ([history.strip()] if history else [])
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: reconstructed .* by keyhole .*", last)


def test_several_variables_on_one_grid_are_channels(tmp_path):
    """They come back as a Dataset, each with its own units."""
    field = monthly_field()
    wind = (2 * field + 1).assign_attrs(units="m/s")
    data = xr.Dataset({"sst": field, "wind": wind, "line": ("time", np.arange(60.0))})
    data.to_netcdf(tmp_path / "both.nc")
    for signals in (kh.read(data), kh.read(tmp_path / "both.nc", variable=["sst", "wind"])):
        assert signals.channels == 2
        plan = quick(signals, k=6)
        reconstructed = plan.reconstruct(signals.readings(plan.indices)[:2], time=signals.time[:2])
        assert list(reconstructed.data_vars) == ["sst", "wind"]
        assert reconstructed["wind"].attrs["units"] == "m/s"
        assert reconstructed["sst"].dims == field.dims
        np.testing.assert_allclose(reconstructed["sst"], field[:2], atol=0.6)
    plan.save(tmp_path / "both.keyhole")
    assert list(kh.load(tmp_path / "both.keyhole").origin.variables) == ["sst", "wind"]
    with pytest.raises(DataError, match="another grid"):
        kh.read(xr.Dataset({"a": field, "b": field.mean("lon")}), variable=["a", "b"])
    with pytest.raises(DataError, match="each once"):
        kh.read(data, variable=["sst", "sst"])


@pytest.mark.parametrize("names", [["buoy", "pier", "reef"], np.array(["buoy", "pier", "reef"], object)])
def test_stations_may_have_text_for_coordinates(tmp_path, names):
    field = xr.DataArray(smooth(6, 3), {"station": list(names)}, ("time", "station"), "level")
    field.to_netcdf(tmp_path / "stations.nc")
    for signals in (kh.read(field), kh.read(tmp_path / "stations.nc")):
        assert signals.sites.name(1) == "station=pier"


def test_attributes_become_what_json_can_hold():
    import json

    odd = {"flag": np.int8(1), "range": np.float32([1, 2]), "list": [np.int16(3)], "none": None, "yes": True, 5: b"x"}
    signals = kh.read(monthly_field().assign_attrs(odd))
    assert json.loads(json.dumps(signals.origin.attributes))["list"] == [3]


@pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"nothing"])
def test_a_broken_netcdf_is_refused_by_name(tmp_path, content):
    path = tmp_path / "broken.nc"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path}: cannot be read as NetCDF"):
        kh.read(path)


def test_a_netcdf_with_impossible_dates_is_refused_by_name(tmp_path):
    path = tmp_path / "never.nc"
    time = xr.Variable("time", [1e300, 2e300], {"units": "days since 2000-01-01"})
    xr.Dataset({"sst": (("time", "x"), np.eye(2))}, {"time": time}).to_netcdf(path)
    with pytest.raises(DataError, match=f"{path}: cannot be read as NetCDF"):
        kh.read(path)


def test_a_netcdf_without_a_field_is_refused(tmp_path):
    path = tmp_path / "empty.nc"
    xr.Dataset({"line": ("time", [1.0, 2.0])}).to_netcdf(path)
    with pytest.raises(DataError, match=f"{path}: holds no field of numbers on at least two axes; there is line"):
        kh.read(path)


def test_a_netcdf_that_declares_more_than_memory_is_refused(tmp_path):
    """An unwritten variable takes a few bytes on disk and 8 PB in memory."""
    path = tmp_path / "huge.nc"
    with h5py.File(path, "w") as file:
        file.create_dataset("huge", shape=(10**5, 10**5, 10**5), dtype="f8", chunks=(1, 1, 1000))
        for axis, name in enumerate(("time", "row", "column")):
            file.create_dataset(name, shape=(10**5,), dtype="f4", chunks=(1000,)).make_scale("no variable")
            file["huge"].dims[axis].attach_scale(file[name])
    assert path.stat().st_size < 100_000
    with pytest.raises(DataError, match=f"{path}: huge declares 7450580.6 GiB"):
        kh.read(path)


def test_a_netcdf_whose_coordinates_declare_more_than_memory_is_refused(tmp_path):
    path = tmp_path / "huge.nc"
    with h5py.File(path, "w") as file:
        file.create_dataset("huge", shape=(2, 10**14), dtype="f8", chunks=(1, 1000))
        for name, n in (("time", 2), ("place", 10**14)):
            file.create_dataset(name, shape=(n,), dtype="f8", chunks=(min(n, 1000),)).make_scale(name)
        for axis, name in enumerate(("time", "place")):
            file["huge"].dims[axis].attach_scale(file[name])
    with pytest.raises(DataError, match=f"{path}"):
        kh.read(path)


def test_free_memory_is_the_measure():
    check_fits(1000, "a small thing")
    with pytest.raises(DataError, match=r"a big thing declares 931322.6 GiB, and [\d.]+ [GM]iB of memory are free"):
        check_fits(10**15, "a big thing")


def test_samples_and_places_of_dimensions_are_chosen_by_name(tmp_path):
    """A level is taken, the nearest; samples may run along any dimension."""
    levels = xr.concat([monthly_field() + level for level in (0, 10, 20)], "level")
    levels = levels.assign_coords(level=[1000, 850, 500])
    levels.to_dataset(name="t").to_netcdf(tmp_path / "levels.nc")
    for source in (levels, tmp_path / "levels.nc"):
        signals = kh.read(source, at={"level": 840})
        np.testing.assert_array_equal(gridded(signals)[:, 0], levels.sel(level=850).values)
    assert gridded(kh.read(levels, samples="level")).shape == (3, 1, 60, 4, 5)
    for wrong, said in (({"depth": 1}, "no dimension 'depth'"), ({"level": "x"}, "there is no level='x'")):
        with pytest.raises(DataError, match=said):
            kh.read(levels, at=wrong)
    with pytest.raises(DataError, match="no dimension 'member'"):
        kh.read(levels, samples="member")


def members(dim: str, count: int = 3) -> xr.DataArray:
    """A field with one more dimension between time and space."""
    parts = [monthly_field().fillna(0.0) + member * smooth(60, 4, 5, seed=member) for member in range(count)]
    return xr.concat(parts, dim).transpose("time", dim, "lat", "lon").assign_coords({dim: range(count)})


@pytest.mark.parametrize("dim", ["member", "realization", "number", "Ensemble", "month", "lead_time"])
def test_a_dimension_that_is_no_space_is_refused_by_name(tmp_path, dim):
    """Members of an ensemble are not places; the ways to choose are named, and work."""
    field = members(dim)
    said = rf"'{dim}' \(3\) is not space.*at=\{{'{dim}': ...\}}.*samples='{dim}'"
    field.to_dataset(name="t").to_netcdf(tmp_path / "ensemble.nc")
    for source in (field, field.to_dataset(name="t"), tmp_path / "ensemble.nc"):
        with pytest.raises(DataError, match=said):
            kh.read(source)
    with pytest.raises(DataError, match=said):
        kh.read(tmp_path / "ensemble.nc", memory="1KiB")
    assert kh.read(field, at={dim: 1}).sites.dims == ("lat", "lon")
    assert kh.read(field, samples=dim).sites.dims == ("time", "lat", "lon")
    assert kh.read(field.isel({dim: [0]})).sites.shape == (1, 4, 5)
    stacked = kh.read(field.stack(sample=("time", dim)).reset_index("sample"), samples="sample")
    assert (len(stacked), stacked.sites.dims) == (180, ("lat", "lon"))


def test_dates_and_what_says_so_are_no_space():
    """A second axis of dates, or a coordinate whose standard name tells."""
    with pytest.raises(DataError, match=r"'start' \(3\) is not space"):
        kh.read(members("start").assign_coords(start=np.array(["2001", "2002", "2003"], "datetime64[ns]")))
    field = members("e")
    field["e"].attrs["standard_name"] = "realization"
    with pytest.raises(DataError, match=r"'e' \(3\) is not space"):
        kh.read(field)
    days = xr.DataArray(smooth(9, 24), dims=("day", "hour"))
    assert kh.read(days).sites.dims == ("hour",)  # the only other dimension is what sites are chosen of
    with pytest.raises(DataError, match="samples would run along 'lat'"):
        kh.read(monthly_field().isel(time=0).expand_dims("x", axis=2))


def test_vertical_axes_are_space_and_others_are_warned_of():
    """Depth is space like latitude; what is neither known as space nor as anything else is said to be taken as such."""
    for dim in ("level", "depth", "plev", "isobaricInhPa"):
        assert kh.read(members(dim)).sites.dims == (dim, "lat", "lon")
    named = members("k")
    named["k"].attrs["positive"] = "up"
    assert kh.read(named).sites.dims == ("k", "lat", "lon")
    with pytest.warns(KeyholeWarning, match=r"dimension 'band' \(3\) is taken as space.*at=\{'band': ...\}"):
        assert kh.read(members("band")).sites.dims == ("band", "lat", "lon")
    assert kh.read(xr.DataArray(smooth(9, 2, 3), dims=("time", "y", "x"))).sites.dims == ("y", "x")


def test_the_nearest_longitude_is_found_around_the_globe():
    """-140 is 220, next to 216, and 359 is next to 0."""
    field = monthly_field()
    for place, nearest in ((-140, 216.0), (359, 0.0), (-288, 72.0)):
        signals = kh.read(field.fillna(0.0), at={"lon": place})
        np.testing.assert_array_equal(gridded(signals)[:, 0], field.fillna(0.0).sel(lon=nearest).values)


@pytest.mark.parametrize("calendar", ["noleap", "360_day"])
def test_other_calendars_come_back_as_they_were(tmp_path, calendar):
    """Anomalies by month, and dates of the model's own calendar in what is rebuilt."""
    field = monthly_field()
    months = xr.date_range("2000-01-16", periods=60, freq="MS", calendar=calendar, use_cftime=True)
    field = field.assign_coords(time=months)
    field.to_netcdf(tmp_path / "model.nc")
    signals = kh.read(tmp_path / "model.nc")
    assert signals.time.astype("datetime64[M]").astype(int)[1] % 12 == field.time.dt.month.values[1] - 1
    plan = quick(signals.anomalies("month"))
    reconstructed = plan.reconstruct(signals.readings(plan.indices)[:3], time=signals.time[:3])
    assert reconstructed.time.values.tolist() == field.time.values[:3].tolist()
    assert reconstructed.time.dt.calendar == calendar


@pytest.mark.filterwarnings("ignore:Consolidated metadata", "ignore:Duplicate name")
def test_zarr_stores_and_groups(tmp_path):
    """A folder, a zip, and a group of either; NetCDF groups too."""
    import zarr

    field = monthly_field()
    data = field.to_dataset(name="sst")
    data.to_zarr(tmp_path / "a.zarr")
    data.to_zarr(tmp_path / "b.zarr", group="ocean/top")
    with zarr.storage.ZipStore(tmp_path / "a.zarr.zip", mode="w") as store:
        data.to_zarr(store)
    data.to_netcdf(tmp_path / "c.nc", group="ocean")
    for name, group in (("a.zarr", None), ("b.zarr", "ocean/top"), ("a.zarr.zip", None), ("c.nc", "ocean")):
        signals = kh.read(tmp_path / name, group=group)
        np.testing.assert_array_equal(gridded(signals)[:, 0], field.values)
        assert signals.origin.units == "degC"
        assert signals.time is not None
    for name, group in (("b.zarr", None), ("b.zarr", "land"), ("c.nc", "land")):
        with pytest.raises(DataError, match=name):
            kh.read(tmp_path / name, group=group)


def test_a_store_that_declares_more_than_memory_is_refused(tmp_path):
    """Nothing is allocated: 400 TB."""
    import zarr

    store = zarr.open_group(tmp_path / "huge.zarr", mode="w")
    store.create_array("t", shape=(100_000, 10_000, 100_000), chunks=(1, 100, 100), dtype="f4",
                       dimension_names=("time", "y", "x"))  # fmt: skip
    with pytest.raises(DataError, match="memory are free"):
        kh.read(tmp_path / "huge.zarr")


def test_a_store_of_400_gb_is_refused_before_memory_is_taken(tmp_path):
    import zarr

    store = zarr.open_group(tmp_path / "huge.zarr", mode="w")
    store.create_array("t", shape=(1000, 10_000, 10_000), chunks=(1, 100, 100), dtype="f4",
                       dimension_names=("time", "y", "x"))  # fmt: skip
    tracemalloc.start()
    with pytest.raises(DataError, match=r"t declares 372\.5 GiB.*memory are free"):
        kh.read(tmp_path / "huge.zarr")
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()


@pytest.mark.parametrize("dtype", ["f8", "i1"])
def test_a_store_whose_axis_declares_more_than_memory_is_refused(tmp_path, dtype):
    """Axes are loaded when a store is opened, before its fields are looked at."""
    import zarr

    store = zarr.open_group(tmp_path / "huge.zarr", mode="w")
    for name, shape, dims in (("t", (2, 10**11), ("time", "x")), ("x", (10**11,), ("x",))):
        store.create_array(name, shape=shape, chunks=(1000,) * len(shape), dtype=dtype, dimension_names=dims)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"huge\.zarr: x declares .*memory are free"):
        kh.read(tmp_path / "huge.zarr")
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()


@pytest.mark.filterwarnings("ignore")
def test_a_zipped_store_writes_nothing_wherever_its_members_say_they_are(tmp_path, monkeypatch):
    """Names that lead elsewhere, and an entry that says it is a link, are no part of the store."""
    import zarr

    folder = tmp_path / "deep" / "inside"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    with zarr.storage.ZipStore("a.zarr.zip", mode="w") as store:
        monthly_field().to_dataset(name="sst").to_zarr(store, consolidated=False)
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile("a.zarr.zip", "a") as archive:
        for name in ("../evil", "/etc/evil", "sst/../../evil"):
            archive.writestr(f"{name}/zarr.json", "{}")
        archive.writestr(link, "/etc/passwd")
    before = sorted(tmp_path.rglob("*"))
    try:
        signals = kh.read("a.zarr.zip")
    except DataError as error:
        assert "a.zarr.zip" in str(error)  # noqa: PT017
    else:
        np.testing.assert_array_equal(gridded(signals)[:, 0], monthly_field().values)
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/etc/evil").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_damaged_zipped_store_gives_samples_or_a_data_error(tmp_path, rng):
    import zarr

    path = tmp_path / "a.zarr.zip"
    with zarr.storage.ZipStore(path, mode="w") as store:
        monthly_field().to_dataset(name="sst").to_zarr(store, consolidated=False)
    whole = path.read_bytes()
    central = whole.index(b"PK\x01\x02")  # where the names and places of all members stand
    for place in [*rng.integers(0, central, 40), *rng.integers(central, len(whole), 40)]:
        content = bytearray(whole)
        content[place] ^= 0xFF
        path.write_bytes(content)
        with contextlib.suppress(DataError):
            kh.read(path)


def test_bounds_of_cells_are_no_fields(tmp_path):
    """A file of a climate model: one field, and where its months and rows end."""
    dataset = monthly_field().to_dataset()
    dataset["time"].attrs["bounds"] = "ends_of_months"
    dataset["time"].encoding["units"] = "days since 2000-01-01"
    dataset["ends_of_months"] = ("time", "two"), np.zeros((60, 2))
    dataset["lat_bnds"] = ("lat", "two"), np.zeros((4, 2))
    dataset.to_netcdf(tmp_path / "model.nc")
    assert kh.read(tmp_path / "model.nc").origin.name == "sst"
    assert kh.read(dataset).origin.name == "sst"


@pytest.mark.parametrize("stacked", ["samples", "grid"])
def test_a_stacked_dimension_is_refused_with_what_to_do(stacked):
    field = monthly_field()
    if stacked == "grid":
        field = field.stack(place=("lat", "lon"))
    else:
        field = field.expand_dims(member=2).stack(time_and_member=("time", "member")).transpose("time_and_member", ...)
    dim = next(str(dim) for dim in field.dims if str(dim) in ("place", "time_and_member"))
    samples = "time" if stacked == "grid" else dim
    with pytest.raises(DataError, match=rf"{dim!r} is stacked.*unstack\({dim!r}\).*reset_index\({dim!r}\)"):
        kh.read(field, samples=samples)
    assert len(kh.read(field.reset_index(dim), samples=samples)) == field.sizes[samples]


def classic_netcdf(path: Path, kind: str, *, records: bool, alone: bool) -> bytes:
    """A classic NetCDF file, with records or without, of one variable or several, some of them narrow."""
    import netCDF4

    with netCDF4.Dataset(path, "w", format=kind) as file:
        file.title = "a title"
        file.createDimension("time", None if records else 12)
        file.createDimension("x", 7)
        variable = file.createVariable("narrow", "i2", ("time", "x"))
        variable.units = "mm"
        variable[:] = np.arange(84).reshape(12, 7) + 1
        if not alone:
            file.createVariable("one", "f8", ())[:] = 3.0
            file.createVariable("v", "f4", ("time", "x"))[:] = smooth(12, 7) + 5
    return path.read_bytes()


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
def test_a_classic_file_that_was_cut_off_is_refused(tmp_path, kind, records, alone):
    """The NetCDF library reads zeros beyond the end."""
    path, name = tmp_path / "field.nc", "narrow" if alone else "v"
    whole = classic_netcdf(path, kind, records=records, alone=alone)
    assert kh.read(path, variable=name).values.min() > 0
    for cut in (5, 20, 60, 130, len(whole) // 2, len(whole) - 100, len(whole) - 4):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=r"field\.nc"):
            kh.read(path, variable=name)
        with pytest.raises(DataError, match=r"field\.nc"):
            kh.read(path, variable=name, memory=2 * len(whole))


def test_a_damaged_header_of_cdf5_is_refused(tmp_path):
    path = tmp_path / "field.nc"
    whole = bytearray(classic_netcdf(path, "NETCDF3_64BIT_DATA", records=True, alone=False))
    for place in range(4, 200, 3):
        path.write_bytes(whole[:place] + b"\xff\xff\xff" + whole[place + 3 :])
        with contextlib.suppress(DataError):
            kh.read(path, variable="v")


# Several files --------------------------------------------------------------------------------------------------------


@pytest.fixture
def years(tmp_path):
    """A folder of one file for each year, whose names are not in the order of time; and the whole."""
    whole = monthly_field(60)
    for year, name in zip(range(2000, 2005), "dbcae", strict=True):
        whole.sel(time=str(year)).to_netcdf(tmp_path / f"{name}.nc")
    return tmp_path, whole


def test_files_are_joined_in_the_order_of_time(years):
    """A folder, a pattern, and lists of paths in any order are the field that was split."""
    folder, whole = years
    expected = kh.read(whole)
    paths = sorted(folder.iterdir())
    for given in (folder, str(folder), str(folder / "*.nc"), f"{folder}/**/*.nc", paths, tuple(map(str, paths))):
        signals = kh.read(given)
        np.testing.assert_array_equal(signals.values, expected.values)
        np.testing.assert_array_equal(signals.time, expected.time)
        assert signals.origin == expected.origin
        assert signals.fingerprint() == expected.fingerprint()
    assert kh.select(paths, 3, method="qr", reconstructor="ridge").indices.tolist() == (
        kh.select(whole, 3, method="qr", reconstructor="ridge").indices.tolist()
    )


def test_files_whose_times_interleave_are_joined(tmp_path):
    whole = monthly_field(24)
    whole[::2].to_netcdf(tmp_path / "odd.nc")
    whole[1::2].to_netcdf(tmp_path / "even.nc")
    np.testing.assert_array_equal(kh.read(tmp_path).values, kh.read(whole).values)
    np.testing.assert_array_equal(left_in_file(tmp_path).panel(np.arange(3, 9)).values, kh.read(whole).values[3:9])


def test_a_pattern_or_list_of_one_file_is_that_file(years):
    folder, _ = years
    one = kh.read(folder / "a.nc")
    for given in ([folder / "a.nc"], str(folder / "a*.nc")):
        np.testing.assert_array_equal(kh.read(given).values, one.values)
    (folder / "x[1].nc").write_bytes((folder / "a.nc").read_bytes())
    np.testing.assert_array_equal(kh.read(folder / "x[1].nc").values, one.values)


def test_several_variables_groups_and_places_of_several_files(tmp_path):
    whole = xr.concat([monthly_field(24), monthly_field(24) + 5], "level").assign_coords(level=[500, 850])
    data = xr.Dataset({"u": whole, "v": 2 * whole}).transpose("time", ...)
    for month in range(24):
        data.isel(time=[month]).to_netcdf(tmp_path / f"{month:02}.nc4", group="top")
    options = {"variable": ["u", "v"], "at": {"level": 800}}
    expected = kh.read(data, **options)
    found = kh.read(tmp_path, group="top", **options)
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.time, expected.time)


def test_files_of_one_sample_may_have_their_time_as_a_number(tmp_path):
    whole = monthly_field(12)
    for month in range(12):
        whole.isel(time=month).to_netcdf(tmp_path / f"{month:02}.nc")
    found = kh.read(tmp_path)
    np.testing.assert_array_equal(found.values, kh.read(whole).values)
    np.testing.assert_array_equal(found.time, kh.read(whole).time)
    assert found.origin == kh.read(whole).origin
    np.testing.assert_array_equal(left_in_file(tmp_path).panel(np.arange(2, 5)).values, kh.read(whole).values[2:5])


def test_files_without_time_are_joined_in_the_order_given(tmp_path):
    whole = xr.DataArray(smooth(9, 3, 4), dims=("run", "y", "x"), name="u")
    for name, rows in (("a", slice(0, 4)), ("b", slice(4, 9))):
        whole[rows].to_netcdf(tmp_path / f"{name}.nc")
    paths = [tmp_path / "b.nc", tmp_path / "a.nc"]
    np.testing.assert_array_equal(gridded(kh.read(tmp_path))[:, 0], whole.values)
    np.testing.assert_array_equal(gridded(kh.read(paths))[:5, 0], whole.values[4:])


def test_zarr_stores_are_joined_too(tmp_path):
    whole = monthly_field(24)
    for name, rows in (("a", slice(0, 12)), ("b", slice(12, 24))):
        whole[rows].to_dataset().to_zarr(tmp_path / f"{name}.zarr", consolidated=False)
    found = kh.read([tmp_path / "b.zarr", tmp_path / "a.zarr"])
    np.testing.assert_array_equal(found.values, kh.read(whole).values)


DIFFERENT = {
    "variables": (lambda part: part.rename("air"), "variables air, where .*a.nc has sst"),
    "grid": (lambda part: part.isel(lat=slice(0, 3)), "grid shape 3 x 5, where .*a.nc has 4 x 5"),
    "coordinates": (lambda part: part.assign_coords(lon=part.lon + 1), "coordinates of lon differ"),
    "reversed": (lambda part: part[:, ::-1], "coordinates of lat differ"),
    "units": (lambda part: part.assign_attrs(units="K"), "units K, where .*a.nc has degC"),
    "no units": (lambda part: part.drop_attrs(), "units none, where .*a.nc has degC"),
    "dimensions": (lambda part: part.rename(lat="y"), "dimensions time, y, lon, where .*a.nc has time, lat, lon"),
    "order": (lambda part: part.transpose("time", "lon", "lat"), "dimensions time, lon, lat"),
    "no time": (lambda part: part.drop_vars("time"), "calendar none, where .*a.nc has standard"),
    "calendar": (lambda part: part.convert_calendar("noleap"), "calendar noleap, where .*a.nc has standard"),
    "same times": (lambda part: part.assign_coords(time=part.time - np.timedelta64(366, "D")), "both hold the time"),
}


@pytest.mark.parametrize(("change", "says"), DIFFERENT.values(), ids=DIFFERENT)
def test_files_that_do_not_go_together_are_refused_by_name(tmp_path, change, says):
    whole = monthly_field(24)
    whole[:12].to_netcdf(tmp_path / "a.nc")
    change(whole[12:]).to_netcdf(tmp_path / "b.nc")
    with pytest.raises(DataError, match=says):
        kh.read(tmp_path)
    with pytest.raises(DataError, match=says):
        kh.read(tmp_path, memory="1KiB")


def test_a_number_as_time_may_not_stand_in_two_files(tmp_path):
    """The error says which number it is."""
    whole = xr.DataArray(smooth(8, 3, 4), {"time": np.arange(8) / 2}, ("time", "y", "x"), "u")
    whole[:5].to_netcdf(tmp_path / "a.nc")
    whole[4:].to_netcdf(tmp_path / "b.nc")
    with pytest.raises(DataError, match=r"a\.nc and .*b\.nc both hold the time 2\.0; leave one of them out"):
        kh.read(tmp_path)


def test_a_dimension_that_is_the_same_in_all_files_is_not_guessed_to_be_that_of_the_samples(tmp_path):
    """Fields without a time would be joined along latitude."""
    whole = monthly_field(6).drop_vars("time")
    for n in range(6):
        whole[n].to_netcdf(tmp_path / f"{n}.nc")
    with pytest.raises(DataError, match=r"samples would run along 'lat'; name another"):
        kh.read(tmp_path)
    assert len(kh.read(tmp_path, samples="lat", missing="model")) == 24


def test_what_cannot_be_joined_is_refused(years):
    folder, _ = years
    np.save(folder / "a.npy", smooth(5, 3))
    with pytest.raises(DataError, match=r"a\.npy: .* are read together"):
        kh.read([folder / "a.npy", folder / "b.nc"])
    with pytest.raises(DataError, match=r"a\.nc: named twice"):
        kh.read([folder / "a.nc", folder / "a.nc"])
    with pytest.raises(StorageError, match=r"none\.nc: no such file"):
        kh.read([folder / "a.nc", folder / "none.nc"])
    with pytest.raises(StorageError, match=r"no file matches"):
        kh.read(str(folder / "none*.nc"))
    with pytest.raises(DataError, match=r"channels does not apply to several files"):
        kh.read([folder / "a.nc", folder / "b.nc"], channels=1)
    (folder / "c.nc").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"c\.nc: cannot be read as NetCDF"):
        kh.read(folder)
    (folder / "picture.png").touch()
    with pytest.raises(DataError, match=r"holds both images and fields"):
        kh.read(folder)


def test_files_that_declare_more_than_memory_together_are_refused(tmp_path):
    """Each fits, all of them do not; nothing is written of what they declare."""
    import netCDF4

    free = free_memory()
    for year in range(4):
        with netCDF4.Dataset(tmp_path / f"{year}.nc", "w") as file:
            file.createDimension("time", 1000)
            file.createDimension("x", free // 10_000)
            file.createVariable("time", "i4", ("time",)).units = "days since 2000-01-01"
            file["time"][:] = 1000 * year + np.arange(1000)
            file.createVariable("u", "f4", ("time", "x"), chunksizes=(1, 1000))
    with pytest.raises(DataError, match=r"files joined to it up to .*2\.nc: all of this declares .*memory are free"):
        kh.read(tmp_path, memory=10 * free)


def test_a_folder_of_zarr_stores_is_one_field(tmp_path):
    """Also where the stores, or the folder of a store, have no ending that says what they are."""
    values = np.random.default_rng(0).normal(size=(20, 3, 4)).astype(np.float32)
    whole = xr.DataArray(values, {"time": pd.date_range("2020", periods=20)}, ("time", "y", "x"), "t").to_dataset()
    for name, part in ("a", whole.isel(time=slice(8))), ("b.zarr", whole.isel(time=slice(8, 20))):
        part.to_zarr(tmp_path / "parts" / name, consolidated=False)
    np.testing.assert_array_equal(kh.read(tmp_path / "parts").values[:, 0].reshape(20, 3, 4), values)
    np.testing.assert_array_equal(kh.read(tmp_path / "parts" / "a").values[:, 0].reshape(8, 3, 4), values[:8])
