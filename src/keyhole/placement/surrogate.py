"""Interface of the surrogates: fast closed-form stand-ins for the reconstructor during a search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from keyhole.placement.fit_score_split import FitScoreSplit

__all__ = ["NONLINEAR_THRESHOLD", "Sites", "Surrogate", "ridge"]

Sites = Sequence[int] | NDArray[np.int64]

NONLINEAR_THRESHOLD = 0.98  # ratio of non-linear to linear error below which the non-linear surrogate is used
_REGULARISATIONS = (1e-3, 1e-2, 1e-1, 1.0)


class Surrogate(ABC):
    """Unexplained variance of a closed-form non-linear reconstruction, for any set of at most K sites; lower is better.

    The leading principal components stand for the valid sites, so that one evaluation takes about a tenth of a second.

    Parameters
    ----------
    data
        Fitting and scoring samples.
    """

    def __init__(self, data: FitScoreSplit) -> None:
        self.data, self.level = data, data.level
        self.fitting, self.scoring = data.components

    @abstractmethod
    def __call__(self, sites: Sites) -> float:
        """Return the unexplained variance for the sites (flat grid indices)."""

    @abstractmethod
    def gains(self, sites: Sequence[int], without: int | None = None) -> NDArray[np.float64]:
        """Estimate the gain of each site of the grid in addition to the given ones, or all of them but one.

        Parameters
        ----------
        sites
            Flat grid indices of the selected sites.
        without
            Position of the site to leave out, if any.

        Returns
        -------
        ndarray
            One value for each site of the flat grid, minus infinity where infeasible. Only the order matters.
        """

    def linear(self, sites: Sites) -> float:
        """Return the unexplained variance of ridge regression with the best regularisation."""
        fitting, scoring = (self.with_intercept(self.readings(part, sites)) for part in self.data.seen)
        return min(
            self.unexplained(scoring @ ridge(fitting, self.fitting, regularisation))
            for regularisation in _REGULARISATIONS
        )

    def readings(self, packed: NDArray[np.float32], sites: Sites) -> NDArray[np.float32]:
        """Readings of the sites, ``(n, K * channels)``, divided by their overall standard deviation."""
        index = np.searchsorted(self.data.samples.grid.cells, sites)
        return packed[:, :, index].transpose(0, 2, 1).reshape(len(packed), -1) / self.level

    def with_intercept(self, *columns: NDArray[np.float32]) -> NDArray[np.float32]:
        """Concatenate columns after a column of ones."""
        return np.concatenate([np.ones((len(columns[0]), 1), np.float32), *columns], axis=1)

    def unexplained(self, reconstructed: NDArray[np.float32]) -> float:
        """Unexplained variance of reconstructed components on the scoring samples."""
        whole, beyond = self.data.energy
        return (float(np.square(self.scoring - reconstructed, dtype=np.float64).sum()) + beyond) / whole

    def _on_grid(self, gains: NDArray[np.float64], selected: Sequence[int]) -> NDArray[np.float64]:
        """Put gains of the valid sites on the flat grid; minus infinity where infeasible."""
        samples, feasible = self.data.samples, self.data.samples.feasible_set()
        for site in selected:
            feasible.add(int(site))
        full = np.full(samples.grid.size, -np.inf)
        full[samples.grid.cells] = gains
        return np.where(feasible.mask, full, -np.inf)


def ridge(design: NDArray[np.float32], targets: NDArray[np.float32], regularisation: float) -> NDArray[np.float32]:
    """Return the weights of ridge regression from the design to the targets, all columns equally regularised."""
    from scipy.linalg import solve

    gram = design.T @ design
    gram[np.diag_indices(len(gram))] += np.float32(regularisation * len(design))
    return np.asarray(solve(gram, design.T @ targets, assume_a="pos", check_finite=False), np.float32)
