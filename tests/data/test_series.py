"""Samples without a time: a series is detected, everything else is left as it is."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from example_data import quick, smooth
from keyhole.data.preparation import prepare
from keyhole.data.series import decorrelation_time, find_series
from keyhole.data.splits import Split


def autoregressive(n: int, cells: int, correlation: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    steps = np.sqrt(1 - correlation**2) * rng.normal(size=(n, cells))
    rows = [rng.normal(size=cells)]
    for step in steps[1:]:
        rows.append(correlation * rows[-1] + step)
    return np.array(rows)


def travelling(n: int, period: float, noise: float = 0.2) -> np.ndarray:
    phase = 2 * np.pi * (np.arange(40) / 20 - np.arange(n)[:, None] / period)
    return np.sin(phase) + noise * np.random.default_rng(1).normal(size=(n, 40))


def lorenz96(n: int, cells: int = 20) -> np.ndarray:
    def slope(x: np.ndarray) -> np.ndarray:
        return (np.roll(x, -1) - np.roll(x, 2)) * np.roll(x, 1) - x + 8

    x, rows = 8 + np.random.default_rng(2).normal(size=cells), []
    for _ in range(200 + n):
        middle = x + 0.025 * slope(x)
        x = x + 0.05 * slope(middle)
        rows.append(x)
    return np.array(rows[200:])


def months(n: int) -> np.ndarray:
    cycle = 3 * np.cos(2 * np.pi * np.arange(n) / 12)[:, None]
    return cycle + np.random.default_rng(3).normal(size=(n, 15))


def classes(count: int, each: int) -> np.ndarray:
    rng = np.random.default_rng(4)
    return np.repeat(2 * rng.normal(size=(count, 30)), each, axis=0) + rng.normal(size=(count * each, 30))


SERIES = {
    "a short autoregressive field": autoregressive(40, 30, 0.8),
    "an autoregressive field": autoregressive(300, 10, 0.6),
    "one cell": autoregressive(400, 1, 0.9),
    "a slow field under noise": autoregressive(1000, 40, 0.98) + np.random.default_rng(5).normal(size=(1000, 40)),
    "a random walk": np.random.default_rng(6).normal(size=(60, 5)).cumsum(axis=0),
    "a slow wave": travelling(120, 40.0, noise=0.05),
    "a wave": travelling(120, 9.5),
    "a wave that is hardly resolved": travelling(120, 3.0),
    "Lorenz-96": lorenz96(150),
    "months": months(120),
}
NO_SERIES = {
    "a few samples": autoregressive(20, 30, 0.99),
    "ten classes in order": classes(10, 40),
    "two classes in order": classes(2, 60),
    "a hundred classes in order": classes(100, 120),
    "duplicates in random order": classes(50, 6)[np.random.default_rng(7).permutation(300)].round(),
    "constant samples": np.zeros((100, 4)),
    "one that stands out": np.eye(100, 3) * 1e6,
}


@pytest.mark.parametrize("rows", SERIES.values(), ids=SERIES)
def test_a_series_is_found(rows):
    assert find_series(rows) is not None


@pytest.mark.parametrize("rows", NO_SERIES.values(), ids=NO_SERIES)
def test_what_is_no_series_is_not_taken_for_one(rows):
    assert find_series(rows) is None


@pytest.mark.parametrize("shape", [(28, 3), (60, 1), (150, 200), (700, 8)])
def test_samples_in_random_order_are_hardly_ever_taken_for_a_series(shape):
    rng = np.random.default_rng(8)
    draws = (rng.normal(size=shape), rng.exponential(size=shape) ** 3, rng.integers(2, size=shape))
    assert not any(find_series(np.asarray(draw, float)) for _ in range(10) for draw in draws)


def test_images_in_random_order_are_no_series():
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(9).permutation(len(digits.data))
    images, classes = digits.images[order], digits.target[order]
    assert prepare(kh.read(images), None, 0).split.kind == "random"
    assert prepare(kh.read(images[np.argsort(classes, kind="stable")]), None, 0).split.kind == "random"


def test_the_correlation_of_neighbours_is_reported():
    found = find_series(autoregressive(2000, 30, 0.8))
    assert found is not None
    assert found.correlation == pytest.approx(0.8, abs=0.05)
    assert f"{found.correlation:.2f}" in found.reason


def test_a_series_in_an_array_is_split_in_blocks_and_the_plan_says_so(command, tmp_path):
    wave = travelling(100, 9.5).reshape(100, 8, 5)
    plan = quick(wave)
    assert plan.metadata["split"]["kind"] == "blocks"
    assert "samples look like a series" in plan.metadata["split"]["reason"]
    plan.save(tmp_path / "wave.keyhole")
    shown = " ".join(command("info", tmp_path / "wave.keyhole").out.split())
    assert "split: blocks (samples look like a series" in shown
    np.testing.assert_array_equal(prepare(kh.read(wave), None, 0).split.test, np.arange(80, 100))


def test_random_overrules_what_looks_like_a_series_and_blocks_what_does_not():
    wave = travelling(100, 9.5)
    asked = quick(wave, split="random").metadata["split"]
    assert asked["kind"] == "random"
    assert "reason" not in asked
    assert quick(smooth(60, 4, 5)).metadata["split"]["kind"] == "random"
    assert quick(smooth(60, 4, 5), split="blocks").metadata["split"]["kind"] == "blocks"


def test_a_field_without_a_time_is_tested_too():
    import xarray as xr

    wave = xr.DataArray(travelling(100, 9.5), dims=("sample", "x"))
    assert quick(wave).metadata["split"]["kind"] == "blocks"


def test_tables_and_targets_are_never_taken_for_a_series():
    import pandas as pd

    from keyhole.data.target import Target

    wave = travelling(100, 9.5)
    assert quick(pd.DataFrame(wave)).metadata["split"]["kind"] == "random"
    told = kh.read(wave).with_target(Target.of(np.arange(100) % 2, name="parity"))
    assert prepare(told, None, 0).split.kind == "random"


def test_missing_values_and_units_do_not_hide_a_series():
    wave = np.stack([travelling(100, 9.5), 1e6 * np.random.default_rng(0).normal(size=(100, 40))], axis=-1)
    wave[np.random.default_rng(1).random(wave.shape) < 0.1] = np.nan
    signals = kh.read(wave, channels=-1, missing="model")
    assert prepare(signals, None, 0).split.kind == "blocks"


def test_selectors_know_that_samples_without_a_time_are_a_series():
    signals = prepare(kh.read(travelling(100, 9.5)), None, 0)
    assert signals.train.is_series
    assert not prepare(kh.read(smooth(60, 9)), None, 0).train.is_series
    assert prepare(kh.read(smooth(60, 9)), Split.blocks(60), 0).train.is_series


def test_a_series_leaves_on_later_samples_what_its_plan_says():
    """Random parts of a series have neighbours in train: what they leave is much less than what later samples do."""
    whole = lorenz96(700)
    known, later = whole[:400], whole[400:]

    def left(plan: kh.Plan) -> float:
        reconstructed = plan.reconstruct(later[:, plan.indices])
        return float(np.square(reconstructed - later).sum() / np.square(later - known.mean(axis=0)).sum())

    plan = kh.select(known, 6, method="greedy", reconstructor="kernel")
    drawn = kh.select(known, 6, method="greedy", reconstructor="kernel", split="random")
    assert plan.metrics["test"]["fvu"] == pytest.approx(left(plan), rel=0.25)
    assert drawn.metrics["test"]["fvu"] < 0.7 * left(drawn)


def test_the_decorrelation_time_is_that_of_an_autoregressive_process():
    assert decorrelation_time(autoregressive(5000, 4, 0.95)) == pytest.approx(-1 / np.log(0.95), rel=0.2)


def test_a_constant_series_decorrelates_at_once():
    assert decorrelation_time(np.ones((20, 2))) == 1
