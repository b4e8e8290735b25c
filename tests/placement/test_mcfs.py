"""MCFS against its definition: generalised eigenvectors, optimality of the lasso, and planted clusters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh

import keyhole as kh
from keyhole.core.run import Run
from keyhole.placement.baselines.laplacian_score import neighbour_graph
from keyhole.placement.baselines.mcfs import MCFS, sparse_coefficients, spectral_embedding

seeds = st.integers(0, 2**16)


def clusters(n=90, seed=0):
    """Three clusters of samples that sites 1 and 4 tell apart; the others are noise as large as the clusters are."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 6)) * [1.5, 0.3, 1.5, 1.5, 0.3, 1.5]
    values[:, [1, 4]] += 12 * np.array([[0, 0], [1, 0], [0, 1]])[np.arange(n) % 3]
    return values - values.mean(axis=0)


@given(seeds, st.integers(2, 8))
def test_the_embedding_solves_the_generalised_eigenproblem(seed, neighbours):
    """As a dense solver of `L y = lambda D y` does, of a connected graph; none is constant."""
    values = np.random.default_rng(seed).normal(size=(25, 3))
    graph = neighbour_graph(values, neighbours).toarray()
    degrees = np.diag(graph.sum(axis=1))
    eigenvalues = eigh(degrees - graph, degrees, eigvals_only=True)
    found = spectral_embedding(neighbour_graph(values, neighbours), 4)
    rayleigh = np.diag(found.T @ (degrees - graph) @ found)
    np.testing.assert_allclose(rayleigh, eigenvalues[1:5], atol=1e-8)
    np.testing.assert_allclose((degrees - graph) @ found, degrees @ found * rayleigh, atol=1e-7)
    np.testing.assert_allclose(found.T @ degrees @ found, np.eye(4), atol=1e-8)
    np.testing.assert_allclose(degrees.sum(axis=0) @ found, 0, atol=1e-7)


def test_separate_clusters_are_told_apart():
    """With a graph in three parts the first two vectors are constant on each and differ between them."""
    values = clusters()
    embedding = spectral_embedding(neighbour_graph(values, 5), 2)
    centres = np.array([embedding[part::3].mean(axis=0) for part in range(3)])
    np.testing.assert_allclose(embedding, centres[np.arange(90) % 3], atol=1e-8)
    assert min(np.linalg.norm(centres[i] - centres[j]) for i, j in ((0, 1), (0, 2), (1, 2))) > 0.01


@given(seeds, st.integers(1, 12))
def test_coefficients_are_a_lasso_with_no_more_than_k(seed, most):
    """The optimality conditions of the lasso hold for the penalty that the largest correlation says."""
    rng = np.random.default_rng(seed)
    values, target = rng.normal(size=(30, 12)), rng.normal(size=30)
    found = sparse_coefficients(values, target, most)
    assert np.count_nonzero(found) == most
    centred = values - values.mean(axis=0)
    pressure = centred.T @ (target - target.mean() - centred @ found)
    bound = np.abs(pressure).max()
    active = found != 0
    np.testing.assert_allclose(pressure[active], bound * np.sign(found[active]), atol=1e-8)


def test_scores_are_the_largest_coefficients():
    """Sites come by the paper's formula, put together from its parts."""
    values = clusters(seed=1).astype(np.float32)
    samples = kh.read(values).as_scaled()
    embedding = spectral_embedding(neighbour_graph(samples.targets[:, 0], 5), 5)
    scores = np.max(
        [np.abs(sparse_coefficients(samples.targets[:, 0].astype(float), y, 3)) for y in embedding.T], axis=0
    )
    found = MCFS().select(samples, 3, validation=None, run=Run())
    assert found.sites.tolist() == np.argsort(-scores, kind="stable")[:3].tolist()


@pytest.mark.parametrize("channels", [1, 2])
def test_the_sites_that_tell_clusters_apart_are_found(channels):
    """Though others vary as much, and where only the last channel tells anything."""
    values = np.random.default_rng(2).normal(size=(90, channels, 6))
    values[:, -1] = clusters()
    samples = kh.read(values - values.mean(axis=0), channels=1).as_scaled()
    found = MCFS(n_eigenvectors=2).select(samples, 2, validation=None, run=Run())
    assert set(found.sites.tolist()) == {1, 4}


def test_the_seed_draws_the_samples_of_the_graph():
    samples = kh.read(np.random.default_rng(0).normal(size=(60, 20))).as_scaled()
    runs = [MCFS(max_samples=12).select(samples, 5, validation=None, run=Run(seed=seed)).sites for seed in (0, 0, 1)]
    assert runs[0].tolist() == runs[1].tolist() != runs[2].tolist()


def test_copies_of_a_site_are_left_out_without_a_warning():
    """A regression takes one of equal columns (which one may differ between regressions): all three are among four."""
    values = np.repeat(np.random.default_rng(0).normal(size=(40, 3)), 4, axis=1)
    found = MCFS().select(kh.read(values - values.mean(axis=0)).as_scaled(), 4, validation=None, run=Run())
    assert {site // 4 for site in found.sites.tolist()} == {0, 1, 2}
