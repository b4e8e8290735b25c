"""Columns that are excluded unless named: duplicates, and those that number the rows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import keyhole as kh
from example_data import smooth
from keyhole.core.errors import DataError, InfeasibleError, KeyholeWarning
from keyhole.sklearn import KeyholeClassifierSelector, KeyholeSelector
from keyhole.workflow.comparison import compare

QUICK = {"method": "greedy", "reconstructor": "ridge"}


def table(n=60) -> pd.DataFrame:
    """Four columns of three modes; ``twin`` is ``b`` again."""
    frame = pd.DataFrame(smooth(n, 4), columns=list("abcd"))
    return frame.assign(twin=frame["b"])


def findings(plan):
    return {row["column"]: row["finding"] for row in plan.metadata["notes"]["columns"]}


@pytest.mark.parametrize("method", ["random", "variance", "greedy", "qr", "exchange"])
def test_a_copy_of_a_column_is_not_chosen(method):
    """It is pointed out by a warning and in the record, and still reconstructed."""
    with pytest.warns(KeyholeWarning, match="'twin' has the same values as 'b'"):
        plan = kh.select(table(), 4, method=method, reconstructor="ridge")
    assert sorted(plan.names) == list("abcd")
    assert "same values as 'b'" in findings(plan)["twin"]
    reconstructed = plan.reconstruct(table()[plan.names])
    np.testing.assert_allclose(reconstructed["twin"], reconstructed["b"], atol=1e-3)


def test_a_copy_is_chosen_where_it_is_asked_for():
    """Named as existing; the column that it copies is then the copy."""
    with pytest.warns(KeyholeWarning, match="'b' has the same values as 'twin'"):
        plan = kh.select(table(), 3, constraints={"existing": ["twin"]}, **QUICK)
    assert plan.names[0] == "twin"
    assert "b" not in plan.names
    plan = kh.select(table(), 2, constraints={"existing": ["twin", "b"]}, **QUICK)
    assert plan.names[:2] == ["twin", "b"]


def test_the_cheaper_of_two_copies_is_kept():
    costs = np.array([1.0, 3.0, 1.0, 1.0, 1.0])
    with pytest.warns(KeyholeWarning, match="'b' has the same values as 'twin'"):
        plan = kh.select(table(), constraints={"costs": costs, "cost_limit": 4.0}, **QUICK)
    assert sorted(plan.names) == ["a", "c", "d", "twin"]


def test_more_than_the_distinct_columns_cannot_be_had():
    with pytest.warns(KeyholeWarning), pytest.raises(InfeasibleError, match="4"):
        kh.select(table(), 5, **QUICK)


@pytest.mark.parametrize("numbers", [np.arange(60), np.arange(60, 0, -1), np.delete(np.arange(1, 76), slice(20, 35))])
def test_a_column_that_numbers_the_rows_has_no_part(numbers):
    """Neither chosen nor reconstructed, for it would outweigh all others."""
    frame = table().drop(columns="twin").assign(number=numbers)
    with pytest.warns(KeyholeWarning, match="'number' numbers the rows"):
        plan = kh.select(frame, 3, **QUICK)
    assert "number" not in plan.names
    without = kh.select(frame.drop(columns="number"), 3, **QUICK)
    assert plan.names == without.names
    assert plan.metrics["test"]["rmse"] == pytest.approx(without.metrics["test"]["rmse"])
    assert list(plan.reconstruct(frame[plan.names]).columns) == list("abcd")
    asked = kh.select(frame, 1, constraints={"existing": ["number"]}, **QUICK)
    assert asked.names[0] == "number"
    assert "columns" not in asked.metadata["notes"]


def test_whole_numbers_that_only_grow_are_pointed_out():
    """They may name the rows, or be a measurement that the table is sorted by."""
    frame = table().drop(columns="twin").assign(year=np.cumsum(np.arange(60) % 7 + 3))
    with pytest.warns(KeyholeWarning, match="'year'.*may number the rows"):
        plan = kh.select(frame, 5, **QUICK)
    assert "year" in plan.names


def test_measurements_are_left_alone():
    """Floats that are all different, also sorted ones; whole numbers that repeat or are in no order; constants."""
    rng = np.random.default_rng(0)
    frame = (
        table()
        .drop(columns="twin")
        .assign(
            sorted=np.sort(rng.normal(size=60)),
            count=rng.permutation(60),
            grade=np.arange(60) // 2,
            multiple=lambda one: 2 * one["a"],
            zero=0.0,
            none=0.0,
        )
    )
    plan = kh.select(frame, 5, **QUICK)
    assert "columns" not in plan.metadata["notes"]
    short = pd.DataFrame(smooth(6, 3), columns=list("abc")).assign(dose=np.arange(6))
    assert "columns" not in kh.select(short, 2, **QUICK).metadata["notes"]


def test_fields_and_arrays_are_no_tables():
    """Cells of a grid may be alike."""
    values = smooth(40, 6)
    values[:, 3] = values[:, 2]
    values[:, 5] = np.arange(40)
    assert "columns" not in kh.select(values, 5, **QUICK).metadata["notes"]


def test_a_table_of_row_numbers_alone_is_refused():
    with pytest.warns(KeyholeWarning), pytest.raises(DataError, match="number the rows"):
        kh.select(pd.DataFrame({"a": np.arange(30), "b": np.arange(30)}), 1, **QUICK)


def test_comparisons_curves_and_changes_screen_too():
    with pytest.warns(KeyholeWarning):
        plan = kh.select(table(), 2, **QUICK)
    with pytest.warns(KeyholeWarning):
        assert "twin" not in compare(table(), 4, ["random"]).entries[0].plan.names
    with pytest.warns(KeyholeWarning):
        assert 4 not in kh.curve(table(), [4], ["random"]).rows[0].sites
    with pytest.warns(KeyholeWarning):
        assert "twin" not in kh.extend(plan, table(), 2, method="random").names
    with pytest.warns(KeyholeWarning):
        assert kh.drop(plan, table(), 1).k == 1


def test_the_command_line_says_so(tmp_path, monkeypatch, command):
    """A note to people, and a record for machines; no traceback and no place in the code."""
    monkeypatch.chdir(tmp_path)
    table().assign(id=np.arange(1, 61)).to_csv("table.csv", index=False)
    done = command("select", "table.csv", "-k", 3, "--method", "qr", "--reconstructor", "ridge")
    assert done.code == 0, done.err
    assert "warning: column 'id' numbers the rows" in done.err
    assert ".py" not in done.err
    assert "'twin' has the same values as 'b'" in " ".join(done.out.split())
    shown = json.loads(command("info", "plan.keyhole", "--json").out)
    assert {row["column"] for row in shown["metadata"]["notes"]["columns"]} == {"id", "twin"}
    asked = ("--method", "qr", "--reconstructor", "ridge", "--existing", "twin", "--existing", "id")
    done = command("select", "table.csv", "-k", 2, *asked)
    assert "'b' has the same values as 'twin'" in done.err
    assert kh.load("plan.keyhole").names[:2] == ["twin", "id"]


def people(n=80) -> pd.DataFrame:
    """A table as people have them: names, dates, a number of each row, and columns that say the same."""
    rng = np.random.default_rng(0)
    kind, size = rng.integers(2, size=n), rng.normal(size=n)
    return pd.DataFrame(
        {
            "name": [f"person {place}" for place in rng.permutation(n)],
            "born": pd.date_range("1990-01-01", periods=n, freq="7D")[rng.permutation(n)],
            "seen": [f"2020-01-{day:02d}" for day in rng.integers(1, 9, size=n)],
            "row": np.arange(n),
            "smoker": np.where(kind == 1, "yes", "no"),
            "smokes": kind == 1,
            "size": size,
            "weight": 3 * size + rng.normal(size=n),
            "height": size + rng.normal(size=n),
        }
    )


SAID = {"name": "names the rows", "row": "numbers the rows", "smokes": "'smoker'"}


@pytest.mark.parametrize("frames", ["pandas", "polars"])
def test_estimators_leave_out_names_numbers_and_copies(frames):
    """They are pointed out and not chosen; after the encoding a copy is a copy. Dates are numbers of days."""
    frame = people()
    if frames == "polars":
        frame = pytest.importorskip("polars").from_pandas(frame)
    selector = KeyholeSelector(6, random_state=0, **QUICK)
    with pytest.warns(KeyholeWarning, match="name") as seen:
        selector.fit(frame)
    assert len(seen) == 1
    assert selector.get_feature_names_out().tolist() == ["born", "seen", "smoker", "size", "weight", "height"]
    found = findings(selector.plan_)
    assert {name: words in found[name] for name, words in SAID.items()} == dict.fromkeys(SAID, True)
    assert set(found) == set(SAID)
    assert selector.transform(frame).shape == (80, 6)
    assert np.isfinite(selector.score(frame))
    with pytest.raises(ValueError, match="n_features_to_select=7"), pytest.warns(KeyholeWarning):
        KeyholeSelector(7, **QUICK).fit(frame)


def test_estimators_take_what_must_be_selected():
    """Named in must_select, they are chosen, and no more is said of them."""
    frame, musts = people(), ["name", "row", "smokes"]
    with pytest.warns(KeyholeWarning) as seen:
        selector = KeyholeSelector(4, must_select=musts, random_state=0, **QUICK).fit(frame)
    assert selector.support_[[frame.columns.get_loc(name) for name in musts]].all()
    assert selector.support_.sum() == 4
    assert not any(f"column {name!r} n" in str(seen[0].message) for name in musts)
    assert "'smoker' has the same values as 'smokes'" in str(seen[0].message)


def test_names_do_not_win_where_a_class_is_predicted():
    """Each row has one of its own, so a forest or a line could know every class by heart."""
    frame = people()
    y = np.where(frame["size"] > 0, "tall", "short")
    for method in ("relevance", "forest"):
        told = KeyholeClassifierSelector(1, method=method, predictor="linear", random_state=0)
        with pytest.warns(KeyholeWarning):
            told.fit(frame, y)
        assert told.get_feature_names_out().tolist() == ["size"]
        assert told.predict(frame).shape == (80,)


def test_costs_groups_and_stability_with_columns_left_out():
    frame = people()
    with pytest.warns(KeyholeWarning):
        paid = KeyholeSelector(costs=np.ones(9), cost_limit=2, random_state=0, **QUICK).fit(frame)
    assert paid.support_.sum() == 2
    with pytest.warns(KeyholeWarning):
        steady = KeyholeSelector(2, stability=3, random_state=0, **QUICK).fit(frame)
    assert steady.stability_[[0, 3]].max() == 0
    assert steady.stability_.sum() == pytest.approx(2)


def test_words_that_repeat_stay():
    """A few that occur once do no harm."""
    rng = np.random.default_rng(0)
    words = np.array(["a", "b", "c"])[rng.integers(3, size=40)].astype(object)
    words[:5] = ["v", "w", "x", "y", "z"]
    frame = pd.DataFrame({"word": words, "year": ["2001", "2002"] * 20, "size": rng.normal(size=40)})
    assert KeyholeSelector(3, **QUICK).fit(frame).support_.all()


def test_a_table_without_anything_to_choose_is_refused():
    frame = pd.DataFrame({"name": [f"n{place}" for place in range(20)]})
    with pytest.raises(ValueError, match="no column is left"):
        KeyholeSelector(1, **QUICK).fit(frame)
