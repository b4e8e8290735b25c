"""How much an error counts in each cell, and how much noise a sensor adds there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.constraints.regions import region
from keyhole.errors import SettingsError
from keyhole.grid import Grid

__all__ = ["noise_of", "root_of", "weights_of"]

_LEAST = 1e-4  # of the mean weight: what a cell of no weight counts while sites are chosen


def weights_of(given: Any, grid: Grid) -> NDArray[np.float64] | None:
    """Give a weight for each cell: by area, as given, or one in a region and none beyond; None where all are alike."""
    if given is None or (isinstance(given, str) and given == "none"):
        return None
    if isinstance(given, str) and given == "area":
        area = grid.area()
        if area is None:
            raise SettingsError("weights='area': the grid has no latitude")
        return area
    weights = _numbers(given, grid)
    if weights is None:
        weights = region(given, grid, "weights").astype(np.float64)
    if not np.isfinite(weights[grid.inside]).all() or (weights[grid.inside] < 0).any():
        raise SettingsError("weights: numbers from 0 on are needed")
    if not weights[grid.inside].any():
        raise SettingsError("weights: no cell inside counts; give at least one a weight above zero")
    return weights


def root_of(weights: NDArray[np.float64] | None, grid: Grid) -> NDArray[np.float32] | None:
    """Root of the weights, with a mean square of one over the cells inside; a little where a cell has none."""
    if weights is None:
        return None
    relative = weights / weights[grid.inside].mean()
    return np.where(grid.inside, np.sqrt(np.where(relative > 0, relative, _LEAST)), 1.0).astype(np.float32)


def noise_of(given: Any, channels: int, grid: Grid) -> NDArray[np.float64] | None:
    """Standard deviation of a sensor's noise, ``(channels, *grid)``, or None."""
    if given is None:
        return None
    try:
        noise = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"noise={given!r}: a number, or an array of them, is needed") from error
    if noise.shape == (channels,) and noise.shape != grid.shape:
        noise = noise.reshape(channels, *[1] * len(grid.shape))
    if noise.shape not in ((), grid.shape, (channels, *grid.shape), (channels, *[1] * len(grid.shape))):
        raise SettingsError(f"noise: an array of shape {noise.shape} for {channels} channels on {grid.shape}")
    noise = np.broadcast_to(noise, (channels, *grid.shape))
    if not (noise[:, grid.inside] >= 0).all() or not np.isfinite(noise[:, grid.inside]).all():
        raise SettingsError("noise: standard deviations from 0 on are needed")
    return np.where(grid.inside, noise, 0.0) if noise.any() else None


def _numbers(given: Any, grid: Grid) -> NDArray[np.float64] | None:
    """Give an array of numbers of the grid's shape, None where it is something else."""
    array = np.asarray(given) if not isinstance(given, dict | str) else np.empty(0, object)
    if array.dtype.kind not in "iuf" or array.shape != grid.shape:
        return None
    return array.astype(np.float64)
