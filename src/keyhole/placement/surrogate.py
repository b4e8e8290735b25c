"""What a quick judge of sites is: a closed form that is not linear, and what it leaves of principal components."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from keyhole.placement.fit_score_split import FitScoreSplit

__all__ = ["NONLINEAR_THRESHOLD", "Sites", "Surrogate", "ridge"]

Sites = Sequence[int] | NDArray[np.int64]

NONLINEAR_THRESHOLD = 0.98  # share of what a linear estimate leaves, below which signals are worth one that is not
_STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)


class Surrogate(ABC):
    """Fraction of variance that a closed form leaves, for any set of at most K sites; lower is better.

    Principal components stand for the cells, so that a score costs a tenth of a second.

    Parameters
    ----------
    data
        Samples to teach and to judge by.
    """

    def __init__(self, data: FitScoreSplit) -> None:
        self.data, self.level = data, data.level
        self.taught, self.judged = data.components

    @abstractmethod
    def __call__(self, sites: Sites) -> float:
        """Score the sites (flat grid indices)."""

    @abstractmethod
    def gains(self, sites: Sequence[int], without: int | None = None) -> NDArray[np.float64]:
        """How much is hoped for of each cell of the grid beside the sites, all of them or all but one.

        Minus infinity where nothing may be read beside what is already.
        """

    def linear(self, sites: Sites) -> float:
        """Score the sites by what is linear in the readings, at the best strength."""
        taught, judged = (self.with_one(self.readings(part, sites)) for part in self.data.seen)
        return min(self.left(judged @ ridge(taught, self.taught, strength)) for strength in _STRENGTHS)

    def readings(self, packed: NDArray[np.float32], sites: Sites) -> NDArray[np.float32]:
        """What the sites read, ``(n, K * channels)``, of unit size on the whole."""
        index = np.searchsorted(self.data.signals.grid.cells, sites)
        return packed[:, :, index].transpose(0, 2, 1).reshape(len(packed), -1) / self.level

    def with_one(self, *columns: NDArray[np.float32]) -> NDArray[np.float32]:
        """Join columns behind a constant."""
        return np.concatenate([np.ones((len(columns[0]), 1), np.float32), *columns], axis=1)

    def left(self, reconstructed: NDArray[np.float32]) -> float:
        """Fraction of variance that rebuilt components leave of the samples that judge."""
        whole, beyond = self.data.energy
        return (float(np.square(self.judged - reconstructed, dtype=np.float64).sum()) + beyond) / whole

    def _on_grid(self, gains: NDArray[np.float64], taken: Sequence[int]) -> NDArray[np.float64]:
        """Put gains of cells on the flat grid; minus infinity where nothing may be read beside what is already."""
        signals, room = self.data.signals, self.data.signals.room()
        for site in taken:
            room.take(int(site))
        full = np.full(signals.grid.size, -np.inf)
        full[signals.grid.cells] = gains
        return np.where(room.open, full, -np.inf)


def ridge(design: NDArray[np.float32], targets: NDArray[np.float32], strength: float) -> NDArray[np.float32]:
    """Weights that take the design to the targets; every column is held by the same strength."""
    from scipy.linalg import solve

    gram = design.T @ design
    gram[np.diag_indices(len(gram))] += np.float32(strength * len(design))
    return np.asarray(solve(gram, design.T @ targets, assume_a="pos", check_finite=False), np.float32)
