"""Tables of words, dates and numbers: encoded alike for every way of asking, and decoded as they were."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import keyhole as kh
from keyhole.data.table_columns import TableColumns, column_spread
from keyhole.errors import DataError, InfeasibleError, KeyholeWarning, PlanError, ReadingsWarning, SettingsError
from keyhole.sklearn import KeyholeSelector

QUICK = {"method": "greedy", "reconstructor": "ridge"}


def mixed(n: int = 160) -> pd.DataFrame:
    """Two columns of words that tell of each other, dates, a flag, and two numbers in very different units."""
    rng = np.random.default_rng(0)
    kind, size = rng.integers(3, size=n), rng.normal(size=n)
    return pd.DataFrame(
        {
            "colour": np.array(["red", "green", "None"])[kind],
            "shape": pd.Categorical(np.array(["round", "square", "round"])[kind]),
            "size": size,
            "weight": 1e6 * (3 * size + 0.1 * rng.normal(size=n)),
            "flag": kind == 2,
            "born": pd.Timestamp("1990-01-01") + pd.to_timedelta(rng.integers(5000, size=n), "D"),
        }
    )


ENCODED = ("colour=None", "colour=green", "colour=red", "shape=round", "shape=square", "size", "weight", "flag", "born")


# Reading ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["frame", "csv", "parquet", "polars"])
def test_every_kind_of_table_is_encoded_alike(tmp_path, form):
    frame = source = mixed()
    if form == "csv":
        source = tmp_path / "t.csv"
        frame.to_csv(source, index=False)
    if form == "parquet":
        source = tmp_path / "t.parquet"
        frame.to_parquet(source)
    if form == "polars":
        source = pytest.importorskip("polars").from_pandas(frame)
    samples = kh.read(source)
    assert samples.sites.names == ENCODED
    expected = pd.get_dummies(frame, columns=["colour", "shape"], prefix_sep="=")
    expected["born"] = (frame["born"] - pd.Timestamp("1970-01-01")).dt.days
    np.testing.assert_allclose(samples.values[:, 0], expected[list(ENCODED)].to_numpy(float))
    assert samples.constraints.grouping.units.tolist() == [0, 0, 0, 1, 1, 2, 3, 4, 5]


def test_a_column_of_dates_called_time_is_the_time_of_a_frame_too():
    frame = mixed().rename(columns={"born": "time"})
    samples = kh.read(frame)
    np.testing.assert_array_equal(samples.time, frame["time"].to_numpy("datetime64[ns]"))
    assert "time" in frame.columns
    assert len(samples.sites) == 8


@pytest.mark.parametrize("empty", ["", None])
def test_words_that_are_missing_are_refused_or_modelled_as_numbers_are(tmp_path, empty):
    """Only an empty field of a file is missing; None there is a word."""
    frame = mixed()
    frame.loc[::9, "colour"] = empty
    source = frame
    if empty is not None:
        source = tmp_path / "t.csv"
        frame.to_csv(source, index=False)
    with pytest.raises(DataError, match=r"column 'colour': missing values .*missing='model'"):
        kh.read(source)
    samples = kh.read(source, missing="model")
    assert np.isnan(samples.values[::9, 0, :3]).all()
    assert not np.isnan(samples.values[1, 0]).any()
    assert np.isfinite(kh.select(samples, 2, **QUICK).metrics["test"]["fvu"])


def test_a_word_among_numbers_may_be_a_missing_value(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n-,3\n4,5\n6,1\n")
    with pytest.raises(DataError, match=r"t.csv: column 'a': '-' stands among numbers; .*empty the field"):
        kh.read(tmp_path / "t.csv")


def test_durations_are_numbers_and_a_period_is_a_date():
    frame = pd.DataFrame(
        {"a": pd.to_timedelta([1, 2, 4], "h"), "b": pd.PeriodIndex(["2000-01", "2000-02", "1999-12"], freq="M")}
    )
    np.testing.assert_allclose(kh.read(frame).values[:, 0], [[1 / 24, 10957], [2 / 24, 10988], [4 / 24, 10926]])


def test_words_that_name_the_rows_are_left_out_with_a_warning():
    frame = mixed().assign(id=[f"p{place}" for place in range(160)])
    with pytest.warns(KeyholeWarning, match="'id' names the rows"):
        plan = kh.select(frame, 2, **QUICK)
    assert plan.metadata["notes"]["columns"][0]["column"] == "id"
    assert "id" not in plan.reconstruct(frame[plan.names].head(2)).columns
    with pytest.raises(SettingsError, match=r"existing: column 'id' names the rows.*left out"):
        kh.read(frame).with_constraints({"existing": ["id"]})


def test_a_table_that_does_not_fit_in_memory_once_encoded_is_refused():
    words = np.array([f"w{place}" for place in range(20_000)]).repeat(2)
    with pytest.raises(DataError, match="one for each word"):
        kh.read(pd.DataFrame(dict.fromkeys("abcdefghijkl", words)))


# Weights ------------------------------------------------------------------------------------------------------------


def test_columns_count_alike_whatever_their_units():
    """In the choice, and in the errors, which are in standard deviations."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)) @ np.random.default_rng(1).normal(size=(3, 8)))
    frame += 0.1 * np.random.default_rng(2).normal(size=frame.shape)
    frame.columns = list("abcdefgh")
    plain, other = (kh.select(one, 3, **QUICK) for one in (frame, frame * [1, 1e6, 1, 1, 1e-6, 1, 1, 1]))
    assert plain.names == other.names
    assert plain.metrics["test"]["fvu"] == pytest.approx(other.metrics["test"]["fvu"], rel=1e-3)
    assert plain.metadata["error_units"] == "standard deviations"
    assert plain.metrics["test"]["rmse"] < 1


