"""Fit and calibrate prediction intervals (split conformal), and measure their coverage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.samples import Samples
from keyhole.models.intervals import PredictionIntervals
from keyhole.models.reconstructors.base import flat
from keyhole.plan.fitted import FittedModels

__all__ = ["calibrate", "coverage", "coverage_map", "errors_by_failures", "reliability", "spread_of", "width_map"]

_LEVEL = 0.9
_MOST_SAMPLES = 1000
_DRAWS = 30
_MOST_SCORES = 2_000_000  # numbers that a quantile is taken of


def spread_of(models: FittedModels, part: Samples) -> PredictionIntervals:
    """Fit the error spread on samples that the reconstructor was not fitted to.

    Parameters
    ----------
    models
        Fitted models, or a plan.
    part
        Held-out samples in the user's units.
    """
    readings = models.readings_of(part)
    scale = np.repeat(models.error_scale, len(models.domain))
    return PredictionIntervals.fit(
        flat(models.scaled(readings, part.time)), _errors(part, models.reconstruct_samples(part)), scale
    )


def calibrate(models: FittedModels, intervals: PredictionIntervals, part: Samples) -> PredictionIntervals:
    """Calibrate prediction intervals on held-out samples (split conformal prediction).

    Scores ``|error| / spread`` are collected with 0, 1, 2, 4, ... K readings missing at random, so that intervals widen
    when sensors fail.

    Parameters
    ----------
    models
        Final models, fitted to all samples but the calibration and test parts.
    intervals
        Error spread from `spread_of`.
    part
        Calibration samples in the user's units.

    References
    ----------
    Lei, G'Sell, Rinaldo, Tibshirani & Wasserman (2018). Distribution-free predictive inference for regression. JASA.
    """
    readings, rng = models.readings_of(part), np.random.default_rng(0)
    scores: dict[int, NDArray[np.float64]] = {}
    for missing in sorted({0, *(2**power for power in range(12) if 2**power < models.k), models.k}):
        given = np.array(readings, np.float64)
        for row in given:
            row[rng.permutation(len(row))[:missing]] = np.nan
        errors = _errors(part, models.reconstruct_array(given, part.time, part.covariates))
        found = (np.abs(errors) / intervals.spread(flat(models.scaled(given, part.time)))).ravel()
        scores[missing] = found[:: -(-len(found) // _MOST_SCORES)].copy()
    return intervals.calibrated(scores, len(part))


def coverage(
    models: FittedModels, part: Samples, reconstructed: NDArray[Any], level: float = _LEVEL
) -> dict[str, float]:
    """Compute coverage and mean width of the prediction interval.

    Parameters
    ----------
    models, part
        Fitted models with intervals, and samples in the user's units.
    reconstructed
        Their reconstruction of the samples.
    level
        Nominal coverage.

    Returns
    -------
    dict
        ``coverage_90`` and ``width_90`` for level 0.9.
    """
    half = models.half_width(models.readings_of(part), part.time, level)
    within = _within(_errors(part, reconstructed), half)
    name = f"{100 * level:g}"
    return {
        f"coverage_{name}": float(np.nanmean(within)),
        f"width_{name}": 2 * float(_pooled(models, half).mean()),
    }


def reliability(models: FittedModels, part: Samples, levels: Sequence[float]) -> list[float]:
    """Return the coverage of the prediction interval for each nominal level."""
    reconstructed = models.reconstruct_samples(part)
    return [coverage(models, part, reconstructed, level)[f"coverage_{100 * level:g}"] for level in levels]


def width_map(models: FittedModels, part: Samples, level: float = _LEVEL) -> NDArray[np.float64]:
    """Return the mean width of the prediction interval at each site, ``(m,)``, in error units."""
    half = _pooled(models, models.half_width(models.readings_of(part), part.time, level))
    return np.asarray(2 * half.mean(axis=0).reshape(part.channels, -1).mean(axis=0))


def coverage_map(models: FittedModels, part: Samples, level: float = _LEVEL) -> NDArray[np.float64]:
    """Return the coverage of the prediction interval at each site, ``(m,)``; NaN where the truth is always missing."""
    half = models.half_width(models.readings_of(part), part.time, level)
    within = _within(_errors(part, models.reconstruct_samples(part)), half)
    known = (~np.isnan(within)).sum(axis=0)
    shares = np.nansum(within, axis=0) / np.maximum(known, 1)
    shares = np.where(known > 0, shares, np.nan).reshape(part.channels, -1)
    return np.asarray(shares.mean(axis=0))


def errors_by_failures(
    models: FittedModels, part: Samples, most: int, draws: int = _DRAWS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the RMSE under random sensor failures.

    Parameters
    ----------
    models, part
        The plan, and samples in the user's units; at most 1000 evenly spaced ones are used.
    most
        Largest number of failed sensors.
    draws
        Random sets of failed sensors for each number.

    Returns
    -------
    mean, worst
        Mean and largest RMSE over the sets, for 0, 1, ... ``most`` failures.
    """
    part = part.take(np.linspace(0, len(part) - 1, min(len(part), _MOST_SAMPLES)).astype(np.int64))
    readings, rng = models.readings_of(part), np.random.default_rng(0)
    found = []
    for failed in range(min(most, models.k - 1) + 1):
        rmse = []
        for _ in range(draws if failed else 1):
            given = np.array(readings, np.float64)
            given[:, rng.permutation(models.k)[:failed]] = np.nan
            errors = _errors(part, models.reconstruct_array(given, part.time, part.covariates))
            rmse.append(float(np.sqrt(np.nanmean(np.square(_pooled(models, errors))))))
        found.append((np.mean(rmse), np.max(rmse)))
    mean, worst = np.array(found, np.float64).T
    return mean, worst


def _within(errors: NDArray[np.float64], half_width: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return whether each true value lies in its interval, ``(N, channels * m)``, NaN if missing."""
    return np.where(np.isnan(errors), np.nan, np.abs(errors) <= half_width)


def _pooled(models: FittedModels, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``(N, channels * m)`` in units in which channels can be pooled."""
    return np.asarray(values / np.repeat(models.error_scale, len(models.domain)))


def _errors(part: Samples, reconstructed: NDArray[Any]) -> NDArray[np.float64]:
    """Return the errors, ``(N, channels * m)``; NaN where the true value is missing."""
    return np.asarray(flat(part.values - reconstructed), np.float64)
