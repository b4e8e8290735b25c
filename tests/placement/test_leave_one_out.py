"""The leave-one-out surrogate of kernel ridge, against refits without each sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from example_data import crossed
from keyhole.core.run import Run
from keyhole.models.kernels import Hyperparameters, kernel
from keyhole.placement.kernel_exchange import KernelExchange
from keyhole.placement.kernel_surrogate import FitScoreSplit, LeaveOneOutSurrogate


def left_out(inputs, targets, parameters):
    """What is left of each sample, from a fit to all others."""
    rows = np.arange(len(inputs))
    left = []
    for row in rows:
        others = inputs[rows != row]
        gram = kernel(others, others, parameters) + parameters.regularisation * np.eye(len(others))
        votes = np.linalg.solve(gram, targets[rows != row])
        left.append(targets[row] - (kernel(inputs[row : row + 1], others, parameters) @ votes)[0])
    return np.stack(left)


@pytest.mark.parametrize("even", [False, True])
def test_the_score_and_the_gains_are_those_of_samples_really_left_out(even):
    train, parameters, kept = crossed(80).train, Hyperparameters(2.0, 2.0, 0.1, even), [0, 2]
    data = FitScoreSplit.from_samples(train, train, 2, Run())
    score = LeaveOneOutSurrogate(data, parameters)
    cells = data.fitting[:, 0] / (data.fitting[:, 0].astype(float).std(axis=0) if even else data.level)
    whole = left_out(cells[:, kept], data.fitting[:, 0].astype(float), parameters)
    assert score(kept) == pytest.approx(np.square(whole).sum() / np.square(data.fitting).sum(), rel=1e-3)
    left, own = (left_out(cells[:, kept], part.astype(float), parameters) for part in (data.components[0], cells))
    expected = np.square(own.T @ left).sum(axis=1) / (np.square(own).sum(axis=0) + 1e-3 * len(own))
    np.testing.assert_allclose(score.gains(kept)[[1, 3, 4, 5]], expected[[1, 3, 4, 5]], rtol=1e-3)


def test_all_samples_score_where_they_are_few_and_no_series(monkeypatch):
    train, calls = crossed(300).train, []
    monkeypatch.setattr(LeaveOneOutSurrogate, "__call__", lambda self, sites: calls.append(sites) or 1.0)
    series = replace(train, time=np.arange(len(train)).astype("datetime64[D]").astype("datetime64[ns]"))
    for samples, most, used in ((train, len(train), True), (series, len(train), False), (train, len(train) - 1, False)):
        calls.clear()
        selector = KernelExchange(max_leave_one_out_samples=most, n_restarts=0)
        selector.improve(samples, [np.array([0, 1])], Run())
        assert bool(calls) == used
