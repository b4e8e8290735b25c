"""Decorrelation time of what the calendar does not know of a series, by which gaps between its parts go."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.climatology import MEAN, Climatology, harmonics_of
from keyhole.data.normal_equations import NormalEquations
from keyhole.data.samples import Samples
from keyhole.data.series import decorrelation_time, feature_columns

__all__ = ["decorrelation_time_of"]

_HARMONICS = 2  # of year and day: what is left of a cycle is then far below the 1/e that decides, and few years suffice
_RIDGE = 1e-9  # share of the samples: a month without samples has no coefficient


def decorrelation_time_of(samples: Samples, rows: NDArray[np.floating[Any]] | None = None) -> int:
    """Return after how many consecutive times samples have forgotten their state, apart from the calendar.

    The year and the day come back for ever: with them, a series would be found to remember for months whatever its
    weather does. So the climatology of the samples is subtracted first; where it is yet to be chosen
    (``anomalies="auto"``, and harmonics without their number), the first two harmonics of the year and of the day, as
    far as the samples cover one and a half cycles, and nothing beside a target. With ``anomalies="none"`` the cycles
    are part of what is reconstructed, and stay.

    The climatology is fitted to all samples, those of a later test part too, since there are no parts yet. It is used
    for nothing but this number, which decides how far apart parts are, and is forgotten.

    Parameters
    ----------
    samples : Samples
        In the user's units; those without a time in temporal order. Samples of the same time are averaged.
    rows : ndarray of shape (n, features), optional
        What `feature_columns` returns for them, if it is at hand.

    Returns
    -------
    int
        See `decorrelation_time`.

    Examples
    --------
    >>> import keyhole as kh
    >>> import xarray as xr
    >>> time = np.arange("2001-01-01", "2005-01-01", dtype="datetime64[D]").astype("datetime64[ns]")
    >>> noise = np.random.default_rng(0).normal(size=(len(time), 3))
    >>> season = 5 * np.cos(2 * np.pi * np.arange(len(time)) / 365.25)[:, np.newaxis]
    >>> samples = kh.read(xr.DataArray(noise + season, {"time": time}, ("time", "x")))
    >>> decorrelation_time_of(samples), decorrelation_time_of(samples.anomalies("none"))
    (1, 65)
    """
    values, time = feature_columns(samples) if rows is None else rows, samples.time
    if time is not None:
        time, step = np.unique(time, return_inverse=True)
        values = _means(values, step)
    climatology = _climatology(samples)
    if climatology.needs_time:
        values = _residual(values, climatology.design(time))
    return decorrelation_time(np.nan_to_num(values))


def _climatology(samples: Samples) -> Climatology:
    """The climatology of the samples, or one that holds most of what will be chosen."""
    asked, time = samples.climatology, samples.time
    if asked.is_chosen:
        return asked
    if time is None or time.dtype.kind != "M" or (asked.kind == "auto" and samples.target is not None):
        return MEAN
    return harmonics_of(time, _HARMONICS) or MEAN


def _means(rows: NDArray[np.floating[Any]], step: NDArray[np.intp]) -> NDArray[np.float64]:
    """Mean over the samples of each time, ``(times, features)``; NaN where none is known."""
    order = np.argsort(step, kind="stable")
    starts = np.flatnonzero(np.diff(step[order], prepend=-1))
    known = ~np.isnan(rows[order])
    sums = np.add.reduceat(np.where(known, rows[order], 0), starts, dtype=np.float64)
    counts = np.add.reduceat(known.astype(np.int64), starts)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _residual(values: NDArray[np.floating[Any]], design: NDArray[np.float64]) -> NDArray[np.float64]:
    """What least squares on the design leaves of each column; NaN where missing."""
    known = ~np.isnan(values)
    fitted = NormalEquations.of(design, np.where(known, values, 0.0), known)
    ridge = np.full(design.shape[1], _RIDGE * len(design))
    return np.asarray(values - design @ fitted.solve(ridge))
