"""A quick judge that is not linear: random features of the readings, a closed form towards all cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.reconstructors.base import flat
from keyhole.run import Run
from keyhole.selectors.base import some_of
from keyhole.signals import Signals

__all__ = ["CURVED", "Bandwidth", "FeatureScore", "Halves"]

CURVED = 0.98  # share of what a linear estimate leaves, below which signals are worth one that is not
_MOST_TAUGHT, _MOST_JUDGED, _MOST_SCREENED = 8000, 5000, 5000
_FEWEST_FEATURES, _MOST_FEATURES = 32, 400
_SAMPLES_FOR_A_FEATURE = 16
_COMPONENTS = 96  # that stand for the cells, or two for each site where that is more
_LEADING = 16  # of them, by which samples are told alike
_MOST_GROUPS, _SAMPLES_IN_A_GROUP = 12, 50
_ROUNDS = 4
_LEAST_NOISE = 0.05  # share of the mean variance; a site that hardly varies explains nothing


@dataclass(frozen=True)
class Bandwidth:
    """How fast the features vary with the readings, and how strong the ridge is."""

    scale: float
    strength: float


_STRENGTHS = (1e-3, 1e-2, 1e-1)
_GRID = tuple(Bandwidth(scale, strength) for scale in (0.25, 0.5, 1.0) for strength in _STRENGTHS)


@dataclass(frozen=True, eq=False)
class Halves:
    """Samples that teach and samples that judge.

    Parameters
    ----------
    taught, judged
        Packed cells, ``(n, channels, cells)``, centred on the first.
    basis
        ``(r, channels * cells)``, leading principal components, which stand for the cells to be rebuilt.
    signals
        What they were taken from.
    """

    taught: NDArray[np.float32]
    judged: NDArray[np.float32]
    basis: NDArray[np.float32]
    signals: Signals

    @classmethod
    def of(cls, train: Signals, judge: Signals | None, k: int, run: Run) -> Self:
        """Take samples to teach and to judge by; without a judge a third of ``train`` is one, the last in time.

        Samples that follow each other in time are alike: one drawn from among them would be known already.
        """
        from sklearn.utils.extmath import randomized_svd

        if judge is None:
            drawn = run.generator("samples to swap by").permutation(len(train))
            order = drawn if train.time is None else np.argsort(train.time)
            cut = max(1, len(train) - min(_MOST_JUDGED, len(train) // 3))
            train, judge = train.take(np.sort(order[:cut])), train.take(np.sort(order[cut:]))
        taught = some_of(train, _MOST_TAUGHT, run, "samples to teach by").packed()
        mean = taught.mean(axis=0)
        taught, judged = taught - mean, some_of(judge, _MOST_JUDGED, run, "samples to judge by").packed() - mean
        rows = flat(taught)
        most = min(max(_COMPONENTS, 2 * k), *rows.shape)
        basis = randomized_svd(rows, most, n_iter=3, random_state=0)[2]
        return cls(taught, judged, np.asarray(basis, np.float32), train)


class FeatureScore:
    """Fraction of variance that random features of the readings leave, for any set of at most K sites.

    Readings `r` are rebuilt as `[1, r, cos(r A + c)] B`: `A` and `c` are random and stay, `B` is ridge's. Sums of such
    cosines come near any smooth function (Rahimi & Recht). Few of them, towards principal components in place of all
    cells, make a score cost a tenth of a second; that all sites are judged by the same draw makes it tell small
    differences.

    Parameters
    ----------
    data
        Samples to teach and to judge by.
    k
        The most sites in a set.
    """

    def __init__(self, data: Halves, k: int, bandwidth: Bandwidth, run: Run) -> None:
        self.data, self.bandwidth = data, bandwidth
        self.rng = run.generator("random features")
        samples, channels = data.taught.shape[:2]
        count = int(np.clip(samples // _SAMPLES_FOR_A_FEATURE, _FEWEST_FEATURES, _MOST_FEATURES))
        directions = self.rng.standard_normal((k, channels, count)) * bandwidth.scale / np.sqrt(k * channels)
        self.directions = directions.astype(np.float32)
        self.phases = self.rng.uniform(0, 2 * np.pi, count).astype(np.float32)
        self.level = np.float32(max(float(data.taught.std()), float(np.finfo(np.float32).tiny)))
        self._taught, self._judged = flat(data.taught) @ data.basis.T, flat(data.judged) @ data.basis.T
        self._energy = max(float(np.square(data.judged, dtype=np.float64).sum()), np.finfo(float).tiny)
        self._beyond = max(0.0, self._energy - float(np.square(self._judged, dtype=np.float64).sum()))

    @classmethod
    def fitting(cls, data: Halves, sites: NDArray[np.int64], run: Run) -> Self:
        """Give the score whose bandwidth suits these sites best."""
        scores = [cls(data, len(sites), bandwidth, run) for bandwidth in _GRID]
        return scores[int(np.argmin([score(sites) for score in scores]))]

    def __call__(self, sites: Sequence[int] | NDArray[np.int64]) -> float:
        """Score the sites (flat grid indices); lower is better."""
        return self._left(sites, None, self.bandwidth.strength)

    def linear(self, sites: Sequence[int] | NDArray[np.int64]) -> float:
        """Score the sites without the cosines: what the readings alone leave, at the best strength."""
        columns = 1 + len(sites) * self.data.taught.shape[1]
        return min(self._left(sites, columns, strength) for strength in _STRENGTHS)

    def gains(self, sites: Sequence[int], without: int | None = None) -> NDArray[np.float64]:
        """What each cell of the grid would explain of what the sites leave, all of them or all but one.

        Samples that are rebuilt alike are one group: in each the gain of cell j is `|cov(e, e_j)|^2 / var(e_j)`, with
        `e` what is left. So a cell counts that tells what the readings leave open, be it in some samples only.
        """
        places = np.delete(np.arange(len(sites)), [] if without is None else [without])
        kept = [sites[int(place)] for place in places]
        design = self._design(self.data.taught, kept, places)
        weights, some = self._fit(design, self.bandwidth.strength), slice(0, _MOST_SCREENED)
        rebuilt = design[some] @ weights
        left, whole = self._taught[some] - rebuilt, flat(self.data.taught[some]) - rebuilt @ self.data.basis
        gains = np.sum([self._explained(whole[group], left[group]) for group in _groups(rebuilt)], axis=0)
        return self._on_grid(gains.reshape(self.data.taught.shape[1:]).sum(axis=0), kept)

    def _left(self, sites: Sequence[int] | NDArray[np.int64], columns: int | None, strength: float) -> float:
        places = np.arange(len(sites))
        taught, judged = (
            self._design(part, sites, places)[:, :columns] for part in (self.data.taught, self.data.judged)
        )
        left = self._judged - judged @ self._fit(taught, strength)
        return (float(np.square(left, dtype=np.float64).sum()) + self._beyond) / self._energy

    def _design(self, packed: NDArray[np.float32], sites: Any, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """`[1, r, cos(r A + c)]`; ``places`` tells which rows of `A` the sites have."""
        index = np.searchsorted(self.data.signals.grid.cells, sites)
        readings = packed[:, :, index].transpose(0, 2, 1).reshape(len(packed), -1) / self.level
        directions = self.directions[places].reshape(-1, len(self.phases))
        ones = np.ones((len(packed), 1), np.float32)
        return np.concatenate([ones, readings, np.cos(readings @ directions + self.phases)], axis=1)

    def _fit(self, design: NDArray[np.float32], strength: float) -> NDArray[np.float32]:
        from scipy.linalg import solve

        gram = design.T @ design
        gram[np.diag_indices(len(gram))] += np.float32(strength * len(design))
        return np.asarray(solve(gram, design.T @ self._taught, assume_a="pos", check_finite=False), np.float32)

    def _explained(self, whole: NDArray[Any], left: NDArray[Any]) -> NDArray[np.float64]:
        noise = _LEAST_NOISE * float(self.level) ** 2 * len(whole)
        return np.asarray(np.square(whole.T @ left).sum(axis=1) / (np.square(whole).sum(axis=0) + noise), np.float64)

    def _on_grid(self, gains: NDArray[np.float64], taken: Sequence[int]) -> NDArray[np.float64]:
        """Put gains of cells on the flat grid; minus infinity where nothing may be read, or is already."""
        signals = self.data.signals
        full = np.full(signals.grid.size, -np.inf)
        full[signals.grid.cells] = gains
        full[~signals.observable.ravel()] = -np.inf
        full[list(taken)] = -np.inf
        return full


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
