"""Errors in low-rank form, quantiles with weights, and the half-life of these."""

from __future__ import annotations

import numpy as np
import pytest

from keyhole.models.error_components import ErrorComponents
from keyhole.models.recency import choose_half_life, recency_weights, weighted_quantiles


def correlated(n=300, m=40, rank=3, noise=0.3, seed=0):
    """Errors with a few patterns that are common to all sites, and noise of their own."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, rank)) @ rng.normal(size=(rank, m)) + noise * rng.normal(size=(n, m))


def test_all_components_give_the_errors_back():
    errors = correlated(m=8)
    found = ErrorComponents.of(errors, most=8)
    np.testing.assert_allclose(found.squares(), np.square(errors), rtol=0.02, atol=0.1)
    resolved, variance = found.project(np.arange(8.0))
    np.testing.assert_allclose(resolved, errors @ np.arange(8.0), rtol=0.02, atol=0.1)
    assert variance.mean() < 1e-2 * np.square(resolved).mean()


def test_what_the_components_leave_is_accounted_for():
    """The variance of each site, and that of a sum of independent noise."""
    errors = correlated()
    found = ErrorComponents.of(errors, most=3)
    np.testing.assert_allclose(found.squares().mean(axis=0), np.square(errors).mean(axis=0), atol=0.02)
    rng = np.random.default_rng(1)
    for weights in rng.normal(size=(5, 40)):
        resolved, variance = found.project(weights)
        assert (np.square(resolved) + variance).mean() == pytest.approx(np.square(errors @ weights).mean(), rel=0.1)


def test_missing_errors_follow_from_the_others():
    errors = correlated(noise=0.05)
    gappy = errors.copy()
    gappy[np.random.default_rng(2).random(errors.shape) < 0.2] = np.nan
    mean = np.full(40, 1 / 40)
    resolved, _ = ErrorComponents.of(gappy, most=3).project(mean)
    assert np.corrcoef(resolved, errors @ mean)[0, 1] > 0.99


@pytest.mark.parametrize("errors", [np.zeros((12, 5)), np.full((12, 5), 2.0)], ids=["none", "constant"])
def test_errors_that_do_not_vary_are_no_trouble(errors):
    found = ErrorComponents.of(errors, most=3)
    np.testing.assert_allclose(found.squares(), np.square(errors), rtol=1e-2, atol=1e-6)


def test_quantiles_with_equal_weights_are_plain_ones():
    values = np.random.default_rng(0).normal(size=(500, 20))
    levels = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(weighted_quantiles(values, np.ones(500), levels), np.quantile(values, levels), atol=1e-3)


def test_a_weight_of_two_is_a_row_twice():
    values = np.random.default_rng(0).normal(size=(400, 5))
    values[3, 2] = np.nan
    weights = np.where(np.arange(400) < 100, 2.0, 1.0)
    twice = np.concatenate([values, values[:100]])
    levels = np.array([0.2, 0.9])
    np.testing.assert_allclose(weighted_quantiles(values, weights, levels), np.nanquantile(twice, levels), atol=0.01)
    assert np.isinf(weighted_quantiles(np.full((3, 1), np.nan), np.ones(3), levels)).all()


def test_weights_halve_with_the_half_life():
    weights = recency_weights(100, 0.1)
    assert weights[-1] == 1
    assert weights[-11] == pytest.approx(0.5)


@pytest.mark.parametrize(("growth", "weighted"), [(1.0, False), (6.0, True)])
def test_recent_samples_count_more_only_where_errors_change(growth, weighted):
    """Errors that grow along the series are covered better so; of stationary ones nothing is gained."""
    noise = np.abs(np.random.default_rng(3).normal(size=(400, 10)))
    scores = noise * np.linspace(1, growth, 400)[:, np.newaxis] ** 2
    assert (choose_half_life(scores) > 0) == weighted
    assert choose_half_life(scores[:40]) == 0  # too few to tell
