"""Regularised self-representation against its definition, an independent optimiser, and outlying samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import keyhole as kh
from keyhole.core.run import Run
from keyhole.placement.baselines.lasso import Lasso
from keyhole.placement.baselines.self_representation import RobustRows, SelfRepresentation

seeds = st.integers(0, 2**16)


def samples_of(seed=0, n=40, sites=6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) @ rng.normal(size=(3, sites)) + 0.3 * rng.normal(size=(n, sites))


def in_components(values):
    """Scores and rows of the samples' right singular vectors, all of them."""
    rows = np.linalg.svd(values, full_matrices=False)[2].T
    return values @ rows, rows


@pytest.mark.parametrize("penalty", [0.1, 0.4, 0.8])
def test_rows_are_those_of_a_general_optimiser_on_the_samples(penalty):
    """L-BFGS on `sum_i |x_i - x_i W| + lambda sum_s |W_s|`, all sites by all sites, without components."""
    values = samples_of()
    fitted = RobustRows(*in_components(values), 1, penalty)
    norms = fitted.fit()

    def value(flat):
        weights = flat.reshape(6, 6)
        residual = values - values @ weights
        lengths = np.sqrt(np.square(residual).sum(axis=1) + 1e-12)
        rows = np.sqrt(np.square(weights).sum(axis=1) + 1e-12)
        gradient = -values.T @ (residual / lengths[:, None]) + fitted.weight * weights / rows[:, None]
        return lengths.sum() + fitted.weight * rows.sum(), gradient.ravel()

    found = minimize(value, np.full(36, 0.1), jac=True, method="L-BFGS-B", options={"maxiter": 10_000, "ftol": 1e-14})
    assert fitted.history[-1] == pytest.approx(found.fun, rel=1e-4)
    np.testing.assert_allclose(norms, np.linalg.norm(found.x.reshape(6, 6), axis=1), atol=0.02)


@given(seeds, st.floats(0.05, 0.95))
def test_the_objective_never_rises(seed, penalty):
    fitted = RobustRows(*in_components(samples_of(seed)), 1, penalty)
    fitted.fit()
    assert (np.diff(fitted.history) <= 1e-9 * fitted.history[0]).all()


def test_the_penalty_is_a_share_of_the_least_that_leaves_no_row():
    scores, rows = in_components(samples_of())
    longest = {penalty: RobustRows(scores, rows, 1, penalty).fit().max() for penalty in (0.5, 0.9, 1.1)}
    assert longest[1.1] < 1e-4 < 0.1 * longest[0.5] < longest[0.9]


@pytest.mark.parametrize("k", [2, 4])
def test_k_rows_carry_the_weight(k):
    samples = kh.read(samples_of(n=200, sites=12)).as_scaled()
    found = SelfRepresentation().select(samples, k, validation=None, run=Run())
    assert k <= found.notes["participation"] < k + 0.3


def test_an_outlying_sample_does_not_decide():
    """One sample in which site 0, which drives nothing, is enormous: squares follow it, norms do not."""
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(200, 2))
    values = 0.2 * rng.normal(size=(200, 8))
    values[:, 2:] += causes @ rng.normal(size=(2, 6)) / 3
    values[:, [3, 6]] = 1.5 * causes
    values[0, 0] = 60.0
    samples = kh.read(values - values.mean(axis=0)).as_scaled()
    assert set(SelfRepresentation().select(samples, 2, validation=None, run=Run()).sites.tolist()) == {3, 6}
    assert 0 in Lasso().select(samples, 2, validation=None, run=Run()).sites


def test_the_seed_draws_the_samples():
    samples = kh.read(samples_of(n=100, sites=30)).as_scaled()
    few = SelfRepresentation(max_samples=20)
    runs = [few.select(samples, 5, validation=None, run=Run(seed=seed)).sites.tolist() for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
