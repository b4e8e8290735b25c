"""Plans with a target: predictions, scores, files and comparison."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import keyhole as kh
from example_data import smooth
from keyhole import Plan
from keyhole.core.run import Run
from keyhole.core.storage import read_container, write_container
from keyhole.data.preparation import prepare
from keyhole.data.splits import Split
from keyhole.errors import DataError, PlanError, SettingsError
from keyhole.models.predictors import PREDICTORS, Linear
from keyhole.placement import SELECTORS
from keyhole.report.page_text import result
from keyhole.report.report_data import ReportData
from keyhole.workflow.comparison import compare
from keyhole.workflow.selection import choose_sites
from quick_selectors import selector


def table(n: int = 120) -> pd.DataFrame:
    """Six columns, a number and a word that three of them tell."""
    values = np.random.default_rng(3).normal(size=(n, 6))
    level = 100 + 5 * (values[:, 3] - 2 * values[:, 0] + 0.5 * values[:, 5])
    words = np.array(["low", "high"])[(level > 100).astype(int)]
    return pd.DataFrame(values, columns=list("abcdef")).assign(level=level, word=words)


def plan_of(kind: str, **options) -> Plan:
    column = {"number": "level", "class": "word"}[kind]
    other = {"number": "word", "class": "level"}[kind]
    options = {"method": "variance", "predictor": "linear", "refit": False} | options
    return kh.select(table().drop(columns=other), 6, target=column, **options)


def test_a_plan_predicts_names_or_numbers():
    """From labelled readings in any order, or bare ones in rank order."""
    frame = table()
    for kind, column in (("class", "word"), ("number", "level")):
        plan = plan_of(kind)
        told_now = plan.predict(frame[list("fedcba")])
        assert told_now.shape == (len(frame),)
        np.testing.assert_array_equal(told_now, plan.predict(frame[plan.names].to_numpy()))
        if kind == "class":
            assert (told_now == frame[column]).mean() > 0.9
        else:
            np.testing.assert_allclose(told_now, frame[column], atol=0.1)
        assert plan.target == column
        assert plan.reconstruct(frame[plan.names]).shape == (len(frame), 6)


def test_a_plan_on_anomalies_predicts_with_time():
    """Without it the readings mean nothing."""
    months = pd.date_range("2000-01-01", periods=60, freq="MS")
    season = 10 * np.cos(2 * np.pi * np.arange(60) / 12)
    values = smooth(60, 6)
    frame = pd.DataFrame(values + season[:, None], index=months, columns=list("abcdef")).assign(y=values[:, 2])
    signals = kh.read(frame, target="y").anomalies("month")
    plan = kh.select(signals, 3, method="qr", predictor="linear")
    readings = frame[plan.names].tail(3)
    np.testing.assert_allclose(plan.predict(readings), frame["y"].tail(3), atol=0.8)
    np.testing.assert_array_equal(plan.predict(readings.to_numpy(), time=months[-3:]), plan.predict(readings))
    with pytest.raises(PlanError, match="give the time of each reading"):
        plan.predict(readings.to_numpy())


def test_the_scores_of_the_target_stand_beside_those_of_the_samples():
    """On both parts, and they are those of what the plan tells."""
    plan, frame = plan_of("number"), table()
    assert {"mse", "rmse", "fvu", "target_mse", "target_rmse", "target_fvu"} <= set(plan.metrics["test"])
    assert set(plan.metrics["validation"]) == set(plan.metrics["test"])
    parts = prepare(kh.read(frame.drop(columns="word"), target="level"), None, 0)
    test = frame.iloc[parts.split.test]
    errors = plan.predict(test[plan.names]) - test["level"]
    assert plan.metrics["test"]["target_mse"] == pytest.approx(float(np.square(errors).mean()), rel=1e-6, abs=0)
    spread = np.square(test["level"] - frame["level"].iloc[parts.split.development].mean()).mean()
    assert plan.metrics["test"]["target_fvu"] == pytest.approx(
        float(np.square(errors).mean() / spread), rel=1e-6, abs=0
    )
    assert {"target_error", "target_log_loss"} <= set(plan_of("class").metrics["test"])


def test_gains_are_those_of_the_target():
    """Three columns tell the number, the other three nothing, whatever they rebuild."""
    plan = plan_of("number")
    gain = dict(zip(plan.names, plan.gain, strict=True))
    assert sum(gain.values()) == pytest.approx(1, abs=0.01)
    assert all(abs(gain[name]) < 0.1 for name in "bce")
    assert gain["a"] > 0.5


@pytest.mark.parametrize("kind", ["class", "number"])
@pytest.mark.parametrize("predictor", PREDICTORS)
def test_a_loaded_plan_predicts_the_very_same(tmp_path, kind, predictor):
    """And the file is the same when it is saved again."""
    plan = plan_of(kind, predictor=predictor, time_limit=0.3)
    plan.save(tmp_path / "a.keyhole")
    again = kh.load(tmp_path / "a.keyhole")
    readings = table()[plan.names].head(20)
    np.testing.assert_array_equal(again.predict(readings), plan.predict(readings))
    assert (again.target, again.metrics, again.metadata) == (plan.target, plan.metrics, plan.metadata)
    assert again.metadata["target"] == {"name": plan.target, "kind": kind}
    assert again.metadata["predictor"] == predictor
    again.save(tmp_path / "b.keyhole")
    assert (tmp_path / "b.keyhole").read_bytes() == (tmp_path / "a.keyhole").read_bytes()


def test_a_plan_without_a_target_is_saved_as_before_and_predicts_nothing(array_plan, tmp_path):
    """Files of older versions have no such part either."""
    array_plan.save(tmp_path / "a.keyhole")
    header, arrays = read_container(tmp_path / "a.keyhole", "plan")
    assert "predictor" not in header
    assert not any(name.startswith("predictor.") for name in arrays)
    plan = kh.load(tmp_path / "a.keyhole")
    assert plan.target is None
    with pytest.raises(PlanError, match=r"no target to predict; make one with select\(..., target=...\) or --target"):
        plan.predict([1.0, 2.0, 3.0])


@pytest.mark.parametrize("change", [{"name": "oracle"}, {"settings": {}}, {"settings": 5}])
def test_a_damaged_predictor_is_refused(tmp_path, change):
    """With the file's name."""
    path = tmp_path / "a.keyhole"
    plan_of("class").save(path)
    header, arrays = read_container(path, "plan")
    header["predictor"] |= change
    write_container(path, header, arrays)
    with pytest.raises(PlanError, match=r"a.keyhole: not a plan that this Keyhole understands"):
        kh.load(path)


