"""Conversion of dates in the calendars of climate models (noleap, 360_day, ...) to numpy dates and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["from_calendar", "to_calendar"]


def from_calendar(dates: NDArray[Any]) -> NDArray[np.datetime64]:
    """Convert cftime dates to numpy dates of the same year, month and day.

    Parameters
    ----------
    dates : ndarray of cftime.datetime
        Dates of any calendar.

    Returns
    -------
    ndarray of datetime64[ns]
        A day that does not exist in the standard calendar (30 February) becomes the last of its month.

    Examples
    --------
    >>> import cftime
    >>> from_calendar(np.array([cftime.datetime(2001, 2, 30, calendar="360_day")])).astype("datetime64[D]")
    array(['2001-02-28'], dtype='datetime64[D]')
    """
    return np.array([_from_date(date) for date in dates.ravel()], "datetime64[ns]")


def to_calendar(time: NDArray[Any], calendar: str) -> Any:
    """Convert numpy dates to dates of a calendar.

    Parameters
    ----------
    time : ndarray of datetime64
        Dates.
    calendar : str
        ``"standard"`` or a calendar of cftime.

    Returns
    -------
    ndarray
        The dates unchanged for the standard calendar, else cftime dates; a day that does not exist in the calendar
        becomes the last of its month.
    """
    import cftime

    if calendar == "standard":
        return time
    return np.array([_to_date(stamp, calendar, cftime) for stamp in time.astype("datetime64[s]").tolist()], object)


def _from_date(date: Any) -> np.datetime64:
    """Numpy date of one cftime date."""
    month = np.datetime64(f"{date.year:04d}-{date.month:02d}", "M")
    last = int(((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(int))
    day = month.astype("datetime64[D]") + (min(date.day, last) - 1)
    seconds = date.hour * 3600 + date.minute * 60 + date.second
    return np.datetime64(day, "ns") + np.timedelta64(seconds * 1_000_000 + date.microsecond, "us")


def _to_date(stamp: Any, calendar: str, cftime: Any) -> Any:
    """Date of a calendar of one datetime."""
    last = cftime.datetime(stamp.year, stamp.month, 1, calendar=calendar).daysinmonth
    return cftime.datetime(
        stamp.year, stamp.month, min(stamp.day, last), stamp.hour, stamp.minute, stamp.second, calendar=calendar
    )
