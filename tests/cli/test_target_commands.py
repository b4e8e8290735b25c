"""Targets on the command line: select, predict, compare, info, and what is said of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import keyhole as kh
from example_data import smooth

QUICK = ("--method", "qr", "--predictor", "linear")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a table whose word and level three modes tell."""
    monkeypatch.chdir(tmp_path)
    values = smooth(80, 6)
    words = np.where(values[:, 1] > 0, "up", "down")
    frame = pd.DataFrame(values, columns=list("abcdef"))
    frame.assign(level=50 + values[:, 4]).to_csv("numbers.csv", index=False)
    frame.assign(word=words).to_csv("words.csv", index=False)
    frame.assign(word="same").to_csv("same.csv", index=False)
    frame.assign(code=np.where(values[:, 1] > 0, 1.0, 0.0)).to_csv("codes.csv", index=False)
    np.save("plain.npy", values)
    return tmp_path


def made(command, source: str, column: str) -> kh.Plan:
    done = command("select", source, "--target", column, "-k", 3, *QUICK)
    assert done.code == 0, done.err
    return kh.load("plan.keyhole")


@pytest.mark.parametrize(
    ("source", "column", "says"),
    [
        ("words.csv", "word", ["word: error rate", "target word, one of 2 classes, predicted by linear"]),
        ("numbers.csv", "level", ["level: RMSE", "target level, a number, predicted by linear"]),
    ],
)
def test_select_and_info_show_sites_and_the_error_of_the_target(folder, command, source, column, says):
    """To people."""
    done = command("select", source, "--target", column, "-k", 3, *QUICK)
    assert done.code == 0, done.err
    for shown in (done.out, command("info", "plan.keyhole").out):
        text = " ".join(shown.split())
        assert "test: " in text
        for words in says:
            assert words in text


def test_select_reports_the_target_as_json(folder, command):
    """The same as info does."""
    done = command("select", "words.csv", "--target", "word", "-k", 3, *QUICK, "--json")
    told = json.loads(done.out)
    assert told["target"] == {"name": "word", "classes": ["down", "up"]}
    assert told["metadata"]["target"] == {"name": "word", "kind": "class"}
    assert told["metrics"]["test"]["target_error"] < 0.3
    assert json.loads(command("info", "plan.keyhole", "--json").out) == told


@pytest.mark.parametrize(("source", "column"), [("words.csv", "word"), ("numbers.csv", "level")])
def test_predict_writes_what_the_plan_predicts(folder, command, source, column):
    """Sites by name in any order; the time is kept where there is one."""
    plan, frame = made(command, source, column), pd.read_csv(source)
    readings = frame[plan.names[::-1]].head(4)
    readings.assign(time="2020-01-01").to_csv("readings.csv", index=False)
    done = command("predict", "plan.keyhole", "readings.csv", "--out", "out.csv")
    assert (done.code, done.out) == (0, ""), done.err
    assert "4 samples predicted: out.csv" in done.err
    out = pd.read_csv("out.csv")
    expected = plan.predict(readings)
    if column == "word":
        assert list(out.columns) == ["time", "word", "word probability"]
        assert list(out["word"]) == list(expected)
        assert out["word probability"].between(0.5, 1).all()
    else:
        assert list(out.columns) == ["time", "level"]
        np.testing.assert_allclose(out["level"], expected)


def test_predict_warns_of_readings_that_no_site_ever_showed(folder, command):
    plan = made(command, "numbers.csv", "level")
    pd.DataFrame([[999.0] * plan.k], columns=plan.names).to_csv("odd.csv", index=False)
    done = command("predict", "plan.keyhole", "odd.csv")
    assert done.code == 0
    assert "keyhole: warning: readings: site" in done.err
    assert "dropped" in command("predict", "plan.keyhole", "odd.csv", "--outliers", "drop").err


def test_predict_shows_a_table_or_json(folder, command):
    """On standard output, where no file is asked for."""
    plan = made(command, "words.csv", "word")
    np.save("readings.npy", pd.read_csv("words.csv")[plan.names].head(2).to_numpy())
    lines = command("predict", "plan.keyhole", "readings.npy").out.splitlines()
    assert lines[0].split() == ["word", "word", "probability"]
    assert len(lines) == 3
    rows = json.loads(command("predict", "plan.keyhole", "readings.npy", "--json").out)
    assert [row["word"] for row in rows] == [line.split()[0] for line in lines[1:]]


def test_compare_is_sorted_by_the_error_of_the_target(folder, command):
    """With the error in a column of its own."""
    options = ("-k", 2, "--methods", "random,qr,variance", "--predictor", "linear")
    rows = json.loads(command("compare", "numbers.csv", "--target", "level", *options, "--json").out)
    errors = [row["test_target_mse"] for row in rows]
    assert errors == sorted(errors)
    assert len(rows) == 3
    text = command("compare", "words.csv", "--target", "word", *options).out
    assert "to predict word" in text
    assert "error" in text


