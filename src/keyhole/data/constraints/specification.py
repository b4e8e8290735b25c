"""Constraints as a user specifies them, and as they apply to sites."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import InfeasibleError, SettingsError
from keyhole.data.alignment import align
from keyhole.data.constraints.feasibility import largest_feasible
from keyhole.data.constraints.feasible_set import PlacementRules
from keyhole.data.constraints.groups import Grouping, labels_of
from keyhole.data.constraints.regions import region
from keyhole.data.constraints.site_lookup import find_sites, sites_given
from keyhole.data.metric import NoMetric
from keyhole.data.sites import Sites
from keyhole.data.table_columns import TableColumns

__all__ = ["Constraints", "ResolvedConstraints"]

_RULES = ("allowed", "forbidden", "existing", "min_distance", "groups", "costs", "cost_limit")


@dataclass(frozen=True, eq=False)
class Constraints:
    """Constraints on a placement, as a user specifies them.

    Masks, costs and labels that carry labels themselves (DataArrays, Series, DataFrames, mappings by site name) are
    aligned to the sites by coordinate or name, or refused; they are never taken by position.

    Parameters
    ----------
    allowed, forbidden : region, optional
        Where sites may be, and where they may not; a box, GeoJSON or a mask, see `region`.
    existing : sequence
        Existing sites: flat indices, names, or coordinates ``{"lat": 10, "lon": 200}``. They are kept, and K new sites
        are added; they need not satisfy the constraints themselves.
    min_distance : float, optional
        Minimum distance between sites: kilometres along the great circle if the sites have latitude and longitude, else
        in units of its coordinates.
    costs, cost_limit : array-like or float, and float, optional
        Cost of each site, and the limit of the total cost, which replaces K.
    groups : str, sequence of str or array-like, optional
        Sites that are selected together: the name of an axis (``"depth"``: a mooring observes a whole column), several
        of them, or labels of the shape of the data, where an empty label (-1, NaN, "") is a site of its own. K counts
        groups, and a group costs the sum of its sites.

    Examples
    --------
    >>> sites = Sites.plain((4, 5))
    >>> limits = Constraints(forbidden={"row": (0, 1)}, min_distance=2)
    >>> resolved = limits.resolve(sites, np.ones(20, bool))
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
        """Return constraints given as such, as a mapping of their parameters, or as None."""
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
        """Return the names of the constraints that are given, with their values where these are numbers."""
        values = {name: getattr(self, name) for name in self.given()}
        return [
            f"{name}={value:g}" if isinstance(value, int | float) else name
            for name, value in values.items()
            if name != "costs"
        ]

    def given(self) -> list[str]:
        """Return the names of the constraints that are given."""
        return [name for name in _RULES if not _is_nothing(name, getattr(self, name))]

    def resolve(self, sites: Sites, observable: NDArray[np.bool_]) -> ResolvedConstraints:
        """Apply the constraints to sites.

        Parameters
        ----------
        sites : Sites
            The sites.
        observable : ndarray of bool, shape (m,)
            Sites that may be selected without the constraints.

        Returns
        -------
        ResolvedConstraints
            Not yet checked for feasibility; see `ResolvedConstraints.check`.

        Raises
        ------
        SettingsError
            If a region, site, cost or label does not fit the sites.
        """
        existing = find_sites(self.existing, sites)
        remaining = observable.copy()
        if self.allowed is not None:
            remaining &= region(self.allowed, sites, "allowed")
        if self.forbidden is not None:
            remaining &= ~region(self.forbidden, sites, "forbidden")
        remaining[existing] = False
        costs, limit = self._costs(sites)
        rules = PlacementRules(len(sites), costs=costs, limit=limit, existing=existing)
        if self.min_distance is not None:
            distance = _positive(self.min_distance, "min_distance")
            if isinstance(sites.metric, NoMetric):
                raise SettingsError("min_distance: the sites have no positions, so there is no distance between them")
            rules = replace(rules, metric=sites.metric, min_distance=distance)
            rules.neighbours(0)  # refuses distances that cannot be
        labels = labels_of(self.groups, sites)
        grouping = None if labels is None else Grouping.of(labels, remaining)
        return ResolvedConstraints(sites, observable, remaining, rules, grouping, self, self)

    def of_columns(self, columns: TableColumns) -> Constraints:
        """Return the constraints on the encoded columns of a table, given those on its columns.

        Parameters
        ----------
        columns : TableColumns
            Encoding of the table.
        """
        allowed, forbidden = (
            columns.each(mask, name) if _is_mask(mask) else mask
            for name, mask in (("allowed", self.allowed), ("forbidden", self.forbidden))
        )
        return replace(
            self, existing=columns.find(sites_given(self.existing)),
            groups=self.groups if isinstance(self.groups, str) else columns.group_labels(self.groups),
            costs=None if self.costs is None else columns.shared(self.costs),
            allowed=allowed, forbidden=forbidden,
        )  # fmt: skip

    def _costs(self, sites: Sites) -> tuple[NDArray[np.float64] | None, float]:
        """Cost of each site and limit of the total cost; None and infinity without costs."""
        if (self.costs is None) != (self.cost_limit is None):
            raise SettingsError("costs and cost_limit go together: the cost of each site, and the limit of the total")
        if self.costs is None or self.cost_limit is None:
            return None, np.inf
        try:
            costs = align(self.costs, sites, "costs").astype(np.float64)
        except (TypeError, ValueError) as error:
            if isinstance(error, SettingsError):
                raise
            raise SettingsError(f"costs: numbers are needed ({error})") from error
        if not (costs > 0).all():
            raise SettingsError("costs: every site needs a cost above zero")
        return costs, _positive(self.cost_limit, "cost_limit")


