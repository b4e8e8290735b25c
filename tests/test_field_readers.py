"""Fields: DataArrays, Datasets and NetCDF files become the same Signals, or an error that names what is wrong."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import xarray as xr

import keyhole as kh
from keyhole import DataError
from keyhole.readers.memory import check_fits
from samples import monthly_field, smooth


def test_a_field_keeps_coordinates_time_land_and_attributes():
    field = monthly_field()
    signals = kh.read(field)
    np.testing.assert_array_equal(signals.values[:, 0], field.values)
    assert signals.grid.dims == ("lat", "lon")
    np.testing.assert_array_equal(signals.grid.coordinates["lat"], field.lat)
    np.testing.assert_array_equal(signals.time, field.time.values)
    assert signals.observable.sum() == 18
    assert signals.origin.units == "degC"
    assert signals.origin.attributes["valid_range"] == [-5.0, 40.0]


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
    np.testing.assert_allclose(signals.values[:, 0], monthly_field().values, atol=0.006)
    assert signals.observable.sum() == 18


def test_the_variable_of_a_netcdf_must_be_clear(tmp_path):
    path, field = tmp_path / "two.nc", monthly_field()
    xr.Dataset({"sst": field, "other": field + 1}).to_netcdf(path)
    assert kh.read(path, variable="other").origin.name == "other"
    with pytest.raises(DataError, match=rf"{path}: holds 2 fields \(sst, other\); name one with variable"):
        kh.read(path)
    with pytest.raises(DataError, match=f"{path}: no variable 'air'; there are sst, other"):
        kh.read(path, variable="air")


def test_a_data_set_in_memory_is_read_by_variable():
    field = monthly_field()
    data = xr.Dataset({"sst": field, "other": field + 1})
    np.testing.assert_array_equal(kh.read(data, variable="sst").values, kh.read(field).values)
    with pytest.raises(DataError, match="holds 2 fields"):
        kh.read(data)


@pytest.mark.parametrize("names", [["buoy", "pier", "reef"], np.array(["buoy", "pier", "reef"], object)])
def test_stations_may_have_text_for_coordinates(tmp_path, names):
    field = xr.DataArray(smooth(6, 3), {"station": list(names)}, ("time", "station"), "level")
    field.to_netcdf(tmp_path / "stations.nc")
    for signals in (kh.read(field), kh.read(tmp_path / "stations.nc")):
        assert signals.grid.name(1) == "station=pier"


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
    with pytest.raises(DataError, match=f"{path}: no variable holds numbers on at least two dimensions"):
        kh.read(path)


def test_a_netcdf_that_declares_more_than_memory_is_refused(tmp_path):
    """An unwritten variable takes a few bytes on disk and 8 PB in memory."""
    path = tmp_path / "huge.nc"
    with h5py.File(path, "w") as file:
        file.create_dataset("huge", shape=(10**6, 10**9), dtype="f8", chunks=(1, 1000))
        for name, n in (("time", 10**6), ("place", 10**9)):
            file.create_dataset(name, shape=(n,), dtype="f4", chunks=(1000,)).make_scale("no variable")
        for axis, name in enumerate(("time", "place")):
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
