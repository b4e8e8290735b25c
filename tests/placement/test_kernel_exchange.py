"""Kernel exchange, and the non-linear surrogate behind it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import keyhole as kh
from example_data import crossed, stops_after
from keyhole.core.errors import SettingsError
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.models.kernels import Hyperparameters, kernel, scale_of
from keyhole.models.reconstructors.kernel_ridge import Kernel
from keyhole.placement import SELECTORS
from keyhole.placement.kernel_exchange import KernelExchange, SurrogateObjective
from keyhole.placement.kernel_surrogate import FitScoreSplit, KernelSurrogate, LeaveOneOutSurrogate
from keyhole.placement.scorer import Scorer


def straight(n=300, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 4)) @ rng.normal(size=(4, 12)) + 0.1 * rng.normal(size=(n, 12))
    return prepare(kh.read(values.astype(np.float32)), None, seed=0)


def test_kernel_exchange_finds_sites_that_linear_methods_pass_over():
    """The wave explains most linearly; the causes explain everything, once the estimate may bend."""
    train = crossed().train
    greedy = SELECTORS["greedy"]().select(train, 2, validation=None, run=Run())
    assert set(greedy.sites.tolist()) & {2, 3}
    found = SELECTORS["kernel_exchange"]().select(train, 2, validation=None, run=Run())
    assert set(found.sites.tolist()) == {0, 1}
    assert found.notes["exchanges"] >= 1
    assert found.notes["nonlinearity"] < 0.98


def test_auto_keeps_what_kernel_exchange_found():
    parts = crossed()
    selector = SELECTORS["auto"](stages=("greedy", "kernel_exchange"))
    found = selector.select(parts.train, 2, validation=parts.validation, run=Run())
    assert set(found.sites.tolist()) == {0, 1}
    assert found.notes["chosen"] == "kernel_exchange"
    assert found.notes["scores"]["kernel_exchange"] < 0.5 * found.notes["scores"]["greedy"]


def test_where_samples_are_linear_the_sites_stay():
    train = straight().train
    greedy = SELECTORS["greedy"]().select(train, 3, validation=None, run=Run())
    found = SELECTORS["kernel_exchange"]().select(train, 3, validation=None, run=Run())
    np.testing.assert_array_equal(found.sites, greedy.sites)
    assert found.notes["exchanges"] == 0


def test_no_time_leaves_the_start():
    train = crossed().train
    found = SELECTORS["kernel_exchange"]().select(train, 2, validation=None, run=Run(deadline=0.0))
    greedy = SELECTORS["greedy"]().select(train, 2, validation=None, run=Run())
    assert set(found.sites.tolist()) == set(greedy.sites.tolist())


@pytest.mark.parametrize("looks", [1, 2, 4])
def test_kernel_exchange_cut_short_leaves_no_more_than_greedy(looks):
    """By the score that they go by, wherever the time limit cuts in."""
    train, start = crossed(300).train, np.array([2, 4])
    found = KernelExchange().improve(train, [start], stops_after(looks))
    fitted = KernelSurrogate.fit(FitScoreSplit.from_samples(train, None, 2, Run()), start)
    score = LeaveOneOutSurrogate(FitScoreSplit.from_samples(train, train, 2, Run()), fitted.parameters)
    assert score(found.sites) <= score(start)


def test_the_linear_score_is_that_of_ridge():
    """Computed on all cells, in double precision, with the penalty on every column, at the best strength."""
    parts = straight()
    data = FitScoreSplit.from_samples(parts.train, parts.validation, 3, Run())
    score, sites = KernelSurrogate(data, Hyperparameters(1.0, 1.0, 0.1)), [1, 4, 7]
    taught, judged = (part[:, 0] for part in (data.fitting, data.scoring))
    level = taught.std()
    design, seen = (np.c_[np.ones(len(part)), part[:, sites] / level] for part in (taught, judged))
    gram = design.T @ design
    fits = (np.linalg.solve(gram + a * len(design) * np.eye(4), design.T @ taught) for a in (1e-3, 1e-2, 1e-1, 1.0))
    expected = min(np.square(judged - seen @ weights).sum() for weights in fits) / np.square(judged).sum()
    assert score.linear_error(sites).value == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("even", [False, True])
def test_the_kernel_score_is_that_of_the_kernel_reconstructor(even):
    """Of the same parameters, on all cells."""
    parts, sites = crossed(150), [0, 2]
    data, parameters = (
        FitScoreSplit.from_samples(parts.train, parts.validation, 2, Run()),
        Hyperparameters(2.0, 2.0, 0.1, even),
    )
    score, fitted = KernelSurrogate(data, parameters), Kernel()
    spread = scale_of(data.fitting[:, 0, sites].astype(float), even)
    fitted.parameters, fitted.channels, fitted.domain = parameters, 1, parts.train.sites
    fitted.scale = spread if even else spread * data.level
    fitted.inputs, fitted.mean = data.fitting[:, 0, sites] / fitted.scale, np.zeros(6, np.float32)
    gram = kernel(fitted.inputs, fitted.inputs, parameters) + parameters.regularisation * np.eye(len(fitted.inputs))
    fitted.dual_coefficients = np.linalg.solve(gram, data.fitting[:, 0])
    left = data.scoring[:, 0] - fitted.reconstruct(data.scoring[:, :, sites].transpose(0, 2, 1))[:, 0]
    assert score(sites) == pytest.approx(np.square(left).sum() / np.square(data.scoring).sum(), rel=1e-3)


def test_a_cell_that_never_changes_among_those_that_teach_is_harmless():
    """Not centred among them, as where it is another mean that is taken off; its spread is zero but for rounding."""
    parts = crossed(150)
    data = FitScoreSplit.from_samples(parts.train, parts.validation, 2, Run())
    data.readings[0][:, 0, 5] = np.float32(-1 / 3)
    score = KernelSurrogate(data, Hyperparameters(2.0, 2.0, 0.1, standardised=True))
    assert score([0, 2, 5]) == pytest.approx(score([0, 2]), rel=0.1)


@pytest.mark.parametrize("even", [False, True])
def test_the_gains_of_the_kernel_are_slopes_of_its_error_divided_by_the_variance_a_site_adds(even):
    """Against a difference: the cell's values, times a small number, are one more reading."""
    parts, kept = crossed(150), [0, 2]
    data, parameters = (
        FitScoreSplit.from_samples(parts.train, parts.validation, 2, Run()),
        Hyperparameters(2.0, 2.0, 0.01, even),
    )
    score, little = KernelSurrogate(data, parameters), 1e-7
    spread = data.fitting[:, 0].astype(float).std(axis=0) if even else data.level
    taught, judged = data.fitting[:, 0] / spread, data.scoring[:, 0] / spread

    def left(cell: int, counts: float) -> float:
        scales = np.array([1.0, 1.0, counts**0.5])
        inputs, others = (part[:, [*kept, cell]] * scales for part in (taught, judged))
        gram = kernel(inputs, inputs, parameters) + parameters.regularisation * np.eye(len(inputs))
        told = kernel(others, inputs, parameters) @ np.linalg.solve(gram, score.fitting.astype(float))
        return float(np.square(score.scoring - told).sum())

    gram = kernel(taught[:, kept], taught[:, kept], parameters)
    inverse = np.linalg.inv(gram + parameters.regularisation * np.eye(len(taught)))
    decay = np.exp(-np.sqrt(3 * cdist(taught[:, kept], taught[:, kept], "sqeuclidean") / parameters.width))
    unit = 3 / parameters.width * decay.mean() + 0.3 / parameters.level
    others = [1, 3, 4, 5]
    slopes = np.array([(left(cell, 0.0) - left(cell, little)) / little for cell in others])
    added = np.array([unit * taught[:, cell] @ inverse @ taught[:, cell] for cell in others])
    np.testing.assert_allclose(score.gains(kept)[others], slopes / (1 + added), rtol=2e-2)


