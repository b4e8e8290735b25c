"""Readers of gridded fields: xarray DataArrays and Datasets, NetCDF, Zarr and GRIB files."""

from __future__ import annotations

import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, KeyholeError, StorageError
from keyhole.core.extras import check_extra
from keyhole.core.memory import check_fits
from keyhole.core.paths import check_regular, check_regular_within
from keyhole.data.grid import FULL_TURN, Grid, is_longitude
from keyhole.data.origin import SourceInfo, clock_of
from keyhole.data.readers.calendars import from_calendar
from keyhole.data.readers.cdf5 import check_cdf5
from keyhole.data.readers.dimensions import check_space, sample_dimension
from keyhole.data.readers.variables import one_of
from keyhole.data.samples import Samples

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "At",
    "Field",
    "Variable",
    "load_field",
    "opened",
    "read_dataarray",
    "read_dataset",
    "read_grib",
    "read_netcdf",
    "read_zarr",
]

# What xarray and the libraries under it raise on files that are damaged or made up.
_ZARR = {"engine": "zarr", "consolidated": False}
_BOUNDS = ("_bnds", "_bounds")
_BROKEN = (
    OSError, ValueError, RuntimeError, MemoryError, LookupError, TypeError, AttributeError, ArithmeticError, EOFError,
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error,
)  # fmt: skip


Variable = str | Sequence[str] | None
At = Mapping[str, Any] | None


def read_netcdf(
    path: Path, *, variable: Variable = None, group: str | None = None, samples: str | None = None, at: At = None
) -> Samples:
    """Read a variable of a NetCDF file, or several on one grid; see `read_dataset`."""
    with _whole(path, "NetCDF"):
        _check_whole(path)
        _check_declared(path, group, variable)
        return _read_opened(path, path, {"group": group}, variable=variable, samples=samples, at=at)


def read_zarr(
    path: Path, *, variable: Variable = None, group: str | None = None, samples: str | None = None, at: At = None
) -> Samples:
    """Read a variable of a Zarr store, a folder or a zip, or several on one grid; see `read_dataset`."""
    with _whole(path, "Zarr"), _source(path, "Zarr", group) as store:
        options = {**_ZARR, "group": group}
        return _read_opened(path, store, options, variable=variable, samples=samples, at=at)


def read_grib(path: Path, *, variable: Variable = None, samples: str | None = None, at: At = None) -> Samples:
    """Read a variable of a GRIB file, or several on one grid, if cfgrib is there; see `read_dataset`."""
    check_extra("grib")
    with _whole(path, "GRIB"):
        return _read_opened(path, path, {"engine": "cfgrib"}, variable=variable, samples=samples, at=at)


def read_dataset(
    dataset: xr.Dataset, *, variable: Variable = None, samples: str | None = None, at: At = None
) -> Samples:
    """Take a variable of a Dataset, or several as channels.

    Parameters
    ----------
    dataset
        The Dataset.
    variable
        Name of one, or names of several on the same grid, each a channel; by default the only one with numbers on at
        least two dimensions, or all of these where they share their dimensions.
    samples
        Name of the dimension that samples run along, by default ``time`` or else the first.
    at
        Which place to take of a dimension, by its coordinate, the nearest: ``{"level": 500}``.
    """
    return _read(dataset, _several(dataset, variable), samples, at)


def read_dataarray(array: xr.DataArray, *, samples: str | None = None, at: At = None) -> Samples:
    """Take a DataArray; samples run along ``samples``, by default ``time`` or else the first dimension."""
    name = str(array.name or "field")
    if name in array.coords:
        raise DataError(f"{name}: called like one of its own coordinates; rename it")
    return _read(array.to_dataset(name=name), [name], samples, at)


def load_field(path: Path) -> xr.DataArray:
    """Load the only variable of a NetCDF file, with its coordinates."""
    if not path.is_file():
        raise StorageError(f"{path}: no such file")
    with _whole(path, "NetCDF"):
        _check_whole(path)
        with _dataset(path, {}) as dataset:
            names = [str(name) for name in dataset.data_vars]
            if len(names) != 1:
                raise DataError(f"{path}: holds {', '.join(names) or 'no variable'}; one variable is needed")
            check_fits(int(dataset[names[0]].nbytes), f"{path}: {names[0]}")
            return dataset[names[0]].load()


