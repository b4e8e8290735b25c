"""How many sites fit under rules, and a set of them: by sweeps, and by integer programming where sweeps fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.constraints.feasible_set import PlacementRules

__all__ = ["Fit", "largest_feasible", "packing"]

_DRAWS = 4
_MOST_PROVED = 500  # candidates, up to which the largest set is looked for by integer programming
_MOST_COUNTED = 5000  # candidates, up to which neighbours are counted
_SECONDS = 5.0

Fit = tuple[list[int], bool]


def packing(rules: PlacementRules, observable: NDArray[np.bool_], want: int, keep: Sequence[int] = ()) -> list[int]:
    """Give up to ``want`` sites that are legal together, ``keep`` first: the most that several sweeps find."""
    best: list[int] = []
    for order in _orders(rules, np.flatnonzero(observable)):
        room = rules.room(observable, keep)
        room.fill(order, want)
        best = max(best, room.taken, key=len)
        if len(best) >= want:
            break
    return best


def largest_feasible(rules: PlacementRules, observable: NDArray[np.bool_], want: int) -> Fit:
    """Give up to ``want`` sites that are legal together, and whether it is certain that there are no more."""
    found = packing(rules, observable, want)
    candidates = np.flatnonzero(rules.room(observable).open)
    if len(found) >= want or len(candidates) > _MOST_PROVED:
        return found, len(found) >= want
    sites, proved = _largest(rules, candidates)
    return max(found, sites, key=len)[:want], proved


def _orders(rules: PlacementRules, candidates: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Orders to fill by: along each axis, at random, and those first that stand in the way of fewest."""
    if rules.costs is not None:
        candidates = candidates[np.argsort(rules.costs[candidates], kind="stable")]
        yield candidates
    if rules.points is not None:
        where = _first_points(rules, candidates)
        for axis in range(where.shape[1]):
            yield candidates[np.lexsort((*np.delete(where, axis, axis=1).T, where[:, axis]))]
    rng = np.random.default_rng(0)
    yield from (rng.permutation(candidates) for _ in range(_DRAWS))
    if len(candidates) <= _MOST_COUNTED:
        crowd = [len(rules.near(int(site))) for site in candidates]
        yield candidates[np.argsort(crowd, kind="stable")]


def _first_points(rules: PlacementRules, candidates: NDArray[np.int64]) -> NDArray[np.float64]:
    points = np.asarray(rules.points)
    owners = np.arange(rules.size) if rules.owners is None else rules.owners
    order = np.argsort(owners, kind="stable")
    return np.asarray(points[order[np.searchsorted(owners[order], candidates)]], np.float64)


def _largest(rules: PlacementRules, candidates: NDArray[np.int64]) -> Fit:
    """Give the largest legal set: maximise the number of sites, of two too near to each other at most one."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    count, rows = len(candidates), []
    if count == 0:
        return [], True
    if rules.apart > 0:
        rows.append(LinearConstraint(_cliques(rules, candidates), ub=1.0))
    if rules.costs is not None:
        rows.append(LinearConstraint(rules.costs[candidates][np.newaxis], ub=rules.limit))
    solved = milp(
        -np.ones(count), integrality=np.ones(count), bounds=Bounds(0, 1), constraints=rows,
        options={"time_limit": _SECONDS},
    )  # fmt: skip
    sites = [] if solved.x is None else candidates[np.asarray(solved.x) > 0.5].tolist()
    return sites, solved.status == 0 and rules.violation(sites) is None


def _cliques(rules: PlacementRules, candidates: NDArray[np.int64]) -> Any:
    """Rows of sites that are all too near to each other, every such pair in at least one of them."""
    from scipy.sparse import csr_array

    place = {int(site): i for i, site in enumerate(candidates)}
    near = [{place[int(one)] for one in rules.near(int(site)) if int(one) in place} for site in candidates]
    covered, columns, starts = set[tuple[int, int]](), list[int](), [0]
    for first, others in enumerate(near):
        for second in others:
            if first < second and (first, second) not in covered:
                clique = [first, second]
                for third in sorted(near[first] & near[second]):
                    if third not in (first, second) and all(third in near[one] for one in clique):
                        clique.append(third)
                covered |= {(a, b) for a in clique for b in clique if a < b}
                columns += clique
                starts.append(len(columns))
    return csr_array((np.ones(len(columns)), columns, starts), shape=(len(starts) - 1, len(candidates)))
