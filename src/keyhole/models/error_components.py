"""Errors on held-out samples in low-rank form, so that the error of any mean over sites follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["ErrorComponents"]

_IMPUTATION_ROUNDS = 3
_NEGLIGIBLE = 1e-10  # of the largest eigenvalue


@dataclass(frozen=True, eq=False)
class ErrorComponents:
    r"""Principal components of the errors of n samples, and the variance that they leave unresolved.

    .. math:: e_{ij} = \sigma_j \Big( \sum_r t_{ir} l_{rj} + \sqrt{g_i u_j}\, \varepsilon_{ij} \Big),
              \qquad u_j = 1 - \sum_r l_{rj}^2

    with standardised scores :math:`t` and noise :math:`\varepsilon` that is independent between sites. Errors of a mean
    over sites are dominated by the leading components, since what is independent averages out.

    Parameters
    ----------
    variance
        ``(channels * m,)``, mean squared error :math:`\sigma_j^2` of each site in the user's units.
    loadings
        ``(r, channels * m)``, the components :math:`l`, relative to the standard deviation of each site.
    scores
        ``(n, r)``, the scores :math:`t`, of unit mean square.
    remainder
        ``(n,)``, relative variance :math:`g_i` of what is unresolved in each sample.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> common = rng.normal(size=(200, 1))  # half of the variance of each of 30 sites is common to all
    >>> errors = common + rng.normal(size=(200, 30))
    >>> found = ErrorComponents.of(errors, most=1)
    >>> resolved, unresolved = found.project(np.full(30, 1 / 30))
    >>> bool(np.corrcoef(resolved, errors.mean(axis=1))[0, 1] > 0.99), round(float(unresolved.mean()) * 30, 1)
    (True, 1.0)
    """

    variance: NDArray[np.float64]
    loadings: NDArray[np.floating[Any]]
    scores: NDArray[np.float32]
    remainder: NDArray[np.float32]

    @classmethod
    def of(cls, errors: NDArray[Any], *, most: int, scale: NDArray[np.float64] | None = None) -> Self:
        """Decompose errors.

        Parameters
        ----------
        errors
            ``(n, channels * m)``, in the user's units; NaN where the truth is missing, which is imputed from the
            components.
        most
            Largest number of components.
        scale
            ``(channels * m,)``, units in which errors of different channels are comparable; None if they are.
        """
        missing, unit = np.isnan(errors), np.ones(errors.shape[1]) if scale is None else scale
        variance = _mean_squares(errors, missing, unit)
        values = np.where(missing, 0, errors / unit).astype(np.float32)
        for _ in range(_IMPUTATION_ROUNDS if missing.any() else 0):
            left, basis, _ = _leading(values, most)
            values = np.where(missing, left @ basis, values)
        left, basis, energy = _leading(values, most)
        mean = float(energy.mean())
        remainder = energy / mean if mean > 0 else np.ones(len(energy))
        return cls(
            variance,
            (basis * (unit / np.sqrt(variance)) / np.sqrt(len(errors))).astype(np.float16),
            (left * np.sqrt(len(errors))).astype(np.float32),
            remainder.astype(np.float32),
        )

    def __len__(self) -> int:
        return len(self.scores)

    @cached_property
    def unresolved(self) -> NDArray[np.float32]:
        """Share of the variance of each site that the components leave, ``(channels * m,)``."""
        return np.asarray(np.maximum(1 - np.square(self.loadings, dtype=np.float32).sum(axis=0), 0), np.float32)

    def squares(self, columns: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.float32]:
        """Return the expected squared error of each sample at some sites, ``(n, columns)``."""
        resolved = np.square(self.scores @ self.loadings[:, columns].astype(np.float32))
        resolved += self.remainder[:, np.newaxis] * self.unresolved[columns]
        resolved *= self.variance[columns].astype(np.float32)
        return np.asarray(resolved)

    def project(self, weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what is known of a weighted sum of the errors of each sample.

        Parameters
        ----------
        weights
            ``(channels * m,)``.

        Returns
        -------
        resolved, variance : ndarray
            ``(n,)``, the sum over the components, and the variance of what these leave.
        """
        relative = weights * np.sqrt(self.variance)
        resolved = self.scores.astype(np.float64) @ (self.loadings.astype(np.float32) @ relative)
        return np.asarray(resolved), np.asarray(
            self.remainder * float(np.square(relative) @ self.unresolved), np.float64
        )


def _leading(
    values: NDArray[np.float32], most: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
    """Orthonormal left vectors (n, r), their products with the values (r, columns), and what is left of each row."""
    gram = (values @ values.T).astype(np.float64)
    eigenvalues, vectors = np.linalg.eigh(gram)
    count = min(most, max(int((eigenvalues > _NEGLIGIBLE * eigenvalues[-1]).sum()), 1))
    leading = vectors[:, ::-1][:, :count]
    left = leading.astype(np.float32)
    energy = np.diag(gram) - np.square(leading) @ eigenvalues[::-1][:count]
    return left, left.T @ values, np.maximum(energy, 0)


def _mean_squares(errors: NDArray[Any], missing: NDArray[np.bool_], unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each column, with the overall mean as one more sample, so that no site has zero error by chance."""
    total = np.where(missing, 0, np.square(errors, dtype=np.float64)).sum(axis=0)
    known = (~missing).sum(axis=0)
    overall = float((total / np.square(unit)).sum()) / max(int(known.sum()), 1) * np.square(unit)
    return np.asarray(np.maximum((total + overall) / (known + 1), np.finfo(float).tiny))
