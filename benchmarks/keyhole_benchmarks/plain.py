"""Principal components, QR pivoting and ridge: the usual way without Keyhole, in twenty lines of NumPy and SciPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, svd

__all__ = ["PlainPlan"]

_STRENGTHS = np.logspace(-12, 2, 29)  # of ridge, relative to the largest variance of the readings

Array = NDArray[np.float64]


class PlainPlan:
    """Sites by QR pivoting of as many principal components, and ridge with its strength by leave-one-out errors.

    Parameters
    ----------
    values : ndarray of shape (n, m)
        All samples that there are.
    k : int
        Number of sites.
    phase : ndarray of int, shape (n,)
        Row of the climatology for each sample, such as its month; zeros to subtract the mean.
    weight : ndarray of shape (m,)
        Loss weights of the sites.

    Attributes
    ----------
    climatology : ndarray of shape (phases, m)
        Mean of the samples of each phase.
    sites : ndarray of int, shape (k,)
        The sites.

    References
    ----------
    Manohar et al. (2018), *Data-driven sparse sensor placement for reconstruction*, IEEE Control Systems 38, 63-86.
    Allen (1974), *The relationship between variable selection and data augmentation and a method for prediction*.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> values = rng.normal(size=(50, 2)) @ rng.normal(size=(2, 6))
    >>> plan = PlainPlan(values, 2, np.zeros(50, int), np.ones(6))
    >>> bool(np.allclose(plan.reconstruct(values[:, plan.sites], np.zeros(50, int)), values, atol=1e-3))
    True
    """

    def __init__(self, values: Array, k: int, phase: NDArray[np.int64], weight: Array) -> None:
        self.climatology = np.stack([values[phase == one].mean(axis=0) for one in range(phase.max() + 1)])
        anomalies = values - self.climatology[phase]
        modes = svd(anomalies * np.sqrt(weight), full_matrices=False)[2][:k]
        self.sites = qr(modes, mode="r", pivoting=True)[1][:k]
        u, s, vt = svd(anomalies[:, self.sites], full_matrices=False)
        projected = u.T @ anomalies

        def left_out(strength: float) -> float:
            shrinkage = s**2 / (s**2 + strength)
            residuals = anomalies - (u * shrinkage) @ projected
            leverage = u**2 @ shrinkage + 1 / len(values)
            return float((weight * (residuals / (1 - leverage)[:, np.newaxis]) ** 2).sum())

        strength = min(s[0] ** 2 * _STRENGTHS, key=left_out)
        self.coefficients = vt.T @ ((s / (s**2 + strength))[:, np.newaxis] * projected)

    def reconstruct(self, readings: Array, phase: NDArray[np.int64]) -> Array:
        """Reconstruct all sites.

        Parameters
        ----------
        readings : ndarray of shape (n, k)
            Values at the sites.
        phase : ndarray of int, shape (n,)
            Row of the climatology for each sample.

        Returns
        -------
        ndarray of shape (n, m)
        """
        expected = self.climatology[phase]
        return np.asarray((readings - expected[:, self.sites]) @ self.coefficients + expected)
