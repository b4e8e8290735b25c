"""Ridge: closed form, leave-one-out strength and nested errors against straightforward computations."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from keyhole.core.run import Run
from keyhole.models.principal_components import cached_gram
from keyhole.models.reconstructors import NestedRidge, Ridge, nested_errors
from keyhole.models.regression import STRENGTHS
from keyhole.placement.classical import QR


def signals(n=30, cells=7, channels=1, seed=0):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(4, channels * cells))
    values = rng.normal(size=(n, 4)) @ mixing + 0.3 * rng.normal(size=(n, channels * cells))
    return kh.read(values.reshape(n, channels, cells).astype(np.float32), channels=1).as_scaled()


def plain_ridge(readings, targets, strength):
    """Ridge by the normal equations, with an intercept."""
    centre, middle = readings.mean(0), targets.mean(0)
    gram = (readings - centre).T @ (readings - centre) + strength * np.eye(readings.shape[1])
    weights = np.linalg.solve(gram, (readings - centre).T @ (targets - middle))
    return lambda r: middle + (r - centre) @ weights


@pytest.mark.parametrize("channels", [1, 2])
def test_the_closed_form_is_that_of_the_normal_equations(channels):
    """The decomposition and the normal equations give the same rebuilt signals."""
    data, sites = signals(channels=channels), np.array([5, 0, 3])
    ridge = Ridge().fit(data, sites, validation=data, run=Run())
    readings = data.readings(sites).reshape(len(data), -1).astype(float)
    expected = plain_ridge(readings, data.targets.reshape(len(data), -1).astype(float), ridge.strength)(readings)
    reconstructed = ridge.reconstruct(data.readings(sites)).reshape(len(data), -1)
    np.testing.assert_allclose(reconstructed, expected, atol=2e-5)


def test_the_strength_is_the_best_by_leaving_each_sample_out():
    """The chosen strength has the smallest error when every sample is really left out once."""
    data, sites = signals(n=15), np.array([1, 2, 4])
    ridge = Ridge().fit(data, sites, validation=data, run=Run())
    readings = data.readings(sites).reshape(len(data), -1).astype(float)
    targets = data.targets.reshape(len(data), -1).astype(float)
    sizes = np.linalg.svd(readings - readings.mean(0), compute_uv=False)
    strengths = STRENGTHS * np.square(sizes).mean()
    errors = []
    for strength in strengths:
        error = 0.0
        for i in range(len(data)):
            keep = np.arange(len(data)) != i
            # A fixed intercept would not be left out: refit everything, with the strength held.
            error += np.square(plain_ridge(readings[keep], targets[keep], strength)(readings[i]) - targets[i]).sum()
        errors.append(error)
    best = strengths[int(np.argmin(errors))]
    assert ridge.strength == pytest.approx(best, rel=0.8)
    assert np.interp(ridge.strength, strengths, errors) <= 1.001 * min(errors)


@pytest.mark.parametrize("channels", [1, 2])
def test_nested_errors_are_those_of_separate_fits(channels):
    """The error with the first j sites, traced through small matrices, is that of ridge on those sites."""
    train, scorer, sites = signals(channels=channels), signals(n=20, channels=channels, seed=1), np.array([6, 2, 0, 4])
    errors = nested_errors(train, scorer, sites, strength=0.7)
    targets = train.targets.reshape(len(train), -1).astype(float)
    truth = scorer.targets.reshape(len(scorer), -1)
    for j in range(1, len(sites) + 1):
        readings = train.readings(sites[:j]).reshape(len(train), -1).astype(float)
        reconstructed = plain_ridge(readings, targets, 0.7)(scorer.readings(sites[:j]).reshape(len(scorer), -1))
        assert errors[j] == pytest.approx(np.square(reconstructed - truth).sum(), rel=1e-4)
    assert errors[0] == pytest.approx(np.square(truth - targets.mean(0)).sum(), rel=1e-4)


def test_constant_and_duplicate_sites_are_harmless():
    """Ridge on a constant site and on one site twice is as good as on that site once."""
    data = signals()
    values = data.values.copy()
    values[:, :, 6], values[:, :, 5] = 3.0, values[:, :, 4]
    data = kh.read(values, channels=1).as_scaled()
    once = Ridge().fit(data, np.array([4, 1]), validation=data, run=Run()).reconstruct(data.readings(np.array([4, 1])))
    sites = np.array([4, 5, 6, 1])
    thrice = Ridge().fit(data, sites, validation=data, run=Run()).reconstruct(data.readings(sites))
    error = [np.square(reconstructed - values).sum() for reconstructed in (once, thrice)]
    assert error[1] == pytest.approx(error[0], rel=0.02)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("n", [30, 6])
def test_nested_fits_are_those_of_the_first_sites(channels, n):
    """One decomposition for all, also where samples are fewer than readings."""
    data, sites = signals(n=n, channels=channels), np.array([5, 0, 3, 6, 1])
    nested = NestedRidge(data, sites)
    for count in (1, 3, 5):
        alone = Ridge().fit(data, sites[:count], validation=data, run=Run())
        assert nested.first(count).strength == pytest.approx(alone.strength)
        np.testing.assert_allclose(nested.first(count).weights, alone.weights, atol=1e-4)
        np.testing.assert_allclose(nested.first(count).offset, alone.offset, atol=1e-4)


def test_inner_products_that_a_selector_made_serve_ridge_too():
    """With them, kept by QR for as long as the signals are there, ridge is what it is without."""
    data, sites = signals(n=20, cells=300, channels=2), np.array([5, 0, 3])
    alone = Ridge().fit(data, sites, validation=data, run=Run())
    assert cached_gram(data) is None
    QR().select(data, 3, validation=None, run=Run())
    centred = data.targets.reshape(20, -1) - data.targets.reshape(20, -1).mean(axis=0)
    np.testing.assert_allclose(cached_gram(data), centred @ centred.T, rtol=1e-4, atol=1e-2)
    after = Ridge().fit(data, sites, validation=data, run=Run())
    assert after.strength == alone.strength
    np.testing.assert_allclose(after.weights, alone.weights, atol=1e-6)
    for count in (1, 3):
        np.testing.assert_allclose(
            NestedRidge(data, sites).first(count).weights,
            Ridge().fit(data, sites[:count], validation=data, run=Run()).weights,
            atol=1e-5,
        )