def test_weights_may_be_given_in_place_of_equal_ones():
    """None weigh columns by their variance; one for each column, whatever it is encoded as."""
    frame = mixed().drop(columns="born")
    assert kh.select(kh.read(frame).with_weights("none"), 1, **QUICK).names == ["weight"]
    weights = dict.fromkeys(frame.columns, 1e-12) | {"colour": 1.0}
    weighted = kh.read(frame).with_weights(weights)
    np.testing.assert_array_equal(weighted.weights, [1, 1, 1] + [1e-12] * 5)


def test_stations_in_a_table_keep_their_common_units():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)) * [1, 1, 9], columns=list("abc"))
    placed = kh.read(frame).with_coordinates(pd.DataFrame({"name": list("abc"), "x": [0.0, 1, 2], "y": [0.0, 0, 1]}))
    assert "error_units" not in kh.select(placed, 1, **QUICK).metadata


def test_the_indicators_of_words_share_one_variance():
    variance, owners = np.array([4.0, 0.2, 0.3]), np.array([0, 1, 1])
    scaled = variance / np.square(column_spread(variance, owners))
    np.testing.assert_allclose(np.bincount(owners, scaled), [1, 1])


# Plans --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plan() -> kh.Plan:
    return kh.select(mixed(), 3, **QUICK)


def test_sites_are_the_columns_of_the_table(plan):
    """One row for a column of words, with the gain of all of them, at its position in the table."""
    frame = mixed()
    assert len(plan.sites) == len(plan.names) == 3
    assert [frame.columns[at] for at in plan.sites["index"]] == plan.sites["name"].tolist() == plan.names
    assert plan.sites["gain"].sum() == pytest.approx(plan.gain.sum())
    assert "colour" in plan.names


