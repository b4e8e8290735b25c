"""Errors of fitted models on samples, in one pass, and what each site gains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyhole import metrics
from keyhole.core.reduction import reduce
from keyhole.data.preparation import PreparedSamples
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.values import Panel
from keyhole.models.predictors import nested_errors as nested_target_errors
from keyhole.models.reconstructors import nested_errors, ridge_strength
from keyhole.plan.fitted import FittedModels
from keyhole.workflow.calibration import coverage

__all__ = ["Scores", "gains", "score", "scores_of"]


class Scores(NamedTuple):
    """Errors of fitted models on one part of the samples.

    Parameters
    ----------
    metrics
        Errors by name, as in ``Plan.metrics``.
    ratios
        Those that are ratios of sums over samples, in order of time, by which they can be compared with others.
    """

    metrics: dict[str, float]
    ratios: dict[str, metrics.Ratio]


def score(models: FittedModels, part: Samples, baseline: Scaler) -> dict[str, float]:
    """Compute the errors of fitted models on unscaled samples; see `scores_of`."""
    return scores_of(part, {"all": (models, np.arange(len(part)), baseline)})["all"].metrics


def scores_of(
    samples: Samples, scored: Mapping[str, tuple[FittedModels, NDArray[np.int64], Scaler]]
) -> dict[str, Scores]:
    """Compute the errors of fitted models on parts of unscaled samples, in one pass.

    Parameters
    ----------
    samples
        Samples in the user's units.
    scored
        By name: a plan, or models that are not yet part of one; the positions of the samples that it is scored on; and
        the scaler whose mean or climatology is the reference of the unexplained variance, the same for all plans.

    Returns
    -------
    dict of str to Scores
        For each part. Names of metrics of the target begin with ``target_``, those of the 90 % prediction interval are
        ``coverage_90`` and ``width_90``; ``rmse_se``, ``fvu_se``, ``target_error_se``, ... are standard errors.
    """
    rows = np.sort(np.concatenate([part for _, part, _ in scored.values()]))
    accumulators = reduce(samples.take(rows).panels(), _Errors(samples, rows, list(scored.values())))
    parts = zip(scored.items(), accumulators, strict=True)
    return {name: _scores(models, samples.take(np.sort(part)), sums) for (name, (models, part, _)), sums in parts}


def _scores(models: FittedModels, part: Samples, sums: metrics.ErrorAccumulator) -> Scores:
    """Metrics of the field, its prediction intervals and the target, with standard errors."""
    order = _order(part)
    groups = None if part.sample_groups is None else part.sample_groups[order]
    ratios = sums.ratios(order) | _target_ratios(models, part, order)
    ratios = {name: ratio.over(groups) for name, ratio in ratios.items()}
    found = {name: ratio.value for name, ratio in ratios.items()}
    if models.intervals is not None:
        some = part.subset()
        found |= coverage(models, some, models.reconstruct_samples(some))
    return Scores(found | metrics.standard_errors(ratios, is_series=part.is_series), ratios)


def _order(part: Samples) -> NDArray[np.int64]:
    """The order of samples in time, of those at the same time or without one by their number in the data."""
    by_number = np.arange(len(part)) if part.rows is None else np.argsort(part.rows)
    return by_number if part.time is None else by_number[np.argsort(part.time[by_number], kind="stable")]


def _target_ratios(models: FittedModels, part: Samples, order: NDArray[np.int64]) -> dict[str, metrics.Ratio]:
    """Scores of the target by name, if there is one, as ratios of sums over samples in order of time."""
    if models.predictor is None or part.target is None:
        return {}
    predicted = models.predict_array(models.readings_of(part), part.time)[order]
    ratios = metrics.target_ratios(part.target.take(order), predicted, models.predictor.expected)
    return {f"target_{name}": ratio for name, ratio in ratios.items()}


@dataclass(frozen=True, eq=False)
class _Errors:
    """The sums of squared errors of fitted models, each on samples of its own."""

    stage: ClassVar[str] = "errors"
    samples: Samples
    rows: NDArray[np.int64]
    scored: list[tuple[FittedModels, NDArray[np.int64], Scaler]]

    def start(self) -> list[metrics.ErrorAccumulator]:
        origin, found = self.samples.origin, []
        for models, _, baseline in self.scored:
            scale = baseline.scale if origin.units_differ else None
            names, weights = tuple(origin.variables), self.samples.weights
            found.append(metrics.ErrorAccumulator(models.domain, weights, scale=scale, names=names))
        return found

    def update(self, state: list[metrics.ErrorAccumulator], panel: Panel[Samples]) -> list[metrics.ErrorAccumulator]:
        rows = self.rows[panel.start : panel.start + len(panel.samples)]
        for accumulator, (models, part, baseline) in zip(state, self.scored, strict=True):
            mine = panel.samples.take(np.flatnonzero(np.isin(rows, part)))
            if len(mine):
                accumulator.add(mine.values, models.reconstruct_samples(mine), baseline.expected(mine))
        return state

    def merge(
        self, one: list[metrics.ErrorAccumulator], other: list[metrics.ErrorAccumulator]
    ) -> list[metrics.ErrorAccumulator]:
        return [first + second for first, second in zip(one, other, strict=True)]


def gains(prepared: PreparedSamples, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the reduction of the validation error (ridge, fraction of variance) by each site given those before."""
    train, validation = prepared.train, prepared.validation
    if prepared.samples.target is not None:
        errors = nested_target_errors(train, validation, sites)
    else:
        errors = nested_errors(train, validation, sites, ridge_strength(train, sites))
    return np.asarray(-np.diff(errors) / max(float(errors[0]), 1e-300))
