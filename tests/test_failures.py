"""Networks that lose sites, gain them, and give some up."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import keyhole as kh
from keyhole.errors import BudgetError, PlanError, SettingsError
from keyhole.pipeline import choose_sites
from keyhole.preparation import prepare
from keyhole.run import Run
from keyhole.selectors import Selection
from keyhole.selectors.failures import Network, failing, harden
from keyhole.selectors.remainder import Covariance
from keyhole.selectors.settled import settled_covariance
from samples import monthly_field, quick, smooth, stops_after
from test_kriging import left_of_all_cells, on_large_grid
from test_selectors import selector


def field(n=200, sites=12, seed=0, channels=1):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 4)) @ rng.normal(size=(4, sites * channels))
    return (values + 0.3 * rng.normal(size=values.shape)).reshape(n, channels, sites)


def network(picks, channels=1):
    parts = prepare(kh.read(field(channels=channels), channels=1), None, seed=0)
    covariance = Covariance.of(parts.development, np.inf, 1e-3, np.random.default_rng(0))
    return Network(covariance, picks), covariance


@pytest.mark.parametrize("channels", [1, 2])
def test_what_a_loss_costs_is_what_the_network_without_it_explains_less(channels):
    """By the formula, and by making the smaller network."""
    whole, covariance = network([0, 3, 5, 8], channels)
    for lost in ([1], [0, 2], [3, 1]):
        rest = Network(covariance, [pick for place, pick in enumerate([0, 3, 5, 8]) if place not in lost])
        loss = whole.losses(np.array([lost]))[0]
        assert loss == pytest.approx(whole.explained - rest.explained, rel=1e-5)


def test_sets_that_fail_are_all_or_enough():
    """Every pair of a few, some of many."""
    assert failing(5, 2, Run()).tolist() == [list(pair) for pair in combinations(range(5), 2)]
    many = failing(80, 3, Run())
    assert many.shape == (1500, 3)
    assert all(len(set(row)) == 3 for row in many.tolist())


def test_hardening_finds_nearly_the_best_of_all_networks():
    """Brute force over all sets of four of twelve sites: the mean error when one fails."""
    parts = prepare(kh.read(field()[:, 0]), None, seed=0)
    found = harden(choose_sites(selector("variance"), parts, 4, Run()), parts.development, 1, Run())
    covariance = Covariance.of(parts.development, np.inf, 1e-3, np.random.default_rng(0))
    sets = failing(4, 1, Run())

    def explained(picks):
        one = Network(covariance, picks)
        return one.explained - one.losses(sets).mean()

    best = max(explained(list(picks)) for picks in combinations(range(12), 4))
    assert explained(found.sites.tolist()) > 0.97 * best
    assert found.notes["left_after"] <= found.notes["left_before"]
    assert len(found.notes["worst"]) == 1


@pytest.mark.parametrize("looks", [0, 2, 9])
def test_hardening_cut_short_is_no_worse_than_its_start(looks):
    """By all cells of a large grid, of which it sees a sample, over the loss of each site, from the definition."""
    data = on_large_grid(110, 220)
    start = selector("greedy").select(data, 4, validation=None, run=Run()).sites
    found = harden(Selection(start), data, 1, stops_after(looks))
    _, notes = settled_covariance(data, start, Run(), "harden")
    left = [
        np.mean([left_of_all_cells(data, notes, np.delete(sites, lost)) for lost in range(4)])
        for sites in (start, found.sites)
    ]
    assert left[1] <= (1 + 1e-6) * left[0]
    assert found.notes["left_after"] <= found.notes["left_before"]


def test_failures_keep_constraints_and_are_checked():
    """Distance, K, and a number that makes sense."""
    plan = kh.select(field()[:, 0], 4, method="qr", reconstructor="ridge", failures=2, constraints={"distance": 2})
    assert np.diff(np.sort(plan.indices)).min() >= 2
    for wrong in (4, -1, 1.5, True):
        with pytest.raises(SettingsError, match="failures="):
            kh.select(field()[:, 0], 4, method="qr", failures=wrong)


def test_the_next_sites_of_a_network():
    """Those that are there stay and come first; the rest is what greedy would have taken next."""
    values = field(300)[:, 0]
    options = {"method": "greedy", "reconstructor": "ridge"}
    first, all_at_once = kh.select(values, 3, **options), kh.select(values, 5, **options)
    more = kh.extend(first, values, 2, **options)
    assert more.indices.tolist() == all_at_once.indices.tolist()
    assert more.sites["fixed"].tolist() == [True, True, True, False, False]


def test_the_sites_missed_least():
    """One by one, each the one without which least squares leaves least; the rest keep their order."""
    values = field(300)[:, 0]
    plan = kh.select(values, 6, method="greedy", reconstructor="ridge")
    fewer = kh.drop(plan, values, 2, reconstructor="ridge")
    assert fewer.k == 4
    assert [site for site in plan.indices.tolist() if site in fewer.indices] == fewer.indices.tolist()
    dropped = fewer.made["notes"]["dropped"]
    x = prepare(kh.read(values), None, 0, calibrating=True).development.packed()[:, 0].astype(float)

    def left(sites):
        rest = x - x[:, sites] @ np.linalg.lstsq(x[:, sites], x, rcond=None)[0]
        return np.square(rest).sum()

    sites = plan.indices.tolist()
    best = min(sites, key=lambda site: left([one for one in sites if one != site]))
    assert dropped[0]["index"] == best
    assert dropped[0]["left"] < dropped[1]["left"]


def test_changes_need_the_same_grid_and_a_number_that_makes_sense():
    """Errors that say what is wrong."""
    plan = quick(smooth(60, 3, 4))
    for change in (kh.extend, kh.drop):
        with pytest.raises(PlanError, match="grid"):
            change(plan, smooth(60, 4, 4), 1)
    for wrong in (0, 3, 1.5):
        with pytest.raises(BudgetError, match="can be dropped"):
            kh.drop(plan, smooth(60, 3, 4), wrong)


def test_changes_work_on_anomalies_as_the_plan_did():
    """The climatology is taken off as it was."""
    plan = quick(kh.read(monthly_field()).anomalies("month"))
    more = kh.extend(plan, monthly_field(), 1, method="qr", reconstructor="ridge")
    assert more.scaling.cycle == "month"
    assert kh.drop(plan, monthly_field(), 1, reconstructor="ridge").scaling.cycle == "month"
