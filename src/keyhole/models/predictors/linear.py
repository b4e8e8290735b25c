"""Ridge regression from readings to a target, in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from keyhole.core.run import Run
from keyhole.core.storage import array_of
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.predictors.base import Examples, Predictor
from keyhole.models.regression import RidgeRegression, nested_squared_errors

__all__ = ["Linear", "calibration", "eliminate", "nested_errors"]

_LARGEST_FACTOR = 1e3


class Linear(Predictor):
    r"""Ridge on the number, or on one indicator for each class, `Y = offset + R B`, `B = (R'R + a I)^{-1} R'Y`.

    The strength `a` has the smallest leave-one-out error, see `RidgeRegression`. For classes, probabilities are
    `softmax(c Y)` with the factor `c` that minimises the log loss of the leave-one-out predictions. The most probable
    class is the same for all `c > 0`.

    Fast and hard to beat with few samples; where classes are not linearly separable, prefer `Network`.

    Attributes
    ----------
    strength
        The regularisation strength.
    offset, weights
        ``(outputs,)`` and ``(readings, outputs)``.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.data.target import Target
    >>> values = np.random.default_rng(0).normal(size=(80, 6))
    >>> samples, sites = kh.read(values).with_target(Target.of(3 + values[:, 2])).as_scaled(), np.array([2, 4])
    >>> linear = Linear().fit(samples, sites, validation=samples, run=Run())
    >>> bool(np.allclose(linear.predict(samples.readings(sites)), 3 + values[:, 2], atol=1e-4))
    True
    """

    name: ClassVar[str] = "linear"
    closed_form: ClassVar[bool] = True

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.strength = 0.0
        self.offset, self.weights = np.zeros(0), np.zeros((0, 0))

    def learn(self, train: Examples, validation: Examples, run: Run) -> None:
        """Fit in closed form; ``validation`` and ``run`` are not used."""
        targets = self.columns(train)
        regression = RidgeRegression(train.inputs, targets, precision=np.float64)
        self.strength, self.offset, self.weights, leverage = regression.best(train.inputs.shape[1])
        if self.is_class:
            residual = (targets - self.outputs(train.inputs)) / (1 - leverage)[:, np.newaxis]
            factor = calibration(targets - residual, train.targets.astype(np.int64))
            self.offset, self.weights = factor * self.offset, factor * self.weights

    def outputs(self, inputs: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Return the linear map of the inputs; see `Predictor.outputs`."""
        return np.asarray(self.offset + inputs @ self.weights)

    def learned(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return offset, weights and strength."""
        return {}, {"offset": self.offset, "weights": self.weights, "strength": np.array(self.strength)}

    def restore_learned(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take back offset, weights and strength."""
        self.strength = float(array_of(arrays, "strength", ()))
        self.offset = array_of(arrays, "offset", (self.n_outputs,))
        self.weights = array_of(arrays, "weights", (self.n_inputs, self.n_outputs))

    def columns(self, examples: Examples) -> NDArray[np.float64]:
        """Return the targets as one column for each output: indicators of the classes, or the number."""
        if self.is_class:
            return np.eye(self.n_outputs)[examples.targets.astype(np.int64)]
        return examples.targets[:, np.newaxis].astype(np.float64)

    def pair(self, samples: ScaledSamples, sites: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return inputs and columns of targets in double precision."""
        examples = self.examples(samples, sites)
        return examples.inputs.astype(np.float64), self.columns(examples)


def nested_errors(train: ScaledSamples, scorer: ScaledSamples, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum of squared errors on ``scorer`` of `Linear` fitted on ``train`` to the first 0, 1, ... K sites.

    All with the strength that is best for all sites together; for classes, the errors of their indicators.

    Parameters
    ----------
    train, scorer
        Scaled samples with a target, to fit on and to score on.
    sites
        Numbers of the ranked sites, ``(K,)``.

    Returns
    -------
    ndarray
        ``(K + 1,)``; the first is the error of the training mean.
    """
    linear = Linear().fit(train, sites, validation=scorer, run=Run())
    errors = nested_squared_errors(linear.pair(train, sites), linear.pair(scorer, sites), linear.strength)
    return errors[:: train.reading_channels]


def eliminate(
    train: ScaledSamples, sites: NDArray[np.int64], k: int, units: NDArray[np.int64] | None = None
) -> list[tuple[int, float]]:
    r"""Remove ``k`` sites one after the other, each time the one whose removal increases the error of `Linear` least.

    With :math:`B = (R'R + a I)^{-1}` and :math:`W = B R'Y`, removing the columns `F` of a site adds
    :math:`tr(W_F' B_{FF}^{-1} W_F)` to the sum of squares that `R` does not explain.

    Parameters
    ----------
    train
        Scaled samples with a target.
    sites
        Numbers of the sites, ``(K,)``.
    k
        How many to remove.
    units
        ``(K,)``, a number for each site; sites of the same number are removed together, and ``k`` counts numbers. None:
        each by itself.

    Returns
    -------
    list of (int, float)
        Position of each removed site in ``sites``, or the number that was removed, and the unexplained variance of the
        target (for classes, of their indicators) without it and those removed before.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.data.target import Target
    >>> values = np.random.default_rng(0).normal(size=(80, 3)) * [1, 2, 0.1]
    >>> samples = kh.read(values).with_target(Target.of(values.sum(axis=1))).as_scaled()
    >>> [site for site, _ in eliminate(samples, np.arange(3), 1)]
    [2]
    >>> [unit for unit, _ in eliminate(samples, np.arange(3), 1, np.array([7, 8, 7]))]
    [7]
    """
    linear = Linear().fit(train, sites, validation=train, run=Run())
    inputs, targets = linear.pair(train, sites)
    targets = targets - targets.mean(axis=0)
    inverse = np.linalg.inv(inputs.T @ inputs + linear.strength * np.eye(inputs.shape[1]))
    moments, total = inputs.T @ targets, float(np.square(targets).sum())
    weights = inverse @ moments
    error, removed = total - float((weights * moments).sum()), []
    owners = np.repeat(np.arange(len(sites)) if units is None else units, train.reading_channels)
    for _ in range(k):
        columns = {unit: np.flatnonzero(owners == unit) for unit in dict.fromkeys(owners.tolist())}
        increases = {
            unit: float((weights[f] * np.linalg.solve(inverse[np.ix_(f, f)], weights[f])).sum())
            for unit, f in columns.items()
        }
        least = min(increases, key=increases.__getitem__)
        out, rest = columns[least], np.flatnonzero(owners != least)
        gain = np.linalg.solve(inverse[np.ix_(out, out)], np.c_[inverse[np.ix_(out, rest)], weights[out]])
        weights = weights[rest] - inverse[np.ix_(rest, out)] @ gain[:, len(rest) :]
        inverse = inverse[np.ix_(rest, rest)] - inverse[np.ix_(rest, out)] @ gain[:, : len(rest)]
        error, owners = error + increases[least], owners[rest]
        removed.append((least, error / max(total, np.finfo(float).tiny)))
    return removed


def calibration(scores: NDArray[np.float64], codes: NDArray[np.int64]) -> float:
    """Return the factor of the scores whose softmax has the smallest log loss (temperature scaling).

    Parameters
    ----------
    scores
        ``(N, classes)``.
    codes
        True classes, ``(N,)``.

    References
    ----------
    Guo, Pleiss, Sun & Weinberger (2017), *On Calibration of Modern Neural Networks*, ICML.

    Examples
    --------
    >>> right, wrong = [0, 0, 0, 0], [1]
    >>> round(calibration(np.tile([0.5, -0.5], (5, 1)), np.array(right + wrong)), 2)  # log(4)
    1.39
    """

    def log_loss(log_factor: float) -> float:
        return float(-log_softmax(np.exp(log_factor) * scores, axis=1)[np.arange(len(codes)), codes].mean())

    limit = float(np.log(_LARGEST_FACTOR))
    return float(np.exp(minimize_scalar(log_loss, bounds=(-limit, limit), method="bounded").x))
