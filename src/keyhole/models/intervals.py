"""Prediction intervals: a local error scale, calibrated by the errors on held-out samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError
from keyhole.core.storage import array_of
from keyhole.data.series import decorrelation_time
from keyhole.models.error_components import ErrorComponents
from keyhole.models.recency import choose_half_life, recency_weights, weighted_quantiles

__all__ = ["MOST_SAMPLES", "HeldOut", "Incomplete", "PredictionIntervals"]

MOST_SAMPLES = 600  # a plan's file, and the Gram matrix of the errors, grow with them
_MOST_COMPONENTS = 50
_LEAST_COMPONENTS = 16
_NEIGHBOURS = (10, 30, 100)  # candidates
_PRIOR = 10.0  # weight of the mean over all samples, in neighbours
_LEVELS = np.linspace(0, 1, 401)
_CHUNK = 256
_MOST_SCORES = 2**19  # numbers that a quantile is taken of
_MOST_COLUMNS = 1000  # that the number of neighbours is chosen on
_NODES = 15  # of the normal distribution of what the components leave
_COMPONENTS = ("variance", "loadings", "scores", "remainder")


class HeldOut(NamedTuple):
    """Errors on samples that the models were not fitted to.

    Parameters
    ----------
    readings
        ``(n, K * channels)``, scaled.
    errors
        ``(n, channels * m)``, in the user's units; NaN where the truth is missing.
    folds
        ``(n,)``, which samples were held out together: the scale of an error is never estimated from its own fold.
    """

    readings: NDArray[Any]
    errors: NDArray[Any]
    folds: NDArray[np.int64]


class Incomplete(NamedTuple):
    """Errors on some of the held-out samples at some of the sites, where readings are missing.

    Parameters
    ----------
    rows
        ``(s,)``, number of each sample among those held out.
    readings
        ``(s, K * channels)``, scaled, with imputed values in place of the missing ones.
    errors
        ``(s, columns)``, at evenly spaced sites (see `PredictionIntervals.columns`).
    """

    rows: NDArray[np.int64]
    readings: NDArray[Any]
    errors: NDArray[Any]


@dataclass(frozen=True, eq=False)
class PredictionIntervals:
    """Prediction intervals of the reconstructed field and of weighted sums of it, by site and by readings.

    The error scale of a site is the root mean squared error of held-out samples: over those with the nearest readings,
    shrunk towards the mean over all, or over all. The number of neighbours maximises the Gaussian likelihood of errors
    whose own fold is left out. The interval is the reconstruction plus and minus the scale times a factor: the quantile
    of `|error| / scale`, with the scale of each sample from the other folds, for each number of missing readings. In a
    series recent samples may count more (`choose_half_life`).

    Errors at different sites are correlated, so that the interval of a mean does not follow from those of its sites. It
    is made in the same way from the errors of the mean, which are kept as principal components (`ErrorComponents`).

    Parameters
    ----------
    components
        Errors of the held-out samples, in order of time where they have one.
    neighbours
        Number of nearest neighbours; 0 for the mean over all samples.
    readings
        ``(n, K * channels)``, scaled readings of the samples that may be neighbours; none if ``neighbours`` is 0.
    folds
        ``(n,)``, fold of each sample.
    half_life
        Of the weights of the samples, as a share of the series; 0: all count the same.
    factors
        Quantiles of `|error| / scale` at 401 levels from 0 to 1, by the number of missing readings.
    samples
        Number of samples that the factors were calibrated on; with weights, as many as tell as much without.
    correlated
        Whether the components tell how errors at different sites are correlated; not so in older files.

    References
    ----------
    Lei, G'Sell, Rinaldo, Tibshirani & Wasserman (2018), *Distribution-Free Predictive Inference for Regression*, JASA
    113, section 5.2 (locally weighted). Barber, Candès, Ramdas & Tibshirani (2021), *Predictive inference with the
    jackknife+*, Annals of Statistics 49 (cross-fitting); (2023), *Conformal prediction beyond exchangeability*, ibid.
    51 (weights for recent samples).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> errors = rng.normal(size=(400, 1)) + rng.normal(size=(400, 5))  # correlated between five sites
    >>> held_out = HeldOut(rng.normal(size=(400, 2)), errors, np.repeat(np.arange(5), 80))
    >>> intervals = PredictionIntervals.fit(held_out)
    >>> round(intervals.factor(0.9, missing=0), 1)  # near the normal distribution's 1.645
    1.7
    >>> half = intervals.functional(np.full(5, 0.2), np.zeros((1, 2)), 0.9, np.zeros(1))  # of the mean of five sites
    >>> bool(1.5 < half[0] / np.sqrt(1 + 1 / 5) < 1.8)  # what is common to all does not average out
    True
    """

    components: ErrorComponents
    neighbours: int
    readings: NDArray[np.float32]
    folds: NDArray[np.int64]
    half_life: float = 0.0
    factors: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    samples: int = 0
    correlated: bool = True

    @classmethod
    def fit(
        cls, held_out: HeldOut, incomplete: Mapping[int, Incomplete] | None = None,
        *, scale: NDArray[np.float64] | None = None, series: bool = False, local: bool = True,
    ) -> Self:  # fmt: skip
        """Estimate error scale and factors.

        Parameters
        ----------
        held_out
            Errors with all readings, at most `MOST_SAMPLES` rows; of a series in order of time.
        incomplete
            Errors with missing readings, by the number of these.
        scale
            ``(channels * m,)``, units in which errors of different channels are comparable; None if they are.
        series
            Whether recent samples may count more.
        local
            Whether the scale may depend on the readings.
        """
        most = min(_MOST_COMPONENTS, max(_LEAST_COMPONENTS, 2 * (held_out.readings.shape[1] + 1)))
        components = ErrorComponents.of(held_out.errors, most=most, scale=scale)
        fitted = cls(components, 0, held_out.readings.astype(np.float32), held_out.folds)
        columns = cls.columns(*held_out.errors.shape)
        errors, squares = np.abs(held_out.errors[:, columns]), components.squares(columns)
        fitted = fitted._with_best_neighbours(errors, squares) if local else fitted
        rows = np.arange(len(components))
        scores = errors / fitted._spread_by_others(rows, fitted.readings, squares)
        if series:
            fitted = replace(fitted, half_life=choose_half_life(scores))
        factors = {0: weighted_quantiles(scores, fitted.weights, _LEVELS)}
        for missing, one in (incomplete or {}).items():
            scores = np.abs(one.errors) / fitted._spread_by_others(one.rows, one.readings, squares)
            factors[missing] = weighted_quantiles(scores, fitted.weights[one.rows], _LEVELS)
        if not fitted.neighbours:
            fitted = replace(fitted, readings=fitted.readings[:0])
        effective = np.square(fitted.weights.sum()) / np.square(fitted.weights).sum()
        return replace(fitted, factors=factors, samples=round(float(effective)))

    @staticmethod
    def columns(n: int, outputs: int) -> NDArray[np.int64]:
        """Return the evenly spaced sites that factors are calibrated on, for n samples."""
        return np.arange(0, outputs, -(-n * outputs // _MOST_SCORES))

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weight of each sample, ``(n,)``."""
        return recency_weights(len(self.components), self.half_life)

    def spread(self, readings: NDArray[Any]) -> NDArray[np.float64]:
        """Return the error scale ``(N, channels * m)`` for readings ``(N, K * channels)``."""
        if not self.neighbours:
            scale = np.sqrt(self.components.variance)
            return np.broadcast_to(scale, (len(readings), len(scale)))
        return self._spread(readings, self._squares, self.components.variance)

    def factor(self, level: float, missing: int) -> float:
        """Return the factor of the error scale that gives the nominal coverage.

        Parameters
        ----------
        level
            Nominal coverage, from 0 to 1.
        missing
            Number of missing readings; interpolated between those calibrated.
        """
        counts, adjusted = sorted(self.factors), _adjusted(level, self.samples)
        quantiles = [float(np.interp(adjusted, _LEVELS, self.factors[count])) for count in counts]
        return float(np.interp(missing, counts, quantiles))

    def functional(
        self, weights: NDArray[np.float64], readings: NDArray[Any], level: float, missing: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Return half the width of the prediction interval of a weighted sum over the field.

        The factor is the quantile of the errors of this sum, relative to their own local scale. Errors of large regions
        persist, so that the finite-sample correction goes by the number of independent errors: with few of them the
        quantile is the largest error. Missing readings widen the interval as they do on average over the sites.

        Parameters
        ----------
        weights
            ``(channels * m,)``.
        readings
            ``(N, K * channels)``, scaled.
        level
            Nominal coverage, from 0 to 1.
        missing
            ``(N,)``, number of missing readings.

        Returns
        -------
        ndarray
            ``(N,)``.
        """
        resolved, variance = self.components.project(weights)
        squares = (np.square(resolved) + variance)[:, np.newaxis]
        rows = np.arange(len(squares))
        own = self._spread_by_others(rows, self.readings, squares)
        errors = np.abs(resolved[:, np.newaxis] + np.sqrt(variance)[:, np.newaxis] * _normal_nodes())
        independent = self.samples / (2 * decorrelation_time(resolved[:, np.newaxis]) - 1)
        factor = weighted_quantiles(errors / own, self.weights, np.array([_adjusted(level, independent)]))[0]
        widening = np.array([self.factor(level, int(count)) for count in missing]) / self.factor(level, 0)
        return np.asarray(self._spread(readings, squares, squares.mean(axis=0))[:, 0] * factor * widening)

    @cached_property
    def _squares(self) -> NDArray[np.float32]:
        """Squared errors of all samples at all sites."""
        return self.components.squares()

    def _spread(
        self, readings: NDArray[Any], squares: NDArray[Any], average: NDArray[Any], among: NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """Root mean square over the neighbours ``among`` the samples, shrunk towards the average; or that average."""
        smallest = np.finfo(np.float32).tiny
        if not self.neighbours:
            scale = np.sqrt(np.maximum(average, smallest))
            return np.broadcast_to(scale, (len(readings), len(scale)))
        from scipy.spatial import KDTree

        known, squares = (rows if among is None else rows[among] for rows in (self.readings, squares))
        count = round(self.neighbours * len(known) / len(self.readings))  # as far away as among all
        finite, found, tree = np.isfinite(readings).all(axis=1, keepdims=True), [], KDTree(known)
        for chunk in np.array_split(np.where(finite, readings, 0), -(-len(readings) // _CHUNK) or 1):
            _, nearest = tree.query(chunk, count)
            indicator = np.zeros((len(chunk), len(known)), squares.dtype)
            np.put_along_axis(indicator, nearest.reshape(len(chunk), count), squares.dtype.type(1), axis=1)
            found.append((indicator @ squares + _PRIOR * average) / (count + _PRIOR))
        return np.where(finite, np.sqrt(np.maximum(np.concatenate(found), smallest)), np.nan)

    def _spread_by_others(
        self, rows: NDArray[np.int64], readings: NDArray[Any], squares: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Error scale of some of the samples from those of the other folds; from all, where there is one fold."""
        spread = np.empty((len(rows), squares.shape[1]))
        readings = readings if self.neighbours else np.empty((len(rows), 0))
        for fold in np.unique(self.folds[rows]):
            mine, others = self.folds[rows] == fold, self.folds != fold
            others |= not others.any()
            spread[mine] = self._spread(readings[mine], squares, squares[others].mean(axis=0), others)
        return spread

    def _with_best_neighbours(self, errors: NDArray[Any], squares: NDArray[Any]) -> Self:
        """Choose the number of neighbours by the mean Gaussian deviance (minus twice the log-likelihood) of errors."""
        rows = np.arange(0, len(errors), -(-len(errors) // _CHUNK))
        columns = slice(None, None, -(-errors.shape[1] // _MOST_COLUMNS))
        observed, squares = np.square(errors[rows, columns], dtype=np.float64), squares[:, columns]
        fewest = len(self.folds) - int(np.unique(self.folds, return_counts=True)[1].max())
        deviance = {}
        for count in (0, *(count for count in _NEIGHBOURS if 2 * count < fewest)):
            tried = replace(self, neighbours=count)
            variance = np.square(tried._spread_by_others(rows, self.readings[rows], squares))
            deviance[count] = float(np.nanmean(np.log(variance) + observed / variance))
        return replace(self, neighbours=min(deviance, key=deviance.__getitem__))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return settings and arrays from which ``restore`` recovers the intervals."""
        counts = sorted(self.factors)
        factors = np.reshape([self.factors[count] for count in counts], (len(counts), len(_LEVELS)))
        settings = {"neighbours": self.neighbours, "samples": self.samples, "missing": counts}
        settings |= {"half_life": self.half_life}
        settings |= {} if self.correlated else {"correlated": False}
        arrays: dict[str, NDArray[Any]] = {name: getattr(self.components, name) for name in _COMPONENTS}
        return settings, arrays | {"readings": self.readings, "folds": self.folds, "factors": factors}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Recover intervals from the result of ``state``.

        Raises
        ------
        PlanError
            If the parts are malformed or inconsistent.
        """
        counts, neighbours = settings["missing"], settings["neighbours"]
        variance = array_of(arrays, "variance", (None,))
        loadings = array_of(arrays, "loadings", (None, len(variance)))
        scores = array_of(arrays, "scores", (None, len(loadings)))
        components = ErrorComponents(variance, loadings, scores, array_of(arrays, "remainder", (len(scores),)))
        readings = array_of(arrays, "readings", (len(scores) if neighbours else 0, None))
        folds = array_of(arrays, "folds", (len(scores),), "iu").astype(np.int64)
        factors = array_of(arrays, "factors", (len(counts), len(_LEVELS)))
        if counts != sorted(set(counts)) or 2 * neighbours > len(scores):
            raise PlanError("intervals: missing must increase, and neighbours be at most half of the stored samples")
        if (variance <= 0).any() or (components.remainder < 0).any() or (factors < 0).any():
            raise PlanError("intervals: variances and factors must be positive")
        return cls(
            components, neighbours, readings, folds, settings["half_life"], dict(zip(counts, factors, strict=True)),
            settings["samples"], settings["correlated"],
        )  # fmt: skip

    def takes(self, readings: int, outputs: int) -> bool:
        """Return whether the intervals are for so many readings (sites times channels) and outputs."""
        return len(self.components.variance) == outputs and self.readings.shape[1] == readings


def _adjusted(level: float, samples: float) -> float:
    """Level with the finite-sample correction of conformal prediction."""
    return min(1.0, level * (1 + 1 / max(samples, 1)))


@cache
def _normal_nodes() -> NDArray[np.float64]:
    """Evenly likely values of a standard normal variable."""
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(_NODES) + 0.5) / _NODES))
