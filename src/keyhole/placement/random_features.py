"""Random Fourier feature surrogate."""

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

_MIN_FEATURES, _MAX_FEATURES = 32, 400
_SAMPLES_FOR_A_FEATURE = 16
_MAX_SCREENED = 5000
_LEADING = 16  # components used for clustering
_MAX_GROUPS, _SAMPLES_IN_A_GROUP = 12, 50
_ROUNDS = 4
_MIN_NOISE = 0.05  # share of the mean variance, against sites of negligible variance


@dataclass(frozen=True)
class Bandwidth:
    """Scale of the random frequencies, and regularisation of the ridge regression."""

    scale: float
    strength: float


_GRID = tuple(Bandwidth(scale, strength) for scale in (0.25, 0.5, 1.0) for strength in (1e-3, 1e-2, 1e-1))


class RandomFeatureSurrogate(Surrogate):
    """Unexplained variance of ridge regression on random Fourier features of the readings.

    Readings `r` are mapped to `[1, r, cos(r A + c)] B` with fixed random `A` and `c`; `B` is fitted by ridge
    regression. All sets of sites share the same draw, which makes small differences between them comparable.

    Parameters
    ----------
    data
        Fitting and scoring samples.
    k
        Largest number of sites.
    bandwidth
        Scale and regularisation.
    run
        Its seed determines the features.

    References
    ----------
    Rahimi & Recht (2007). Random features for large-scale kernel machines. NeurIPS 20.
    """

    def __init__(self, data: FitScoreSplit, k: int, bandwidth: Bandwidth, run: Run) -> None:
        super().__init__(data)
        self.bandwidth, rng = bandwidth, run.generator("random features")
        samples, channels = data.fitting.shape[:2]
        count = int(np.clip(samples // _SAMPLES_FOR_A_FEATURE, _MIN_FEATURES, _MAX_FEATURES))
        directions = rng.standard_normal((k, channels, count)) * bandwidth.scale / np.sqrt(k * channels)
        self.directions = directions.astype(np.float32)
        self.phases = rng.uniform(0, 2 * np.pi, count).astype(np.float32)

    @classmethod
    def fit_surrogate(cls, data: FitScoreSplit, sites: NDArray[np.int64], run: Run) -> Self:
        """Return the surrogate whose bandwidth has the lowest error for these sites."""
        scores = [cls(data, len(sites), bandwidth, run) for bandwidth in _GRID]
        return scores[int(np.argmin([score(sites) for score in scores]))]

    def __call__(self, sites: Sites) -> float:
        """Return the unexplained variance for the sites (flat grid indices)."""
        positions = np.arange(len(sites))
        fitting, scoring = (self._design(part, sites, positions) for part in self.data.seen)
        return self.unexplained(scoring @ ridge(fitting, self.fitting, self.bandwidth.strength))

    def gains(self, sites: Sequence[int], without: int | None = None) -> NDArray[np.float64]:
        """Return the variance of the residual that each site would explain, within clusters of similar samples.

        In each cluster the gain of site j is `|cov(e, e_j)|^2 / var(e_j)`, with `e` the residual; so a site counts that
        explains it in some of the samples only.
        """
        positions = np.delete(np.arange(len(sites)), [] if without is None else [without])
        kept, screened = [sites[int(position)] for position in positions], slice(0, _MAX_SCREENED)
        reconstructed = self._fitted(kept, positions)[screened]
        residual, field = (
            self.fitting[screened] - reconstructed,
            flat(self.data.fitting[screened]) - reconstructed @ self.data.basis,
        )
        gains = np.sum([self._explained(field[group], residual[group]) for group in _groups(reconstructed)], axis=0)
        return self._on_grid(gains.reshape(self.data.fitting.shape[1:]).sum(axis=0), kept)

    def _fitted(self, sites: Sites, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Reconstruct the fitting samples in sample; features are few, so that overfitting is negligible."""
        design = self._design(self.data.seen[0], sites, positions)
        return design @ ridge(design, self.fitting, self.bandwidth.strength)

    def _explained(self, field: NDArray[np.float32], residual: NDArray[np.float32]) -> NDArray[np.float64]:
        noise = _MIN_NOISE * float(self.level) ** 2 * len(field)
        return np.asarray(
            np.square(field.T @ residual).sum(axis=1) / (np.square(field).sum(axis=0) + noise), np.float64
        )

    def _design(self, packed: NDArray[np.float32], sites: Sites, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return `[1, r, cos(r A + c)]`; ``positions`` are the rows of `A` that belong to the sites."""
        readings = self.readings(packed, sites)
        directions = self.directions[positions].reshape(-1, len(self.phases))
        return self.with_intercept(readings, np.cos(readings @ directions + self.phases))


def _groups(reconstructed: NDArray[np.float32]) -> list[NDArray[np.bool_]]:
    """Cluster samples with similar reconstructions by a few iterations of k-means."""
    count = int(np.clip(len(reconstructed) // _SAMPLES_IN_A_GROUP, 1, _MAX_GROUPS))
    leading = reconstructed[:, :_LEADING]
    centres = leading[np.linspace(0, len(leading) - 1, count).astype(int)]
    for _ in range(_ROUNDS):
        nearest = (np.square(centres).sum(axis=1) - 2 * leading @ centres.T).argmin(axis=1)
        groups = [nearest == group for group in np.unique(nearest)]
        centres = np.stack([leading[group].mean(axis=0) for group in groups])
    return groups
