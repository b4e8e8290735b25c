"""Readings in, rebuilt signals and predictions out: the files of the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keyhole.errors import DataError, StorageError
from keyhole.export import as_array, as_field, as_frame
from keyhole.paths import check_regular, real_path
from keyhole.plan import Plan
from keyhole.readers.arrays import load_npy
from keyhole.readers.tables import TIME, load_csv
from keyhole.reconstructors.base import unpack
from keyhole.storage import replacing

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_writable", "make_folder", "predictions", "read_readings", "write_predictions", "write_rebuilt"]


def read_readings(path: Path) -> Any:
    """Read a CSV of labelled readings (an optional time column, then site names) or a .npy in rank order."""
    check_regular(path)
    if not path.is_file():
        raise StorageError(f"{path}: no such file")
    if path.suffix == ".npy":
        return load_npy(path)
    if path.suffix == ".csv":
        frame = load_csv(path, whole=True)
        if frame.empty:
            raise DataError(f"{path}: holds no readings, only a header")
        return frame
    raise DataError(f"{path}: readings are .csv or .npy, not {path.suffix or 'without a suffix'}")


def write_rebuilt(
    plan: Plan, readings: Any, path: Path, when: Sequence[str] | None = None, interval: float | None = None
) -> tuple[int, ...]:
    """Rebuild and write NetCDF, .npy or CSV, by the path's suffix; gives the shape. ``when`` is for bare readings.

    With an interval, the ends of the band are written as well, as further variables of a NetCDF file.
    """
    if path.suffix not in (".nc", ".npy", ".csv"):
        raise DataError(f"{path}: rebuilt signals go to .nc, .npy or .csv, not {path.suffix or 'without a suffix'}")
    if interval is not None and path.suffix != ".nc":
        raise DataError(f"{path}: a band is written beside what is rebuilt, as .nc alone can hold it")
    values, time = plan.in_rank_order(readings, when)
    rebuilt = plan.rebuild(values, time)
    if path.suffix == ".csv" and rebuilt.shape[1] > 1:
        raise DataError(f"{path}: several channels do not fit a table; write .nc or .npy")
    array = as_array(rebuilt, plan.origin)
    if path.suffix == ".nc":
        content = _netcdf(plan, rebuilt, time, None if interval is None else plan.half_width(values, time, interval))
    with replacing(path) as file:
        if path.suffix == ".nc":
            file.write(content)
        elif path.suffix == ".npy":
            np.save(file, array)
        else:
            file.write(as_frame(rebuilt, plan.grid, time).to_csv(index=time is not None).encode())
    return rebuilt.shape if path.suffix == ".nc" and rebuilt.shape[1] > 1 else array.shape


def _netcdf(plan: Plan, rebuilt: Any, time: Any, half: Any) -> bytes:
    """What is rebuilt, with the ends of a band of such half width beside it if there is one."""
    field = as_field(rebuilt, plan.grid, plan.origin, time)
    whole = field if hasattr(field, "data_vars") else field.to_dataset(name=field.name)
    if half is not None:
        wide = unpack(half, rebuilt.shape[1], plan.grid)
        for end, values in (("low", rebuilt - wide), ("high", rebuilt + wide)):
            part = as_field(values, plan.grid, plan.origin, time)
            part = part if hasattr(part, "data_vars") else part.to_dataset(name=part.name)
            whole = whole.assign({f"{name}_{end}": array for name, array in part.data_vars.items()})
    if np.issubdtype(whole[plan.origin.sample_dim].dtype, np.datetime64) or plan.origin.calendar != "standard":
        for said in ("units", "calendar"):  # xarray writes its own
            whole[plan.origin.sample_dim].attrs.pop(said, None)
    for part in (whole, *whole.coords.values(), *whole.data_vars.values()):
        part.attrs = {name: _attribute(value) for name, value in part.attrs.items()}
    return bytes(whole.to_netcdf(engine="h5netcdf"))


def predictions(plan: Plan, readings: Any, when: Sequence[str] | None = None) -> pd.DataFrame:
    """Tell a plan's target as a table: the time if known, the target, and the probability of a class."""
    import pandas as pd

    predictor = plan.need_predictor()
    values, time = plan.in_rank_order(readings, when)
    scores = plan.tell(values, time)
    columns: dict[str, Any] = {} if time is None else {TIME: time}
    columns[predictor.target] = predictor.answer(scores)
    if predictor.is_class:
        columns[f"{predictor.target} probability"] = scores.max(axis=1)
    return pd.DataFrame(columns)


def write_predictions(told: pd.DataFrame, path: Path) -> None:
    """Write predictions as CSV."""
    if path.suffix != ".csv":
        raise DataError(f"{path}: predictions go to .csv, not {path.suffix or 'without a suffix'}")
    with replacing(path) as file:
        file.write(told.to_csv(index=False).encode())


def check_writable(path: Path) -> None:
    """Raise a StorageError unless a file can be made at ``path``."""
    folder = real_path(path).parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise StorageError(f"{folder}: no such folder")
    if path.is_dir():
        raise StorageError(f"{path}: is a folder; name a file")
    if path.exists() and not path.is_file():
        raise StorageError(f"{path}: is not a file; name one")
    if not os.access(folder, os.W_OK):
        raise StorageError(f"{folder}: cannot be written to")


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made: {error.strerror or error}") from error


def _attribute(value: Any) -> Any:
    """Give an attribute as NetCDF can hold it: text, numbers, or a list of one of these."""
    if isinstance(value, list):
        of_text = any(isinstance(one, str | list) for one in value)
        return [str(one) if of_text else _attribute(one) for one in value]
    return int(value) if isinstance(value, bool) else value
