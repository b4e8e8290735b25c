"""Picks, one after the other, of what gains most among what may still be chosen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

import numpy as np
from numpy.typing import NDArray

from keyhole.data.samples import Samples

__all__ = ["FeasibleCandidates"]


class FeasibleCandidates:
    """Sites that a greedy method has picked so far.

    Parameters
    ----------
    signals
        Whose rules are kept.
    candidates
        Flat grid index of the sites that gains are given for.
    k
        How many to pick; under a limit of cost, as many as can be paid for.
    """

    def __init__(self, signals: Samples, candidates: NDArray[np.int64], k: int) -> None:
        self.room, self.candidates = signals.room(), candidates
        self.costs = None if self.room.rules.costs is None else self.room.rules.costs[candidates]
        self.most = k if self.costs is None else len(candidates)

    def copy(self) -> FeasibleCandidates:
        """Give another one in the same state."""
        other = copy(self)
        other.room = self.room.copy()
        return other

    @property
    def open(self) -> NDArray[np.bool_]:
        """Which candidates may be picked."""
        return np.asarray(self.room.open[self.candidates])

    @property
    def full(self) -> bool:
        """Whether there are as many as there are to be; under a limit of cost, there always are."""
        return self.costs is not None or len(self.room.taken) >= min(self.most, len(self.candidates))

    def may(self, place: int) -> bool:
        """Whether a candidate may be picked beside the others, and is not one too many."""
        return len(self.room.taken) < self.most and self.room.may(int(self.candidates[place]))

    def too_near(self, place: int) -> list[int]:
        """Give the places of what was picked that a candidate is too near to."""
        near = self.room.rules.near(int(self.candidates[place]))
        return [int(np.searchsorted(self.candidates, site)) for site in self.room.taken if site in near]

    def least_conflicting(self) -> NDArray[np.int64]:
        """Give the places of the candidates, not picked, for which the fewest of those picked would have to go."""
        sites = self.candidates
        free = self.room.observable[sites] & ~np.isin(sites, self.room.taken)
        free &= ~np.isin(sites, np.concatenate([[-1], *map(self.room.rules.near, self.room.rules.held)]))
        count = np.where(free, self.room.conflicts[sites], np.iinfo(np.int32).max)
        return np.flatnonzero(free & (count == count.min()))

    def add(self, place: int) -> None:
        """Pick a candidate."""
        self.room.take(int(self.candidates[place]))

    def drop(self, place: int) -> None:
        """Pick a candidate no more."""
        self.room.leave(int(self.candidates[place]))

    @contextmanager
    def without(self, place: int) -> Iterator[None]:
        """Do as if one candidate had not been picked."""
        site = int(self.candidates[place])
        self.room.leave(site)
        try:
            yield
        finally:
            self.room.take(site)

    def replace(self, old: int, new: int) -> None:
        """Leave one candidate and take another, or the same again."""
        self.room.leave(int(self.candidates[old]))
        self.room.take(int(self.candidates[new]))

    @property
    def sites(self) -> NDArray[np.int64]:
        """Flat grid index of the sites picked."""
        return np.array(self.room.taken, np.int64)

    def take(self, gains: NDArray[np.float64], floor: float) -> int | None:
        """Take the candidate that gains most, for what it costs, and give its place; None where there is no more."""
        if len(self.room.taken) >= self.most:
            return None
        gains = np.where(self.open, gains, -np.inf)
        best = int((gains if self.costs is None else gains / self.costs).argmax())
        if gains[best] <= floor:
            return None
        self.room.take(int(self.candidates[best]))
        return best
