"""Least squares on a design that all sites share, where some values may be missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.climatology import Climatology
from keyhole.data.samples import Samples
from keyhole.data.values import read_columns

__all__ = ["NormalEquations", "fit_harmonics"]

_BLOCK = 4096  # samples at once
_VALUES = 2**22  # at once


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """Sums `D'D` and `D'x` over the samples in which a value is known.

    Parameters
    ----------
    gram : ndarray of shape (sites, p, p) or (1, p, p)
        `D'D` of each site; one for all where nothing is missing.
    right : ndarray of shape (sites, p)
        `D'x`.

    Examples
    --------
    >>> design, values = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> NormalEquations.of(design, values, np.ones((3, 1), bool)).solve(np.zeros(2)).ravel().round(6).tolist()
    [1.0, 2.0]
    """

    gram: NDArray[np.float64]
    right: NDArray[np.float64]

    @classmethod
    def of(
        cls, design: NDArray[np.float64], values: NDArray[np.float64], known: NDArray[np.bool_]
    ) -> NormalEquations:  # fmt: skip
        """Sum over samples.

        Parameters
        ----------
        design : ndarray of shape (n, p)
            Columns that values are regressed on.
        values, known : ndarray of shape (n, sites)
            Values, zero where they are not known, and whether they are.
        """
        right = values.T @ design
        if known.all():
            return cls((design.T @ design)[np.newaxis], right)
        n, p = design.shape
        gram = np.zeros((values.shape[1], p * p))
        for rows in (slice(start, start + _BLOCK) for start in range(0, n, _BLOCK)):
            products = design[rows, :, np.newaxis] * design[rows, np.newaxis, :]
            gram += known[rows].T.astype(np.float64) @ products.reshape(-1, p * p)
        return cls(gram.reshape(-1, p, p), right)

    def __sub__(self, other: NormalEquations) -> NormalEquations:
        """Sums over the samples of the one that are not among those of the other."""
        return NormalEquations(self.gram - other.gram, self.right - other.right)

    def solve(self, ridge: NDArray[np.float64], columns: slice = slice(None)) -> NDArray[np.float64]:
        """Return the coefficients of some columns, ``(p, sites)``.

        Parameters
        ----------
        ridge : ndarray of shape (p,)
            Added to the diagonal.
        columns : slice
            The columns to regress on.
        """
        gram, right = self.gram[:, columns, columns] + np.diag(ridge), self.right[:, columns]
        if len(gram) == 1:
            return np.asarray(np.linalg.solve(gram[0], right.T))
        return np.asarray(np.linalg.solve(gram, right[:, :, np.newaxis])[:, :, 0].T)


def fit_harmonics(samples: Samples, climatology: Climatology) -> NDArray[np.floating[Any]]:
    """Fit harmonics to samples in memory of which some values are missing, site by site.

    Sites that are rarely known may not determine all coefficients. So those of the waves are shrunk, by as much as one
    more sample without any would do.

    Parameters
    ----------
    samples : Samples
        In the user's units.
    climatology : Climatology
        Of the kind ``"harmonics"``.

    Returns
    -------
    ndarray of shape (columns, channels, m)
        Coefficients, in the precision of the values.
    """
    n, channels, m = samples.shape
    design, ridge = climatology.design(samples.time), np.ones(climatology.n_columns)
    ridge[0] = 0
    found = np.empty((len(ridge), channels, m), samples.values.dtype)
    step = max(1, _VALUES // (channels * max(n, len(ridge) ** 2)))
    for sites in (slice(start, start + step) for start in range(0, m, step)):
        values = read_columns(samples.source, sites).reshape(n, -1)
        known = ~np.isnan(values)
        mean = np.where(known, values, 0).sum(axis=0, dtype=np.float64) / known.sum(axis=0)
        fitted = NormalEquations.of(design, np.where(known, values - mean, 0.0), known).solve(ridge)
        fitted[0] += mean
        found[:, :, sites] = fitted.reshape(len(ridge), channels, -1)
    return found
