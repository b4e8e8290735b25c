"""Labels of values: which values carry them, and how they are found among others, those of time too."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError

__all__ = [
    "Labels",
    "Positions",
    "align_in_time",
    "is_a",
    "is_labelled",
    "match",
    "match_times",
    "times_of",
]

_SHARE_OF_STEP = 1e-3  # of the smallest step between coordinates: labels that are nearer are the same
_SINGLE = 1e-6  # the same for an axis of one position, as a share of its coordinate
_ROUNDINGS = 4  # units of the last digit that two notations of one coordinate may differ by

Labels = NDArray[Any]
Positions = NDArray[np.int64]


def is_a(given: Any, module: str, *names: str) -> bool:
    """Return whether an object is an instance of a class, without importing the class's module.

    Parameters
    ----------
    given : object
        Any object.
    module : str
        Name of the module; if it was not imported, there are no instances.
    *names : str
        Names of classes in the module.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_a(np.zeros(3), "numpy", "ndarray"), is_a("text", "pandas", "Series")
    (True, False)
    """
    found = sys.modules.get(module)
    kinds = tuple(kind for kind in (getattr(found, name, None) for name in names) if kind is not None)
    return bool(kinds) and isinstance(given, kinds)


def is_labelled(given: Any) -> bool:
    """Return whether values carry labels: xarray objects, Series, DataFrames and mappings.

    Examples
    --------
    >>> is_labelled({"a": 1.0}), is_labelled([1.0])
    (True, False)
    """
    return (
        isinstance(given, Mapping)
        or is_a(given, "xarray", "DataArray", "Variable", "Dataset")
        or is_a(given, "pandas", "Series", "DataFrame")
    )


def times_of(given: Any) -> NDArray[np.datetime64] | None:
    """Return the times that label values.

    Parameters
    ----------
    given : object
        Any values.

    Returns
    -------
    ndarray of datetime64[ns] or None
        A DatetimeIndex, or dates along the first dimension of a DataArray; None without.
    """
    if is_a(given, "pandas", "Series", "DataFrame") and is_a(given.index, "pandas", "DatetimeIndex"):
        return np.asarray(given.index.to_numpy("datetime64[ns]"))
    if not is_a(given, "xarray", "DataArray") or not given.dims or given.dims[0] not in given.coords:
        return None
    labels = np.asarray(given[given.dims[0]].values)
    return labels.astype("datetime64[ns]") if labels.dtype.kind == "M" else None


def match_times(available: NDArray[np.datetime64], wanted: NDArray[np.datetime64] | None, what: str) -> Positions:
    """Find the times of the samples among the times that label values.

    Parameters
    ----------
    available : ndarray of datetime64
        Times of the values.
    wanted : ndarray of datetime64, optional
        Times of the samples; None: values are taken in order.
    what : str
        Name of the argument in error messages.

    Returns
    -------
    ndarray of int
        Position in ``available`` of each sample.

    Raises
    ------
    DataError
        If a sample has no value, or more than one.
    """
    if wanted is None or np.array_equal(available, wanted):
        return np.arange(len(available), dtype=np.int64)
    positions, counts = match(wanted, available)
    missing, twice = np.flatnonzero(counts == 0), np.flatnonzero(counts > 1)
    if len(missing):
        raise DataError(
            f"{what}: no value at time {wanted[missing[0]]}; {len(missing)} of {len(wanted)} samples have none. "
            "Reindex it to the data, or leave such samples out"
        )
    if len(twice):
        raise DataError(f"{what}: more than one value at time {wanted[twice[0]]}")
    return positions


def align_in_time(given: Any, time: NDArray[np.datetime64] | None, what: str) -> Any:
    """Bring values that are labelled with times, along their first axis, into the order of the samples.

    Parameters
    ----------
    given : object
        Any values; returned unchanged without times.
    time : ndarray of datetime64, optional
        Times of the samples.
    what : str
        Name of the argument in error messages.

    Returns
    -------
    array-like

    Raises
    ------
    DataError
        If a sample has no value, or more than one.
    """
    available = times_of(given)
    return given if available is None else np.asarray(given)[match_times(available, time, what)]


def match(
    wanted: Labels, available: Labels, *, turn: float | None = None, steps: Labels | None = None
) -> tuple[Positions, Positions]:
    """Find labels among others.

    Parameters
    ----------
    wanted, available : ndarray of shape (n,) and (m,)
        Numbers match within rounding; dates and text match exactly.
    turn : float, optional
        Period of numbers, 360 for longitudes.
    steps : ndarray, optional
        Numbers whose smallest step defines the tolerance; None: those of ``wanted``.

    Returns
    -------
    positions, counts : ndarray of int, shape (n,)
        Position in ``available`` of each wanted label, and how many of ``available`` it matches.

    Examples
    --------
    >>> match(np.array([190.0, 0.0]), np.array([-170.0, 0.0, 20.0]), turn=360.0)
    (array([0, 1]), array([1, 1]))
    """
    kinds = {wanted.dtype.kind, available.dtype.kind}
    if kinds <= set("biuf"):
        within = _tolerance(wanted, available, wanted if steps is None else steps)
        finite = np.where(np.isfinite(wanted), wanted, np.nan).astype(np.float64)
        shifts = (0.0,) if turn is None else (0.0, turn, -turn)  # as they are written, if possible
        return _match_between(available, [(finite + (shift - within), finite + (shift + within)) for shift in shifts])
    if kinds == {"M"}:
        wanted, available = wanted.astype("datetime64[ns]"), available.astype("datetime64[ns]")
    elif "M" in kinds and "U" not in kinds:
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
    else:
        wanted, available = (
            np.array([str(label) for label in part.tolist()], dtype=str) for part in (wanted, available)
        )
    return _match_between(available, [(wanted, wanted)])


def _match_between(available: Labels, bounds: Sequence[tuple[Labels, Labels]]) -> tuple[Positions, Positions]:
    """First label between two bounds, and how many there are; later bounds apply where earlier ones find nothing."""
    order = np.argsort(available, kind="stable")
    line, n = available[order], len(bounds[0][0])
    positions, counts = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for low, high in bounds:
        left, right = np.searchsorted(line, low, side="left"), np.searchsorted(line, high, side="right")
        found = (counts == 0) & (right > left) & (low == low)  # NaN is no label
        positions[found], counts[found] = order[left[found]], (right - left)[found]
    return positions, counts


def _tolerance(wanted: Labels, available: Labels, steps: Labels) -> float:
    """Largest difference between two numbers that are one label: less than half the smallest step."""
    largest = max(float(np.abs(part[np.isfinite(part)]).max(initial=0)) for part in (wanted, available))
    digits = max(
        (float(np.finfo(part.dtype).eps) for part in (wanted, available) if part.dtype.kind == "f"), default=0.0
    )
    rounding = _ROUNDINGS * digits * largest
    gaps = np.diff(np.unique(steps[np.isfinite(steps)].astype(np.float64)))
    if not len(gaps):
        return max(rounding, _SINGLE * max(largest, 1.0))
    step = float(gaps.min())
    return min(max(_SHARE_OF_STEP * step, rounding), 0.49 * step)
