"""Selectors for a target: sites that tell a class or a number, linearly or by a forest."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.data.samples import Samples
from keyhole.models.predictors import target_of
from keyhole.placement.base import Selection, Selector, complete, subsample
from keyhole.placement.greedy_selection import FeasibleCandidates

__all__ = ["Forest", "Relevance", "extra_trees"]

_MOST_SAMPLES = 10_000
_LEAST_SPREAD = 1e-6
_RIDGE = 1e-3  # of a column's own sum of squares: what is left of one that others tell is worth little
_TREES = 300
_KEPT = 0.7  # of the sites at each round, until there are K


class _Telling(Selector):
    """A selector that needs a target; existing sites are read beside those that it may choose."""

    supervised: ClassVar[bool] = True

    def incompatibility(self, signals: Samples) -> str | None:
        """Tell that there must be a target."""
        return None if signals.target is not None else "it chooses sites to tell a target by, and there is none"


class Relevance(_Telling):
    r"""Forward selection: each pick adds most to a linear estimate of the target.

    With the target as one column, or one indicator for each class, all of unit variance, and `q_j` what the sites
    picked before, or existing, leave of site `j`, the gain is :math:`|Y' q_j|^2 / (|q_j|^2 + a |x_j|^2)`.
    """

    name: ClassVar[str] = "relevance"
    nested: ClassVar[bool] = True

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Pick ``k`` sites; O(samples x sites) a pick."""
        some = subsample(train, _MOST_SAMPLES, run, "samples to tell by")
        candidates = np.flatnonzero(some.observable.ravel())
        left, wanted = _beside_existing(some, candidates)[:, len(some.existing) :], _wanted(some)
        held, picks = _RIDGE * len(left), FeasibleCandidates(some, candidates, k)
        while (best := picks.take(_gains(left, wanted, held), 0.0)) is not None:
            _remove(left, best, held)
        return Selection(complete(picks.sites, k, train))


class Forest(_Telling):
    """Sites that a forest of extremely random trees splits by, the least used left out round by round.

    Trees see what no line does: a site that tells something only beside another one.
    """

    name: ClassVar[str] = "forest"

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Keep the most used sites until ``k`` are left."""
        some = subsample(train, _MOST_SAMPLES, run, "samples to tell by")
        kept = np.flatnonzero(some.observable.ravel())
        count = min(k, len(kept))
        use = np.zeros(0)
        while True:
            use = _use(some, kept, run)
            order = np.argsort(-use, kind="stable")
            if len(kept) <= count or run.seconds_left() <= 0:
                break
            kept = kept[order[: max(count, int(_KEPT * len(kept)))]]
            run.tell(Event("leave out sites", count, len(kept)))
        return Selection(complete(kept[order], k, train))


def extra_trees(signals: Samples, trees: int, seed: int) -> Any:
    """Give a forest for the kind of target."""
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    kind = ExtraTreesClassifier if target_of(signals).is_class else ExtraTreesRegressor
    return kind(trees, max_features="sqrt", min_samples_leaf=1, random_state=seed % 2**32)


def _use(signals: Samples, sites: NDArray[np.int64], run: Run) -> NDArray[np.float64]:
    """How much a forest splits by each site, beside the existing ones.

    Trees split as gladly by what is nearly a copy of an existing site; by what that leaves of it they do not.
    """
    there = signals.existing
    readings = _beside_existing(signals, sites) if len(there) else signals.readings(sites)
    forest = extra_trees(signals, _TREES, run.seed_of("forest"))
    forest.fit(readings.reshape(len(readings), -1), target_of(signals).values)
    return np.asarray(forest.feature_importances_.reshape(readings.shape[1:]).sum(axis=1), np.float64)[len(there) :]


def _standard(readings: NDArray[Any]) -> NDArray[np.float64]:
    """Columns of mean zero and unit variance; one that is constant stays zero."""
    centred = readings - readings.mean(axis=0, dtype=np.float64)
    spread = centred.std(axis=0)
    return np.asarray(centred / np.where(spread > _LEAST_SPREAD * max(float(spread.max()), 1e-300), spread, np.inf))


def _wanted(signals: Samples) -> NDArray[np.float64]:
    """The target as columns of mean zero and unit variance."""
    target = target_of(signals)
    columns = np.eye(len(target.classes))[target.values] if target.is_class else target.values[:, np.newaxis]
    return _standard(columns.astype(np.float64))


def _beside_existing(signals: Samples, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standardised readings of the existing sites, then what they leave, linearly, of those of the others."""
    there = signals.existing
    left = _standard(signals.readings(np.concatenate([there, sites])))
    own = left[:, : len(there)].copy()
    for place in range(len(there)):
        _remove(left, place, _RIDGE * len(left))
    left[:, : len(there)] = own
    return left


def _remove(left: NDArray[np.float64], place: int, held: float) -> None:
    """Take what one site predicts off all sites, in place."""
    for channel in range(left.shape[2]):
        column = left[:, place, channel]
        size = float(column @ column)
        if size > held * _LEAST_SPREAD:
            direction = column / np.sqrt(size)
            left -= np.multiply.outer(direction, np.tensordot(direction, left, axes=1))


def _gains(left: NDArray[np.float64], wanted: NDArray[np.float64], held: float) -> NDArray[np.float64]:
    told = np.square(np.einsum("nmc,nt->mct", left, wanted, optimize=True)).sum(axis=2)
    return np.asarray((told / (np.square(left).sum(axis=0) + held)).sum(axis=1))
