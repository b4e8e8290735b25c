"""Tables: frames and CSV files become the same samples, or an error names what is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import keyhole as kh
from example_data import smooth
from keyhole.errors import DataError, SettingsError

# Frames -------------------------------------------------------------------------------------------------------------


def test_a_frame_gives_names_and_times():
    index = pd.date_range("2000-01-01", periods=6, freq="D")
    signals = kh.read(pd.DataFrame(smooth(6, 3), columns=["pulse", "age", 7], index=index))
    assert signals.sites.names == ("pulse", "age", "7")
    np.testing.assert_array_equal(signals.time, index.to_numpy())
    np.testing.assert_array_equal(signals.values[:, 0], smooth(6, 3))


@pytest.mark.parametrize(
    "column",
    [[True, False, True], pd.array([1, 2, 3], "Int64"), pd.array([1.5, 2, 3], "Float32"), np.float16([1, 2, 3])],
)
def test_columns_of_every_kind_of_number_go_together(column):
    signals = kh.read(pd.DataFrame({"a": [0.5, 1.5, 2.5], "b": column}))
    np.testing.assert_array_equal(signals.values[:, 0, 1], np.asarray(column, float))


def test_a_column_without_any_value_is_outside():
    signals = kh.read(pd.DataFrame({"a": [0.5, 1.5], "b": [np.nan, np.nan], "c": pd.array([None, None], "Int64")}))
    np.testing.assert_array_equal(signals.sites.index, [0])


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (pd.DataFrame({"who": ["x", "y"]}), "no column is left to choose from"),
        (pd.DataFrame({"a": [1, 2, 3], "b": ["1", "2", "?"]}), "'b': '\\?' stands among numbers"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "two columns have the same name"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["1", 1]), "two columns have the same name"),
        (pd.DataFrame(), "empty"),
        (pd.DataFrame({"a": []}), "empty"),
    ],
)
def test_a_frame_that_cannot_be_used_is_refused(frame, says):
    with pytest.raises(DataError, match=says):
        kh.read(frame)


# CSV: rows ----------------------------------------------------------------------------------------------------------


def written(folder: Path, text: str) -> Path:
    path = folder / "people.csv"
    path.write_text(text, newline="")
    return path


UNEVEN = {
    "every row too long": ("a,b\n1,2,3\n4,5,6\n", "line 2 has more values than the header has names: 3, not 2"),
    "every row with a comma at its end": ("a,b\n1,2,\n3,4,\n", "line 2 has more values .*: 3, not 2"),
    "the first row too long": ("a,b\n1,2,3\n4,5\n", "line 2 has more values .*: 3, not 2"),
    "a later row too long": ("a,b\n1,2\n3,4\n5,6,7\n", "line 4 has more values .*: 3, not 2"),
    "long by empty fields": ("a,b\n1,2\n3,4,,\n", "line 3 has more values .*: 4, not 2"),
    "a row too short": ("a,b,c\n1,2,3\n4,5\n6,7,8\n", "line 3 has fewer values than the header has names: 2, not 3"),
    "every row too short": ("a,b,c\n1,2\n3,4\n", "line 2 has fewer values .*: 2, not 3"),
    "after a blank line": ("a,b\n1,2\n\n3,4,5\n", "line 4 has more values"),
    "after a name on two lines": ('"a\nz",b\n1,2\n3,4,5\n', "line 4 has more values"),
    "after lines that end as on Windows": ("a,b\r\n1,2\r\n3\r\n", "line 3 has fewer values"),
}


@pytest.mark.parametrize("target", [None, "b"])
@pytest.mark.parametrize(("text", "says"), UNEVEN.values(), ids=UNEVEN)
def test_a_row_of_another_length_than_the_header_is_refused_by_its_line(tmp_path, text, says, target):
    """Else its values would stand in other columns than they were written for."""
    with pytest.raises(DataError, match=rf"people.csv: cannot be read as CSV \({says}"):
        kh.read(written(tmp_path, text), target=target)


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n3,5\n", "\n  \na,b\n1,2\n\n   \n3,5\n\n", "\ufeffa,b\r\n1,2\r\n3,5", "a,b\r1,2\r3,5\r"]
)
def test_blank_lines_and_other_line_ends_are_no_rows(tmp_path, text):
    """Before the header, between rows and at the end."""
    signals = kh.read(written(tmp_path, text))
    assert signals.sites.names == ("a", "b")
    np.testing.assert_array_equal(signals.values[:, 0], [[1, 2], [3, 5]])


def test_a_value_that_is_left_empty_is_missing(tmp_path):
    """Its row has all the commas, so nothing is shifted."""
    with pytest.raises(DataError, match=r"people.csv: 1 of 3 sites have missing values"):
        kh.read(written(tmp_path, "a,b,c\n1,,3\n4,5,6\n"))


# CSV: the target ----------------------------------------------------------------------------------------------------


def labelled(folder: Path, *fields: str, times: int = 10) -> Path:
    """A file whose target ``y`` takes the fields in turn."""
    rows = [f"{number:.3f},{field}" for number, field in zip(range(times * len(fields)), fields * times, strict=True)]
    return written(folder, "\n".join(["a,y", *rows]) + "\n")


def classes_of(path: Path, **options: Any) -> list[str]:
    target = kh.read(path, target="y", **options).target
    return [target.classes[code] for code in target.values]


NAMES = {
    "None": ("None", "mild", "severe"),
    "nothing but markers": ("None", "NA", "null", "nan", "NaN", "N/A", "#N/A", "<NA>", "NULL", "n/a"),
    "yes and no": ("TRUE", "FALSE"),
    "text with spaces": (" left", "right "),
    "codes beside a word": ("0", "1", "NA"),
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_the_text_of_a_target_is_kept_as_it_is(tmp_path, names):
    """What pandas takes as missing may be the name of a class."""
    assert classes_of(labelled(tmp_path, *names)) == list(names) * 10


@pytest.mark.parametrize("fields", [("None", "", "mild"), ("None", "  ", "mild"), ("0", "", "1"), ("0.5", '""', "1.5")])
def test_an_empty_field_of_a_target_is_missing(tmp_path, fields):
    """That alone is, in text and in numbers."""
    with pytest.raises(DataError, match=r"people.csv: target 'y': missing in 10 of 30"):
        kh.read(labelled(tmp_path, *fields), target="y")


@pytest.mark.parametrize("word", ["NA", "nan", "unknown"])
def test_a_word_among_numbers_makes_no_classes_of_them(tmp_path, word):
    """It may stand for missing, or the numbers for classes: the user must say."""
    path = labelled(tmp_path, "0.5", "1.5", "2.5", word)
    with pytest.raises(DataError, match=f"target 'y': {word!r} stands among numbers; leave .* out, or .* kind 'class'"):
        kh.read(path, target="y")
    assert classes_of(path, target_kind="class") == ["0.5", "1.5", "2.5", word] * 10
    with pytest.raises(DataError, match=r"target 'y': .*(not numbers|missing)"):
        kh.read(path, target="y", target_kind="number")


def test_a_target_stays_with_its_samples(tmp_path):
    """Where times label the rows, and lines are blank."""
    path = written(tmp_path, "time,y,a\n2000-01-01,None,1\n\n2000-01-02,NA,2\n2000-01-03,None,3\n")
    assert classes_of(path) == ["None", "NA", "None"]
    assert kh.read(path, target="y").time is not None


def test_what_sites_lack_is_marked_as_before(tmp_path):
    """Numbers alone stand there, so a marker is no name."""
    signals = kh.read(written(tmp_path, "a,b,y\n1,NA,None\n2,null,mild\n3,,None\n"), target="y")
    np.testing.assert_array_equal(signals.sites.index, [0])


# The kind of the target ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [("0", "1"), ("0.0", "1.0"), ("0", "1.0"), ("0e0", "+1")])
def test_whole_numbers_of_a_csv_are_classes_however_they_are_written(tmp_path, fields):
    """By the names of whole numbers."""
    assert classes_of(labelled(tmp_path, *fields)) == ["0", "1"] * 10


def test_the_kind_of_a_target_may_be_given_where_it_is_read(tmp_path):
    """For a frame as for a CSV."""
    path = labelled(tmp_path, "0.0", "1.0", "2.5")
    for source in (path, pd.read_csv(path)):
        assert not kh.read(source, target="y").target.is_class
        assert kh.read(source, target="y", target_kind="class").target.classes == ("0.0", "1.0", "2.5")
    path = labelled(tmp_path, "0.0", "1.0")
    for source in (path, pd.read_csv(path)):
        assert kh.read(source, target="y").target.is_class
        np.testing.assert_array_equal(kh.read(source, target="y", target_kind="number").target.values, [0.0, 1.0] * 10)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": "y", "target_kind": "colour"}, "target 'y': kind='colour': 'class', 'number' or None is needed"),
        ({"target_kind": "class"}, "target_kind='class' has no meaning without a target"),
    ],
)
def test_a_kind_that_means_nothing_is_refused(tmp_path, options, says):
    """One that is not known, or one of no target."""
    path = labelled(tmp_path, "0", "1")
    for source in (path, pd.read_csv(path)):
        with pytest.raises(SettingsError, match=says):
            kh.read(source, **options)


def test_a_kind_needs_a_table():
    """The error names the other way."""
    with pytest.raises(DataError, match=r"target_kind does not apply to an array.*Samples.with_target"):
        kh.read(smooth(5, 3), target_kind="class")


# Parquet ------------------------------------------------------------------------------------------------------------


def without_pages(path: Path) -> Path:
    """Overwrite all data of a Parquet file but its footer: whoever reads a value fails over it."""
    content = path.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    path.write_bytes(b"PAR1" + bytes(len(content) - footer - 4) + content[-footer:])
    return path


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pa.array([[0.0] * 1000] * 20), "x (list<"),
        (pa.array([{"a": 1.0}] * 20), "x (struct<"),
        (pa.array([[("a", 1.0)]] * 20, pa.map_(pa.string(), pa.float64())), "x (map<"),
        (pa.array([b"long" * 1000] * 20), "x (binary"),
        (pa.array([b"long" * 1000] * 20).dictionary_encode(), "x (dictionary<"),
    ],
    ids=["lists", "structs", "maps", "bytes", "categories of bytes"],
)
def test_columns_that_are_nothing_known_are_refused_by_the_schema(tmp_path, column, says):
    """A few kilobytes of repeated values unpack to gigabytes; nothing of them is read."""
    parquet.write_table(pa.table({"a": np.arange(20.0), "x": column}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=f"columns that are not numbers, words or dates: {re.escape(says)}"):
        kh.read(without_pages(tmp_path / "t.parquet"))


def test_a_nested_target_is_refused_by_the_schema(tmp_path):
    table = pa.table({"a": np.arange(20.0), "x": pa.array([[0.0] * 1000] * 20)})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"target 'x': of type list<.*; classes or real numbers are needed"):
        kh.read(without_pages(tmp_path / "t.parquet"), target="x")


@pytest.mark.parametrize("target", ["x", None])
def test_huge_texts_are_refused(tmp_path, target):
    table = pa.table({"a": np.arange(20.0), "x": ["long" * 10_000, "short"] * 10})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"x: a text of 40000 bytes; words have at most 1000"):
        kh.read(tmp_path / "t.parquet", target=target)


def test_a_parquet_that_declares_more_than_memory_is_refused(tmp_path):
    """As many rows as the footer says, though each page holds one number over and over."""
    path = tmp_path / "t.parquet"
    columns = {f"c{n}": np.zeros(100) for n in range(3)}
    parquet.write_table(pa.table(columns), path)
    content = path.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little")
    head, tail = content[: -footer - 8], content[-footer - 8 : -8]
    many = tail.replace(varint(100), varint(1 << 40))
    path.write_bytes(head + many + len(many).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(DataError, match=r"t\.parquet declares .*memory are free"):
        kh.read(path)


def varint(number: int) -> bytes:
    """An integer as Thrift's compact protocol writes it, behind the field header of a 64-bit integer."""
    number <<= 1
    out = bytearray(b"\x16")
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


