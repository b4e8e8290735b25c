"""The target: classes and numbers, how samples carry it, and where it is read from."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import savemat

import keyhole as kh
from example_data import gridded, monthly_field, smooth
from keyhole.data import datasets
from keyhole.data.scaler import Scaler
from keyhole.data.target import Target
from keyhole.errors import DataError, SettingsError

# Class or number ----------------------------------------------------------------------------------------------------

KINDS = {
    "text": (["b", "a", "b"], ("a", "b")),
    "text of pandas": (pd.Series(["b", "a", "b"], dtype="string"), ("a", "b")),
    "yes and no": ([True, False, True], ("False", "True")),
    "yes and no of pandas": (pd.Series([True, False, True], dtype="boolean"), ("False", "True")),
    "categories in their order": (pd.Categorical(["low", "high", "low"], ["low", "mid", "high"]), ("low", "high")),
    "few whole numbers, by size": (np.array([10, 9, 1] * 6), ("1", "9", "10")),
    "few whole numbers of pandas": (pd.Series([2, 1] * 6, dtype="Int64"), ("1", "2")),
    "texts beside numbers": (pd.Series(["b", 1, "b"], dtype=object), ("1", "b")),
    "many whole numbers": (np.arange(200) % 21, ()),
    "whole numbers for few samples": ([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2], ()),
    "few whole numbers as fractions": ([10.0, 9.0, -1.0] * 6, ("-1", "9", "10")),
    "few whole numbers in half precision": (np.array([0, 1] * 6, np.float16), ("0", "1")),
    "few whole fractions of pandas": (pd.Series([2, 1] * 6, dtype="Float64"), ("1", "2")),
    "zero of either sign": ([0.0, -0.0, 1.0] * 6, ("0", "1")),
    "many whole numbers as fractions": (np.arange(200.0) % 21, ()),
    "whole fractions for few samples": ([0.0, 1.0, 2.0] * 5, ()),
    "numbers too large to be counted": ([0.0, 1e300] * 20, ()),
    "fractions": ([0.0, 0.5] * 20, ()),
    "a number among whole ones": ([1, 2.5, 1], ()),
}


@pytest.mark.parametrize(("values", "classes"), KINDS.values(), ids=KINDS)
def test_what_is_a_class_and_what_a_number(values, classes):
    """Text, yes and no, categories and few whole numbers, also as 1.0, are classes."""
    target = Target.of(values)
    assert target.classes == classes
    assert target.is_class == bool(classes)
    assert target.values.dtype == (np.int64 if classes else np.float64)


@given(texts=st.lists(st.sampled_from(["ab", "c", "ü", "10", "9"]), min_size=6).filter(lambda t: 1 < len(set(t)) < 6))
def test_codes_point_at_the_names(texts):
    """Codes and names give the texts back."""
    target = Target.of(texts)
    assert [target.classes[code] for code in target.values] == texts


@given(
    numbers=st.integers(1, 30)
    .flatmap(lambda most: st.lists(st.integers(0, most), min_size=1, max_size=160))
    .filter(lambda n: len(set(n)) > 1)
)
def test_the_rule_for_whole_numbers(numbers):
    """Classes if at most 20 occur, and fewer than a fifth of the samples; written as fractions, the same."""
    few = len(set(numbers)) <= 20 and 5 * len(set(numbers)) < len(numbers)
    whole, written = Target.of(numbers), Target.of([float(number) for number in numbers])
    assert whole.is_class == few
    assert written.classes == whole.classes
    np.testing.assert_array_equal(written.values, whole.values)


def test_kind_overrules():
    """A number told as classes and classes told as a number."""
    assert Target.of([0.5, 1.5, 0.5], kind="class").classes == ("0.5", "1.5")
    assert Target.of([2.0, 1.0, 2.0], kind="class").classes == ("1", "2")
    for codes in ([0, 1] * 20, [0.0, 1.0] * 20):
        np.testing.assert_array_equal(Target.of(codes, kind="number").values, [0.0, 1.0] * 20)
    np.testing.assert_array_equal(Target.of([True, False], kind="number").values, [1.0, 0.0])
    with pytest.raises(SettingsError, match="kind='colour': 'class', 'number' or None"):
        Target.of([0, 1], kind="colour")


REFUSED = {
    "nothing": ([], "it is empty"),
    "one missing": ([1.5, None, 2.5], "missing in 1 of 3"),
    "a missing text": (["a", np.nan, "b", "a"], "missing in 1 of 4"),
    "a masked value": (np.ma.masked_array([1, 2, 3], [0, 0, 1]), "missing in 1 of 3"),
    "infinite": ([1.5, np.inf, -np.inf], "infinite in 2 of 3"),
    "constant number": ([2.5, 2.5], "constant, every sample is 2.5"),
    "constant text": (["x", "x"], "constant, every sample is 'x'"),
    "a class for each sample": (["ann", "bob", "cem"], "3 classes in 3 samples, each occurs once"),
    "dates": (pd.to_datetime(["2000-01-01", "2000-01-02"]), "classes or real numbers are needed"),
    "complex": (np.array([1j, 2]), "classes or real numbers are needed"),
    "a table": (np.zeros((3, 2)), r"not shape \(3, 2\)"),
    "a scalar": (5, r"not shape \(\)"),
}


@pytest.mark.parametrize(("values", "says"), REFUSED.values(), ids=REFUSED)
def test_a_target_that_cannot_be_predicted_is_refused(values, says):
    """By its name and the reason."""
    with pytest.raises(DataError, match=f"target 'yield': .*{says}"):
        Target.of(values, name="yield")


def test_text_is_no_number():
    """Even if it is asked for."""
    with pytest.raises(DataError, match=r"not numbers .*; predict it as classes"):
        Target.of(["a", "b", "a"], kind="number")


# On signals ---------------------------------------------------------------------------------------------------------


def test_samples_carry_their_target_through_parts_and_scaling():
    """Samples and their targets stay together."""
    signals = kh.read(smooth(6, 3)).with_target(Target.of(list("abcabc")))
    part = Scaler.fit(signals).apply(signals).take(np.array([5, 0]))
    assert [part.target.classes[code] for code in part.target.values] == ["c", "a"]
    assert part.target.name == "target"
    assert signals.with_target(None).target is None


def test_a_target_of_another_length_is_refused():
    """One value for each sample."""
    with pytest.raises(DataError, match="target 'target': 3 values for 6 samples"):
        kh.read(smooth(6, 3)).with_target(Target.of([1.5, 2.5, 3.5]))


def test_the_fingerprint_follows_the_target():
    """Its values, name and classes; without one it is that of the signals alone."""
    plain = kh.read(smooth(6, 3))
    targets = [Target.of(list(texts), name=name) for texts, name in
               (("abcabc", "x"), ("abcacb", "x"), ("abcabc", "y"), ("abdabd", "x"))]  # fmt: skip
    prints = {signals.fingerprint() for signals in (plain, *(plain.with_target(t) for t in targets))}
    assert len(prints) == 5
    assert plain.with_target(targets[0]).with_target(None).fingerprint() == plain.fingerprint()


# From tables --------------------------------------------------------------------------------------------------------


@pytest.fixture
def frame() -> pd.DataFrame:
    """Twelve samples of three numbers and a word."""
    return pd.DataFrame(smooth(12, 3), columns=["pulse", "age", 7]).assign(mood=["calm", "tense", "calm"] * 4)


@pytest.mark.parametrize("column", ["mood", "7"])
def test_a_column_of_a_frame_becomes_the_target(frame, column):
    """It is no site any more; names that are numbers are found by their text."""
    frame = frame if column == "mood" else frame.drop(columns="mood")
    signals = kh.read(frame, target=column)
    assert signals.sites.names == tuple(str(name) for name in frame.columns if str(name) != column)
    assert signals.target.name == column
    assert signals.target.is_class == (column == "mood")


def test_a_csv_is_read_as_the_frame_is(frame, tmp_path):
    """With the file's name, and text where it is the target."""
    frame.to_csv(tmp_path / "people.csv", index=False)
    read, known = kh.read(tmp_path / "people.csv", target="mood"), kh.read(frame, target="mood")
    np.testing.assert_allclose(read.values, known.values)
    np.testing.assert_array_equal(read.target.values, known.target.values)
    assert (read.sites.names, read.origin.kind, read.origin.name) == (known.sites.names, "table", "people")


