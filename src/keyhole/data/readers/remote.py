"""Fields in object stores and on servers, through fsspec."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from keyhole.core.errors import DataError, KeyholeError, StorageError
from keyhole.core.memory import check_fits
from keyhole.data.readers.fields import At, Field, SampleDims, Variable, variable_names
from keyhole.data.readers.stored import kept_open, stored_samples
from keyhole.data.samples import Samples
from keyhole.data.values import fits

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["is_remote", "read_remote"]


def is_remote(source: Any) -> bool:
    """Return whether a source is an address such as ``s3://bucket/sst.zarr``, not a path."""
    return isinstance(source, str) and "://" in source and bool(urlsplit(source).scheme)


def read_remote(
    address: str, *, memory: int, variable: Variable = None, group: str | None = None, samples: SampleDims = None,
    at: At = None,
) -> Samples:  # fmt: skip
    """Read a field from a Zarr store or a NetCDF file at an address.

    Parameters
    ----------
    address : str
        Of any file system that fsspec knows: ``s3://``, ``gs://``, ``https://``, ``memory://``, ...; a Zarr store if it
        ends in ``.zarr``, else a NetCDF-4 file. Credentials are taken from the environment, as fsspec does.
    memory, variable, group, samples, at
        As for `read_fields`.

    Returns
    -------
    Samples

    Raises
    ------
    DataError
        If the store is not a field, or its values exceed the free memory.
    StorageError
        If it cannot be opened.
    """
    try:
        with ExitStack() as stack:
            dataset = _opened(address, group, stack)
            names = variable_names(dataset, variable)
            declared = sum(int(dataset[name].size) * max(dataset[name].dtype.itemsize, 4) for name in names)
            field = Field.from_dataset(dataset, names, samples, at)
            if not fits(field.nbytes, memory):
                return kept_open(stored_samples(field, memory), stack)
            check_fits(0 if at else declared, f"{address}: {', '.join(names)}")
            return field.load()
    except (KeyholeError, MemoryError):
        raise
    except (OSError, ImportError) as error:
        raise StorageError(f"{address}: cannot be opened ({error})") from error
    except Exception as error:  # whatever xarray and the file systems raise on what is no field
        raise DataError(f"{address}: cannot be read ({type(error).__name__}: {error})") from error


def _opened(address: str, group: str | None, stack: ExitStack) -> xr.Dataset:
    import fsspec
    import xarray as xr

    options: dict[str, Any] = {} if group is None else {"group": group}
    if address.rstrip("/").endswith(".zarr"):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated metadata", RuntimeWarning)
            return stack.enter_context(xr.open_dataset(address, engine="zarr", **options))
    file = stack.enter_context(fsspec.open(address, "rb"))
    return stack.enter_context(xr.open_dataset(file, engine="h5netcdf", **options))
