"""Imputation of missing values by their conditional mean under a Gaussian model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["GaussianImputer", "impute_by_covariance"]

_ITERATIONS = 6
_MOST_COMPONENTS, _SAMPLES_PER_COMPONENT = 40, 5
_LEAST_NOISE = 1e-3  # share of the mean variance

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class GaussianImputer:
    r"""Impute missing values with a low-rank Gaussian model (probabilistic principal components).

    A sample is modelled as :math:`x = V a + e` with scores :math:`a \sim N(0, \Lambda)` and noise :math:`e \sim N(0,
    D)`, :math:`D` diagonal. Missing values :math:`m` are imputed by their mean given the known values :math:`k`,

    .. math:: \hat x_m = V_m \hat a, \qquad \hat a = (\Lambda^{-1} + V_k^T D_k^{-1} V_k)^{-1} V_k^T D_k^{-1} x_k .

    The model is fitted by alternating imputation and principal component analysis (six iterations from zeros).

    Parameters
    ----------
    basis : ndarray of shape (p, r)
        Principal directions, :math:`V`.
    variances : ndarray of shape (r,)
        Variances of the scores, the diagonal of :math:`\Lambda`.
    noise : ndarray of shape (p,)
        Noise variances, the diagonal of :math:`D`.

    References
    ----------
    Tipping, M. E. and Bishop, C. M. (1999). Probabilistic principal component analysis. Journal of the Royal
    Statistical Society B 61(3), 611-622.

    Beckers, J.-M. and Rixen, M. (2003). EOF calculations and data filling from incomplete oceanographic datasets.
    Journal of Atmospheric and Oceanic Technology 20(12), 1839-1856. (The same alternation, without noise.)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(200, 1)) * np.array([1.0, 2.0, -1.0, 0.5])
    >>> missing = rng.random(rows.shape) < 0.1
    >>> imputer = GaussianImputer.fit(np.where(missing, np.nan, rows), missing)
    >>> bool(np.abs(imputer.fill(rows, missing) - rows).max() < 0.3)
    True
    """

    basis: NDArray[np.float32]
    variances: NDArray[np.float64]
    noise: NDArray[np.float64]

    @classmethod
    def fit(cls, rows: NDArray[Any], missing: Bools) -> Self:
        """Fit the model to incomplete rows.

        Parameters
        ----------
        rows : ndarray of shape (n, p)
            Samples with mean zero; values at missing positions are ignored.
        missing : ndarray of bool, shape (n, p)
            Which values are missing.

        Returns
        -------
        GaussianImputer
            With at most 40 components, one for each five samples.
        """
        filled = np.where(missing, 0, rows).astype(np.float32)
        n_components = int(max(1, min(_MOST_COMPONENTS, len(rows) // _SAMPLES_PER_COMPONENT, rows.shape[1] // 2)))
        imputer = cls._fit_imputed(filled, missing, n_components)
        for _ in range(_ITERATIONS):
            filled = imputer.fill(filled, missing)
            imputer = cls._fit_imputed(filled, missing, n_components)
        return imputer

    @classmethod
    def _fit_imputed(cls, filled: NDArray[np.float32], missing: Bools, n_components: int) -> Self:
        """Fit the model to imputed rows by a randomised singular value decomposition."""
        from sklearn.utils.extmath import randomized_svd

        left, singular_values, right = randomized_svd(filled, n_components, n_iter=2, random_state=0)
        residual = np.where(missing, 0, filled - (left * singular_values) @ right)
        known = np.maximum((~missing).sum(axis=0), 1)
        level = max(float(np.square(filled).mean(dtype=np.float64)), np.finfo(float).tiny)
        noise = np.square(residual, dtype=np.float64).sum(axis=0) / known + _LEAST_NOISE * level
        variances = np.square(singular_values).astype(np.float64) / len(filled)
        return cls(np.asarray(right.T, np.float32), variances, noise)

    def fill(self, rows: NDArray[Any], missing: Bools) -> NDArray[np.float32]:
        """Impute missing values by their conditional mean given the known values of the same row.

        Parameters
        ----------
        rows : ndarray of shape (n, p)
            Samples with mean zero.
        missing : ndarray of bool, shape (n, p)
            Which values are missing. A row without known values is filled with zeros, the mean.

        Returns
        -------
        ndarray of shape (n, p)
            float32; known values are unchanged.
        """
        filled = np.where(missing, 0, rows).astype(np.float32)
        scaled = self.basis / self.noise[:, np.newaxis]
        precision = (scaled.T @ self.basis).astype(np.float64)
        prior = np.diag(1 / np.maximum(self.variances, np.finfo(float).tiny))
        for row in np.flatnonzero(missing.any(axis=1)):
            absent = missing[row]
            known_precision = precision - scaled[absent].T @ self.basis[absent]
            scores = np.linalg.solve(prior + known_precision, scaled.T @ filled[row].astype(np.float64))
            filled[row, absent] = self.basis[absent] @ scores
        return filled

    def covariance(self, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the model's covariance of some variables, noise included.

        Parameters
        ----------
        columns : ndarray of int, shape (c,)
            The variables.

        Returns
        -------
        ndarray of shape (c, c)
        """
        rows = self.basis[columns].astype(np.float64)
        return np.asarray((rows * self.variances) @ rows.T + np.diag(self.noise[columns]))


def impute_by_covariance(rows: NDArray[Any], covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Impute NaN in rows with mean zero by the conditional mean, :math:`C_{mk} C_{kk}^{-1} x_k`.

    Prefer it to `GaussianImputer` where the covariance is known and the rows are short, such as readings of K sensors.

    Parameters
    ----------
    rows : ndarray of shape (n, k)
        NaN marks missing values.
    covariance : ndarray of shape (k, k)
        Covariance of a row.

    Returns
    -------
    ndarray of shape (n, k)
        float64, without NaN.

    Examples
    --------
    >>> impute_by_covariance(np.array([[2.0, np.nan]]), np.array([[1.0, 0.5], [0.5, 1.0]])).round(3)
    array([[2., 1.]])
    """
    filled, missing = np.array(rows, np.float64), np.isnan(rows)
    ridge = _LEAST_NOISE * 1e-3 * max(float(np.trace(covariance)) / max(len(covariance), 1), np.finfo(float).tiny)
    for pattern in np.unique(missing[missing.any(axis=1)], axis=0):
        affected = (missing == pattern).all(axis=1)
        known = covariance[np.ix_(~pattern, ~pattern)] + ridge * np.eye(int((~pattern).sum()))
        weights = np.linalg.solve(known, covariance[np.ix_(~pattern, pattern)])
        filled[np.ix_(affected, pattern)] = filled[np.ix_(affected, ~pattern)] @ weights
    return filled
