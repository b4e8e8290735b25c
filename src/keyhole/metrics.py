"""The one place where an error is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.errors import DataError
from keyhole.grid import Grid

__all__ = ["evaluate", "squared_error_map"]


def evaluate(truth: NDArray[Any], rebuilt: NDArray[Any], expected: NDArray[Any], grid: Grid) -> dict[str, float]:
    """Score rebuilt signals.

    Parameters
    ----------
    truth, rebuilt, expected
        ``(N, channels, *grid)`` in the user's units: what was, what was rebuilt, and what is known without
        sensors (mean or climatology of the training block).
    grid
        Only its inside cells count.

    Returns
    -------
    dict
        ``mse``, ``rmse``, and ``fvu``, the fraction of variance unexplained: the sum of squared errors over the
        sum of squared deviations from ``expected``. Cells count equally. Where the grid knows latitude,
        ``rmse_area`` and ``fvu_area`` weigh cells by their area as well.

    Examples
    --------
    >>> truth = np.array([[[0.0, 2.0]], [[4.0, 2.0]]])
    >>> evaluate(truth, truth + 1, np.full_like(truth, 2.0), Grid.plain((2,)))
    {'mse': 1.0, 'rmse': 1.0, 'fvu': 0.5}
    """
    error = squared_error_map(truth, rebuilt, grid)[grid.inside]
    spread = squared_error_map(truth, expected, grid)[grid.inside]
    mse = float(error.mean())
    scores = {"mse": mse, "rmse": mse**0.5, "fvu": _ratio(error.sum(), spread.sum())}
    area = grid.area()
    if area is not None:
        weight = area[grid.inside]
        scores["rmse_area"] = float(np.sqrt((error * weight).sum() / weight.sum()))
        scores["fvu_area"] = _ratio((error * weight).sum(), (spread * weight).sum())
    return scores


def squared_error_map(truth: NDArray[Any], rebuilt: NDArray[Any], grid: Grid) -> NDArray[np.float64]:
    """Mean squared error of each cell over samples and channels, NaN outside."""
    if truth.shape != rebuilt.shape:
        raise DataError(f"signals of shape {truth.shape} cannot be compared with those of shape {rebuilt.shape}")
    squares = np.zeros(grid.shape)
    for one, other in zip(truth, rebuilt, strict=True):
        squares += np.square(np.subtract(one, other, dtype=np.float64)).sum(axis=0)
    return np.where(grid.inside, squares / (len(truth) * truth.shape[1]), np.nan)


def _ratio(part: np.float64, whole: np.float64) -> float:
    return float(part / whole) if whole > 0 else float("nan")
