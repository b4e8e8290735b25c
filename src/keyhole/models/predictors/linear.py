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
from keyhole.data.samples import Samples
from keyhole.models.predictors.base import Examples, Predictor

__all__ = ["Linear", "eliminate", "nested_errors"]

# Strengths tried, relative to the mean squared singular value of the readings.
_STRENGTHS = np.logspace(-8, 2, 41)
_LARGEST_FACTOR = 1e3


class Linear(Predictor):
    r"""Ridge on the number, or on one indicator for each class, `Y = offset + R B`, `B = (R'R + a I)^{-1} R'Y`.

    The strength `a` has the smallest leave-one-out error: with `R = U S V'` and the leverage `h_i` of sample `i`, its
    left-out residual is `e_i / (1 - h_i)`. What ridge gives for classes are no probabilities; `softmax(c Y)` are, with
    the factor `c` that has the smallest log loss on the left-out samples. The likeliest class is the same for all
    `c > 0`.
    """

    name: ClassVar[str] = "linear"
    closed_form: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.strength = 0.0
        self.offset, self.weights = np.zeros(0), np.zeros((0, 0))

    def learn(self, part: Examples, validation: Examples, run: Run) -> None:
        """Fit in closed form; leave-one-out needs no validation."""
        wanted = self._columns(part)
        self.strength, self.offset, self.weights, left_out = _ridge(part.inputs, wanted)
        if self.is_class:
            factor = calibration(left_out, part.wanted.astype(np.int64))
            self.offset, self.weights = factor * self.offset, factor * self.weights

    def outputs(self, inputs: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Give one matrix product."""
        return np.asarray(self.offset + inputs @ self.weights)

    def learned(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give offset and weights."""
        return {}, {"offset": self.offset, "weights": self.weights, "strength": np.array(self.strength)}

    def take_back(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take offset and weights back."""
        self.strength = float(array_of(arrays, "strength", ()))
        self.offset = array_of(arrays, "offset", (self.width,))
        self.weights = array_of(arrays, "weights", (len(self.readings.mean), self.width))

    def _columns(self, examples: Examples) -> NDArray[np.float64]:
        """What is wanted, as one column for each output."""
        if self.is_class:
            return np.eye(self.width)[examples.wanted.astype(np.int64)]
        return examples.wanted[:, np.newaxis].astype(np.float64)


def nested_errors(train: Samples, scorer: Samples, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum of squared errors on ``judge`` of `Linear` fitted on ``train`` with the first 0, 1, ... K sites.

    All with the strength that all sites together have; of classes, the errors of the indicators.
    """
    linear = Linear().fit(train, sites, validation=scorer, run=Run())
    seen, asked = (linear.examples(part, sites) for part in (train, scorer))
    inputs, others = seen.inputs.astype(np.float64), asked.inputs.astype(np.float64)
    wanted, truths = linear._columns(seen), linear._columns(asked)
    wanted, truths = wanted - wanted.mean(axis=0), truths - wanted.mean(axis=0)
    gram = inputs.T @ inputs + linear.strength * np.eye(inputs.shape[1])
    moments, judged, spread = inputs.T @ wanted, others.T @ truths, others.T @ others
    errors = [float(np.square(truths).sum())]
    for columns in range(train.channels, inputs.shape[1] + 1, train.channels):
        weights = np.linalg.solve(gram[:columns, :columns], moments[:columns])
        told = (weights * (spread[:columns, :columns] @ weights - 2 * judged[:columns])).sum()
        errors.append(errors[0] + float(told))
    return np.array(errors)


def eliminate(train: Samples, sites: NDArray[np.int64], k: int) -> list[tuple[int, float]]:
    r"""Leave out ``k`` of the sites, each time the one that `Linear` misses least: backward elimination.

    With :math:`B = (R'R + a I)^{-1}` and :math:`W = B R'Y`, leaving out the columns `F` of a site adds
    :math:`tr(W_F' B_{FF}^{-1} W_F)` to what is left of `Y`.

    Returns
    -------
    list
        Place of each among ``sites``, and the share of the target's variance that is left without it and those before;
        of classes, of their indicators.
    """
    linear = Linear().fit(train, sites, validation=train, run=Run())
    seen = linear.examples(train, sites)
    inputs, wanted = seen.inputs.astype(np.float64), linear._columns(seen)
    wanted = wanted - wanted.mean(axis=0)
    inverse = np.linalg.inv(inputs.T @ inputs + linear.strength * np.eye(inputs.shape[1]))
    moments, total = inputs.T @ wanted, float(np.square(wanted).sum())
    weights = inverse @ moments
    left, kept, gone = total - float((weights * moments).sum()), list(range(len(sites))), list[tuple[int, float]]()
    for _ in range(k):
        blocks = [np.arange(place * train.channels, (place + 1) * train.channels) for place in range(len(kept))]
        missed = [float((weights[f] * np.linalg.solve(inverse[np.ix_(f, f)], weights[f])).sum()) for f in blocks]
        least = int(np.argmin(missed))
        out, rest = blocks[least], np.delete(np.arange(len(inverse)), blocks[least])
        carried = np.linalg.solve(inverse[np.ix_(out, out)], np.c_[inverse[np.ix_(out, rest)], weights[out]])
        weights = weights[rest] - inverse[np.ix_(rest, out)] @ carried[:, len(rest) :]
        inverse = inverse[np.ix_(rest, rest)] - inverse[np.ix_(rest, out)] @ carried[:, : len(rest)]
        left += missed[least]
        gone.append((kept.pop(least), left / max(total, np.finfo(float).tiny)))
    return gone


def _ridge(
    inputs: NDArray[Any], wanted: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Give strength, offset, weights and what is told of each sample without it, for the best strength."""
    centre, middle = inputs.mean(axis=0, dtype=np.float64), wanted.mean(axis=0)
    left, sizes, right = np.linalg.svd(inputs - centre, full_matrices=False)
    centred = wanted - middle
    scores = left.T @ centred
    strengths = _STRENGTHS * max(float(np.square(sizes).mean()), 1e-30)
    errors = [float(np.square(_left_out(left, sizes, centred, scores, a)).sum()) for a in strengths]
    strength = float(strengths[int(np.argmin(errors))])
    weights = (right.T * (sizes / (sizes**2 + strength))) @ scores
    told = wanted - _left_out(left, sizes, centred, scores, strength)
    return strength, middle - centre @ weights, weights, told


def _left_out(
    left: NDArray[np.float64],
    sizes: NDArray[np.float64],
    centred: NDArray[np.float64],
    scores: NDArray[np.float64],
    strength: float,
) -> NDArray[np.float64]:
    """Residual of each sample when it is left out of the fit."""
    shrunk = left * (sizes**2 / (sizes**2 + strength))
    leverage = np.minimum((shrunk * left).sum(axis=1) + 1 / len(left), 1 - 1e-9)
    return np.asarray((centred - shrunk @ scores) / (1 - leverage)[:, np.newaxis])


def calibration(scores: NDArray[np.float64], codes: NDArray[np.int64]) -> float:
    """Factor of the scores whose softmax has the smallest log loss."""

    def log_loss(log_factor: float) -> float:
        return float(-log_softmax(np.exp(log_factor) * scores, axis=1)[np.arange(len(codes)), codes].mean())

    limit = float(np.log(_LARGEST_FACTOR))
    return float(np.exp(minimize_scalar(log_loss, bounds=(-limit, limit), method="bounded").x))
