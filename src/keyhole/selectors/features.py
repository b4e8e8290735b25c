"""A quick judge that is not linear: random features of the readings, a closed form towards all cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from keyhole.run import Run
from keyhole.selectors.halves import Halves
from keyhole.selectors.proxy import Proxy, Sites, ridge

__all__ = ["Bandwidth", "FeatureScore"]

_FEWEST_FEATURES, _MOST_FEATURES = 32, 400
_SAMPLES_FOR_A_FEATURE = 16


@dataclass(frozen=True)
class Bandwidth:
    """How fast the features vary with the readings, and how strong the ridge is."""

    scale: float
    strength: float


_GRID = tuple(Bandwidth(scale, strength) for scale in (0.25, 0.5, 1.0) for strength in (1e-3, 1e-2, 1e-1))


class FeatureScore(Proxy):
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

    def __init__(self, data: Halves, k: int, bandwidth: Bandwidth, run: Run) -> None:
        super().__init__(data)
        self.bandwidth, rng = bandwidth, run.generator("random features")
        samples, channels = data.taught.shape[:2]
        count = int(np.clip(samples // _SAMPLES_FOR_A_FEATURE, _FEWEST_FEATURES, _MOST_FEATURES))
        directions = rng.standard_normal((k, channels, count)) * bandwidth.scale / np.sqrt(k * channels)
        self.directions = directions.astype(np.float32)
        self.phases = rng.uniform(0, 2 * np.pi, count).astype(np.float32)

    @classmethod
    def fitting(cls, data: Halves, sites: NDArray[np.int64], run: Run) -> Self:
        """Give the score whose bandwidth suits these sites best."""
        scores = [cls(data, len(sites), bandwidth, run) for bandwidth in _GRID]
        return scores[int(np.argmin([score(sites) for score in scores]))]

    def __call__(self, sites: Sites) -> float:
        """Score the sites (flat grid indices)."""
        places = np.arange(len(sites))
        taught, judged = (self._design(part, sites, places) for part in self.data.seen)
        return self.left(judged @ ridge(taught, self.taught, self.bandwidth.strength))

    def relearn(self, sites: Sites, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rebuild the samples that teach; features are few beside them, so they are not known by heart."""
        design = self._design(self.data.seen[0], sites, places)
        return design @ ridge(design, self.taught, self.bandwidth.strength)

    def _design(self, packed: NDArray[np.float32], sites: Sites, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """`[1, r, cos(r A + c)]`; ``places`` tells which rows of `A` the sites have."""
        readings = self.readings(packed, sites)
        directions = self.directions[places].reshape(-1, len(self.phases))
        return self.with_one(readings, np.cos(readings @ directions + self.phases))
