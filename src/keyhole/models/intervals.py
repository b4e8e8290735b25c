"""Prediction intervals: a local error scale, calibrated by split conformal prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError
from keyhole.core.storage import array_of

__all__ = ["PredictionIntervals"]

_MAX_SAMPLES = 1000  # kept as possible neighbours: a plan's file grows with them
_NEIGHBOURS = (10, 30, 100)  # candidates
_PRIOR = 10.0  # weight of the mean over all samples, in neighbours
_LEVELS = np.linspace(0, 1, 401)
_CHUNK = 256


@dataclass(frozen=True, eq=False)
class PredictionIntervals:
    """Prediction intervals of the reconstructed field, by site and by readings.

    The error scale of a site is the root mean squared error of held-out samples: over those with the nearest readings,
    shrunk towards the mean over all, or over all. The number of neighbours maximises the leave-one-out Gaussian
    likelihood. The interval is the reconstruction plus and minus the scale times a factor: the quantile of
    `|error| / scale` over further held-out samples (split conformal prediction with a normalised score), estimated for
    each number of missing readings.

    Parameters
    ----------
    average
        ``(channels * valid sites,)``, mean squared error of each site in the user's units.
    neighbours
        Number of nearest neighbours; 0 for the mean over all samples.
    readings
        ``(n, K * channels)``, scaled readings of the samples that may be neighbours.
    squares
        ``(n, channels * valid sites)``, their squared errors; NaN where the truth is missing.
    factors
        Quantiles of `|error| / scale` at 401 levels from 0 to 1, by the number of missing readings.
    samples
        Number of samples that the factors were calibrated on.

    References
    ----------
    Lei, G'Sell, Rinaldo, Tibshirani & Wasserman (2018), *Distribution-Free Predictive Inference for Regression*, JASA
    113, sections 2.2 (split conformal) and 5.2 (locally weighted).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> readings, errors = rng.normal(size=(400, 2)), rng.normal(size=(400, 5))
    >>> fitted = PredictionIntervals.fit(readings[:200], errors[:200])
    >>> scores = np.abs(errors[200:]) / fitted.spread(readings[200:])
    >>> intervals = fitted.calibrated({0: scores}, samples=200)
    >>> round(intervals.factor(0.9, missing=0), 1)  # near the normal distribution's 1.645
    1.7
    """

    average: NDArray[np.float64]
    neighbours: int
    readings: NDArray[np.float32]
    squares: NDArray[np.float32]
    factors: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    samples: int = 0

    @classmethod
    def fit(cls, readings: NDArray[Any], errors: NDArray[Any], scale: NDArray[np.float64] | None = None) -> Self:
        """Estimate the error scale from held-out samples.

        Parameters
        ----------
        readings
            ``(n, K * channels)``, scaled.
        errors
            ``(n, channels * valid sites)``, errors of the reconstructions in the user's units; NaN where missing.
        scale
            ``(channels * valid sites,)``, units in which errors of different channels are comparable; None if they are.

        Returns
        -------
        PredictionIntervals
            Not calibrated yet.
        """
        every = -(-len(readings) // _MAX_SAMPLES)
        squares = np.square(errors, dtype=np.float64)
        average = _average(squares, scale)
        fitted = cls(average, 0, readings[::every].astype(np.float32), squares[::every].astype(np.float32))
        counts = [count for count in _NEIGHBOURS if 2 * count < len(fitted.readings)]
        deviance = {count: replace(fitted, neighbours=count)._deviance() for count in (0, *counts)}
        best = min(deviance, key=deviance.__getitem__)
        if best == 0:
            return replace(fitted, readings=fitted.readings[:0], squares=fitted.squares[:0])
        return replace(fitted, neighbours=best)

    def calibrated(self, scores: Mapping[int, NDArray[np.float64]], samples: int) -> PredictionIntervals:
        """Return calibrated intervals.

        Parameters
        ----------
        scores
            Values of `|error| / scale` of samples not used by ``fit``, by number of missing readings.
        samples
            Number of those samples.
        """
        factors = {missing: np.nanquantile(found, _LEVELS) for missing, found in scores.items()}
        return replace(self, factors=factors, samples=samples)

    def spread(self, readings: NDArray[Any]) -> NDArray[np.float64]:
        """Return the error scale ``(N, channels * valid sites)`` for readings ``(N, K * channels)``."""
        if not self.neighbours:
            return np.broadcast_to(np.sqrt(self.average), (len(readings), len(self.average)))
        chunks = np.array_split(readings, -(-len(readings) // _CHUNK) or 1)
        return np.concatenate([np.sqrt(self._variance(chunk)) for chunk in chunks])

    def factor(self, level: float, missing: int) -> float:
        """Return the factor of the error scale that gives the nominal coverage.

        Parameters
        ----------
        level
            Nominal coverage, from 0 to 1.
        missing
            Number of missing readings; interpolated between those calibrated.
        """
        adjusted = min(1.0, level * (1 + 1 / max(self.samples, 1)))  # finite-sample correction of split conformal
        counts = sorted(self.factors)
        quantiles = [float(np.interp(adjusted, _LEVELS, self.factors[count])) for count in counts]
        return float(np.interp(missing, counts, quantiles))

    def _variance(self, readings: NDArray[Any], exclude_self: bool = False) -> NDArray[np.float64]:
        """Mean squared error over the neighbours, shrunk towards the mean over all samples; or that mean."""
        if not self.neighbours:
            return self.average[np.newaxis]
        from scipy.spatial import KDTree

        _, nearest = KDTree(self.readings).query(readings, self.neighbours + exclude_self)
        indicator = np.zeros((len(readings), len(self.squares)), np.float32)
        np.put_along_axis(indicator, nearest[:, int(exclude_self) :], np.float32(1), axis=1)
        total, known = (indicator @ part for part in self._sums)
        return np.asarray((total + _PRIOR * self.average) / (known + _PRIOR))

    @cached_property
    def _sums(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Summands over neighbours: squared errors, zero where missing, and indicators of those not missing."""
        known = ~np.isnan(self.squares)
        return np.where(known, self.squares, np.float32(0)), known.astype(np.float32)

    def _deviance(self) -> float:
        """Leave-one-out mean Gaussian deviance (minus twice the log-likelihood, up to a constant) of the errors."""
        rows = slice(None, None, max(1, len(self.readings) // _CHUNK))
        variance = self._variance(self.readings[rows], exclude_self=True)
        return float(np.nanmean(np.log(variance) + self.squares[rows] / variance))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return settings and arrays from which ``restore`` recovers the intervals."""
        counts = sorted(self.factors)
        factors = np.reshape([self.factors[count] for count in counts], (len(counts), len(_LEVELS)))
        arrays: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in ("average", "readings", "squares")}
        settings = {"neighbours": self.neighbours, "samples": self.samples, "missing": counts}
        return settings, arrays | {"factors": factors}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Recover intervals from the result of ``state``.

        Raises
        ------
        PlanError
            If the parts are malformed or inconsistent.
        """
        counts, neighbours = settings["missing"], settings["neighbours"]
        average = array_of(arrays, "average", (None,))
        readings = array_of(arrays, "readings", (None, None))
        squares = array_of(arrays, "squares", (len(readings), len(average)))
        factors = array_of(arrays, "factors", (len(counts), len(_LEVELS)))
        if counts != sorted(set(counts)) or neighbours > len(readings):
            raise PlanError(
                "intervals: missing must increase, and neighbours must not exceed the number of stored samples"
            )
        if (average < 0).any() or (squares < 0).any() or (factors < 0).any():
            raise PlanError("intervals: squared errors and factors must not be negative")
        return cls(average, neighbours, readings, squares, dict(zip(counts, factors, strict=True)), settings["samples"])

    def takes(self, readings: int, outputs: int) -> bool:
        """Return whether the intervals are for so many readings (sites times channels) and outputs."""
        return len(self.average) == outputs and self.readings.shape[1] == readings


def _average(squares: NDArray[np.float64], scale: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Mean of each column, with the overall mean as one more sample, so that no site has zero error by chance."""
    known, units = ~np.isnan(squares), np.ones(1) if scale is None else np.square(scale)
    total = np.nansum(squares, axis=0)
    overall = float((total / units).sum()) / max(int(known.sum()), 1) * units
    return np.asarray(np.maximum((total + overall) / (known.sum(axis=0) + 1), np.finfo(float).tiny))
