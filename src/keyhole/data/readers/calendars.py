"""Dates of other calendars (noleap, 360_day, ...), as climate models write them, to numpy's and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["from_calendar", "to_calendar"]


def from_calendar(dates: NDArray[Any]) -> NDArray[np.datetime64]:
    """Give cftime dates as numpy's, year and month as they are; a day that the month has not here is its last."""
    return np.array([_plain(date) for date in dates.ravel()], "datetime64[ns]")


def to_calendar(time: NDArray[Any], calendar: str) -> Any:
    """Give times as dates of a calendar; a day that the month has not there is its last."""
    import cftime

    if calendar == "standard":
        return time
    return np.array([_written(stamp, calendar, cftime) for stamp in time.astype("datetime64[s]").tolist()], object)


def _plain(date: Any) -> np.datetime64:
    month = np.datetime64(f"{date.year:04d}-{date.month:02d}", "M")
    last = int(((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(int))
    day = month.astype("datetime64[D]") + (min(date.day, last) - 1)
    seconds = date.hour * 3600 + date.minute * 60 + date.second
    return np.datetime64(day, "ns") + np.timedelta64(seconds * 1_000_000 + date.microsecond, "us")


def _written(stamp: Any, calendar: str, cftime: Any) -> Any:
    last = cftime.datetime(stamp.year, stamp.month, 1, calendar=calendar).daysinmonth
    return cftime.datetime(
        stamp.year, stamp.month, min(stamp.day, last), stamp.hour, stamp.minute, stamp.second, calendar=calendar
    )
