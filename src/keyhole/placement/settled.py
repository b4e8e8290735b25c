"""The covariance under which given sites rebuild best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.models.reconstructors import OptimalInterpolation
from keyhole.placement.posterior_covariance import Covariance

__all__ = ["fit_localised_covariance"]

_LEAST_NOISE = 1e-3  # share of the readings' variance: without any, sites side by side look worth having


def fit_localised_covariance(
    signals: Samples, sites: NDArray[np.int64], run: Run, purpose: str
) -> tuple[Covariance, dict[str, float]]:
    """Give the covariance whose length and noise are Kriging's from these sites, and both of them.

    Where the noise of sensors is known, readings have it already. ``purpose`` names what chance there is, in which
    cells stand for all of a large grid.
    """
    chosen = OptimalInterpolation().fit(signals, sites, validation=signals, run=run).chosen
    noise = _LEAST_NOISE if signals.noise is not None else max(chosen["strength"], _LEAST_NOISE)
    rng = run.generator(f"cells to {purpose} by")
    covariance = Covariance.of(signals, chosen["length"], noise, rng, seconds=run.seconds_left())
    return covariance, {"length": chosen["length"], "noise": noise}
