"""Model selection: the simpler predictor unless the other one is clearly better, where none was named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.metrics import simplest, target_ratios
from keyhole.models.predictors.base import Predictor, target_of
from keyhole.models.predictors.linear import Linear
from keyhole.models.predictors.network import Network

__all__ = ["fit_predictor"]


def fit_predictor(
    train: ScaledSamples, sites: NDArray[np.int64],
    *, validation: ScaledSamples, run: Run, settings: Mapping[str, Any] | None = None,
) -> Predictor:  # fmt: skip
    """Fit the linear predictor and the network; return the linear one unless the network is clearly better.

    Parameters
    ----------
    train, sites, validation, run
        As `Predictor.fit` takes them.
    settings
        Settings of the network, by name.

    Returns
    -------
    Predictor
        The linear one if its validation error is within one standard error of the network's (`metrics.simplest`): the
        misclassification rate of a class, the mean squared error of a number.
    """
    order = validation.order_in_time()
    readings, target = validation.readings(sites)[order], target_of(validation).take(order)
    candidates: list[Predictor] = [Linear(), Network(**(settings or {}))]
    fitted = [candidate.fit(train, sites, validation=validation, run=run) for candidate in candidates]
    name = "error" if target.is_class else "mse"
    groups = None if validation.sample_groups is None else validation.sample_groups[order]
    errors = [target_ratios(target, one.predict(readings))[name].over(groups) for one in fitted]
    return fitted[simplest(errors, is_series=validation.is_series)]
