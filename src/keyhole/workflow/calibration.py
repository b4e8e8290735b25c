"""From a plan's errors to its bands, and how often the truth lies within."""

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
    """Learn how far off a plan is from samples that its reconstructor did not learn from."""
    readings = part.noisy_readings(plan.indices)
    errors = _errors(plan, part, plan.reconstruct_array(readings, part.time, part.covariates))
    scale = np.repeat(plan.error_scale, len(plan.grid.cells))
    return PredictionIntervals.fit(_rows(plan, readings, part), errors, scale)


def calibrate(plan: Plan, intervals: PredictionIntervals, part: Samples) -> PredictionIntervals:
    """Calibrate bands on samples held back, with none, one, two, four, ... readings missing."""
    readings, rng = part.noisy_readings(plan.indices), np.random.default_rng(0)
    scores: dict[int, NDArray[np.float64]] = {}
    for missing in _counts(plan.k):
        given = _with_missing(readings, missing, rng)
        errors = _errors(plan, part, plan.reconstruct_array(given, part.time, part.covariates))
        found = (np.abs(errors) / intervals.spread(_rows(plan, given, part))).ravel()
        scores[missing] = found[:: -(-len(found) // _MOST_SCORES)]
    return intervals.calibrated(scores, len(part))


def coverage(plan: Plan, part: Samples, reconstructed: NDArray[Any], level: float = _LEVEL) -> dict[str, float]:
    """Share of known truths within the band, and its mean width, in the units of the plan's errors."""
    within, width = _within(plan, part, reconstructed, level)
    known = ~np.isnan(within)
    name = f"{100 * level:g}"
    return {f"coverage_{name}": float(within[known].mean()), f"width_{name}": float(width)}


def reliability(plan: Plan, part: Samples, levels: Sequence[float]) -> list[float]:
    """Share of known truths within the band, for each share asked for."""
    reconstructed = plan.reconstruct_array(part.noisy_readings(plan.indices), part.time, part.covariates)
    return [coverage(plan, part, reconstructed, level)[f"coverage_{100 * level:g}"] for level in levels]


def width_map(plan: Plan, part: Samples, level: float = _LEVEL) -> NDArray[np.float64]:
    """Mean width of the band in each cell, in the units of the plan's errors; NaN outside."""
    half = _pooled(plan, plan.half_width(part.noisy_readings(plan.indices), part.time, level))
    return _on_grid(plan, 2 * half.mean(axis=0).reshape(part.channels, -1).mean(axis=0))


def errors_by_failures(
    plan: Plan, part: Samples, most: int, draws: int = _DRAWS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and largest RMSE over sets of failed sites, for 0, 1, ... ``most`` of them, drawn at random.

    Of a large part a thousand samples are used, evenly spaced.
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
    """Share of known truths within the band, of each cell; NaN outside."""
    reconstructed = plan.reconstruct_array(part.noisy_readings(plan.indices), part.time, part.covariates)
    within, _ = _within(plan, part, reconstructed, level)
    known = (~np.isnan(within)).sum(axis=0)
    shares = np.nansum(within, axis=0) / np.maximum(known, 1)
    shares = np.where(known > 0, shares, np.nan).reshape(part.channels, -1)
    return _on_grid(plan, shares.mean(axis=0))


def _on_grid(plan: Plan, cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Put numbers of the cells inside on the grid, NaN outside."""
    full = np.full(plan.grid.size, np.nan)
    full[plan.grid.cells] = cells
    return full.reshape(plan.grid.shape)


def _within(plan: Plan, part: Samples, reconstructed: NDArray[Any], level: float) -> tuple[NDArray[np.float64], float]:
    """Whether each known truth lies within the band, ``(N, channels * cells)``, NaN where unknown; its mean width."""
    readings = part.noisy_readings(plan.indices)
    half = plan.half_width(readings, part.time, level)
    errors = _errors(plan, part, reconstructed)
    within = np.where(np.isnan(errors), np.nan, np.abs(errors) <= half)
    return within, 2 * float(_pooled(plan, half).mean())


def _pooled(plan: Plan, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give ``(N, channels * cells)`` in units in which channels can be pooled."""
    scale = plan.error_scale
    return np.asarray((values.reshape(len(values), len(scale), -1) / scale[:, np.newaxis]).reshape(values.shape))


def _errors(plan: Plan, part: Samples, reconstructed: NDArray[Any]) -> NDArray[np.float64]:
    off = (part.values - reconstructed).reshape(len(part), part.channels, -1)[:, :, plan.grid.cells]
    return np.asarray(off.reshape(len(part), -1), np.float64)


def _rows(plan: Plan, readings: NDArray[Any], part: Samples) -> NDArray[np.float32]:
    return plan.scaled(readings, part.time).reshape(len(readings), -1)


def _counts(k: int) -> list[int]:
    """0, 1, 2, 4, ... and all."""
    return sorted({0, *(2**power for power in range(12) if 2**power < k), k})


def _with_missing(readings: NDArray[Any], missing: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Leave out so many sites of each sample, drawn at random."""
    given = np.array(readings, np.float64)
    for row in given:
        row[rng.permutation(len(row))[:missing]] = np.nan
    return given
