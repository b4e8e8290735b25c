"""Fields: xarray DataArrays and NetCDF files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.errors import DataError
from keyhole.grid import Grid
from keyhole.readers.memory import check_fits
from keyhole.signals import Origin, Signals

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["read_dataarray", "read_dataset", "read_netcdf"]

# What xarray and the libraries under it raise on files that are damaged or made up.
_BROKEN = (OSError, ValueError, RuntimeError, MemoryError, LookupError, TypeError, AttributeError, ArithmeticError)


def read_netcdf(path: Path, *, variable: str | None = None) -> Signals:
    """Read one variable of a NetCDF file, by name or the only one with at least two dimensions."""
    import xarray as xr

    try:
        _check_whole(path)
        _check_declared(path, variable)
        with xr.open_dataset(path) as dataset:
            array = dataset[_choose(dataset, variable)]
            check_fits(int(array.size) * max(array.dtype.itemsize, 4), f"{path}: {array.name}")
            return read_dataarray(array.load())
    except _BROKEN as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read as NetCDF ({error})") from error


def read_dataset(dataset: xr.Dataset, *, variable: str | None = None) -> Signals:
    """Take one variable of a Dataset, by name or the only one with at least two dimensions."""
    return read_dataarray(dataset[_choose(dataset, variable)])


def read_dataarray(array: xr.DataArray, *, sample_dim: str | None = None) -> Signals:
    """Take a DataArray; samples run along ``sample_dim``, by default ``time`` or else the first dimension."""
    if array.ndim < 2:
        raise DataError(f"{array.name}: {array.ndim} dimension; samples and at least one of a grid are needed")
    sample = sample_dim or ("time" if "time" in array.dims else str(array.dims[0]))
    if sample not in array.dims:
        raise DataError(f"{array.name}: no dimension {sample!r}; it has {', '.join(map(str, array.dims))}")
    array = array.transpose(sample, ...)
    dims = tuple(str(dim) for dim in array.dims[1:])
    coordinates = {dim: _axis(array, dim) for dim in dims}
    shape = tuple(int(n) for n in array.shape[1:])
    grid = Grid(shape, dims, coordinates, np.ones(shape, bool))
    origin = Origin(
        "field",
        sample_dim=sample,
        name=str(array.name or "field"),
        attributes=_attributes(array),
        axis_attributes={dim: _attributes(array[dim]) for dim in dims if dim in array.coords},
    )
    return Signals.build(array.values[:, np.newaxis], grid, time=_time(array, sample), origin=origin)


def _check_whole(path: Path) -> None:
    """Look for the end of a classic NetCDF file: where it was cut off, the NetCDF library may read zeros."""
    from scipy.io import netcdf_file

    with path.open("rb") as file:
        classic = file.read(4) in (b"CDF\x01", b"CDF\x02")
    if classic:
        netcdf_file(path, mmap=True).close()


def _check_declared(path: Path, variable: str | None) -> None:
    """Compare declared sizes with memory before xarray opens the file, as it loads the axes at once."""
    import netCDF4

    with netCDF4.Dataset(path) as file:
        for name, found in file.variables.items():
            if name in file.dimensions or name == variable or (variable is None and found.ndim > 1):
                check_fits(math.prod(found.shape) * np.dtype(found.dtype).itemsize, f"{path}: {name}")


def _choose(dataset: xr.Dataset, variable: str | None) -> str:
    names = [str(name) for name, array in dataset.data_vars.items() if array.ndim >= 2 and array.dtype.kind in "iuf"]
    if variable is not None:
        if variable not in dataset.data_vars:
            raise DataError(f"no variable {variable!r}; there are {', '.join(map(str, dataset.data_vars)) or 'none'}")
        return variable
    if not names:
        raise DataError("no variable holds numbers on at least two dimensions")
    if len(names) > 1:
        raise DataError(f"holds {len(names)} fields ({', '.join(names)}); name one with variable")
    return names[0]


def _axis(array: xr.DataArray, dim: str) -> NDArray[Any]:
    axis = np.asarray(array[dim].values) if dim in array.coords else np.arange(array.sizes[dim])
    return axis.astype(str) if axis.dtype.kind in "OST" else axis


def _time(array: xr.DataArray, sample: str) -> NDArray[np.datetime64] | None:
    values = _axis(array, sample)
    return values.astype("datetime64[ns]") if np.issubdtype(values.dtype, np.datetime64) else None


def _attributes(array: xr.DataArray) -> dict[str, Any]:
    return {str(name): _plain(value) for name, value in array.attrs.items()}


def _plain(value: Any) -> Any:
    """Keep an attribute as JSON can hold it."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float) else str(value)
