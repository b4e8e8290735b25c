"""Which predictor: the one named, or the one that is better on validation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.metrics import target_scores
from keyhole.models.predictors.base import Predictor, target_of
from keyhole.models.predictors.linear import Linear
from keyhole.models.predictors.network import Network
from keyhole.models.predictors.registry import PREDICTORS

__all__ = ["fit_predictor"]


def fit_predictor(name: str, train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Predictor:
    """Fit the predictor named, or the network unless the linear one is better on validation."""
    PREDICTORS.check(name, "auto")
    kinds = (Network, Linear) if name == "auto" else (PREDICTORS[name],)
    fitted = [kind().fit(train, sites, validation=validation, run=run) for kind in kinds]
    return min(fitted, key=lambda predictor: _merit(predictor, validation, sites))


def _merit(predictor: Predictor, scorer: Samples, sites: NDArray[np.int64]) -> tuple[float, ...]:
    """Error of a class, then its log loss; mean squared error of a number. The least is the best."""
    return tuple(target_scores(target_of(scorer), predictor.predict(scorer.readings(sites))).values())
