"""Kernel ridge regression with a Matérn kernel: the posterior mean of a Gaussian process."""

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

_BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # squared, relative to the median squared distance
_STRENGTHS = (1e-3, 1e-2, 1e-1, 3e-1)  # regularisation
LINEAR = 0.3  # weight of the linear kernel; from 0 to 1 it made no difference on the data tried
_MAX_SAMPLES = 4000  # training samples used: time grows with their third power, a plan's file with their number
_MAX_SELECTION_SAMPLES, _MAX_TARGETS = 1000, 512  # subset on which the hyperparameters are selected
_CHUNK = 2048


class Shape(NamedTuple):
    """Hyperparameters of the kernel and the regularisation.

    The field names are keys of saved plans.

    Parameters
    ----------
    width
        Squared bandwidth `w` of the Matérn kernel, in squared units of the (standardised) inputs.
    level
        Scale of the linear kernel: the mean squared norm of the inputs.
    strength
        Regularisation strength `a`.
    even
        Whether inputs are standardised, each by its own standard deviation.
    """

    width: float
    level: float
    strength: float
    even: bool = False


class Kernel(Reconstructor):
    r"""Kernel ridge regression `x = mean + k(r) A`, `A = (K + a I)^-1 (X - mean)`.

    The kernel is a Matérn kernel of smoothness 3/2 plus a linear kernel,

    .. math:: k(r, r') = (1 + d)\, e^{-d} + 0.3\, r \cdot r' / \ell, \qquad d = \sqrt{3\, |r - r'|^2 / w}

    and the estimate is the posterior mean of a Gaussian process with this covariance and noise variance `a`. The Matérn
    kernel was slightly better than the squared exponential on Isolet, COIL20 and handwritten digits. Bandwidth,
    strength
    and whether readings are standardised are selected by leave-one-out error: with `C = (K + a I)^-1`, the
    leave-one-out
    residual of a sample is `(C X)_i / C_ii`.

    Far better than any linear map where samples come in near duplicates, such as views of one object; with a large
    bandwidth it approaches ridge. At most 4000 samples, drawn at random, are used; with more, prefer a network.

    References
    ----------
    Rasmussen & Williams (2006), *Gaussian Processes for Machine Learning*, sections 2.2, 4.2 and 5.4.2.

    Examples
    --------
    >>> import numpy as np
    >>> import keyhole as kh
    >>> from keyhole.core.run import Run
    >>> phase = np.linspace(0, 1, 80)[:, np.newaxis]
    >>> waves = np.sin(2 * np.pi * (phase + np.linspace(0, 1, 12)))  # travelling wave: not linear in one reading
    >>> samples, sites = kh.read(waves.astype(np.float32)), np.array([0, 3])
    >>> fitted = Kernel().fit(samples, sites, validation=samples, run=Run())
    >>> error = fitted.reconstruct(samples.readings(sites)) - samples.values
    >>> bool(np.abs(error).max() < 0.1)
    True
    """

    name: ClassVar[str] = "kernel"
    closed_form: ClassVar[bool] = True

    def __init__(self) -> None:
        self.shape = Shape(1.0, 1.0, 1.0)
        self.inputs, self.spread, self.mean = np.zeros((0, 0)), np.zeros(0), np.zeros(0, np.float32)
        self.dual_coefficients = np.zeros((0, 0), np.float32)
        self.channels, self.grid = 1, Grid.plain((0,))

    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Self:
        """Fit on ``train``, or a random subset of it; leave-one-out errors select the hyperparameters."""
        self.channels, self.grid = train.channels, train.grid
        rng = run.generator("kernel")
        rows = some(len(train), _MAX_SAMPLES, rng)
        inputs, targets = _inputs(train.readings(sites), train.covariates)[rows], flat(train.valid_values())[rows]
        self.mean = targets.mean(axis=0)
        self.shape = _choose_hyperparameters(inputs, targets - self.mean, rng)
        self.spread = spread_of(inputs, self.shape.even)
        inputs = inputs / self.spread
        gram = kernel(inputs, inputs, self.shape)
        gram[np.diag_indices(len(gram))] += self.shape.strength
        self.inputs = inputs
        self.dual_coefficients = np.linalg.solve(gram, targets - self.mean).astype(np.float32)
        return self

    def reconstruct(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Evaluate the kernel expansion in chunks of samples; see `Reconstructor.reconstruct`."""
        inputs = _inputs(readings, covariates) / self.spread
        chunks = [inputs[start : start + _CHUNK] for start in range(0, len(inputs), _CHUNK)]
        matrices = (kernel(chunk, self.inputs, self.shape).astype(np.float32) for chunk in chunks)
        packed = self.mean + np.concatenate([matrix @ self.dual_coefficients for matrix in matrices])
        return unpack(packed, self.channels, self.grid)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the hyperparameters, and the training inputs with their dual coefficients (key ``votes``)."""
        arrays: dict[str, NDArray[Any]] = {"inputs": self.inputs, "spread": self.spread, "mean": self.mean}
        arrays["votes"] = self.dual_coefficients
        return {**self.shape._asdict(), "channels": self.channels}, arrays

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64]
    ) -> Self:
        """Recover a fitted kernel reconstructor; see `Reconstructor.restore`."""
        restored = cls()
        width, level, strength = (number_of(settings, name) for name in ("width", "level", "strength"))
        restored.shape = Shape(width, level, strength, settings["even"] is True)
        restored.channels, restored.grid = count_of(settings, "channels"), grid
        outputs = restored.channels * len(grid.cells)
        restored.inputs = array_of(arrays, "inputs", (None, None))
        restored.spread = array_of(arrays, "spread", (restored.inputs.shape[1],))
        restored.mean = array_of(arrays, "mean", (outputs,))
        restored.dual_coefficients = array_of(arrays, "votes", (len(restored.inputs), outputs))
        if not (0 < width < math.inf and 0 < level < math.inf and (restored.spread > 0).all()):
            raise PlanError("the kernel's width, level and spread must be positive")
        return restored

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Return whether the inputs are so many readings and covariates."""
        return channels == self.channels and self.inputs.shape[1] == sites * channels + covariates


def _inputs(readings: NDArray[Any], covariates: NDArray[Any] | None) -> NDArray[np.float64]:
    """Readings and covariates as one vector per sample."""
    return np.concatenate([flat(readings), known(covariates, len(readings))], axis=1).astype(np.float64)


def kernel(first: NDArray[np.float64], second: NDArray[np.float64], shape: Shape) -> NDArray[np.float64]:
    """Evaluate the kernel between two sets of inputs.

    Parameters
    ----------
    first, second
        ``(n, d)`` and ``(m, d)``, standardised if ``shape.even``.
    shape
        Hyperparameters.

    Returns
    -------
    ndarray
        Kernel matrix, ``(n, m)``.
    """
    inner = first @ second.T
    squares = np.square(first).sum(axis=1)[:, np.newaxis] + np.square(second).sum(axis=1) - 2 * inner
    distances = np.sqrt(3 * np.maximum(squares, 0) / shape.width)
    return np.asarray((1 + distances) * np.exp(-distances) + LINEAR * inner / shape.level)


def spread_of(inputs: NDArray[np.float64], even: bool) -> NDArray[np.float64]:
    """Return the divisors that standardise inputs.

    Parameters
    ----------
    inputs
        ``(n, d)``.
    even
        Whether to standardise at all; if not, all divisors are one.

    Returns
    -------
    ndarray
        Standard deviations, ``(d,)``; one for columns that vary by no more than the rounding of single precision.
    """
    if not even:
        return np.ones(inputs.shape[1])
    own, size = inputs.std(axis=0), np.abs(inputs).max(axis=0, initial=0.0)
    return np.where(own > np.finfo(np.float32).eps * size, own, 1.0)


def _choose_hyperparameters(inputs: NDArray[np.float64], targets: NDArray[Any], rng: np.random.Generator) -> Shape:
    """Select the hyperparameters with the smallest leave-one-out error."""
    rows, columns = some(len(inputs), _MAX_SELECTION_SAMPLES, rng), some(targets.shape[1], _MAX_TARGETS, rng)
    inputs, targets = inputs[rows], targets[np.ix_(rows, columns)].astype(np.float64)
    errors: dict[Shape, float] = {}
    for even in (False, True):
        scaled = inputs / spread_of(inputs, even)
        for _, of_one_bandwidth in groupby(shapes_for(scaled, even), key=attrgetter("width")):
            shapes = list(of_one_bandwidth)
            gram = kernel(scaled, scaled, shapes[0])
            errors |= {shape: _leave_one_out_error(gram, targets, shape.strength) for shape in shapes}
    return min(errors, key=errors.__getitem__)


def shapes_for(inputs: NDArray[np.float64], even: bool) -> list[Shape]:
    """Return the candidate hyperparameters for these inputs.

    Bandwidths are multiples of the median squared distance between inputs (the median heuristic).

    Parameters
    ----------
    inputs
        ``(n, d)``, standardised if ``even``.
    even
        Whether the inputs are standardised.
    """
    level = max(float(np.square(inputs).sum(axis=1).mean()), np.finfo(float).tiny)
    median = max(_median_squared_distance(inputs), 1e-12 * level)
    return [Shape(width * median, level, strength, even) for width in _BANDWIDTHS for strength in _STRENGTHS]


def _median_squared_distance(inputs: NDArray[np.float64]) -> float:
    """Median squared distance between pairs of inputs; 0 for a single input."""
    from scipy.spatial.distance import pdist

    distances = pdist(inputs, "sqeuclidean")
    return float(np.median(distances)) if len(distances) else 0.0


def _leave_one_out_error(gram: NDArray[np.float64], targets: NDArray[np.float64], strength: float) -> float:
    """Leave-one-out sum of squared errors; infinite if the matrix is numerically singular.

    By the Cholesky factor, which takes half the time of a general inverse.
    """
    factor, failed = dpotrf(gram + strength * np.eye(len(gram)), lower=1, clean=1, overwrite_a=1)
    if failed:
        return float("inf")
    lower, _ = dpotri(factor, lower=1, overwrite_c=1)
    inverse = np.tril(lower) + np.tril(lower, -1).T
    return float(np.square(inverse @ targets / np.diagonal(inverse)[:, np.newaxis]).sum())
