"""Which predictor: the one named, or the one that is better on validation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keyhole.errors import SettingsError
from keyhole.metrics import target_scores
from keyhole.predictors.base import Predictor, target_of
from keyhole.predictors.linear import Linear
from keyhole.predictors.network import Network
from keyhole.run import Run
from keyhole.signals import Signals

__all__ = ["PREDICTORS", "check_predictor", "fit_predictor"]

PREDICTORS: dict[str, type[Predictor]] = {kind.name: kind for kind in (Linear, Network)}


def check_predictor(name: str) -> None:
    """Raise a SettingsError unless there is such a predictor."""
    if name not in ("auto", *PREDICTORS):
        raise SettingsError(f"predictor {name!r} is not known; there are auto, {', '.join(PREDICTORS)}")


def fit_predictor(name: str, train: Signals, sites: NDArray[np.int64], *, validation: Signals, run: Run) -> Predictor:
    """Fit the predictor named, or the network unless the linear one is better on validation."""
    check_predictor(name)
    kinds = (Network, Linear) if name == "auto" else (PREDICTORS[name],)
    fitted = [kind().fit(train, sites, validation=validation, run=run) for kind in kinds]
    return min(fitted, key=lambda predictor: _merit(predictor, validation, sites))


def _merit(predictor: Predictor, judge: Signals, sites: NDArray[np.int64]) -> tuple[float, ...]:
    """Error of a class, then its log loss; mean squared error of a number. The least is the best."""
    return tuple(target_scores(target_of(judge), predictor.predict(judge.readings(sites))).values())
