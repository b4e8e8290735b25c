"""Fitting and scoring samples of the surrogates."""

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

_MAX_FITTING, _MAX_SCORING = 8000, 3000
# Principal components, or two for each site where that is more; few samples allow more of them.
_COMPONENTS, _COMPONENTS_OF_FEW, _FEW = 96, 256, 2000


@dataclass(frozen=True, eq=False)
class FitScoreSplit:
    """Fitting and scoring subsets of the samples, with their leading principal components.

    Parameters
    ----------
    fitting, scoring
        Values at the valid sites, ``(n, channels, sites)``, centred by the mean of the first.
    basis
        ``(r, channels * sites)``, leading principal components, which stand for the values to be reconstructed.
    samples
        The samples that they were taken from.
    seen
        The same samples as sensors observe them: unweighted, with measurement noise.
    """

    fitting: NDArray[np.float32]
    scoring: NDArray[np.float32]
    basis: NDArray[np.float32]
    samples: Samples
    seen: tuple[NDArray[np.float32], NDArray[np.float32]]

    @cached_property
    def components(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Principal component scores of the fitting and of the scoring samples, ``(n, r)``."""
        return flat(self.fitting) @ self.basis.T, flat(self.scoring) @ self.basis.T

    @cached_property
    def energy(self) -> tuple[float, float]:
        """Sum of squares of the scoring samples: in total, and outside the span of the components."""
        total = float(np.square(self.scoring, dtype=np.float64).sum())
        within = float(np.square(self.components[1], dtype=np.float64).sum())
        return max(total, np.finfo(float).tiny), max(0.0, total - within)

    @cached_property
    def level(self) -> np.float32:
        """Overall standard deviation of the readings of the fitting samples."""
        return np.float32(max(float(self.seen[0].std()), float(np.finfo(np.float32).tiny)))

    @cached_property
    def spread(self) -> NDArray[np.float64]:
        """Scale of the readings at each valid site, ``(channels, sites)``."""
        rows = flat(self.seen[0]).astype(np.float64) / self.level
        return (spread_of(rows, even=True) * self.level).reshape(self.fitting.shape[1:])

    def fewer(self, fitting: int, scoring: int) -> Self:
        """Return at most so many samples of each part, evenly spaced."""
        kept = [
            _evenly(len(part), n_components)
            for part, n_components in ((self.fitting, fitting), (self.scoring, scoring))
        ]
        readings = (self.seen[0][kept[0]], self.seen[1][kept[1]])
        return replace(self, fitting=self.fitting[kept[0]], scoring=self.scoring[kept[1]], seen=readings)

    @classmethod
    def of(cls, train: Samples, scored: Samples | None, k: int, run: Run) -> Self:
        """Split samples, and compute the principal components of the fitting part.

        Parameters
        ----------
        train
            Scaled samples to fit on; at most 8000 are used.
        scored
            Scaled samples to score on, at most 3000. If None, a third of ``train``: drawn at random, or the last in
            time for a time series, whose neighbouring samples are too similar to be independent.
        k
            Number of sites; there are at least 2 k components.
        run
            Its seed determines the draws.

        Returns
        -------
        FitScoreSplit
            The split.
        """
        from sklearn.utils.extmath import randomized_svd

        if scored is None:
            drawn = run.generator("samples to swap by").permutation(len(train))
            order = train.order_in_time() if train.is_series else drawn
            cut = max(1, len(train) - min(_MAX_SCORING, len(train) // 3))
            train, scored = train.take(np.sort(order[:cut])), train.take(np.sort(order[cut:]))
        first = subsample(train, _MAX_FITTING, run, "samples to teach by")
        second = subsample(scored, _MAX_SCORING, run, "samples to judge by")
        mean = first.valid_values().mean(axis=0)
        fitting, scoring = first.valid_values() - mean, second.valid_values() - mean
        rows = flat(fitting)
        n_components = min(max(_COMPONENTS if len(rows) > _FEW else _COMPONENTS_OF_FEW, 2 * k), *rows.shape)
        basis = randomized_svd(rows, n_components, n_iter=3, random_state=0)[2]
        return cls(
            fitting, scoring, np.asarray(basis, np.float32), train, _readings_of(first, second, (fitting, scoring))
        )


def _evenly(n: int, n_components: int) -> slice | NDArray[np.int64]:
    return slice(None) if n <= n_components else np.linspace(0, n - 1, n_components).astype(np.int64)


def _readings_of(
    first: Samples, second: Samples, plain: tuple[NDArray[np.float32], NDArray[np.float32]]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Readings of sensors at all valid sites, for both parts, ``(n, channels, sites)``, centred by the first part."""
    if first.root is None and first.noise_draw is None and first.gaps is None:
        return plain
    readings = [
        replace(part, values=part.seen(), gaps=None).valid_values().astype(np.float32) for part in (first, second)
    ]
    root = np.float32(1) if first.root is None else first.root.ravel()[first.grid.cells]
    mean = readings[0].mean(axis=0)
    return (readings[0] - mean) / root, (readings[1] - mean) / root
