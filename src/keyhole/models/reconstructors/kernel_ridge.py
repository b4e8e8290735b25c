"""Kernel ridge: every sample learned from votes for the whole, by how near its readings are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from keyhole.core.errors import PlanError
from keyhole.core.run import Run
from keyhole.core.storage import array_of, count_of, number_of
from keyhole.data.grid import Grid
from keyhole.data.samples import Samples
from keyhole.models.localisation import some
from keyhole.models.reconstructors.base import Reconstructor, flat, known, unpack

__all__ = ["LINEAR", "Kernel", "Shape", "kernel", "shapes_for", "spread_of"]

_WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # squared, in median squared distances
_STRENGTHS = (1e-3, 1e-2, 1e-1, 3e-1)
LINEAR = 0.3  # weight of the linear kernel; from 0 to 1 it made no difference on the data tried
_MOST_SAMPLES = 4000  # learned from: time grows with their third power, a plan's file with their number
_MOST_TO_CHOOSE, _MOST_TARGETS = 1000, 512  # samples and cells that the kernel's shape is chosen by
_CHUNK = 2048
_ARRAYS = ("inputs", "spread", "mean", "votes")  # that a file holds


class Shape(NamedTuple):
    """What defines the kernel: squared width, scale of the linear part, strength of the ridge.

    ``even`` tells whether every reading counts alike, whatever its spread.
    """

    width: float
    level: float
    strength: float
    even: bool = False


class Kernel(Reconstructor):
    """`x = mean + k(r) A`, `A = (K + a I)^-1 (X - mean)`, with `k = (1 + d) exp(-d) + 0.3 r . r' / level`.

    `d` is the square root of `3 |r - r'|^2 / w`: the kernel of Matern (3/2), which was a little better than the
    Gaussian on Isolet, COIL20 and the digits. The estimate is that of a Gaussian process. Where samples come in near
    pairs, such as views of one object, nothing that is linear comes near it; with a great width it is ridge. Width,
    strength and whether readings are brought to the same spread are those with the smallest leave-one-out error: with
    `C = (K + a I)^-1`, the residual of a sample left out is `(C X)_i / C_ii`.
    """

    name: ClassVar[str] = "kernel"
    closed_form: ClassVar[bool] = True

    def __init__(self) -> None:
        self.shape = Shape(1.0, 1.0, 1.0)
        self.inputs, self.spread, self.mean = np.zeros((0, 0)), np.zeros(0), np.zeros(0, np.float32)
        self.votes = np.zeros((0, 0), np.float32)
        self.channels, self.grid = 1, Grid.plain((0,))

    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Self:
        """Fit on ``train``, or some of it; leave-one-out needs no validation."""
        self.channels, self.grid = train.channels, train.grid
        rng = run.generator("kernel")
        rows = some(len(train), _MOST_SAMPLES, rng)
        inputs, targets = _inputs(train.readings(sites), train.covariates)[rows], flat(train.valid_values())[rows]
        self.mean = targets.mean(axis=0)
        self.shape = _choose(inputs, targets - self.mean, rng)
        self.spread = spread_of(inputs, self.shape.even)
        inputs = inputs / self.spread
        gram = kernel(inputs, inputs, self.shape)
        gram[np.diag_indices(len(gram))] += self.shape.strength
        self.inputs, self.votes = inputs, np.linalg.solve(gram, targets - self.mean).astype(np.float32)
        return self

    def reconstruct(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Let the samples vote, in chunks."""
        inputs = _inputs(readings, covariates) / self.spread
        chunks = [inputs[start : start + _CHUNK] for start in range(0, len(inputs), _CHUNK)]
        parts = [kernel(chunk, self.inputs, self.shape).astype(np.float32) @ self.votes for chunk in chunks]
        packed = self.mean + np.concatenate(parts)
        return unpack(packed, self.channels, self.grid)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the kernel's shape, and the samples with their votes."""
        return {**self.shape._asdict(), "channels": self.channels}, {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64]
    ) -> Self:
        """Take them back."""
        made = cls()
        width, level, strength = (number_of(settings, name) for name in ("width", "level", "strength"))
        made.shape = Shape(width, level, strength, settings["even"] is True)
        made.channels, made.grid = count_of(settings, "channels"), grid
        outputs = made.channels * len(grid.cells)
        made.inputs = array_of(arrays, "inputs", (None, None))
        made.spread = array_of(arrays, "spread", (made.inputs.shape[1],))
        made.mean = array_of(arrays, "mean", (outputs,))
        made.votes = array_of(arrays, "votes", (len(made.inputs), outputs))
        if not (0 < width < math.inf and 0 < level < math.inf and (made.spread > 0).all()):
            raise PlanError("the kernel's width, level and spread must be positive")
        return made

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Whether inputs are readings and context."""
        return channels == self.channels and self.inputs.shape[1] == sites * channels + covariates


def _inputs(readings: NDArray[Any], covariates: NDArray[Any] | None) -> NDArray[np.float64]:
    """Readings and context as one vector a sample."""
    return np.concatenate([flat(readings), known(covariates, len(readings))], axis=1).astype(np.float64)


def kernel(first: NDArray[np.float64], second: NDArray[np.float64], shape: Shape) -> NDArray[np.float64]:
    """Give how alike two sets of inputs are, ``(n, m)``."""
    inner = first @ second.T
    squares = np.square(first).sum(axis=1)[:, np.newaxis] + np.square(second).sum(axis=1) - 2 * inner
    distances = np.sqrt(3 * np.maximum(squares, 0) / shape.width)
    return np.asarray((1 + distances) * np.exp(-distances) + LINEAR * inner / shape.level)


def spread_of(inputs: NDArray[np.float64], even: bool) -> NDArray[np.float64]:
    """What to divide readings by: each one's own spread, or one number for all.

    A spread below what single precision tells apart is one of rounding: such a reading stays as it is.
    """
    if not even:
        return np.ones(inputs.shape[1])
    own, size = inputs.std(axis=0), np.abs(inputs).max(axis=0, initial=0.0)
    return np.where(own > np.finfo(np.float32).eps * size, own, 1.0)


def _choose(inputs: NDArray[np.float64], targets: NDArray[Any], rng: np.random.Generator) -> Shape:
    """Give the shape with the smallest leave-one-out error."""
    rows, columns = some(len(inputs), _MOST_TO_CHOOSE, rng), some(targets.shape[1], _MOST_TARGETS, rng)
    inputs, targets = inputs[rows], targets[np.ix_(rows, columns)].astype(np.float64)
    tried: dict[Shape, float] = {}
    for even in (False, True):
        scaled = inputs / spread_of(inputs, even)
        for _, of_one_width in groupby(shapes_for(scaled, even), key=attrgetter("width")):
            shapes = list(of_one_width)
            gram = kernel(scaled, scaled, shapes[0])
            tried |= {shape: _left_out(gram, targets, shape.strength) for shape in shapes}
    return min(tried, key=tried.__getitem__)


def shapes_for(inputs: NDArray[np.float64], even: bool) -> list[Shape]:
    """Give shapes to choose from for such inputs."""
    level = max(float(np.square(inputs).sum(axis=1).mean()), np.finfo(float).tiny)
    middle = max(_median_square(inputs), 1e-12 * level)
    return [Shape(width * middle, level, strength, even) for width in _WIDTHS for strength in _STRENGTHS]


def _median_square(inputs: NDArray[np.float64]) -> float:
    from scipy.spatial.distance import pdist

    distances = pdist(inputs, "sqeuclidean")
    return float(np.median(distances)) if len(distances) else 0.0


def _left_out(gram: NDArray[np.float64], targets: NDArray[np.float64], strength: float) -> float:
    """Leave-one-out sum of squared errors, infinite where rounding leaves nothing to solve.

    By Cholesky's factor, which takes half the time of a plain inverse.
    """
    factor, failed = dpotrf(gram + strength * np.eye(len(gram)), lower=1, clean=1, overwrite_a=1)
    if failed:
        return float("inf")
    half, _ = dpotri(factor, lower=1, overwrite_c=1)
    inverse = np.tril(half) + np.tril(half, -1).T
    return float(np.square(inverse @ targets / np.diagonal(inverse)[:, np.newaxis]).sum())
