"""Covariances that fade with distance, for data with fewer samples than their covariance has entries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["LENGTH_SCALES", "localisation", "some"]

# Lengths tried, in units of the grid's places: the sphere's radius, or the longest side. Infinite: no fading.
LENGTH_SCALES = (np.inf, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)


def localisation(first: NDArray[np.float64], second: NDArray[np.float64], length: float) -> NDArray[np.float32]:
    """`exp(-distance / length)` between places ``(n, d)`` and ``(m, d)``.

    The exponential is a positive definite function in any number of dimensions, so its entrywise product with a sample
    covariance is a covariance again (Schur). What is far apart is tied in a sample covariance mostly by chance: with n
    samples, by about `1 / sqrt(n)` of their standard deviations.
    """
    if np.isinf(length):
        return np.ones((len(first), len(second)), np.float32)
    squares = np.square(first).sum(axis=1)[:, np.newaxis] + np.square(second).sum(axis=1) - 2 * first @ second.T
    # From here on in single precision and in place: half the time.
    faded: NDArray[np.float32] = np.maximum(squares, 0).astype(np.float32)
    np.sqrt(faded, out=faded)
    np.multiply(faded, np.float32(-1 / length), out=faded)
    np.exp(faded, out=faded)
    return faded


def some(count: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Positions of all, or of as many as there may be, in their order."""
    return np.arange(count) if count <= most else np.sort(rng.choice(count, most, replace=False))