def test_a_column_called_time_gives_the_times(tmp_path):
    """As in readings: it is no site, and samples are split in blocks."""
    (tmp_path / "a.csv").write_text("time,a,b\n2000-01-01,1,2\n2000-02-01,2,3\n2000-03-01,4,1\n")
    signals = kh.read(tmp_path / "a.csv")
    assert signals.sites.names == ("a", "b")
    np.testing.assert_array_equal(signals.time.astype("datetime64[M]"), np.arange("2000-01", "2000-04", dtype="M8[M]"))


BAD_CSV = {
    "no such column": ("a,b,c,d,e,f\n" + "1,2,3,4,5,6\n" * 2, "z", "no column 'z'; there are a, b, c, d, e and 1 more"),
    "constant target": ("a,y\n1,2.5\n2,2.5\n", "y", "target 'y': it is constant"),
    "missing target": ("a,y\n1,2.5\n2,\n3,1.5\n", "y", "target 'y': missing in 1 of 3"),
    "repeated name": ("a,y,a\n1,2,3\n", "y", "column 'a' stands more than once"),
    "row numbers": (",a,y\n0,1,2\n1,2,3\n", "y", "a column has no name"),
    "time that is no date": ("time,a,y\nsoon,1,2\nlater,2,3\n", "y", "time: not dates"),
    "time as a number": ("time,a,y\n1,1,2\n2,2,3\n", "y", "time: not dates.*rename the column"),
    "nothing but the target": ("y\n1.5\n2.5\n", "y", "empty"),
    "header alone": ("a,y\n", "y", "empty"),
    "no text": ("", "y", "cannot be read as CSV"),
}


