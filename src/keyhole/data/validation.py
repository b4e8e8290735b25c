"""Checks of what signals are built from; each error says what is wrong and what to do."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.data.grid import Grid

__all__ = [
    "Cycle",
    "check_cycle",
    "check_dates",
    "check_shape",
    "check_time",
    "check_values",
    "columns_of",
    "floating",
]

Cycle = Literal["month"]


def floating(values: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """Give real numbers as floating ones, single where that holds them."""
    if values.dtype.kind not in "biuf":
        raise DataError(f"values are of type {values.dtype}; real numbers are needed")
    wide = values.dtype.itemsize > (4 if values.dtype.kind == "f" else 2)  # single precision holds 16-bit integers
    return np.ascontiguousarray(values, dtype=np.float64 if wide else np.float32)


def columns_of(columns: Any, n: int) -> NDArray[np.float64]:
    """Give columns of context as ``(n, c)``."""
    found = np.asarray(columns, dtype=np.float64)
    found = found[:, np.newaxis] if found.ndim == 1 else found
    if found.ndim != 2 or len(found) != n:
        raise DataError(f"context: columns of shape {found.shape} for {n} samples")
    if not np.isfinite(found).all():
        raise DataError("context: some values are missing or infinite")
    return found


def check_shape(values: NDArray[Any], grid: Grid) -> None:
    """Raise a DataError unless values are samples on the grid."""
    if values.size == 0:
        raise DataError(f"the data are empty: shape {values.shape}")
    if values.shape[2:] != grid.shape:
        raise DataError(f"values of shape {values.shape} do not end with the grid's shape {grid.shape}")
    if len(values) < 2:
        raise DataError("the data hold one sample; several are needed to learn from")


def check_values(values: NDArray[Any], inside: NDArray[np.bool_]) -> None:
    """Raise a DataError where values are infinite, all missing, or constant."""
    if np.isinf(values).any():
        raise DataError(f"the data hold {int(np.isinf(values).sum())} infinite values; replace them first")
    if not inside.any():
        raise DataError("no cell is inside: every cell is missing (NaN) in all samples, as if it were all land")
    where = values[:, :, inside]
    if not (np.nanmax(where, axis=0) > np.nanmin(where, axis=0)).any():
        raise DataError("the data are constant: every sample is the same, so there is nothing to rebuild")


def check_time(time: NDArray[Any], n: int) -> None:
    """Raise a DataError unless each sample has a time: a date, a duration or a number."""
    if len(time) != n:
        raise DataError(f"time has {len(time)} entries for {n} samples")
    if time.dtype.kind not in "mMiuf":
        raise DataError(f"time is of type {time.dtype}; dates or numbers are needed")
    absent = int((np.isnat(time) if time.dtype.kind in "mM" else ~np.isfinite(time)).sum())
    if absent:
        what = "missing (NaT)" if time.dtype.kind in "mM" else "missing or infinite"
        raise DataError(f"the time of {absent} sample{'s' * (absent > 1)} is {what}; leave such samples out")


def check_dates(time: NDArray[Any] | None, needs: str) -> None:
    """Raise a DataError unless there is a date for each sample; ``needs`` says what for."""
    if time is None:
        raise DataError(f"{needs} a time for each sample, and the data have none")
    if time.dtype.kind != "M":
        kind = "durations" if time.dtype.kind == "m" else "numbers"
        raise DataError(f"{needs} dates, and the time of the data is {kind} ({time[0]}, ...); give it as dates")


def check_cycle(cycle: Cycle | None, time: NDArray[Any] | None) -> None:
    """Raise an error unless anomalies of this kind can be had."""
    if cycle not in (None, "month"):
        raise SettingsError(f"cycle={cycle!r}: 'month' or None is needed")
    if cycle is not None:
        check_dates(time, "anomalies by month need")
