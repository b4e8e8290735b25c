"""Greedy sites, then exchanges of one site for another, under a covariance that fades with distance."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.data.samples import Samples
from keyhole.placement.base import Selection, Selector, complete, subsample
from keyhole.placement.classical import Greedy
from keyhole.placement.failures import Network
from keyhole.placement.greedy_selection import FeasibleCandidates
from keyhole.placement.posterior_covariance import Covariance, PosteriorCovariance, fit_localised_covariance

__all__ = ["Exchange"]

_MOST_SAMPLES = 10_000
_WORTH = 1e-4  # share of a site's gain that a better one must add
_NOTHING_LEFT = 1e-10
_MOST_HOPS, _WORK = 8, 2_000_000_000
_NEAR_BEST = 10  # sites among which a hop chooses at random


class Exchange(Selector):
    """Sites that leave least of a Gaussian field whose covariance fades with distance.

    The covariance is Kriging's: its length and noise are those that rebuild best from greedy's sites when blocks of
    samples are left out. Under it sites are picked greedily; then each in turn is dropped and the best of all sites put
    in its place, until no exchange helps. One exchange costs what one greedy pick does, whatever K is. Then a fifth of
    the sites is moved at random and exchanged anew, as often as the size of the data allows; the best are kept. What
    comes out is scored by all cells of the grid, and where it leaves more than the sites it started from, as it may
    when a time limit cuts in, those are given instead.
    """

    name: ClassVar[str] = "exchange"

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Pick ``k`` sites and exchange them; stops with what it has when the time is over."""
        some = subsample(train, _MOST_SAMPLES, run, "samples to exchange by")
        start = Greedy().select(some, k, validation=None, run=run).sites
        covariance, notes = fit_localised_covariance(some, start, run, "exchange")
        choice = _Choice(PosteriorCovariance(covariance), FeasibleCandidates(train, covariance.candidates, k))
        if (
            not choice.pick() or not choice.picks.full
        ):  # nothing to explain, or no room for all; greedy's were completed
            choice = _Choice.at(
                start, PosteriorCovariance(covariance), FeasibleCandidates(train, covariance.candidates, k)
            )
        choice.exchange(run)
        hops = _hops(covariance, k)
        found = _hop(choice, hops, run).remainder.picks
        return _selection(_no_worse(found, start, covariance, some), covariance, train, k, {"hops": hops, **notes})

    def improve(self, train: Samples, sites: NDArray[np.int64], run: Run) -> Selection:
        """Exchange sites that are good already: a fraction of the time that `select` takes."""
        some = subsample(train, _MOST_SAMPLES, run, "samples to exchange by")
        covariance, notes = fit_localised_covariance(some, sites, run, "exchange")
        choice = _Choice.at(
            sites, PosteriorCovariance(covariance), FeasibleCandidates(train, covariance.candidates, len(sites))
        )
        choice.exchange(run)
        found = _no_worse(choice.remainder.picks, sites, covariance, some)
        return _selection(found, covariance, train, len(sites), notes)


def _no_worse(found: list[int], start: NDArray[np.int64], covariance: Covariance, signals: Samples) -> list[int]:
    """Give the candidates found, or those of the sites a search started from where these explain more of all cells.

    A search that is cut short has not made up for what it began with, and one that was in a hurry went by a sample of
    the cells, which flatters sites near those.
    """
    before = [int(pick) for pick in np.searchsorted(covariance.candidates, start)]
    if set(found) == set(before):
        return found
    explained = [Network.over_all_cells(covariance, picks, signals).explained for picks in (found, before)]
    return found if explained[0] >= explained[1] else before


def _selection(picks: list[int], covariance: Covariance, train: Samples, k: int, notes: dict[str, float]) -> Selection:
    """Rank the sites, and complete them where rules left no room."""
    ranked = _ranked(covariance, picks)
    return Selection(complete(covariance.candidates[ranked], k, train), notes=notes)


