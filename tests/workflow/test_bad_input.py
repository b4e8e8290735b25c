"""Bad input: each with its own clear error, and input that looks bad but works."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import keyhole as kh
from example_data import monthly_field, quick, smooth
from keyhole.data.splits import Split
from keyhole.errors import DataError, InfeasibleError, KeyholeError, SettingsError


def spoilt(value: float, where: tuple[int, ...] = (3, 1, 2)) -> np.ndarray:
    values = smooth(20, 4, 5)
    values[where] = value
    return values


REFUSED = {
    "no samples": (np.zeros((0, 4, 5)), "the data are empty: shape"),
    "no cells": (np.zeros((5, 0)), "the data are empty: shape"),
    "one axis": (np.zeros(5), r"shape \(5,\); \(samples, \*grid\) is needed"),
    "a number": (np.float64(5), "cannot read a float64"),
    "one sample": (smooth(1, 4, 5), "one sample; at least two are needed"),
    "two samples": (smooth(2, 4, 5), "2 samples: at least 4 are needed"),
    "constant": (np.full((20, 4, 5), 3.5), "the data are constant"),
    "constant in time": (np.repeat(smooth(1, 4, 5), 20, axis=0), "the data are constant"),
    "one NaN": (spoilt(np.nan), "1 of 20 sites have missing values .NaN. in some samples.*to impute them"),
    "one infinity": (spoilt(np.inf), "hold 1 infinite values; replace them first"),
    "minus infinity": (spoilt(-np.inf), "hold 1 infinite values; replace them first"),
    "all NaN": (np.full((20, 4, 5), np.nan), "every site is missing .NaN. in all samples"),
    "a sample of NaN": (spoilt(np.nan, (3,)), "20 of 20 sites have missing values"),
}


@pytest.mark.parametrize(("values", "says"), REFUSED.values(), ids=REFUSED)
def test_data_that_cannot_be_used_are_refused(values, says):
    with pytest.raises(DataError, match=says):
        quick(values)


def test_a_field_that_is_all_land_is_refused():
    with pytest.raises(DataError, match="no site is valid"):
        kh.read(monthly_field() * np.nan)


def test_a_training_part_that_never_changes_is_refused():
    values = np.zeros((30, 4))
    values[24:] = smooth(6, 4)
    frame = pd.DataFrame(values, index=pd.date_range("2000-01-01", periods=30))
    with pytest.raises(DataError, match="the training part is constant"):
        quick(frame, k=2)


def test_too_short_a_series_for_a_climatology_is_refused():
    with pytest.raises(DataError, match=r"no sample of month .*; a climatology needs all twelve"):
        quick(kh.read(monthly_field(13)).anomalies("month"))


@pytest.mark.parametrize("k", [0, -3, 21, 10**9])
def test_a_k_that_cannot_be_had_names_the_bounds(k):
    with pytest.raises(InfeasibleError, match=f"k={k} is infeasible: between 1 and 20 observable sites"):
        quick(smooth(20, 4, 5), k=k)


@pytest.mark.parametrize("k", [2.5, Fraction(7, 2), float("nan"), float("inf"), "3", True, [3]], ids=repr)
def test_a_k_that_is_no_whole_number_is_refused(k):
    with pytest.raises(InfeasibleError, match="expected a whole number of sites"):
        quick(smooth(20, 4, 5), k=k)


@pytest.mark.parametrize("k", [3, 3.0, np.int8(3), np.float32(3), Fraction(3)], ids=repr)
def test_a_k_that_is_a_whole_number_in_any_form_is_taken(k):
    assert quick(smooth(20, 4, 5), k=k).k == 3


def test_land_and_forbidden_sites_do_not_count_for_k():
    signals = kh.read(monthly_field())
    with pytest.raises(InfeasibleError, match="k=19 is infeasible: between 1 and 18 observable sites"):
        quick(signals, k=19)
    forbidden = np.ones((4, 5), bool)
    forbidden[2] = False
    with pytest.raises(InfeasibleError, match="k=14 is infeasible: between 1 and 13 observable sites"):
        quick(replace(signals, observable=forbidden), k=14)


def test_land_is_not_observable_whatever_a_mask_says():
    samples = kh.read(monthly_field())
    assert quick(replace(samples, observable=np.ones((4, 5), bool)), k=18).k == 18


@pytest.mark.parametrize(
    ("wrong", "says"), [(np.ones(19, bool), r"shape \(19,\)"), (np.ones((4, 5), int), "a boolean array is needed")]
)
def test_observable_must_be_a_mask_of_the_data(wrong, says):
    with pytest.raises(KeyholeError, match=f"observable: .*{says}"):
        quick(replace(kh.read(smooth(20, 4, 5)), observable=wrong))


@pytest.mark.parametrize("method", ["qr", "greedy", "variance", "random"])
class TestWorks:
    """Input that is odd but holds enough to choose and to rebuild."""

    def plan(self, method: str, values, k: int):
        plan = kh.select(values, k, method=method, reconstructor="ridge")
        assert plan.k == len(set(plan.indices.tolist())) == k
        assert (plan.numbers >= 0).all()
        assert np.isfinite(list(plan.metrics["test"].values())).all()
        assert np.isfinite(plan.gain).all()
        return plan

    def test_k_beyond_the_rank_of_the_data(self, method):
        rng = np.random.default_rng(0)
        plan = self.plan(method, rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20)), 10)
        assert plan.metrics["test"]["fvu"] < 1e-3

    def test_k_beyond_the_number_of_samples(self, method):
        self.plan(method, smooth(8, 5, 6), 25)

    def test_k_of_all_sites(self, method):
        plan = self.plan(method, smooth(30, 6), 6)
        assert plan.metrics["test"]["fvu"] < 1e-3

    def test_constant_sites(self, method):
        values = smooth(30, 6)
        values[:, [1, 4]] = 7
        plan = self.plan(method, values, 6)
        np.testing.assert_allclose(plan.reconstruct(values[:3, plan.indices])[:, 1], 7, rtol=1e-5)

    def test_duplicate_sites(self, method):
        values = smooth(30, 6)
        values[:, 3] = values[:, 0]
        self.plan(method, values, 5)

    def test_four_samples(self, method):
        self.plan(method, smooth(4, 4), 2)

    def test_one_site(self, method):
        self.plan(method, smooth(20, 1), 1)

    def test_one_observable_site(self, method):
        signals = kh.read(smooth(20, 4))
        only = np.array([False, False, True, False])
        assert self.plan(method, replace(signals, observable=only), 1).indices.tolist() == [2]

    @pytest.mark.parametrize("size", [1e-12, 1e12])
    def test_values_of_any_size(self, method, size):
        assert self.plan(method, smooth(30, 6) * size, 3).metrics["test"]["fvu"] < 0.1

    def test_a_large_offset(self, method):
        assert self.plan(method, smooth(30, 6) + 1e6, 3).metrics["test"]["fvu"] < 0.1

    def test_yes_and_no(self, method):
        self.plan(method, smooth(30, 6) > 0, 3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "magic"}, "method 'magic' is not known; there are random, "),
        ({"method": "qr", "settings": {"depth": 3}}, "method 'qr'.* no setting 'depth'"),
        ({"method": "qr", "reconstructor": "magic"}, "reconstructor 'magic' is not known; there are auto, ridge"),
        ({"method": "qr", "time_limit": 0}, "time_limit=0: expected a positive number of seconds"),
        ({"method": "qr", "seed": -1}, "seed=-1: a whole number from 0 on is needed"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options, says):
    with pytest.raises(SettingsError, match=says):
        kh.select(smooth(20, 4), 2, **options)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (([0, 1, 2], [3], [99]), "test part names samples outside 0 to 19"),
        (([0, 1, 2], [2], [5]), "more than one part"),
        (([0, 1, 2], [], [5]), "validation part is empty"),
    ],
)
def test_a_split_that_does_not_fit_the_data_is_refused(parts, says):
    with pytest.raises(DataError, match=says):
        quick(smooth(20, 4), split=Split(*(np.array(part, int) for part in parts)))


def test_every_error_is_a_keyhole_error_and_one_that_python_knows():
    known = {"StorageError": OSError, "TrainingError": RuntimeError}
    for name in ("DataError", "InfeasibleError", "SettingsError", "PlanError", *known):
        assert issubclass(getattr(kh.errors, name), KeyholeError)
        assert issubclass(getattr(kh.errors, name), known.get(name, ValueError))


@pytest.mark.parametrize("limit", ["x", "5", True, -1, float("nan"), 0, [5], np.bool_(True), 1j])
def test_a_time_limit_that_is_no_positive_number_is_refused(limit):
    from keyhole.sklearn import KeyholeSelector
    from keyhole.workflow.comparison import compare

    data = smooth(40, 6)
    plan = quick(data)
    calls = [
        lambda: kh.select(data, 2, method="qr", time_limit=limit),
        lambda: compare(data, 2, ["qr"], time_limit=limit),
        lambda: kh.curve(data, [2], ["qr"], time_limit=limit),
        lambda: kh.extend(plan, data, 1, method="qr", time_limit=limit),
        lambda: kh.drop(plan, data, 1, time_limit=limit),
    ]
    for call in calls:
        with pytest.raises(SettingsError, match=r"time_limit=.*: expected a positive number of seconds"):
            call()
    with pytest.raises(ValueError, match="time_limit"):
        KeyholeSelector(2, method="qr", time_limit=limit).fit(data)


@pytest.mark.parametrize("every", ["x", True, -1, float("nan")])
def test_an_interval_of_saves_that_is_no_number_is_refused(every):
    with pytest.raises(SettingsError, match=r"save_every=.*: expected a number of seconds"):
        kh.select(smooth(20, 4), 2, method="qr", save_every=every)


@pytest.mark.parametrize("limit", [5, np.float32(5), Fraction(5), float("inf")])
def test_a_time_limit_may_be_any_positive_number(limit):
    assert kh.select(smooth(20, 4), 2, method="qr", reconstructor="ridge", time_limit=limit).k == 2
