"""Constraints as a user specifies them, and applied to a grid."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import InfeasibleError, SettingsError
from keyhole.data.alignment import on_grid
from keyhole.data.constraints.feasibility import largest_feasible
from keyhole.data.constraints.feasible_set import PlacementRules
from keyhole.data.constraints.groups import Grouping, labels_of
from keyhole.data.constraints.regions import region
from keyhole.data.constraints.site_lookup import find_sites
from keyhole.data.grid import Grid

__all__ = ["Constraints", "ResolvedConstraints"]

_EARTH_KM = 6371.0
_RULES = ("allowed", "forbidden", "existing", "min_distance", "groups", "costs", "cost_limit")


@dataclass(frozen=True, eq=False)
class Constraints:
    """Constraints on a placement, as a user specifies them.

    Masks, costs and labels that carry labels themselves (DataArrays, Series, DataFrames, mappings by site name) are
    aligned to the grid by coordinate or name, or refused; they are never taken by position.

    Parameters
    ----------
    allowed, forbidden : region, optional
        Where sites may be, and where they may not; a box, GeoJSON or a mask, see `region`.
    existing : sequence
        Existing sites: flat indices, names, or coordinates ``{"lat": 10, "lon": 200}``. They are kept, and K new sites
        are added; they need not satisfy the constraints themselves.
    min_distance : float, optional
        Minimum distance between sites: kilometres along the great circle if the grid has latitude and longitude, else
        in units of its coordinates.
    costs, cost_limit : array-like or float, and float, optional
        Cost of each site, and the limit of the total cost, which replaces K.
    groups : str, sequence of str or array-like, optional
        Sites that are selected together: the name of an axis (``"depth"``: a mooring observes a whole column), several
        of them, or labels of the grid's shape, where an empty label (-1, NaN, "") is a site of its own. K counts
        groups, and a group costs the sum of its sites.

    Examples
    --------
    >>> grid = Grid.plain((4, 5))
    >>> limits = Constraints(forbidden={"row": (0, 1)}, min_distance=2)
    >>> resolved = limits.resolve(grid, grid.inside)
    >>> int(resolved.observable.sum()), resolved.fit(10)
    (10, (3, True))
    """

    allowed: Any = None
    forbidden: Any = None
    existing: Any = ()
    min_distance: float | None = None
    costs: Any = None
    cost_limit: float | None = None
    groups: Any = None

    @classmethod
    def of(cls, given: Constraints | Mapping[str, Any] | None) -> Constraints:
        """Return constraints given in any accepted form.

        Parameters
        ----------
        given : Constraints, mapping or None
            Constraints, or a mapping of their parameters.

        Returns
        -------
        Constraints

        Raises
        ------
        SettingsError
            If a name is unknown.
        """
        if isinstance(given, Constraints):
            return given
        names = [one.name for one in fields(cls)]
        unknown = [name for name in given or {} if name not in names]
        if unknown:
            raise SettingsError(f"constraints: {unknown[0]!r} is not known; there are {', '.join(names)}")
        return cls(**(given or {}))

    def without(self, name: str) -> Constraints:
        """Return a copy without one of the constraints; costs and their limit are removed together."""
        names = ("costs", "cost_limit") if name.startswith("cost") else (name,)
        return replace(self, **dict.fromkeys(names))

    def described(self) -> list[str]:
        """Return the names of the given constraints, with their values if these are numbers."""
        values = {name: getattr(self, name) for name in self.given()}
        return [
            f"{name}={value:g}" if isinstance(value, int | float) else name
            for name, value in values.items()
            if name != "costs"
        ]

    def given(self) -> list[str]:
        """Return the names of the given constraints."""
        return [name for name in _RULES if not _is_nothing(name, getattr(self, name))]

    def resolve(self, grid: Grid, observable: NDArray[np.bool_]) -> ResolvedConstraints:
        """Apply the constraints to a grid.

        Parameters
        ----------
        grid : Grid
            The grid.
        observable : ndarray of bool, of the grid's shape
            Sites that may be selected without the constraints.

        Returns
        -------
        ResolvedConstraints
            Not yet checked for feasibility; see `ResolvedConstraints.check`.

        Raises
        ------
        SettingsError
            If a region, site, cost or label does not fit the grid.
        """
        existing = find_sites(self.existing, grid)
        remaining = observable.copy()
        if self.allowed is not None:
            remaining &= region(self.allowed, grid, "allowed")
        if self.forbidden is not None:
            remaining &= ~region(self.forbidden, grid, "forbidden")
        remaining.ravel()[existing] = False
        costs, limit = self._costs(grid)
        rules = PlacementRules(grid.size, costs=costs, limit=limit, existing=existing)
        if self.min_distance is not None:
            points, distance = _points(grid, _positive(self.min_distance, "min_distance"))
            rules = replace(rules, points=points, min_distance=distance)
        labels = labels_of(self.groups, grid)
        grouping = None if labels is None else Grouping.of(labels, grid, remaining)
        return ResolvedConstraints(grid, observable, remaining, rules, grouping, self)

    def _costs(self, grid: Grid) -> tuple[NDArray[np.float64] | None, float]:
        """Cost of each site and limit of the total cost; None and infinity without costs."""
        if (self.costs is None) != (self.cost_limit is None):
            raise SettingsError("costs and cost_limit go together: the cost of each site, and the limit of the total")
        if self.costs is None or self.cost_limit is None:
            return None, np.inf
        try:
            costs = np.asarray(on_grid(self.costs, grid, "costs"), np.float64)
        except (TypeError, ValueError) as error:
            if isinstance(error, SettingsError):
                raise
            raise SettingsError(f"costs: numbers are needed ({error})") from error
        if costs.shape not in ((), grid.shape):
            raise SettingsError(f"costs: an array of shape {costs.shape} for a grid of shape {grid.shape}")
        costs = np.broadcast_to(costs, grid.shape)
        if not (costs[grid.inside] > 0).all():
            raise SettingsError("costs: every site needs a cost above zero")
        return np.where(grid.inside, costs, np.inf).ravel(), _positive(self.cost_limit, "cost_limit")


@dataclass(frozen=True, eq=False)
class ResolvedConstraints:
    """Constraints applied to a grid.

    Parameters
    ----------
    grid : Grid
        The grid.
    before, observable : ndarray of bool, of the grid's shape
        Sites that may be selected without and with the constraints.
    rules : PlacementRules
        Minimum distance and cost by site; its ``existing`` are the existing sites.
    grouping : Grouping, optional
        Sites that are selected together; None: each site by itself.
    specification : Constraints
        The constraints as the user specified them.
    """

    grid: Grid
    before: NDArray[np.bool_]
    observable: NDArray[np.bool_]
    rules: PlacementRules
    grouping: Grouping | None = None
    specification: Constraints = Constraints()

    def units(self) -> tuple[PlacementRules, NDArray[np.bool_]]:
        """Return what is selected: sites, or groups of sites.

        Returns
        -------
        rules : PlacementRules
            For these candidates.
        observable : ndarray of bool
            Candidates that may be selected.
        """
        if self.grouping is None:
            return self.rules, self.observable.ravel()
        return self.grouping.rules(self.rules), self.grouping.observable

    def fit(self, want: int) -> tuple[int, bool]:
        """Return how many candidates are jointly feasible.

        Parameters
        ----------
        want : int
            Number wanted.

        Returns
        -------
        count : int
            At most ``want``.
        proven : bool
            Whether a smaller number is proven to be the maximum.
        """
        found, sure = largest_feasible(*self.units(), want)
        return len(found), sure

    def check(self, k: int | None) -> None:
        """Raise an InfeasibleError if ``k`` candidates are infeasible.

        The message names a minimal set of conflicting constraints, and how many candidates would be feasible without
        each.

        Parameters
        ----------
        k : int, optional
            Number of new sites or groups; None with a cost limit, which must allow at least one.
        """
        if (k is None) != (self.rules.costs is not None):
            raise InfeasibleError("either k or a cost limit (costs=, cost_limit=) is needed, and not both")
        want = 1 if k is None else k
        if self.fit(want)[0] < want:
            raise InfeasibleError(_clash(self.specification, partial(self._fit_under, want), k))

    def add_to(self, digest: Any) -> None:
        """Add everything that defines the constraints to a hash."""
        self.rules.add_to(digest)
        digest.update(b"" if self.grouping is None else np.ascontiguousarray(self.grouping.units).data)

    def _fit_under(self, want: int, specification: Constraints) -> tuple[int, bool]:
        """Largest feasible number of candidates under other constraints."""
        return specification.resolve(self.grid, self.before).fit(want)


def _clash(given: Constraints, fit: Callable[[Constraints], tuple[int, bool]], k: int | None) -> str:
    """Error message: a minimal set of conflicting constraints, and what would be feasible without each of them."""
    want, kept = 1 if k is None else k, given
    for name in given.given():
        without = kept.without(name)
        if fit(without)[0] < want:
            kept = without
    count, sure = fit(kept)
    what = "groups" if kept.groups is not None else "sites"
    most = f"{'at most' if sure else 'no more than'} {count} {what} {'fit' if sure else 'were found to fit'}"
    conditions = " and ".join(kept.described()) or "no constraints at all"
    loosened = {name: fit(kept.without(name)) for name in kept.given() if name != "costs"}
    eased = [f"without {name} {_count(*many, want)}" for name, many in loosened.items()]
    head = f"k={k} is infeasible" if k is not None else "no site is feasible"
    return f"{head}: with {conditions}, {most}" + (f"; {', '.join(eased)}" if eased else "")


def _count(count: int, sure: bool, want: int) -> str:
    """Number that would be feasible."""
    return f"{count}{' or more' if count >= want else ''} would"


def _points(grid: Grid, distance: float) -> tuple[NDArray[np.float64], float]:
    """Positions of all sites such that distance is Euclidean, and the minimum distance in these units."""
    latitude, longitude = grid.axis_of_latitude(), grid.axis_of_longitude()
    if latitude is not None and longitude is not None:
        if distance > np.pi * _EARTH_KM:
            raise SettingsError(f"min_distance={distance:g}: no two places on earth are more than 20015 km apart")
        return grid.places[:, :3], 2 * float(np.sin(distance / _EARTH_KM / 2))
    try:
        return np.stack([grid.along(axis) for axis in range(len(grid.shape))], axis=1), distance
    except ValueError as error:
        raise SettingsError("min_distance: the grid's coordinates are no numbers, so there is no distance") from error


def _positive(value: Any, what: str) -> float:
    """A positive finite number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < np.inf:
        raise SettingsError(f"{what}={value!r}: a number above zero is needed")
    return float(value)


def _is_nothing(name: str, value: Any) -> bool:
    """Whether a constraint is not given."""
    return value is None or (name == "existing" and hasattr(value, "__len__") and len(value) == 0)
