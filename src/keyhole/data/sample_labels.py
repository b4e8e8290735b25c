"""Labels of samples: coordinates along the samples by name, and groups of samples that are aligned by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.data.labels import align_in_time, is_a, match

__all__ = ["INDEX", "Coordinates", "group_labels"]

Coordinates = Mapping[str, NDArray[Any]]

INDEX = "index"  # name of an index of rows that has none


def group_labels(
    groups: Any, count: int, *, time: NDArray[Any] | None = None, coordinates: Coordinates | None = None
) -> NDArray[Any]:
    """Return the label of the group of each sample.

    Parameters
    ----------
    groups : array-like of shape (count,)
        Labels: whole numbers, texts, dates or categories. A Series is aligned by its index, a DataArray by the
        coordinate of its dimension, where the samples have such labels or dates; others are taken in order.
    count : int
        Number of samples.
    time : ndarray of shape (count,), optional
        Time of each sample.
    coordinates : mapping of str to ndarray of shape (count,), optional
        Coordinates along the samples, by name.

    Returns
    -------
    ndarray of shape (count,)

    Raises
    ------
    DataError
        If there is not one label for each sample, or a label is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> subjects = pd.Series(["Ada", "Bo"], index=pd.Index([7, 3], name="session"))
    >>> group_labels(subjects, 3, coordinates={"session": np.array([3, 3, 7])}).tolist()
    ['Bo', 'Bo', 'Ada']
    """
    known = dict(coordinates or {}) if time is None else {"time": time, **(coordinates or {})}
    found = _aligned(groups, time, known)
    values = np.asarray(found)
    if values.dtype == object:
        _check_known(sum(map(_is_missing, values.ravel())))
        values = np.array([str(one) for one in values.ravel()], dtype=str).reshape(values.shape)
    if values.shape != (count,):
        raise DataError(f"groups: one label for each of {count} samples is needed, not shape {values.shape}")
    if values.dtype.kind not in "biufUmM":
        raise DataError(f"groups: labels of type {values.dtype}; numbers, texts or dates are needed")
    _check_known(int(((values == "") if values.dtype.kind == "U" else (values != values)).sum()))
    return values


def _aligned(groups: Any, time: NDArray[Any] | None, coordinates: Coordinates) -> Any:
    """Bring labelled groups into the order of the samples."""
    name, labels = _index_of(groups)
    own = coordinates.get(name)
    if own is None:
        return align_in_time(groups, time, "groups")
    if np.array_equal(labels, own):
        return groups
    positions, counts = match(own, labels)
    if (counts != 1).any():
        wrong = int(np.flatnonzero(counts != 1)[0])
        amount = "no value" if counts[wrong] == 0 else "more than one value"
        raise DataError(f"groups: {amount} for the sample with {name} {own[wrong]}")
    return np.asarray(groups)[positions]


def _index_of(groups: Any) -> tuple[str, NDArray[Any]]:
    """Name and labels of the index of a Series, or of the coordinate of a DataArray with one dimension."""
    if is_a(groups, "pandas", "Series") and not is_a(groups.index, "pandas", "MultiIndex", "DatetimeIndex"):
        return str(groups.index.name or INDEX), groups.index.to_numpy()
    if is_a(groups, "xarray", "DataArray") and groups.ndim == 1 and groups.dims[0] in groups.coords:
        return str(groups.dims[0]), np.asarray(groups[groups.dims[0]].values)
    return "", np.empty(0)


def _is_missing(label: Any) -> bool:
    """Whether a label is none: None, NaN, or NA of pandas, which is neither equal to itself nor not."""
    try:
        return label is None or label == "" or bool(label != label)
    except TypeError:
        return True


def _check_known(missing: int) -> None:
    """Raise a DataError if labels are missing."""
    if missing:
        raise DataError(f"groups: {missing} labels are missing; leave such samples out, or name a group of their own")
