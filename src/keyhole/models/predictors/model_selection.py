"""Fit a predictor: the one given, or the one with the smaller validation error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def fit_predictor(
    predictor: str | Predictor, train: Samples, sites: NDArray[np.int64],
    *, validation: Samples, run: Run, settings: Mapping[str, Any] | None = None,
) -> Predictor:  # fmt: skip
    """Fit the given predictor, or with ``"auto"`` the network unless the linear one is better on validation.

    Parameters
    ----------
    predictor
        A name in the registry, ``"auto"``, or an object, which is cloned with its settings.
    train, sites, validation, run
        As `Predictor.fit` takes them.
    settings
        Settings of a named predictor; for ``"auto"``, of the network.

    Returns
    -------
    Predictor
        The one with the smaller error (for classes the misclassification rate, then the log loss) on validation.
    """
    if isinstance(predictor, Predictor):
        candidates = [predictor.clone()]
    elif predictor == "auto":
        candidates = [Network(**(settings or {})), Linear()]
    else:
        PREDICTORS.check(predictor, "auto")
        candidates = [PREDICTORS.make(predictor, settings or {})]
    fitted = [candidate.fit(train, sites, validation=validation, run=run) for candidate in candidates]
    if len(fitted) == 1:
        return fitted[0]
    readings, target = validation.readings(sites), target_of(validation)
    return min(fitted, key=lambda one: tuple(target_scores(target, one.predict(readings)).values()))
