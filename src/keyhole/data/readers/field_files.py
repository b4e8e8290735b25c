"""Fields in NetCDF, Zarr and GRIB files, one or several, which are concatenated along the sample dimension."""

from __future__ import annotations

import glob
import math
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, StorageError
from keyhole.core.extras import check_extra
from keyhole.core.memory import check_fits
from keyhole.core.paths import check_regular, check_regular_within
from keyhole.data.readers.cdf5 import check_cdf5
from keyhole.data.readers.dimensions import scalar_time, time_dimension
from keyhole.data.readers.fields import At, Field, SampleDims, Variable, variable_names
from keyhole.data.readers.files import decoding
from keyhole.data.readers.stored import kept_open, stored_samples
from keyhole.data.samples import Samples
from keyhole.data.values import FEWEST_ROWS, fits

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "GRIB",
    "NETCDF",
    "ZARR",
    "Paths",
    "are_paths",
    "files_of_field",
    "is_zarr",
    "load_field",
    "named_paths",
    "open_fields",
    "read_fields",
]

NETCDF = (".nc", ".nc4")
ZARR = (".zarr", ".zarr.zip")
GRIB = (".grib", ".grib2", ".grb", ".grb2")
_ZARR_METADATA = ("zarr.json", ".zgroup", ".zmetadata")
_ENDINGS = (*NETCDF, *ZARR, *GRIB)

Paths = str | Path | Sequence[str | Path]
Admit = Callable[[Path, Sequence[str], int, int], None]


def are_paths(source: Any) -> bool:
    """Return whether an object is a list of paths, rather than the numbers of an array."""
    return isinstance(source, list | tuple) and bool(source) and all(isinstance(one, str | Path) for one in source)


def named_paths(source: Paths) -> list[Path]:
    """Return the paths that a path, a pattern or a list of these names.

    Parameters
    ----------
    source : str, Path or sequence of these
        A path that exists is no pattern, whatever characters it holds.

    Returns
    -------
    list of Path
        In the order given; the matches of a pattern (``"data/*.nc"``) are sorted.
    """
    if not isinstance(source, str | Path):
        return [path for one in source for path in named_paths(one)]
    if not glob.has_magic(str(source)) or Path(source).exists():
        return [Path(source)]
    # Path.glob refuses absolute patterns.
    return sorted(map(Path, glob.glob(str(source), recursive=True)))  # noqa: PTH207


def is_zarr(path: Path) -> bool:
    """Return whether a path is a Zarr store, by its ending or by the metadata in the folder."""
    return path.name.lower().endswith(ZARR) or any((path / name).is_file() for name in _ZARR_METADATA)


def files_of_field(folder: Path) -> list[Path]:
    """Return the NetCDF files and Zarr stores in a folder and its subfolders, sorted by path, without hidden ones."""
    found = []
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.suffix.lower() in NETCDF or is_zarr(path):
            found.append(path)
        elif path.is_dir() and not path.is_symlink():
            found += files_of_field(path)
    return sorted(found)


def read_fields(
    source: Paths, *, memory: int, variable: Variable = None, group: str | None = None, samples: SampleDims = None,
    at: At = None,
) -> Samples:  # fmt: skip
    """Read a field from a file, or from several that each hold some of its samples.

    Samples of several files are sorted by time if they have one, and otherwise stay in the order of the paths. All
    files need the same variables, grid, units and calendar, and no time may occur in two of them.

    Parameters
    ----------
    source : path, pattern, folder or sequence of these
        NetCDF files or Zarr stores, or one GRIB file.
    memory : int
        Bytes that work on the samples may take, beyond which they are read when they are used.
    variable, samples, at
        As for `read_dataset`; several variables must be named.
    group : str, optional
        Group of the NetCDF file or Zarr store.

    Returns
    -------
    Samples

    Raises
    ------
    DataError
        If a file is damaged, the files do not belong together, or their values exceed the free memory.
    StorageError
        If a file does not exist.
    """
    admitted: dict[Path, int] = {}

    def admit_sample(path: Path, names: Sequence[str], declared: int, sample: int) -> None:
        if not fits(FEWEST_ROWS * sample, memory):
            check_fits(declared, f"{path}: {', '.join(names)}")

    def admit(path: Path, names: Sequence[str], declared: int, sample: int) -> None:
        admitted[path] = declared
        first = next(iter(admitted))
        alone, together = f"{path}: {', '.join(names)}", f"{first} and the files joined to it up to {path}: all of this"
        check_fits(sum(admitted.values()), alone if path == first else together)

    options: dict[str, Any] = {"variable": variable, "group": group, "samples": samples, "at": at}
    with ExitStack() as stack:
        field = stack.enter_context(open_fields(source, **options, admit=admit_sample))
        if not fits(field.nbytes, memory):
            return kept_open(stored_samples(field, memory), stack)
    with ExitStack() as stack:
        field = stack.enter_context(open_fields(source, **options, admit=admit, whole=True))
        stack.enter_context(decoding(next(iter(admitted)), "cannot be read"))
        return field.load()


