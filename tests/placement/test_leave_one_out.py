"""The leave-one-out surrogate of kernel ridge, against refits without each sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr

import keyhole as kh
from example_data import crossed
from keyhole.core.run import Run
from keyhole.models.kernels import Hyperparameters, kernel
from keyhole.placement.classical import Greedy
from keyhole.placement.kernel_exchange import KernelExchange
from keyhole.placement.kernel_surrogate import FitScoreSplit, KernelSurrogate, LeaveOneOutSurrogate


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
def test_the_score_is_that_of_samples_really_left_out(even):
    train, parameters, kept = crossed(80).train, Hyperparameters(2.0, 2.0, 0.1, even), [0, 2]
    data = FitScoreSplit.from_samples(train, train, 2, Run())
    score = LeaveOneOutSurrogate(data, parameters)
    cells = data.fitting[:, 0] / (data.fitting[:, 0].astype(float).std(axis=0) if even else data.level)
    whole = left_out(cells[:, kept], data.fitting[:, 0].astype(float), parameters)
    assert score(kept) == pytest.approx(np.square(whole).sum() / np.square(data.fitting).sum(), rel=1e-3)


@pytest.mark.parametrize("even", [False, True])
def test_the_gains_are_slopes_of_the_score_divided_by_what_a_site_adds_to_the_variance(even):
    """Against a difference: the site's values, times a small number, are one more reading."""
    train, parameters, kept, little = crossed(80).train, Hyperparameters(2.0, 2.0, 0.1, even), [0, 2], 1e-6
    data = FitScoreSplit.from_samples(train, train, 2, Run())
    sites = (data.fitting[:, 0] / (data.fitting[:, 0].std(axis=0) if even else data.level)).astype(float)
    outputs = data.outputs[0].astype(float)

    def error(site: int, weight: float) -> float:
        inputs = sites[:, [*kept, site]] * np.array([1.0, 1.0, weight**0.5])
        inverse = np.linalg.inv(kernel(inputs, inputs, parameters) + parameters.regularisation * np.eye(len(sites)))
        return float(np.square(inverse @ outputs / np.diag(inverse)[:, np.newaxis]).sum())

    gram = kernel(sites[:, kept], sites[:, kept], parameters)
    inverse = np.linalg.inv(gram + parameters.regularisation * np.eye(len(sites)))
    decay = np.exp(-np.sqrt(3 * cdist(sites[:, kept], sites[:, kept], "sqeuclidean") / parameters.width))
    unit = 3 / parameters.width * decay.mean() + 0.3 / parameters.level
    others = [1, 3, 4, 5]
    slopes = np.array([(error(site, 0.0) - error(site, little)) / little for site in others])
    added = np.array([unit * sites[:, site] @ inverse @ sites[:, site] for site in others])
    np.testing.assert_allclose(
        LeaveOneOutSurrogate(data, parameters).gains(kept)[others], slopes / (1 + added), rtol=0.02
    )


def test_the_gains_order_sites_as_the_score_does_once_they_are_observed():
    samples = kh.datasets.load("digits").take(np.arange(300)).as_scaled()
    kept = Greedy().select(samples, 10, validation=None, run=Run()).sites.tolist()
    data = FitScoreSplit.from_samples(samples, samples, 10, Run())
    score = LeaveOneOutSurrogate(data, KernelSurrogate.fit(data, np.array(kept)).parameters)
    others = [site for site in np.flatnonzero(samples.values.std(axis=(0, 1))) if site not in kept]
    true = [score(kept) - score([*kept, site]) for site in others]
    assert spearmanr(score.gains(kept)[others], true).statistic > 0.9


def test_all_samples_score_where_they_are_few_and_no_series(monkeypatch):
    train, calls = crossed(300).train, []
    monkeypatch.setattr(LeaveOneOutSurrogate, "__call__", lambda self, sites: calls.append(sites) or 1.0)
    series = replace(train, time=np.arange(len(train)).astype("datetime64[D]").astype("datetime64[ns]"))
    for samples, most, used in ((train, len(train), True), (series, len(train), False), (train, len(train) - 1, False)):
        calls.clear()
        selector = KernelExchange(max_leave_one_out_samples=most, n_restarts=0)
        selector.improve(samples, [np.array([0, 1])], Run())
        assert bool(calls) == used
