"""Samples that teach a quick judge, and samples that it judges by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.models.reconstructors.base import flat
from keyhole.models.reconstructors.kernel_ridge import spread_of
from keyhole.placement.base import subsample

__all__ = ["FitScoreSplit"]

_MOST_TAUGHT, _MOST_JUDGED = 8000, 3000
# Components that stand for the cells, or two for each site where that is more; of few samples more can be told.
_COMPONENTS, _COMPONENTS_OF_FEW, _FEW = 96, 256, 2000


@dataclass(frozen=True, eq=False)
class FitScoreSplit:
    """Samples that teach and samples that judge.

    Parameters
    ----------
    taught, judged
        Packed cells, ``(n, channels, cells)``, centred on the first.
    basis
        ``(r, channels * cells)``, leading principal components, which stand for the cells to be rebuilt.
    signals
        What they were taken from.
    seen
        The same samples as sensors see them: without weights, with noise.
    """

    taught: NDArray[np.float32]
    judged: NDArray[np.float32]
    basis: NDArray[np.float32]
    signals: Samples
    seen: tuple[NDArray[np.float32], NDArray[np.float32]]

    @cached_property
    def components(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Components of the samples that teach and of those that judge, ``(n, r)``."""
        return flat(self.taught) @ self.basis.T, flat(self.judged) @ self.basis.T

    @cached_property
    def energy(self) -> tuple[float, float]:
        """Squares of the samples that judge, summed: in all, and beyond the components."""
        whole = float(np.square(self.judged, dtype=np.float64).sum())
        within = float(np.square(self.components[1], dtype=np.float64).sum())
        return max(whole, np.finfo(float).tiny), max(0.0, whole - within)

    @cached_property
    def level(self) -> np.float32:
        """Spread of all that sensors see of the samples that teach."""
        return np.float32(max(float(self.seen[0].std()), float(np.finfo(np.float32).tiny)))

    @cached_property
    def spread(self) -> NDArray[np.float64]:
        """Spread of what a sensor in each cell would see of the samples that teach, ``(channels, cells)``."""
        rows = flat(self.seen[0]).astype(np.float64) / self.level
        return (spread_of(rows, even=True) * self.level).reshape(self.taught.shape[1:])

    def fewer(self, taught: int, judged: int) -> Self:
        """Give at most so many samples of each, evenly spaced."""
        kept = [_evenly(len(part), most) for part, most in ((self.taught, taught), (self.judged, judged))]
        seen = (self.seen[0][kept[0]], self.seen[1][kept[1]])
        return replace(self, taught=self.taught[kept[0]], judged=self.judged[kept[1]], seen=seen)

    @classmethod
    def of(cls, train: Samples, scorer: Samples | None, k: int, run: Run) -> Self:
        """Take samples to teach and to judge by; without a judge a third of ``train`` is one, the last in time.

        Samples that follow each other in time are alike: one drawn from among them would be known already.
        """
        from sklearn.utils.extmath import randomized_svd

        if scorer is None:
            drawn = run.generator("samples to swap by").permutation(len(train))
            order = train.order_in_time() if train.is_series else drawn
            cut = max(1, len(train) - min(_MOST_JUDGED, len(train) // 3))
            train, scorer = train.take(np.sort(order[:cut])), train.take(np.sort(order[cut:]))
        first = subsample(train, _MOST_TAUGHT, run, "samples to teach by")
        second = subsample(scorer, _MOST_JUDGED, run, "samples to judge by")
        mean = first.valid_values().mean(axis=0)
        taught, judged = first.valid_values() - mean, second.valid_values() - mean
        rows = flat(taught)
        most = min(max(_COMPONENTS if len(rows) > _FEW else _COMPONENTS_OF_FEW, 2 * k), *rows.shape)
        basis = randomized_svd(rows, most, n_iter=3, random_state=0)[2]
        return cls(taught, judged, np.asarray(basis, np.float32), train, _seen(first, second, (taught, judged)))


def _evenly(n: int, most: int) -> slice | NDArray[np.int64]:
    return slice(None) if n <= most else np.linspace(0, n - 1, most).astype(np.int64)


def _seen(
    first: Samples, second: Samples, plain: tuple[NDArray[np.float32], NDArray[np.float32]]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What sensors in all cells would read of both parts, ``(n, channels, cells)``, centred on the first."""
    if first.root is None and first.noise_draw is None and first.gaps is None:
        return plain
    seen = [replace(part, values=part.seen(), gaps=None).valid_values().astype(np.float32) for part in (first, second)]
    root = np.float32(1) if first.root is None else first.root.ravel()[first.grid.cells]
    mean = seen[0].mean(axis=0)
    return (seen[0] - mean) / root, (seen[1] - mean) / root