def load_field(path: Path) -> xr.DataArray:
    """Load the only variable of a NetCDF file, with its coordinates.

    Parameters
    ----------
    path : Path
        A NetCDF file of a mask, costs or weights.

    Returns
    -------
    DataArray

    Raises
    ------
    DataError
        If the file is damaged, or does not hold exactly one variable.
    StorageError
        If it does not exist.
    """
    check_regular(path)
    if not path.is_file():
        raise StorageError(f"{path}: no such file")
    with decoding(path, "cannot be read as NetCDF"), _dataset(path, None, None) as dataset:
        names = [str(name) for name in dataset.data_vars]
        if len(names) != 1:
            raise DataError(f"{path}: holds {', '.join(names) or 'no variable'}; one variable is needed")
        check_fits(int(dataset[names[0]].nbytes), f"{path}: {names[0]}")
        return dataset[names[0]].load()


@contextmanager
def open_fields(
    source: Paths, *, variable: Variable = None, group: str | None = None, samples: SampleDims = None, at: At = None,
    admit: Admit | None = None, whole: bool = False,
) -> Iterator[Field]:  # fmt: skip
    """Open a field in one or several files lazily.

    Parameters
    ----------
    source, variable, group, samples, at
        As for `read_fields`.
    admit : callable, optional
        Receives path, variables, and the declared bytes of all samples and of one, of each file before anything of
        their size is allocated; may raise.
    whole : bool
        Whether the variables are going to be read whole.

    Yields
    ------
    Field
    """
    paths = named_paths(source)
    if len(paths) == 1 and paths[0].is_dir() and not is_zarr(paths[0]):
        paths = files_of_field(paths[0])
    _check_paths(paths, source)
    several = len(paths) > 1
    loaded = variable if whole and not at else ()
    with ExitStack() as stack:
        parts: list[Field] = []
        for path in paths:
            with decoding(path, f"cannot be read as {_format(path)}"):
                dataset = stack.enter_context(_dataset(path, group, loaded))
                names = variable_names(dataset, variable)
                if admit is not None:
                    declared = _declared_bytes(dataset, names, at)
                    admit(path, names, declared, declared // _declared_samples(dataset[names[0]]))
                is_snapshot = several and _is_snapshot(dataset[names[0]], samples)
                part = Field.from_dataset(dataset, names, samples, at, is_snapshot=is_snapshot)
            parts.append(_alike(part, parts[0], path, paths[0]) if parts else part)
        yield _joined(paths, parts, named=samples is not None) if several else parts[0]


def _format(path: Path) -> str:
    """Format of a file by its extension, or of a folder."""
    name = path.name.lower()
    return "Zarr" if is_zarr(path) else "GRIB" if name.endswith(GRIB) else "NetCDF"


@contextmanager
def _dataset(path: Path, group: str | None, loaded: Variable) -> Iterator[xr.Dataset]:
    """Open a file lazily, after checks of what xarray would do at once: load the axes, and trust their lengths.

    ``loaded`` are the variables that are going to be read whole: None for all with at least two dimensions.
    """
    import xarray as xr

    kind = _format(path)
    options: dict[str, Any] = {} if group is None else {"group": group}
    with ExitStack() as stack:
        store: Any = path
        if kind == "Zarr":
            store = stack.enter_context(_zarr_store(path))
            _check_zarr_axes(path, store, group)
            options |= {"engine": "zarr", "consolidated": False}
        elif kind == "GRIB":
            check_extra("grib")
            options |= {"engine": "cfgrib"}
        else:
            _check_whole(path)
            _check_netcdf_sizes(path, group, loaded)
        yield stack.enter_context(xr.open_dataset(store, **options))


@contextmanager
def _zarr_store(path: Path) -> Iterator[Any]:
    """Store of a folder, or of a zip."""
    from zarr.storage import ZipStore

    if path.is_dir():
        check_regular_within(path)
        yield path
        return
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: not a whole zip")
    store = ZipStore(path.absolute(), mode="r")
    try:
        yield store
    finally:
        store.close()


def _check_zarr_axes(path: Path, store: Any, group: str | None) -> None:
    """Raise a DataError if an axis of a Zarr store declares more than the free memory."""
    import zarr

    for name, array in zarr.open_group(store, path=group or "", mode="r", use_consolidated=False).arrays():
        if array.ndim == 1:
            check_fits(int(array.nbytes), f"{path}: {name}")


def _check_netcdf_sizes(path: Path, group: str | None, loaded: Variable) -> None:
    """Raise a DataError if an axis of a NetCDF file, or a variable to be loaded, declares more than the free memory."""
    import netCDF4

    names = [loaded] if isinstance(loaded, str) else loaded
    with netCDF4.Dataset(path) as file:
        part = file if group is None else file[group]
        for name, found in part.variables.items():
            is_loaded = found.ndim > 1 if names is None else name in names
            if name in part.dimensions or is_loaded:
                check_fits(math.prod(found.shape) * np.dtype(found.dtype).itemsize, f"{path}: {name}")


def _check_whole(path: Path) -> None:
    """Raise an error for truncated files in the classic formats, of which the NetCDF library may read zeros."""
    from scipy.io import netcdf_file

    with path.open("rb") as file:
        magic = file.read(4)
    if magic in (b"CDF\x01", b"CDF\x02"):
        netcdf_file(path, mmap=True).close()
    elif magic == b"CDF\x05":
        check_cdf5(path)


def _declared_bytes(dataset: xr.Dataset, names: Sequence[str], at: At) -> int:
    """Bytes of all values once read; 0 with ``at``, which selects a part of them."""
    return 0 if at else sum(int(dataset[name].size) * max(dataset[name].dtype.itemsize, 4) for name in names)


def _declared_samples(array: xr.DataArray) -> int:
    """Number of samples, if these run along time, else along the first dimension."""
    return max(1, int(array.sizes[time_dimension(array) or array.dims[0]] if array.dims else 1))


def _is_snapshot(array: xr.DataArray, samples: SampleDims) -> bool:
    """Whether a variable is a single sample, with a scalar coordinate in place of the sample dimension."""
    if samples is None:
        return scalar_time(array) is not None
    return isinstance(samples, str) and samples in array.coords and array[samples].ndim == 0


@dataclass(frozen=True, eq=False)
class JoinedField(Field):
    """Fields of several files, concatenated; values are read when they are needed.

    Parameters
    ----------
    paths, parts : sequence of Path and of Field
        The files, and the field in each of them.
    order : ndarray of int
        Positions in the concatenated parts, in the order of the samples.
    """

    paths: Sequence[Path]
    parts: Sequence[Field]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)

    @property
    def chunk(self) -> int:
        """Largest number of samples that are stored together in a file."""
        return max(part.chunk for part in self.parts)

    @property
    def is_lazy(self) -> bool:
        """Whether values of any file are not in memory."""
        return any(part.is_lazy for part in self.parts)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return np.result_type(*(part.dtype for part in self.parts))

    def values(self, rows: slice) -> NDArray[Any]:
        """Read some of the samples; see `Field.values`."""
        positions = self.order[rows]
        starts = np.cumsum([0, *map(len, self.parts)])
        files = np.searchsorted(starts, positions, side="right") - 1
        values = np.empty((len(positions), len(self.arrays), *self.sites.shape), self.dtype)
        # Consecutive samples of one file are read together.
        breaks = np.flatnonzero((np.diff(positions) != 1) | (np.diff(files) != 0)) + 1
        for run in np.split(np.arange(len(positions)), breaks) if len(positions) else ():
            number = int(files[run[0]])
            first = int(positions[run[0]] - starts[number])
            try:
                values[run] = self.parts[number].values(slice(first, first + len(run)))
            except DataError as error:
                raise DataError(f"{self.paths[number]}: {error}") from error
        return values


