"""Feasible sets of sites under a minimum distance and a cost limit."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.metric import Metric

__all__ = ["FeasibleSet", "PlacementRules"]

_ROUNDING = 1e-9  # relative tolerance of the cost limit


@dataclass(frozen=True, eq=False)
class PlacementRules:
    """Minimum distance between sites, and limit of their total cost.

    Parameters
    ----------
    size : int
        Number of candidates (sites, or groups of sites).
    min_distance : float
        Minimum distance between two candidates, in units of ``metric``; 0: none.
    metric : Metric, optional
        Distances between sites; needed where ``min_distance`` is positive.
    owners : ndarray of int, shape (sites,), optional
        Candidate that each site belongs to, where candidates are groups. None: each site is a candidate.
    costs : ndarray of shape (size,), optional
        Cost of each candidate.
    limit : float
        Limit of the total cost.
    count : int, optional
        How many candidates are selected within the cost limit; None: as many as can be paid for.
    existing : ndarray of int
        Existing sites, from which new ones keep the minimum distance.
    """

    size: int
    min_distance: float = 0.0
    metric: Metric | None = None
    owners: NDArray[np.int64] | None = None
    costs: NDArray[np.float64] | None = None
    limit: float = np.inf
    count: int | None = None
    existing: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def any(self) -> bool:
        """Whether there is any rule."""
        return self.min_distance > 0 or self.costs is not None

    @property
    def is_open(self) -> bool:
        """Whether the number of candidates follows from their costs."""
        return self.costs is not None and self.count is None

    def neighbours(self, site: int) -> NDArray[np.int64]:
        """Return the candidates closer than the minimum distance to one of them.

        Parameters
        ----------
        site : int
            A candidate.

        Returns
        -------
        ndarray of int
            Sorted; the candidate itself included.

        Examples
        --------
        >>> from keyhole.data.metric import Euclidean
        >>> PlacementRules(5, min_distance=2.0, metric=Euclidean(np.arange(5.0)[:, np.newaxis])).neighbours(1)
        array([0, 1, 2])
        """
        known = self._cached_neighbours
        if site not in known:
            known[site] = self._neighbours(site)
        return known[site]

    def feasible_set(self, observable: NDArray[np.bool_], selected: Iterable[int] = ()) -> FeasibleSet:
        """Return the feasible set among the observable candidates, given those already selected (``selected``)."""
        feasible = FeasibleSet(self, observable)
        for site in selected:
            feasible.add(int(site))
        return feasible

    def violation(self, sites: Iterable[int]) -> str | None:
        """Return the first violation of a rule.

        Parameters
        ----------
        sites : iterable of int
            Candidates in the order of their selection.

        Returns
        -------
        str or None
            A message about the first one that violates a rule given those before it.
        """
        feasible = self.feasible_set(np.ones(self.size, bool))
        for site in sites:
            if not feasible.is_feasible(int(site)):
                return f"site {site} violates the minimum distance or the cost limit"
            feasible.add(int(site))
        return None

    def add_to(self, digest: Any) -> None:
        """Add everything that defines the rules to a hash."""
        digest.update(repr((self.size, self.min_distance, self.limit)).encode())
        for array in (self.owners, self.costs, self.existing):
            digest.update(b"" if array is None else np.ascontiguousarray(array).data)

    def _max_cost(self) -> float:
        """Cost limit with a tolerance for rounding."""
        return self.limit * (1 + _ROUNDING)

    def _neighbours(self, site: int) -> NDArray[np.int64]:
        """Candidates of which a site is closer than the minimum distance to one of this candidate's."""
        if self.min_distance <= 0 or self.metric is None:
            return np.array([site], np.int64)
        members = (
            [site] if self.owners is None else self._order[slice(*np.searchsorted(self._sorted, [site, site + 1]))]
        )
        near = self.metric.within(members, self.min_distance)
        return near if self.owners is None else np.unique(self.owners[near])

    @cached_property
    def _cached_neighbours(self) -> dict[int, NDArray[np.int64]]:
        """Cache of neighbours."""
        return {}

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """Sites sorted by owner."""
        return np.argsort(np.arange(self.size) if self.owners is None else self.owners, kind="stable")

    @cached_property
    def _sorted(self) -> NDArray[np.int64]:
        """Owners in sorted order."""
        return (np.arange(self.size) if self.owners is None else self.owners)[self._order]


