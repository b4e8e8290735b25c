"""Anything to Signals: arrays, fields, tables, files. One door, `read`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from keyhole.core.errors import DataError, SettingsError, StorageError
from keyhole.core.paths import check_regular
from keyhole.data.alignment import is_a, on_grid
from keyhole.data.readers.arrays import read_array, read_npy, read_npz
from keyhole.data.readers.fields import read_dataarray, read_dataset, read_grib, read_netcdf, read_zarr
from keyhole.data.readers.images import IMAGES, Colour, image_files, read_images
from keyhole.data.readers.matlab import read_mat
from keyhole.data.readers.multi_file import (
    NETCDF,
    are_paths,
    named_paths,
    netcdf_files,
    read_fields,
    read_netcdf_folder,
)
from keyhole.data.readers.tables import read_csv, read_frame, read_parquet
from keyhole.data.samples import Samples
from keyhole.data.target import TargetKind

__all__ = ["FILES", "FOLDERS", "IN_FOLDERS", "named_paths", "read"]

_FIELD = ("variable", "samples", "at")
_TABLE = ("target", "target_kind")
Reader = tuple[Callable[..., Samples], tuple[str, ...]]

# What is read by a file's ending, and which options each takes.
FILES: dict[str, Reader] = {
    ".npy": (read_npy, ("channels",)),
    ".npz": (read_npz, ("variable", "channels")),
    ".mat": (read_mat, ("variable", "channels")),
    ".nc": (read_netcdf, (*_FIELD, "group")),
    ".nc4": (read_netcdf, (*_FIELD, "group")),
    ".grib": (read_grib, _FIELD),
    ".grib2": (read_grib, _FIELD),
    ".grb": (read_grib, _FIELD),
    ".grb2": (read_grib, _FIELD),
    ".csv": (read_csv, _TABLE),
    ".parquet": (read_parquet, _TABLE),
    ".zarr.zip": (read_zarr, (*_FIELD, "group")),
    ".zip": (read_images, ("size", "colour")),
}
# What is read from a folder, by its ending; any other holds images, or NetCDF files.
FOLDERS: dict[str, Reader] = {
    ".zarr": (read_zarr, (*_FIELD, "group")),
    "": (read_images, ("size", "colour")),
}
_NETCDF_FOLDER: Reader = (read_netcdf_folder, (*_FIELD, "group"))
# Endings of files that are read where their folder is.
IN_FOLDERS = (*IMAGES, *NETCDF)


def read(
    source: Any,
    *,
    variable: str | Sequence[str] | None = None,
    group: str | None = None,
    samples: str | None = None,
    at: Mapping[str, Any] | None = None,
    channels: int | None = None,
    size: int | tuple[int, int] | None = None,
    colour: Colour | None = None,
    target: str | None = None,
    target_kind: TargetKind | None = None,
    missing: Literal["error", "model"] = "error",
) -> Samples:
    """Read signals.

    Parameters
    ----------
    source
        An array ``(N, *grid)``, an xarray DataArray or Dataset, a pandas frame, or a path: .npy, .npz, MATLAB (version
        5), NetCDF, Zarr, GRIB (if cfgrib is there), CSV or Parquet, a folder or a zip of images. A folder of NetCDF
        files, a pattern (``"data/*.nc"``) or a list of paths is one field: the files are joined along the sample
        dimension, sorted by time. Cells that are NaN, or masked, in every sample are outside (land).
    variable
        Which variable or array of a file or Dataset that holds several; names of several fields on one grid make each
        a channel.
    group
        Which group of a NetCDF file or a Zarr store.
    samples
        The dimension of a field that samples run along, by default ``time`` or else the first. All others are space,
        unless it is known that they are not (members, lead times, a second axis of dates): these are refused, and may
        be samples, or one place of them taken. To name the samples is to take all others as space.
    at
        Which place to take of a field's other dimensions, the nearest: ``{"level": 500}``.
    channels
        The axis of an array that holds channels; None means that there is one channel and no axis for it.
    size, colour
        Rows and columns to make of each image, needed where they differ; ``"grey"`` or ``"rgb"``.
    target
        The column of a frame or CSV file that is to be told from the others instead of being one of them. Other signals
        get theirs by `Samples.with_target`.
    target_kind
        ``"class"`` or ``"number"``, where the guess of `Target.of` would be wrong.
    missing
        What to do with cells that are NaN in some samples and there in others (ice, gaps, failed pixels): refuse them,
        or ``"model"``: they count in neither loss nor score, and a site that is often missing is worth less.

    Examples
    --------
    >>> signals = read(np.arange(24.0).reshape(4, 2, 3))
    >>> len(signals), signals.channels, signals.grid.shape
    (4, 1, (2, 3))
    """
    if missing not in ("error", "model"):
        raise SettingsError(f"missing={missing!r}: 'error' or 'model' is needed")
    options = {
        "variable": variable, "group": group, "samples": samples, "at": at, "channels": channels, "size": size,
        "colour": colour, "target": target, "target_kind": target_kind,
    }  # fmt: skip
    if isinstance(source, Samples):
        _taken("signals that were read before", options, ())
        return _with_observable(source)
    signals = _read(source, options)
    if missing == "error":
        _check_gaps(signals, f"{source}: " if isinstance(source, str | Path) else "")
    return signals


def _read(source: Any, options: Mapping[str, Any]) -> Samples:
    if isinstance(source, str | Path) or are_paths(source):
        return _read_paths(source, options)
    if isinstance(source, np.ndarray | list | tuple):
        return read_array(source, **_taken("an array", options, ("channels",)))
    if is_a(source, "xarray", "Dataset"):
        return read_dataset(source, **_taken("a Dataset", options, _FIELD))
    if is_a(source, "xarray", "DataArray"):
        return read_dataarray(source, **_taken("a DataArray", options, ("samples", "at")))
    if is_a(source, "pandas", "DataFrame"):
        return read_frame(source, **_taken("a frame", options, _TABLE))
    raise DataError(f"cannot read a {type(source).__name__}; give an array, a DataArray, a frame or a path")


def _read_paths(source: str | Path | Sequence[str | Path], options: Mapping[str, Any]) -> Samples:
    paths = named_paths(source)
    if not paths:
        raise StorageError(f"{source}: no file matches")
    if len(paths) == 1:
        return _read_path(paths[0], options)
    return read_fields(paths, **_taken("several files", options, (*_FIELD, "group")))


def _read_path(path: Path, options: Mapping[str, Any]) -> Samples:
    reader, takes = _reader(path)
    what = f"{path.suffix} files" if path.is_file() else "a folder"
    try:
        return reader(path, **_taken(what, options, takes))
    except DataError as error:
        if str(path) in str(error):
            raise
        raise DataError(f"{path}: {error}") from error


def _reader(path: Path) -> Reader:
    check_regular(path)
    if path.is_dir():
        return _folder_reader(path)
    ending = next((end for end in FILES if path.name.lower().endswith(end)), None)
    if ending is None:
        raise DataError(f"{path}: files of type {path.suffix or 'none'} are not read; {', '.join(FILES)} are")
    if not path.is_file():
        raise StorageError(f"{path}: no such file")
    return FILES[ending]


def _folder_reader(path: Path) -> Reader:
    if path.suffix and path.suffix in FOLDERS:
        return FOLDERS[path.suffix]
    if not netcdf_files(path):
        return FOLDERS[""]
    if image_files(path):
        raise DataError(f"{path}: holds both images and NetCDF files; give the files that are meant ('{path}/*.nc')")
    return _NETCDF_FOLDER


def _check_gaps(signals: Samples, where: str) -> None:
    if signals.gaps is None:
        return
    partly, inside = int(signals.gaps.any(axis=(0, 1)).sum()), int(signals.grid.inside.sum())
    raise DataError(
        f"{where}{partly} of {inside} cells are missing (NaN) in some samples and there in others; read with "
        "missing='model' (--missing model) to work with what is there, fill the gaps, or make such cells NaN in all"
    )


def _with_observable(signals: Samples) -> Samples:
    """Give signals whose observable sites, which may be labelled, are aligned to the grid and checked."""
    observable, inside = on_grid(signals.observable, signals.grid, "observable"), signals.grid.inside
    if observable.shape != inside.shape or observable.dtype != bool:
        raise DataError(f"observable: a boolean array of shape {inside.shape} is needed")
    outside = int((observable & ~inside).sum())
    if outside:
        raise DataError(f"observable: {outside} sites are outside (land); only sites inside can be observed")
    return signals if observable is signals.observable else replace(signals, observable=observable)


def _taken(what: str, options: Mapping[str, Any], takes: Sequence[str]) -> dict[str, Any]:
    """Give the options that a reader takes; one that it does not take must not be given."""
    spare = [name for name, value in options.items() if value is not None and name not in takes]
    if spare:
        of_target = any(name.startswith("target") for name in spare)
        remedy = "; it is a column of a frame or CSV, all else takes Signals.with_target" if of_target else ""
        raise DataError(f"{', '.join(spare)} has no meaning for {what}{remedy}")
    return {name: options[name] for name in takes}
