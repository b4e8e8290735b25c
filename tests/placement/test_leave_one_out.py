"""Kernel ridge that judges by samples left out, against really leaving them out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from keyhole.core.run import Run
from keyhole.models.reconstructors.kernel_ridge import Shape, kernel
from keyhole.placement.fit_score_split import FitScoreSplit
from keyhole.placement.kernel_surrogate import KernelSurrogate
from keyhole.placement.leave_one_out import _LEAST_NOISE, LeaveOneOutSurrogate, leave_one_out_surrogate
from keyhole.placement.random_features import RandomFeatureSurrogate
from samples import crossed


def left_out(inputs, targets, shape):
    """What is left of each sample, from a fit to all others."""
    rows = np.arange(len(inputs))
    left = []
    for row in rows:
        others = inputs[rows != row]
        gram = kernel(others, others, shape) + shape.strength * np.eye(len(others))
        votes = np.linalg.solve(gram, targets[rows != row])
        left.append(targets[row] - (kernel(inputs[row : row + 1], others, shape) @ votes)[0])
    return np.stack(left)


@pytest.mark.parametrize("even", [False, True])
def test_the_score_and_the_gains_are_those_of_samples_really_left_out(even):
    train, shape, kept = crossed(80).train, Shape(2.0, 2.0, 0.1, even), [0, 2]
    data = FitScoreSplit.of(train, train, 2, Run())
    score = LeaveOneOutSurrogate(data, shape)
    cells = data.fitting[:, 0] / (data.fitting[:, 0].astype(float).std(axis=0) if even else score.level)
    whole = left_out(cells[:, kept], data.fitting[:, 0].astype(float), shape)
    assert score(kept) == pytest.approx(np.square(whole).sum() / np.square(data.fitting).sum(), rel=1e-3)
    left, own = (left_out(cells[:, kept], part.astype(float), shape) for part in (data.components[0], cells))
    expected = np.square(own.T @ left).sum(axis=1) / (np.square(own).sum(axis=0) + _LEAST_NOISE * len(own))
    found = score.gains([*kept, 5], without=2)
    np.testing.assert_allclose(found[[1, 3, 4, 5]], expected[[1, 3, 4, 5]], rtol=1e-3)
    assert np.isneginf(found[kept]).all()


def test_all_samples_judge_where_they_are_few_and_no_series(monkeypatch):
    train = crossed(80).train
    data = FitScoreSplit.of(train, None, 2, Run())
    by_kernel = KernelSurrogate(data, Shape(2.0, 2.0, 0.1))
    other = RandomFeatureSurrogate.fit_surrogate(data, np.array([0, 2]), Run())
    series = replace(train, time=np.arange(len(train)).astype("datetime64[D]").astype("datetime64[ns]"))
    assert isinstance(leave_one_out_surrogate(by_kernel, train, 2, Run()), LeaveOneOutSurrogate)
    assert leave_one_out_surrogate(by_kernel, series, 2, Run()) is by_kernel
    assert leave_one_out_surrogate(other, train, 2, Run()) is other
    monkeypatch.setattr("keyhole.placement.leave_one_out._MOST_SAMPLES", len(train) - 1)
    assert leave_one_out_surrogate(by_kernel, train, 2, Run()) is by_kernel
