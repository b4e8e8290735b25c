"""Principal components (EOFs) of samples, as linear selectors and reconstructors use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from keyhole.core.errors import SettingsError
from keyhole.core.memory import format_size
from keyhole.core.reduction import reduce
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.values import Panel, read_columns
from keyhole.models.subspace import leading_subspace

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
_COPIES = 3  # of a basis, while a subspace is iterated
_MOST_EXACT = 4096  # samples or values whose covariance is decomposed; beyond, a subspace is iterated
_MAX_CACHED = 2000  # samples up to which the Gram matrix is cached
# Gram matrices, for the lifetime of the samples: several selectors and ridge need the same one.
_GRAMS: WeakKeyDictionary[ScaledSamples, NDArray[np.float64]] = WeakKeyDictionary()
# Leading components of samples that outnumber the sites, likewise, with the number that was requested.
_COMPONENTS: WeakKeyDictionary[ScaledSamples, tuple[int, NDArray[np.float64], NDArray[np.float64]]] = (
    WeakKeyDictionary()
)
_SUBSPACES: WeakKeyDictionary[ScaledSamples, tuple[int, NDArray[np.float64], NDArray[np.float32]]] = WeakKeyDictionary()


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
    shape, n = (samples.channels, len(samples.sites)), len(samples)
    width = shape[0] * shape[1]
    # Large samples are not gone through for their mean, which is zero by their scaling.
    mean = np.zeros(width) if samples.site_variance is not None else _mean(samples)
    if min(n, width) > _MOST_EXACT or (samples.memory is not None and n <= width):
        variances, basis = _from_subspace(samples, mean, most)
    elif n <= width:
        variances, basis = _from_gram(samples, mean.reshape(shape), most)
    else:
        variances, basis = _from_covariance(samples, mean, most)
    return Components(variances, basis.reshape(*shape, len(variances)), mean.reshape(shape))


def _mean(samples: ScaledSamples) -> NDArray[np.float64]:
    """Mean of the targets, ``(channels * m,)``."""
    return column_sums(flat_targets(panel.targets) for _, panel in samples.panels()) / len(samples)


def cached_gram(samples: ScaledSamples) -> NDArray[np.float64] | None:
    """Return the Gram matrix of the centred samples, ``(N, N)``, if it was computed before; None if not."""
    return _GRAMS.get(samples)


def _from_gram(samples: ScaledSamples, mean: NDArray[np.float64], most: int) -> tuple[NDArray[np.float64], Floats]:
    """Variances and basis ``(channels, m, r)`` from the Gram matrix, the samples being fewer than the sites.

    In the precision of the data, unless a component is so small that rounding would show.
    """
    precision: Any = np.dtype(np.float32)
    gram = _GRAMS[samples] if samples in _GRAMS else _gram(samples, mean, precision)
    variances, eigenvectors = _leading_eigenpairs(gram / len(samples), most)
    if variances[-1] < _SINGLE_PRECISION_LIMIT * variances[0]:
        precision = np.dtype(np.float64)
        variances, eigenvectors = _leading_eigenpairs(_gram(samples, mean, precision) / len(samples), most)
    weights = (eigenvectors / np.sqrt(variances * len(samples))).astype(precision)
    # Of large samples the basis is the largest array: it is kept in single precision however it was computed.
    basis = np.empty((*mean.shape, len(variances)), np.float32 if samples.is_large else precision)
    for sites, part in blocks_of_sites(samples, mean, precision):
        basis[:, sites] = (part.T @ weights).reshape(samples.channels, -1, len(variances))
    return variances, basis


def _from_covariance(
    samples: ScaledSamples, mean: NDArray[np.float64], most: int
) -> tuple[NDArray[np.float64], Floats]:
    """Variances and basis ``(channels * m, r)`` from the covariance of the sites; cached for smaller requests."""
    if samples not in _COMPONENTS or _COMPONENTS[samples][0] < most:
        covariance = reduce(samples.panels(), _Scatter(mean)) / len(samples)
        _COMPONENTS[samples] = (most, *_leading_eigenpairs(covariance, most))
    _, variances, basis = _COMPONENTS[samples]
    return variances[:most], np.ascontiguousarray(basis[:, :most])


def _from_subspace(samples: ScaledSamples, mean: NDArray[np.float64], most: int) -> tuple[NDArray[np.float64], Floats]:
    """Variances and basis ``(channels * m, r)`` by subspace iteration; cached for smaller requests."""
    _check_fits(samples, most)
    if samples not in _SUBSPACES or _SUBSPACES[samples][0] < most:
        _SUBSPACES[samples] = (most, *leading_subspace(samples, mean.astype(np.float32), most))
    _, variances, basis = _SUBSPACES[samples]
    return variances[:most], basis[:, :most]


def _check_fits(samples: ScaledSamples, most: int) -> None:
    """Raise a SettingsError if components take more memory than is allowed."""
    width = samples.channels * len(samples.sites)
    needed, memory = 4 * _COPIES * width * min(most, len(samples)), samples.memory
    if memory is not None and needed > memory:
        raise SettingsError(
            f"{most} components of {width} values need {format_size(needed)} of memory, and {format_size(memory)} are "
            "allowed; ask for fewer sites, allow more (memory=, --memory), or coarsen the grid"
        )


@dataclass(frozen=True, eq=False)
class _Scatter:
    """The sum of outer products of centred targets."""

    stage: ClassVar[str] = "covariance"
    mean: NDArray[np.float64]

    def start(self) -> NDArray[np.float64]:
        return np.zeros((len(self.mean), len(self.mean)))

    def update(self, state: NDArray[np.float64], panel: Panel[ScaledSamples]) -> NDArray[np.float64]:
        centred = np.subtract(flat_targets(panel.samples.targets), self.mean, dtype=np.float64)
        state += centred.T @ centred
        return state

    def merge(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
        one += other
        return one


def _gram(samples: ScaledSamples, mean: NDArray[np.float64], precision: Any) -> NDArray[np.float64]:
    """Gram matrix of the centred samples; cached if it is small."""
    gram = np.zeros((len(samples), len(samples)))
    for _, part in blocks_of_sites(samples, mean, precision):
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
    whole = samples.target_variance()[:, samples.observable]
    unresolved = whole - np.einsum("csr,csr,r->cs", rows, rows, variances)
    return np.where(unresolved > rounding(rows) * whole, unresolved, 0.0)


def blocks_of_sites(
    samples: ScaledSamples, mean: NDArray[np.float64], precision: Any
) -> Iterator[tuple[slice, Floats]]:
    """Iterate over blocks of sites, centred, so that the samples are not copied.

    Parameters
    ----------
    samples
        Samples in memory.
    mean
        ``(channels, m)``, subtracted.
    precision
        Data type of the blocks.

    Yields
    ------
    sites : slice
        Sites of the block.
    part : ndarray
        Centred targets, ``(N, channels * sites)``.
    """
    step = max(1, _BLOCK // (len(samples) * samples.channels))
    for start in range(0, len(samples.sites), step):
        sites = slice(start, start + step)
        values = read_columns(samples.source, sites)
        if samples.root is not None:
            values = values * samples.root[sites]
        centred = np.subtract(values, mean[:, sites].astype(precision), dtype=precision)
        yield sites, centred.reshape(len(samples), -1)


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


def flat_targets(targets: NDArray[np.float32]) -> NDArray[np.float32]:
    """Targets ``(N, channels, m)`` as ``(N, channels * m)``."""
    return targets.reshape(len(targets), -1)


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
