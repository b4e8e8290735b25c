"""What a placement must keep to, as a user says it, and what that means on a grid."""

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
    """What a placement must keep to.

    Parameters
    ----------
    allowed, forbidden
        Regions (see `region`) where sites may be, and where they may not.
    existing
        Sites that are there already: flat indices, names, or coordinates ``{"lat": 10, "lon": 200}``. They are kept,
        and K more are chosen around them; rules of place and distance do not move them.
    min_distance
        Least distance between sites: kilometres on the great circle where the grid has latitude and longitude, else in
        units of its coordinates.
    costs, cost_limit
        What each site costs, an array of the grid's shape (or one number), and what the chosen may cost together, in
        place of K.
    groups
        Sites that come together: the name of an axis (``"depth"``: a mooring reads a whole column), several of them, or
        an array of labels of the grid's shape, where sites with an empty label (-1, NaN, "") stay alone. K counts
        groups, and a group costs what its sites cost together.

    Masks, costs and labels that carry labels themselves (DataArrays, Series, frames, mappings by site name) are aligned
    to the grid by coordinate or name, or refused; they are never taken by position.
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
        """Take constraints as they are, as a mapping of names, or none."""
        if isinstance(given, Constraints):
            return given
        names = [one.name for one in fields(cls)]
        unknown = [name for name in given or {} if name not in names]
        if unknown:
            raise SettingsError(f"constraints: {unknown[0]!r} is not known; there are {', '.join(names)}")
        return cls(**(given or {}))

    def without(self, name: str) -> Constraints:
        """Give the others alone."""
        names = ("costs", "cost_limit") if name.startswith("cost") else (name,)
        return replace(self, **dict.fromkeys(names))

    def words(self) -> list[str]:
        """Name those that are given, with their value where it is a number."""
        values = {name: getattr(self, name) for name in self.given()}
        return [
            f"{name}={value:g}" if isinstance(value, int | float) else name
            for name, value in values.items()
            if name != "costs"
        ]

    def given(self) -> list[str]:
        """Names of those that are given."""
        return [name for name in _RULES if not _is_nothing(name, getattr(self, name))]

    def resolve(self, grid: Grid, observable: NDArray[np.bool_]) -> ResolvedConstraints:
        """Say what they mean on a grid; whether they can be kept is for `ResolvedConstraints.check`."""
        fixed = find_sites(self.existing, grid)
        may = observable.copy()
        if self.allowed is not None:
            may &= region(self.allowed, grid, "allowed")
        if self.forbidden is not None:
            may &= ~region(self.forbidden, grid, "forbidden")
        may.ravel()[fixed] = False
        costs, limit = self._costs(grid)
        rules = PlacementRules(grid.size, costs=costs, limit=limit, held=fixed)
        if self.min_distance is not None:
            points, apart = _points(grid, _positive(self.min_distance, "min_distance"))
            rules = replace(rules, points=points, apart=apart)
        labels = labels_of(self.groups, grid)
        grouping = None if labels is None else Grouping.of(labels, grid, may)
        return ResolvedConstraints(grid, observable, may, rules, grouping, self)

    def _costs(self, grid: Grid) -> tuple[NDArray[np.float64] | None, float]:
        if (self.costs is None) != (self.cost_limit is None):
            raise SettingsError("costs and cost_limit go together: what each site costs, and what all may cost")
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
    """Constraints on a grid.

    Parameters
    ----------
    grid
        The grid.
    before, observable
        The sites that might be chosen without them, and those that may.
    rules
        Distance and cost, by site; the sites that are there already are its ``held``.
    grouping
        What is chosen together; None where every site is chosen by itself.
    asked
        What the user said.
    """

    grid: Grid
    before: NDArray[np.bool_]
    observable: NDArray[np.bool_]
    rules: PlacementRules
    grouping: Grouping | None = None
    asked: Constraints = Constraints()

    def units(self) -> tuple[PlacementRules, NDArray[np.bool_]]:
        """Rules of what is chosen at once, a site or a group, and which of these may be chosen."""
        if self.grouping is None:
            return self.rules, self.observable.ravel()
        return self.grouping.rules(self.rules), self.grouping.observable

    def fit(self, want: int) -> tuple[int, bool]:
        """How many may be chosen at most, up to ``want``, and whether that is certain."""
        found, sure = largest_feasible(*self.units(), want)
        return len(found), sure

    def check(self, k: int | None) -> None:
        """Raise a BudgetError that names a smallest set of constraints under which ``k`` cannot be had.

        Where a limit of cost stands in place of K, one must be to be had.
        """
        if (k is None) != (self.rules.costs is not None):
            raise InfeasibleError("either k or a limit of cost (costs=, cost_limit=) is needed, and not both")
        want = 1 if k is None else k
        if self.fit(want)[0] < want:
            raise InfeasibleError(_clash(self.asked, partial(self._fit_under, want), k))

    def add_to(self, digest: Any) -> None:
        """Add all that defines them to a hash."""
        self.rules.add_to(digest)
        digest.update(b"" if self.grouping is None else np.ascontiguousarray(self.grouping.units).data)

    def _fit_under(self, want: int, asked: Constraints) -> tuple[int, bool]:
        return asked.resolve(self.grid, self.before).fit(want)


def _clash(asked: Constraints, fit: Callable[[Constraints], tuple[int, bool]], k: int | None) -> str:
    """Say how many fit, under which of the constraints, and how many would without each of these."""
    want, kept = 1 if k is None else k, asked
    for name in asked.given():
        without = kept.without(name)
        if fit(without)[0] < want:
            kept = without
    count, sure = fit(kept)
    what = "groups" if kept.groups is not None else "sites"
    most = f"{'at most' if sure else 'no more than'} {count} {what} {'fit' if sure else 'were found to fit'}"
    words = " and ".join(kept.words()) or "no constraints at all"
    loosened = {name: fit(kept.without(name)) for name in kept.given() if name != "costs"}
    eased = [f"without {name} {_count(*many, want)}" for name, many in loosened.items()]
    head = f"k={k} cannot be had" if k is not None else "no site can be had"
    return f"{head}: with {words}, {most}" + (f"; {', '.join(eased)}" if eased else "")


def _count(count: int, sure: bool, want: int) -> str:
    return f"{count}{' or more' if count >= want else ''} would"


def _points(grid: Grid, distance: float) -> tuple[NDArray[np.float64], float]:
    """Places of all cells such that distance is Euclidean, and the least distance between them."""
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
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < np.inf:
        raise SettingsError(f"{what}={value!r}: a number above zero is needed")
    return float(value)


def _is_nothing(name: str, value: Any) -> bool:
    return value is None or (name == "existing" and hasattr(value, "__len__") and len(value) == 0)
