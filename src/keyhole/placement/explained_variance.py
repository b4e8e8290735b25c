"""What each site would still explain of a covariance of low rank, kept up to date as sites are picked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.models.principal_components import rounding

__all__ = ["ExplainedVariance"]

_SINGULAR = 1e-8
_REFRESHED = 0.1  # numbers are made anew when the covariance is down to this share of what they were made from


class ExplainedVariance:
    """Variance that reading a site would remove from a covariance `V M V' + D`, `D` diagonal, for every site at once.

    With `V_j` the rows of site j (one for each channel), `O_j = V_j M V_j'`, and `N_j` its noise, reading it removes
    `tr((O_j + D_j + N_j)^-1 (V_j M^2 V_j' + D_j O_j + O_j D_j + D_j^2))`, after which `M` loses `F'F`,
    `F = (O_j + D_j + N_j)^-1/2 V_j M`. Only `O_j` and `V_j M^2 V_j'` are kept for each site: with `W = V_j F'` and
    `T = V_j M F'`, they lose `W W'` and `T W' + W T' - W F F' W'`. So a pick is one product of `V` with a few columns.
    Both are made anew from `M` before what was taken from them leaves little but rounding.

    Parameters
    ----------
    rows
        ``(channels, sites, r)``, `V`.
    variances
        ``(r,)``, the diagonal of `M` at first.
    noise
        ``(channels, sites)``, variance of each reading's noise.
    alone
        ``(channels, sites)``, the diagonal of `D`: variance of each site that goes with no other.
    """

    def __init__(
        self, rows: NDArray[np.floating[Any]], variances: NDArray[np.float64], noise: NDArray[np.float64],
        alone: NDArray[np.float64],
    ) -> None:  # fmt: skip
        # Channels of a site may say nearly the same: what they say apart is lost in single precision.
        self.rows = rows if len(rows) == 1 else rows.astype(np.float64)
        self.alone, self.beside, self.matrix = alone, noise + alone, np.diag(variances)
        self._refresh()

    def gains(self) -> NDArray[np.float64]:
        """Variance that each site would remove."""
        channels = len(self.rows)
        if channels == 1:
            own, alone = self._own[0, 0] + self.beside[0], self.alone[0]
            removed = self._square[0, 0] + alone * (2 * self._own[0, 0] + alone)
            return np.asarray(np.divide(removed, own, out=np.zeros_like(own), where=own > self.floor))
        diagonal, here, there = np.eye(channels)[:, :, np.newaxis], self.alone[:, np.newaxis], self.alone[np.newaxis]
        inverse = np.linalg.pinv((self._own + self.beside * diagonal).transpose(2, 0, 1), _SINGULAR, hermitian=True)
        removed = self._square + (here + there) * self._own + np.square(self.alone) * diagonal
        return np.asarray(np.einsum("scd,dcs->s", inverse, removed))

    def read(self, site: int) -> None:
        """Read one more site."""
        factor = self._factor(site)
        both = np.concatenate([factor, factor @ self.matrix]).astype(self.rows.dtype)
        moved = np.matmul(self.rows, both.T).astype(np.float64)
        here, there = moved[:, :, : len(factor)], moved[:, :, len(factor) :]
        self.matrix -= factor.T @ factor
        if np.trace(self.matrix) < _REFRESHED * self._trace:
            self._refresh()
            return
        self._own -= _products(here, here)
        change = _products(there, here)
        self._square -= change + change.transpose(1, 0, 2)
        self._square += _products(here @ (factor @ factor.T), here)

    def _refresh(self) -> None:
        """Make the numbers of each site from `M`."""
        self._trace = float(np.trace(self.matrix))
        matrix = self.matrix.astype(self.rows.dtype)
        projected = np.matmul(self.rows, matrix)
        self._own, self._square = _products(projected, self.rows), _products(projected, projected)
        self.floor = rounding(self.rows) * float(np.einsum("ccs->s", self._own).max())

    def _factor(self, site: int) -> NDArray[np.float64]:
        """`F` of a site."""
        here = self.rows[:, site].astype(np.float64)
        projected = here @ self.matrix
        sizes, turn = np.linalg.eigh(projected @ here.T + np.diag(self.beside[:, site]))
        keep = sizes > _SINGULAR * sizes[-1]
        return np.asarray((turn[:, keep] / np.sqrt(sizes[keep])).T @ projected)


def _products(ones: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64]:
    """Inner products of each site's rows, ``(channels, channels, sites)``."""
    pairs = [[np.einsum("sr,sr->s", one, other) for other in others] for one in ones]
    return np.asarray(pairs, np.float64)
