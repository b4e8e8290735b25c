"""Which reconstructor to take where none was asked for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keyhole.reconstructors.base import Reconstructor
from keyhole.reconstructors.kriging import Kriging
from keyhole.reconstructors.linear import LinearReconstructor
from keyhole.reconstructors.residual import Residual
from keyhole.reconstructors.ridge import Ridge
from keyhole.run import Run
from keyhole.signals import Signals

__all__ = ["fit_best", "fit_linear", "squared_error"]

# A network must beat its linear part by this much on validation: a closed form is fitted on validation too, once all
# choices are made.
_WORTH_A_NETWORK = 0.98


def fit_best(train: Signals, sites: NDArray[np.int64], *, validation: Signals, run: Run) -> Reconstructor:
    """Fit ridge and kriging, then a network on top of the better one; keep what is best on validation."""
    best = fit_linear(train, sites, validation=validation, run=run)
    network = Residual(linear=best.name).fit(train, sites, validation=validation, run=run)
    return network if network.improvement < _WORTH_A_NETWORK else best


def fit_linear(train: Signals, sites: NDArray[np.int64], *, validation: Signals, run: Run) -> LinearReconstructor:
    """Fit ridge and kriging, and keep the one that is better on validation."""
    linear = [kind().fit(train, sites, validation=validation, run=run) for kind in (Ridge, Kriging)]
    return min(linear, key=lambda fitted: squared_error(fitted, sites, validation))


def squared_error(fitted: LinearReconstructor, sites: NDArray[np.int64], judge: Signals) -> float:
    """Sum of squared errors on scaled signals."""
    left = judge.packed() - fitted.rebuild_packed(judge.readings(sites), judge.context)
    return float(np.square(left, dtype=np.float64).sum())
