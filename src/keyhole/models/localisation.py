"""Covariance localisation, for samples fewer than their covariance needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["LENGTH_SCALES", "localisation", "some"]

# Candidate length scales, in units of the grid's positions: the sphere's radius, or the longest side. Infinite: none.
LENGTH_SCALES = (np.inf, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)


def localisation(first: NDArray[np.float64], second: NDArray[np.float64], length: float) -> NDArray[np.float32]:
    """Exponential taper `exp(-distance / length)` between two sets of positions.

    The exponential is a positive definite function in any number of dimensions, so its entrywise product with a sample
    covariance is again a covariance (Schur product theorem). With n samples, distant sites have spurious sample
    correlations of about `1 / sqrt(n)`, which the taper damps.

    Parameters
    ----------
    first, second
        Positions, ``(n, d)`` and ``(m, d)``.
    length
        Length scale, in units of the positions; infinite for no localisation.

    Returns
    -------
    ndarray
        ``(n, m)``, from 0 to 1, in single precision.

    References
    ----------
    Houtekamer & Mitchell (2001), *A sequential ensemble Kalman filter for atmospheric data assimilation*. Gaspari &
    Cohn (1999), *Construction of correlation functions in two and three dimensions*, whose compactly supported function
    is the usual alternative.

    Examples
    --------
    >>> import numpy as np
    >>> localisation(np.array([[0.0]]), np.array([[0.0], [1.0], [2.0]]), length=1.0).round(3)
    array([[1.   , 0.368, 0.135]], dtype=float32)
    """
    if np.isinf(length):
        return np.ones((len(first), len(second)), np.float32)
    squared_distances = (
        np.square(first).sum(axis=1)[:, np.newaxis] + np.square(second).sum(axis=1) - 2 * first @ second.T
    )
    # From here on in single precision and in place: half the time.
    taper: NDArray[np.float32] = np.maximum(squared_distances, 0).astype(np.float32)
    np.sqrt(taper, out=taper)
    np.multiply(taper, np.float32(-1 / length), out=taper)
    np.exp(taper, out=taper)
    return taper


def some(count: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return sorted indices of a random subset.

    Parameters
    ----------
    count
        How many there are.
    most
        Largest size of the subset; all indices are returned if there are no more.
    rng
        Random generator, used only if a subset is drawn.
    """
    return np.arange(count) if count <= most else np.sort(rng.choice(count, most, replace=False))
