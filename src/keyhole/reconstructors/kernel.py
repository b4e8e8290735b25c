"""Kernel ridge: every sample learned from votes for the whole, by how near its readings are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.covariance import some
from keyhole.grid import Grid
from keyhole.reconstructors.base import Reconstructor, flat, known, unpack
from keyhole.run import Run
from keyhole.signals import Signals

__all__ = ["Kernel"]

_WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the Gaussian's square, in median squared distances
_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)
_LINEAR = 0.3  # weight of the linear kernel; from 0 to 1 it made no difference on the data tried
_MOST_SAMPLES = 4000  # learned from: time grows with their third power, a plan's file with their number
_MOST_TO_CHOOSE, _MOST_TARGETS = 1500, 512  # samples and cells that width and strength are chosen by
_CHUNK = 2048


class Shape(NamedTuple):
    """What defines the kernel: squared width, scale of the linear part, strength of the ridge."""

    width: float
    level: float
    strength: float


class Kernel(Reconstructor):
    """`x = mean + k(r) A`, `A = (K + a I)^-1 (X - mean)`, with `k = exp(-|r - r'|^2 / 2 w) + 0.3 r . r' / level`.

    The estimate of a Gaussian process. Where samples come in near pairs, such as views of one object, nothing that is
    linear comes near it; with a great width it is ridge. Width and strength are those with the smallest leave-one-out
    error: with `C = (K + a I)^-1`, the residual of a sample left out is `(C X)_i / C_ii`.
    """

    name: ClassVar[str] = "kernel"
    closed_form: ClassVar[bool] = True

    def __init__(self) -> None:
        self.shape = Shape(1.0, 1.0, 1.0)
        self.inputs, self.mean = np.zeros((0, 0)), np.zeros(0, np.float32)
        self.votes = np.zeros((0, 0), np.float32)
        self.channels, self.grid = 1, Grid.plain((0,))

    def fit(self, train: Signals, sites: NDArray[np.int64], *, validation: Signals, run: Run) -> Self:
        """Fit on ``train``, or some of it; leave-one-out needs no validation."""
        self.channels, self.grid = train.channels, train.grid
        rng = run.generator("kernel")
        rows = some(len(train), _MOST_SAMPLES, rng)
        inputs, targets = _inputs(train.readings(sites), train.context)[rows], flat(train.packed())[rows]
        self.mean = targets.mean(axis=0)
        self.shape = _choose(inputs, targets - self.mean, rng)
        gram = _kernel(inputs, inputs, self.shape)
        gram[np.diag_indices(len(gram))] += self.shape.strength
        self.inputs, self.votes = inputs, np.linalg.solve(gram, targets - self.mean).astype(np.float32)
        return self

    def rebuild(self, readings: NDArray[Any], context: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Let the samples vote, in chunks."""
        inputs = _inputs(readings, context)
        chunks = [inputs[start : start + _CHUNK] for start in range(0, len(inputs), _CHUNK)]
        parts = [_kernel(chunk, self.inputs, self.shape).astype(np.float32) @ self.votes for chunk in chunks]
        packed = self.mean + np.concatenate(parts)
        return unpack(packed, self.channels, self.grid)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the kernel's shape, and the samples with their votes."""
        arrays: dict[str, NDArray[Any]] = {"inputs": self.inputs, "mean": self.mean, "votes": self.votes}
        return {**self.shape._asdict(), "channels": self.channels}, arrays

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64]
    ) -> Self:
        """Take them back."""
        made = cls()
        made.shape = Shape(*(settings[name] for name in Shape._fields))
        made.channels, made.grid = settings["channels"], grid
        made.inputs, made.mean, made.votes = arrays["inputs"], arrays["mean"], arrays["votes"]
        return made


def _inputs(readings: NDArray[Any], context: NDArray[Any] | None) -> NDArray[np.float64]:
    """Readings and context as one vector a sample."""
    return np.concatenate([flat(readings), known(context, len(readings))], axis=1).astype(np.float64)


def _kernel(first: NDArray[np.float64], second: NDArray[np.float64], shape: Shape) -> NDArray[np.float64]:
    inner = first @ second.T
    squares = np.square(first).sum(axis=1)[:, np.newaxis] + np.square(second).sum(axis=1) - 2 * inner
    return np.asarray(np.exp(-np.maximum(squares, 0) / (2 * shape.width)) + _LINEAR * inner / shape.level)


def _choose(inputs: NDArray[np.float64], targets: NDArray[Any], rng: np.random.Generator) -> Shape:
    """Give the shape with the smallest leave-one-out error."""
    rows, columns = some(len(inputs), _MOST_TO_CHOOSE, rng), some(targets.shape[1], _MOST_TARGETS, rng)
    inputs, targets = inputs[rows], targets[np.ix_(rows, columns)].astype(np.float64)
    level = max(float(np.square(inputs).sum(axis=1).mean()), np.finfo(float).tiny)
    middle = max(_median_square(inputs), 1e-12 * level)
    shapes = [Shape(width * middle, level, strength) for width in _WIDTHS for strength in _STRENGTHS]
    return min(shapes, key=lambda shape: _left_out(inputs, targets, shape))


def _median_square(inputs: NDArray[np.float64]) -> float:
    from scipy.spatial.distance import pdist

    distances = pdist(inputs, "sqeuclidean")
    return float(np.median(distances)) if len(distances) else 0.0


def _left_out(inputs: NDArray[np.float64], targets: NDArray[np.float64], shape: Shape) -> float:
    gram = _kernel(inputs, inputs, shape)
    inverse = np.linalg.inv(gram + shape.strength * np.eye(len(gram)))
    return float(np.square(inverse @ targets / np.diagonal(inverse)[:, np.newaxis]).sum())
