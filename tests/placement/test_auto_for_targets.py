"""Auto beside a target: never worse on validation than the best of its stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.data.target import Target
from keyhole.placement import SELECTORS
from keyhole.placement.scorer import Scorer
from keyhole.placement.target_predictions import predicted_by_kernel, predicted_by_trees

TRAIN = {"steps": 20, "batch_size": 16, "ema_decay": 0.0}
STAGES = ("relevance", "forest", "greedy", "learned")


def told(kind: str, n: int = 160) -> kh.data.Samples:
    """Ten columns of three factors, and a target that is linear in one, made of two, or circles in a plane."""
    rng = np.random.default_rng(3)
    factors = rng.normal(size=(n, 3))
    values = factors @ rng.normal(size=(3, 10)) + 0.3 * rng.normal(size=(n, 10))
    truth = {
        "line": factors[:, 0] + 0.2 * rng.normal(size=n) > 0,
        "product": factors[:, 0] * factors[:, 1] > 0,
        "circle": np.hypot(values[:, 2], values[:, 7]) + 0.1 * rng.normal(size=n),
    }[kind]
    frame = pd.DataFrame(values, columns=[f"c{i}" for i in range(10)])
    return kh.read(frame).with_target(Target.of(truth))


@pytest.mark.parametrize("kind", ["line", "product", "circle"])
def test_no_stage_is_better_on_validation(kind):
    """By the scorer that chose, before the refit and after it."""
    prepared = prepare(told(kind), "random", 0)
    auto, run = SELECTORS.make("auto", {"train": TRAIN}), Run()
    scorer = Scorer(prepared.train, prepared.validation, run, nonlinear=True)
    found = auto.select(prepared.train, 2, validation=prepared.validation, run=run)
    assert tuple(found.notes["scores"]) == STAGES
    assert [row["by"] for row in found.history if row.get("stage") == "search"] == list(STAGES)
    best = min(found.notes["scores"].values())
    refitted = auto.refit(found, prepared.development, run)
    for sites in (found.sites, refitted.sites):
        assert scorer(sites) <= best + 1e-12


def test_a_refit_that_is_worse_on_validation_is_not_taken():
    """The refit sees other samples, which tell of other sites."""
    prepared = prepare(told("line"), "random", 0)
    auto, run = SELECTORS.make("auto", {"train": TRAIN}), Run()
    found = auto.select(prepared.train, 2, validation=prepared.validation, run=run)
    found = replace(found, notes={**found.notes, "chosen": "relevance"})
    others = prepared.development.take(np.arange(len(prepared.development)))
    misled = replace(others, target=Target.of(others.values[:, 0, int(found.sites[0]) - 1]))
    assert auto.refit(found, misled, run).sites.tolist() == found.sites.tolist()


def test_stages_that_do_not_look_at_the_target_go_by_what_existing_sites_leave():
    """The twin of an existing column adds nothing to it."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(120, 4)) * [3, 1, 1, 1]
    values[:, 1] = values[:, 0] + 0.01 * values[:, 1]
    samples = kh.read(values).with_target(Target.of(values[:, 2])).with_constraints({"existing": [0]})
    plan = kh.select(samples, 1, method="auto", settings={"train": TRAIN}, predictor="linear")
    assert plan.indices.tolist() == [0, 2]


@pytest.mark.parametrize("kind", ["line", "circle"])
def test_quick_predictions_are_better_than_none(kind):
    """Of classes probabilities that sum to one, of numbers some in their units."""
    samples = told(kind).as_scaled()
    train, validation = samples.take(np.arange(0, 160, 2)), samples.take(np.arange(1, 160, 2))
    for predict in (predicted_by_trees, predicted_by_kernel):
        found = predict(train, validation, np.arange(10))
        if kind == "line":
            np.testing.assert_allclose(found.sum(axis=1), 1)
            assert (found.argmax(axis=1) == validation.target.values).mean() > 0.8
        else:
            assert np.square(found - validation.target.values).mean() < 0.7 * validation.target.values.var()