@dataclass(frozen=True, eq=False)
class ResolvedConstraints:
    """Constraints applied to sites.

    Parameters
    ----------
    sites : Sites
        The sites.
    before, observable : ndarray of bool, shape (m,)
        Sites that may be selected without and with the constraints.
    rules : PlacementRules
        Minimum distance and cost by site; its ``existing`` are the existing sites.
    grouping : Grouping, optional
        Sites that are selected together; None: each site by itself.
    specification : Constraints
        The constraints as they were resolved.
    asked : Constraints
        The constraints as the user specified them: of a table about its columns, before they were encoded.
    """

    sites: Sites
    before: NDArray[np.bool_]
    observable: NDArray[np.bool_]
    rules: PlacementRules
    grouping: Grouping | None = None
    specification: Constraints = Constraints()
    asked: Constraints = Constraints()

    def units(self) -> tuple[PlacementRules, NDArray[np.bool_]]:
        """Return the rules and the observable flags of the candidates: sites, or groups of sites."""
        if self.grouping is None:
            return self.rules, self.observable
        return self.grouping.rules(self.rules), self.grouping.observable

    def fit(self, want: int) -> tuple[int, bool]:
        """Return the largest feasible number of candidates up to ``want``, and whether it is proven."""
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
        if k is None and self.rules.costs is None:
            raise InfeasibleError("k or a cost limit (costs=, cost_limit=) is needed")
        want = 1 if k is None else k
        if self.fit(want)[0] < want:
            raise InfeasibleError(_clash(self.specification, partial(self._fit_under, want), k))

    def with_count(self, k: int | None) -> ResolvedConstraints:
        """Return the constraints with the number of candidates that are selected within a cost limit; None: open."""
        return replace(self, rules=replace(self.rules, count=k if self.rules.costs is not None else None))

    def add_to(self, digest: Any) -> None:
        """Add everything that defines the constraints to a hash."""
        self.rules.add_to(digest)
        digest.update(b"" if self.grouping is None else np.ascontiguousarray(self.grouping.units).data)

    def _fit_under(self, want: int, specification: Constraints) -> tuple[int, bool]:
        """Largest feasible number of candidates under other constraints."""
        return specification.resolve(self.sites, self.before).fit(want)


def _clash(given: Constraints, fit: Callable[[Constraints], tuple[int, bool]], k: int | None) -> str:
    """Error message: how many fit, under which minimal set of constraints, and how many would fit without each."""
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
    """A count in words."""
    return f"{count}{' or more' if count >= want else ''} would"


def _is_mask(region: Any) -> bool:
    """Return whether a region has one value for each site."""
    return region is not None and np.ndim(region) > 0 and np.asarray(region).dtype == bool


def _positive(value: Any, what: str) -> float:
    """A positive finite number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < np.inf:
        raise SettingsError(f"{what}={value!r}: a number above zero is needed")
    return float(value)


def _is_nothing(name: str, value: Any) -> bool:
    """Whether a constraint is not given."""
    return value is None or (name == "existing" and hasattr(value, "__len__") and len(value) == 0)
