"""What a quick judge of sites is: a closed form that is not linear, and what it leaves of principal components."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from keyhole.reconstructors.base import flat
from keyhole.selectors.halves import Halves

__all__ = ["CURVED", "Proxy", "Sites", "ridge"]

Sites = Sequence[int] | NDArray[np.int64]

CURVED = 0.98  # share of what a linear estimate leaves, below which signals are worth one that is not
_STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)
_MOST_SCREENED = 5000
_LEADING = 16  # components by which samples are told alike
_MOST_GROUPS, _SAMPLES_IN_A_GROUP = 12, 50
_ROUNDS = 4
_LEAST_NOISE = 0.05  # share of the mean variance; a site that hardly varies explains nothing


class Proxy(ABC):
    """Fraction of variance that a closed form leaves, for any set of at most K sites; lower is better.

    Principal components stand for the cells, so that a score costs a tenth of a second.

    Parameters
    ----------
    data
        Samples to teach and to judge by.
    """

    def __init__(self, data: Halves) -> None:
        self.data = data
        self.level = np.float32(max(float(data.seen[0].std()), float(np.finfo(np.float32).tiny)))
        self.taught, self.judged = data.components

    @abstractmethod
    def __call__(self, sites: Sites) -> float:
        """Score the sites (flat grid indices)."""

    @abstractmethod
    def relearn(self, sites: Sites, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Give components of the samples that teach, rebuilt from the sites; ``places`` are theirs among K."""

    def linear(self, sites: Sites) -> float:
        """Score the sites by what is linear in the readings, at the best strength."""
        taught, judged = (self.with_one(self.readings(part, sites)) for part in self.data.seen)
        return min(self.left(judged @ ridge(taught, self.taught, strength)) for strength in _STRENGTHS)

    def gains(self, sites: Sequence[int], without: int | None = None) -> NDArray[np.float64]:
        """What each cell of the grid would explain of what the sites leave, all of them or all but one.

        Samples that are rebuilt alike are one group: in each the gain of cell j is `|cov(e, e_j)|^2 / var(e_j)`, with
        `e` what is left. So a cell counts that tells what the readings leave open, be it in some samples only.
        """
        places = np.delete(np.arange(len(sites)), [] if without is None else [without])
        kept, some = [sites[int(place)] for place in places], slice(0, _MOST_SCREENED)
        rebuilt = self.relearn(kept, places)[some]
        left, whole = self.taught[some] - rebuilt, flat(self.data.taught[some]) - rebuilt @ self.data.basis
        gains = np.sum([self._explained(whole[group], left[group]) for group in _groups(rebuilt)], axis=0)
        return self._on_grid(gains.reshape(self.data.taught.shape[1:]).sum(axis=0), kept)

    def readings(self, packed: NDArray[np.float32], sites: Sites) -> NDArray[np.float32]:
        """What the sites read, ``(n, K * channels)``, of unit size on the whole."""
        index = np.searchsorted(self.data.signals.grid.cells, sites)
        return packed[:, :, index].transpose(0, 2, 1).reshape(len(packed), -1) / self.level

    def with_one(self, *columns: NDArray[np.float32]) -> NDArray[np.float32]:
        """Join columns behind a constant."""
        return np.concatenate([np.ones((len(columns[0]), 1), np.float32), *columns], axis=1)

    def left(self, rebuilt: NDArray[np.float32]) -> float:
        """Fraction of variance that rebuilt components leave of the samples that judge."""
        whole, beyond = self.data.energy
        return (float(np.square(self.judged - rebuilt, dtype=np.float64).sum()) + beyond) / whole

    def _explained(self, whole: NDArray[np.float32], left: NDArray[np.float32]) -> NDArray[np.float64]:
        noise = _LEAST_NOISE * float(self.level) ** 2 * len(whole)
        return np.asarray(np.square(whole.T @ left).sum(axis=1) / (np.square(whole).sum(axis=0) + noise), np.float64)

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


def _groups(rebuilt: NDArray[np.float32]) -> list[NDArray[np.bool_]]:
    """Samples that are rebuilt alike: a few rounds of k-means."""
    count = int(np.clip(len(rebuilt) // _SAMPLES_IN_A_GROUP, 1, _MOST_GROUPS))
    leading = rebuilt[:, :_LEADING]
    centres = leading[np.linspace(0, len(leading) - 1, count).astype(int)]
    for _ in range(_ROUNDS):
        nearest = (np.square(centres).sum(axis=1) - 2 * leading @ centres.T).argmin(axis=1)
        groups = [nearest == group for group in np.unique(nearest)]
        centres = np.stack([leading[group].mean(axis=0) for group in groups])
    return groups
