"""Scorers: the validation error of a set of sites, by closed forms fitted on the training samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.metrics import target_scores
from keyhole.models.predictors import Linear, target_of
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.reconstructors.model_selection import squared_error
from keyhole.models.reconstructors.optimal_interpolation import OptimalInterpolation
from keyhole.models.reconstructors.ridge import Ridge
from keyhole.placement.base import subsample
from keyhole.placement.baselines.supervised import extra_trees
from keyhole.placement.fit_score_split import FitScoreSplit
from keyhole.placement.kernel_surrogate import fit_surrogate
from keyhole.placement.surrogate import NONLINEAR_THRESHOLD

__all__ = ["ClosedFormScorer", "LinearScorer", "Scorer", "TargetScorer", "is_nonlinear", "make_scorer"]

Scorer = Callable[[NDArray[np.int64]], float]

_MAX_SAMPLES = 10_000
_TREES, _SMOOTHING = 100, 0.02  # of the extra trees; probabilities are smoothed towards uniform, as log loss needs


class LinearScorer:
    """Unexplained variance on validation of ridge or optimal interpolation, whichever is lower.

    At most 10000 samples are used, and the hyperparameters for covariates are chosen once, for the first sites.

    Parameters
    ----------
    train, validation
        Scaled samples.
    run
        Its seed determines the subsample.
    """

    def __init__(self, train: Samples, validation: Samples, run: Run) -> None:
        self.train, self.validation = _subsampled(train, run), _subsampled(validation, run)
        self._covariate_choices: dict[str, float] = {}
        self.energy = float(np.nansum(np.square(self.validation.truth(), dtype=np.float64)))

    def __call__(self, sites: NDArray[np.int64]) -> float:
        """Return the unexplained variance for the sites (flat grid indices); lower is better."""
        interpolation = OptimalInterpolation(**self._covariate_choices)
        error = min(self._error(fitted, sites) for fitted in (Ridge(), interpolation))
        self._covariate_choices = {name: interpolation.chosen[name] for name in ("share", "means")}
        return error / max(self.energy, np.finfo(float).tiny)

    def _error(self, linear: LinearReconstructor, sites: NDArray[np.int64]) -> float:
        fitted = linear.fit(self.train, sites, validation=self.validation, run=Run())
        return squared_error(fitted, sites, self.validation)


class TargetScorer:
    """Validation error of a target by a linear predictor or extra trees, whichever is lower.

    The error is the log loss for classes and the unexplained variance for numbers. Existing sites are observed in
    addition to those that are scored. At most 10000 samples are used.

    Parameters
    ----------
    train, validation
        Scaled samples with a target.
    run
        Its seed determines the subsample.
    """

    def __init__(self, train: Samples, validation: Samples, run: Run) -> None:
        self.train, self.validation = _subsampled(train, run), _subsampled(validation, run)

    def __call__(self, sites: NDArray[np.int64]) -> float:
        """Return the error for the sites (flat grid indices); lower is better."""
        sites = np.concatenate([self.train.existing, sites[~np.isin(sites, self.train.existing)]])
        linear = Linear().fit(self.train, sites, validation=self.validation, run=Run())
        target = target_of(self.validation)
        name = "log_loss" if target.is_class else "fvu"
        predictions = (linear.predict(self.validation.readings(sites)), self._by_forest(sites))
        return min(target_scores(target, prediction, linear.expected)[name] for prediction in predictions)

    def _by_forest(self, sites: NDArray[np.int64]) -> NDArray[np.float64]:
        """Predict the target of the validation samples by extra trees."""
        training, validation = (part.readings(sites).reshape(len(part), -1) for part in (self.train, self.validation))
        target = target_of(self.train)
        forest = extra_trees(self.train, _TREES, 0).fit(training, target.values)
        if not target.is_class:
            return np.asarray(forest.predict(validation), np.float64)
        probabilities = np.full((len(validation), len(target.classes)), 1 / len(target.classes))
        probabilities[:, forest.classes_] = forest.predict_proba(validation)
        return (1 - _SMOOTHING) * probabilities + _SMOOTHING / len(target.classes)


def make_scorer(train: Samples, validation: Samples, run: Run) -> Scorer:
    """Return the scorer for the samples: of the target where there is one, else of the reconstruction.

    Parameters
    ----------
    train, validation
        Scaled samples.
    run
        Its seed determines the subsample.

    Returns
    -------
    Scorer
        Callable from flat grid indices to an error; lower is better.
    """
    kind = LinearScorer if train.target is None else TargetScorer
    return kind(train, validation, run)


class ClosedFormScorer(LinearScorer):
    """As `LinearScorer`, with the error of a non-linear surrogate where that is clearly lower; takes seconds."""

    def __init__(self, train: Samples, validation: Samples, run: Run) -> None:
        super().__init__(train, validation, run)
        self._split: FitScoreSplit | None = None
        self.is_nonlinear = False  # whether the non-linear error was lower for any sites so far

    def __call__(self, sites: NDArray[np.int64]) -> float:
        """Return the unexplained variance for the sites (flat grid indices); lower is better."""
        self._split = self._split or FitScoreSplit.of(self.train, self.validation, len(sites), Run())
        linear, nonlinear = super().__call__(sites), fit_surrogate(self._split, sites, Run())(sites)
        self.is_nonlinear = self.is_nonlinear or nonlinear < NONLINEAR_THRESHOLD * linear
        return nonlinear if nonlinear < NONLINEAR_THRESHOLD * linear else linear


def is_nonlinear(scorer: Scorer) -> bool:
    """Whether a non-linear surrogate was clearly better for any of the sites scored so far."""
    return isinstance(scorer, ClosedFormScorer) and scorer.is_nonlinear


def _subsampled(part: Samples, run: Run) -> Samples:
    return subsample(part, _MAX_SAMPLES, run, "samples to score by")
