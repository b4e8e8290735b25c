"""Measurement noise: numbers keyed by sample, site and channel, and what is assumed where none is given."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ASSUMED_NOISE", "standard_noise"]

# Standard deviation that searches assume for a sensor whose noise is not known, as a share of its channel's spread. In
# noise-free data a site where nearly nothing moves may be perfectly correlated with the field, and looks as informative
# as any; no sensor would resolve it. A geostatistician would call its square a nugget.
ASSUMED_NOISE = 0.01

_SEED = np.uint64(20_261_116)
# The constants of splitmix64 (Steele, Lea & Flood, 2014).
_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def standard_noise(rows: NDArray[np.int64], sites: NDArray[np.int64], channels: int) -> NDArray[np.float64]:
    """Return standard normal numbers keyed by sample, site and channel.

    A sample has the same noise at a site in every part, chunk and process, and whatever other sites are read: counters
    are hashed (splitmix64) and made normal (Box & Muller).

    Parameters
    ----------
    rows : ndarray of int, shape (n,)
        Numbers of the samples in the whole data.
    sites : ndarray of int, shape (k,)
        Positions of the sites in the data.
    channels : int
        Number of channels.

    Returns
    -------
    ndarray of shape (n, channels, k)

    Examples
    --------
    >>> whole = standard_noise(np.arange(4), np.arange(6), 2)
    >>> bool((standard_noise(np.array([2]), np.array([5, 1]), 2) == whole[2:3][:, :, [5, 1]]).all())
    True
    """
    with np.errstate(over="ignore"):
        by_row = _hashed(_hashed(np.asarray(rows).astype(np.uint64) + _SEED))[:, np.newaxis, np.newaxis]
        by_site = np.asarray(sites).astype(np.uint64) * np.uint64(channels)
        keys = by_row + np.arange(channels, dtype=np.uint64)[:, np.newaxis] + by_site
        first, second = _uniform(_hashed(_hashed(keys))), _uniform(_hashed(_hashed(keys) ^ _FIRST))
    return np.asarray(np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second))


def _hashed(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    keys = keys + _STEP
    keys = (keys ^ (keys >> np.uint64(30))) * _FIRST
    keys = (keys ^ (keys >> np.uint64(27))) * _SECOND
    return keys ^ (keys >> np.uint64(31))


def _uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in (0, 1) of the upper 53 bits."""
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
