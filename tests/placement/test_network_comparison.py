"""Comparison of sets of sites by short trainings of a network, where closed forms do not separate them."""

from __future__ import annotations

from time import monotonic
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.metrics import Ratio
from keyhole.placement import SELECTORS
from keyhole.placement.auto import Auto
from keyhole.placement.base import Selection
from keyhole.placement.scorer import Scorer


def bumpy(n: int = 400) -> PreparedSamples:
    """Cells that go up and down with the first two of 24; others are noise, or nearly copies of the first."""
    rng = np.random.default_rng(0)
    told = rng.uniform(-2, 2, (n, 2))
    values = np.sin(3 * told) @ rng.normal(size=(2, 24)) + 0.05 * rng.normal(size=(n, 24))
    values[:, :2], values[:, 2:4] = told, rng.normal(size=(n, 2))
    return prepare(kh.read(values.astype(np.float32)), None, 0)


def sets(*given: list[int]) -> list[NDArray[np.int64]]:
    return [np.array(one, np.int64) for one in given]


def test_the_sites_that_predict_more_are_chosen():
    parts = bumpy()
    errors = Scorer(parts.train, parts.validation, Run()).by_network(sets([2, 3], [0, 1], [0, 2]), Run())
    left = [error.value for error in errors]
    assert left[1] < 0.8 * left[2] < left[0]


def test_without_time_there_is_no_comparison_of_networks():
    parts = bumpy()
    late = Run(deadline=monotonic())
    assert Scorer(parts.train, parts.validation, late).by_network(sets([2, 3], [0, 1]), late) == []


def test_trials_leave_nothing_to_go_on_from(tmp_path):
    """Their steps go by the clock: a second one, or the same after a kill, would find the state of another run."""
    parts = bumpy()
    run = Run(folder=tmp_path, resume=True, save_seconds=0.0)
    assert len(Scorer(parts.train, parts.validation, run).by_network(sets([2, 3], [0, 1]), run)) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("left", "wins"), [([0.02, 0.01], [4, 5]), ([0.01, 0.02], [6, 7]), ([0.9, 0.8], [6, 7]), ([], [6, 7])]
)
def test_auto_takes_the_winner(monkeypatch, left, wins):
    """Whatever the closed form said; what it said stands where there was no race, or networks leave more than it."""
    raced: list[list[int]] = []

    def told(self: Any, found: list[Any], *more: Any) -> Any:
        raced.extend(sites.tolist() for sites in found)
        return [alone(error) for error in left]

    better, worse = sets([6, 7], [4, 5])
    monkeypatch.setattr("keyhole.placement.auto.Scorer.by_network", told)
    monkeypatch.setattr("keyhole.placement.auto.Greedy.select", lambda *parts, **more: Selection(np.array([2, 3])))
    monkeypatch.setattr(
        "keyhole.placement.auto.KernelExchange.improve", lambda *p: Selection(better, others=[worse, better])
    )
    monkeypatch.setattr("keyhole.placement.auto.Scorer.error", judged)
    parts = bumpy()
    found = Auto(stages=("greedy", "kernel_exchange")).select(parts.train, 2, validation=parts.validation, run=Run())
    assert raced == [[6, 7], [4, 5]]
    assert found.sites.tolist() == wins
    assert found.notes["chosen"] == "kernel_exchange"
    assert [row["error"] for row in found.history if row["stage"] == "compare by network"] == left


def judged(self: Any, sites: NDArray[np.int64]) -> Ratio:
    """Say that signals bend, and that the last cells are the best."""
    self.is_nonlinear = True
    return alone(1 / float(sites.sum()))


def alone(error: float) -> Ratio:
    """An error of one sample, of which no standard error is known."""
    return Ratio(np.array([error]), np.ones(1))


def test_kernel_exchange_reports_which_other_ends_were_nearly_as_good():
    """None of them twice, none worse by much, none better."""
    parts = bumpy()
    found = SELECTORS["kernel_exchange"]().select(parts.train, 2, validation=None, run=Run())
    ends = [frozenset(sites.tolist()) for sites in (found.sites, *found.others)]
    assert len(set(ends)) == len(ends) <= 4
    assert all(len(end) == 2 for end in ends)
