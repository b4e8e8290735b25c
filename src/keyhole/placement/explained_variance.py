"""Variance explained by each further site under a low-rank covariance, updated as sites are selected."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.models.principal_components import rounding

__all__ = ["ExplainedVariance"]

_SINGULAR = 1e-8
_BLOCK = 2**16  # sites whose rows are multiplied at a time
_REFRESHED = 0.1  # statistics are recomputed when the trace has fallen to this share


class ExplainedVariance:
    """Variance that each site would explain under a low-rank covariance `V M V' + D`, `D` diagonal.

    With `V_j` the rows of site j (one for each channel), `O_j = V_j M V_j'`, and `N_j` its noise, observing it explains
    `tr((O_j + D_j + N_j)^-1 (V_j M^2 V_j' + D_j O_j + O_j D_j + D_j^2))`, after which `M` loses `F'F`,
    `F = (O_j + D_j + N_j)^-1/2 V_j M`. Only `O_j` and `V_j M^2 V_j'` are kept for each site: with `W = V_j F'` and
    `T = V_j M F'`, they lose `W W'` and `T W' + W T' - W F F' W'`. So a selection costs one product of `V` with a few
    columns. Both are recomputed from `M` before rounding errors dominate them.

    Parameters
    ----------
    rows
        ``(channels, sites, r)``, `V`.
    variances
        ``(r,)``, the diagonal of `M` at first.
    noise
        ``(channels, sites)``, variance of each reading's noise.
    unresolved
        ``(channels, sites)``, the diagonal of `D`: variance of each site that is uncorrelated with all others.

    Examples
    --------
    >>> rows, nothing = np.array([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]), np.zeros((1, 3))
    >>> explained = ExplainedVariance(rows, np.array([3.0, 1.0]), nothing, nothing)
    >>> explained.gains()
    array([3., 3., 1.])
    >>> explained.observe(0)
    >>> explained.gains()
    array([0., 0., 1.])
    """

    def __init__(
        self, rows: NDArray[np.floating[Any]], variances: NDArray[np.float64], noise: NDArray[np.float64],
        unresolved: NDArray[np.float64],
    ) -> None:  # fmt: skip
        # Channels of a site may be nearly collinear: their difference is lost in single precision.
        self.rows = rows if len(rows) == 1 else rows.astype(np.float64)
        self.unresolved, self.diagonal, self.matrix = unresolved, noise + unresolved, np.diag(variances)
        self._refresh()

    def gains(self) -> NDArray[np.float64]:
        """Return the reduction of the total variance by each site, ``(sites,)``."""
        channels = len(self.rows)
        if channels == 1:
            own, unresolved = self._own[0, 0] + self.diagonal[0], self.unresolved[0]
            removed = self._products[0, 0] + unresolved * (2 * self._own[0, 0] + unresolved)
            return np.asarray(np.divide(removed, own, out=np.zeros_like(own), where=own > self.floor))
        diagonal, first, second = np.eye(channels)[:, :, np.newaxis], self.unresolved[:, np.newaxis], self.unresolved
        inverse = np.linalg.pinv((self._own + self.diagonal * diagonal).transpose(2, 0, 1), _SINGULAR, hermitian=True)
        removed = self._products + (first + second) * self._own + np.square(self.unresolved) * diagonal
        return np.asarray(np.einsum("scd,dcs->s", inverse, removed))

    def observe(self, site: int) -> None:
        """Observe one more site."""
        factor = self._factor(site)
        both = np.concatenate([factor, factor @ self.matrix]).astype(self.rows.dtype)
        projections = np.matmul(self.rows, both.T).astype(np.float64)
        first, second = projections[:, :, : len(factor)], projections[:, :, len(factor) :]
        self.matrix -= factor.T @ factor
        if np.trace(self.matrix) < _REFRESHED * self._trace:
            self._refresh()
            return
        self._own -= _products(first, first)
        change = _products(second, first)
        self._products -= change + change.transpose(1, 0, 2)
        self._products += _products(first @ (factor @ factor.T), first)

    def _refresh(self) -> None:
        """Recompute the statistics of each site from `M`."""
        self._trace = float(np.trace(self.matrix))
        matrix = self.matrix.astype(self.rows.dtype)
        channels, sites, _ = self.rows.shape
        self._own, self._products = np.empty((2, channels, channels, sites))
        for start in range(0, sites, _BLOCK):
            block = slice(start, start + _BLOCK)
            projected = np.matmul(self.rows[:, block], matrix)
            self._own[..., block] = _products(projected, self.rows[:, block])
            self._products[..., block] = _products(projected, projected)
        self.floor = rounding(self.rows) * float(np.einsum("ccs->s", self._own).max())

    def _factor(self, site: int) -> NDArray[np.float64]:
        """Return `F` of a site."""
        first = self.rows[:, site].astype(np.float64)
        projected = first @ self.matrix
        values, vectors = np.linalg.eigh(projected @ first.T + np.diag(self.diagonal[:, site]))
        keep = values > _SINGULAR * values[-1]
        return np.asarray((vectors[:, keep] / np.sqrt(values[keep])).T @ projected)


def _products(ones: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64]:
    """Inner products of each site's rows, ``(channels, channels, sites)``."""
    pairs = [[np.einsum("sr,sr->s", one, other) for other in others] for one in ones]
    return np.asarray(pairs, np.float64)
