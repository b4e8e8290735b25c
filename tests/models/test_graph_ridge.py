"""Ridge regression with a penalty along the edges of a graph."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from keyhole.core.errors import SettingsError
from keyhole.core.run import Run
from keyhole.models.reconstructors import RECONSTRUCTORS

GraphRidge = RECONSTRUCTORS["graph_ridge"]


def ring(count):
    """The adjacency matrix of a ring."""
    return np.roll(np.eye(count), 1, axis=1) + np.roll(np.eye(count), -1, axis=1)


@pytest.fixture
def samples(rng):
    """Two channels of random walks along a ring, few of them."""
    smooth = np.linalg.solve(0.3 * np.eye(12) + 2 * np.eye(12) - ring(12), rng.normal(size=(12, 40))).T
    values = np.stack([smooth[:20], smooth[20:]], axis=-1) + 0.1 * rng.normal(size=(20, 12, 2))
    return kh.read(values, channels=-1).with_graph(ring(12)).as_scaled()


def by_definition(samples, sites, strength, penalty):
    """All coefficients at once, as one large linear system."""
    readings, targets = (
        one.reshape(len(samples), -1).astype(float) for one in (samples.readings(sites), samples.targets)
    )
    readings, targets = readings - readings.mean(axis=0), targets - targets.mean(axis=0)
    squares = readings.T @ readings
    level = np.trace(squares) / len(squares)
    laplacian = np.kron(np.eye(2), samples.sites.metric.laplacian.toarray())
    system = np.kron(squares + strength * level * np.eye(len(squares)), np.eye(24))
    system += np.kron(np.eye(len(squares)), penalty * level * laplacian)
    return np.linalg.solve(system, (readings.T @ targets).ravel()).reshape(len(squares), 24)


@pytest.mark.parametrize("max_dense_sites", [100, 1])
def test_the_weights_solve_the_definition(samples, max_dense_sites):
    """By eigenvectors of a small graph, and by one sparse system for each reading of a large one."""
    sites = np.array([2, 9])
    fitted = GraphRidge(max_dense_sites=max_dense_sites).fit(samples, sites, validation=samples, run=Run())
    assert fitted.chosen["penalty"] > 0
    np.testing.assert_allclose(fitted.weights, by_definition(samples, sites, **fitted.chosen), rtol=1e-4, atol=1e-6)


def test_it_is_better_than_ridge_where_samples_are_few(rng):
    """On samples that it has not seen, and chosen by `auto` among the linear reconstructors."""
    count, sites = 60, np.arange(0, 60, 12)
    smooth = np.linalg.solve(0.05 * np.eye(count) + 2 * np.eye(count) - ring(count), rng.normal(size=(count, 300))).T
    values = smooth + 0.3 * rng.normal(size=smooth.shape)
    few, many = (kh.read(part).with_graph(ring(count)).as_scaled() for part in (values[:15], values[15:]))
    errors = {}
    for name in ("ridge", "graph_ridge"):
        fitted = RECONSTRUCTORS[name]().fit(few, sites, validation=many, run=Run())
        errors[name] = np.square(fitted.reconstruct(many.readings(sites)) - many.targets).sum()
    assert errors["graph_ridge"] < errors["ridge"]


def test_it_needs_a_graph():
    samples = kh.read(np.random.default_rng(0).normal(size=(20, 6))).as_scaled()
    with pytest.raises(SettingsError, match="needs sites with a graph"):
        GraphRidge().fit(samples, np.array([0]), validation=samples, run=Run())
