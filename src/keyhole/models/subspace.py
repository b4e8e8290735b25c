"""Leading principal components of many samples of many sites, by subspace iteration over panels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sgemm

from keyhole.core.reduction import reduce
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.values import Panel

__all__ = ["leading_subspace"]

_SPARE = 20  # directions beyond those asked for, whose convergence is slow
_PASSES = 2
_RANK_TOLERANCE = 1e-10
_RUNS = 8  # of consecutive samples, from which the iteration starts
_BLOCK = 2**20  # numbers of a basis whose products are summed in single precision


def leading_subspace(
    samples: ScaledSamples, mean: NDArray[np.float32], most: int
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Compute leading principal components by subspace iteration over the samples.

    Each pass multiplies an orthonormal basis `B` by the scatter matrix, `Z = X'X B`. The components are those of the
    Nystrom approximation `Z (B'Z)^-1 Z'` of the scatter matrix, whose range is that of `Z`: one pass fewer than the
    best directions within a basis need. The first basis is a few samples and random directions.

    Parameters
    ----------
    samples
        Scaled samples, in memory or not.
    mean
        ``(channels * m,)``, subtracted.
    most
        Number of components.

    Returns
    -------
    variances : ndarray of shape (r,)
        In descending order.
    basis : ndarray of shape (channels * m, r)
        Orthonormal columns.

    References
    ----------
    Halko, Martinsson & Tropp (2011). Finding structure with randomness. SIAM Review 53. Tropp, Yurtsever, Udell &
    Cevher (2017). Fixed-rank approximation of a positive-semidefinite matrix from streaming data. NIPS.
    """
    width = min(most + _SPARE, len(samples), len(mean))
    basis = _start(samples, mean, width)
    for _ in range(_PASSES):
        _orthonormalise(basis)
        product = reduce(samples.panels(), _Product(basis, mean))
        variances = _approximate(basis, product, len(samples))
        basis = product
    keep = min(most, int((variances > _RANK_TOLERANCE * variances[0]).sum()))
    return variances[:keep], basis[:, :keep]


@dataclass(frozen=True, eq=False)
class _Product:
    """The product of the scatter matrix and a basis, `X'X B`."""

    stage: ClassVar[str] = "principal components"
    basis: NDArray[np.float32]
    mean: NDArray[np.float32]

    def start(self) -> NDArray[np.float32]:
        return np.zeros_like(self.basis)

    def update(self, state: NDArray[np.float32], panel: Panel[ScaledSamples]) -> NDArray[np.float32]:
        rows = panel.samples.targets.reshape(len(panel.samples), -1) - self.mean
        along = rows @ self.basis
        sgemm(1.0, along.T, rows.T, beta=1.0, c=state.T, trans_b=1, overwrite_c=1)  # without a second state
        return state

    def merge(self, one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
        one += other
        return one


def _start(samples: ScaledSamples, mean: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """A few samples and random directions; not yet orthonormal."""
    few = samples.panel(_spread(len(samples), width))
    rows = few.targets.reshape(len(few), -1) - mean
    basis = np.random.default_rng(0).standard_normal((len(mean), width), np.float32)
    basis[:, : len(rows)] = rows.T / np.maximum(np.linalg.norm(rows, axis=1), np.finfo(np.float32).tiny)
    basis[:, len(rows) :] /= np.float32(np.sqrt(len(mean)))
    return basis


def _spread(n: int, most: int) -> NDArray[np.int64]:
    """Positions of at most ``most`` samples in evenly spaced runs, which are quick to read from a file."""
    if n <= most:
        return np.arange(n)
    length = max(1, most // _RUNS)
    starts = np.linspace(0, n - length, min(_RUNS, most)).astype(np.int64)
    return np.unique(starts[:, np.newaxis] + np.arange(length))


def _floor(variances: NDArray[np.float64]) -> float:
    """The smallest variance that single precision resolves."""
    return max(float(variances.max()), np.finfo(float).tiny) * float(np.finfo(np.float32).eps)


def _orthonormalise(basis: NDArray[np.float32]) -> None:
    """Make the columns orthonormal in place, by their Gram matrix, twice."""
    for _ in range(2):
        values, vectors = np.linalg.eigh(_inner(basis, basis))
        _transform(basis, (vectors / np.sqrt(np.maximum(values, _floor(values))))[:, ::-1])


def _approximate(basis: NDArray[np.float32], product: NDArray[np.float32], n: int) -> NDArray[np.float64]:
    """Turn a product into the eigenvectors of its Nystrom approximation, in place; their variances, largest first."""
    inner = _inner(basis, product)
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    floor = _floor(values)
    _transform(product, np.where(values > floor, vectors / np.sqrt(np.maximum(values, floor)), 0))
    squares, turn = np.linalg.eigh(_inner(product, product))
    _transform(product, (turn / np.sqrt(np.maximum(squares, _floor(squares))))[:, ::-1])
    return np.asarray(np.maximum(squares[::-1], 0) / n)


def _inner(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """Inner products of columns, summed in double precision."""
    return np.asarray(sum((one[rows].T @ other[rows]).astype(np.float64) for rows in _blocks(one)))


def _transform(basis: NDArray[np.float32], matrix: NDArray[np.float64]) -> None:
    """Multiply by a square matrix from the right, in place."""
    single = matrix.astype(np.float32)
    for rows in _blocks(basis):
        basis[rows] = basis[rows] @ single


def _blocks(basis: NDArray[np.float32]) -> list[slice]:
    """Blocks of rows."""
    step = max(1, _BLOCK // basis.shape[1])
    return [slice(start, start + step) for start in range(0, len(basis), step)]
