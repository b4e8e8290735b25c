"""Kriging: the best linear estimate from a covariance that fades with distance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.covariance import LENGTHS, fading
from keyhole.reconstructors.base import flat
from keyhole.reconstructors.linear import LinearReconstructor
from keyhole.run import Run
from keyhole.signals import Signals

__all__ = ["Kriging"]

_STRENGTHS = np.logspace(-6, 1, 29)  # relative to the mean variance of the readings
_BLOCKS = 5
_WORTH_FADING, _AS_GOOD = 0.98, 1.01  # share of the error without fading to reach; of the least, to be as good
_MOST_SAMPLES, _MOST_TARGETS = 10_000, 2048  # to choose length and strength by


class Kriging(LinearReconstructor):
    """Linear reconstruction `x = mean + (r - mean_r) B`, `B = (C_rr + a I)^-1 C_rx`, with `C = S * exp(-d / length)`.

    `S` is the sample covariance and `d` the distance between cells. Few samples tie far cells by chance; a covariance
    that fades (the localisation of weather forecasting) forgets that. With infinite length this is ridge. Length and
    strength `a` (a share of the readings' mean variance) are chosen by leaving out five blocks of samples in turn.
    """

    name: ClassVar[str] = "kriging"

    def fit(self, train: Signals, sites: NDArray[np.int64], *, validation: Signals, run: Run) -> Self:
        """Fit on ``train``; the blocks left out need no validation."""
        self.channels, self.grid = train.channels, train.grid
        places = train.grid.places
        parts = _Parts(
            flat(train.readings(sites)), flat(train.packed()),
            np.repeat(places[sites], train.channels, axis=0), np.tile(places[train.grid.cells], (train.channels, 1)),
        )  # fmt: skip
        length, share = _choose(parts.fewer(run.generator("kriging")))
        self.chosen = {"length": length, "strength": share}
        self.offset, self.weights = _solve(parts, length, share)
        return self


class _Parts(NamedTuple):
    """Readings (n, r) and targets (n, t), and the places of both."""

    readings: NDArray[Any]
    targets: NDArray[Any]
    sites: NDArray[np.float64]
    cells: NDArray[np.float64]

    def fewer(self, rng: np.random.Generator) -> _Parts:
        """Give as many samples and targets as a choice needs, samples in their order."""
        rows = _some(len(self.readings), _MOST_SAMPLES, rng)
        columns = _some(self.targets.shape[1], _MOST_TARGETS, rng)
        return _Parts(self.readings[rows], self.targets[rows][:, columns], self.sites, self.cells[columns])


def _some(count: int, most: int, rng: np.random.Generator) -> NDArray[np.int64] | slice:
    return slice(None) if count <= most else np.sort(rng.choice(count, most, replace=False))


def _solve(parts: _Parts, length: float, share: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Offset and weights at a length and a share of the mean variance of the readings."""
    centre, middle, own, cross = _moments(parts.readings, parts.targets)
    own, cross = own * fading(parts.sites, parts.sites, length), cross * fading(parts.sites, parts.cells, length)
    weights = np.linalg.solve(own + share * _level(own) * np.eye(len(own)), cross)
    return (middle - centre @ weights).astype(np.float32), weights.astype(np.float32)


def _moments(readings: NDArray[Any], targets: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Means of readings and targets, covariance of the readings, and of readings with targets."""
    centre, middle = readings.mean(axis=0, dtype=np.float64), targets.mean(axis=0, dtype=np.float64)
    centred = readings - centre
    own = centred.T @ centred / len(readings)
    return centre, middle, own, (centred.astype(np.float32).T @ (targets - middle).astype(np.float32)) / len(readings)


def _level(own: NDArray[Any]) -> float:
    """Mean variance of the readings; one where nothing varies."""
    return float(np.trace(own)) / len(own) or 1.0


def _choose(parts: _Parts) -> tuple[float, float]:
    """Length and share by the error over the blocks left out."""
    errors, energy = np.zeros((len(LENGTHS), len(_STRENGTHS))), 0.0
    for kept, left in _blocks(len(parts.readings)):
        centre, middle, own, cross = _moments(parts.readings[kept], parts.targets[kept])
        judged = parts.readings[left] - centre, (parts.targets[left] - middle).astype(np.float32)
        energy += float(np.square(judged[1], dtype=np.float64).sum())
        for row, length in enumerate(LENGTHS):
            faded = own * fading(parts.sites, parts.sites, length)
            errors[row] += _errors(faded, cross * fading(parts.sites, parts.cells, length), *judged)
    row = _gentlest(np.maximum(errors.min(axis=1) + energy, 0))
    return LENGTHS[row], float(_STRENGTHS[errors[row].argmin()])


def _gentlest(least: NDArray[np.float64]) -> int:
    """Place of the largest length that is about as good as the best; the first, infinite, unless fading pays.

    Blocks left out of the middle of a series flatter short lengths: a trend that goes on beyond it ties far cells.
    """
    if least.min() > _WORTH_FADING * least[0]:
        return 0
    return int(np.flatnonzero(least <= _AS_GOOD * least.min())[0])


def _blocks(count: int) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Samples kept and left out, for each of five blocks of neighbours (as many as there are samples, if fewer)."""
    number = np.arange(count) * min(_BLOCKS, count) // count
    for block in range(number[-1] + 1):
        yield number != block, number == block


def _errors(
    own: NDArray[Any], cross: NDArray[Any], readings: NDArray[Any], targets: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Sum of squared errors for every strength, less the targets' own squares.

    With `C_rr = Q diag(w) Q'`, `A = R Q` and `G = Q'C_rx` the estimate is `A diag(1 / (w + a)) G`, so that only `A'A`,
    `G G'` and the diagonal of `A'X G'` are needed for every `a`.
    """
    sizes, turn = np.linalg.eigh(own)
    turned = (readings @ turn).astype(np.float32)
    weights = (turn.T.astype(np.float32) @ cross).astype(np.float32)
    linear = np.einsum("ij,ij->i", turned.T @ targets, weights, dtype=np.float64)
    square = (turned.T @ turned).astype(np.float64) * (weights @ weights.T).astype(np.float64)
    inverse = 1 / (np.maximum(sizes, 0) + _STRENGTHS[:, np.newaxis] * _level(own))
    return np.asarray(np.einsum("si,ij,sj->s", inverse, square, inverse) - 2 * inverse @ linear)
