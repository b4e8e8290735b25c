"""Eigenpairs of the normalised Laplacian, dense and sparse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array, diags_array

from keyhole.core.laplacian import MAX_DENSE_NODES, smallest_eigenpairs


def path(count: int) -> csr_array:
    ones = np.ones(count - 1)
    return csr_array(diags_array([ones, ones], offsets=[-1, 1]))


@pytest.mark.parametrize("count", [50, MAX_DENSE_NODES + 1, 100_000])
def test_eigenvalues_of_a_path_are_known(count):
    """`1 - cos(pi k / (n - 1))`, also where they are closer together than a millionth."""
    values, vectors = smallest_eigenpairs(path(count), 6)
    known = 2 * np.sin(np.pi * np.arange(6) / (count - 1) / 2) ** 2
    np.testing.assert_allclose(values, known, rtol=1e-4, atol=1e-14)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-8)


def test_all_of_a_small_graph():
    values, vectors = smallest_eigenpairs(path(7))
    assert values.shape == (7,)
    assert vectors.shape == (7, 7)
    assert values[-1] == pytest.approx(2)  # a path has two colours


def test_every_part_that_is_not_connected_has_an_eigenvalue_of_zero():
    """Nodes without edges too; in a graph that is too large for a dense matrix."""
    graph = csr_array(block_diag([path(2000), path(1500), csr_array((3, 3))]))
    values, _ = smallest_eigenpairs(graph, 6)
    assert (values[:5] < 1e-12).all()
    assert values[5] > 1e-7


def test_the_same_graph_gives_the_same_vectors():
    one, other = (smallest_eigenpairs(path(MAX_DENSE_NODES + 1), 4)[1] for _ in range(2))
    np.testing.assert_array_equal(one, other)
