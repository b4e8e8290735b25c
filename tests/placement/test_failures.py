"""Networks that lose sites, gain them, and give some up."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import keyhole as kh
from example_data import monthly_field, quick, smooth, stops_after
from keyhole.core.errors import DataError, InfeasibleError, PlanError, SettingsError
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.models.reconstructors import RECONSTRUCTORS
from keyhole.placement import Selection
from keyhole.placement.failures import Network, failure_sets, harden_against_failures
from keyhole.placement.posterior_covariance import Covariance, fit_localised_covariance
from keyhole.workflow.selection import choose_sites
from large_fields import large_field, unexplained_variance
from quick_selectors import selector


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
    assert failure_sets(5, 2, Run()).tolist() == [list(pair) for pair in combinations(range(5), 2)]
    many = failure_sets(80, 3, Run())
    assert many.shape == (1500, 3)
    assert all(len(set(row)) == 3 for row in many.tolist())


def test_hardening_finds_nearly_the_best_of_all_networks():
    """Brute force over all sets of four of twelve sites: the mean error when one fails."""
    parts = prepare(kh.read(field()[:, 0]), None, seed=0)
    found = harden_against_failures(choose_sites(selector("variance"), parts, 4, Run()), parts.development, 1, Run())
    covariance = Covariance.of(parts.development, np.inf, 1e-3, np.random.default_rng(0))
    sets = failure_sets(4, 1, Run())

    def explained(picks):
        one = Network(covariance, picks)
        return one.explained - one.losses(sets).mean()

    best = max(explained(list(picks)) for picks in combinations(range(12), 4))
    assert explained(found.sites.tolist()) > 0.97 * best
    assert found.notes["unexplained_after"] <= found.notes["unexplained_before"]
    assert len(found.notes["worst"]) == 1


@pytest.mark.parametrize("looks", [0, 2, 9])
def test_hardening_cut_short_is_no_worse_than_its_start(looks):
    """By all cells of a large grid, of which it sees a sample, over the loss of each site, from the definition."""
    data = large_field(110, 220)
    start = selector("greedy").select(data, 4, validation=None, run=Run()).sites
    found = harden_against_failures(Selection(start), data, 1, stops_after(looks))
    _, notes = fit_localised_covariance(data, start, Run(), "harden")
    left = [
        np.mean([unexplained_variance(data, notes, np.delete(sites, lost)) for lost in range(4)])
        for sites in (start, found.sites)
    ]
    assert left[1] <= (1 + 1e-6) * left[0]
    assert found.notes["unexplained_after"] <= found.notes["unexplained_before"]


def test_failures_keep_constraints_and_are_checked():
    """Distance, K, and a number that makes sense."""
    plan = kh.select(field()[:, 0], 4, method="qr", reconstructor="ridge", failures=2, constraints={"min_distance": 2})
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
    assert more.sites["existing"].tolist() == [True, True, True, False, False]


def test_the_sites_missed_least():
    """One by one, each the one without which least squares leaves least; the rest keep their order."""
    values = field(300)[:, 0]
    plan = kh.select(values, 6, method="greedy", reconstructor="ridge")
    fewer = kh.drop(plan, values, 2, reconstructor="ridge")
    assert fewer.k == 4
    assert [site for site in plan.indices.tolist() if site in fewer.indices] == fewer.indices.tolist()
    dropped = fewer.metadata["notes"]["dropped"]
    x = prepare(kh.read(values), None, 0).development.targets[:, 0].astype(float)

    def left(sites):
        rest = x - x[:, sites] @ np.linalg.lstsq(x[:, sites], x, rcond=None)[0]
        return np.square(rest).sum()

    sites = plan.indices.tolist()
    best = min(sites, key=lambda site: left([one for one in sites if one != site]))
    assert dropped[0]["index"] == best
    assert dropped[0]["fvu"] < dropped[1]["fvu"]


def test_changes_need_data_of_the_same_shape_and_a_number_that_makes_sense():
    """Errors that say what is wrong."""
    plan = quick(smooth(60, 3, 4))
    for change in (kh.extend, kh.drop):
        with pytest.raises(PlanError, match="the plan is for data along"):
            change(plan, smooth(60, 4, 4), 1)
    for wrong, words in ((0, "can be dropped"), (3, "can be dropped"), (1.5, "a whole number")):
        with pytest.raises(InfeasibleError, match=words):
            kh.drop(plan, smooth(60, 3, 4), wrong)


def test_changes_work_on_anomalies_as_the_plan_did():
    """The climatology is taken off as it was."""
    plan = quick(kh.read(monthly_field()).anomalies("month"))
    more = kh.extend(plan, monthly_field(), 1, method="qr", reconstructor="ridge")
    assert more.scaling.climatology.kind == "month"
    assert kh.drop(plan, monthly_field(), 1, reconstructor="ridge").scaling.climatology.kind == "month"


def trained(plan, values, reconstructor):
    """The plan with another reconstructor, fitted to its sites."""
    parts = prepare(kh.read(values), None, seed=0)
    fitted = reconstructor.fit(parts.train, plan.indices, validation=parts.validation, run=Run())
    return replace(plan, reconstructor=fitted)


QUICK = {"train": {"steps": 5, "batch_size": 16, "ema_decay": 0.0}, "blocks": 1}
UPON = {"inner": "dense", "linear": "optimal_interpolation", "n_frequencies": 2, **QUICK}
KEPT = {"kernel": {}, "optimal_interpolation": {}, "dense": QUICK, "residual": UPON, "ensemble": {"members": 2, **UPON}}


def chosen(reconstructor):
    """What a reconstructor was asked to be, wherever its state holds it."""
    settings = reconstructor.state()[0]
    for one in settings.get("members", [settings]):
        network = one.get("network_state", one)
        yield one.get("inner"), one.get("linear"), network.get("waves"), network.get("train"), network.get("blocks")


@pytest.mark.parametrize("name", KEPT)
def test_changes_keep_the_reconstructor(name):
    """Its kind, its parts and its settings, unless another is asked for."""
    values = smooth(60, 3, 4)
    plan = trained(quick(values), values, RECONSTRUCTORS[name](**KEPT[name]))
    for one in (kh.drop(plan, values, 1), kh.extend(plan, values, 1, method="qr")):
        assert one.reconstructor.name == one.metadata["reconstructor"] == name
        assert one.reconstructor is not plan.reconstructor
        assert list(chosen(one.reconstructor)) == list(chosen(plan.reconstructor))
        assert one.reconstruct(values[:2].reshape(2, -1)[:, one.indices]).shape == (2, 3, 4)
    assert kh.drop(plan, values, 1, reconstructor="ridge").reconstructor.name == "ridge"
    assert kh.extend(plan, values, 1, method="qr", reconstructor="ridge").reconstructor.name == "ridge"


def test_changes_keep_how_missing_values_were_treated(tmp_path):
    """As the plan's record says; a plan without gaps still refuses them."""
    values = smooth(80, 8)
    values[::5, 2] = np.nan
    kh.select(values, 3, method="qr", reconstructor="ridge", missing="model").save(tmp_path / "a.keyhole")
    plan = kh.load(tmp_path / "a.keyhole")
    assert kh.extend(plan, values, 2, method="qr").k == 5
    fewer = kh.drop(plan, values, 1)
    assert fewer.k == 2
    assert kh.drop(fewer, values, 1).k == 1
    whole = quick(np.nan_to_num(values))
    for change in (partial(kh.extend, method="qr"), kh.drop):
        with pytest.raises(DataError, match="missing"):
            change(whole, values, 1)
        assert change(whole, values, 1, missing="model").k in (2, 4)


