"""What is missing in some samples, and what the rest tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["GaussianImputer", "impute_by_covariance"]

_ROUNDS = 6
_MOST_COMPONENTS, _SAMPLES_FOR_A_COMPONENT = 40, 5
_LEAST_NOISE = 1e-3  # share of the mean variance

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class GaussianImputer:
    """A low-rank Gaussian of all numbers of a sample, `x = V a + e` with `a ~ N(0, L)` and noise `e` of variance `d`.

    What is missing of a sample is filled with its mean given the rest: `V_m a`, with
    `a = (L^-1 + V_k' D^-1 V_k)^-1 V_k' D^-1 x_k`. It is fitted to samples with gaps by turns: fill, then take the
    principal components anew.

    Parameters
    ----------
    basis
        ``(p, r)``, V.
    variances
        ``(r,)``, L.
    noise
        ``(p,)``, d.
    """

    basis: NDArray[np.float32]
    variances: NDArray[np.float64]
    noise: NDArray[np.float64]

    @classmethod
    def fit(cls, rows: NDArray[Any], gaps: Bools) -> Self:
        """Fit to rows ``(n, p)`` of mean zero; what ``gaps`` marks is not known."""
        filled = np.where(gaps, 0, rows).astype(np.float32)
        count = int(max(1, min(_MOST_COMPONENTS, len(rows) // _SAMPLES_FOR_A_COMPONENT, rows.shape[1] // 2)))
        made = cls._of(filled, gaps, count)
        for _ in range(_ROUNDS):
            filled = made.fill(filled, gaps)
            made = cls._of(filled, gaps, count)
        return made

    @classmethod
    def _of(cls, filled: NDArray[np.float32], gaps: Bools, count: int) -> Self:
        from sklearn.utils.extmath import randomized_svd

        left, sizes, right = randomized_svd(filled, count, n_iter=2, random_state=0)
        rest = np.where(gaps, 0, filled - (left * sizes) @ right)
        known = np.maximum((~gaps).sum(axis=0), 1)
        level = max(float(np.square(filled).mean(dtype=np.float64)), np.finfo(float).tiny)
        noise = np.square(rest, dtype=np.float64).sum(axis=0) / known + _LEAST_NOISE * level
        return cls(np.asarray(right.T, np.float32), np.square(sizes).astype(np.float64) / len(filled), noise)

    def fill(self, rows: NDArray[Any], gaps: Bools) -> NDArray[np.float32]:
        """Fill what is missing with what the rest of the same row tells."""
        filled = np.where(gaps, 0, rows).astype(np.float32)
        scaled = self.basis / self.noise[:, np.newaxis]
        whole = (scaled.T @ self.basis).astype(np.float64)
        prior = np.diag(1 / np.maximum(self.variances, np.finfo(float).tiny))
        for row in np.flatnonzero(gaps.any(axis=1)):
            absent = gaps[row]
            inner = whole - scaled[absent].T @ self.basis[absent]
            scores = np.linalg.solve(prior + inner, scaled.T @ filled[row].astype(np.float64))
            filled[row, absent] = self.basis[absent] @ scores
        return filled

    def covariance(self, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Covariance of some of the numbers."""
        rows = self.basis[columns].astype(np.float64)
        return np.asarray((rows * self.variances) @ rows.T + np.diag(self.noise[columns]))


def impute_by_covariance(rows: NDArray[Any], covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fill NaN in rows ``(n, k)`` of mean zero with `C_mk C_kk^-1 x_k`, their mean given the rest of the row."""
    filled, gaps = np.array(rows, np.float64), np.isnan(rows)
    ridge = _LEAST_NOISE * 1e-3 * max(float(np.trace(covariance)) / max(len(covariance), 1), np.finfo(float).tiny)
    for pattern in np.unique(gaps[gaps.any(axis=1)], axis=0):
        those = (gaps == pattern).all(axis=1)
        inner = covariance[np.ix_(~pattern, ~pattern)] + ridge * np.eye(int((~pattern).sum()))
        weights = np.linalg.solve(inner, covariance[np.ix_(~pattern, pattern)])
        filled[np.ix_(those, pattern)] = filled[np.ix_(those, ~pattern)] @ weights
    return filled