def test_samples_in_time_are_scored_by_the_last_of_them():
    data = kh.datasets.sst().take(np.arange(90)).with_weights(None).as_scaled()
    split = FitScoreSplit.from_samples(data, None, 2, Run())
    last = data.targets[60:] - data.targets[:60].mean(axis=0)
    np.testing.assert_allclose(split.scoring, last, atol=1e-4)


def test_gains_are_largest_where_most_is_unexplained_and_none_for_selected_sites():
    parts = crossed()
    data = FitScoreSplit.from_samples(parts.train, parts.validation, 2, Run())
    objective = SurrogateObjective(KernelSurrogate.fit(data, np.array([0, 1])), np.array([0, 1, 2, 4, 5]), n_scored=2)
    objective.add(0)
    gains = objective.gains()
    assert np.isneginf(gains[0])
    assert gains[[1, 2]].min() > 10 * gains[[3, 4]].max()
    objective.add(1)
    np.testing.assert_array_equal(objective.gains_without(1), gains)


def test_the_surrogate_is_nonlinear_where_that_leaves_clearly_less():
    """The causes leave next to nothing of the wave, which no linear estimate sees."""
    bent, plain = crossed(), straight()
    sites = np.array([0, 1])
    linear, closed = (Scorer(bent.train, bent.validation, Run(), nonlinear=bends) for bends in (False, True))
    assert closed(sites) < 0.1 * linear(sites)
    assert closed.is_nonlinear
    linear, closed = (Scorer(plain.train, plain.validation, Run(), nonlinear=bends) for bends in (False, True))
    assert closed(sites) == linear(sites)
    assert not closed.is_nonlinear


def test_stages_are_checked():
    with pytest.raises(
        SettingsError, match="'magic' is not known; there are greedy, qr, exchange, learned, kernel_exchange"
    ):
        SELECTORS["auto"](stages=("greedy", "magic"))
    with pytest.raises(SettingsError, match="greedy or qr must be among them"):
        SELECTORS["auto"](stages=("learned",))
    for stages in (("kernel_exchange", "qr"), "kernel_exchange,qr"):
        assert SELECTORS["auto"](stages=stages).settings()["stages"] == ["qr", "kernel_exchange"]