def labelled(kind, n=200):
    """Columns a and b make the target, c is nearly a, the others tell nothing."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 6)) * [1, 1, 1, 3, 3, 3], columns=list("abcdef"))
    frame["c"] = frame["a"] + 0.1 * frame["c"]
    level = 2 * frame["a"] + frame["b"]
    return frame.assign(y=level if kind == "number" else np.where(level > 0, "up", "down"))


@pytest.mark.parametrize("kind", ["number", "class"])
def test_plans_with_a_target_are_extended_and_reduced_for_it(kind):
    """The target is read as it was, existing columns stay, and those are dropped that tell least of it."""
    frame = labelled(kind)
    first = kh.select(frame, 1, target="y", method="relevance", predictor="linear")
    more = kh.extend(first, frame, 1, method="relevance")
    assert more.target == "y"
    assert more.predictor.name == "linear"
    assert more.names == [*first.names, "b"]
    assert more.sites["existing"].tolist() == [True, False]
    asked = {"existing": ["d", "b", "e", "a"]}
    many = kh.select(frame, 1, target="y", method="relevance", predictor="linear", constraints=asked)
    fewer = kh.drop(many, frame, 3)
    assert fewer.names == ["b", "a"] or fewer.names == ["b", "c"]
    assert fewer.target == "y"
    assert fewer.predictor.is_class == (kind == "class")
    assert "target_error" in fewer.metrics["test"] or "target_rmse" in fewer.metrics["test"]
    left = [row["fvu"] for row in fewer.metadata["notes"]["dropped"]]
    assert left == sorted(left)
    assert left[-1] < 0.5


def test_changes_of_a_plan_with_a_target_need_the_target():
    """Signals that were read without it are refused."""
    frame = labelled("number")
    plan = kh.select(frame, 2, target="y", method="relevance", predictor="linear")
    for change in (kh.extend, kh.drop):
        with pytest.raises(PlanError, match="with_target"):
            change(plan, kh.read(frame.drop(columns="y")), 1)
        with pytest.raises(DataError, match="no column 'y'"):
            change(plan, frame.drop(columns="y"), 1)


def test_changes_find_columns_by_name():
    """The order of a table's columns makes no difference."""
    frame = labelled("number")
    plan = kh.select(frame, 2, target="y", method="relevance", predictor="linear")
    other = frame[["f", "b", "a", "y", "c", "e", "d"]]
    assert kh.extend(plan, other, 1, method="relevance").names[:2] == plan.names
    assert kh.drop(plan, other, 1).names == kh.drop(plan, frame, 1).names


