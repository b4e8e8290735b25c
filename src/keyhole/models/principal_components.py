"""Principal components (EOFs) of samples, as linear selectors and reconstructors use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from keyhole.data.samples import ScaledSamples

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
# Smallest variance, relative to the largest, that a Gram matrix in single precision resolves well.
_SINGLE_PRECISION_LIMIT = 1e-4
_ROUNDING = {4: 1e-5, 8: 1e-10}
_BLOCK = 4_000_000  # values processed at a time
_SUMMED_IN_SINGLE = 64  # samples summed in their own precision
_MAX_CACHED = 2000  # samples up to which the Gram matrix is cached
# Gram matrices, for the lifetime of the samples: several selectors and ridge need the same one.
_GRAMS: WeakKeyDictionary[ScaledSamples, NDArray[np.float64]] = WeakKeyDictionary()
# Leading components of samples that outnumber the sites, likewise, with the number that was requested.
_COMPONENTS: WeakKeyDictionary[ScaledSamples, tuple[int, NDArray[np.float64], NDArray[np.float64]]] = (
    WeakKeyDictionary()
)


@dataclass(frozen=True, eq=False)
class Components:
    """Leading principal components of the values at valid sites.

    Parameters
    ----------
    variances
        ``(r,)``, eigenvalues of the covariance, in descending order.
    basis
        ``(channels, valid sites, r)``, eigenvectors, orthonormal over channels and sites together.
    mean
        ``(channels, valid sites)``.
    """

    variances: NDArray[np.float64]
    basis: Floats
    mean: NDArray[np.float64]


def principal_components(samples: ScaledSamples, most: int) -> Components:
    """Compute leading principal components.

    Diagonalises the smaller of the covariance and the Gram matrix, so that neither many samples nor many sites alone
    are costly, and works on blocks of sites, so that the data are not copied. Results are cached for the lifetime of
    the samples.

    Parameters
    ----------
    samples
        Samples.
    most
        Maximum number of components; fewer are returned if the rank of the data is lower.

    Examples
    --------
    >>> import numpy as np
    >>> import keyhole as kh
    >>> rng = np.random.default_rng(0)
    >>> fields = np.tensordot(rng.normal(size=(50, 2)), rng.normal(size=(2, 4, 6)), axes=1)  # rank 2
    >>> principal_components(kh.read(fields).as_scaled(), 10).basis.shape
    (1, 24, 2)
    """
    packed = samples.targets.reshape(len(samples), -1)
    mean = column_sums([packed]) / len(packed)
    if len(packed) <= packed.shape[1]:
        variances, basis = _from_gram(samples, packed, mean, most)
    else:
        variances, basis = _from_covariance(samples, packed, mean, most)
    shape = (samples.channels, len(samples.sites))
    return Components(variances, basis.reshape(*shape, len(variances)), mean.reshape(shape))


def cached_gram(samples: ScaledSamples) -> NDArray[np.float64] | None:
    """Return the Gram matrix of the centred samples, ``(N, N)``, if it was computed before; None if not."""
    return _GRAMS.get(samples)


def _from_gram(
    samples: ScaledSamples, packed: Floats, mean: NDArray[np.float64], most: int
) -> tuple[NDArray[np.float64], Floats]:
    """Variances and basis ``(sites, r)`` from the Gram matrix, the samples being fewer than the sites.

    In the precision of the data, unless a component is so small that rounding would show.
    """
    precision: Any = packed.dtype
    gram = _GRAMS[samples] if samples in _GRAMS else _gram(samples, packed, mean, precision)
    variances, eigenvectors = _leading_eigenpairs(gram / len(packed), most)
    if precision == np.float32 and variances[-1] < _SINGLE_PRECISION_LIMIT * variances[0]:
        precision = np.float64
        variances, eigenvectors = _leading_eigenpairs(_gram(samples, packed, mean, precision) / len(packed), most)
    weights = (eigenvectors / np.sqrt(variances * len(packed))).astype(precision)
    basis = np.empty((packed.shape[1], len(variances)), precision)
    for block, part in blocks_of_cells(packed, mean, precision):
        np.matmul(part.T, weights, out=basis[block])
    return variances, basis


def _from_covariance(
    samples: ScaledSamples, packed: Floats, mean: NDArray[np.float64], most: int
) -> tuple[NDArray[np.float64], Floats]:
    """Variances and basis ``(sites, r)`` from the covariance of the sites; cached for smaller requests."""
    if samples not in _COMPONENTS or _COMPONENTS[samples][0] < most:
        centred = np.subtract(packed, mean, dtype=np.float64)
        _COMPONENTS[samples] = (most, *_leading_eigenpairs(centred.T @ centred / len(packed), most))
    _, variances, basis = _COMPONENTS[samples]
    return variances[:most], np.ascontiguousarray(basis[:, :most])


def _gram(samples: ScaledSamples, packed: Floats, mean: NDArray[np.float64], precision: Any) -> NDArray[np.float64]:
    """Gram matrix of the centred samples; cached if it is small."""
    gram = np.zeros((len(packed), len(packed)))
    for _, part in blocks_of_cells(packed, mean, precision):
        gram += part @ part.T
    if len(gram) <= _MAX_CACHED:
        _GRAMS[samples] = gram
    return gram


def components_at_sites(samples: ScaledSamples, most: int) -> tuple[NDArray[np.int64], Floats, NDArray[np.float64]]:
    """Compute principal components restricted to the observable sites.

    Parameters
    ----------
    samples
        Samples.
    most
        Maximum number of components.

    Returns
    -------
    sites : ndarray
        Numbers of the observable sites.
    rows : ndarray
        Rows of the basis at these, ``(channels, sites, r)``.
    variances : ndarray
        ``(r,)``.
    """
    components = principal_components(samples, most)
    rows = components.basis if samples.observable.all() else components.basis[:, samples.observable]
    return np.flatnonzero(samples.observable), rows, components.variances


def unresolved_variance(samples: ScaledSamples, rows: Floats, variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variance of each observable site that the components do not resolve.

    Parameters
    ----------
    samples
        Samples.
    rows, variances
        As returned by `components_at_sites`.

    Returns
    -------
    ndarray
        ``(channels, sites)``; zero where it is no more than rounding.
    """
    whole = _variance(samples)[:, samples.observable]
    unresolved = whole - np.einsum("csr,csr,r->cs", rows, rows, variances)
    return np.where(unresolved > rounding(rows) * whole, unresolved, 0.0)


