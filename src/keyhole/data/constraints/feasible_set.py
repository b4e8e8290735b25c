"""What a legal choice of sites is, beyond each being observable: distance between them, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FeasibleSet", "PlacementRules"]

_ROUNDING = 1e-9  # share of a distance, or of a limit, that rounding may take


@dataclass(frozen=True, eq=False)
class PlacementRules:
    """How near each other sites may be, and how much they may cost together.

    Parameters
    ----------
    size
        Number of cells of the grid.
    apart
        Least distance between two sites, in units of ``points``; 0: any.
    points
        ``(p, d)``, places such that distance is Euclidean; needed where ``apart`` is not 0.
    owners
        ``(p,)``, flat index of the site that each point belongs to; a site may have several.
    costs
        ``(size,)``, what each site costs, or None.
    limit
        What they may cost together.
    held
        Flat index of sites that are there already, and from which new ones keep their distance.
    """

    size: int
    apart: float = 0.0
    points: NDArray[np.float64] | None = None
    owners: NDArray[np.int64] | None = None
    costs: NDArray[np.float64] | None = None
    limit: float = np.inf
    held: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def any(self) -> bool:
        """Whether there are rules at all."""
        return self.apart > 0 or self.costs is not None

    def near(self, site: int) -> NDArray[np.int64]:
        """Sites that are too near to one, itself among them."""
        known = self._known
        if site not in known:
            known[site] = self._near(site)
        return known[site]

    def room(self, observable: NDArray[np.bool_], taken: Iterable[int] = ()) -> FeasibleSet:
        """Give what may be chosen among the observable sites beside those taken."""
        room = FeasibleSet(self, observable.ravel())
        for site in taken:
            room.take(int(site))
        return room

    def violation(self, sites: Iterable[int]) -> str | None:
        """Say which site breaks a rule beside those before it, or give None."""
        room = self.room(np.ones(self.size, bool))
        for site in sites:
            if not room.may(int(site)):
                return f"site {site} is too near to another one, or one too many to pay for"
            room.take(int(site))
        return None

    def add_to(self, digest: Any) -> None:
        """Add all that defines the rules to a hash."""
        digest.update(repr((self.size, self.apart, self.limit)).encode())
        for array in (self.points, self.owners, self.costs, self.held):
            digest.update(b"" if array is None else np.ascontiguousarray(array).data)

    def _most(self) -> float:
        return self.limit * (1 + _ROUNDING)

    def _near(self, site: int) -> NDArray[np.int64]:
        if self.apart <= 0:
            return np.array([site], np.int64)
        tree, points, owners = self._tree
        places = points[self._order[slice(*np.searchsorted(self._sorted, [site, site + 1]))]]
        found = tree.query_ball_point(places, self.apart * (1 - _ROUNDING))
        return np.unique(owners[np.concatenate([np.asarray(part, np.int64) for part in found])])

    @cached_property
    def _known(self) -> dict[int, NDArray[np.int64]]:
        return {}

    @cached_property
    def _tree(self) -> tuple[Any, NDArray[np.float64], NDArray[np.int64]]:
        from scipy.spatial import KDTree

        if self.points is None:
            raise ValueError("a distance needs points")
        owners = np.arange(self.size) if self.owners is None else self.owners
        return KDTree(self.points), self.points, owners

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.argsort(self._tree[2], kind="stable")

    @cached_property
    def _sorted(self) -> NDArray[np.int64]:
        return self._tree[2][self._order]


class FeasibleSet:
    """What may still be chosen, kept up to date as sites are taken and left.

    ``open`` is ``(size,)``: the observable sites that break no rule beside those taken.
    """

    def __init__(self, rules: PlacementRules, observable: NDArray[np.bool_]) -> None:
        self.rules, self.observable = rules, observable
        self.taken: list[int] = []
        self.spent = 0.0
        self._blocks = np.zeros(rules.size, np.int32)
        for site in rules.held:
            self._blocks[rules.near(int(site))] += 1

    def copy(self) -> FeasibleSet:
        """Give another one in the same state."""
        other = copy(self)
        other.taken, other._blocks = list(self.taken), self._blocks.copy()
        return other

    @property
    def open(self) -> NDArray[np.bool_]:
        """Which sites may be taken."""
        free: NDArray[np.bool_] = self.observable & (self._blocks == 0)
        return free if self.rules.costs is None else free & (self.rules.costs <= self.rules._most() - self.spent)

    @property
    def conflicts(self) -> NDArray[np.int32]:
        """How many of the sites taken or held are too near to each site, itself among them if it is taken."""
        return self._blocks

    def may(self, site: int) -> bool:
        """Whether one site may be taken."""
        free = bool(self.observable[site]) and self._blocks[site] == 0
        return free and (self.rules.costs is None or self.rules.costs[site] <= self.rules._most() - self.spent)

    def take(self, site: int) -> None:
        """Take one site."""
        self._change(site, 1)
        self.taken.append(site)

    def leave(self, site: int) -> None:
        """Leave one site that was taken."""
        self.taken.remove(site)
        self._change(site, -1)

    def fill(self, order: Iterable[int], most: float = np.inf) -> None:
        """Take what may be taken, in the order given, until there are ``most``."""
        for site in order:
            if len(self.taken) >= most:
                return
            if self.may(int(site)):
                self.take(int(site))

    def _change(self, site: int, sign: int) -> None:
        self._blocks[self.rules.near(site)] += sign
        if self.rules.costs is not None:
            self.spent += sign * float(self.rules.costs[site])