def test_changes_on_the_command_line_keep_what_the_plan_says(tmp_path, monkeypatch, command):
    """Target, missing values and reconstructor."""
    monkeypatch.chdir(tmp_path)
    frame = labelled("class")
    frame.to_csv("table.csv", index=False)
    options = ("--target", "y", "--method", "relevance", "--predictor", "linear", "--reconstructor", "kernel")
    assert command("select", "table.csv", "-k", 2, *options, "--out", "plan.keyhole").code == 0
    assert command("extend", "plan.keyhole", "table.csv", "-k", 1, "--method", "relevance").code == 0
    assert command("drop", "plan.keyhole", "table.csv", "-k", 1).code == 0
    for name, count in (("extended.keyhole", 3), ("reduced.keyhole", 1)):
        plan = kh.load(name)
        assert (plan.k, plan.target, plan.reconstructor.name) == (count, "y", "kernel")
    frame.drop(columns="y").mask(np.arange(200)[:, None] % 9 == np.arange(6)).to_csv("holes.csv", index=False)
    options = ("--missing", "model", "--method", "qr", "--reconstructor", "ridge", "--out", "holes.keyhole")
    assert command("select", "holes.csv", "-k", 2, *options).code == 0
    assert command("extend", "holes.keyhole", "holes.csv", "-k", 1, "--method", "qr").code == 0
    assert command("drop", "holes.keyhole", "holes.csv", "-k", 1).code == 0
