"""Principal components of signals, as linear selectors and reconstructors use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.signals import Signals

__all__ = ["Components", "components_at_sites", "principal_components"]

_RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Components:
    """Leading principal components of packed signals.

    ``variances`` (r,) are eigenvalues of the covariance, largest first; ``basis`` (channels, cells, r) has orthonormal
    columns over channels and cells together; ``mean`` is (channels, cells).
    """

    variances: NDArray[np.float64]
    basis: NDArray[np.float64]
    mean: NDArray[np.float64]


def principal_components(signals: Signals, most: int) -> Components:
    """Give at most ``most`` components, fewer where the rank of the data is lower.

    Works on the smaller of the two Gram matrices, so neither many samples nor many cells alone are costly.
    """
    packed = signals.packed().reshape(len(signals), -1)
    mean = packed.mean(axis=0, dtype=np.float64)
    centred = np.subtract(packed, mean, dtype=np.float64)
    samples, width = centred.shape
    if samples <= width:
        variances, left = _leading(centred @ centred.T / samples, most)
        basis = centred.T @ (left / np.sqrt(variances * samples))
    else:
        variances, basis = _leading(centred.T @ centred / samples, most)
    shape = (signals.channels, len(signals.grid.cells))
    return Components(variances, basis.reshape(*shape, len(variances)), mean.reshape(shape))


def components_at_sites(
    signals: Signals, most: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Flat index of the observable sites, their rows (channels, sites, r) of the basis, and the variances."""
    components = principal_components(signals, most)
    cells = signals.grid.cells
    may = signals.observable.ravel()[cells]
    return cells[may], components.basis[:, may], components.variances


def _leading(gram: NDArray[Any], most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[::-1][:most], vectors[:, ::-1][:, :most]
    keep = values > _RANK_TOLERANCE * max(values[0], np.finfo(float).tiny)
    return values[keep], vectors[:, keep]
