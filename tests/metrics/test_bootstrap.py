"""Standard errors of metrics against enumeration and against known ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from example_data import quick, smooth
from keyhole.metrics import Ratio, difference_error, standard_errors
from keyhole.metrics.bootstrap import block_length, resample, standard_error


def autoregressive(n: int, memory: float, rng: np.random.Generator, *, repeats: int = 1) -> np.ndarray:
    """AR(1) of unit variance, ``(n, repeats)``."""
    noise, series = rng.normal(size=(n, repeats)) * (1 - memory**2) ** 0.5, np.empty((n, repeats))
    series[0] = rng.normal(size=repeats)
    for i in range(1, n):
        series[i] = memory * series[i - 1] + noise[i]
    return series


def mean_of(values: np.ndarray) -> Ratio:
    return Ratio(values, np.ones(len(values)))


@pytest.mark.parametrize("length", [1, 2, 3])
def test_draws_scatter_as_all_that_there_are(rng, length):
    """Every sequence of two circular blocks, enumerated."""
    n = 2 * length
    part, whole = rng.exponential(size=n), rng.uniform(1, 2, size=n)
    blocks = [[(start + i) % n for i in range(length)] for start in range(n)]
    drawn = [np.concatenate(pair) for pair in product(blocks, repeat=2)]
    every = np.array([part[rows].sum() / whole[rows].sum() for rows in drawn])
    found = np.divide(*resample(np.stack([part, whole], axis=1), length).T)
    assert found.mean() == pytest.approx(every.mean(), rel=0.03)
    assert found.std() == pytest.approx(every.std(), rel=0.1)


def test_many_samples_are_drawn_in_longer_blocks_and_all_of_them(rng):
    sums = resample(np.ones((5001, 1)), 1)
    np.testing.assert_allclose(sums, 5001, rtol=1e-3)
    values = rng.normal(size=5001)
    assert standard_error(mean_of(values), is_series=False) == pytest.approx(5001**-0.5, rel=0.1)


def test_the_mean_of_independent_samples(rng):
    values = rng.exponential(size=50)
    expected = values.std(ddof=1) / 50**0.5
    assert standard_error(mean_of(values), is_series=False) == pytest.approx(expected, rel=0.07)


def test_the_mean_of_a_series_with_memory(rng):
    """Its variance is (1 + a) / (1 - a) / n, nine times that of independent samples."""
    memory, n = 0.8, 800
    series = autoregressive(n, memory, rng, repeats=40)
    found = np.array([standard_error(mean_of(one), is_series=True) for one in series.T])
    expected = ((1 + memory) / (1 - memory) / n) ** 0.5
    assert np.sqrt(np.square(found).mean()) == pytest.approx(expected, rel=0.15)
    as_independent = standard_error(mean_of(series[:, 0]), is_series=False)
    assert as_independent < 0.5 * expected


def test_errors_that_agree_on_which_samples_are_hard_differ_by_little(rng):
    hard = rng.exponential(size=200)
    one, other = mean_of(hard), mean_of(0.9 * hard + 0.01 * rng.normal(size=200))
    alone = standard_error(one, is_series=False)
    assert difference_error(one, other, is_series=False) == pytest.approx(0.1 * alone, rel=0.1)
    assert difference_error(one, one, is_series=False) == 0


def test_blocks_are_as_long_as_the_memory_asks(rng):
    series = autoregressive(2000, 0.9, rng)[:, 0]
    assert block_length(series, is_series=False) == 1
    assert 30 < block_length(series, is_series=True) < 100  # (1.5 * 2000 * 9.5 ** 2) ** (1 / 3) = 65
    assert block_length(np.arange(40.0), is_series=True) == 10


def test_one_sample_has_no_standard_error():
    one = Ratio(np.ones(1), np.ones(1), root=True)
    assert np.isnan(standard_error(one, is_series=True))
    assert standard_errors({"rmse": one}, is_series=True) == {}


def test_metrics_of_a_plan_have_standard_errors(tmp_path):
    import keyhole as kh

    plan = quick(smooth(40, 4, 5))
    for part in ("validation", "test"):
        scores = plan.metrics[part]
        assert 0 < scores["fvu_se"] < scores["fvu"]
        assert 0 < scores["rmse_se"] < scores["rmse"]
    plan.save(tmp_path / "plan.keyhole")
    assert kh.load(tmp_path / "plan.keyhole").metrics == plan.metrics


def test_samples_out_of_order_have_the_standard_error_of_those_in_order(rng):
    import xarray as xr

    import keyhole as kh

    values = autoregressive(120, 0.9, rng, repeats=4)
    time, order = np.datetime64("2000-01-01", "ns") + np.arange(120) * np.timedelta64(1, "D"), np.arange(120)
    order[80:] = rng.permutation(order[80:])
    split = kh.Split.given(train=range(60), validation=range(60, 80), test=range(80, 120))
    fields = (xr.DataArray(values[rows], {"time": time[rows]}, ("time", "x")) for rows in (np.arange(120), order))
    plans = [kh.select(field, 1, method="variance", reconstructor="ridge", split=split) for field in fields]
    one, other = (plan.metrics["test"]["fvu_se"] for plan in plans)
    assert one == pytest.approx(other, rel=1e-6)


def test_scores_of_a_target_have_standard_errors(rng):
    import pandas as pd

    import keyhole as kh

    x = rng.normal(size=(60, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    for answer, names in (
        (x[:, 0] + rng.normal(size=60), ("rmse", "fvu")),
        (np.where(x[:, 0] > 0, "up", "down"), ("error",)),
    ):
        plan = kh.select(frame.assign(y=answer), 2, target="y", method="relevance", predictor="linear")
        for name in names:
            assert plan.metrics["test"][f"target_{name}_se"] >= 0


def test_groups_are_drawn_together(rng):
    """Ten stations with twenty samples each that are the same: ten samples, not two hundred."""
    errors, groups = np.repeat(rng.exponential(size=10), 20), np.repeat(np.arange(10), 20)
    ratio = mean_of(errors)
    together = ratio.over(groups)
    assert together.value == pytest.approx(ratio.value)
    assert standard_error(together, is_series=False) == pytest.approx(errors[::20].std(ddof=1) / 10**0.5, rel=0.1)
    assert standard_error(ratio, is_series=False) < 0.3 * standard_error(together, is_series=False)