def test_no_time_goes_to_reconstruction_unless_it_is_asked_for(monkeypatch):
    """Ridge by default, without a look at a network; another by name."""
    assert plan_of("class", reconstructor="residual", time_limit=0.3).metadata["reconstructor"] == "residual"
    monkeypatch.setattr("keyhole.workflow.selection.fit_best", None)
    assert plan_of("class").metadata["reconstructor"] == "ridge"


def test_a_closed_form_is_fitted_once_more_on_all_but_test():
    """The plan's weights are those of train and validation together."""
    plan = plan_of("number")
    parts = prepare(kh.read(table().drop(columns="word"), target="level"), None, 0)
    both = Linear().fit(parts.development, plan.indices, validation=parts.validation, run=Run())
    np.testing.assert_array_equal(plan.predictor.weights, both.weights)


def test_four_samples_are_enough_to_run():
    """No use, but no crash."""
    frame = pd.DataFrame(smooth(4, 6)).assign(y=["a", "b", "a", "b"])
    split = Split.given([0, 1], [3], [2])
    assert kh.select(frame, 2, target="y", method="qr", split=split, time_limit=0.5).k == 2


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"target": "nope"}, DataError, "no column 'nope'; there are a, b, c, d, e"),
        ({"target": "level", "predictor": "oracle"}, SettingsError, "'oracle' is not known; there are auto, linear"),
        ({"predictor": "linear"}, SettingsError, "predictor 'linear' requires a target"),
    ],
)
def test_wrong_questions_are_refused_before_the_work(options, error, says):
    """Each by its own name."""
    frame = table().drop(columns="word")
    for ask in (lambda: kh.select(frame, 2, method="qr", **options), lambda: compare(frame, 2, ["qr"], **options)):
        with pytest.raises(error, match=says):
            ask()


