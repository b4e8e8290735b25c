"""The largest feasible set: greedy packing, and integer programming if that falls short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.constraints.feasible_set import PlacementRules

__all__ = ["Fit", "largest_feasible", "packing"]

_DRAWS = 4
_MOST_PROVED = 500  # candidates, up to which the integer program is solved
_MOST_COUNTED = 5000  # candidates, up to which conflicts are counted
_SECONDS = 5.0

Fit = tuple[list[int], bool]


def packing(rules: PlacementRules, observable: NDArray[np.bool_], want: int, keep: Sequence[int] = ()) -> list[int]:
    """Return up to ``want`` jointly feasible candidates, the best of several greedy packings.

    Parameters
    ----------
    rules : PlacementRules
        Minimum distance and cost limit.
    observable : ndarray of bool, shape (size,)
        Candidates.
    want : int
        Number wanted.
    keep : sequence of int
        Candidates that are selected first.

    Returns
    -------
    list of int
        Fewer than ``want`` does not prove infeasibility; see `largest_feasible`.
    """
    best: list[int] = []
    for order in _orders(rules, np.flatnonzero(observable)):
        feasible = rules.feasible_set(observable, keep)
        feasible.fill(order, want)
        best = max(best, feasible.selected, key=len)
        if len(best) >= want:
            break
    return best


def largest_feasible(rules: PlacementRules, observable: NDArray[np.bool_], want: int) -> Fit:
    """Return up to ``want`` jointly feasible candidates, and whether a smaller number is proven to be the maximum.

    With a minimum distance this is the maximum independent set of the conflict graph, which is NP-hard. With up to 500
    candidates it is solved as an integer program with clique constraints and a limit of 5 seconds; with more, the
    result of the greedy packing is returned without proof.

    Parameters
    ----------
    rules : PlacementRules
        Minimum distance and cost limit.
    observable : ndarray of bool, shape (size,)
        Candidates.
    want : int
        Number wanted.

    Returns
    -------
    sites : list of int
    proven : bool

    Examples
    --------
    >>> rules = PlacementRules(5, min_distance=2.0, points=np.arange(5.0)[:, np.newaxis])
    >>> largest_feasible(rules, np.ones(5, bool), 4)
    ([0, 2, 4], True)
    """
    found = packing(rules, observable, want)
    candidates = np.flatnonzero(rules.feasible_set(observable).mask)
    if len(found) >= want or len(candidates) > _MOST_PROVED:
        return found, len(found) >= want
    sites, proved = _largest(rules, candidates)
    return max(found, sites, key=len)[:want], proved


def _orders(rules: PlacementRules, candidates: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Orders for greedy packing: by cost, along each axis, at random, and by increasing number of conflicts."""
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
        conflicts = [len(rules.neighbours(int(site))) for site in candidates]
        yield candidates[np.argsort(conflicts, kind="stable")]


def _first_points(rules: PlacementRules, candidates: NDArray[np.int64]) -> NDArray[np.float64]:
    """Position of each candidate; of a group, its first point."""
    points = np.asarray(rules.points, np.float64)
    if rules.owners is None:
        return points[candidates]
    owners, first = np.unique(rules.owners, return_index=True)
    return points[first[np.searchsorted(owners, candidates)]]


def _largest(rules: PlacementRules, candidates: NDArray[np.int64]) -> Fit:
    """Solve the integer program: maximise the number of candidates under conflicts and cost."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    count, rows = len(candidates), []
    if count == 0:
        return [], True
    if rules.min_distance > 0:
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
    """Greedy clique cover of the edges of the conflict graph, as a sparse matrix ``(cliques, candidates)``."""
    from scipy.sparse import csr_array

    place = {int(site): i for i, site in enumerate(candidates)}
    near = [{place[int(one)] for one in rules.neighbours(int(site)) if int(one) in place} for site in candidates]
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