class FeasibleSet:
    """The candidates that may still be selected, updated as candidates are selected and removed.

    Parameters
    ----------
    rules : PlacementRules
        Minimum distance and cost limit.
    observable : ndarray of bool, shape (size,)
        Candidates that may be selected.

    Attributes
    ----------
    selected : list of int
        Selected candidates, in order.
    cost : float
        Their total cost.

    Examples
    --------
    >>> from keyhole.data.metric import Euclidean
    >>> rules = PlacementRules(5, min_distance=2.0, metric=Euclidean(np.arange(5.0)[:, np.newaxis]))
    >>> feasible = FeasibleSet(rules, np.ones(5, bool))
    >>> feasible.add(1)
    >>> np.flatnonzero(feasible.mask)
    array([3, 4])
    """

    def __init__(self, rules: PlacementRules, observable: NDArray[np.bool_]) -> None:
        self.rules, self.observable = rules, observable
        self.selected: list[int] = []
        self.cost = 0.0
        self._conflicts = np.zeros(rules.size, np.int32)
        self._largest: float | None = None
        for site in rules.existing:
            self._conflicts[rules.neighbours(int(site))] += 1

    def copy(self) -> FeasibleSet:
        """Return an independent copy."""
        other = copy(self)
        other.selected, other._conflicts = list(self.selected), self._conflicts.copy()
        return other

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Boolean array ``(size,)``: the candidates that may be selected next."""
        free: NDArray[np.bool_] = self.observable & (self._conflicts == 0)
        return free if self.rules.costs is None else free & (self.rules.costs <= self._affordable())

    @property
    def conflicts(self) -> NDArray[np.int32]:
        """Number of selected or existing sites closer than the minimum distance to each candidate."""
        return self._conflicts

    def is_feasible(self, site: int) -> bool:
        """Whether a candidate may be selected next."""
        free = bool(self.observable[site]) and self._conflicts[site] == 0
        return free and (self.rules.costs is None or bool(self.rules.costs[site] <= self._affordable()))

    def add(self, site: int) -> None:
        """Select a candidate."""
        self._change(site, 1)
        self.selected.append(site)

    def remove(self, site: int) -> None:
        """Remove a selected candidate."""
        self.selected.remove(site)
        self._change(site, -1)

    def fill(self, order: Iterable[int], count: float = np.inf) -> None:
        """Select feasible candidates greedily in the given order, until there are ``count``."""
        for site in order:
            if len(self.selected) >= count:
                return
            if self.is_feasible(int(site)):
                self.add(int(site))

    def _affordable(self) -> float:
        """Largest cost of the next candidate that leaves enough for the cheapest others, up to the rules' number."""
        if self._largest is None:
            left = self.rules._max_cost() - self.cost
            self._largest = left - self._reserve(left)
        return self._largest

    def _reserve(self, left: float) -> float:
        """Cost of all but one of the candidates that are still needed, at the least.

        Of the cheapest that are needed, the last is the one to be chosen next; where it is one of the others, these and
        the last cost as much together.
        """
        needed = 0 if self.rules.count is None else self.rules.count - len(self.selected)
        if needed < 2 or self.rules.costs is None:
            return 0.0
        free = self.observable & (self._conflicts == 0)
        costs = self.rules.costs[free]
        if len(costs) < needed:
            return 0.0
        cheapest = np.partition(costs, needed - 1)[:needed]
        others = float(cheapest.sum() - cheapest.max())
        return others if others + float(cheapest.max()) <= left else np.inf

    def _change(self, site: int, sign: int) -> None:
        """Update conflicts and cost."""
        self._largest = None
        self._conflicts[self.rules.neighbours(site)] += sign
        if self.rules.costs is not None:
            self.cost += sign * float(self.rules.costs[site])