def test_a_target_that_the_training_part_does_not_vary_is_refused():
    """Whatever the other parts do."""
    frame = pd.DataFrame(smooth(12, 3)).assign(y=["a"] * 8 + ["b"] * 4)
    with pytest.raises(DataError, match="target 'y': it never varies in the training part"):
        kh.select(frame, 2, target="y", method="qr", split=Split.given(range(6), [10, 11], [6, 7, 8, 9]))


def test_methods_are_ranked_by_their_score_of_the_target():
    """The most variable columns rebuild best here and tell nothing."""
    frame = table()[[*"abcdef", "level"]] * ([1, 9, 9, 1, 9, 1, 1])
    samples = kh.read(frame, target="level").with_weights("none")
    found = compare(samples, 3, ["variance", "random"], predictor="linear", seed=1)
    by_name = {entry.method: entry.plan.metrics["test"] for entry in found.entries}
    assert by_name["variance"]["fvu"] < by_name["random"]["fvu"]
    assert by_name["variance"]["target_fvu"] > by_name["random"]["target_fvu"]
    assert [entry.method for entry in found.entries] == ["random", "variance"]
    assert found.choice.method == "random"
    assert found.rows()[0]["test_target_rmse"] < found.rows()[1]["test_target_rmse"]
    assert "validation_target_fvu" in found.rows()[0]


@pytest.mark.parametrize(
    ("kind", "says"),
    [("class", "The misclassification rate of word on test is "), ("number", "The test RMSE of level is ")],
)
def test_the_report_says_how_well_the_target_is_predicted(kind, says):
    """In the sentence that gives the result."""
    column, other = ("word", "level") if kind == "class" else ("level", "word")
    found = compare(table().drop(columns=other), 3, ["qr"], target=column, predictor="linear")
    assert says in result(ReportData.of(found))


QUICK = {"steps": 20, "batch_size": 16, "ema_decay": 0.0}


def xor(n=250, seed=0):
    """Two columns that tell a class together and neither alone, among ten that tell nothing."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 12))
    return pd.DataFrame(values, columns=[f"c{i}" for i in range(12)]).assign(y=(values[:, 3] * values[:, 8] > 0))


def test_a_forest_sees_what_no_line_does():
    """And auto takes its word for it."""
    for method in ("forest", "auto"):
        plan = kh.select(xor(), 2, target="y", method=method, settings={} if method == "forest" else {"train": QUICK})
        assert sorted(plan.indices.tolist()) == [3, 8]


def test_relevance_is_forward_selection():
    """The columns that a linear target is made of, the stronger first; twice one adds nothing."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 8))
    values[:, 6] = 2 * values[:, 2]
    frame = pd.DataFrame(values, columns=[f"c{i}" for i in range(8)])
    frame["y"] = 3 * values[:, 2] - values[:, 5] + 0.1 * rng.normal(size=300)
    plan = kh.select(frame, 2, target="y", method="relevance", predictor="linear")
    assert plan.indices.tolist() in ([2, 5], [6, 5])


@pytest.mark.parametrize("method", ["relevance", "forest"])
def test_without_a_target_they_say_so(method):
    with pytest.raises(SettingsError, match="there is none"):
        kh.select(smooth(30, 6), 2, method=method)


