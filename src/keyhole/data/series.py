"""Permutation test of whether samples without a time are a time series."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from keyhole.data.sample_set import SampleSet
from keyhole.data.values import read_columns

__all__ = ["Evidence", "decorrelation_time", "feature_columns", "feature_sites", "features", "find_series"]

_WINDOW = 7  # samples whose 2520 orders (up to reversal) are all compared
_LAGS = (1, 2, 3, 4)  # lags at which the samples of a window are compared: oscillations may be faster than four samples
_COARSER = 2  # times that neighbours are averaged in pairs, against noise
_LEVEL = 1e-5  # of each of the six tests
_MOST_MEAN = 0.3  # mean rank; a set sorted by class has a higher one if classes have about 100 samples or more
_FEWEST, _FEWEST_COARSE = 4, 28  # windows
_MOST_WINDOWS = 512
_MOST_VALUES, _CELLS = 2_000_000, (8, 512)  # held in all; cells that stand for a sample, at least and at most
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Evidence:
    """Result of the test for a time series.

    Parameters
    ----------
    correlation : float
        Correlation of consecutive samples, over the sites that were examined.
    p_value : float
        Upper bound of the probability of such a result if the samples were in random order.
    """

    correlation: float
    p_value: float

    @property
    def reason(self) -> str:
        """The evidence as a phrase, for the split's ``reason``."""
        return f"samples look like a series: neighbours correlate at {self.correlation:.2f}"


def features(samples: SampleSet) -> NDArray[np.float32]:
    """Return values at evenly spaced valid sites, centred and scaled by channel, for `find_series`.

    Parameters
    ----------
    samples : SampleSet
        All samples in order; a missing value is replaced by the mean of its site.

    Returns
    -------
    ndarray of shape (n, features)
        float32.
    """
    return np.nan_to_num(feature_columns(samples), copy=False)


def feature_columns(samples: SampleSet) -> NDArray[np.float32]:
    """Return `features` with NaN where a value is missing."""
    rows = read_columns(samples.source, feature_sites(samples.shape))
    known = ~np.isnan(rows)
    mean = np.where(known, rows, 0).sum(axis=0, dtype=np.float64) / np.maximum(known.sum(axis=0), 1)
    spread = np.sqrt(np.square(np.where(known, rows - mean, 0)).mean(axis=(0, 2)))
    scaled = (rows - mean) / np.where(spread > 0, spread, 1)[:, np.newaxis]
    return np.asarray(scaled.reshape(len(rows), -1), np.float32)


