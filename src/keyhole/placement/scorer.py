"""Quick judges of sites: a closed form fitted on train, its error on validation."""

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

_MOST_SAMPLES = 10_000
_TREES, _UNSURE = 100, 0.02  # of a forest that judges; a tree that never erred on a class is not certain


class LinearScorer:
    """Fraction of variance that ridge or kriging, whichever is better, leaves on validation, for any set of sites.

    Fits on at most 10000 samples, and what context does is chosen for the first sites alone, so that a candidate costs
    little.
    """

    def __init__(self, train: Samples, validation: Samples, run: Run) -> None:
        self.train, self.validation = _few(train, run), _few(validation, run)
        self._kriging: OptimalInterpolation | None = None
        self.energy = float(np.nansum(np.square(self.validation.truth(), dtype=np.float64)))

    def __call__(self, sites: NDArray[np.int64]) -> float:
        """Score the sites (flat grid indices); lower is better."""
        kriging = OptimalInterpolation(like=self._kriging)
        self._kriging = self._kriging or kriging
        left = min(self._left(fitted, sites) for fitted in (Ridge(), kriging))
        return left / max(self.energy, np.finfo(float).tiny)

    def _left(self, linear: LinearReconstructor, sites: NDArray[np.int64]) -> float:
        fitted = linear.fit(self.train, sites, validation=self.validation, run=Run())
        return squared_error(fitted, sites, self.validation)


class TargetScorer:
    """What ridge or a small forest, whichever is better, leaves of a target on validation.

    Log loss of a class, share of variance of a number. Existing sites are read beside those that are scored. Fits on at
    most 10000 samples, so that a candidate costs little.
    """

    def __init__(self, train: Samples, validation: Samples, run: Run) -> None:
        self.train, self.validation = _few(train, run), _few(validation, run)

    def __call__(self, sites: NDArray[np.int64]) -> float:
        """Score the sites (flat grid indices); lower is better."""
        sites = np.concatenate([self.train.existing, sites[~np.isin(sites, self.train.existing)]])
        linear = Linear().fit(self.train, sites, validation=self.validation, run=Run())
        target = target_of(self.validation)
        name = "log_loss" if target.is_class else "fvu"
        told = (linear.predict(self.validation.readings(sites)), self._by_forest(sites))
        return min(target_scores(target, one, linear.expected)[name] for one in told)

    def _by_forest(self, sites: NDArray[np.int64]) -> NDArray[np.float64]:
        """What a small forest tells of the target on validation."""
        taught, judged = (part.readings(sites).reshape(len(part), -1) for part in (self.train, self.validation))
        target = target_of(self.train)
        forest = extra_trees(self.train, _TREES, 0).fit(taught, target.values)
        if not target.is_class:
            return np.asarray(forest.predict(judged), np.float64)
        found = np.full((len(judged), len(target.classes)), 1 / len(target.classes))
        found[:, forest.classes_] = forest.predict_proba(judged)
        return (1 - _UNSURE) * found + _UNSURE / len(target.classes)


def make_scorer(train: Samples, validation: Samples, run: Run) -> Scorer:
    """Give the judge of sites for these signals; lower is better."""
    kind = LinearScorer if train.target is None else TargetScorer
    return kind(train, validation, run)


class ClosedFormScorer(LinearScorer):
    """As LinearScore, but for a quick judge that is not linear where that leaves clearly less: seconds a candidate."""

    def __init__(self, train: Samples, validation: Samples, run: Run) -> None:
        super().__init__(train, validation, run)
        self._halves: FitScoreSplit | None = None
        self.is_nonlinear = False  # whether what is not linear was better for any sites so far

    def __call__(self, sites: NDArray[np.int64]) -> float:
        """Score the sites (flat grid indices); lower is better."""
        self._halves = self._halves or FitScoreSplit.of(self.train, self.validation, len(sites), Run())
        linear, curved = super().__call__(sites), fit_surrogate(self._halves, sites, Run())(sites)
        self.is_nonlinear = self.is_nonlinear or curved < NONLINEAR_THRESHOLD * linear
        return curved if curved < NONLINEAR_THRESHOLD * linear else linear


def is_nonlinear(scorer: Scorer) -> bool:
    """Tell whether what is not linear was better for any sites that were judged so far."""
    return isinstance(scorer, ClosedFormScorer) and scorer.is_nonlinear


def _few(part: Samples, run: Run) -> Samples:
    return subsample(part, _MOST_SAMPLES, run, "samples to score by")