def told_twice(n=250, seed=0):
    """A number that c0 and c1 make; c2 is nearly c0 again, c3 to c5 vary most and tell nothing."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 6)) * np.array([1, 1, 1, 3, 3, 3])
    values[:, 2] = values[:, 0] + 0.1 * values[:, 2]
    frame = pd.DataFrame(values, columns=[f"c{i}" for i in range(6)])
    return frame.assign(y=2 * values[:, 0] + values[:, 1] + 0.1 * rng.normal(size=n))


@pytest.mark.parametrize("name", SELECTORS)
def test_existing_sites_are_kept_beside_a_target(name):
    """Whoever selects: they come first, are flagged, and K more are chosen."""
    frame = told_twice(100)
    parts = prepare(kh.read(frame, target="y").with_constraints({"existing": ["c4", "c2"]}), None, 0)
    chosen = selector(name)
    if chosen.incompatibility(parts.samples):
        pytest.skip("these signals are refused, with a reason")
    sites = choose_sites(chosen, parts, 2, Run()).sites.tolist()
    assert sites[:2] == [4, 2]
    assert len(set(sites)) == 4


@pytest.mark.parametrize(
    ("method", "groups"),
    [(method, None) for method in ("relevance", "forest", "learned", "auto")]
    + [(method, [0, 1, 2, 3, 4, 4]) for method in ("relevance", "forest", "learned")],
)
def test_what_existing_sites_predict_of_a_target_is_not_chosen_for_again(method, groups):
    """The best alone is c0, or c2 which is nearly the same; beside c2 it is c1, in groups too."""
    train = {"train": {"steps": 100, "batch_size": 32, "ema_decay": 0.0}}
    settings = train if method in ("learned", "auto") else {}
    options = {"target": "y", "method": method, "predictor": "linear", "settings": settings}
    free = kh.select(told_twice(), 1, **options)
    assert free.names[0] in ("c0", "c2")
    plan = kh.select(told_twice(), 1, constraints={"existing": ["c2"], "groups": groups}, **options)
    assert plan.sites["existing"].tolist() == [True, False]
    assert plan.names == ["c2", "c1"]


def test_a_forest_sees_what_a_column_adds_to_an_existing_one():
    """Neither tells anything alone, so what the first tells linearly must not be all that counts."""
    plan = kh.select(xor(), 1, target="y", method="forest", constraints={"existing": ["c3"]})
    assert plan.names == ["c3", "c8"]


def test_methods_that_reconstruct_take_off_what_existing_sites_explain():
    """Beside a target as without one."""
    samples, asked = kh.read(told_twice(), target="y").with_weights("none"), {"existing": ["c3", "c5"]}
    plain = kh.select(samples.with_target(None), 2, method="greedy", reconstructor="ridge", constraints=asked)
    beside = kh.select(samples, 2, method="greedy", constraints=asked, predictor="linear")
    assert beside.names == plain.names


def test_failures_are_weighed_beside_existing_sites_of_a_target():
    """They are kept, and none is chosen twice."""
    asked = {"existing": ["c3", "c4"]}
    plan = kh.select(told_twice(), 2, target="y", method="relevance", predictor="linear", failures=1, constraints=asked)
    assert plan.names[:2] == ["c3", "c4"]
    assert len(set(plan.names)) == 4


@pytest.mark.parametrize("by", ["curve", "compare"])
def test_curves_and_comparisons_keep_existing_sites_of_a_target(by):
    signals = kh.read(told_twice(), target="y").with_constraints({"existing": ["c2"]})
    if by == "curve":
        found = kh.curve(signals, [1, 2], ["relevance"], predictor="linear")
        assert [row.sites.tolist()[:2] for row in found.rows] == [[2, 1], [2, 1]]
    else:
        found = compare(signals, 1, ["relevance", "qr"], predictor="linear")
        assert {entry.plan.names[0] for entry in found.entries} == {"c2"}
