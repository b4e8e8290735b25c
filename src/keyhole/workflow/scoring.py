"""Errors of fitted models on samples, in one pass, and what each site gains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyhole import metrics
from keyhole.core.reduction import Both, reduce
from keyhole.data.preparation import PreparedSamples
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.values import Panel
from keyhole.metrics.baselines import BaselineSums, baseline_scores, target_baseline
from keyhole.models.predictors import nested_errors as nested_target_errors
from keyhole.models.reconstructors import nested_errors, ridge_strength
from keyhole.plan.fitted import FittedModels
from keyhole.workflow.baselines import baselines_of
from keyhole.workflow.calibration import coverage

__all__ = ["Scores", "gains", "scores_of"]


class Scores(NamedTuple):
    """Errors of fitted models on one part of the samples.

    Parameters
    ----------
    metrics
        Errors by name, as in ``Plan.metrics``.
    ratios
        Those that are ratios of sums over samples, in order of time, by which they can be compared with others; over
        groups of samples, if there are at least two.
    """

    metrics: dict[str, float]
    ratios: dict[str, metrics.Ratio]


def scores_of(prepared: PreparedSamples, scored: Mapping[str, FittedModels]) -> dict[str, Scores]:
    """Compute the errors of fitted models on parts of prepared samples, in one pass.

    Parameters
    ----------
    prepared
        The split samples, whose climatology is the reference of the unexplained variance, the same for all plans.
    scored
        By part, ``"validation"`` or ``"test"``: a plan, or models that are not yet part of one.

    Returns
    -------
    dict of str to Scores
        For each part. Names of metrics of the target begin with ``target_``, those of the 90 % prediction interval are
        ``coverage_90`` and ``width_90``; ``rmse_se``, ``fvu_se``, ``target_error_se``, ... are standard errors, and
        what is known without sensors is ``baseline_rmse[...]``, and of a target ``baseline_target_error``, ....
    """
    samples, split = prepared.samples, prepared.split
    rows = {name: {"validation": split.validation, "test": split.test}[name] for name in scored}
    known = {name: baselines_of(prepared, name, one.k * one.reading_channels) for name, one in scored.items()}
    together = np.sort(np.concatenate(list(rows.values())))
    errors = _Errors(samples, together, [(scored[name], rows[name], known[name].scaler) for name in scored])
    without = BaselineSums(together, [(known[name], rows[name]) for name in scored])
    sums = reduce(samples.take(together).panels(), Both(errors, without, errors.stage))
    found = {}
    for name, accumulator, others in zip(scored, *sums, strict=True):
        own = _scores(scored[name], samples.take(np.sort(rows[name])), accumulator)
        without_sensors = baseline_scores(others, own.metrics["rmse"], accumulator.scale)
        without_sensors |= _target_baseline(scored[name], prepared, name)
        found[name] = own._replace(metrics=own.metrics | without_sensors)
    return found


def _scores(models: FittedModels, part: Samples, sums: metrics.ErrorAccumulator) -> Scores:
    """Metrics of the field, its prediction intervals and the target, with standard errors."""
    order = _order(part)
    groups = None if part.sample_groups is None or len(np.unique(part.sample_groups)) < 2 else part.sample_groups[order]
    ratios = sums.ratios(order) | _target_ratios(models, part, order)
    ratios = {name: ratio.over(groups) for name, ratio in ratios.items()}
    found = {name: ratio.value for name, ratio in ratios.items()}
    if models.intervals is not None:
        some = part.subset()
        found |= coverage(models, some, models.reconstruct_samples(some))
    return Scores(found | metrics.standard_errors(ratios, is_series=part.is_series and groups is None), ratios)


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


def _target_baseline(models: FittedModels, prepared: PreparedSamples, part: str) -> dict[str, float]:
    """Errors of what is known of the target of a part without sensors, from the samples that models were fitted to."""
    target, split = prepared.samples.target, prepared.split
    if models.predictor is None or target is None:
        return {}
    fitted, rows = (split.train, split.validation) if part == "validation" else (split.development, split.test)
    return target_baseline(target.take(fitted), target.take(rows))


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
            names, weights = tuple(origin.variables), self.samples.weights
            units = {"scale": baseline.scale if origin.units_differ else None, "spread": baseline.spread}
            found.append(metrics.ErrorAccumulator(models.domain, weights, names=names, **units))
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