@pytest.mark.parametrize("name", [None, "when", "time"])
def test_an_index_of_times_in_a_parquet_gives_the_times(tmp_path, name):
    time = pd.date_range("2000-01-01", periods=20, name=name)
    pd.DataFrame(smooth(20, 3), time, list("abc")).to_parquet(tmp_path / "t.parquet")
    signals = kh.read(tmp_path / "t.parquet")
    assert signals.sites.names == ("a", "b", "c")
    np.testing.assert_array_equal(signals.time, time.to_numpy("datetime64[ns]"))


def test_an_index_that_is_no_time_is_not_read(tmp_path):
    names = [f"row {n}" for n in range(20)]
    frame = pd.DataFrame(smooth(20, 3), pd.Index(names, name="label"), list("abc"))
    frame.to_parquet(tmp_path / "t.parquet")
    signals = kh.read(tmp_path / "t.parquet")
    assert signals.time is None
    assert signals.sites.names == ("a", "b", "c")


@pytest.mark.parametrize("kind", ["float32", "int16", "Int64", "boolean", "bool", "Float32"])
def test_every_kind_of_number_in_a_parquet_is_read_as_in_a_frame(tmp_path, kind):
    frame = pd.DataFrame({"a": pd.array([0, 1] * 10, dtype=kind), "b": np.arange(20.0)})
    frame.to_parquet(tmp_path / "t.parquet")
    np.testing.assert_array_equal(kh.read(tmp_path / "t.parquet").values, kh.read(frame).values)


