"""Readings: what the sites observed, brought into rank order and checked."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.errors import PlanError
from keyhole.origin import Clock
from keyhole.readers.tables import TIME, parse_dates

__all__ = ["in_rank_order"]


def in_rank_order(
    readings: Any, names: Sequence[str], channels: int, time: Any = None, *, clock: Clock = "dates"
) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
    """Give readings as ``(N, K, channels)`` in rank order, NaN where they are missing, and their times if known.

    Parameters
    ----------
    readings
        ``(K,)``, ``(N, K)`` or ``(N, K, channels)`` in rank order; or a mapping, Series or frame labelled by site name,
        in any order, with the time in a column ``time`` or in an index of dates or called ``time``; labels go with one
        channel alone.
    names
        Names of the sites in rank order.
    channels
        Values that one site gives.
    time
        Time of each reading; outranks the one that the labels give.
    clock
        What times are: dates, numbers or durations, as in the data that the plan was made of.
    """
    if _is_labelled(readings):
        if channels > 1:
            raise PlanError(f"readings: labelled readings hold one value a site; {_takes(len(names), channels)}")
        readings, found = _from_labels(readings, names)
        time = found if time is None else time
    values = _shaped(_plain(readings), len(names), channels)
    if len(values) == 0:
        raise PlanError("readings: there are none; give one row at least")
    if np.isinf(values).any():
        raise PlanError(f"readings: {int(np.isinf(values).sum())} of {values.size} are infinite")
    return values, None if time is None else _times(time, len(values), clock)


def _is_labelled(readings: Any) -> bool:
    if isinstance(readings, Mapping):
        return True
    pandas = sys.modules.get("pandas")  # whoever made a frame has loaded it
    return pandas is not None and isinstance(readings, pandas.Series | pandas.DataFrame)


def _plain(readings: Any) -> NDArray[Any]:
    if np.ma.isMaskedArray(readings):
        return np.ma.filled(readings.astype(float), np.nan)
    try:
        return np.asarray(readings)
    except ValueError as error:
        raise PlanError(f"readings: rows of different length ({error})") from error


def _from_labels(readings: Any, names: Sequence[str]) -> tuple[NDArray[Any], Any]:
    import pandas as pd

    if isinstance(readings, Mapping):
        try:
            readings = pd.DataFrame({name: np.atleast_1d(values) for name, values in readings.items()})
        except ValueError as error:
            raise PlanError(f"readings: rows of different length ({error})") from error
    frame = readings.to_frame().T if isinstance(readings, pd.Series) else readings
    time: Any = frame.index if isinstance(frame.index, pd.DatetimeIndex) or frame.index.name == TIME else None
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
    raise PlanError(f"readings: shape {values.shape}; {_takes(k, channels)}")


def _takes(k: int, channels: int) -> str:
    shapes = f"({k},) or (N, {k})" if channels == 1 else f"({k}, {channels}) or (N, {k}, {channels})"
    return f"this plan takes {shapes} in rank order"


def _times(time: Any, n: int, clock: Clock) -> NDArray[Any]:
    try:
        when = parse_dates(time) if clock == "dates" else _parse_numbers(time, clock)
    except (ValueError, TypeError) as error:
        remedy = "write them as 2023-02-01" if clock == "dates" else f"the time of this plan's data is {clock}"
        raise PlanError(f"time: not {clock} ({error}); {remedy}") from error
    if len(when) != n:
        raise PlanError(f"time has {len(when)} entries for {n} readings")
    missing = np.isnat(when) if when.dtype.kind in "mM" else ~np.isfinite(when)
    if missing.any():
        raise PlanError(f"time: {int(missing.sum())} of {n} is missing; each reading needs its own")
    return when


def _parse_numbers(time: Any, clock: Clock) -> NDArray[Any]:
    """Turn what is given into numbers or durations; a ValueError or TypeError where it is neither."""
    found = np.atleast_1d(np.asarray(time))
    if found.ndim > 1 or found.dtype.kind not in ("iufUSO" if clock == "numbers" else "mUSO"):
        raise TypeError(f"{found.dtype} of shape {found.shape}")
    if clock == "numbers":
        return found if found.dtype.kind in "iuf" else found.astype(np.float64)
    import pandas as pd

    return pd.to_timedelta(found).to_numpy()


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")
