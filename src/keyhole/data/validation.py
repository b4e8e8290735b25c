"""Checks of the arrays that samples are built from; each error states what is wrong and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.data.climatology import ANOMALIES, Climatology
from keyhole.data.sites import Sites

__all__ = [
    "check_anomalies",
    "check_dates",
    "check_positions",
    "check_shape",
    "check_time",
    "check_values",
    "columns_of",
    "floating",
    "floating_type",
]

_POLE, _POLE_ROUNDING = 90.0, 1e-3  # degrees; radians in single precision are less exact


def floating(values: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """Convert real numbers to floating point: float32 where it represents them exactly, else float64.

    Parameters
    ----------
    values : ndarray
        Booleans, integers or floats.

    Returns
    -------
    ndarray
        C-contiguous.

    Raises
    ------
    DataError
        If values are complex, dates or text.
    """
    if values.dtype.kind not in "biuf":
        raise DataError(f"values are of type {values.dtype}; real numbers are needed")
    return np.ascontiguousarray(values, dtype=floating_type(values.dtype))


def floating_type(dtype: np.dtype[Any]) -> np.dtype[np.floating[Any]]:
    """Return the type that `floating` converts to: float32 where it represents all values exactly, else float64."""
    wide = dtype.itemsize > (4 if dtype.kind == "f" else 2)  # single precision holds 16-bit integers
    return np.dtype(np.float64 if wide else np.float32)


def columns_of(columns: Any, n: int) -> NDArray[np.float64]:
    """Return covariates as an array of shape ``(n, c)``.

    Parameters
    ----------
    columns : array-like of shape (n,) or (n, c)
        Finite numbers.
    n : int
        Number of samples.

    Raises
    ------
    DataError
        If the length differs from ``n``, or values are missing or infinite.
    """
    covariates = np.asarray(columns, dtype=np.float64)
    covariates = covariates[:, np.newaxis] if covariates.ndim == 1 else covariates
    if covariates.ndim != 2 or len(covariates) != n:
        raise DataError(f"covariates: columns of shape {covariates.shape} for {n} samples")
    if not np.isfinite(covariates).all():
        raise DataError("covariates: some values are missing or infinite")
    return covariates


def check_shape(values: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise a DataError unless ``values`` is ``(N, channels, *shape)`` with at least two samples."""
    if values.size == 0:
        raise DataError(f"the data are empty: shape {values.shape}")
    if values.shape[2:] != shape:
        raise DataError(f"values of shape {values.shape} do not end with the shape of a sample, {shape}")
    if len(values) < 2:
        raise DataError("the data hold one sample; at least two are needed")


def check_values(values: NDArray[Any], valid: NDArray[np.bool_]) -> None:
    """Raise a DataError if values ``(N, channels, sites)`` are infinite, all missing, or the same in all samples."""
    if np.isinf(values).any():
        raise DataError(f"the data hold {int(np.isinf(values).sum())} infinite values; replace them first")
    if not valid.any():
        raise DataError("no site is valid: every site is missing (NaN) in all samples")
    known = values if valid.all() else values[:, :, valid]
    if not (np.fmax.reduce(known) > np.fmin.reduce(known)).any():  # NaN only where all samples are
        raise DataError("the data are constant: every sample is the same, so there is nothing to reconstruct")


def check_time(time: NDArray[Any], n: int) -> None:
    """Raise a DataError unless each sample has a time.

    Parameters
    ----------
    time : ndarray
        Dates, durations or numbers.
    n : int
        Number of samples.

    Raises
    ------
    DataError
        If the length differs, or times are missing or of another type.
    """
    if len(time) != n:
        raise DataError(f"time has {len(time)} entries for {n} samples")
    if time.dtype.kind not in "mMiuf":
        raise DataError(f"time is of type {time.dtype}; dates or numbers are needed")
    absent = int((np.isnat(time) if time.dtype.kind in "mM" else ~np.isfinite(time)).sum())
    if absent:
        what = "missing (NaT)" if time.dtype.kind in "mM" else "missing or infinite"
        raise DataError(f"the time of {absent} sample{'s' * (absent > 1)} is {what}; leave such samples out")


def check_dates(time: NDArray[Any] | None, needs: str) -> None:
    """Raise a DataError unless each sample has a date.

    Parameters
    ----------
    time : ndarray, optional
        Times of the samples.
    needs : str
        What requires dates, for the message.

    Raises
    ------
    DataError
    """
    if time is None:
        raise DataError(f"{needs} a time for each sample, and the data have none")
    if time.dtype.kind != "M":
        kind = "durations" if time.dtype.kind == "m" else "numbers"
        raise DataError(f"{needs} dates, and the time of the data is {kind} ({time[0]}, ...); give it as dates")


def check_anomalies(kind: str, time: NDArray[Any] | None) -> Climatology:
    """Return a climatology of a kind; raise an error unless there is one, and samples have dates if it needs them."""
    if kind not in ANOMALIES:
        raise SettingsError(f"anomalies={kind!r}: one of {', '.join(map(repr, ANOMALIES))} is needed")
    if kind in ("month", "harmonics"):
        check_dates(time, "monthly anomalies need" if kind == "month" else "anomalies from harmonics need")
    return Climatology(kind)


def check_positions(sites: Sites) -> None:
    """Raise a DataError if a site has no position, or a latitude that is none."""
    for name in (one for one in sites.location if one in sites.auxiliary):
        values = sites.coordinate(name)
        missing = int((~np.isfinite(values)).sum()) if values.dtype.kind == "f" else 0
        if missing:
            raise DataError(
                f"coordinate {name!r} is missing at {missing} of {len(sites)} sites that have values; fill it in, or "
                "set the values there to NaN in all samples"
            )
    latitude = sites.role("latitude")
    beyond = np.empty(0) if latitude is None else latitude[np.abs(latitude) > _POLE + _POLE_ROUNDING]
    if len(beyond):
        raise DataError(
            f"coordinate {sites.roles['latitude']!r} is a latitude, and {beyond[0]:g} is not within -90 to 90 degrees; "
            "correct it or its units, or rename it if it is another coordinate"
        )