def test_readings_are_the_values_of_the_table(plan, tmp_path):
    """With words and dates, as a frame, mapping, row or CSV; what is reconstructed is the table."""
    frame = mixed()
    readings = frame[plan.names].head(4)
    found = plan.reconstruct(readings)
    assert list(found.columns) == list(frame.columns)
    assert found["colour"].tolist() == frame["colour"].head(4).tolist()
    assert found["shape"].tolist() == frame["shape"].head(4).tolist()
    pd.testing.assert_frame_equal(plan.reconstruct(readings[plan.names[::-1]]), found)
    for one in (readings.iloc[0].to_dict(), readings.iloc[0], readings.iloc[0].tolist()):
        pd.testing.assert_frame_equal(plan.reconstruct(one), found.head(1))
    plan.save(tmp_path / "plan.keyhole")
    pd.testing.assert_frame_equal(kh.load(tmp_path / "plan.keyhole").reconstruct(readings), found)


def test_intervals_of_words_are_those_of_their_indicators(plan):
    found = plan.reconstruct(mixed()[plan.names].head(2), interval=0.9)
    assert list(found.lower.columns) == list(ENCODED)
    assert (found.lower["size"] < found.mean["size"]).all()
    assert found.lower["born"].dtype.kind == "M"


def test_an_unknown_word_is_a_missing_reading(plan):
    with pytest.warns(ReadingsWarning, match="column 'colour': 'mauve' is none of the 3 words"):
        found = plan.reconstruct(mixed()[plan.names].head(1).assign(colour="mauve"))
    assert found["size"].notna().all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda one: one.drop(columns="colour"), "no column for site 'colour'"),
        (lambda one: one.assign(mood="glad"), "'mood' is not a site of this plan"),
        (lambda one: one.to_numpy()[:, :2], r"takes \(3,\) or \(N, 3\) in rank order"),
        (lambda one: one.astype({"size": object}).assign(size="big"), "another kind than its column"),
    ],
)
def test_readings_that_do_not_fit_are_refused(plan, change, says):
    frame = mixed()[["colour", "size", "born"]].head(2)
    with pytest.raises(PlanError, match=says):
        kh.select(
            mixed(), 1, constraints={"existing": ["colour", "size"], "allowed": [False] * 5 + [True]}, **QUICK
        ).reconstruct(change(frame))


def test_a_csv_of_readings_may_hold_words(tmp_path, monkeypatch, command):
    """From the command line alone: select, sites, reconstruct and predict."""
    monkeypatch.chdir(tmp_path)
    frame = mixed()
    frame.assign(y=np.where(frame["size"] > 0, "up", "down")).to_csv("t.csv", index=False)
    done = command(
        "select",
        "t.csv",
        "--target",
        "y",
        "-k",
        2,
        "--method",
        "relevance",
        "--predictor",
        "linear",
        "--existing",
        "colour",
    )
    assert done.code == 0, done.err
    plan = kh.load("plan.keyhole")
    assert plan.names[0] == "colour"
    frame[plan.names].head(3).to_csv("r.csv", index=False)
    assert command("predict", "plan.keyhole", "r.csv", "--out", "p.csv").code == 0
    assert list(pd.read_csv("p.csv")["y"]) == list(plan.predict(frame[plan.names].head(3)))
    assert command("reconstruct", "plan.keyhole", "r.csv", "--out", "f.csv").code == 0
    assert list(pd.read_csv("f.csv", keep_default_na=False)["colour"]) == list(frame["colour"].head(3))


def test_constraints_are_about_columns():
    """Words cost as much as one column, and are one of a group."""
    frame = mixed()
    paid = kh.select(frame, constraints={"costs": [1.0, 1, 1, 9, 9, 9], "cost_limit": 3}, **QUICK)
    assert sorted(paid.names) == ["colour", "shape", "size"]
    assert paid.metadata["constraints"]["cost"] == pytest.approx(3)
    grouped = kh.select(
        frame,
        1,
        constraints={"groups": {"colour": "a", "size": "a"} | dict.fromkeys(["shape", "weight", "flag", "born"], "")},
        **QUICK,
    )
    assert sorted(grouped.names) == ["colour", "size"]
    assert "colour" not in kh.select(frame, 3, constraints={"forbidden": frame.columns == "colour"}, **QUICK).names
    with pytest.raises(InfeasibleError, match="between 1 and 6"):
        kh.select(frame, 7, **QUICK)


