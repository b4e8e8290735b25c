"""Sites that still serve when some of them fail."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.data.samples import Samples
from keyhole.placement.base import Selection, subsample
from keyhole.placement.classical import rank_sites
from keyhole.placement.greedy_selection import FeasibleCandidates
from keyhole.placement.posterior_covariance import Covariance, PosteriorCovariance, fit_localised_covariance

__all__ = ["Network", "harden_against_failures"]

_MOST_SAMPLES = 10_000
_MOST_SETS = 1500  # of failed sites that the mean is taken over
_TRIES = 12  # candidates that are tried in the place of a site
_WORTH = 1e-4


class Network:
    """Sites of a Gaussian field, and what is left of it when some of them fail.

    With `C_SS + a I = B^-1` the covariance of the readings, `G = C_tS B` and `Q = G'G`, the sites `S` take
    `tr(C_tS B C_St)` off the squared error, and the loss of the sites `F` gives `tr(B_FF^-1 Q_FF)` of it back.

    Parameters
    ----------
    covariance
        Of candidates with each other and with the cells to be rebuilt.
    picks
        Places of the sites among the candidates.
    """

    def __init__(self, covariance: Covariance, picks: Sequence[int]) -> None:
        self.covariance, self.picks = covariance, list(picks)
        targets = [covariance.with_targets(pick) for pick in self.picks]
        self.targets = np.concatenate(targets, axis=1).astype(np.float64)
        self.channels = targets[0].shape[1]
        own = covariance.between(self.picks).astype(np.float64)
        self.inverse = np.linalg.inv(own + np.diag(covariance.noise[self.picks].ravel()))
        inner = self.targets.T @ self.targets
        self.returned = self.inverse @ inner @ self.inverse
        self.explained = float(np.einsum("ij,ij->", inner, self.inverse))

    @classmethod
    def over_all_cells(cls, covariance: Covariance, picks: Sequence[int], signals: Samples) -> Self:
        """Give the network with all cells of the signals as targets, of which a search may have seen a sample."""
        return cls(covariance.among(np.array(picks)).with_all_cells(signals), range(len(picks)))

    def losses(self, sets: NDArray[np.int64]) -> NDArray[np.float64]:
        """What is given back when each of some sets ``(n, failures)`` of places among the sites fails."""
        if sets.shape[1] == 0:
            return np.zeros(len(sets))
        columns = (sets[:, :, np.newaxis] * self.channels + np.arange(self.channels)).reshape(len(sets), -1)
        index = columns[:, :, np.newaxis], columns[:, np.newaxis]
        solved = np.linalg.solve(self.inverse[index], self.returned[index])
        return np.asarray(np.trace(solved, axis1=1, axis2=2))


def harden_against_failures(found: Selection, train: Samples, failures: int, run: Run) -> Selection:
    """Exchange sites one by one until the mean error over the loss of ``failures`` of them is least.

    The mean is over all sets of that many sites, or 1500 of them; constraints are kept. Where a sample of the cells
    stood for a large grid, the outcome is scored by all cells, and the sites stay unless it is better. The notes tell
    which set would be missed most.
    """
    some = subsample(train, _MOST_SAMPLES, run, "samples to harden by")
    covariance, _ = fit_localised_covariance(some, found.sites, run, "harden")
    picks = FeasibleCandidates(train, covariance.candidates, len(found.sites))
    places = [int(place) for place in np.searchsorted(covariance.candidates, found.sites)]
    for place in places:
        picks.add(place)
    sets = failure_sets(len(places), failures, run)
    start = Network.over_all_cells(covariance, places, some)
    exchanged = _exchanged(covariance, picks, places, sets, run)
    network = Network.over_all_cells(covariance, exchanged, some)
    places, network = (exchanged, network) if _left(network, sets) < _left(start, sets) else (places, start)
    losses = network.losses(sets)
    worst = sets[int(losses.argmax())]
    total = _total(network.covariance)
    notes = {
        "failures": failures,
        "left_before": _left(start, sets) / total,
        "left_after": _left(network, sets) / total,
        "worst": covariance.candidates[[places[place] for place in worst]].tolist(),
        "left_without_worst": (total - network.explained + float(losses.max())) / total,
    }
    sites = rank_sites(train, covariance.candidates[places], run)
    return Selection(sites, found.history, {**found.notes, **notes}, None, found.distribution)


def failure_sets(count: int, failures: int, run: Run) -> NDArray[np.int64]:
    """Sets of places that fail together: all of that size, or as many as a mean needs."""
    if comb(count, failures) <= _MOST_SETS:
        return np.array(list(combinations(range(count), failures)), np.int64)
    rng = run.generator("sites that fail")
    return np.stack([rng.choice(count, failures, replace=False) for _ in range(_MOST_SETS)]).astype(np.int64)


def _exchanged(
    covariance: Covariance, picks: FeasibleCandidates, places: list[int], sets: NDArray[np.int64], run: Run
) -> list[int]:
    """Exchange each site in turn for the best of a few, until none can be bettered or time is over."""
    remainder = PosteriorCovariance(covariance)
    for place in places:
        remainder.add(place)
    least, since, swaps = _left(Network(covariance, remainder.picks), sets), 0, 0
    while since < len(places) and run.seconds_left() > 0:
        old = remainder.picks[0]
        with picks.without(old):
            gains = np.where(picks.open, remainder.gains_without(0), -np.inf)
        tried = [int(pick) for pick in np.argsort(-gains, kind="stable")[:_TRIES] if np.isfinite(gains[pick])]
        scores = {pick: _left(Network(covariance, [*remainder.picks[1:], pick]), sets) for pick in tried if pick != old}
        best = min(scores, key=scores.__getitem__, default=old)
        better = best != old and scores[best] < (1 - _WORTH) * least
        picks.replace(old, best if better else old)
        remainder.replace(0, best if better else old)
        least, since, swaps = (scores[best], 0, swaps + 1) if better else (least, since + 1, swaps)
        run.tell(Event("harden sites", since, len(places), {"swaps": float(swaps)}))
    return list(remainder.picks)


def _left(network: Network, sets: NDArray[np.int64]) -> float:
    """Squared error that is left on average when a set fails."""
    return _total(network.covariance) - network.explained + float(network.losses(sets).mean())


def _total(covariance: Covariance) -> float:
    targets: Any = covariance.targets
    return float(np.square(targets, dtype=np.float64).sum())
