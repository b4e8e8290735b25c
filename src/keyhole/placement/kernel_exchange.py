"""Swaps of one site for another, judged by what a quick non-linear reconstruction leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.core.settings import parse
from keyhole.data.samples import Samples
from keyhole.placement.base import Selection, Selector
from keyhole.placement.classical import Greedy, rank_sites
from keyhole.placement.fit_score_split import FitScoreSplit
from keyhole.placement.kernel_surrogate import fit_surrogate
from keyhole.placement.leave_one_out import leave_one_out_surrogate
from keyhole.placement.settings import KernelExchangeSettings
from keyhole.placement.surrogate import NONLINEAR_THRESHOLD, Surrogate

__all__ = ["KernelExchange"]

_FEWEST_SAMPLES = 60  # fewer teach nothing that bends
_WORTH = 2e-4  # share of the score that a swap must take
_NEARLY, _MOST_OTHERS = 1.03, 3  # times the best score up to which an end is nearly as good; how many are told
_NEAR_BEST = 12  # cells among which a hop puts a site at random


class KernelExchange(Selector):
    """From greedy's sites, each in turn is swapped for the one that explains most of what the others leave.

    A `Surrogate` judges, on a third of the samples that it did not learn from, or on all of a few, each left out in
    turn. When no swap helps any more, an eighth of the sites is moved at random and swapping begins anew, from the best
    sites so far; the best are kept. Where signals are as good as linear there is nothing that greedy and exchanges do
    not see, and the sites stay.

    Parameters
    ----------
    settings
        Those of `KernelExchangeSettings`, by name.
    """

    name: ClassVar[str] = "kernel_exchange"

    def __init__(self, **settings: Any) -> None:
        self._settings = parse(KernelExchangeSettings, settings)

    def settings(self) -> dict[str, Any]:
        """Give all settings."""
        return self._settings.model_dump()

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Improve on greedy's sites."""
        start = Greedy().select(train, k, validation=None, run=run).sites
        return self.improve(train, [start], run)

    def improve(self, train: Samples, starts: Sequence[NDArray[np.int64]], run: Run) -> Selection:
        """Swap from each of several starts, go on from the best, and stop with what there is when time is over.

        The ends that are not the best are the selection's others.
        """
        if len(train) < _FEWEST_SAMPLES:
            return Selection(starts[0], notes={"swaps": 0})
        longest = max(starts, key=len)
        score = fit_surrogate(FitScoreSplit.of(train, None, len(longest), run), longest, run)
        first = [score(start) for start in starts]
        curved = min(first) / max(score.linear(starts[int(np.argmin(first))]), np.finfo(float).tiny)
        if curved > NONLINEAR_THRESHOLD:
            return Selection(starts[int(np.argmin(first))], notes={"curved": curved, "swaps": 0})
        score = leave_one_out_surrogate(score, train, len(longest), run)
        search = _Search(score, self._settings, run, total=len(starts) + self._settings.n_restarts)
        for start in starts:
            search.descend([int(site) for site in start])
        while search.count < search.total and run.seconds_left() > 0:
            search.descend(search.hop())
        sites = rank_sites(train, np.array(search.sites, np.int64), run)
        notes = {"curved": curved, "swaps": search.swaps, "hops": search.count - len(starts)}
        others = [rank_sites(train, np.array(end, np.int64), run) for end in search.others()]
        return Selection(sites, search.history, notes, others=others)


class _Search:
    """The best sites so far, and how they were come by."""

    def __init__(self, score: Surrogate, settings: KernelExchangeSettings, run: Run, *, total: int) -> None:
        self.score, self.settings, self.run, self.total = score, settings, run, total
        self.rng = run.generator("hops")
        self.sites: list[int] = []
        self.left, self.swaps = np.inf, 0
        self.ends: dict[frozenset[int], float] = {}
        self.history: list[dict[str, float]] = []

    @property
    def count(self) -> int:
        """How often it has swapped until no swap helped."""
        return len(self.history)

    def others(self) -> list[list[int]]:
        """Ends that are not the best and leave little more, the better first."""
        near = [end for end, left in self.ends.items() if self.left < left < _NEARLY * self.left]
        return [sorted(end) for end in sorted(near, key=self.ends.__getitem__)[:_MOST_OTHERS]]

    def descend(self, sites: list[int]) -> None:
        """Swap until no swap helps; keep the outcome if it is the best so far."""
        left, since, place = self.score(sites), 0, len(sites) - 1  # what a hop moved is last, and comes first
        while since < len(sites) and self.run.seconds_left() > 0:
            sites, better = self._swapped(sites, place, left)
            self.swaps, since = (self.swaps + 1, 0) if better < left else (self.swaps, since + 1)
            left, place = min(left, better), (place - 1) % len(sites)
            self._tell(left)
        if left < self.left:
            self.sites, self.left = sites, left
        self.ends[frozenset(sites)] = left
        self.history.append({"step": float(self.count), "left": left, "best": self.left})

    def hop(self) -> list[int]:
        """Move some sites at random, to where they explain nearly most."""
        count = min(max(2, len(self.sites) // 8), max(1, len(self.sites) - 1))
        leaving = self.rng.permutation(len(self.sites))[:count]
        sites = [site for place, site in enumerate(self.sites) if place not in leaving]
        while len(sites) < len(self.sites):
            cells = _best(self.score.gains(sites), _NEAR_BEST)
            if not len(cells):  # rules leave no other place
                return list(self.sites)
            sites.append(int(self.rng.choice(cells)))
        return sites

    def _swapped(self, sites: list[int], place: int, left: float) -> tuple[list[int], float]:
        """Give the sites with that at ``place`` swapped for the best of a few, if that helps, and what they leave."""
        cells = _best(self.score.gains(sites, without=place), self.settings.n_candidates)
        tried = [[*sites[:place], int(cell), *sites[place + 1 :]] for cell in cells if cell != sites[place]]
        scores = [self.score(one) for one in tried]
        best = int(np.argmin(scores)) if scores else 0
        if not scores or scores[best] > (1 - _WORTH) * left:
            return sites, left
        return tried[best], scores[best]

    def _tell(self, left: float) -> None:
        figures = {"swaps": float(self.swaps), "left": min(left, self.left)}
        self.run.tell(Event("swap sites", self.count, self.total, figures))


def _best(gains: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Give the cells that gain most, of those that may be taken."""
    order = np.argsort(-gains, kind="stable")[:count]
    return np.asarray(order[np.isfinite(gains[order])], np.int64)
