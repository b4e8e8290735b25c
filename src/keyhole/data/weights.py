"""Loss weights of the sites, and measurement noise of the sensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.data.alignment import align
from keyhole.data.constraints.regions import region
from keyhole.data.labels import is_a, is_labelled
from keyhole.data.sites import Sites

__all__ = ["holds_numbers", "resolve_noise", "resolve_weights", "sqrt_of_weights"]

_SMALLEST_WEIGHT = 1e-4  # relative to the mean; replaces zero while sites are selected


def resolve_weights(given: Any, sites: Sites) -> NDArray[np.float64] | None:
    """Convert any accepted form of the ``weights`` argument to an array.

    Parameters
    ----------
    given : {"area", "none"}, array-like, region or None
        See `Samples.with_weights`.
    sites : Sites
        The sites.

    Returns
    -------
    ndarray of shape (m,) or None
        None where all weights are equal.

    Raises
    ------
    SettingsError
        If weights are negative or not finite, all are zero, or ``"area"`` is given and the areas are not known.
    """
    if given is None or (isinstance(given, str) and given == "none"):
        return None
    if isinstance(given, str) and given == "area":
        if sites.area is None:
            raise SettingsError(
                "weights='area': the areas of the sites are not known (no lattice of latitudes, no cell measures, no "
                "bounds); give them as weights"
            )
        return sites.area
    weights = align(given, sites, "weights").astype(np.float64) if holds_numbers(given) else None
    if weights is None:
        weights = region(given, sites, "weights").astype(np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise SettingsError("weights: non-negative finite numbers are needed")
    if not weights.any():
        raise SettingsError("weights: no valid site has a positive weight")
    return weights


def holds_numbers(given: Any) -> bool:
    """Return whether weights are given as numbers, not as a region."""
    if isinstance(given, str | Mapping) or (isinstance(given, Sequence) and not isinstance(given, np.ndarray)):
        return False
    return getattr(np.asarray(given), "dtype", np.dtype(object)).kind in "iuf"


def sqrt_of_weights(weights: NDArray[np.float64] | None) -> NDArray[np.float32] | None:
    """Return the square root of the relative loss weights.

    Parameters
    ----------
    weights : ndarray of shape (m,), optional
        Loss weights; None: uniform.

    Returns
    -------
    ndarray of shape (m,) or None
        float32, with a mean square of one; a weight of zero is replaced by 1e-4 of the mean, so that scaled targets can
        be divided by it.
    """
    if weights is None:
        return None
    relative = weights / weights.mean()
    return np.sqrt(np.where(relative > 0, relative, _SMALLEST_WEIGHT)).astype(np.float32)


def resolve_noise(given: Any, channels: int, sites: Sites, variables: Sequence[str] = ()) -> NDArray[np.float64] | None:
    """Convert any accepted form of the ``noise`` argument to standard deviations for each channel and site.

    Parameters
    ----------
    given : float, array-like or None
        See `Samples.with_noise`.
    channels : int
        Number of channels.
    sites : Sites
        The sites.
    variables : sequence of str
        Names of the channels, by which labelled values are aligned.

    Returns
    -------
    ndarray of shape (channels, m) or None
        None where none is given.

    Raises
    ------
    SettingsError
        If values are negative, not finite or of the wrong shape, or a variable has none.
    """
    if given is None:
        return None
    try:
        noise = _aligned_noise(given, channels, sites, variables)
    except SettingsError:
        raise
    except (TypeError, ValueError) as error:
        raise SettingsError(f"noise={given!r}: a number, or an array of them, is needed") from error
    noise = np.broadcast_to(noise, (channels, len(sites)))
    if not (noise >= 0).all() or not np.isfinite(noise).all():
        raise SettingsError("noise: non-negative finite standard deviations are needed")
    return np.array(noise)


def _aligned_noise(given: Any, channels: int, sites: Sites, variables: Sequence[str]) -> NDArray[np.float64]:
    """Align noise by variable if its labels are variables, else by site; ``(channels, m)`` or broadcastable to it."""
    parts = _by_variable(given, variables) if is_labelled(given) else None
    if parts is not None:
        missing = [name for name in variables if name not in parts]
        if missing:
            raise SettingsError(f"noise: no value for variable {missing[0]!r}; it has {', '.join(parts)}")
        return np.stack([align(parts[name], sites, f"noise of {name}").astype(np.float64) for name in variables])
    if is_labelled(given):
        return align(given, sites, "noise").astype(np.float64)
    noise = np.asarray(given, np.float64)
    if noise.shape == (channels,) and noise.shape != sites.shape:
        return noise[:, np.newaxis]
    if noise.shape == (channels, *sites.shape):
        return sites.from_grid(noise)
    if noise.shape not in ((), sites.shape):
        raise SettingsError(f"noise: an array of shape {noise.shape} for {channels} channels on {sites.shape}")
    return align(noise, sites, "noise")


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
