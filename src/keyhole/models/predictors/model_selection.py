"""Model selection: the predictor with the smaller validation error, where none was named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.metrics import target_scores
from keyhole.models.predictors.base import Predictor, target_of
from keyhole.models.predictors.linear import Linear
from keyhole.models.predictors.network import Network

__all__ = ["fit_predictor"]


def fit_predictor(
    train: ScaledSamples, sites: NDArray[np.int64],
    *, validation: ScaledSamples, run: Run, settings: Mapping[str, Any] | None = None,
) -> Predictor:  # fmt: skip
    """Fit the network and the linear predictor; return the one with the smaller validation error.

    Parameters
    ----------
    train, sites, validation, run
        As `Predictor.fit` takes them.
    settings
        Settings of the network, by name.

    Returns
    -------
    Predictor
        For classes by the misclassification rate, then the log loss; the network if both are equal.
    """
    readings, target = validation.readings(sites), target_of(validation)
    candidates: list[Predictor] = [Network(**(settings or {})), Linear()]
    fitted = [candidate.fit(train, sites, validation=validation, run=run) for candidate in candidates]
    return min(fitted, key=lambda one: tuple(target_scores(target, one.predict(readings)).values()))
