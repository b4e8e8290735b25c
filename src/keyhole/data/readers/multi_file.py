"""Readers of fields in several files, concatenated along the sample dimension."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, StorageError
from keyhole.core.memory import check_fits
from keyhole.data.readers.fields import At, Field, Variable, opened
from keyhole.data.samples import Samples

__all__ = ["NETCDF", "are_paths", "named_paths", "netcdf_files", "opened_fields", "read_fields", "read_netcdf_folder"]

NETCDF = (".nc", ".nc4")
_FIELDS = (*NETCDF, ".zarr", ".zarr.zip")

Paths = str | Path | Sequence[str | Path]


def are_paths(source: Any) -> bool:
    """Whether a list holds paths, and not the numbers of an array."""
    return isinstance(source, list | tuple) and bool(source) and all(isinstance(one, str | Path) for one in source)


def named_paths(source: Paths) -> list[Path]:
    """Give the paths that are named: as they are listed, and of a pattern (``"data/*.nc"``) all that match, sorted.

    A path that exists is no pattern, whatever characters it holds; a pattern that matches nothing names nothing.
    """
    if not isinstance(source, str | Path):
        return [path for one in source for path in named_paths(one)]
    if not glob.has_magic(str(source)) or Path(source).exists():
        return [Path(source)]
    return sorted(map(Path, glob.glob(str(source), recursive=True)))  # noqa: PTH207 (an absolute pattern is none of Path's)


def netcdf_files(folder: Path) -> list[Path]:
    """Give the NetCDF files of a folder and those below it, sorted by name; hidden files are left out."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in NETCDF and not path.name.startswith("."))


def read_netcdf_folder(folder: Path, **options: Any) -> Samples:
    """Read the NetCDF files of a folder as one field; see `read_fields`."""
    return read_fields(netcdf_files(folder), **options)


def read_fields(
    paths: Sequence[Path], *, variable: Variable = None, group: str | None = None, samples: str | None = None,
    at: At = None,
) -> Samples:  # fmt: skip
    """Read NetCDF files or Zarr stores that each hold some of the samples of one field.

    The samples are sorted by time where they have one, and else taken in the order of the paths. All must have the same
    variables, grid, units and calendar, and no time may stand in two of them.
    """
    sizes: list[int] = []

    def admit(declared: int) -> None:
        sizes.append(declared)
        check_fits(sum(sizes), f"{paths[0]} and the files joined to it up to {paths[len(sizes) - 1]}: all of this")

    with opened_fields(paths, variable=variable, group=group, samples=samples, at=at, admit=admit) as field:
        return Samples.build(field.values(slice(None)), field.grid, time=field.time, origin=field.origin)


@contextmanager
def opened_fields(
    source: Paths, *, variable: Variable = None, group: str | None = None, samples: str | None = None, at: At = None,
    admit: Callable[[int], None] | None = None,
) -> Iterator[Field]:  # fmt: skip
    """Open a field in one file or several, a folder or a pattern of them, to be read some samples at a time.

    ``admit`` is told the bytes that each file declares before anything of their size is made.
    """
    paths = named_paths(source)
    if len(paths) == 1 and paths[0].is_dir() and paths[0].suffix != ".zarr":
        paths = netcdf_files(paths[0])
    _check_fields(paths, source)
    options: Any = {"variable": variable, "group": group, "samples": samples, "at": at, "admit": admit}
    with ExitStack() as stack:
        parts = [stack.enter_context(opened(path, several=len(paths) > 1, **options)) for path in paths]
        yield parts[0] if len(parts) == 1 else _joined(paths, parts, named=samples is not None)


@dataclass(frozen=True, eq=False)
class JoinedField(Field):
    """Fields of several files as one, without reading a value before it is asked for.

    Parameters
    ----------
    paths, parts
        The files and what each of them holds.
    order
        Positions in the parts, one after the other, in the order of the samples.
    """

    paths: Sequence[Path]
    parts: Sequence[Field]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)

    @property
    def chunk(self) -> int:
        """How many samples lie together in a file, at most."""
        return max(part.chunk for part in self.parts)

    def values(self, rows: slice) -> NDArray[Any]:
        """Read some samples, ``(n, channels, *grid)``."""
        places = self.order[rows]
        starts = np.cumsum([0, *map(len, self.parts)])
        files = np.searchsorted(starts, places, side="right") - 1
        kind = np.result_type(*(array.dtype for part in self.parts for array in part.arrays))
        found = np.empty((len(places), len(self.arrays), *self.grid.shape), kind)
        breaks = np.flatnonzero((np.diff(places) != 1) | (np.diff(files) != 0)) + 1
        for run in np.split(np.arange(len(places)), breaks):
            if len(run):
                number = int(files[run[0]])
                first = int(places[run[0]] - starts[number])
                found[run] = self._read(number, slice(first, first + len(run)))
        return found

    def _read(self, number: int, rows: slice) -> NDArray[Any]:
        try:
            return self.parts[number].values(rows)
        except DataError as error:
            raise DataError(f"{self.paths[number]}: {error}") from error


