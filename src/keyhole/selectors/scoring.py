"""Quick judges of sites: a closed form fitted on train, its error on validation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from keyhole.metrics import target_scores
from keyhole.predictors import Linear, target_of
from keyhole.reconstructors.choice import fit_linear, squared_error
from keyhole.run import Run
from keyhole.selectors.base import some_of
from keyhole.selectors.halves import Halves
from keyhole.selectors.kernels import fitting
from keyhole.selectors.proxy import CURVED
from keyhole.signals import Signals

__all__ = ["ClosedFormScore", "Judge", "LinearScore", "TargetScore", "judge_of"]

Judge = Callable[[NDArray[np.int64]], float]

_MOST_SAMPLES = 10_000


class LinearScore:
    """Fraction of variance that ridge or kriging, whichever is better, leaves on validation, for any set of sites.

    Fits on at most 10000 samples, so that a candidate costs milliseconds.
    """

    def __init__(self, train: Signals, validation: Signals, run: Run) -> None:
        self.train, self.validation = _few(train, run), _few(validation, run)
        self.energy = float(np.nansum(np.square(self.validation.truth(), dtype=np.float64)))

    def __call__(self, sites: NDArray[np.int64]) -> float:
        """Score the sites (flat grid indices); lower is better."""
        fitted = fit_linear(self.train, sites, validation=self.validation, run=Run())
        return squared_error(fitted, sites, self.validation) / max(self.energy, np.finfo(float).tiny)


class TargetScore:
    """What ridge leaves of a target on validation: log loss of a class, share of variance of a number.

    Fits on at most 10000 samples, so that a candidate costs milliseconds.
    """

    def __init__(self, train: Signals, validation: Signals, run: Run) -> None:
        self.train, self.validation = _few(train, run), _few(validation, run)

    def __call__(self, sites: NDArray[np.int64]) -> float:
        """Score the sites (flat grid indices); lower is better."""
        linear = Linear().fit(self.train, sites, validation=self.validation, run=Run())
        target = target_of(self.validation)
        scores = target_scores(target, linear.predict(self.validation.readings(sites)), linear.expected)
        return scores["log_loss" if target.is_class else "fvu"]


def judge_of(train: Signals, validation: Signals, run: Run) -> Judge:
    """Give the judge of sites for these signals; lower is better."""
    kind = LinearScore if train.target is None else TargetScore
    return kind(train, validation, run)


class ClosedFormScore(LinearScore):
    """As LinearScore, but for a quick judge that is not linear where that leaves clearly less: seconds a candidate."""

    def __init__(self, train: Signals, validation: Signals, run: Run) -> None:
        super().__init__(train, validation, run)
        self._halves: Halves | None = None

    def __call__(self, sites: NDArray[np.int64]) -> float:
        """Score the sites (flat grid indices); lower is better."""
        self._halves = self._halves or Halves.of(self.train, self.validation, len(sites), Run())
        linear, curved = super().__call__(sites), fitting(self._halves, sites, Run())(sites)
        return curved if curved < CURVED * linear else linear


def _few(part: Signals, run: Run) -> Signals:
    return some_of(part, _MOST_SAMPLES, run, "samples to score by")