def test_labels_of_a_data_set(folder, command):
    """By the word labels."""
    done = command("select", "digits", "--target", "labels", "-k", 8, *QUICK, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["target"]["classes"] == list("0123456789")
    assert told["metrics"]["test"]["target_error"] < 0.6


@pytest.mark.parametrize(
    ("kind", "classes"), [(None, ["0", "1"]), ("auto", ["0", "1"]), ("class", ["0", "1"]), ("number", [])]
)
def test_the_kind_of_the_target_is_guessed_or_given(folder, command, kind, classes):
    """Of whole numbers that may be either, in select and in compare."""
    options = ("codes.csv", "--target", "code", "-k", 2, "--predictor", "linear", "--json")
    options += () if kind is None else ("--target-kind", kind)
    selected = command("select", *options, "--method", "qr")
    assert selected.code == 0, selected.err
    assert json.loads(selected.out)["target"]["classes"] == classes
    compared = command("compare", *options, "--methods", "qr")
    assert compared.code == 0, compared.err
    assert ("test_target_error" in json.loads(compared.out)[0]) == bool(classes)


WRONG = {
    "unknown kind": (
        ("select", "words.csv", "--target", "word", "--target-kind", "colour", "-k", 2), 2, "auto, class or number"),
    "compare unknown kind": (
        ("compare", "words.csv", "--target", "word", "--target-kind", "colour", "-k", 2), 2, "auto, class or number"),
    "kind of no target": (("select", "plain.npy", "--target-kind", "class", "-k", 2), 2, "requires --target"),
    "a number of words": (
        ("select", "words.csv", "--target", "word", "--target-kind", "number", "-k", 2), 1, "'word': not numbers"),
    "labels as numbers": (
        ("select", "digits", "--target", "labels", "--target-kind", "number", "-k", 2), 2, "of digits are classes"),
    "row too long": (("select", "long.csv", "--target", "word", "-k", 2), 1, "long.csv: cannot be read as CSV (line 3"),
    "no such column": (("select", "words.csv", "--target", "mood", "-k", 2), 1, "no column 'mood'; there are a, b, c"),
    "constant target": (("select", "same.csv", "--target", "word", "-k", 2), 1, "target 'word': it is constant"),
    "text among numbers": (("select", "mixed.csv", "-k", 2), 1, "mixed.csv: column 'a': '?' stands among numbers"),
    "target of an array": (("select", "plain.npy", "--target", "a", "-k", 2), 1, "target does not apply to .npy"),
    "labels of none": (("select", "sst", "--target", "labels", "-k", 2), 1, "data set 'sst' has no labels"),
    "another target of a data set": (("select", "digits", "--target", "digit", "-k", 2), 2, "'labels'"),
    "unknown predictor": (
        ("select", "words.csv", "--target", "word", "--predictor", "oracle", "-k", 2), 2, "there are auto, linear"),
    "predictor without target": (("select", "plain.npy", "--predictor", "linear", "-k", 2), 2, "requires a target"),
    "compare no such column": (("compare", "words.csv", "--target", "mood", "-k", 2), 1, "no column 'mood'"),
    "plan without target": (("predict", "bare.keyhole", "three.npy"), 1, "this plan has no target to predict"),
    "plan that is missing": (("predict", "none.keyhole", "three.npy"), 1, "none.keyhole: cannot be read"),
    "readings that do not fit": (("predict", "good.keyhole", "plain.npy"), 1, "takes (3,) or (N, 3)"),
    "output of a wrong type": (("predict", "good.keyhole", "three.npy", "--out", "o.nc"), 1, "written as .csv"),
    "output in no folder": (("predict", "good.keyhole", "three.npy", "--out", "no/o.csv"), 1, "no/o.csv: cannot"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "says"), WRONG.values(), ids=WRONG)
def test_bad_input_is_named_and_writes_nothing(folder, command, array_plan, arguments, code, says):
    """With the exit code of its kind, and no traceback."""
    array_plan.save("bare.keyhole")
    kh.select("words.csv", 3, target="word", method="qr", predictor="linear").save("good.keyhole")
    np.save("three.npy", np.ones(3))
    Path("long.csv").write_text("a,b,word\n1,2,up\n1,2,3,up\n")
    Path("mixed.csv").write_text("a,b\n1,2\n?,5\n3,4\n")
    before = sorted(folder.iterdir())
    done = command(*arguments, *(() if arguments[0] != "select" else ("--method", "qr")))
    assert done.code == code, done
    assert says in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert done.out == ""
    assert sorted(folder.iterdir()) == before


def test_existing_sites_are_kept_beside_a_target(folder, command):
    """On the command line: first in the table, flagged, and K more."""
    done = command(
        "select", "words.csv", "--target", "word", "-k", 2, "--existing", "e", "--existing", "a", "--json", *QUICK
    )
    assert done.code == 0, done.err
    sites = json.loads(done.out)["sites"]
    assert [site["name"] for site in sites][:2] == ["e", "a"]
    assert [site["existing"] for site in sites] == [True, True, False, False]