class _Choice:
    """Sites picked so far, what they leave, and what may be picked beside them."""

    def __init__(self, remainder: PosteriorCovariance, picks: FeasibleCandidates) -> None:
        self.remainder, self.picks = remainder, picks

    @classmethod
    def at(cls, sites: NDArray[np.int64], remainder: PosteriorCovariance, picks: FeasibleCandidates) -> _Choice:
        """Give the choice of these sites."""
        choice = cls(remainder, picks)
        for pick in np.searchsorted(picks.candidates, sites):
            choice.picks.add(int(pick))
            choice.remainder.add(int(pick))
        return choice

    def copy(self) -> _Choice:
        """Give another one in the same state."""
        return _Choice(self.remainder.copy(), self.picks.copy())

    def pick(self) -> bool:
        """Pick greedily, until nothing is left; tells whether anything was picked."""
        before = len(self.remainder.picks)
        floor = _NOTHING_LEFT * float(np.abs(self.remainder.gains()[self.picks.open]).max(initial=0.0))
        while (best := self.picks.take(self.remainder.gains(), floor)) is not None:
            self.remainder.add(best)
        return len(self.remainder.picks) > before

    def exchange(self, run: Run) -> None:
        """Exchange sites, one after the other, until none can be bettered and none more can be paid for."""
        swaps, since = 0, 0
        while since < len(self.remainder.picks) and run.seconds_left() > 0:
            site, gains = self.remainder.picks[0], self.gains_without(0)
            best = int(gains.argmax())
            more = gains[best] - gains[site] if gains[best] > gains[site] else 0.0
            better = more > _WORTH * abs(gains[best])
            self.replace(0, best if better else site)
            swaps, since = (swaps + 1, 0) if better or self._paid_for_more() else (swaps, since + 1)
            run.tell(Event("exchange sites", since, len(self.remainder.picks), {"swaps": float(swaps)}))

    def gains_without(self, place: int) -> NDArray[np.float64]:
        """What each candidate would explain in the place of a site, minus infinity where it may not be."""
        site = self.remainder.picks[place]
        with self.picks.without(site):
            return np.where(self.picks.open, self.remainder.gains_without(place), -np.inf)

    def allows(self, place: int, pick: int) -> bool:
        """Whether rules let a site take the place of one."""
        with self.picks.without(self.remainder.picks[place]):
            return self.picks.may(pick)

    def replace(self, place: int, pick: int) -> None:
        """Put another site in the place of one; it becomes the last."""
        self.picks.replace(self.remainder.picks[place], pick)
        self.remainder.replace(place, pick)

    def force(self, pick: int) -> None:
        """Take a site whatever the rules say, drop those that stand in its way, and one if it is one too many."""
        for other in self.picks.too_near(pick):
            self._drop(self.remainder.picks.index(other))
        while self.remainder.picks and not self.picks.may(pick):
            self._drop(0)
        self.picks.add(pick)
        self.remainder.add(pick)
        self.pick()

    def _drop(self, place: int) -> None:
        self.picks.drop(self.remainder.picks[place])
        self.remainder.drop(place)

    def _paid_for_more(self) -> bool:
        return self.picks.costs is not None and self.pick()


def _hops(covariance: Covariance, k: int) -> int:
    """How often to move sites at random: less often the more there is to compute for an exchange."""
    return int(min(_MOST_HOPS, _WORK // (covariance.cross.size * k)))


def _hop(best: _Choice, hops: int, run: Run) -> _Choice:
    """Move some sites of the best so far to where they explain nearly most, and exchange anew."""
    rng = run.generator("hops of exchanges")
    count = len(best.remainder.picks)
    for _ in range(hops if best.remainder.count > count > 1 else 0):
        if run.seconds_left() <= 0:
            break
        trial = best.copy()
        for _ in range(max(2, count // 5)):
            _move(trial, rng)
        _crowd(trial, rng)
        trial.exchange(run)
        if trial.picks.full and trial.remainder.explained() > best.remainder.explained():
            best = trial
    return best


def _crowd(trial: _Choice, rng: np.random.Generator) -> None:
    """Where rules leave no room for all, take sites that stand in the way of fewest, until there is."""
    for _ in range(2 * trial.picks.most if trial.picks.costs is None else 0):
        free = trial.picks.least_conflicting()
        if trial.picks.full or not len(free):
            return
        trial.force(int(rng.choice(free)))


def _move(trial: _Choice, rng: np.random.Generator) -> None:
    """Move one site at random to where it explains nearly most; where rules are, those in its way go too."""
    place = int(rng.integers(len(trial.remainder.picks)))
    gains = trial.remainder.gains_without(place)
    near_best = np.argsort(-gains, kind="stable")[:_NEAR_BEST]
    free = [int(pick) for pick in near_best if pick not in trial.remainder.picks]
    if not free:
        return
    pick = int(rng.choice(free))
    trial.replace(place, pick) if trial.allows(place, pick) else trial.force(pick)


def _ranked(covariance: Covariance, picks: list[int]) -> NDArray[np.int64]:
    """Order the sites as greedy picks among them would come."""
    among = PosteriorCovariance(covariance.among(np.array(picks)))
    while len(among.picks) < len(picks):
        among.add(int(among.gains().argmax()))
    return np.array(picks)[among.picks]
