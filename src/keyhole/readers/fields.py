"""Fields: xarray DataArrays and NetCDF files."""

from __future__ import annotations

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

__all__ = ["read_dataarray", "read_netcdf"]


def read_netcdf(path: Path, *, variable: str | None = None) -> Signals:
    """Read one variable of a NetCDF file, by name or the only one with at least two dimensions."""
    import xarray as xr

    try:
        with xr.open_dataset(path) as dataset:
            array = dataset[_choose(dataset, variable, path)]
            check_fits(int(array.size) * max(array.dtype.itemsize, 4), f"{path}: {array.name}")
            return read_dataarray(array.load())
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read as NetCDF ({error})") from error


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
    origin = Origin("field", sample_dim=sample, name=str(array.name or "field"), attributes=_plain(array.attrs))
    return Signals.build(array.values[:, np.newaxis], grid, time=_time(array, sample), origin=origin)


def _choose(dataset: xr.Dataset, variable: str | None, path: Path) -> str:
    names = [str(name) for name, array in dataset.data_vars.items() if array.ndim >= 2 and array.dtype.kind in "iuf"]
    if variable is None and len(names) == 1:
        return names[0]
    if variable is None:
        raise DataError(f"{path}: holds {len(names)} fields ({', '.join(names)}); name one with variable")
    if variable not in dataset.data_vars:
        raise DataError(f"{path}: no variable {variable!r}; it holds {', '.join(map(str, dataset.data_vars))}")
    return variable


def _axis(array: xr.DataArray, dim: str) -> NDArray[Any]:
    return np.asarray(array[dim].values) if dim in array.coords else np.arange(array.sizes[dim])


def _time(array: xr.DataArray, sample: str) -> NDArray[np.datetime64] | None:
    values = _axis(array, sample)
    return values.astype("datetime64[ns]") if np.issubdtype(values.dtype, np.datetime64) else None


def _plain(attributes: dict[Any, Any]) -> dict[str, Any]:
    """Keep attributes as JSON can hold them."""
    plain = {str(k): v.tolist() if isinstance(v, np.ndarray | np.generic) else v for k, v in attributes.items()}
    return {k: v if isinstance(v, str | int | float | list) else str(v) for k, v in plain.items()}
