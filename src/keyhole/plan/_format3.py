"""Plans of format 3: prediction intervals with the squared errors of samples, where today's have their components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["upgrade"]


def upgrade(
    header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Give the header and the arrays of a file of format 3 as format 4 has them.

    Each sample becomes a component of its own, so that the squared errors, and with them the intervals, are the same.
    The signs of the errors are not known, so that there are no intervals of means.

    Examples
    --------
    >>> import numpy as np
    >>> old = {"intervals.average": np.array([4.0]), "intervals.squares": np.array([[1.0], [9.0]])}
    >>> upgrade({"intervals": {}}, old)[1]["intervals.loadings"]
    array([[0.5],
           [1.5]])
    """
    found, intervals = dict(arrays), header.get("intervals")
    average, squares = found.pop("intervals.average", None), found.pop("intervals.squares", None)
    if not isinstance(intervals, Mapping) or average is None or squares is None or squares.ndim != 2:
        return dict(header), found
    n = len(squares)
    known = np.where(np.isnan(squares), average, squares)
    found["intervals.variance"] = average
    found["intervals.loadings"] = np.sqrt(known / average)
    found["intervals.scores"], found["intervals.remainder"] = np.eye(n, dtype=np.float32), np.zeros(n, np.float32)
    found["intervals.folds"] = np.zeros(n, np.int64)
    return {**header, "intervals": {**intervals, "half_life": 0.0, "correlated": False}}, found
