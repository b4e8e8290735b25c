"""What each site would still explain of a covariance of low rank, kept up to date as sites are picked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Explained"]

_NOTHING_LEFT = 1e-10
_SINGULAR = 1e-8


class Explained:
    """Variance that reading a site would remove from a covariance `V M V'`, for every site at once.

    With `V_j` the rows of site j (one for each channel) and `N_j` its noise, reading it removes
    `tr((V_j M V_j' + N_j)^-1 V_j M^2 V_j')`, after which `M` loses `F'F`, `F = (V_j M V_j' + N_j)^-1/2 V_j M`. Only
    `V_j M V_j'` and `V_j M^2 V_j'` are kept for each site: with `W = V_j F'` and `T = V_j M F'`, they lose `W W'` and
    `T W' + W T' - W F F' W'`. So a pick is one product of `V` with a few columns.

    Parameters
    ----------
    rows
        ``(channels, sites, r)``, `V`.
    variances
        ``(r,)``, the diagonal of `M` at first.
    noise
        ``(channels, sites)``, variance of each reading's noise.
    """

    def __init__(self, rows: NDArray[np.float64], variances: NDArray[np.float64], noise: NDArray[np.float64]) -> None:
        self.rows, self.noise, self.matrix = rows, noise, np.diag(variances)
        self._own, self._square = (_blocks(rows, np.power(variances, power)) for power in (1, 2))
        self.floor = _NOTHING_LEFT * float(np.einsum("ccs->s", self._own).max())

    def gains(self) -> NDArray[np.float64]:
        """Variance that each site would remove."""
        channels = len(self.rows)
        if channels == 1:
            own = self._own[0, 0] + self.noise[0]
            return np.asarray(np.divide(self._square[0, 0], own, out=np.zeros_like(own), where=own > self.floor))
        own = (self._own + self.noise * np.eye(channels)[:, :, np.newaxis]).transpose(2, 0, 1)
        inverse = np.linalg.pinv(own, rcond=_SINGULAR, hermitian=True)
        return np.asarray(np.einsum("scd,dcs->s", inverse, self._square))

    def read(self, site: int) -> None:
        """Read one more site."""
        factor = self._factor(site)
        both = np.concatenate([factor, factor @ self.matrix])
        moved = np.einsum("csr,er->ecs", self.rows, both, optimize=True)
        here, there = moved[: len(factor)], moved[len(factor) :]
        self._own -= np.einsum("ecs,eds->cds", here, here)
        change = np.einsum("ecs,eds->cds", there, here)
        self._square -= change + change.transpose(1, 0, 2)
        self._square += np.einsum("ecs,ef,fds->cds", here, factor @ factor.T, here, optimize=True)
        self.matrix -= factor.T @ factor

    def _factor(self, site: int) -> NDArray[np.float64]:
        """`F` of a site."""
        projected = self.rows[:, site] @ self.matrix
        sizes, turn = np.linalg.eigh(projected @ self.rows[:, site].T + np.diag(self.noise[:, site]))
        keep = sizes > _SINGULAR * sizes[-1]
        return np.asarray((turn[:, keep] / np.sqrt(sizes[keep])).T @ projected)


def _blocks(rows: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """`V_j diag(weights) V_j'` of each site, ``(channels, channels, sites)``."""
    return np.stack([np.stack([np.einsum("sr,sr,r->s", a, b, weights) for b in rows]) for a in rows])
