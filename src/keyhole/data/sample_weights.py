"""Weights of samples as repetitions, and an order and a split that do not depend on how samples are repeated."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["repetitions", "row_keys", "validation_count"]

_MOST = 5  # times as many rows as samples
_WHOLE = 1e-9  # relative difference from a whole multiple
_FEWEST_DISTINCT = 10  # rows, below which copies of one may be in both parts


def repetitions(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how often each sample stands in the data, so that all methods and scores count samples by weight.

    Whole multiples of a common unit are exact: a sample of weight two counts as if it were there twice, one of weight
    zero as if it were not. Other weights are rounded to as many rows as five times the samples, the largest remainders
    up, so that each is exact to a tenth of the mean weight.

    Parameters
    ----------
    weights : ndarray of shape (n,)
        Non-negative, not all zero.

    Returns
    -------
    ndarray of int, shape (n,)

    Examples
    --------
    >>> repetitions(np.array([0.5, 1.0, 0.0])).tolist(), repetitions(np.array([1.0, 1.5, 2.0])).tolist()
    ([1, 2, 0], [2, 3, 4])
    """
    most = _MOST * np.count_nonzero(weights)
    multiples = _multiples(weights)
    if multiples is not None and multiples.sum() <= most:
        return multiples
    shares = weights * (most / weights.sum())
    counts = np.floor(shares).astype(np.int64)
    largest = np.argsort(-(shares - counts), kind="stable")[: most - int(counts.sum())]
    counts[largest] += 1
    return np.asarray(counts, np.int64)


def _multiples(weights: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Weights as whole multiples of a common unit; None where there is none that is at least half the smallest one."""
    smallest = float(weights[weights > 0].min())
    for unit in (smallest, smallest / 2):
        multiples = np.round(weights / unit)
        if (np.abs(weights / unit - multiples) <= _WHOLE * np.maximum(multiples, 1)).all():
            return np.asarray(multiples, np.int64)
    if (weights == np.round(weights)).all():
        whole = weights.astype(np.int64)
        return np.asarray(whole // np.gcd.reduce(whole), np.int64)
    return None


def row_keys(values: NDArray[np.floating[Any]], seed: int) -> NDArray[np.uint64]:
    """Return a random number for each row that depends on its values and the seed alone.

    Parameters
    ----------
    values : ndarray of shape (n, m)
        Rows; equal ones have equal keys.
    seed : int
        Random seed.

    Returns
    -------
    ndarray of uint64, shape (n,)
    """
    key, rows = str(seed).encode(), np.ascontiguousarray(values) + 0.0  # one representation of zero
    digests = [hashlib.blake2b(row.data, digest_size=8, key=key).digest() for row in rows]
    return np.frombuffer(b"".join(digests), np.uint64)


def validation_count(keys: NDArray[np.uint64], share: float) -> int:
    """Return how many rows, sorted by key, are the validation part: copies of one row are in one part.

    Parameters
    ----------
    keys : ndarray of shape (n,)
        Sorted.
    share : float
        Share of the rows; the nearest number that separates no copies is taken, unless fewer than ten rows differ.

    Returns
    -------
    int
    """
    wanted = max(1, int(np.ceil(share * len(keys))))
    cuts = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    return wanted if len(cuts) + 1 < _FEWEST_DISTINCT else int(cuts[np.abs(cuts - wanted).argmin()])
