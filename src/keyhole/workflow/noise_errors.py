"""Errors with measurement noise at the sensors: what an error of noise-free readings is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole import metrics
from keyhole.data.noise import standard_noise
from keyhole.data.samples import Samples
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.plan.fitted import FittedModels

__all__ = ["errors_with_noise"]

LEVELS = (0.01, 0.05, 0.1)  # standard deviation of the noise, as a share of the spread of a reading's channel
_MOST_SAMPLES = 500  # that are reconstructed with noise, or whose covariates are averaged over
_MOST_NUMBERS = 4_000_000  # in the features of noise at each sensor, for the covariates of these samples


def errors_with_noise(
    models: FittedModels, part: Samples, spread: NDArray[np.float64], rmse: float
) -> dict[str, float]:  # fmt: skip
    """Return the RMSE with measurement noise of 1, 5 and 10 % of the spread, beside that of `Samples.with_noise`.

    Of linear reconstructors in closed form: noise of variance `a` adds `a` times the sum of squared weights to the
    squared error. Of others from draws that are keyed by sample and site, for at most 500 evenly spaced samples.

    Parameters
    ----------
    models
        Fitted models.
    part
        Unscaled samples to score on.
    spread
        ``(channels, K)``, spread of the channel of each reading, in scaled units (`ScaledSamples.reading_spread`).
    rmse
        The error on these samples without further noise.

    Returns
    -------
    dict
        ``rmse_noise[1%]``, ``rmse_noise[5%]`` and ``rmse_noise[10%]``, in the units of ``rmse``.

    Examples
    --------
    >>> import keyhole as kh
    >>> plan = kh.select(kh.datasets.sst(), k=3, method="greedy", reconstructor="ridge")
    >>> [name for name in plan.metrics["test"] if "noise" in name]
    ['rmse_noise[1%]', 'rmse_noise[5%]', 'rmse_noise[10%]']
    """
    if isinstance(models.reconstructor, LinearReconstructor):
        squares = _propagated(models, models.reconstructor, part, spread)
        added: Mapping[float, float] = {level: level**2 * squares for level in LEVELS}
    else:
        added = _drawn(models, part, spread)
    return {f"rmse_noise[{level:.0%}]": max(rmse**2 + one, 0.0) ** 0.5 for level, one in added.items()}


def _propagated(
    models: FittedModels, linear: LinearReconstructor, part: Samples, spread: NDArray[np.float64]
) -> float:  # fmt: skip
    """Mean squared error that noise of the spread adds: readings may enter several features, by the covariates."""
    weights = linear.in_units(models.scaling)[: len(linear.weights)].astype(np.float64)
    weights /= models.error_scale.ravel()
    known, noise = _covariates(models, part, spread.size * len(weights)), np.diag(spread.T.ravel())
    rows, repeated = np.tile(noise, (len(known), 1)), np.repeat(known, len(noise), axis=0)
    changes = linear.features(rows, repeated) - linear.features(np.zeros_like(rows), repeated)
    products = changes.T @ changes / len(known)
    return float(((weights * _known_share(part)) @ weights.T * products).sum())


def _covariates(models: FittedModels, part: Samples, numbers: int) -> NDArray[np.float32]:
    """Covariates of some samples, drawn at random: evenly spaced ones may all be of one season."""
    known = models.scaling.covariates(part.time, part.covariates, len(part))
    most = min(_MOST_SAMPLES, max(_MOST_NUMBERS // numbers, 1)) if known.shape[1] else 1
    return known[np.random.default_rng(0).permutation(len(known))[:most]]


def _known_share(part: Samples) -> NDArray[np.float64]:
    """Share of the known values that each channel and site has, ``(channels * m,)``."""
    if part.missing is None:
        return np.full(part.channels * len(part.sites), 1 / (part.channels * len(part.sites)))
    counts = (~part.missing).sum(axis=0).ravel()
    return np.asarray(counts / max(counts.sum(), 1))


def _drawn(models: FittedModels, part: Samples, spread: NDArray[np.float64]) -> Mapping[float, float]:
    """Mean squared error that each level of noise adds, from draws."""
    part = part.panel(np.unique(np.linspace(0, len(part) - 1, min(len(part), _MOST_SAMPLES)).astype(np.int64)))
    rows = np.arange(len(part)) if part.rows is None else part.rows
    # Other keys than those of the data's own noise, which the readings may contain.
    keys = models.domain.size + models.indices
    noise = standard_noise(rows, keys, models.reading_channels).transpose(0, 2, 1) * spread.T * models.reading_scale
    readings = models.readings_of(part)
    without = _mse(models, part, readings)
    return {level: _mse(models, part, readings + level * noise) - without for level in LEVELS}


def _mse(models: FittedModels, part: Samples, readings: NDArray[Any]) -> float:
    """Mean squared error of the reconstruction from some readings."""
    found = models.reconstruct_array(readings, part.time, part.covariates)
    truth, found, expected = (one / models.error_scale for one in (part.values, found, models.scaling.expected(part)))
    return metrics.evaluate(truth, found, expected, models.domain)["mse"]
