"""The local search that exchange, kernel exchange and hardening against failures share, on objectives made for it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import keyhole as kh
from keyhole.core.run import Event, Run
from keyhole.placement.candidates import FeasibleCandidates
from keyhole.placement.local_search import LocalSearch, ScoredObjective, SearchState
from keyhole.placement.settings import LocalSearchSettings


class Pairs(ScoredObjective):
    """Error of a set that depends on its pairs, so that single gains mislead; scores are counted."""

    def __init__(self, n_scored=3, seed=0):
        super().__init__(n_scored)
        self.selected = []
        self.alone = np.random.default_rng(seed).uniform(size=12)
        self.together = np.random.default_rng(seed + 1).uniform(size=(12, 12))
        self.scored = []

    def score(self, selected):
        self.scored.append(frozenset(selected))
        return 10 - self.alone[selected].sum() - self.together[np.ix_(selected, selected)].sum() / 4

    def gains(self):
        gains = self.alone + self.together[:, self.selected].sum(axis=1)
        gains[self.selected] = -np.inf
        return gains

    def gains_without(self, position):
        other = self.copy()
        other.drop(position)
        return other.gains()


def search_from(start, n_restarts=0, k=4, run=None, n_scored=3, exact=True, **constraints):
    samples = kh.read(np.random.default_rng(0).normal(size=(20, 12)).astype(np.float32)).with_constraints(constraints)
    search = LocalSearch(LocalSearchSettings(), run or Run(), "search")
    objective = Pairs(n_scored)
    state = SearchState(objective, FeasibleCandidates(samples, np.arange(12), k, exact=exact), start)
    return search, search.search([state], n_restarts), objective


def test_no_exchange_that_is_scored_improves_a_local_optimum():
    search, best, objective = search_from([0, 1, 2, 3], n_scored=12)
    others = [j for j in range(12) if j not in best.selected]
    exchanged = [[*(i for i in best.selected if i != out), j] for out in best.selected for j in others]
    assert best.objective.error() <= min(objective.score(one) for one in exchanged)
    assert search.optima == {frozenset(best.selected): best.objective.error()}


def test_restarts_never_leave_the_incumbent_for_a_worse_optimum():
    search, best, objective = search_from([0, 1, 2, 3], n_restarts=10)
    errors = [row["error"] for row in search.history]
    assert len(errors) == 11
    assert [row["best"] for row in search.history] == np.minimum.accumulate(errors).tolist()
    assert best.objective.error() == min(errors)
    least = min(objective.score(list(one)) for one in combinations(range(12), 4))
    assert best.objective.error() <= 1.05 * least


def test_each_set_is_scored_once():
    _, _, objective = search_from([0, 1, 2, 3], n_restarts=5)
    assert len(objective.scored) == len(set(objective.scored))


@pytest.mark.parametrize("n_restarts", [0, 6])
def test_constraints_hold_throughout(n_restarts):
    _, best, _ = search_from([0, 3, 6, 9], n_restarts, min_distance=3)
    assert np.diff(np.sort(best.selected)).min() >= 3
    assert len(best.selected) == 4


def test_what_is_left_of_a_budget_is_spent_only_where_the_number_of_sites_may_change():
    costs, start = np.where(np.arange(12) < 4, 3.0, 1.0), [0, 1]
    for exact in (True, False):
        _, best, _ = search_from(start, k=2, exact=exact, costs=costs, cost_limit=6.0)
        assert costs[best.selected].sum() <= 6
        assert (len(best.selected) == 2) == exact


def test_progress_is_reported_and_a_deadline_keeps_the_start():
    events: list[Event] = []
    search_from([0, 1, 2, 3], run=Run(callback=events.append))
    assert {event.stage for event in events} == {"search"}
    assert events[-1].step == events[-1].total == 4
    _, best, _ = search_from([0, 1, 2, 3], n_restarts=3, run=Run(deadline=0.0))
    assert best.selected == [0, 1, 2, 3]


@pytest.mark.parametrize("exact", [True, False])
def test_no_restart_selects_a_site_that_costs_more_than_the_limit(exact):
    """Were it the best of all: it is never affordable, whatever else is removed."""
    costs = np.where(np.arange(12) % 2, 9.0, 1.0)
    for seed in range(5):
        search, best, _ = search_from([0, 2, 4], n_restarts=8, k=3, run=Run(seed=seed), exact=exact, costs=costs,
                                      cost_limit=6.0)  # fmt: skip
        assert all(costs[sorted(optimum)].sum() <= 6 for optimum in search.optima)
        assert costs[best.selected].sum() <= 6
