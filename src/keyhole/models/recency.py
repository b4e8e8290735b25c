"""Weights for recent samples, and quantiles with weights."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["choose_half_life", "recency_weights", "weighted_quantiles"]

_HALF_LIVES = (0.5, 0.25, 0.125)  # candidates, as shares of the series
_BLOCKS = 6  # of the series; the later four are predicted from what is before them
_FEWEST = 60  # samples; with fewer, blocks are too short to tell coverages apart
_LEAST_GAIN = 0.015  # of the mean difference to the nominal coverage, and
_LEAST_SHARE = 0.3  # of it, that weights must save
_MOST_SCORES = 50_000


def recency_weights(n: int, half_life: float) -> NDArray[np.float64]:
    """Return weights that decay exponentially with age, the last being one.

    Parameters
    ----------
    n
        Number of samples in order of time.
    half_life
        As a share of the n samples; 0: all weights are one.

    Examples
    --------
    >>> recency_weights(4, 0.25)
    array([0.125, 0.25 , 0.5  , 1.   ])
    """
    return np.ones(n) if half_life == 0 else np.exp2(-(n - 1 - np.arange(n)) / (half_life * n))


def weighted_quantiles(
    values: NDArray[Any], weights: NDArray[np.float64], levels: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return quantiles of values whose rows have weights; NaN are left out.

    Parameters
    ----------
    values
        ``(n, columns)``.
    weights
        ``(n,)``, positive.
    levels
        From 0 to 1.

    Returns
    -------
    ndarray
        As many as levels; infinite where there are no values.

    Examples
    --------
    >>> weighted_quantiles(np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 1.0, 2.0]), np.array([0.5]))
    array([2.33333333])
    """
    known = ~np.isnan(values)
    found = values[known].astype(np.float64)
    if not len(found):
        return np.full(len(levels), np.inf)
    order = found.argsort()
    mass = np.broadcast_to(weights[:, np.newaxis], values.shape)[known][order]
    middle = (mass.cumsum() - mass / 2) / mass.sum()
    return np.asarray(np.interp(levels, middle, found[order]), np.float64)


def choose_half_life(scores: NDArray[Any], level: float = 0.9) -> float:
    """Return the half-life with which earlier samples predict the quantiles of later ones best.

    The later two thirds of the series are cut into four blocks. The quantile of all samples before a block, weighted by
    their age, is compared with the share of the block's scores below it. Weights are kept only if they bring coverages
    clearly nearer to the level: weights cost precision, and on stationary series gain nothing.

    Parameters
    ----------
    scores
        ``(n, columns)`` in order of time; NaN are left out.
    level
        Of the quantile.

    Returns
    -------
    float
        As a share of the series; 0: no weights.

    Examples
    --------
    >>> noise = np.abs(np.random.default_rng(0).normal(size=(600, 20)))
    >>> growing = noise * np.where(np.arange(600) < 300, 1, 3)[:, np.newaxis]
    >>> choose_half_life(noise), choose_half_life(growing) > 0
    (0.0, True)
    """
    if len(scores) < _FEWEST:
        return 0.0
    some = scores[:, :: -(-scores.size // _MOST_SCORES)]
    misses = {half_life: _mean_miss(some, half_life, level) for half_life in (0.0, *_HALF_LIVES)}
    best, plain = min(misses, key=misses.__getitem__), misses[0.0]
    saved = plain - misses[best]
    return best if saved > max(_LEAST_GAIN, _LEAST_SHARE * plain) else 0.0


def _mean_miss(scores: NDArray[Any], half_life: float, level: float) -> float:
    """Mean absolute difference between the coverage of later blocks and the level."""
    n = len(scores)
    edges = np.linspace(0, n, _BLOCKS + 1).astype(np.int64)[_BLOCKS // 3 :]
    misses = []
    for start, stop in pairwise(edges.tolist()):
        weights = recency_weights(n, half_life)[n - start :]
        quantile = weighted_quantiles(scores[:start], weights, np.array([level]))[0]
        block = scores[start:stop]
        known = ~np.isnan(block)
        misses.append(abs(float((block[known] <= quantile).mean()) - level) if known.any() else 0.0)
    return float(np.mean(misses))