def test_networks_of_columns_are_extended():
    plan = kh.extend(kh.select(mixed(), 2, **QUICK), mixed(), 1)
    assert plan.sites["existing"].tolist() == [True, True, False]
    assert kh.compare(mixed(), 2, ["greedy", "qr"]).choice.plan.sites.shape[0] == 2
    assert len(kh.curve(mixed(), [1, 2], ["greedy"]).rows) == 2


ALL = ["colour", "shape", "size", "weight", "born"]


def squared_errors(frame, columns, targets):
    """Errors of least squares on the indicators, dates and numbers of some columns, by hand."""
    x = pd.get_dummies(frame[columns], dtype=float)
    x = x.assign(**{name: (frame[name] - pd.Timestamp("1970-01-01")).dt.days for name in columns if name == "born"})
    x, y = x.to_numpy(float), np.asarray(targets, float)
    x, y = (x - x.mean(axis=0)) / x.std(axis=0), y - y.mean(axis=0)
    return np.square(y - x @ np.linalg.lstsq(x, y, rcond=None)[0]).sum()


def test_columns_are_dropped_with_all_of_their_words():
    """Each step drops the column that least squares misses least, which counts once however many words it has."""
    frame = mixed().drop(columns="flag").assign(weight=lambda one: one["weight"] + np.roll(one["weight"], 1))
    plan = kh.select(frame, 1, constraints={"existing": ALL[:4]}, **QUICK)
    fewer = kh.drop(plan, frame, 3, refit=False, split=np.array_split(np.arange(160), 3))
    field = pd.get_dummies(frame.drop(columns="born"), dtype=float).assign(born=frame["born"].astype("int64"))
    field = (field - field.mean()) / field.std()
    field[[name for name in field if name.startswith("colour")]] /= np.sqrt(3)  # a column counts once
    field[[name for name in field if name.startswith("shape")]] /= np.sqrt(2)
    dropped, left = fewer.metadata["notes"]["dropped"], list(ALL)
    for row in dropped:
        errors = {one: squared_errors(frame, [name for name in left if name != one], field) for one in left}
        assert errors[row["site"]] <= 1.01 * min(errors.values()) + 1e-9  # size and weight tell nearly the same
        assert row["fvu"] == pytest.approx(errors[row["site"]] / np.square(field.to_numpy()).sum(), rel=0.02, abs=1e-3)
        left.remove(row["site"])
    assert [ALL[row["index"]] for row in dropped] == [row["site"] for row in dropped]
    assert fewer.names == [name for name in plan.names if name in left]
    assert (np.diff([row["fvu"] for row in dropped]) > 0).all()
    assert list(fewer.reconstruct(frame[fewer.names].head(2)).columns) == list(frame.columns)
    assert kh.extend(fewer, frame, 1).names[:2] == fewer.names
    for wrong in (0, 5):
        with pytest.raises(InfeasibleError, match="between 1 and 4 of the 5 sites"):
            kh.drop(plan, frame, wrong)


@pytest.mark.parametrize("kind", ["number", "class"])
def test_columns_are_dropped_beside_a_target(kind):
    """The words that tell of the target stay, whatever they are for the other columns; missing values are imputed."""
    frame = mixed().drop(columns="flag")
    level = (frame["colour"] == "red") * 3.0 + 0.3 * frame["size"]
    frame = frame.assign(y=level if kind == "number" else np.where(level > 1, "up", "down"))
    known = {"target": "y", "predictor": "linear", "constraints": {"existing": ALL[:4]}, "missing": "model", **QUICK}
    holes = frame.mask(np.arange(160)[:, None] % 9 == [0, 1, 2, 3, 4, 10])
    for data in (frame, holes):
        plan = kh.select(data, 1, **known)
        fewer = kh.drop(plan, data, 3)
        assert fewer.target == "y"
        assert fewer.names[0] == "colour"
        assert len(fewer.names) == 2
        assert fewer.predict(data[fewer.names].head(3)).shape == (3,)
    errors = {
        one: squared_errors(frame, [name for name in ALL if name != one], level.to_numpy()[:, None]) for one in ALL
    }
    if kind == "number":
        first = kh.drop(kh.select(frame, 1, **known), frame, 1).metadata["notes"]["dropped"][0]["site"]
        assert errors[first] <= 1.1 * min(errors.values())