def _variance(samples: ScaledSamples) -> NDArray[np.float64]:
    """Variance at valid sites, ``(channels, sites)``, of these samples or of the larger set they were drawn from."""
    shape = (samples.channels, -1)
    if samples.source is not None:
        return samples.source.spread.reshape(shape)
    packed = samples.targets.reshape(len(samples), -1)
    parts = blocks_of_cells(packed, column_sums([packed]) / len(packed), packed.dtype)
    return np.concatenate([np.einsum("ij,ij->j", part, part) / len(packed) for _, part in parts]).reshape(shape)


def blocks_of_cells(packed: Floats, mean: Floats, precision: Any) -> Iterator[tuple[slice, Floats]]:
    """Iterate over blocks of columns, centred, in a buffer that is reused.

    Parameters
    ----------
    packed
        ``(N, columns)``.
    mean
        ``(columns,)``, subtracted.
    precision
        Data type of the blocks.

    Yields
    ------
    block : slice
        Columns of the block.
    part : ndarray
        Centred values, overwritten by the next block.
    """
    cells = packed.shape[1]
    step = min(cells, max(1, _BLOCK // max(1, len(packed))))
    buffer = np.empty((len(packed), step), precision)
    for start in range(0, cells, step):
        block = slice(start, min(start + step, cells))
        part = buffer[:, : block.stop - start]
        yield block, np.subtract(packed[:, block], mean[block].astype(precision), out=part)


def column_sums(parts: Iterable[NDArray[Any]]) -> NDArray[np.float64]:
    """Sum over samples: short runs in the precision of the data, which is faster, and those sums in double.

    Parameters
    ----------
    parts
        Blocks ``(n, columns)`` of samples.
    """
    sums = np.zeros(())
    for part in parts:
        for start in range(0, len(part), _SUMMED_IN_SINGLE):
            sums = sums + part[start : start + _SUMMED_IN_SINGLE].sum(axis=0)
    return sums


def rounding(rows: Floats) -> float:
    """Relative rounding error of sums of squares of a basis, by its precision."""
    return _ROUNDING[rows.dtype.itemsize]


def _leading_eigenpairs(gram: NDArray[Any], most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Largest eigenvalues in descending order and their eigenvectors, up to the numerical rank."""
    size = len(gram)
    values, vectors = eigh(gram, subset_by_index=[max(0, size - most), size - 1], check_finite=False)
    values, vectors = values[::-1], vectors[:, ::-1]
    keep = values > _RANK_TOLERANCE * max(values[0], np.finfo(float).tiny)
    return values[keep], np.ascontiguousarray(vectors[:, keep])