@contextmanager
def opened(
    path: Path, *, variable: Variable = None, group: str | None = None, samples: str | None = None, at: At = None,
    several: bool = False, admit: Callable[[int], None] | None = None,
) -> Iterator[Field]:  # fmt: skip
    """Open a variable of a NetCDF file or a Zarr store, or several on one grid, to be read some at a time.

    Of ``several`` files, one that has its time as a single number instead of along a dimension is one sample. ``admit``
    is told the bytes that the variables declare, before anything of their size is made.
    """
    check_regular(path)
    kind = "Zarr" if path.name.lower().endswith((".zarr", ".zarr.zip")) else "NetCDF"
    if not path.exists():
        raise StorageError(f"{path}: no such file")
    options = {**(_ZARR if kind == "Zarr" else {}), "group": group}
    with ExitStack() as stack:
        with _whole(path, kind):
            source = stack.enter_context(_source(path, kind, group))
            dataset = stack.enter_context(_dataset(source, options))
            names = _named(dataset, variable)
            if admit is not None:
                admit(_declared(dataset, names, at))
            single = several and _is_snapshot(dataset[names[0]], samples or "time")
            field = (Snapshot if single else Field).of(dataset, names, samples, at)
        yield field


@contextmanager
def _source(path: Path, kind: str, group: str | None) -> Iterator[Any]:
    """Give what xarray opens."""
    if kind == "Zarr":
        with _store(path) as store:
            _check_axes(path, store, group)
            yield store
        return
    _check_whole(path)
    _check_declared(path, group, [])
    yield path


def _dataset(source: Any, options: Mapping[str, Any]) -> xr.Dataset:
    import xarray as xr

    return xr.open_dataset(source, **{name: value for name, value in options.items() if value is not None})


def _read_opened(
    path: Path, source: Any, options: Mapping[str, Any], *, variable: Variable, samples: str | None, at: At
) -> Samples:
    with _dataset(source, options) as dataset:
        names = _named(dataset, variable)
        check_fits(_declared(dataset, names, at), f"{path}: {', '.join(names)}")
        return _read(dataset, names, samples, at)


def _declared(dataset: xr.Dataset, names: Sequence[str], at: At) -> int:
    """Bytes of all values; none where one place of a dimension is taken, as that is a part of them."""
    return 0 if at else sum(int(dataset[name].size) * max(dataset[name].dtype.itemsize, 4) for name in names)


def _read(dataset: xr.Dataset, names: Sequence[str], samples: str | None, at: At) -> Samples:
    """Take variables that share their dimensions, each a channel."""
    field = Field.of(dataset, names, samples, at)
    return Samples.build(field.values(slice(None)), field.grid, time=field.time, origin=field.origin)


@dataclass(frozen=True, eq=False)
class Field:
    """Variables on one grid, each a channel, as they lie in a file; no value is read before it is asked for.

    Parameters
    ----------
    arrays
        The variables, samples first.
    grid, time, origin
        As `Samples` has them.
    """

    arrays: Sequence[xr.DataArray]
    grid: Grid
    time: NDArray[Any] | None
    origin: SourceInfo

    @classmethod
    def of(cls, dataset: xr.Dataset, names: Sequence[str], samples: str | None, at: At) -> Field:
        """Take variables that share their dimensions."""
        arrays = [_placed(dataset[name], at, samples or "time") for name in names]
        first = arrays[0]
        if first.ndim < 2:
            raise DataError(f"{first.name}: {first.ndim} dimension; samples and at least one of a grid are needed")
        sample = sample_dimension(first, samples)
        if samples is None:
            check_space(first, sample)
        for other in arrays[1:]:
            if set(other.dims) != set(first.dims) or any(other.sizes[dim] != first.sizes[dim] for dim in first.dims):
                raise DataError(f"{other.name} is on another grid than {first.name}; channels need one grid")
        _check_plain_axes(first)
        order = (sample, *(dim for dim in first.dims if dim != sample))
        dims = tuple(str(dim) for dim in order[1:])
        shape = tuple(int(first.sizes[dim]) for dim in order[1:])
        grid = Grid(shape, dims, {dim: _axis(first, dim) for dim in dims}, np.ones(shape, bool))
        time, calendar = _time(first, str(sample))
        made = [array.transpose(*order) for array in arrays]
        origin = _origin(made, str(sample), dims, calendar, _attributes(dataset))
        return cls(made, grid, time, replace(origin, clock=clock_of(time)))

    def __len__(self) -> int:
        return int(self.arrays[0].shape[0])

    @property
    def chunk(self) -> int:
        """How many samples lie together in the file."""
        first = self.arrays[0]
        chunks = first.encoding.get("preferred_chunks", {}).get(first.dims[0])
        return int(chunks) if isinstance(chunks, int | np.integer) else 1

    def values(self, rows: slice) -> NDArray[Any]:
        """Read some samples, ``(n, channels, *grid)``."""
        try:
            return self._stacked(rows)
        except _BROKEN as error:
            if isinstance(error, MemoryError):
                raise
            which = "samples" if rows.start is None else f"samples {rows.start} to {rows.stop}"
            raise DataError(f"{self.origin.name}: {which} cannot be read ({error})") from error

    def _stacked(self, rows: slice) -> NDArray[Any]:
        return np.stack([array[rows].values for array in self.arrays], axis=1)


