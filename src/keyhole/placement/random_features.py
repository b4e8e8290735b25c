"""A quick judge that is not linear: random features of the readings, a closed form towards all cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.models.reconstructors.base import flat
from keyhole.placement.fit_score_split import FitScoreSplit
from keyhole.placement.surrogate import Sites, Surrogate, ridge

__all__ = ["Bandwidth", "RandomFeatureSurrogate"]

_FEWEST_FEATURES, _MOST_FEATURES = 32, 400
_SAMPLES_FOR_A_FEATURE = 16
_MOST_SCREENED = 5000
_LEADING = 16  # components by which samples are told alike
_MOST_GROUPS, _SAMPLES_IN_A_GROUP = 12, 50
_ROUNDS = 4
_LEAST_NOISE = 0.05  # share of the mean variance; a site that hardly varies explains nothing


@dataclass(frozen=True)
class Bandwidth:
    """How fast the features vary with the readings, and how strong the ridge is."""

    scale: float
    strength: float


_GRID = tuple(Bandwidth(scale, strength) for scale in (0.25, 0.5, 1.0) for strength in (1e-3, 1e-2, 1e-1))


class RandomFeatureSurrogate(Surrogate):
    """What random features of the readings leave.

    Readings `r` are rebuilt as `[1, r, cos(r A + c)] B`: `A` and `c` are random and stay, `B` is ridge's. Sums of such
    cosines come near any smooth function (Rahimi & Recht). That all sites are judged by the same draw makes it tell
    small differences.

    Parameters
    ----------
    data
        Samples to teach and to judge by.
    k
        The most sites in a set.
    """

    def __init__(self, data: FitScoreSplit, k: int, bandwidth: Bandwidth, run: Run) -> None:
        super().__init__(data)
        self.bandwidth, rng = bandwidth, run.generator("random features")
        samples, channels = data.taught.shape[:2]
        count = int(np.clip(samples // _SAMPLES_FOR_A_FEATURE, _FEWEST_FEATURES, _MOST_FEATURES))
        directions = rng.standard_normal((k, channels, count)) * bandwidth.scale / np.sqrt(k * channels)
        self.directions = directions.astype(np.float32)
        self.phases = rng.uniform(0, 2 * np.pi, count).astype(np.float32)

    @classmethod
    def fit_surrogate(cls, data: FitScoreSplit, sites: NDArray[np.int64], run: Run) -> Self:
        """Give the score whose bandwidth suits these sites best."""
        scores = [cls(data, len(sites), bandwidth, run) for bandwidth in _GRID]
        return scores[int(np.argmin([score(sites) for score in scores]))]

    def __call__(self, sites: Sites) -> float:
        """Score the sites (flat grid indices)."""
        places = np.arange(len(sites))
        taught, judged = (self._design(part, sites, places) for part in self.data.seen)
        return self.left(judged @ ridge(taught, self.taught, self.bandwidth.strength))

    def gains(self, sites: Sequence[int], without: int | None = None) -> NDArray[np.float64]:
        """What each cell of the grid would explain of what the sites leave, all of them or all but one.

        Samples that are rebuilt alike are one group: in each the gain of cell j is `|cov(e, e_j)|^2 / var(e_j)`, with
        `e` what is left. So a cell counts that tells what the readings leave open, be it in some samples only.
        """
        places = np.delete(np.arange(len(sites)), [] if without is None else [without])
        kept, some = [sites[int(place)] for place in places], slice(0, _MOST_SCREENED)
        reconstructed = self._relearn(kept, places)[some]
        left, whole = self.taught[some] - reconstructed, flat(self.data.taught[some]) - reconstructed @ self.data.basis
        gains = np.sum([self._explained(whole[group], left[group]) for group in _groups(reconstructed)], axis=0)
        return self._on_grid(gains.reshape(self.data.taught.shape[1:]).sum(axis=0), kept)

    def _relearn(self, sites: Sites, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rebuild the samples that teach; features are few beside them, so they are not known by heart."""
        design = self._design(self.data.seen[0], sites, places)
        return design @ ridge(design, self.taught, self.bandwidth.strength)

    def _explained(self, whole: NDArray[np.float32], left: NDArray[np.float32]) -> NDArray[np.float64]:
        noise = _LEAST_NOISE * float(self.level) ** 2 * len(whole)
        return np.asarray(np.square(whole.T @ left).sum(axis=1) / (np.square(whole).sum(axis=0) + noise), np.float64)

    def _design(self, packed: NDArray[np.float32], sites: Sites, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """`[1, r, cos(r A + c)]`; ``places`` tells which rows of `A` the sites have."""
        readings = self.readings(packed, sites)
        directions = self.directions[places].reshape(-1, len(self.phases))
        return self.with_one(readings, np.cos(readings @ directions + self.phases))


def _groups(reconstructed: NDArray[np.float32]) -> list[NDArray[np.bool_]]:
    """Samples that are rebuilt alike: a few rounds of k-means."""
    count = int(np.clip(len(reconstructed) // _SAMPLES_IN_A_GROUP, 1, _MOST_GROUPS))
    leading = reconstructed[:, :_LEADING]
    centres = leading[np.linspace(0, len(leading) - 1, count).astype(int)]
    for _ in range(_ROUNDS):
        nearest = (np.square(centres).sum(axis=1) - 2 * leading @ centres.T).argmin(axis=1)
        groups = [nearest == group for group in np.unique(nearest)]
        centres = np.stack([leading[group].mean(axis=0) for group in groups])
    return groups
