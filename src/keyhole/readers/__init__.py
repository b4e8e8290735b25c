"""Anything to Signals: arrays, fields, tables, files. One door, `read`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from keyhole.errors import DataError, StorageError
from keyhole.readers.arrays import read_array, read_npy, read_npz
from keyhole.readers.fields import read_dataarray, read_dataset, read_netcdf
from keyhole.readers.tables import read_csv, read_frame
from keyhole.signals import Signals
from keyhole.target import TargetKind

__all__ = ["FILES", "read"]

# What is read by a file's ending, and which options each takes.
FILES: dict[str, tuple[Callable[..., Signals], tuple[str, ...]]] = {
    ".npy": (read_npy, ("channels",)),
    ".npz": (read_npz, ("variable", "channels")),
    ".nc": (read_netcdf, ("variable",)),
    ".nc4": (read_netcdf, ("variable",)),
    ".csv": (read_csv, ("target", "target_kind")),
}


def read(
    source: Any,
    *,
    variable: str | None = None,
    channels: int | None = None,
    target: str | None = None,
    target_kind: TargetKind | None = None,
) -> Signals:
    """Read signals.

    Parameters
    ----------
    source
        An array ``(N, *grid)``, an xarray DataArray or Dataset, a pandas frame, or the path of a .npy, .npz, NetCDF or
        CSV file. Cells that are NaN, or masked, in every sample are outside (land).
    variable
        Which variable or array of a file or Dataset that holds several.
    channels
        The axis of an array that holds channels; None means that there is one channel and no axis for it.
    target
        The column of a frame or CSV file that is to be told from the others instead of being one of them. Other signals
        get theirs by `Signals.with_target`.
    target_kind
        ``"class"`` or ``"number"``, where the guess of `Target.of` would be wrong.

    Examples
    --------
    >>> signals = read(np.arange(24.0).reshape(4, 2, 3))
    >>> len(signals), signals.channels, signals.grid.shape
    (4, 1, (2, 3))
    """
    told = {"target": target, "target_kind": target_kind}
    if isinstance(source, Signals):
        _refuse("signals that were read before", variable=variable, channels=channels, **told)
        _check_observable(source)
        return source
    if isinstance(source, str | Path):
        return _read_file(Path(source), variable=variable, channels=channels, **told)
    if isinstance(source, np.ndarray | list | tuple):
        _refuse("an array", variable=variable, **told)
        return read_array(source, channels=channels)
    if _is_a(source, "xarray", "Dataset"):
        _refuse("a Dataset", channels=channels, **told)
        return read_dataset(source, variable=variable)
    if _is_a(source, "xarray", "DataArray"):
        _refuse("a DataArray", variable=variable, channels=channels, **told)
        return read_dataarray(source)
    if _is_a(source, "pandas", "DataFrame"):
        _refuse("a frame", variable=variable, channels=channels)
        return read_frame(source, target=target, target_kind=target_kind)
    raise DataError(f"cannot read a {type(source).__name__}; give an array, a DataArray, a frame or a path")


def _read_file(path: Path, **options: Any) -> Signals:
    if path.suffix not in FILES:
        raise DataError(f"{path}: files of type {path.suffix or 'none'} are not read; {', '.join(FILES)} are")
    if not path.is_file():
        raise StorageError(f"{path}: no such file")
    reader, takes = FILES[path.suffix]
    _refuse(f"{path.suffix} files", **{name: value for name, value in options.items() if name not in takes})
    try:
        return reader(path, **{name: options[name] for name in takes})
    except DataError as error:
        if str(path) in str(error):
            raise
        raise DataError(f"{path}: {error}") from error


def _check_observable(signals: Signals) -> None:
    observable, inside = signals.observable, signals.grid.inside
    if observable.shape != inside.shape or observable.dtype != bool:
        raise DataError(f"observable: a boolean array of shape {inside.shape} is needed")
    outside = int((observable & ~inside).sum())
    if outside:
        raise DataError(f"observable: {outside} sites are outside (land); only sites inside can be observed")


def _is_a(source: Any, module: str, name: str) -> bool:
    """Whether ``source`` is of a class whose module need not be loaded to know: whoever made it has done so."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(source, kind)


def _refuse(what: str, **options: Any) -> None:
    spare = [name for name, value in options.items() if value is not None]
    if spare:
        of_target = any(name.startswith("target") for name in spare)
        remedy = "; it is a column of a frame or CSV, all else takes Signals.with_target" if of_target else ""
        raise DataError(f"{', '.join(spare)} has no meaning for {what}{remedy}")