class Snapshot(Field):
    """Variables on one grid that are a single sample: their time is a number, not a dimension."""

    @classmethod
    def of(cls, dataset: xr.Dataset, names: Sequence[str], samples: str | None, at: At) -> Field:
        """Take variables that share their dimensions; what is known of them comes from arrays of nothing."""
        arrays = [_placed(dataset[name], at, samples or "time") for name in names]
        nothing = [array.copy(data=np.broadcast_to(np.float32(0), array.shape)) for array in arrays]
        known = nothing[0].to_dataset().assign({str(array.name): array for array in nothing})
        about = Field.of(known.expand_dims(samples or "time"), names, samples, None)
        return cls([array.transpose(*about.grid.dims) for array in arrays], about.grid, about.time, about.origin)

    def __len__(self) -> int:
        return 1

    @property
    def chunk(self) -> int:
        """How many samples lie together in the file."""
        return 1

    def _stacked(self, rows: slice) -> NDArray[Any]:
        return np.stack([array.values for array in self.arrays])[np.newaxis][rows]


def _origin(
    arrays: Sequence[xr.DataArray], sample: str, dims: tuple[str, ...], calendar: str, about: Mapping[str, Any]
) -> SourceInfo:
    first, several = arrays[0], len(arrays) > 1
    return SourceInfo(
        "field",
        sample_dim=sample,
        name=" ".join(str(array.name) for array in arrays),
        attributes={} if several else _attributes(first),
        axis_attributes={dim: _attributes(first[dim]) for dim in (sample, *dims) if dim in first.coords},
        variables={str(array.name): _attributes(array) for array in arrays} if several else {},
        calendar=calendar,
        dataset_attributes=about,
    )


def _is_snapshot(array: xr.DataArray, sample: str) -> bool:
    return sample in array.coords and array[sample].ndim == 0


def _placed(array: xr.DataArray, at: At, sample: str) -> xr.DataArray:
    """Take one place of some dimensions, and leave out all that have one place then, but for that of the samples."""
    if not at:
        return array
    for dim, place in at.items():
        if dim not in array.dims:
            raise DataError(f"at: {array.name} has no dimension {dim!r}; it has {', '.join(map(str, array.dims))}")
        try:
            exact = dim not in array.coords or array[dim].dtype.kind in "OSUT"
            place = place if exact or not is_longitude(str(dim)) else _same_longitude(array[dim].values, place)
            array = array.sel({dim: [place]}, method=None if exact else "nearest")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DataError(f"at: {dim}={place!r} is not to be had ({error})") from error
    return array.squeeze([dim for dim in array.dims if array.sizes[dim] == 1 and dim != sample], drop=True)


def _same_longitude(line: NDArray[Any], place: Any) -> Any:
    """Give the longitude of ``line`` that is nearest to a place, around the globe."""
    off = np.abs((np.asarray(line, np.float64) - float(place) + FULL_TURN / 2) % FULL_TURN - FULL_TURN / 2)
    return line[int(off.argmin())]


def _several(dataset: xr.Dataset, variable: Variable) -> list[str]:
    """Give the names asked for; else all fields, if they share their dimensions."""
    fields = _fields(dataset)
    if variable is None and len({dataset[name].dims for name in fields}) == 1:
        return fields
    return _named(dataset, variable)


def _named(dataset: xr.Dataset, variable: Variable) -> list[str]:
    """Give the names asked for, or the only one that is a field."""
    held = [str(name) for name in dataset.data_vars]
    if variable is None or isinstance(variable, str):
        return [one_of(_fields(dataset), variable, held, "field")]
    if not variable or len(set(variable)) < len(variable):
        raise DataError(f"variable={list(variable)!r}: names of fields, each once, are needed")
    return [one_of([], name, held, "field") for name in variable]


def _fields(dataset: xr.Dataset) -> list[str]:
    """Names of variables with numbers on at least two dimensions; not those that tell where others' cells end."""
    bounds = {array.attrs.get("bounds", array.encoding.get("bounds")) for array in dataset.variables.values()}
    found = {str(name): array for name, array in dataset.data_vars.items() if array.ndim >= 2}
    return [
        name
        for name, array in found.items()
        if array.dtype.kind in "biuf" and name not in bounds and not name.endswith(_BOUNDS)
    ]


