"""Smooth functions on a graph: the eigenvectors of the smallest eigenvalues of its normalised Laplacian."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MAX_DENSE_NODES", "smallest_eigenpairs"]

MAX_DENSE_NODES = 3000  # up to which all eigenvectors are computed, in about ten seconds
# The shift: the Laplacian is singular at 0, and the smallest eigenvalues of a path of n nodes are some 10 / n^2 apart.
_BELOW_ZERO = -1e-9
_TOLERANCE = 1e-8


def smallest_eigenpairs(weights: Any, count: int | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Compute the smallest eigenvalues of the normalised Laplacian `I - D^{-1/2} W D^{-1/2}` and their eigenvectors.

    Dense up to 3000 nodes; beyond, Lanczos iteration on the inverse, with one sparse factorisation. That is fast for
    graphs with small separators (roads, pipes, rivers, meshes), whatever their size, and slow for large random graphs.

    Parameters
    ----------
    weights
        ``(n, n)`` sparse, symmetric: how strongly two nodes are connected. Nodes without edges have eigenvalue 0.
    count
        Number of eigenpairs, at most ``n``; None: all.

    Returns
    -------
    values : ndarray of shape (count,)
        Between 0 and 2, ascending.
    vectors : ndarray of shape (n, count)
        Orthonormal columns.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> values, vectors = smallest_eigenpairs(csr_array(np.ones((4, 4)) - np.eye(4)), 2)
    >>> values.round(6).tolist(), vectors.shape
    ([0.0, 1.333333], (4, 2))
    """
    from scipy.sparse import csc_array
    from scipy.sparse.csgraph import laplacian

    matrix, nodes = laplacian(weights, normed=True), int(weights.shape[0])
    count = nodes if count is None else min(count, nodes)
    if nodes <= MAX_DENSE_NODES or count > nodes // 2:
        values, vectors = np.linalg.eigh(matrix.toarray())
        values, vectors = values[:count], vectors[:, :count]
    else:
        from scipy.sparse.linalg import eigsh

        start = np.random.default_rng(0).normal(size=nodes)  # ARPACK's own would differ from run to run
        values, vectors = eigsh(csc_array(matrix), count, sigma=_BELOW_ZERO, which="LM", v0=start, tol=_TOLERANCE)
        order = np.argsort(values, kind="stable")
        values, vectors = values[order], vectors[:, order]
    return np.maximum(values, 0.0), np.ascontiguousarray(vectors)