@pytest.mark.parametrize(
    "labels", [["x", "y"] * 10, pd.Categorical(["x", "y"] * 10, ["y", "x"]), [True, False] * 10, np.arange(20) / 3]
)
def test_the_target_of_a_parquet_is_that_of_the_frame(tmp_path, labels):
    frame = pd.DataFrame(smooth(20, 3), columns=list("abc")).assign(kind=labels)
    frame.to_parquet(tmp_path / "t.parquet")
    found, expected = kh.read(tmp_path / "t.parquet", target="kind").target, kh.read(frame, target="kind").target
    assert found is not None
    assert expected is not None
    assert found.classes == expected.classes
    np.testing.assert_array_equal(found.values, expected.values)


def test_times_of_a_parquet_that_are_no_dates_are_refused(tmp_path):
    for column in (["noon"] * 20, np.arange(20)):
        frame = pd.DataFrame(smooth(20, 3), columns=list("abc")).assign(time=column)
        frame.to_parquet(tmp_path / "t.parquet")
        with pytest.raises(DataError, match=r"t\.parquet: time: not dates"):
            kh.read(tmp_path / "t.parquet")


def test_the_target_of_a_parquet_must_be_there(tmp_path):
    pd.DataFrame({"a": np.arange(20.0), "kind": ["x", "y"] * 10}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"target: no column 'knd'; there are a, kind"):
        kh.read(tmp_path / "t.parquet", target="knd")


# Wide tables --------------------------------------------------------------------------------------------------------


def test_a_column_that_stands_more_than_once_is_named_first(tmp_path):
    (tmp_path / "t.csv").write_text("b,a,c,a,b\n1,2,3,4,5\n")
    with pytest.raises(DataError, match="column 'a' stands more than once"):
        kh.read(tmp_path / "t.csv")


def test_the_header_of_a_very_wide_table_is_checked_at_once(tmp_path):
    """To count each of so many names in all of them would take longer than a test may."""
    names = [f"c{n}" for n in range(300_000)]
    (tmp_path / "t.csv").write_text(",".join([*names, "c7"]) + "\n")
    with pytest.raises(DataError, match="column 'c7' stands more than once"):
        kh.read(tmp_path / "t.csv")