@contextmanager
def _whole(path: Path, kind: str) -> Iterator[None]:
    """Turn what is raised on a file that is damaged or made up into a DataError."""
    try:
        yield
    except _BROKEN as error:
        if isinstance(error, KeyholeError):
            raise
        raise DataError(f"{path}: cannot be read as {kind} ({error})") from error


@contextmanager
def _store(path: Path) -> Iterator[Any]:
    """Give what Zarr opens: a folder, or what is in a zip."""
    from zarr.storage import ZipStore

    if path.is_dir():
        check_regular_within(path)
        yield path
        return
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: not a whole zip")
    store = ZipStore(path, mode="r")
    try:
        yield store
    finally:
        store.close()


def _check_axes(path: Path, store: Any, group: str | None) -> None:
    """Compare the declared sizes of a store's axes with memory before xarray opens it, as it loads them at once."""
    import zarr

    for name, array in zarr.open_group(store, path=group or "", mode="r", use_consolidated=False).arrays():
        if array.ndim == 1:
            check_fits(int(array.nbytes), f"{path}: {name}")


def _check_whole(path: Path) -> None:
    """Look for the end of a classic NetCDF file: where it was cut off, the NetCDF library may read zeros."""
    from scipy.io import netcdf_file

    with path.open("rb") as file:
        magic = file.read(4)
    if magic in (b"CDF\x01", b"CDF\x02"):
        netcdf_file(path, mmap=True).close()
    elif magic == b"CDF\x05":
        check_cdf5(path)


def _check_declared(path: Path, group: str | None, variable: Variable) -> None:
    """Compare declared sizes with memory before xarray opens the file, as it loads the axes at once."""
    import netCDF4

    asked = [variable] if isinstance(variable, str) else variable
    with netCDF4.Dataset(path) as file:
        part = file if group is None else file[group]
        for name, found in part.variables.items():
            if name in part.dimensions or (name in asked if asked is not None else found.ndim > 1):
                check_fits(math.prod(found.shape) * np.dtype(found.dtype).itemsize, f"{path}: {name}")


def _axis(array: xr.DataArray, dim: str) -> NDArray[Any]:
    axis = np.asarray(array[dim].values) if dim in array.coords else np.arange(array.sizes[dim])
    if axis.dtype.kind == "O":  # texts, dates of other calendars, tuples where dimensions were stacked
        return np.array([str(label) for label in axis.tolist()])
    return axis.astype(str) if axis.dtype.kind in "ST" else axis


def _check_plain_axes(array: xr.DataArray) -> None:
    """Refuse stacked dimensions: their coordinates are pairs, which neither plans nor files can hold."""
    for dim in array.dims:
        levels = getattr(array.indexes.get(dim), "levels", None)
        if levels is not None:
            names = ", ".join(str(name) for name in array.indexes[dim].names)
            raise DataError(
                f"{array.name}: dimension {str(dim)!r} is stacked (a MultiIndex of {names}); undo it first with "
                f".unstack({str(dim)!r}), or give up its coordinates with .reset_index({str(dim)!r})"
            )


def _time(array: xr.DataArray, sample: str) -> tuple[NDArray[Any] | None, str]:
    """Times of the samples, if they have some, and the calendar that they are written in.

    Dates are times wherever they stand, numbers and durations where the dimension is called so.
    """
    if sample not in array.coords:
        return None, "standard"
    values = np.asarray(array[sample].values)
    if values.dtype.kind == "M":
        return values.astype("datetime64[ns]"), "standard"
    if values.dtype.kind in "miuf" and _is_called_time(array[sample]):
        return values, "standard"
    calendar = getattr(values.flat[0], "calendar", None) if values.dtype == object and values.size else None
    return (None, "standard") if calendar is None else (from_calendar(values), str(calendar))


def _is_called_time(axis: xr.DataArray) -> bool:
    """Whether a coordinate is time by its name or, as the CF conventions have it, by its attributes."""
    said = axis.attrs
    return str(axis.name).lower() == "time" or said.get("axis") == "T" or said.get("standard_name") == "time"


def _attributes(array: xr.DataArray | xr.Dataset) -> dict[str, Any]:
    return {str(name): _plain(value) for name, value in array.attrs.items()}


def _plain(value: Any) -> Any:
    """Keep an attribute as JSON can hold it."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float) else str(value)