def _check_paths(paths: Sequence[Path], source: Paths) -> None:
    """Raise an error unless all paths are different files of fields."""
    if not paths:
        raise StorageError(f"{source}: no NetCDF file is there, or matches")
    counts = Counter(paths)
    for path in paths:
        check_regular(path)
        if not path.name.lower().endswith(_ENDINGS) and not is_zarr(path):
            raise DataError(
                f"{path}: {', '.join(_ENDINGS)} are read together or some samples at a time, no other types"
            )
        if counts[path] > 1:
            raise DataError(f"{path}: named twice; its samples would count double")
        if not path.exists():
            raise StorageError(f"{path}: no such file")


def _joined(paths: Sequence[Path], parts: Sequence[Field], *, named: bool) -> JoinedField:
    """Concatenate fields along the sample dimension, sorted by time if they have one."""
    first = parts[0]
    counts = [len(part) for part in parts]
    order, time = np.arange(sum(counts)), None
    if first.time is not None:
        times = np.concatenate([part.time for part in parts if part.time is not None])
        order = np.argsort(times, kind="stable")
        time = times[order]
        _check_times_differ(time, np.repeat(np.arange(len(parts)), counts)[order], paths)
    elif not named:
        _check_sample_dimension(paths, parts)
    shared = [name for name in first.coordinates if all(name in part.coordinates for part in parts)]
    along = {name: np.concatenate([part.coordinates[name] for part in parts])[order] for name in shared}
    return JoinedField(first.arrays, first.sites, time, first.origin, False, along, paths, parts, order)


