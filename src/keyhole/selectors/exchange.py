"""Greedy sites, then exchanges of one site for another, under a covariance that fades with distance."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.reconstructors import Kriging
from keyhole.run import Event, Run
from keyhole.selectors.base import Selection, Selector, complete, some_of
from keyhole.selectors.classical import Greedy
from keyhole.selectors.remainder import Covariance, Remainder
from keyhole.signals import Signals

__all__ = ["Exchange"]

_MOST_SAMPLES = 10_000
_LEAST_NOISE = 1e-3  # share of the readings' variance: without any, sites side by side look worth having
_WORTH = 1e-4  # share of a site's gain that a better one must add
_NOTHING_LEFT = 1e-10
_MOST_HOPS, _WORK = 8, 2_000_000_000
_NEAR_BEST = 10  # sites among which a hop chooses at random


class Exchange(Selector):
    """Sites that leave least of a Gaussian field whose covariance fades with distance.

    The covariance is Kriging's: its length and noise are those that rebuild best from greedy's sites when blocks of
    samples are left out. Under it sites are picked greedily; then each in turn is dropped and the best of all sites put
    in its place, until no exchange helps. One exchange costs what one greedy pick does, whatever K is. Then a fifth of
    the sites is moved at random and exchanged anew, as often as the size of the data allows; the best are kept.
    """

    name: ClassVar[str] = "exchange"

    def select(self, train: Signals, k: int, *, validation: Signals | None, run: Run) -> Selection:
        """Pick ``k`` sites and exchange them; stops with what it has when the time is over."""
        some = some_of(train, _MOST_SAMPLES, run, "samples to exchange by")
        start = Greedy().select(some, k, validation=None, run=run).sites
        chosen = Kriging().fit(some, start, validation=some, run=run).chosen
        noise = max(chosen["strength"], _LEAST_NOISE)
        covariance = Covariance.of(some, chosen["length"], noise, run.generator("cells to exchange by"))
        remainder = Remainder(covariance)
        _pick(remainder, k)
        _exchange(remainder, run)
        hops = _hops(covariance, k)
        remainder = _hop(remainder, hops, run)
        ranked = _ranked(covariance, remainder.picks)
        sites = complete(covariance.candidates[ranked], k, train)
        return Selection(sites, notes={"hops": hops, "length": chosen["length"], "noise": noise})


def _pick(remainder: Remainder, k: int) -> None:
    """Pick greedily, until nothing is left."""
    first = remainder.gains().max()
    while len(remainder.picks) < min(k, remainder.count):
        gains = remainder.gains()
        best = int(gains.argmax())
        if gains[best] <= _NOTHING_LEFT * first:
            break
        remainder.add(best)


def _exchange(remainder: Remainder, run: Run) -> None:
    """Exchange sites, one after the other, until none can be bettered."""
    swaps, since, total = 0, 0, len(remainder.picks)
    while since < total and run.seconds_left() > 0:
        site = remainder.picks[0]
        gains = remainder.gains_without(0)
        best = int(gains.argmax())
        better = gains[best] > (1 + _WORTH) * gains[site]
        remainder.replace(0, best if better else site)
        swaps, since = (swaps + 1, 0) if better else (swaps, since + 1)
        run.tell(Event("exchange sites", since, total, {"swaps": float(swaps)}))


def _hops(covariance: Covariance, k: int) -> int:
    """How often to move sites at random: less often the more there is to compute for an exchange."""
    return int(min(_MOST_HOPS, _WORK // (covariance.readings[0].size * covariance.targets.shape[1] * k)))


def _hop(best: Remainder, hops: int, run: Run) -> Remainder:
    """Move some sites of the best so far to where they explain nearly most, and exchange anew."""
    rng = run.generator("hops of exchanges")
    for _ in range(hops if best.count > len(best.picks) > 1 else 0):
        if run.seconds_left() <= 0:
            break
        trial = best.copy()
        for _ in range(max(2, len(best.picks) // 5)):
            place = int(rng.integers(len(trial.picks)))
            near_best = np.argsort(-trial.gains_without(place), kind="stable")[:_NEAR_BEST]
            free = [int(pick) for pick in near_best if pick not in trial.picks]
            trial.replace(place, int(rng.choice(free or [trial.picks[place]])))
        _exchange(trial, run)
        best = max(best, trial, key=Remainder.explained)
    return best


def _ranked(covariance: Covariance, picks: list[int]) -> NDArray[np.int64]:
    """Order the sites as greedy picks among them would come."""
    among = Remainder(covariance.among(np.array(picks)))
    _pick(among, len(picks))
    rest = [place for place in range(len(picks)) if place not in among.picks]
    return np.array(picks)[[*among.picks, *rest]]
