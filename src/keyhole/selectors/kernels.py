"""A quick judge for few samples: kernel ridge."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from keyhole.reconstructors.kernel import Shape, kernel, shapes_for, spread_of
from keyhole.run import Run
from keyhole.selectors.features import FeatureScore
from keyhole.selectors.halves import Halves
from keyhole.selectors.proxy import Proxy, Sites

__all__ = ["KernelScore", "fitting"]

_MOST_SAMPLES = 1500  # a score's time grows with their third power


class KernelScore(Proxy):
    """What kernel ridge leaves: the score of choice where samples are few and resemble each other.

    Parameters
    ----------
    data
        Samples to teach and to judge by.
    shape
        Of the kernel.
    """

    def __init__(self, data: Halves, shape: Shape) -> None:
        super().__init__(data)
        self.shape = shape

    @classmethod
    def fitting(cls, data: Halves, sites: NDArray[np.int64]) -> Self:
        """Give the score whose kernel suits these sites best."""
        plain = cls(data, Shape(1.0, 1.0, 1.0))
        readings = plain.readings(data.seen[0], sites).astype(np.float64)
        shapes = [s for even in (False, True) for s in shapes_for(readings / spread_of(readings, even), even)]
        scores = [cls(data, shape) for shape in shapes]
        return scores[int(np.argmin([score(sites) for score in scores]))]

    def __call__(self, sites: Sites) -> float:
        """Score the sites (flat grid indices)."""
        from scipy.linalg import solve

        taught, judged = self._inputs(sites)
        votes = solve(self._gram(taught), self.taught, assume_a="pos", check_finite=False)
        return self.left((kernel(judged, taught, self.shape) @ votes).astype(np.float32))

    def relearn(self, sites: Sites, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rebuild each sample that teaches from all the others: it would know itself by heart.

        With `C = (K + a I)^-1`, what is left of a sample left out is `(C X)_i / C_ii`.
        """
        inverse = np.linalg.inv(self._gram(self._inputs(sites)[0]))
        return np.asarray(self.taught - inverse @ self.taught / np.diagonal(inverse)[:, np.newaxis], np.float32)

    def _inputs(self, sites: Sites) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        taught, judged = (self.readings(part, sites).astype(np.float64) for part in self.data.seen)
        spread = spread_of(taught, self.shape.even)
        return taught / spread, judged / spread

    def _gram(self, taught: NDArray[np.float64]) -> NDArray[np.float64]:
        gram = kernel(taught, taught, self.shape)
        gram[np.diag_indices(len(gram))] += self.shape.strength
        return gram


def fitting(data: Halves, sites: NDArray[np.int64], run: Run) -> Proxy:
    """Give the quick judge that suits these sites best: by random features, or by a kernel where samples are few."""
    features = FeatureScore.fitting(data, sites, run)
    if len(data.taught) > _MOST_SAMPLES:
        return features
    by_kernel = KernelScore.fitting(data, sites)
    return by_kernel if by_kernel(sites) < features(sites) else features