def test_columns_of_new_tables_are_dropped(tmp_path, command):
    """The plan's encoding is used, also on the command line; what cannot be dropped is said without a traceback."""
    frame = mixed().drop(columns="flag")
    plan = kh.select(frame, 3, **QUICK)
    later = mixed(200).drop(columns="flag").replace({"colour": {"green": "red"}}).iloc[:, ::-1]
    fewer = kh.drop(plan, later, 1)
    assert fewer.domain.names == plan.domain.names
    assert set(fewer.names) < set(plan.names)
    plan.save(tmp_path / "plan.keyhole")
    later.to_csv(tmp_path / "later.csv", index=False)
    options = (tmp_path / "plan.keyhole", tmp_path / "later.csv", "--out", tmp_path / "fewer.keyhole")
    done = command("drop", *options, "-k", 1)
    assert done.code == 0, done.err
    assert f"dropped {fewer.metadata['notes']['dropped'][0]['site']}:" in done.out + done.err
    assert kh.load(tmp_path / "fewer.keyhole").names == fewer.names
    done = command("drop", *options, "-k", 3)
    assert done.code == 1
    assert "between 1 and 2 of the 3 sites" in done.err


def test_new_tables_are_read_with_the_words_of_the_plan(tmp_path, command):
    """In another order, and without one of them; a word that the plan does not know is a missing value."""
    plan = kh.select(mixed().drop(columns="flag"), 2, **QUICK)
    later = mixed(200).drop(columns="flag").replace({"colour": {"green": "red"}}).iloc[:, ::-1]
    again = plan.refit(later)
    assert again.domain.names == plan.domain.names
    assert again.names == plan.names
    assert kh.extend(plan, later, 1).names[:2] == plan.names
    plan.save(tmp_path / "plan.keyhole")
    later.to_csv(tmp_path / "later.csv", index=False)
    made = command("refit", tmp_path / "plan.keyhole", tmp_path / "later.csv", "--out", tmp_path / "again.keyhole")
    assert made.code == 0, made.err
    assert kh.load(tmp_path / "again.keyhole").domain.names == plan.domain.names
    with pytest.raises(DataError, match="the table lacks 'size'"):
        plan.refit(later.drop(columns="size"))
    unknown = later.assign(colour=["mauve", *later["colour"][1:]])
    with pytest.warns(ReadingsWarning, match="mauve"), pytest.raises(DataError, match="'colour': missing values"):
        plan.refit(unknown)


# One treatment ------------------------------------------------------------------------------------------------------


def test_estimators_and_select_see_the_same_table():
    """The same encoding, weights and groups; a plan of an estimator takes the same readings."""
    frame = mixed()
    selector = KeyholeSelector(3, random_state=0, **QUICK).fit(frame)
    assert selector.plan_.domain.names == kh.read(frame).sites.names
    assert selector.plan_.names == [frame.columns[at] for at in np.argsort(selector.ranking_)[:3]]
    assert list(selector.plan_.reconstruct(frame[selector.plan_.names].head(2)).columns) == list(frame.columns)


def test_columns_are_decoded_as_they_were_encoded():
    columns, frame = TableColumns.of(mixed()), mixed()
    found = pd.DataFrame(columns.decode(columns.encode(frame)))
    for name in ("colour", "shape"):
        assert found[name].tolist() == frame[name].tolist()
    np.testing.assert_array_equal(found["born"].to_numpy("datetime64[D]"), frame["born"].to_numpy("datetime64[D]"))
    np.testing.assert_array_equal(found["size"], frame["size"])