@pytest.mark.parametrize(("text", "target", "says"), BAD_CSV.values(), ids=BAD_CSV)
def test_a_csv_that_cannot_be_used_is_refused_by_name(tmp_path, text, target, says):
    """Each with its reason."""
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(DataError, match=f"bad.csv: .*{says}"):
        kh.read(tmp_path / "bad.csv", target=target)


@pytest.mark.parametrize(
    "source", [smooth(5, 3), monthly_field(), monthly_field().to_dataset(), kh.read(smooth(5, 3))],
    ids=["array", "field", "fields", "signals"],
)  # fmt: skip
def test_a_target_by_name_needs_a_table(source):
    """The error names the other way."""
    with pytest.raises(DataError, match=r"target does not apply to .*Samples.with_target"):
        kh.read(source, target="y")


# Of data sets -------------------------------------------------------------------------------------------------------


def test_labels_of_digits_are_in_the_order_of_the_images():
    """A one has ink in the middle, a zero has none."""
    target, images = datasets.labels("digits"), gridded(datasets.digits())[:, 0]
    assert target.classes == tuple("0123456789")
    ink = [images[target.values == code, 2:6, 3:5].mean() for code in (0, 1)]
    assert ink[0] < 0.35 < 0.6 < ink[1]


def test_a_data_set_without_labels_says_which_have_some():
    """No guess."""
    with pytest.raises(DataError, match="data set 'sst' has no labels; digits, mnist, isolet, coil20, madelon have"):
        datasets.labels("sst")


@pytest.fixture
def tabular(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files like those of the tabular sets, with an image of which only the first row is lit."""
    folder = tmp_path / "tabular"
    folder.mkdir()
    monkeypatch.setenv("KEYHOLE_DATA", str(tmp_path))
    lit = np.zeros((50, 32, 32))
    lit[:, 0] = np.random.default_rng(0).uniform(0.5, 1, (50, 32))
    classes = np.repeat(np.arange(1, 6), 10)[:, np.newaxis].astype(np.uint8)
    savemat(folder / "COIL20.mat", {"X": lit.transpose(0, 2, 1).reshape(50, -1), "Y": classes})
    savemat(folder / "Isolet.mat", {"X": smooth(50, 7), "Y": classes})
    savemat(folder / "madelon.mat", {"X": (100 * smooth(50, 4)).astype(np.int16), "Y": np.sign(classes - 2.5)})
    return folder


@pytest.mark.parametrize(("name", "grid"), [("isolet", (7,)), ("coil20", (32, 32)), ("madelon", (4,))])
def test_tabular_sets_have_a_fixed_random_split(tabular, name, grid):
    """The same each time, with every part of most classes, although the file is sorted by class."""
    first, again = datasets.load(name), datasets.load(name)
    assert first.sites.shape == grid
    assert first.target is None
    assert len(datasets.labels(name)) == len(first) == 50
    np.testing.assert_array_equal(first.split.test, again.split.test)
    assert len(first.split.test) == 10
    labelled = first.with_target(datasets.labels(name))
    assert len(set(labelled.take(first.split.test).target.values)) > 1


def test_images_of_coil_stand_upright(tabular):
    """The file runs down the columns: what is lit in the first row is in the first row."""
    images = gridded(datasets.coil20())[:, 0]
    assert (images[:, 0] > 0).all()
    assert not images[:, 1:].any()


def test_a_damaged_or_missing_tabular_file_is_named(tabular):
    """Not a traceback of scipy."""
    (tabular / "Isolet.mat").write_bytes((tabular / "Isolet.mat").read_bytes()[:300])
    with pytest.raises(DataError, match=r"Isolet.mat: damaged, or another file than expected"):
        datasets.isolet()
    (tabular / "madelon.mat").unlink()
    with pytest.raises(DataError, match=r"madelon.mat: no such file"):
        datasets.labels("madelon")
    savemat(tabular / "COIL20.mat", {"A": np.zeros(3)})
    with pytest.raises(DataError, match=r"COIL20.mat: damaged, or another file"):
        datasets.coil20()


def test_labels_of_mnist_are_those_to_train_then_those_to_test(tmp_path, monkeypatch):
    """As the images are."""
    monkeypatch.setenv("KEYHOLE_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    for part, codes in (("train", [3, 1, 3]), ("t10k", [1])):
        content = b"\0\0\x08\x01" + struct.pack(">i", len(codes)) + bytes(codes)
        (tmp_path / "mnist" / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(content))
    target = datasets.labels("mnist")
    assert [target.classes[code] for code in target.values] == ["3", "1", "3", "1"]


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("isolet", (1560, 1, 617), 26),
        ("coil20", (1440, 1, 32, 32), 20),
        ("madelon", (2600, 1, 500), 2),
    ],
)
def test_the_tabular_sets_are_as_described(data_folder, name, shape, classes):
    """Where they are there."""
    signals = datasets.load(name)
    assert gridded(signals).shape == shape
    assert len(signals.split.test) == 0.2 * shape[0]
    assert len(datasets.labels(name).classes) == classes
