"""Loss weights of the sites, and measurement noise of the sensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.data.alignment import is_a, is_labelled, on_grid
from keyhole.data.constraints.regions import region
from keyhole.data.grid import Grid

__all__ = ["resolve_noise", "resolve_weights", "sqrt_of_weights"]

_SMALLEST_WEIGHT = 1e-4  # relative to the mean; replaces zero while sites are selected


def resolve_weights(given: Any, grid: Grid) -> NDArray[np.float64] | None:
    """Convert any accepted form of the ``weights`` argument to an array.

    Parameters
    ----------
    given : {"area", "none"}, array-like, region or None
        See `Samples.with_weights`.
    grid : Grid
        The grid.

    Returns
    -------
    ndarray of the grid's shape, or None
        None where all weights are equal.

    Raises
    ------
    SettingsError
        If weights are negative or not finite, all are zero, or ``"area"`` is given without a latitude.
    """
    if given is None or (isinstance(given, str) and given == "none"):
        return None
    if isinstance(given, str) and given == "area":
        area = grid.area()
        if area is None:
            raise SettingsError("weights='area': the grid has no latitude")
        return area
    given = given if isinstance(given, Mapping) else on_grid(given, grid, "weights")
    weights = _numbers(given, grid)
    if weights is None:
        weights = region(given, grid, "weights").astype(np.float64)
    if not np.isfinite(weights[grid.inside]).all() or (weights[grid.inside] < 0).any():
        raise SettingsError("weights: non-negative finite numbers are needed")
    if not weights[grid.inside].any():
        raise SettingsError("weights: no valid site has a positive weight")
    return weights


def sqrt_of_weights(weights: NDArray[np.float64] | None, grid: Grid) -> NDArray[np.float32] | None:
    """Return the square root of the relative loss weights.

    Parameters
    ----------
    weights : ndarray of the grid's shape, optional
        Loss weights; None: uniform.
    grid : Grid
        The grid.

    Returns
    -------
    ndarray of the grid's shape, or None
        float32, with a mean square of one over the valid sites; a weight of zero is replaced by 1e-4 of the mean, so
        that scaled values can be divided by it.
    """
    if weights is None:
        return None
    relative = weights / weights[grid.inside].mean()
    return np.where(grid.inside, np.sqrt(np.where(relative > 0, relative, _SMALLEST_WEIGHT)), 1.0).astype(np.float32)


def resolve_noise(
    given: Any, channels: int, grid: Grid, variables: Sequence[str] = ()
) -> NDArray[np.float64] | None:  # fmt: skip
    """Convert any accepted form of the ``noise`` argument to standard deviations for each channel and site.

    Parameters
    ----------
    given : float, array-like or None
        See `Samples.with_noise`.
    channels : int
        Number of channels.
    grid : Grid
        The grid.
    variables : sequence of str
        Names of the channels, by which labelled values are aligned.

    Returns
    -------
    ndarray of shape (channels, *grid), or None
        None where there is no noise.

    Raises
    ------
    SettingsError
        If values are negative, not finite or of the wrong shape, or a variable has none.
    """
    if given is None:
        return None
    try:
        noise = np.asarray(_aligned_noise(given, grid, variables), np.float64)
    except SettingsError:
        raise
    except (TypeError, ValueError) as error:
        raise SettingsError(f"noise={given!r}: a number, or an array of them, is needed") from error
    if noise.shape == (channels,) and noise.shape != grid.shape:
        noise = noise.reshape(channels, *[1] * len(grid.shape))
    if noise.shape not in ((), grid.shape, (channels, *grid.shape), (channels, *[1] * len(grid.shape))):
        raise SettingsError(f"noise: an array of shape {noise.shape} for {channels} channels on {grid.shape}")
    noise = np.broadcast_to(noise, (channels, *grid.shape))
    if not (noise[:, grid.inside] >= 0).all() or not np.isfinite(noise[:, grid.inside]).all():
        raise SettingsError("noise: non-negative finite standard deviations are needed")
    return np.where(grid.inside, noise, 0.0) if noise.any() else None


def _aligned_noise(given: Any, grid: Grid, variables: Sequence[str]) -> Any:
    """Align labelled noise by variable, ``(channels, *grid)``, if its labels are variables; else to the grid."""
    if not is_labelled(given):
        return given
    parts = _by_variable(given, variables)
    if parts is None:
        return on_grid(given, grid, "noise")
    missing = [name for name in variables if name not in parts]
    if missing:
        raise SettingsError(f"noise: no value for variable {missing[0]!r}; it has {', '.join(parts)}")
    each = [np.asarray(on_grid(parts[name], grid, f"noise of {name}"), np.float64) for name in variables]
    return np.stack([np.broadcast_to(one, grid.shape) for one in each])


def _by_variable(given: Any, variables: Sequence[str]) -> dict[str, Any] | None:
    """Labelled values by variable; None if none of their labels is a variable."""
    if is_a(given, "xarray", "Dataset"):
        return {str(name): array for name, array in given.data_vars.items()}
    if is_a(given, "xarray", "DataArray"):
        for dim in given.dims:
            names = [str(label) for label in given[dim].values] if dim in given.coords else []
            if set(names) & set(variables):
                return {name: given.isel({dim: place}, drop=True) for place, name in enumerate(names)}
        return None
    labels = given.index if is_a(given, "pandas", "Series") else given if isinstance(given, Mapping) else ()
    if not {str(label) for label in labels} & set(variables):
        return None
    return {str(label): value for label, value in given.items()}


def _numbers(given: Any, grid: Grid) -> NDArray[np.float64] | None:
    """An array of numbers of the grid's shape; None for anything else."""
    array = np.asarray(given) if not isinstance(given, dict | str) else np.empty(0, object)
    if array.dtype.kind not in "iuf" or array.shape != grid.shape:
        return None
    return array.astype(np.float64)
