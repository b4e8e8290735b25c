"""Coverage and width of prediction intervals, and errors under sensor failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.samples import Samples
from keyhole.models.reconstructors.base import flat
from keyhole.plan.fitted import FittedModels
from keyhole.plan.functionals import functional_half_widths

__all__ = ["coverage", "coverage_map", "errors_by_failures", "interval_warnings", "reliability", "width_map"]

_LEVEL = 0.9
_LEAST_COVERAGE = 0.85  # of a 90 % interval, without a warning
_MOST_SAMPLES = 1000
_DRAWS = 30


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
        ``coverage_90`` and ``width_90`` for level 0.9; where the areas of the sites are known, ``coverage_90_mean`` is
        that of the interval of the mean over all of them, which systematic errors such as a trend miss first.
    """
    readings, errors = models.readings_of(part), _errors(part, reconstructed)
    half = models.half_width(readings, part.time, level)
    name = f"{100 * level:g}"
    found = {
        f"coverage_{name}": float(np.nanmean(_within(errors, half))),
        f"width_{name}": 2 * float(_pooled(models, half).mean()),
    }
    known = models.intervals is not None and models.intervals.correlated and not np.isnan(errors).any()
    if known and models.domain.area is not None:
        found[f"coverage_{name}_mean"] = _coverage_of_mean(models, readings, part.time, errors, level)
    return found


def _coverage_of_mean(
    models: FittedModels, readings: NDArray[Any], time: NDArray[Any] | None, errors: NDArray[np.float64], level: float
) -> float:
    """Coverage of the interval of the mean over the area of all sites, averaged over the channels."""
    area = np.asarray(models.domain.area)
    half = functional_half_widths(models, area / area.sum(), readings, time, level)
    means = errors.reshape(len(errors), -1, len(area)) @ (area / area.sum())
    return float((np.abs(means) <= half).mean())


def interval_warnings(metrics: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a sentence for each kind of 90 % interval that covers too little of the test part.

    Parameters
    ----------
    metrics
        Of a plan.

    Examples
    --------
    >>> interval_warnings({"test": {"coverage_90": 0.8, "coverage_90_mean": 0.88}})
    ['the 90 % prediction interval covers only 80.0 % of the test values; take it as too narrow for later data']
    """
    scores, found = metrics.get("test", {}), []
    for name, what, values in (
        ("coverage_90", "the 90 % prediction interval", "values"),
        ("coverage_90_mean", "the 90 % prediction interval of the mean over all sites", "means"),
    ):
        if scores.get(name, 1.0) < _LEAST_COVERAGE:
            share = f"{100 * scores[name]:.1f} %"
            found.append(f"{what} covers only {share} of the test {values}; take it as too narrow for later data")
    return found


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
    return np.asarray(values / models.error_scale.ravel())


def _errors(part: Samples, reconstructed: NDArray[Any]) -> NDArray[np.float64]:
    """Return the errors, ``(N, channels * m)``; NaN where the true value is missing."""
    return np.asarray(flat(part.values - reconstructed), np.float64)
