"""Bookkeeping of greedy and exchange algorithms: candidates, selected sites and constraints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

import numpy as np
from numpy.typing import NDArray

from keyhole.data.scaled_samples import ScaledSamples

__all__ = ["FeasibleCandidates"]


class FeasibleCandidates:
    """Candidates of a greedy or exchange algorithm, those selected so far, and the feasible set beside them.

    Candidates are addressed by their index in ``candidates``, as in the arrays of gains.

    Parameters
    ----------
    samples
        ScaledSamples whose constraints hold.
    candidates
        ``(m,)``, numbers of the candidates, ascending.
    k
        Number of sites to select; under a cost limit, as many are selected as can be paid for.
    exact
        Whether ``k`` holds under a cost limit too, as in a search that exchanges sites but adds none.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.eye(5)).with_constraints({"min_distance": 2}).as_scaled()
    >>> candidates = FeasibleCandidates(samples, np.arange(5), 2)
    >>> candidates.add_best(np.array([1.0, 2.0, 5.0, 3.0, 4.0]), floor=0.0)
    2
    >>> candidates.mask
    array([ True, False, False, False,  True])
    """

    def __init__(self, samples: ScaledSamples, candidates: NDArray[np.int64], k: int, *, exact: bool = False) -> None:
        self.feasible, self.candidates = samples.feasible_set(), candidates
        self.costs = None if self.feasible.rules.costs is None else self.feasible.rules.costs[candidates]
        self.grows = self.feasible.rules.is_open and not exact
        self.limit = len(candidates) if self.grows else k

    def copy(self) -> FeasibleCandidates:
        """Return an independent copy."""
        other = copy(self)
        other.feasible = self.feasible.copy()
        return other

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Whether each candidate is feasible beside those selected, ``(m,)``."""
        return np.asarray(self.feasible.mask[self.candidates])

    @property
    def complete(self) -> bool:
        """Whether no further candidate may be added, whatever its cost."""
        return len(self.feasible.selected) >= min(self.limit, len(self.candidates))

    @property
    def full(self) -> bool:
        """Whether the selection has its final size; always true under a cost limit, where any size is allowed."""
        return self.grows or self.complete

    @property
    def sites(self) -> NDArray[np.int64]:
        """Numbers of the selected sites, in the order of selection."""
        return np.array(self.feasible.selected, np.int64)

    def is_feasible(self, candidate: int) -> bool:
        """Whether a candidate can be added: it is feasible, and the selection is smaller than K."""
        return len(self.feasible.selected) < self.limit and self.feasible.is_feasible(int(self.candidates[candidate]))

    def conflicting(self, candidate: int) -> list[int]:
        """Return the selected candidates within the minimum distance of a candidate."""
        neighbours = self.feasible.rules.neighbours(int(self.candidates[candidate]))
        return [int(np.searchsorted(self.candidates, site)) for site in self.feasible.selected if site in neighbours]

    def least_conflicting(self) -> NDArray[np.int64]:
        """Return the unselected candidates with the fewest conflicts, none of them with existing sites."""
        sites, rules = self.candidates, self.feasible.rules
        excluded = np.concatenate([self.sites, *map(rules.neighbours, rules.existing)])
        free = self.feasible.observable[sites] & ~np.isin(sites, excluded)
        count = np.where(free, self.feasible.conflicts[sites], np.iinfo(np.int32).max)
        return np.flatnonzero(free & (count == count.min()))

    def add(self, candidate: int) -> None:
        """Add a candidate to the selection."""
        self.feasible.add(int(self.candidates[candidate]))

    def remove(self, candidate: int) -> None:
        """Remove a candidate from the selection."""
        self.feasible.remove(int(self.candidates[candidate]))

    @contextmanager
    def without(self, candidate: int) -> Iterator[None]:
        """Remove a selected candidate for the duration of a ``with`` block."""
        self.remove(candidate)
        try:
            yield
        finally:
            self.add(candidate)

    def add_best(self, gains: NDArray[np.float64], floor: float) -> int | None:
        """Select the feasible candidate with the largest gain, per unit of cost where sites have costs.

        Parameters
        ----------
        gains
            ``(m,)``, gain of each candidate.
        floor
            Gain at or below which a candidate is not worth selecting, such as the rounding error of the gains.

        Returns
        -------
        int or None
            Index of the candidate, or None where the selection is complete or no gain exceeds the floor.
        """
        if self.complete:
            return None
        gains = np.where(self.mask, gains, -np.inf)
        best = int((gains / self.costs if self.costs is not None and self.feasible.rules.is_open else gains).argmax())
        if gains[best] <= floor:
            return None
        self.add(best)
        return best
