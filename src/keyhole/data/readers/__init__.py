"""`read`: samples from arrays, gridded fields, tables and files, chosen by type or file extension."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from keyhole.core.errors import DataError, KeyholeWarning, SettingsError, StorageError
from keyhole.core.memory import format_size, memory_limit
from keyhole.core.paths import check_regular
from keyhole.core.text import listed
from keyhole.data.alignment import align
from keyhole.data.labels import is_a, is_labelled
from keyhole.data.readers.arrays import read_array, read_npy, read_npz
from keyhole.data.readers.field_files import (
    GRIB,
    NETCDF,
    are_paths,
    files_of_field,
    is_zarr,
    named_paths,
    read_fields,
)
from keyhole.data.readers.fields import read_dataarray, read_dataset
from keyhole.data.readers.images import IMAGES, Colour, image_files, read_images
from keyhole.data.readers.matlab import read_mat
from keyhole.data.readers.remote import is_remote, read_remote
from keyhole.data.readers.tables import load_csv, read_csv, read_frame, read_parquet
from keyhole.data.samples import Samples
from keyhole.data.table_columns import TableColumns
from keyhole.data.target import TargetKind
from keyhole.data.values import fits

__all__ = ["FILES", "IN_FOLDERS", "named_paths", "read"]

_FIELD = ("variable", "samples", "at", "memory")
_IMAGES = ("size", "colour")
_TABLE = ("target", "target_kind", "groups", "columns")
_OF_ANY = ("memory", "groups")  # what applies to any source, whether or not its reader takes it
_SHOWN = 5  # columns that a message names
Reader = tuple[Callable[..., Samples], tuple[str, ...]]

# Reader of each file extension, and the options it takes.
FILES: dict[str, Reader] = {
    ".npy": (read_npy, ("channels",)),
    ".npz": (read_npz, ("variable", "channels")),
    ".mat": (read_mat, ("variable", "channels")),
    **dict.fromkeys(NETCDF, (read_fields, (*_FIELD, "group"))),
    **dict.fromkeys(GRIB, (read_fields, _FIELD)),
    ".csv": (read_csv, _TABLE),
    ".parquet": (read_parquet, _TABLE),
    ".zarr.zip": (read_fields, (*_FIELD, "group")),
    ".zip": (read_images, _IMAGES),
}
# Extensions of files that are read as part of a folder.
IN_FOLDERS = (*IMAGES, *NETCDF)


def read(
    source: Any,
    *,
    variable: str | Sequence[str] | None = None,
    group: str | None = None,
    samples: str | Sequence[str] | None = None,
    at: Mapping[str, Any] | None = None,
    channels: int | None = None,
    size: int | tuple[int, int] | None = None,
    colour: Colour | None = None,
    target: str | None = None,
    target_kind: TargetKind | None = None,
    groups: Any = None,
    missing: Literal["error", "model"] = "error",
    coordinates: Any = None,
    graph: Any = None,
    vertical_scale: float | None = None,
    memory: str | int | None = None,
    columns: TableColumns | None = None,
) -> Samples:
    """Read samples of a field from an array, a labelled object or a file.

    Parameters
    ----------
    source : array-like, DataArray, Dataset, DataFrame, path, list of paths or Samples
        An array ``(N, *grid)``, an xarray DataArray or Dataset, a DataFrame (of pandas or polars), or a path: .npy,
        .npz, MATLAB (version 5), NetCDF, Zarr, GRIB, CSV, Parquet, a folder or a zip of images. A folder of NetCDF
        files, a pattern (``"data/*.nc"``) or a list of paths is read as one field: files are concatenated along the
        sample dimension and sorted by time. Sites that are NaN, or masked, in every sample are not valid (land).
    variable : str or sequence of str, optional
        The variable of a file or Dataset that holds several. Several variables on one grid become channels.
    group : str, optional
        The group of a NetCDF file or Zarr store.
    samples : str or sequence of str, optional
        The dimension along which samples are taken, or several (``("member", "time")``); by default that of time
        (``time``, or the only one with dates), else the first. All others are spatial.
        Dimensions known not to be spatial (ensemble members, lead times, a second date axis) are refused unless they
        are the sample dimension, a single position is selected by ``at``, or ``samples`` is given.
    at : mapping, optional
        Positions of other dimensions to select, by nearest coordinate: ``{"level": 500}``.
    channels : int, optional
        The axis of an array that holds channels; None: one channel, without an axis.
    size : int or (int, int), optional
        Rows and columns to which images are resized; required if their sizes differ.
    colour : {"grey", "rgb"}, optional
        Colour mode of images.
    target : str, optional
        The column of a DataFrame or CSV file to predict from the others. For other data use `Samples.with_target`.
    target_kind : {"class", "number"}, optional
        Classification or regression; None: inferred by `Target.of`.
    groups : str or array-like of shape (N,), optional
        Which samples belong together, such as those of one subject: a column of a table, which is then no site, a
        coordinate along the samples (``"member"``), or labels. See `Samples.with_groups`.
    missing : {"error", "model"}
        What to do with sites that are NaN in some samples only (sea ice, failed pixels). ``"error"`` refuses them.
        ``"model"`` accepts them: missing values are imputed for fitting, count in neither loss nor score, and a low
        availability of a site lowers its value as a sensor.
    coordinates : DataFrame, mapping of columns or path of a CSV file, optional
        Positions of the columns of a table, such as stations: a row for each by name, with ``lat`` and ``lon`` or ``x``
        and ``y``. See `Samples.with_coordinates`.
    graph : sparse or dense array, networkx graph, frame or list of edges, path of a CSV file, optional
        A graph whose nodes are the sites; distances are then along its edges. See `Samples.with_graph`.
    vertical_scale : float, optional
        Kilometres of horizontal distance (units of the horizontal coordinates, without latitude and longitude) that
        count like one unit of the vertical coordinate. None: distances are horizontal.
    memory : str or int, optional
        Bytes that work on the data may take, such as ``"2GiB"``; None: half of what is free. A field that takes more
        than a third of it stays in its file (or in its dask array), and is read a few samples at a time.

    columns : TableColumns, optional
        How the columns of a table are encoded, such as ``plan.origin.columns``, so that words of new data are those of
        the plan; None: by what they hold.

    Returns
    -------
    Samples

    Raises
    ------
    DataError
        If the data cannot be read, have the wrong shape, or an option does not apply to this kind of source.
    StorageError
        If a file does not exist.

    Examples
    --------
    >>> samples = read(np.arange(24.0).reshape(4, 2, 3))
    >>> len(samples), samples.channels, samples.sites.shape
    (4, 1, (2, 3))
    """
    if missing not in ("error", "model"):
        raise SettingsError(f"missing={missing!r}: 'error' or 'model' is needed")
    options = {
        "variable": variable, "group": group, "samples": samples, "at": at, "channels": channels, "size": size,
        "colour": colour, "target": target, "target_kind": target_kind, "columns": columns,
    }  # fmt: skip
    limit = memory_limit(memory)
    if isinstance(source, Samples):
        geometry = {"coordinates": coordinates, "graph": graph, "vertical_scale": vertical_scale}
        if memory is not None:
            raise DataError("memory does not apply to samples that were already read; give it to keyhole.read")
        _applicable("samples that were already read", {**options, **geometry}, ())
        checked = _with_observable(source)
        return checked if groups is None else checked.with_groups(groups)
    column = groups if isinstance(groups, str) else None
    read_samples = _read(source, {**options, "groups": column, "memory": limit})
    if memory is not None:
        _check_limit(read_samples, limit)
    read_samples = read_samples if groups is None else read_samples.with_groups(groups)
    if coordinates is not None:
        table = load_csv(Path(coordinates), whole=True) if isinstance(coordinates, str | Path) else coordinates
        read_samples = read_samples.with_coordinates(table)
    if vertical_scale is not None:
        read_samples = read_samples.with_vertical_scale(vertical_scale)
    if graph is not None:
        edges = load_csv(Path(graph), whole=True) if isinstance(graph, str | Path) else graph
        read_samples = read_samples.with_graph(edges)
    if missing == "error":
        _check_complete(read_samples, f"{source}: " if isinstance(source, str | Path) else "")
    return read_samples


def _check_limit(samples: Samples, limit: int) -> None:
    """Warn if a memory limit that was asked for does not hold, since the data are in memory."""
    if samples.memory is None and not fits(samples.data.nbytes, limit):
        warnings.warn(
            f"memory: the data, {format_size(samples.data.nbytes)}, are in memory, where methods need more than the "
            f"{format_size(limit)} that are allowed; only NetCDF, Zarr and dask-backed DataArrays are read in parts",
            KeyholeWarning, stacklevel=3,
        )  # fmt: skip


def _read(source: Any, options: Mapping[str, Any]) -> Samples:
    """Read by the type of the source."""
    if is_remote(source):
        return read_remote(source, **_applicable("data at an address", options, (*_FIELD, "group")))
    if isinstance(source, str | Path) or are_paths(source):
        return _read_paths(source, options)
    if isinstance(source, np.ndarray | list | tuple):
        return read_array(source, **_applicable("an array", options, ("channels",)))
    if is_a(source, "xarray", "Dataset"):
        return read_dataset(source, **_applicable("a Dataset", options, _FIELD))
    if is_a(source, "xarray", "DataArray"):
        return read_dataarray(source, **_applicable("a DataArray", options, ("samples", "at", "memory")))
    if is_a(source, "pandas", "DataFrame") or is_a(source, "polars", "DataFrame"):
        source = source if is_a(source, "pandas", "DataFrame") else source.to_pandas()
        return read_frame(source, **_applicable("a DataFrame", options, _TABLE))
    if is_a(source, "dask.array", "Array"):
        raise DataError("cannot read a dask array without names; give xarray.DataArray(array, dims=('time', ...))")
    raise DataError(f"cannot read a {type(source).__name__}; give an array, a DataArray, a DataFrame or a path")


def _read_paths(source: str | Path | Sequence[str | Path], options: Mapping[str, Any]) -> Samples:
    """Read one file, or several that are one field."""
    paths = named_paths(source)
    if not paths:
        raise StorageError(f"{source}: no file matches")
    if len(paths) == 1:
        return _read_path(paths[0], options)
    return read_fields(paths, **_applicable("several files", options, (*_FIELD, "group")))


def _read_path(path: Path, options: Mapping[str, Any]) -> Samples:
    """Read one file or folder; errors name it."""
    check_regular(path)
    reader, takes = _folder_reader(path) if path.is_dir() else _file_reader(path)
    what = f"{path.suffix} files" if path.is_file() else "a folder"
    try:
        return reader(path, **_applicable(what, options, takes))
    except DataError as error:
        if str(path) in str(error):
            raise
        raise DataError(f"{path}: {error}") from error


def _file_reader(path: Path) -> Reader:
    """Reader of a file by its extension, and the options it takes."""
    ending = next((end for end in FILES if path.name.lower().endswith(end)), None)
    if ending is None:
        raise DataError(f"{path}: files of type {path.suffix or 'none'} are not read; {', '.join(FILES)} are")
    if not path.is_file():
        raise StorageError(f"{path}: no such file")
    return FILES[ending]


def _folder_reader(path: Path) -> Reader:
    """Reader of a folder by what it holds, fields or images, and the options it takes."""
    if not is_zarr(path) and not files_of_field(path):
        return read_images, _IMAGES
    if not is_zarr(path) and image_files(path):
        raise DataError(f"{path}: holds both images and fields; give the files that are meant ('{path}/*.nc')")
    return read_fields, (*_FIELD, "group")


def _check_complete(samples: Samples, where: str) -> None:
    """Raise a DataError if values are missing."""
    if samples.missing is None:
        return
    partly = np.flatnonzero(samples.missing.any(axis=(0, 1)))
    remedy = "read with missing='model' (--missing model) to impute them"
    if samples.origin.columns is not None:
        columns = [
            samples.origin.columns.columns[at] for at in samples.origin.columns.of_sites(samples.sites.index[partly])
        ]
        names = listed([repr(column.name) for column in columns], _SHOWN)
        raise DataError(f"{where}column {names}: missing values (NaN or empty) in some samples; {remedy}")
    raise DataError(
        f"{where}{len(partly)} of {len(samples.sites)} sites have missing values (NaN) in some samples; {remedy}, "
        "or set such sites to NaN in all samples"
    )


def _with_observable(samples: Samples) -> Samples:
    """Align the observable sites, which may be labelled or of the shape of the data, and check them."""
    given = samples.observable
    if getattr(given, "shape", None) == (len(samples.sites),) and given.dtype == bool and not is_labelled(given):
        return samples
    observable = align(given, samples.candidates, "observable")
    if observable.dtype != bool:
        raise DataError("observable: a boolean array is needed")
    return replace(samples, observable=observable)


def _applicable(what: str, options: Mapping[str, Any], takes: Sequence[str]) -> dict[str, Any]:
    """Select the options that a reader takes; raise a DataError if another one is given."""
    unused = [name for name, value in options.items() if value is not None and name not in (*takes, *_OF_ANY)]
    if unused:
        of_target = any(name.startswith("target") for name in unused)
        remedy = "; it names a column of a table, other data take Samples.with_target" if of_target else ""
        raise DataError(f"{', '.join(unused)} does not apply to {what}{remedy}")
    return {name: options[name] for name in takes}