def feature_sites(shape: tuple[int, int, int]) -> NDArray[np.int64]:
    """Return evenly spaced sites that stand for samples of a shape ``(n, channels, m)``."""
    n, channels, m = shape
    low, high = _CELLS
    most = min(m, max(low, min(high, _MOST_VALUES // (n * channels))))
    return np.linspace(0, m - 1, most).astype(np.int64)


def find_series(rows: NDArray[np.floating]) -> Evidence | None:
    r"""Test whether consecutive samples are more alike than samples farther apart.

    Samples are cut into windows of seven. Under the null hypothesis of exchangeable samples every order within a window
    is equally likely, so the rank of the true order, by the summed squared distance between samples one lag apart, is
    uniform and independent between windows: an exact permutation test. With the mean rank :math:`u` of :math:`n`
    windows,

    .. math:: p \le \min\left(e^{-6 n (1/2 - u)^2}, (n u)^n / n!\right).

    The test is made for lags 1 to 4 (oscillations), and for means of 2 and of 4 consecutive samples (slow changes under
    noise), each at the level 1e-5.

    Data sets sorted by class are not a series: the order within a class is random, and few windows span two classes.
    Small groups of similar samples (several views of one object) do count as a series, since a random split would put
    members of one group in both training and test.

    Parameters
    ----------
    rows : ndarray of shape (N, features)
        Samples in order.

    Returns
    -------
    Evidence or None
        None where the null hypothesis is not rejected.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> steps = rng.normal(size=(100, 5))
    >>> find_series(steps) is None, find_series(steps.cumsum(axis=0)) is None
    (True, False)
    """
    candidates = (ranks for ranks in _all_ranks(rows) if ranks.mean() <= _MOST_MEAN)
    p_value = min((_p_value(ranks) for ranks in candidates), default=1.0)
    return Evidence(_correlation(rows), p_value) if p_value <= _LEVEL else None


def decorrelation_time(rows: NDArray[np.floating]) -> int:
    r"""Return the number of samples after which a series has forgotten its state.

    It is the smallest lag at which the autocorrelation, pooled over all columns with the weight of their variance, is
    below :math:`1/e`. At least 1, and at most half of the samples.

    Parameters
    ----------
    rows : ndarray of shape (N, features)
        Samples in order, such as `features` returns them.

    Returns
    -------
    int

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise, series = rng.normal(size=(2000, 3)), np.zeros((2000, 3))
    >>> for i in range(1, 2000):
    ...     series[i] = 0.9 * series[i - 1] + noise[i]
    >>> decorrelation_time(noise), 8 <= decorrelation_time(series) <= 12  # 0.9 ** 9.5 = 1 / e
    (1, True)
    """
    n = len(rows)
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    spectrum = np.square(np.abs(np.fft.rfft(centred, n=2 * n, axis=0))).sum(axis=1)
    products = np.fft.irfft(spectrum, n=2 * n)[: max(2, n // 2)]
    if not products[0] > 0:
        return 1
    below = np.flatnonzero(products / products[0] < np.exp(-1))
    return int(below[0]) if len(below) else max(1, n // 2)


def _all_ranks(rows: NDArray[np.floating]) -> Iterator[NDArray[np.float64]]:
    """Ranks of the windows in each test."""
    if len(rows) < _FEWEST * _WINDOW:
        return
    distances = _distances(rows)
    for lag in _LAGS:
        yield _ranks(distances, lag)
    for _ in range(_COARSER):
        if len(rows) < 2 * _FEWEST_COARSE * _WINDOW:
            return
        rows = (rows[: len(rows) // 2 * 2 : 2] + rows[1::2]) / 2
        yield _ranks(_distances(rows), 1)


def _distances(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Squared distances between the samples of each window, ``(windows, pairs)``."""
    starts = np.arange(0, len(rows) - _WINDOW + 1, _WINDOW)
    if len(starts) > _MOST_WINDOWS:
        starts = starts[np.linspace(0, len(starts) - 1, _MOST_WINDOWS).astype(np.int64)]
    windows = rows[starts[:, np.newaxis] + np.arange(_WINDOW)].astype(np.float64)
    return np.stack([np.square(windows[:, i] - windows[:, j]).sum(axis=1) for i, j in _PAIRS], axis=1)


def _ranks(distances: NDArray[np.float64], lag: int) -> NDArray[np.float64]:
    """Share of the orders of each window in which samples ``lag`` apart are as near as in the true one, or nearer."""
    sums = distances @ _adjacent(lag).T
    own = sums[:, :1] + _ROUNDING * distances.sum(axis=1, keepdims=True)
    return np.asarray((sums <= own).mean(axis=1))


@cache
def _adjacent(lag: int) -> NDArray[np.float64]:
    """Which pairs stand ``lag`` apart in each order, ``(orders, pairs)``; the true order is the first."""
    orders = [order for order in permutations(range(_WINDOW)) if order[0] < order[-1]]
    place = {pair: i for i, pair in enumerate(_PAIRS)}
    found = np.zeros((len(orders), len(_PAIRS)))
    for row, order in zip(found, orders, strict=True):
        for one, other in zip(order, order[lag:], strict=False):
            row[place[min(one, other), max(one, other)]] = 1
    return found


def _p_value(ranks: NDArray[np.float64]) -> float:
    """Upper bound of the probability of so small a sum of uniform ranks: sub-Gaussian, or the volume of a simplex."""
    n, total = len(ranks), float(ranks.sum())
    gaussian = -6 * n * max(0.0, 0.5 - total / n) ** 2
    simplex = n * math.log(total) - math.lgamma(n + 1)
    return math.exp(min(0.0, gaussian, simplex))


def _correlation(rows: NDArray[np.floating]) -> float:
    """Correlation of consecutive samples."""
    wide = rows.astype(np.float64)
    return float((wide[:-1] * wide[1:]).sum() / np.square(wide).sum() * len(rows) / (len(rows) - 1))


_PAIRS = tuple(combinations(range(_WINDOW), 2))
