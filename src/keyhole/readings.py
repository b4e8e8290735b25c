"""Readings: what the sites observed, brought into rank order and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.errors import PlanError

__all__ = ["TIME", "in_rank_order"]

TIME = "time"


def in_rank_order(
    readings: Any, names: Sequence[str], channels: int, time: Any = None
) -> tuple[NDArray[np.float64], NDArray[np.datetime64] | None]:
    """Give readings as ``(N, K, channels)`` in rank order, and their times if known.

    Parameters
    ----------
    readings
        ``(K,)``, ``(N, K)`` or ``(N, K, channels)`` in rank order; or a mapping, Series or frame labelled by site name, in
        any order, with the time in a column ``time`` or in a DatetimeIndex.
    names
        Names of the sites in rank order.
    channels
        Values that one site gives.
    time
        Time of each reading; outranks the one that the labels give.
    """
    if _is_labelled(readings):
        readings, found = _from_labels(readings, names)
        time = found if time is None else time
    values = _shaped(np.asarray(readings), len(names), channels)
    if not np.isfinite(values).all():
        raise PlanError(f"readings: {int((~np.isfinite(values)).sum())} of {values.size} are missing or infinite")
    return values, None if time is None else _times(time)


def _is_labelled(readings: Any) -> bool:
    return isinstance(readings, Mapping) or type(readings).__module__.startswith("pandas")


def _from_labels(readings: Any, names: Sequence[str]) -> tuple[NDArray[Any], Any]:
    import pandas as pd

    if isinstance(readings, Mapping):
        readings = pd.Series(dict(readings), dtype=float)
    frame = readings.to_frame().T if isinstance(readings, pd.Series) else readings
    time = frame.index if isinstance(frame.index, pd.DatetimeIndex) else None
    if TIME in frame.columns and TIME not in names:
        time, frame = frame[TIME], frame.drop(columns=TIME)
    _check_labels([str(column) for column in frame.columns], names)
    frame = frame.set_axis([str(column) for column in frame.columns], axis="columns")
    try:
        return frame[list(names)].to_numpy(dtype=float), time
    except (ValueError, TypeError) as error:
        raise PlanError(f"readings: a value is not a number ({error})") from error


def _check_labels(found: Sequence[str], names: Sequence[str]) -> None:
    repeated = sorted({name for name in found if found.count(name) > 1})
    if repeated:
        raise PlanError(f"readings: site {_some(repeated)} stands more than once")
    missing = [name for name in names if name not in set(found)]
    if missing:
        raise PlanError(f"readings: no column for site {_some(missing)}; {len(missing)} of {len(names)} are missing")
    unknown = [name for name in found if name not in set(names)]
    if unknown:
        raise PlanError(f"readings: {_some(unknown)} is not a site of this plan")


def _shaped(values: NDArray[Any], k: int, channels: int) -> NDArray[np.float64]:
    if values.dtype.kind not in "biuf":
        raise PlanError(f"readings: numbers are needed, not {values.dtype}")
    if channels == 1 and values.shape[-1:] == (k,) and values.ndim in (1, 2):
        return values.reshape(-1, k, 1).astype(float)
    if values.shape[-2:] == (k, channels) and values.ndim in (2, 3):
        return values.reshape(-1, k, channels).astype(float)
    takes = f"({k},) or (N, {k})" if channels == 1 else f"({k}, {channels}) or (N, {k}, {channels})"
    raise PlanError(f"readings: shape {values.shape}; this plan takes {takes} in rank order")


def _times(time: Any) -> NDArray[np.datetime64]:
    try:
        return np.atleast_1d(np.asarray(time, dtype="datetime64[ns]"))
    except (ValueError, TypeError) as error:
        raise PlanError(f"time: not dates ({error})") from error


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")
