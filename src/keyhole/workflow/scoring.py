"""Errors of fitted models on samples, in one pass, and what each site gains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole import metrics
from keyhole.core.reduction import Both, reduce
from keyhole.data.preparation import PreparedSamples
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.values import Panel
from keyhole.metrics.baselines import BaselineSums, baseline_scores
from keyhole.models.predictors import nested_errors as nested_target_errors
from keyhole.models.reconstructors import nested_errors, ridge_strength
from keyhole.plan.fitted import FittedModels
from keyhole.workflow.baselines import baselines_of
from keyhole.workflow.calibration import coverage

__all__ = ["gains", "scores_of"]


def scores_of(prepared: PreparedSamples, scored: Mapping[str, FittedModels]) -> dict[str, dict[str, float]]:
    """Compute the errors of fitted models on parts of prepared samples, in one pass.

    Parameters
    ----------
    prepared
        The split samples, whose climatology is the reference of the unexplained variance, the same for all plans.
    scored
        By part, ``"validation"`` or ``"test"``: a plan, or models that are not yet part of one.

    Returns
    -------
    dict
        For each part, metrics by name; those of the target begin with ``target_``, those of the 90 % prediction
        interval are ``coverage_90`` and ``width_90``, and what is known without sensors is ``baseline_rmse[...]``.
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
        found[name] = accumulator.scores(samples.weights) | _other_scores(scored[name], samples.take(rows[name]))
        found[name] |= baseline_scores(others, found[name]["rmse"], accumulator.scale)
    return found


def _other_scores(models: FittedModels, part: Samples) -> dict[str, float]:
    """Scores of prediction intervals and of the target."""
    scores: dict[str, float] = {}
    if models.intervals is not None:
        some = part.subset()
        scores |= coverage(models, some, models.reconstruct_samples(some))
    if models.predictor is None or part.target is None:
        return scores
    predicted = models.predict_array(models.readings_of(part), part.time)
    target_scores = metrics.target_scores(part.target, predicted, models.predictor.expected)
    return scores | {f"target_{name}": value for name, value in target_scores.items()}


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
            found.append(metrics.ErrorAccumulator(models.domain, scale=scale, names=tuple(origin.variables)))
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
