"""Fit and calibrate prediction intervals (split conformal), and measure their coverage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.samples import Samples
from keyhole.models.intervals import PredictionIntervals
from keyhole.plan.plan import Plan

__all__ = ["calibrate", "coverage", "coverage_map", "errors_by_failures", "reliability", "spread_of", "width_map"]

_LEVEL = 0.9
_MOST_SAMPLES = 1000
_DRAWS = 30
_MOST_SCORES = 2_000_000  # numbers that a quantile is taken of


def spread_of(plan: Plan, part: Samples) -> PredictionIntervals:
    """Fit the error spread of a plan on samples that its reconstructor was not fitted to."""
    readings = part.noisy_readings(plan.indices)
    errors = _errors(plan, part, plan.reconstruct_array(readings, part.time, part.covariates))
    scale = np.repeat(plan.error_scale, len(plan.grid.cells))
    return PredictionIntervals.fit(_rows(plan, readings, part), errors, scale)


def calibrate(plan: Plan, intervals: PredictionIntervals, part: Samples) -> PredictionIntervals:
    """Calibrate prediction intervals on held-out samples (split conformal prediction).

    Scores ``|error| / spread`` are collected with 0, 1, 2, 4, ... K readings missing at random, so that intervals widen
    when sensors fail.

    Parameters
    ----------
    plan
        Final plan, fitted to all samples but the calibration and test parts.
    intervals
        Error spread from `spread_of`.
    part
        Calibration samples in the user's units.
    """
    readings, rng = part.noisy_readings(plan.indices), np.random.default_rng(0)
    scores: dict[int, NDArray[np.float64]] = {}
    for missing in _counts(plan.k):
        given = _with_missing(readings, missing, rng)
        errors = _errors(plan, part, plan.reconstruct_array(given, part.time, part.covariates))
        found = (np.abs(errors) / intervals.spread(_rows(plan, given, part))).ravel()
        scores[missing] = found[:: -(-len(found) // _MOST_SCORES)]
    return intervals.calibrated(scores, len(part))


def coverage(plan: Plan, part: Samples, reconstructed: NDArray[Any], level: float = _LEVEL) -> dict[str, float]:
    """Return coverage and mean width of the prediction interval, as ``coverage_90`` and ``width_90`` for level 0.9."""
    within, width = _within(plan, part, reconstructed, level)
    known = ~np.isnan(within)
    name = f"{100 * level:g}"
    return {f"coverage_{name}": float(within[known].mean()), f"width_{name}": float(width)}


def reliability(plan: Plan, part: Samples, levels: Sequence[float]) -> list[float]:
    """Return the coverage of the prediction interval for each nominal level."""
    reconstructed = plan.reconstruct_array(part.noisy_readings(plan.indices), part.time, part.covariates)
    return [coverage(plan, part, reconstructed, level)[f"coverage_{100 * level:g}"] for level in levels]


def width_map(plan: Plan, part: Samples, level: float = _LEVEL) -> NDArray[np.float64]:
    """Return the mean width of the prediction interval in each cell, in error units; NaN at invalid cells."""
    half = _pooled(plan, plan.half_width(part.noisy_readings(plan.indices), part.time, level))
    return _on_grid(plan, 2 * half.mean(axis=0).reshape(part.channels, -1).mean(axis=0))


def errors_by_failures(
    plan: Plan, part: Samples, most: int, draws: int = _DRAWS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the RMSE under random sensor failures.

    Parameters
    ----------
    plan, part
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
    readings, rng = part.noisy_readings(plan.indices), np.random.default_rng(0)
    found = []
    for lost in range(min(most, plan.k - 1) + 1):
        errors = []
        for _ in range(draws if lost else 1):
            given = np.array(readings, np.float64)
            given[:, rng.permutation(plan.k)[:lost]] = np.nan
            off = _pooled(plan, _errors(plan, part, plan.reconstruct_array(given, part.time, part.covariates)))
            errors.append(float(np.sqrt(np.nanmean(np.square(off)))))
        found.append((np.mean(errors), np.max(errors)))
    mean, worst = np.array(found, np.float64).T
    return mean, worst


def coverage_map(plan: Plan, part: Samples, level: float = _LEVEL) -> NDArray[np.float64]:
    """Return the coverage of the prediction interval in each cell; NaN at invalid cells."""
    reconstructed = plan.reconstruct_array(part.noisy_readings(plan.indices), part.time, part.covariates)
    within, _ = _within(plan, part, reconstructed, level)
    known = (~np.isnan(within)).sum(axis=0)
    shares = np.nansum(within, axis=0) / np.maximum(known, 1)
    shares = np.where(known > 0, shares, np.nan).reshape(part.channels, -1)
    return _on_grid(plan, shares.mean(axis=0))


def _on_grid(plan: Plan, cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Place values of the valid cells on the grid, NaN elsewhere."""
    full = np.full(plan.grid.size, np.nan)
    full[plan.grid.cells] = cells
    return full.reshape(plan.grid.shape)


def _within(plan: Plan, part: Samples, reconstructed: NDArray[Any], level: float) -> tuple[NDArray[np.float64], float]:
    """Return whether each true value lies in the interval, ``(N, channels * cells)``, NaN if missing; and its width."""
    readings = part.noisy_readings(plan.indices)
    half = plan.half_width(readings, part.time, level)
    errors = _errors(plan, part, reconstructed)
    within = np.where(np.isnan(errors), np.nan, np.abs(errors) <= half)
    return within, 2 * float(_pooled(plan, half).mean())


def _pooled(plan: Plan, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``(N, channels * cells)`` in units in which channels can be pooled."""
    scale = plan.error_scale
    return np.asarray((values.reshape(len(values), len(scale), -1) / scale[:, np.newaxis]).reshape(values.shape))


def _errors(plan: Plan, part: Samples, reconstructed: NDArray[Any]) -> NDArray[np.float64]:
    off = (part.values - reconstructed).reshape(len(part), part.channels, -1)[:, :, plan.grid.cells]
    return np.asarray(off.reshape(len(part), -1), np.float64)


def _rows(plan: Plan, readings: NDArray[Any], part: Samples) -> NDArray[np.float32]:
    return plan.scaled(readings, part.time).reshape(len(readings), -1)


def _counts(k: int) -> list[int]:
    """Return 0, 1, 2, 4, ... and ``k``."""
    return sorted({0, *(2**power for power in range(12) if 2**power < k), k})


def _with_missing(readings: NDArray[Any], missing: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Set ``missing`` random readings of each sample to NaN."""
    given = np.array(readings, np.float64)
    for row in given:
        row[rng.permutation(len(row))[:missing]] = np.nan
    return given
