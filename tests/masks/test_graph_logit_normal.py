"""The distribution whose correlations follow a graph: its covariance by definition, by sampling, and at large sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mask_helpers import make_distribution, roughened, seeded
from scipy.linalg import expm
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import laplacian

from keyhole.core.errors import DataError, SettingsError
from keyhole.masks import GraphLogitNormal

DRAWS = 200_000


def random_graph(count: int, seed: int = 0) -> np.ndarray:
    """A ring with random chords and weights."""
    rng = np.random.default_rng(seed)
    weights = np.roll(np.eye(count), 1, axis=1) * rng.uniform(0.5, 2, count)
    weights += np.triu(rng.uniform(size=(count, count)) < 0.15, 2) * rng.uniform(0.5, 2, (count, count))
    return weights + weights.T


def on_graph(adjacency: np.ndarray, sites: int | None = None, **options: float) -> GraphLogitNormal:
    observable = torch.ones(sites or len(adjacency), dtype=torch.bool)
    return GraphLogitNormal(observable, adjacency=adjacency, generator=seeded(), **options)


def heat_kernel(adjacency: np.ndarray, time: float) -> np.ndarray:
    return expm(-time * laplacian(adjacency, normed=True))


def correlation(covariance: np.ndarray) -> np.ndarray:
    spread = np.sqrt(np.diag(covariance))
    return covariance / np.outer(spread, spread)


def localised(distribution: GraphLogitNormal) -> tuple[np.ndarray, np.ndarray]:
    """The covariance of the logits, and that of the same weights without a graph."""
    weight = distribution.weight.detach().double().numpy()
    return distribution.covariance.double().numpy(), weight @ weight.T


@pytest.mark.parametrize("time", [0.3, 1.0, 10.0])
def test_with_all_eigenvectors_the_covariance_is_localised_by_the_heat_kernel(time):
    """Against the dense exponential of the Laplacian; and no noise of a site's own is left."""
    adjacency = random_graph(12)
    distribution = on_graph(adjacency, n_eigenvectors=12, diffusion_time=time)
    found, without = localised(distribution)
    np.testing.assert_allclose(found, without * correlation(heat_kernel(adjacency, time)), atol=1e-5)
    assert distribution.unresolved.max() < 1e-3


@pytest.mark.parametrize("count", [1, 4, 20])
def test_what_few_eigenvectors_leave_is_noise_of_each_site(count):
    """Between sites: the kernel of the leading eigenvectors. At a site: about the whole kernel and all the variance."""
    adjacency, time = random_graph(40), 2.0
    distribution = on_graph(adjacency, n_eigenvectors=count, diffusion_time=time, rank=1)
    found, without = localised(distribution)
    values, vectors = np.linalg.eigh(laplacian(adjacency, normed=True))
    leading = (vectors[:, :count] * np.exp(-time * values[:count])) @ vectors[:, :count].T
    diagonal = np.diag(leading) / (1 - distribution.unresolved.double().numpy() ** 2)
    np.testing.assert_allclose(diagonal, np.diag(heat_kernel(adjacency, time)), rtol=0.05)
    apart = ~np.eye(40, dtype=bool)
    np.testing.assert_allclose(
        (found / without)[apart], (leading / np.sqrt(np.outer(diagonal, diagonal)))[apart], atol=1e-5
    )
    np.testing.assert_allclose(np.diag(found), np.diag(without), rtol=1e-5)


def test_samples_have_the_covariance_and_the_marginals():
    """The logits of many draws within 4.5 standard errors, where some of the kernel is left to noise."""
    distribution = roughened(on_graph(random_graph(9), rank=3, n_eigenvectors=4, diffusion_time=2.0))
    with torch.no_grad():
        logits = torch.cat([distribution.draw(DRAWS // 10, seeded(s)).logits for s in range(10)]).double()
    expected = distribution.covariance.double()
    variance = expected.diagonal()
    error = ((variance[:, None] * variance + expected.square()) / DRAWS).sqrt()
    assert ((torch.cov(logits.T) - expected).abs() < 4.5 * error).all()
    location, spread = (moment.detach().double() for moment in distribution.moments())
    assert ((logits.mean(0) - location).abs() < 4.5 * spread / DRAWS**0.5).all()
    torch.testing.assert_close(spread.square(), variance, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_neighbours_open_together_or_compete(sign):
    """A pair of nodes that share an edge: more often both open than by chance, or less often."""
    pair = on_graph(np.ones((2, 2)) - np.eye(2), diffusion_time=2.0)
    with torch.no_grad():
        pair.weight[1] = sign * pair.weight[0]
    both = float(pair.draw(100_000, seeded(1)).opened.all(1).float().mean())
    assert sign * (both - float(pair.pack(pair.marginals).prod())) > 0.05


def test_nodes_that_are_no_sites_connect_others():
    """Two ends of a path over a third node are correlated; a node without edges is with none."""
    adjacency = np.zeros((4, 4))
    for one, other in ((0, 3), (1, 3)):
        adjacency[one, other] = adjacency[other, one] = 1.0
    covariance = on_graph(adjacency, 3, rank=1, diffusion_time=2.0).covariance.abs()
    assert covariance[0, 1] > 0.2 * covariance[0, 0]
    torch.testing.assert_close(covariance[2, :2], torch.zeros(2), atol=1e-6, rtol=0)
    assert covariance[2, 2] == pytest.approx(float(covariance[0, 0]))


def test_cells_that_may_not_be_selected_still_connect():
    """Without a graph the cells that share a side are connected, observable or not."""
    observable = torch.tensor([True, False, True])
    covariance = GraphLogitNormal(observable, generator=seeded(), rank=1, diffusion_time=2.0).covariance
    path = np.diag(np.ones(2), 1)
    expected = correlation(heat_kernel(path + path.T, 2.0))[0, 2]
    assert abs(float(covariance[0, 1] / covariance[0, 0])) == pytest.approx(expected, abs=1e-5)


def test_more_nodes_than_a_dense_matrix_would_allow():
    """A hundred thousand nodes, without a matrix of all by all: variances are exact."""
    count = 100_000
    ones = np.ones(count - 1)
    path = diags_array([ones, ones], offsets=[-1, 1]).tocsr()
    distribution = GraphLogitNormal(
        torch.ones(count, dtype=torch.bool), adjacency=path, n_eigenvectors=4, generator=seeded()
    )
    spread = distribution.moments()[1].detach()
    torch.testing.assert_close(spread, torch.full((count,), float(spread[0])))
    assert distribution.factor.shape == (count, 4)
    sample = distribution.draw(4, seeded())
    assert sample.values.shape == (4, count)
    assert distribution.count() == pytest.approx(count / 2, rel=1e-3)


@pytest.mark.parametrize(
    ("adjacency", "message"),
    [
        (np.ones((3, 2)), "square one of at least 3 nodes"),
        (np.ones((2, 2)), "square one of at least 3 nodes"),
        (np.triu(np.ones((3, 3))), "not symmetric"),
        (-np.ones((3, 3)), "none below zero"),
        (csr_array(np.full((3, 3), np.nan)), "finite"),
    ],
)
def test_what_is_no_graph_is_refused(adjacency, message):
    with pytest.raises(DataError, match=message):
        GraphLogitNormal(torch.ones(3, dtype=torch.bool), adjacency=adjacency, generator=seeded())


def test_a_diffusion_time_must_be_positive():
    with pytest.raises(SettingsError, match=r"diffusion_time.*got 0"):
        make_distribution("graph_vln", diffusion_time=0.0)
