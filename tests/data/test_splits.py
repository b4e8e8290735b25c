"""Splits: disjoint, complete, and refused where they cannot be had."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import keyhole as kh
from example_data import quick, smooth
from keyhole.data import splits
from keyhole.data.splits import Split
from keyhole.errors import DataError, SettingsError

SHARE = st.floats(0.05, 0.6)


def parts(split: Split) -> np.ndarray:
    return np.concatenate([split.train, split.validation, split.test])


@given(n=st.integers(6, 300), test=SHARE, validation=SHARE)
def test_blocks_are_contiguous_disjoint_and_complete(n, test, validation):
    split = Split.blocks(n, test=test, validation=validation)
    np.testing.assert_array_equal(parts(split), np.arange(n))
    splits.check(split, n)


@given(n=st.integers(6, 300), seed=st.integers(0, 2**32), test=SHARE, validation=SHARE)
def test_random_parts_are_disjoint_and_complete(n, seed, test, validation):
    split = Split.random(n, seed=seed, test=test, validation=validation)
    np.testing.assert_array_equal(np.sort(parts(split)), np.arange(n))
    splits.check(split, n)


def test_shares_are_of_the_whole_then_of_what_is_left():
    split = Split.blocks(100)
    assert [len(part) for part in (split.train, split.validation, split.test)] == [64, 16, 20]
    assert split.kind == "blocks"


def test_random_parts_depend_on_the_seed_alone():
    first, again, other = (Split.random(50, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(parts(first), parts(again))
    assert (parts(first) != parts(other)).any()
    assert first.kind == "random"


def test_the_global_generator_is_not_touched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 (the one that must stay as it is)
    Split.random(50, seed=3)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_development_is_train_then_validation():
    split = Split.blocks(10)
    np.testing.assert_array_equal(split.development, np.arange(8))


def test_given_indices_are_kept_and_validation_comes_off_the_end_of_train():
    split = Split.given([5, 3, 1, 0, 2], [9, 8])
    np.testing.assert_array_equal(split.train, [5, 3, 1, 0])
    np.testing.assert_array_equal(split.validation, [2])
    np.testing.assert_array_equal(split.test, [9, 8])


@pytest.mark.parametrize("validation", [[4, 5], (4, 5), np.array([4, 5])])
def test_given_validation_indices_are_kept(validation):
    np.testing.assert_array_equal(Split.given([0, 1], [2], validation).validation, [4, 5])


@pytest.mark.parametrize(
    ("train", "validation", "test", "says"),
    [
        ([], [1], [2], "train part is empty"),
        ([0], [], [2], "validation part is empty"),
        ([0], [1], [], "test part is empty"),
        ([0], [1], [10], "test part names samples outside 0 to 9"),
        ([-1], [1], [2], "train part names samples outside 0 to 9"),
        ([0, 1], [1], [2], "more than one part"),
        ([0, 0], [1], [2], "more than one part"),
    ],
)
def test_parts_that_cannot_be_used_are_refused(train, validation, test, says):
    with pytest.raises(DataError, match=says):
        splits.check(Split.given(train, test, np.array(validation, int)), 10)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_fewer_than_four_samples_cannot_be_split(n):
    with pytest.raises(DataError, match=f"{n} sample.*at least 4"):
        Split.blocks(n)


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, float("nan")])
@pytest.mark.parametrize("part", ["test", "validation"])
def test_a_share_outside_0_to_1_is_refused(part, share):
    with pytest.raises(SettingsError, match=re.escape(f"{part}={share}")):
        Split.blocks(20, **{part: share})


@pytest.mark.parametrize("share", [0, 1, 2.0])
def test_a_share_of_given_samples_is_checked_too(share):
    with pytest.raises(SettingsError, match=f"validation={share}"):
        Split.given([0, 1, 2], [3], share)


@pytest.mark.parametrize("wrong", [[0.5, 1.0], [True, False], ["a"]])
def test_indices_that_are_not_whole_numbers_are_refused(wrong):
    with pytest.raises(DataError, match=r"train must be.*whole numbers"):
        Split.given(wrong, [3])


@pytest.mark.parametrize("seed", [-1, 1.5])
def test_a_seed_that_is_no_whole_number_from_0_on_is_refused(seed):
    with pytest.raises(SettingsError, match=f"seed={seed}"):
        Split.random(10, seed=seed)


def test_many_samples_leave_all_but_enough_of_them_to_learn_from() -> None:
    assert len(Split.given(np.arange(60_000), [60_000]).validation) == 5000
    assert len(Split.given(np.arange(60_000), [60_000], 0.2).validation) == 12_000
    assert len(Split.random(100_000, seed=0).validation) == 5000
    assert len(Split.random(1000, seed=0).validation) == 160


def test_a_block_of_time_is_not_cut_short() -> None:
    assert len(Split.blocks(100_000).validation) == 16_000


TRAIN, VALIDATION, TEST = np.arange(20), np.arange(20, 30), np.arange(30, 40)


def flags(part: np.ndarray) -> np.ndarray:
    return np.isin(np.arange(40), part)


@pytest.mark.parametrize(
    "asked",
    [
        Split.given(TRAIN, TEST, VALIDATION),
        Split(list(TRAIN), tuple(VALIDATION), TEST),
        (TRAIN, VALIDATION, TEST),
        [list(TRAIN), list(VALIDATION), list(TEST)],
        (flags(TRAIN), flags(VALIDATION), flags(TEST)),
        {"train": TRAIN, "validation": VALIDATION, "test": TEST},
        {"test": flags(TEST), "train": flags(TRAIN), "validation": range(20, 30)},
    ],
)
def test_parts_are_taken_in_every_form(asked):
    plan = quick(smooth(40, 6), split=asked, intervals=False)
    assert plan.metadata["split"] == {"train": 20, "validation": 10, "test": 10, "kind": "given"}
    found = splits.as_split(asked, 40)
    assert found is not None
    np.testing.assert_array_equal(parts(found), np.arange(40))


@pytest.mark.parametrize("asked", [(TRAIN, TEST), {"train": TRAIN, "test": TEST}])
def test_validation_comes_off_the_end_of_train_where_it_is_not_given(asked):
    found = splits.as_split(asked, 40)
    assert found is not None
    np.testing.assert_array_equal(found.validation, np.arange(16, 20))


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ("halves", SettingsError, "split: 'halves' is not a split.*'blocks', 'random'"),
        (0.2, SettingsError, "split: 0.2 is not a split"),
        ((TRAIN,), SettingsError, "is not a split"),
        ((), SettingsError, "is not a split"),
        ({}, SettingsError, "a mapping of nothing is not a split"),
        ({"train": TRAIN}, SettingsError, "a mapping of 'train' is not a split"),
        ({"train": TRAIN, "test": TEST, "valid": [1]}, SettingsError, "'valid' is not a split"),
        ((TRAIN, [30.5]), DataError, "split: test must be.*whole numbers"),
        ((TRAIN, [[30, 31], [32]]), DataError, "split: test must be"),
        ((TRAIN, [40]), DataError, "outside 0 to 39"),
        ((TRAIN, [0]), DataError, "more than one part"),
        ((flags(TRAIN)[:-1], TEST), DataError, r"train is a boolean array of shape \(39,\).*40 samples"),
        (Split([0.5], [1], [2]), DataError, "train must be"),
    ],
)
@pytest.mark.parametrize("run", [quick, lambda data, split: kh.curve(data, [2], ["qr"], split=split)])
def test_what_is_no_split_is_refused(run, asked, error, says):
    with pytest.raises(error, match=says):
        run(smooth(40, 6), split=asked)


def test_constructors_are_public():
    np.testing.assert_array_equal(kh.Split.blocks(10).test, Split.blocks(10).test)
    np.testing.assert_array_equal(kh.Split.random(10, seed=3).test, Split.random(10, seed=3).test)
    np.testing.assert_array_equal(kh.Split.given(range(5), [6], [5]).validation, [5])


@given(n=st.integers(4, 120), ties=st.integers(1, 5), seed=st.integers(0, 99))
def test_blocks_of_time_are_complete_and_never_share_a_time(n, ties, seed):
    time = np.random.default_rng(seed).permutation(n) // ties
    if len(np.unique(time)) < 3:
        return
    split = Split.blocks(n, time=time)
    np.testing.assert_array_equal(np.sort(parts(split)), np.arange(n))
    splits.check(split, n)
    assert time[split.train].max() < time[split.validation].min()
    assert time[split.validation].max() < time[split.test].min()


@given(
    n=st.integers(4, 400), gap=st.integers(0, 60), ties=st.integers(1, 3), seed=st.integers(0, 99), test=SHARE,
    validation=SHARE,
)  # fmt: skip
def test_gaps_lie_between_blocks_and_take_at_most_a_twentieth(n, gap, ties, seed, test, validation):
    time = np.random.default_rng(seed).permutation(n) // ties
    if len(np.unique(time)) < 3:
        return
    split = Split.blocks(n, time=time, gap=gap, test=test, validation=validation)
    np.testing.assert_array_equal(np.sort(np.concatenate([parts(split), split.left_out])), np.arange(n))
    splits.check(split, n)
    assert len(split.left_out) <= 0.05 * n
    blocks = [np.unique(time[part]) for part in (split.train, split.validation, split.test)]
    for before, after in pairwise(blocks):
        assert before.max() < after.min()
        assert after.min() - before.max() - 1 <= gap
    if 2 * ties * gap <= 0.05 * n - 1 and len(blocks[0]) > 1:
        assert blocks[2].min() - blocks[1].max() - 1 == blocks[1].min() - blocks[0].max() - 1 == gap


def test_gaps_come_off_the_training_part():
    split = Split.blocks(200, gap=4)
    assert split.sizes() == {"train": 120, "validation": 32, "test": 40, "kind": "blocks", "left_out": 8, "gap": 4}
    np.testing.assert_array_equal(split.left_out, [120, 121, 122, 123, 156, 157, 158, 159])
    np.testing.assert_array_equal(split.development, [*range(120), *range(124, 156)])


@pytest.mark.parametrize("gap", [-1, 1.5, True])
def test_a_gap_that_is_no_number_of_samples_is_refused(gap):
    with pytest.raises(SettingsError, match=f"gap={gap}"):
        Split.blocks(20, gap=gap)


@given(
    sizes=st.lists(st.integers(1, 30), min_size=3, max_size=30).filter(lambda sizes: sum(sizes) >= 4),
    seed=st.integers(0, 99), test=SHARE, validation=SHARE,
)  # fmt: skip
def test_groups_are_whole(sizes, seed, test, validation):
    labels = np.random.default_rng(seed).permutation(np.repeat([f"g{i}" for i in range(len(sizes))], sizes))
    split = Split.groups(labels, seed=seed, test=test, validation=validation)
    np.testing.assert_array_equal(np.sort(parts(split)), np.arange(len(labels)))
    splits.check(split, len(labels))
    assert splits.divided_group(split, labels) is None


@given(
    sizes=st.lists(st.integers(1, 30), min_size=3, max_size=30).filter(lambda sizes: sum(sizes) >= 4),
    seed=st.integers(0, 99), gap=st.integers(0, 9),
)  # fmt: skip
def test_groups_that_are_spans_of_time_are_taken_in_order(sizes, seed, gap):
    rng = np.random.default_rng(seed)
    time = rng.permutation(sum(sizes))
    labels = np.repeat(rng.permutation(len(sizes)), sizes)[time]
    split = Split.groups(labels, time=time, gap=gap)
    assert time[split.train].max() < time[split.validation].min()
    assert time[split.validation].max() < time[split.test].min()
    assert splits.divided_group(split, labels) is None
    assert len(split.left_out) <= 0.05 * len(labels)


def test_groups_meet_the_shares_and_depend_on_the_seed_alone():
    labels = np.repeat(np.arange(50), 4)
    split, again, other = (Split.groups(labels, seed=seed) for seed in (1, 1, 2))
    assert split.sizes() == {"train": 128, "validation": 32, "test": 40, "kind": "groups"}
    np.testing.assert_array_equal(parts(split), parts(again))
    assert set(split.test) != set(other.test)
    assert sorted(len(part) for part in (split.train, split.validation, split.test)) == [32, 40, 128]


def test_a_large_group_is_in_the_training_part():
    labels = np.repeat([0, 1, 2, 3], [90, 4, 3, 3])
    assert all(0 in labels[Split.groups(labels, seed=seed).train] for seed in range(20))


@pytest.mark.parametrize(
    ("labels", "time", "says"),
    [
        ([0, 0, 1, 1], None, "2 groups of samples; at least three"),
        ([0, 1, 2], None, "3 samples: at least 4"),
        ([0, 1, 2, 0, 1, 2], np.arange(6), "groups overlap in time"),
        ([0, 0, 1, 1, 2, 2], np.arange(5), r"time of shape \(5,\) for 6 labels"),
    ],
)
def test_groups_that_cannot_be_split_are_refused(labels, time, says):
    with pytest.raises(DataError, match=says):
        Split.groups(labels, time=time)


@pytest.mark.parametrize("name", ["select", "compare", "curve", "extend", "drop"])
def test_the_command_line_takes_a_split(name, command, tmp_path):
    np.save(tmp_path / "data.npy", smooth(60, 6))
    plan, made = tmp_path / "plan.keyhole", tmp_path / "made.keyhole"
    quick(smooth(60, 6)).save(plan)
    given = [plan] if name in ("extend", "drop") else []
    method = {"compare": ["--methods", "qr"], "curve": ["--methods", "qr"], "drop": []}.get(name, ["--method", "qr"])
    rest = ["--reconstructor", "ridge", *method, *(["--out", made] if name in ("select", "extend", "drop") else [])]
    done = command(name, *given, tmp_path / "data.npy", "-k", 2, "--split", "blocks", *rest)
    assert done.code == 0, done.err
    if name in ("select", "extend", "drop"):
        assert kh.load(made).metadata["split"]["kind"] == "blocks"
    wrong = command(name, *given, tmp_path / "data.npy", "-k", 2, "--split", "halves", *rest)
    assert wrong.code == 2
    assert "auto, blocks, random or groups" in wrong.err


@given(n=st.integers(2, 60), n_folds=st.integers(2, 8), gap=st.integers(0, 4))
def test_each_sample_is_left_out_once_and_its_neighbours_are_not_fitted_to(n, n_folds, gap):
    rows = np.arange(n) + 100
    found = splits.folds(rows, n_folds, gap=gap)
    np.testing.assert_array_equal(np.concatenate([out for _, out in found]), rows)
    for fit, out in found:
        assert len(fit)
        assert not np.isin(fit, out).any()
        distance = np.abs(fit[:, np.newaxis] - out).min()
        assert distance > gap or len(fit) == n - len(out)


@given(labels=st.lists(st.integers(0, 5), min_size=4, max_size=40).filter(lambda labels: len(set(labels)) > 1))
def test_samples_of_a_group_are_left_out_together(labels):
    groups, rows = np.array(labels), np.arange(len(labels))
    for fit, out in splits.folds(rows, 3, gap=2, groups=groups):
        assert not set(groups[fit]) & set(groups[out])
        assert len(fit) + len(out) == len(rows)


def test_one_group_cannot_be_left_out():
    with pytest.raises(DataError, match="at least 2"):
        splits.folds(np.arange(5), 3, groups=np.zeros(5))


@pytest.mark.parametrize("split", [Split.blocks(80), Split.random(80), Split.groups(np.arange(80) // 4)])
def test_a_split_of_another_number_of_samples_is_refused(split):
    """A smaller one would leave samples out without a word."""
    with pytest.raises(DataError, match="of 80 samples, and there are 100"):
        kh.select(np.random.default_rng(0).normal(size=(100, 6)), k=2, method="qr", reconstructor="ridge", split=split)
