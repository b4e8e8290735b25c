"""Few samples: blocks left out in turn in place of one validation part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.data.target import Target
from keyhole.metrics import Ratio
from keyhole.models.blocks_in_turn import BlocksInTurn
from keyhole.models.reconstructors import Ridge, fit_best
from keyhole.models.reconstructors.errors import unexplained


def parts_of(n: int, *, series: bool = False):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(n, 6)) + rng.normal(size=(n, 1))
    values = values.cumsum(axis=0) if series else values
    return prepare(kh.read(values.astype(np.float32)), kh.Split.blocks(n) if series else "random", 0)


@pytest.mark.parametrize("series", [False, True])
def test_every_sample_is_left_out_once(series):
    parts = parts_of(125, series=series)
    blocks = BlocksInTurn.of(parts.train, parts.validation, Run())
    left_out = np.concatenate([out.rows for _, out in blocks.parts])
    assert sorted(left_out) == sorted(parts.split.development)
    for fit, out in blocks.parts:
        assert len(out) == pytest.approx(len(parts.split.development) / 5, abs=1)
        assert not set(fit.rows) & set(out.rows)
        assert fit.values.shape == (len(fit), 1, 6)
        if series:  # a gap of 5 % on each side, which a random walk asks for and more
            assert np.abs(fit.rows[:, np.newaxis] - out.rows).min() > 0.05 * len(parts.split.development)


def test_many_samples_and_very_few_have_one_validation_part():
    for n in (30, 900):
        parts = parts_of(n)
        assert BlocksInTurn.of(parts.train, parts.validation, Run()) is None


def test_samples_out_of_order_are_cut_in_order_of_time():
    parts = parts_of(125, series=True)
    n = len(parts.train)
    order = np.random.default_rng(1).permutation(n)
    time = np.datetime64("2000-01-01") + np.arange(n + len(parts.validation))
    train = replace(parts.train, time=time[:n]).take(order)
    blocks = BlocksInTurn.of(train, replace(parts.validation, time=time[n:]), Run())
    times = np.concatenate([out.time for _, out in blocks.parts])
    np.testing.assert_array_equal(times, time)


def with_classes(n: int, *, series: bool = False, **more):
    """Training and validation parts with a class of every fifth sample that the others are not of."""
    rng = np.random.default_rng(0)
    samples = kh.read(rng.normal(size=(n, 6)).astype(np.float32), **more)
    samples = samples.with_target(Target.of(np.where(np.arange(n) % 5, "many", "few")))
    return prepare(samples, kh.Split.blocks(n) if series else None, 0)


@pytest.mark.parametrize("series", [False, True])
def test_every_training_sample_is_left_out_once_beside_validation(series):
    parts = with_classes(400, series=series)
    train = replace(parts.train, ordered=series)
    blocks = BlocksInTurn.of_training(train, replace(parts.validation, ordered=series), Run()).parts
    assert sorted(np.concatenate([out.rows for _, out in blocks])) == sorted(parts.split.train)
    for fit, out in blocks:
        assert not set(fit.rows) & set(out.rows)
        assert set(parts.split.validation) <= set(fit.rows)
        assert len(out) == pytest.approx(len(train) / 4, abs=1)
    if not series:
        few = [int((out.target.values == 0).sum()) for _, out in blocks]
        assert max(few) - min(few) <= 1


def test_groups_and_copies_of_a_sample_are_left_out_together():
    parts = with_classes(400, groups=np.arange(400) // 10)
    for fit, out in BlocksInTurn.of_training(parts.train, parts.validation, Run()).parts:
        assert not set(fit.sample_groups) & set(out.sample_groups)
    parts = with_classes(400)
    twice = parts.train.take(np.tile(np.arange(len(parts.train)), 2))
    for fit, out in BlocksInTurn.of_training(twice, parts.validation, Run()).parts:
        assert not set(fit.rows) & set(out.rows)


def test_many_samples_with_a_target_and_very_few_have_one_validation_part():
    for n in (30, 4000):
        parts = with_classes(n)
        assert BlocksInTurn.of_training(parts.train, parts.validation, Run()) is None


def test_the_error_is_that_of_all_blocks():
    """By hand."""
    parts, sites = parts_of(60), np.array([0, 2])
    blocks = BlocksInTurn.of(parts.train, parts.validation, Run())

    def score(fit, out) -> Ratio:
        return unexplained(Ridge().fit(fit, sites, validation=out, run=Run()), sites, out)

    error, total = 0.0, 0.0
    for fit, out in blocks.parts:
        estimate = Ridge().fit(fit, sites, validation=out, run=Run()).reconstruct(out.readings(sites))
        error += np.square(out.values - estimate).sum()
        total += np.square(out.values).sum()
    assert blocks.error(score).value == pytest.approx(error / total, rel=1e-5)


def test_a_simple_reconstructor_is_not_replaced_for_what_chance_explains():
    """On independent sites nothing is better than ridge; a kernel that is better by luck is not taken."""
    parts = parts_of(100)
    chosen = fit_best(parts.train, np.array([0, 1]), validation=parts.validation, run=Run(deadline=0.0))
    assert chosen.name == "ridge"
    assert [row["by"] for row in chosen.tried] == ["ridge", "optimal_interpolation", "kernel"]
