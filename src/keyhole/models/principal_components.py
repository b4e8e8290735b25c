"""Principal components of signals, as linear selectors and reconstructors use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from keyhole.data.samples import Samples

__all__ = [
    "Components",
    "blocks_of_cells",
    "cached_gram",
    "column_sums",
    "components_at_sites",
    "principal_components",
    "rounding",
    "unresolved_variance",
]  # fmt: skip

Floats = NDArray[np.floating[Any]]

_RANK_TOLERANCE = 1e-10
# Least component, as a share of the largest, that a Gram matrix in single precision tells well.
_SINGLE = 1e-4
_ROUNDING = {4: 1e-5, 8: 1e-10}
_BLOCK = 4_000_000  # numbers that are worked on at a time
_FEW = 64  # samples that are added up in single precision
_MOST_KEPT = 2000  # samples whose inner products are kept
# Inner products of the samples of signals, for as long as these are there: several selectors and ridge need the same.
_PRODUCTS: WeakKeyDictionary[Samples, NDArray[np.float64]] = WeakKeyDictionary()
# Leading components of signals with more samples than cells, likewise, and how many were asked for.
_LEADING: WeakKeyDictionary[Samples, tuple[int, NDArray[np.float64], NDArray[np.float64]]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Components:
    """Leading principal components of packed signals.

    ``variances`` (r,) are eigenvalues of the covariance, largest first; ``basis`` (channels, cells, r) has orthonormal
    columns over channels and cells together; ``mean`` is (channels, cells).
    """

    variances: NDArray[np.float64]
    basis: Floats
    mean: NDArray[np.float64]


def principal_components(signals: Samples, most: int) -> Components:
    """Give at most ``most`` components, fewer where the rank of the data is lower.

    Works on the smaller of the two Gram matrices, so neither many samples nor many cells alone are costly, and on some
    cells at a time, so that no second copy of the data is made.
    """
    packed = signals.valid_values().reshape(len(signals), -1)
    mean = column_sums([packed]) / len(packed)
    if len(packed) <= packed.shape[1]:
        variances, basis = _by_samples(signals, packed, mean, most)
    else:
        variances, basis = _by_cells(signals, packed, mean, most)
    shape = (signals.channels, len(signals.grid.cells))
    return Components(variances, basis.reshape(*shape, len(variances)), mean.reshape(shape))


def cached_gram(signals: Samples) -> NDArray[np.float64] | None:
    """Give the inner products of the centred samples ``(N, N)`` if they were made before; None if not."""
    return _PRODUCTS.get(signals)


def _by_samples(
    signals: Samples, packed: Floats, mean: NDArray[np.float64], most: int
) -> tuple[NDArray[np.float64], Floats]:
    """Variances and basis ``(cells, r)`` by the Gram matrix of samples.

    In single precision, where data are and no component is so small that its rounding would show.
    """
    precision: Any = packed.dtype
    gram = _PRODUCTS[signals] if signals in _PRODUCTS else _gram(signals, packed, mean, precision)
    variances, left = _leading(gram / len(packed), most)
    if precision == np.float32 and variances[-1] < _SINGLE * variances[0]:
        precision = np.float64
        variances, left = _leading(_gram(signals, packed, mean, precision) / len(packed), most)
    weights = (left / np.sqrt(variances * len(packed))).astype(precision)
    basis = np.empty((packed.shape[1], len(variances)), precision)
    for block, part in blocks_of_cells(packed, mean, precision):
        np.matmul(part.T, weights, out=basis[block])
    return variances, basis


def _by_cells(
    signals: Samples, packed: Floats, mean: NDArray[np.float64], most: int
) -> tuple[NDArray[np.float64], Floats]:
    """Variances and basis ``(cells, r)`` by the covariance of the cells; kept for who asks for no more of them."""
    asked, variances, basis = _LEADING.get(signals, (0, np.empty(0), np.empty((0, 0))))
    if most > asked:
        centred = np.subtract(packed, mean, dtype=np.float64)
        variances, basis = _leading(centred.T @ centred / len(packed), most)
        _LEADING[signals] = (most, variances, basis)
    return variances[:most], basis if basis.shape[1] <= most else np.ascontiguousarray(basis[:, :most])


def _gram(signals: Samples, packed: Floats, mean: NDArray[np.float64], precision: Any) -> NDArray[np.float64]:
    gram = np.zeros((len(packed), len(packed)))
    for _, part in blocks_of_cells(packed, mean, precision):
        gram += part @ part.T
    if len(gram) <= _MOST_KEPT:
        _PRODUCTS[signals] = gram
    return gram


def components_at_sites(signals: Samples, most: int) -> tuple[NDArray[np.int64], Floats, NDArray[np.float64]]:
    """Flat index of the observable sites, their rows (channels, sites, r) of the basis, and the variances."""
    components = principal_components(signals, most)
    cells = signals.grid.cells
    may = signals.observable.ravel()[cells]
    rows = components.basis if may.all() else components.basis[:, may]
    return cells[may], rows, components.variances


def unresolved_variance(signals: Samples, rows: Floats, variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variance of each observable site that its rows of a basis do not hold, ``(channels, sites)``.

    Nothing where it is no more than rounding.
    """
    may = signals.observable.ravel()[signals.grid.cells]
    whole = _spread(signals)[:, may]
    left = whole - np.einsum("csr,csr,r->cs", rows, rows, variances)
    return np.where(left > rounding(rows) * whole, left, 0.0)


def _spread(signals: Samples) -> NDArray[np.float64]:
    """Variance of each value inside, ``(channels, cells)``: of these samples, or of those that they stand for."""
    shape = (signals.channels, -1)
    if signals.source is not None:
        return signals.source.spread.reshape(shape)
    packed = signals.valid_values().reshape(len(signals), -1)
    parts = blocks_of_cells(packed, column_sums([packed]) / len(packed), packed.dtype)
    return np.concatenate([np.einsum("ij,ij->j", part, part) / len(packed) for _, part in parts]).reshape(shape)


def blocks_of_cells(packed: Floats, mean: Floats, precision: Any) -> Iterator[tuple[slice, Floats]]:
    """Give some cells at a time, centred, in memory that is used again for the next."""
    cells = packed.shape[1]
    step = min(cells, max(1, _BLOCK // max(1, len(packed))))
    room = np.empty((len(packed), step), precision)
    for start in range(0, cells, step):
        block = slice(start, min(start + step, cells))
        part = room[:, : block.stop - start]
        yield block, np.subtract(packed[:, block], mean[block].astype(precision), out=part)


def column_sums(parts: Iterable[NDArray[Any]]) -> NDArray[np.float64]:
    """Sums over samples: a few are added in their own precision, which is quicker, and those sums in double."""
    sums = np.zeros(())
    for part in parts:
        for start in range(0, len(part), _FEW):
            sums = sums + part[start : start + _FEW].sum(axis=0)
    return sums


def rounding(rows: Floats) -> float:
    """What may be left of the largest of some sums of squares of a basis, as a share of it, by rounding alone."""
    return _ROUNDING[rows.dtype.itemsize]


def _leading(gram: NDArray[Any], most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    size = len(gram)
    values, vectors = eigh(gram, subset_by_index=[max(0, size - most), size - 1], check_finite=False)
    values, vectors = values[::-1], vectors[:, ::-1]
    keep = values > _RANK_TOLERANCE * max(values[0], np.finfo(float).tiny)
    return values[keep], np.ascontiguousarray(vectors[:, keep])
