"""Covariance localisation, for samples fewer than their covariance needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["LENGTH_SCALES", "some"]

# Candidate length scales, relative to the extent of the sites: the sphere's radius, or the longest side. Infinite: none.
LENGTH_SCALES = (np.inf, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)


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