# What must be equal in files that are joined.
_ALIKE: dict[str, Callable[[Field], Any]] = {
    "variables": lambda field: ", ".join(str(array.name) for array in field.arrays),
    "dimensions": lambda field: ", ".join((field.origin.sample_dim, *field.sites.dims)),
    "grid shape": lambda field: " x ".join(map(str, field.sites.shape)),
    "calendar": lambda field: "none" if field.time is None else field.origin.calendar,
    "units": lambda field: ", ".join(str(array.attrs.get("units", "none")) for array in field.arrays),
    "units of the axes": lambda field: {d: a.get("units") for d, a in field.origin.axis_attributes.items()},
}


def _alike(part: Field, first: Field, path: Path, first_path: Path) -> Field:
    """Return a field with the sites of the first one, or raise a DataError if it cannot be concatenated to it."""
    for what, value in _ALIKE.items():
        own, other = value(part), value(first)
        if own != other:
            raise DataError(
                f"{path}: {what} {own}, where {first_path} has {other}; files that are joined need the same"
            )
    for name in (*first.sites.axes, *first.sites.auxiliary):
        known = name in part.sites.axes or name in part.sites.auxiliary
        if not known or not _is_close(part.sites.coordinate(name), first.sites.coordinate(name)):
            raise DataError(
                f"{path}: coordinates of {name} differ from those of {first_path}; bring both to one grid first"
            )
    return replace(part, sites=first.sites)


def _is_close(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether coordinates are equal up to single precision."""
    if one.dtype.kind in "biuf" and other.dtype.kind in "biuf":
        return bool(np.allclose(one, other, rtol=1e-6, atol=1e-9, equal_nan=True))
    return bool(np.array_equal(one, other))


def _check_times_differ(time: NDArray[Any], files: NDArray[np.int64], paths: Sequence[Path]) -> None:
    """Raise a DataError if two files have a sample of the same time."""
    twice = np.flatnonzero((time[1:] == time[:-1]) & (files[1:] != files[:-1]))
    if len(twice):
        one, other = (paths[int(files[position])] for position in (twice[0], twice[0] + 1))
        when = time[twice[0]].astype("datetime64[s]") if time.dtype.kind == "M" else time[twice[0]]
        raise DataError(f"{one} and {other} both hold the time {when}; leave one of them out")


def _check_sample_dimension(paths: Sequence[Path], parts: Sequence[Field]) -> None:
    """Raise a DataError if the assumed sample dimension has the same coordinates in two files without time."""
    dim = parts[0].origin.sample_dim
    axes = [np.asarray(part.arrays[0][dim].values) if dim in part.arrays[0].coords else None for part in parts]
    for path, axis in zip(paths[1:], axes[1:], strict=True):
        if axis is not None and axes[0] is not None and np.array_equal(axis, axes[0]):
            raise DataError(
                f"{paths[0]} and {path} have no time, and {dim} has the same coordinates in both; name the "
                f"dimension that samples run along (samples={dim!r}, --samples {dim}) if it is this one"
            )