def _check_fields(paths: Sequence[Path], source: Paths) -> None:
    if not paths:
        raise StorageError(f"{source}: no NetCDF file is there, or matches")
    for path in paths:
        if not path.name.lower().endswith(_FIELDS):
            raise DataError(f"{path}: {', '.join(_FIELDS)} are read together or some samples at a time, no other types")
    twice = [path for path in paths if paths.count(path) > 1] if len(paths) > len(set(paths)) else []
    if twice:
        raise DataError(f"{twice[0]}: named twice; its samples would count double")


def _joined(paths: Sequence[Path], parts: Sequence[Field], *, named: bool) -> JoinedField:
    for path, part in zip(paths[1:], parts[1:], strict=True):
        _check_alike(part, parts[0], f"{path}: ", str(paths[0]))
    first = parts[0]
    counts = [len(part) for part in parts]
    order = np.arange(sum(counts))
    times = [part.time for part in parts if part.time is not None]
    if times:
        time = np.concatenate(times)
        order = np.argsort(time, kind="stable")
        _check_once(time[order], np.repeat(np.arange(len(parts)), counts)[order], paths)
    elif not named:
        _check_samples(paths, parts)
    when = time[order] if times else None
    return JoinedField(first.arrays, first.grid, when, first.origin, paths, parts, order)


def _check_alike(part: Field, first: Field, where: str, other: str) -> None:
    """Refuse a part that cannot be joined to the first."""
    compared: dict[str, Callable[[Field], Any]] = {
        "variables": lambda field: [str(array.name) for array in field.arrays],
        "dimensions": lambda field: (field.origin.sample_dim, *field.grid.dims),
        "grid shape": lambda field: field.grid.shape,
        "calendar": lambda field: None if field.time is None else field.origin.calendar,
        "units": lambda field: [array.attrs.get("units") for array in field.arrays],
        "units of the axes": lambda field: {d: a.get("units") for d, a in field.origin.axis_attributes.items()},
    }
    for what, value in compared.items():
        mine, theirs = value(part), value(first)
        if mine != theirs:
            raise DataError(f"{where}{what} {_words(mine)}, where {other} has {_words(theirs)}; files that are joined "
                            "need the same")  # fmt: skip
    for dim, axis in first.grid.coordinates.items():
        if not _is_close(np.asarray(part.grid.coordinates[dim]), np.asarray(axis)):
            raise DataError(f"{where}coordinates of {dim} differ from those of {other}; bring both to one grid first")


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        return (" x " if all(isinstance(one, int) for one in value) else ", ").join(map(_words, value))
    return "none" if value is None else str(value)


def _is_close(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether coordinates are the same, but for single precision in one of them."""
    if one.dtype.kind in "biuf" and other.dtype.kind in "biuf":
        return bool(np.allclose(one, other, rtol=1e-6, atol=1e-9, equal_nan=True))
    return bool(np.array_equal(one, other))


def _check_once(time: NDArray[np.datetime64], files: NDArray[np.int64], paths: Sequence[Path]) -> None:
    twice = np.flatnonzero((time[1:] == time[:-1]) & (files[1:] != files[:-1]))
    if len(twice):
        one, other = (paths[int(files[place])] for place in (twice[0], twice[0] + 1))
        when = np.datetime_as_string(time[twice[0]], unit="s")
        raise DataError(f"{one} and {other} both hold the time {when}; leave one of them out")


def _check_samples(paths: Sequence[Path], parts: Sequence[Field]) -> None:
    """Refuse to guess that samples run along a dimension that has the same coordinates in two files."""
    dim = parts[0].origin.sample_dim
    axes = [np.asarray(part.arrays[0][dim].values) if dim in part.arrays[0].coords else None for part in parts]
    for place, axis in enumerate(axes[1:], start=1):
        if axis is not None and axes[0] is not None and np.array_equal(axis, axes[0]):
            raise DataError(
                f"{paths[0]} and {paths[place]} have no time, and {dim} has the same coordinates in both; name the "
                f"dimension that samples run along (samples={dim!r}, --samples {dim}) if it is this one"
            )
