"""Covariates: what is known of a sample without any sensor, such as the time of year."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError

__all__ = ["PERIODS", "Period", "check_periods", "harmonics", "phase_in"]

Period = Literal["year", "day"]
PERIODS: tuple[Period, ...] = get_args(Period)
_UNIT: dict[str, Literal["Y", "D"]] = {"year": "Y", "day": "D"}


def check_periods(names: Iterable[str]) -> tuple[Period, ...]:
    """Return the periods as a tuple in standard order, without duplicates.

    Parameters
    ----------
    names : iterable of str
        ``"year"`` and ``"day"``.

    Returns
    -------
    tuple of {"year", "day"}

    Raises
    ------
    SettingsError
        If a name is unknown; the message lists the known ones.
    """
    found = tuple(names)
    for name in found:
        if name not in PERIODS:
            raise SettingsError(
                f"covariate {name!r} is unknown; there are {', '.join(PERIODS)}, or columns of your own"
            )
    return tuple(period for period in PERIODS if period in found)


def harmonics(time: NDArray[np.datetime64], periods: Iterable[Period]) -> NDArray[np.float32]:
    """Return the first harmonic of each period: cosine and sine of the phase of each sample's time.

    Parameters
    ----------
    time : ndarray of datetime64, shape (N,)
        Time of each sample.
    periods : iterable of {"year", "day"}
        Leap years are 366 days long.

    Returns
    -------
    ndarray of shape (N, 2 * periods)
        float32; a cosine and a sine column for each period.

    Examples
    --------
    >>> harmonics(np.array(["2001-01-01", "2001-07-02T12"], "datetime64[h]"), ("year",)).round(2)
    array([[ 1.,  0.],
           [-1.,  0.]], dtype=float32)
    """
    columns: list[NDArray[Any]] = [np.zeros((len(time), 0))]
    for phase in (phase_in(time, period) for period in periods):
        columns.append(np.stack([np.cos(phase), np.sin(phase)], axis=1))
    return np.concatenate(columns, axis=1).astype(np.float32)


def phase_in(time: NDArray[np.datetime64], period: Period) -> NDArray[np.float64]:
    """Return the phase of each time in a period, from 0 to 2 pi; leap years are 366 days long."""
    start = time.astype(f"datetime64[{_UNIT[period]}]")
    length = (start + 1).astype("datetime64[s]") - start.astype("datetime64[s]")
    return np.asarray(2 * np.pi * ((time.astype("datetime64[s]") - start.astype("datetime64[s]")) / length))
