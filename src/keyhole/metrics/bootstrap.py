"""Standard errors of metrics, and of differences between them, by a block bootstrap over samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyhole.data.series import decorrelation_time

__all__ = ["Ratio", "block_length", "difference_error", "resample", "standard_error", "standard_errors"]

_DRAWS, _SEED = 1000, 0  # the standard error is then itself accurate to 2 %
_MOST_BLOCKS = 2000  # different blocks that are drawn from, so that many samples cost no more


class Ratio(NamedTuple):
    """A metric as a ratio of sums over samples, or the root of one.

    Parameters
    ----------
    part, whole : ndarray of shape (n,)
        Numerator and denominator of each sample, in order of time where there is one, or of each group of samples.
    root : bool
        Whether the metric is the square root of the ratio.

    Examples
    --------
    >>> Ratio(np.array([1.0, 7.0]), np.array([1.0, 1.0]), root=True).value
    2.0
    """

    part: NDArray[np.float64]
    whole: NDArray[np.float64]
    root: bool = False

    @property
    def value(self) -> float:
        """The metric over all samples; NaN where the denominator is zero."""
        return float(self.of(self.part.sum(), self.whole.sum()))

    def of(self, part: Any, whole: Any) -> NDArray[np.float64]:
        """Return the metric from sums of numerators and denominators; NaN where the denominator is zero."""
        part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
        ratio = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
        return np.asarray(np.sqrt(ratio) if self.root else ratio)

    def over(self, groups: NDArray[Any] | None) -> Ratio:
        """Return the same metric with one sum for each group of samples, which are then drawn together.

        Parameters
        ----------
        groups : ndarray of shape (n,), optional
            Label of each sample; None: each sample by itself.
        """
        if groups is None:
            return self
        _, group = np.unique(groups, return_inverse=True)
        part, whole = (np.bincount(group, one).astype(np.float64) for one in (self.part, self.whole))
        return Ratio(part, whole, self.root)

    @property
    def influence(self) -> NDArray[np.float64]:
        """How much each sample moves the ratio, `(part - ratio * whole) / mean(whole)`."""
        total = float(self.whole.sum())
        if not total > 0:
            return np.zeros(len(self.part))
        return np.asarray((self.part - self.part.sum() / total * self.whole) * (len(self.whole) / total))


def standard_errors(ratios: Mapping[str, Ratio], *, is_series: bool) -> dict[str, float]:
    """Return the standard error of each metric, by its name followed by ``_se``; without those that are not known.

    Parameters
    ----------
    ratios : mapping of str to Ratio
        Metrics by name.
    is_series : bool
        Whether consecutive samples may be correlated; see `block_length`.
    """
    errors = {f"{name}_se": standard_error(ratio, is_series=is_series) for name, ratio in ratios.items()}
    return {name: error for name, error in errors.items() if np.isfinite(error)}


def standard_error(ratio: Ratio, *, is_series: bool) -> float:
    """Return the standard error of a metric: its standard deviation over resampled blocks of samples.

    Parameters
    ----------
    ratio : Ratio
        The metric.
    is_series : bool
        Whether consecutive samples may be correlated; see `block_length`.

    Returns
    -------
    float
        NaN where there are too few samples.

    Examples
    --------
    >>> errors = np.random.default_rng(0).exponential(size=400)
    >>> found = standard_error(Ratio(errors, np.ones(400)), is_series=False)
    >>> bool(0.04 < found < 0.06)  # 1 / sqrt(400)
    True
    """
    length = block_length(ratio.influence, is_series=is_series)
    part, whole = resample(np.stack([ratio.part, ratio.whole], axis=1), length).T
    return _deviation(ratio.of(part, whole), len(ratio.part), length)


def difference_error(one: Ratio, other: Ratio, *, is_series: bool) -> float:
    """Return the standard error of the difference of two metrics on the same samples.

    Both are computed from the same resampled blocks (paired): what makes some samples hard for both cancels. It is far
    smaller than the standard errors of the two metrics where these agree on which samples are hard.

    Parameters
    ----------
    one, other : Ratio
        The metrics, with the same samples in the same order.
    is_series : bool
        Whether consecutive samples may be correlated; see `block_length`.

    Returns
    -------
    float
        NaN where there are too few samples.
    """
    length = block_length(one.influence - other.influence, is_series=is_series)
    sums = resample(np.stack([one.part, one.whole, other.part, other.whole], axis=1), length)
    differences = one.of(sums[:, 0], sums[:, 1]) - other.of(sums[:, 2], sums[:, 3])
    return _deviation(differences, len(one.part), length)


def block_length(influence: NDArray[np.floating[Any]], *, is_series: bool) -> int:
    r"""Return the number of consecutive samples in a block.

    For independent samples it is 1. For a series it is :math:`(3 n \tau^2 / 2)^{1/3}` with the decorrelation time
    :math:`\tau` of what is averaged: the length of the smallest mean squared error of the variance for an
    autoregressive process (Politis & White, 2004). It is at most a quarter of the samples.

    Parameters
    ----------
    influence : ndarray of shape (n,) or (n, columns)
        What is averaged, in order of time; the memory of several columns is that of their sum of squares.
    is_series : bool
        Whether consecutive samples may be correlated.

    References
    ----------
    Politis & White (2004). Automatic block-length selection for the dependent bootstrap. Econometric Reviews 23.
    """
    n = len(influence)
    if not is_series or n < 4:
        return 1
    tau = decorrelation_time(influence.reshape(n, -1))
    return int(np.clip(round((1.5 * n * tau**2) ** (1 / 3)), 1, n // 4))


def resample(sums: NDArray[np.float64], length: int, *, n_draws: int = _DRAWS) -> NDArray[np.float64]:
    """Draw circular blocks of consecutive samples, with replacement, and add them up.

    Every draw has as many blocks as make up the number of samples, nearly; the draws are the same for the same numbers.

    Parameters
    ----------
    sums : ndarray of shape (n, columns)
        Values of each sample.
    length : int
        Consecutive samples in a block; the last sample is followed by the first.
    n_draws : int
        Number of draws.

    Returns
    -------
    ndarray of shape (n_draws, columns)
        Sums over each draw.

    References
    ----------
    Politis & Romano (1992). A circular block-resampling procedure for stationary data. In: Exploring the limits of
    bootstrap, Wiley.
    """
    length = _covering(len(sums), length)
    blocks = _block_sums(sums, length)
    count = max(1, round(len(sums) / length))
    drawn = np.random.default_rng(_SEED).integers(len(blocks), size=(n_draws, count))
    drawn += len(blocks) * np.arange(n_draws)[:, np.newaxis]
    counts = np.bincount(drawn.ravel(), minlength=n_draws * len(blocks)).reshape(n_draws, -1)
    return np.asarray(counts.astype(np.float64) @ blocks)


def _step(n: int) -> int:
    """Samples between the beginnings of blocks."""
    return -(-n // _MOST_BLOCKS)


def _covering(n: int, length: int) -> int:
    """Length of blocks that begin every `_step` samples and leave none out."""
    return max(1, length, _step(n))


def _block_sums(sums: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """Sums over the circular blocks, ``(blocks, columns)``."""
    starts = np.arange(0, len(sums), _step(len(sums)))
    around = np.concatenate([np.zeros((1, sums.shape[1])), sums, sums[: length - 1]]).cumsum(axis=0)
    return np.asarray(around[starts + length] - around[starts])


def _deviation(drawn: NDArray[np.float64], n: int, length: int) -> float:
    r"""Standard deviation over draws of nearly ``n`` samples.

    Times the root of :math:`n / (n - l)`, as blocks of length :math:`l` scatter about their own mean; for :math:`l = 1`
    it makes the variance of a mean unbiased.
    """
    length = _covering(n, length)
    if n <= length:
        return float("nan")
    count = max(1, round(n / length))
    return float(np.std(drawn) * np.sqrt(count * length / n * n / (n - length)))
