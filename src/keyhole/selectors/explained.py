"""What each site would still explain of a covariance of low rank, kept up to date as sites are picked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.components import rounding

__all__ = ["Explained"]

_SINGULAR = 1e-8
_REFRESHED = 0.1  # numbers are made anew when the covariance is down to this share of what they were made from


class Explained:
    """Variance that reading a site would remove from a covariance `V M V'`, for every site at once.

    With `V_j` the rows of site j (one for each channel) and `N_j` its noise, reading it removes
    `tr((V_j M V_j' + N_j)^-1 V_j M^2 V_j')`, after which `M` loses `F'F`, `F = (V_j M V_j' + N_j)^-1/2 V_j M`. Only
    `V_j M V_j'` and `V_j M^2 V_j'` are kept for each site: with `W = V_j F'` and `T = V_j M F'`, they lose `W W'` and
    `T W' + W T' - W F F' W'`. So a pick is one product of `V` with a few columns. Both are made anew from `M` before
    what was taken from them leaves little but rounding.

    Parameters
    ----------
    rows
        ``(channels, sites, r)``, `V`.
    variances
        ``(r,)``, the diagonal of `M` at first.
    noise
        ``(channels, sites)``, variance of each reading's noise.
    """

    def __init__(
        self, rows: NDArray[np.floating[Any]], variances: NDArray[np.float64], noise: NDArray[np.float64]
    ) -> None:
        # Channels of a site may say nearly the same: what they say apart is lost in single precision.
        self.rows = rows if len(rows) == 1 else rows.astype(np.float64)
        self.noise, self.matrix = noise, np.diag(variances)
        self._refresh()

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
        sizes, turn = np.linalg.eigh(projected @ here.T + np.diag(self.noise[:, site]))
        keep = sizes > _SINGULAR * sizes[-1]
        return np.asarray((turn[:, keep] / np.sqrt(sizes[keep])).T @ projected)


def _products(ones: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64]:
    """Inner products of each site's rows, ``(channels, channels, sites)``."""
    pairs = [[np.einsum("sr,sr->s", one, other) for other in others] for one in ones]
    return np.asarray(pairs, np.float64)
