"""The kernel exchange for a target: its surrogate against a fit by definition, and sites that only tell together."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.target import Target
from keyhole.models.kernels import Hyperparameters, kernel
from keyhole.placement.baselines.supervised import Relevance
from keyhole.placement.kernel_exchange import KernelExchange
from keyhole.placement.kernel_surrogate import FitScoreSplit, KernelSurrogate, LeaveOneOutSurrogate


def signs(n=400, m=8):
    """Columns of noise; the class is whether columns 2 and 5 have the same sign, which neither tells alone."""
    values = np.random.default_rng(0).normal(size=(n, m))
    return values, np.where(values[:, 2] * values[:, 5] > 0, "same", "other")


def with_target(values, target, **constraints):
    samples = kh.read(values.astype(np.float32)).with_target(Target.of(target))
    return samples.with_constraints(constraints).as_scaled() if constraints else samples.as_scaled()


def test_exchanges_find_sites_that_tell_a_class_only_together():
    samples = with_target(*signs())
    found = KernelExchange(n_restarts=2).select(samples, 2, validation=None, run=Run())
    assert sorted(found.sites.tolist()) == [2, 5]
    assert sorted(Relevance().select(samples, 2, validation=None, run=Run()).sites.tolist()) != [2, 5]


def test_existing_sites_are_observed_besides_the_selected_ones():
    samples = with_target(*signs(), existing=[5])
    assert KernelExchange(n_restarts=2).select(samples, 1, validation=None, run=Run()).sites.tolist() == [2]


@pytest.mark.parametrize("is_class", [True, False])
def test_the_score_is_that_of_kernel_ridge_on_the_columns_of_the_target(is_class):
    values, words = signs(90)
    target = words if is_class else values[:, 2] * values[:, 5] * 7 + 3
    samples, sites, parameters = with_target(values, target), [2, 5], Hyperparameters(2.0, 2.0, 0.1)
    data = FitScoreSplit.from_samples(samples, samples, 2, Run())
    columns = np.eye(2)[(words == "same").astype(int)] if is_class else np.asarray(target)[:, np.newaxis]
    columns = columns - columns.mean(axis=0)
    inputs = (values[:, sites] - values[:, sites].mean(axis=0)) / (values - values.mean(axis=0)).std()
    gram = kernel(inputs, inputs, parameters)
    dual = np.linalg.solve(gram + 0.1 * np.eye(90), columns)
    expected = np.square(columns - gram @ dual).sum() / np.square(columns).sum()
    assert KernelSurrogate(data, parameters)(sites) == pytest.approx(expected, rel=1e-3)
    left_out = dual / np.diag(np.linalg.inv(gram + 0.1 * np.eye(90)))[:, np.newaxis]
    expected = np.square(left_out).sum() / np.square(columns).sum()
    assert LeaveOneOutSurrogate(data, parameters)(sites) == pytest.approx(expected, rel=1e-3)
