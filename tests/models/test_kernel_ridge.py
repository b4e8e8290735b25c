"""Kernel ridge, against scikit-learn's and against leaving samples out one by one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import Matern
from sklearn.kernel_ridge import KernelRidge

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.models.kernels import Hyperparameters, inverse, kernel, leave_one_out
from keyhole.models.reconstructors import RECONSTRUCTORS, Ridge, fit_best
from keyhole.models.reconstructors.errors import unexplained
from keyhole.models.reconstructors.kernel_ridge import Kernel


def views(n=240, seed=0):
    """Rings: each sample is a bump at some angle, so that neighbours are alike and nothing is linear."""
    rng = np.random.default_rng(seed)
    angle, place = rng.uniform(0, 2 * np.pi, n), np.linspace(0, 2 * np.pi, 24, endpoint=False)
    values = np.exp(4 * np.cos(angle[:, None] - place)) / np.exp(4) + 0.01 * rng.normal(size=(n, 24))
    return prepare(kh.read(values.astype(np.float32)), None, seed=0)


def test_it_is_scikit_learns_kernel_ridge():
    data, sites = views(), np.array([2, 10, 17])
    fitted = Kernel().fit(data.train, sites, validation=data.validation, run=Run())
    parameters, scale = fitted.parameters, fitted.scale
    inputs, others = (part.readings(sites)[:, :, 0] / scale for part in (data.train, data.validation))
    np.testing.assert_allclose(inputs.std(axis=0) if parameters.standardised else scale, 1, rtol=1e-5)

    def alike(a, b):
        matern = Matern(length_scale=np.sqrt(parameters.width), nu=1.5)
        return matern(a, b) + 0.3 * a @ b.T / parameters.level

    targets = data.train.targets[:, 0]
    theirs = KernelRidge(alpha=parameters.regularisation, kernel="precomputed").fit(
        alike(inputs, inputs), targets - targets.mean(0)
    )
    expected = theirs.predict(alike(others, inputs)) + targets.mean(0)
    np.testing.assert_allclose(
        fitted.reconstruct(data.validation.readings(sites))[:, 0], expected, atol=3e-3
    )  # single precision


def test_the_error_of_samples_left_out_needs_no_second_fit():
    rng = np.random.default_rng(0)
    inputs, targets, parameters = rng.normal(size=(20, 3)), rng.normal(size=(20, 4)), Hyperparameters(1.5, 3.0, 0.1)
    total = 0.0
    for out in range(20):
        rest = np.delete(np.arange(20), out)
        gram = kernel(inputs[rest], inputs[rest], parameters) + parameters.regularisation * np.eye(19)
        told = kernel(inputs[[out]], inputs[rest], parameters) @ np.linalg.solve(gram, targets[rest])
        total += np.square(told - targets[out]).sum()
    residuals = leave_one_out(inverse(kernel(inputs, inputs, parameters), parameters.regularisation), targets)
    assert np.square(residuals).sum() == pytest.approx(total, rel=1e-8)


def test_it_leaves_far_less_than_ridge_where_neighbours_are_alike():
    data, sites = views(), np.array([2, 10, 17])
    ridge, kernel = (kind().fit(data.train, sites, validation=data.validation, run=Run()) for kind in (Ridge, Kernel))
    assert unexplained(kernel, sites, data.validation).value < 0.3 * unexplained(ridge, sites, data.validation).value
    best = fit_best(data.train, sites, validation=data.validation, run=Run())
    assert unexplained(best, sites, data.validation).value <= unexplained(kernel, sites, data.validation).value


def test_constant_readings_are_harmless():
    values = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    values[:, 2] = 1.0
    data, sites = prepare(kh.read(values), None, seed=0), np.array([2])
    fitted = RECONSTRUCTORS["kernel"]().fit(data.train, sites, validation=data.validation, run=Run())
    assert np.isfinite(fitted.reconstruct(data.validation.readings(sites))).all()
