"""Fields at an address, in the file system that fsspec keeps in memory."""

from __future__ import annotations

import fsspec
import numpy as np
import pytest
import xarray as xr

import keyhole as kh
from keyhole.errors import DataError, StorageError


@pytest.fixture
def field(rng):
    axes = {"time": np.arange(9.0), "lat": [10.0, 20.0], "lon": [0.0, 90.0, 180.0]}
    return xr.DataArray(rng.normal(size=(9, 2, 3)), axes, tuple(axes), name="sst", attrs={"units": "K"})


def test_a_zarr_store_and_a_netcdf_file_are_read(field):
    field.to_dataset().to_zarr("memory://bucket/sst.zarr", mode="w", consolidated=False)
    with fsspec.open("memory://bucket/sst.nc", "wb") as file:
        file.write(bytes(field.to_netcdf(engine="h5netcdf")))
    for address in ("memory://bucket/sst.zarr", "memory://bucket/sst.nc"):
        samples = kh.read(address, variable="sst")
        np.testing.assert_array_equal(samples.values[:, 0], field.values.reshape(9, 6))
        assert samples.origin.units == "K"
    np.testing.assert_array_equal(kh.read("memory://bucket/sst.nc", at={"lat": 10}).values[:, 0], field.values[:, 0])


def test_what_is_not_there_or_no_field_is_refused(field):
    with pytest.raises((DataError, StorageError), match=r"memory://bucket/none\.nc"):
        kh.read("memory://bucket/none.nc")
    with fsspec.open("memory://bucket/broken.nc", "wb") as file:
        file.write(b"not a field")
    with pytest.raises((DataError, StorageError), match=r"memory://bucket/broken\.nc"):
        kh.read("memory://bucket/broken.nc")
    with pytest.raises(DataError, match="size does not apply"):
        kh.read("memory://bucket/sst.nc", size=3)
