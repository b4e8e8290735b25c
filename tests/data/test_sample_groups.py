"""Groups of samples: named by a column, a coordinate or labels, which go by name where they have names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import keyhole as kh
from example_data import left_in_file, quick, smooth
from keyhole.data.preparation import prepare
from keyhole.errors import DataError
from keyhole.models.reconstructors import OptimalInterpolation

SUBJECTS = np.repeat(["Ada", "Bo", "Cy", "Di", "Ed"], 8)


@pytest.fixture
def table() -> pd.DataFrame:
    return pd.DataFrame(smooth(40, 6), columns=list("abcdef")).assign(subject=SUBJECTS)


@pytest.fixture
def ensemble(rng) -> xr.DataArray:
    """Five members of a field; their model is a coordinate too."""
    values = rng.normal(size=(5, 12, 3, 2)).astype(np.float32)
    axes = {"member": [3, 1, 4, 5, 2], "time": pd.date_range("2001-01", periods=12, freq="MS")}
    model = ("member", ["x", "x", "y", "z", "z"])
    return xr.DataArray(values, axes | {"model": model}, ("member", "time", "y", "x"), name="t")


def assert_whole(samples: kh.data.Samples, split: kh.Split | None = None) -> None:
    found = prepare(samples, split, 0).split
    sets = [set(samples.sample_groups[part].tolist()) for part in (found.train, found.validation, found.test)]
    assert sum(map(len, sets)) == len(set.union(*sets)) == len(set(samples.sample_groups.tolist()))


@pytest.mark.parametrize("ending", ["frame", "csv", "parquet"])
def test_a_column_of_a_table_names_groups_and_is_no_site(table, tmp_path, ending):
    source: object = table
    if ending == "csv":
        table.to_csv(source := tmp_path / "table.csv", index=False)
    elif ending == "parquet":
        table.to_parquet(source := tmp_path / "table.parquet")
    samples = kh.read(source, groups="subject")
    assert samples.sites.names == tuple("abcdef")
    np.testing.assert_array_equal(samples.sample_groups, SUBJECTS)
    assert_whole(samples)


def test_a_numeric_column_that_was_read_is_no_site_any_more(table):
    numbered = kh.read(table.assign(subject=np.arange(40) // 8)).with_groups("subject")
    assert numbered.sites.names == tuple("abcdef")
    np.testing.assert_array_equal(numbered.sample_groups, np.arange(40) // 8)


def test_an_index_of_rows_names_groups(table):
    np.testing.assert_array_equal(kh.read(table.set_index("subject"), groups="subject").sample_groups, SUBJECTS)
    several = table.assign(session=np.arange(40)).set_index(["subject", "session"])
    np.testing.assert_array_equal(kh.read(several, groups="subject").sample_groups, SUBJECTS)


def test_members_of_an_ensemble_stay_together_if_asked(ensemble, tmp_path):
    samples = kh.read(ensemble, samples=("member", "time"))
    assert samples.sample_groups is None
    assert prepare(samples, None, 0).split.kind == "blocks"
    by_member = kh.read(ensemble, samples=("member", "time"), groups="member")
    np.testing.assert_array_equal(by_member.sample_groups, np.repeat([3, 1, 4, 5, 2], 12))
    assert prepare(by_member, None, 0).split.kind == "groups"
    assert_whole(by_member)
    np.testing.assert_array_equal(samples.with_groups("model").sample_groups, np.repeat(list("xxyzz"), 12))
    ensemble.to_netcdf(tmp_path / "members.nc")
    stored = left_in_file(tmp_path / "members.nc", samples=("member", "time"))
    np.testing.assert_array_equal(stored.with_groups("member").sample_groups, by_member.sample_groups)
    plan = quick(stored, groups="member")
    assert plan.metadata["split"] == quick(by_member).metadata["split"]
    bare = kh.read(ensemble.drop_vars(["member", "model"]), samples=("member", "time"), groups="member")
    np.testing.assert_array_equal(bare.sample_groups, np.repeat(np.arange(5), 12))


def test_a_coordinate_of_several_files_names_groups(ensemble, tmp_path):
    field = ensemble[0].assign_coords(cruise=("time", np.repeat(["b", "a", "c"], 4)))
    field[8:].to_netcdf(tmp_path / "1.nc")
    field[:8].to_netcdf(tmp_path / "2.nc")
    np.testing.assert_array_equal(kh.read(tmp_path, groups="cruise").sample_groups, field.cruise)


def test_labels_with_names_go_by_them(table, ensemble):
    shuffled = table.sample(frac=1, random_state=0)
    read = kh.read(shuffled.drop(columns="subject"), groups=table["subject"])
    np.testing.assert_array_equal(read.sample_groups, shuffled["subject"])
    assert read.groups_name == "subject"
    samples = kh.read(ensemble, samples=("member", "time"))
    kinds = xr.DataArray(list("abcde"), {"member": [1, 2, 3, 4, 5]}, ("member",))
    np.testing.assert_array_equal(samples.with_groups(kinds).sample_groups, np.repeat(list("cadeb"), 12))
    seasons = pd.Series(np.arange(12) // 4, ensemble.indexes["time"])[::-1]
    np.testing.assert_array_equal(samples.with_groups(seasons).sample_groups, np.tile(np.arange(12) // 4, 5))
    np.testing.assert_array_equal(samples.with_groups("time").sample_groups, samples.time)


def test_labels_without_names_are_taken_in_order(table):
    plain = kh.read(table.drop(columns="subject"))
    for labels in (SUBJECTS, SUBJECTS.tolist(), pd.Categorical(SUBJECTS), SUBJECTS.astype(object)):
        np.testing.assert_array_equal(plain.with_groups(labels).sample_groups, SUBJECTS)
    assert plain.with_groups(SUBJECTS).with_groups(None).sample_groups is None
    np.testing.assert_array_equal(plain.with_groups(SUBJECTS).take(np.array([9, 0])).sample_groups, ["Bo", "Ada"])


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ("name", "no column or coordinate 'name'; there are index, a, b, c, d"),
        (SUBJECTS[:9], r"one label for each of 40 samples is needed, not shape \(9,\)"),
        ([*SUBJECTS[:39], None], "1 labels are missing"),
        ([*SUBJECTS[:38], "", ""], "2 labels are missing"),
        (np.where(np.arange(40) < 3, np.nan, 1.0), "3 labels are missing"),
        (pd.array([pd.NA] * 4 + ["a"] * 36, dtype="string"), "4 labels are missing"),
        (pd.Series(SUBJECTS, index=np.arange(1, 41)), "no value for the sample with index 0"),
        (pd.Series(SUBJECTS, index=np.minimum(np.arange(40), 38)), "more than one value for the sample with index 38"),
        (np.ones(40, complex), "labels of type complex128"),
        (np.arange(40) > 4, "2 groups of samples; at least three"),
    ],
)
def test_what_is_no_group_is_refused(table, groups, says):
    with pytest.raises(DataError, match=says):
        quick(table.drop(columns="subject"), groups=groups)


def test_missing_names_in_a_column_are_refused(table, tmp_path):
    table.assign(subject=["", *SUBJECTS[1:]]).to_csv(tmp_path / "table.csv", index=False)
    with pytest.raises(DataError, match="1 labels are missing"):
        kh.read(tmp_path / "table.csv", groups="subject")


def test_groups_count_whatever_split_is_asked_for(table):
    samples = kh.read(table, groups="subject")
    for split in ("random", "groups", kh.Split.groups(SUBJECTS, seed=5)):
        assert_whole(samples, split)
    with pytest.raises(DataError, match="samples of group 'Cy' are in more than one part"):
        quick(samples, split=(range(20), range(20, 30), range(30, 40)))
    with pytest.raises(DataError, match="the samples have no groups"):
        quick(smooth(40, 6), split="groups")


def test_groups_that_are_spans_of_time_are_blocks():
    time = pd.date_range("2001-01-01", periods=60, freq="D")
    field = xr.DataArray(smooth(60, 5).cumsum(axis=0), {"time": time}, ("time", "x"))
    cruises = kh.read(field).with_groups(np.arange(60) // 6)
    found = prepare(cruises, None, 0).split
    assert (found.kind, found.reason) == ("groups", "10 groups")
    assert found.train.max() < found.left_out[0] < found.validation.min() < found.test.min()
    assert found.test.tolist() == list(range(48, 60))
    overlapping = cruises.with_groups(np.arange(60) % 6)
    assert_whole(overlapping)
    with pytest.raises(DataError, match="groups overlap in time"):
        prepare(overlapping, "blocks", 0)


def test_a_data_sets_own_split_gives_way_to_groups():
    digits = kh.datasets.digits()
    assert_whole(digits.with_groups(np.arange(len(digits)) % 50))
    blocks = digits.with_groups((np.arange(len(digits)) >= 1149) + (np.arange(len(digits)) >= 1437) * 1)
    assert prepare(blocks, None, 0).split.kind == "given"


def test_hyperparameters_are_chosen_by_whole_groups():
    """Members share their noise: folds that cut them would find that no regularisation is needed."""
    rng = np.random.default_rng(0)
    subjects = np.tile(np.arange(12), 10)
    values = rng.normal(size=(12, 30))[subjects] + 0.01 * rng.normal(size=(120, 30))
    drawn, whole = (
        kh.select(
            values, 3, method="qr", reconstructor=OptimalInterpolation(length=np.inf), groups=groups, intervals=False,
            split=(subjects < 8, (subjects >= 8) & (subjects < 10), subjects >= 10),
        )
        for groups in (None, subjects)
    )  # fmt: skip
    assert whole.reconstructor.chosen["strength"] > drawn.reconstructor.chosen["strength"]
    assert whole.metrics["test"]["fvu"] < drawn.metrics["test"]["fvu"]
