"""Distances between sites along the edges of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keyhole.core.errors import PlanError
from keyhole.core.laplacian import MAX_DENSE_NODES, smallest_eigenpairs
from keyhole.core.storage import array_of
from keyhole.data.metric import ROUNDING, Metric

__all__ = ["GraphMetric"]

_MAX_EIGENVECTORS = 512
_SPARSE = ("data", "indices", "indptr")


class GraphMetric(Metric):
    """Shortest distances along the edges of a graph, and localisation by the heat kernel.

    Parameters
    ----------
    lengths
        ``(m, m)`` sparse matrix: the length of the edge between two sites, symmetric; absent where there is no edge.
    weights
        ``(m, m)`` sparse matrix of the same edges: how strongly two sites are connected, for the graph Laplacian;
        None: the inverse of the lengths.
    unit
        Unit of the lengths.

    Notes
    -----
    An exponential of the graph distance is not positive definite in general. The heat kernel `exp(-t L)` of the
    normalised Laplacian `L` is; it is scaled to ones on its diagonal [1]_.

    References
    ----------
    .. [1] Kondor & Lafferty (2002). Diffusion kernels on graphs and other discrete structures. ICML.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> path = csr_array(np.diag([1.0, 1.0, 1.0], 1) + np.diag([1.0, 1.0, 1.0], -1))
    >>> metric = GraphMetric(path)
    >>> metric.distances([0], [1, 2, 3])
    array([[1., 2., 3.]])
    >>> metric.within(0, 2.5)
    array([0, 1, 2])
    """

    def __init__(self, lengths: Any, weights: Any = None, unit: str = "") -> None:
        from scipy.sparse import csr_array

        self.lengths, self.unit = csr_array(lengths, dtype=np.float64), unit
        self.weights = self._inverse_lengths() if weights is None else csr_array(weights, dtype=np.float64)
        self._selected: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return int(self.lengths.shape[0]) if self._selected is None else len(self._selected)

    def distances(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
        """Return shortest distances, by Dijkstra's algorithm; infinite between parts that are not connected."""
        from scipy.sparse.csgraph import dijkstra

        found = dijkstra(self.lengths, directed=False, indices=self._nodes(first))
        return np.asarray(found)[:, self._nodes(second)]

    def within(self, sites: ArrayLike, radius: float) -> NDArray[np.int64]:
        """Return the sites closer than a radius, by Dijkstra's algorithm with a limit; see `Metric.within`."""
        from scipy.sparse.csgraph import dijkstra

        limit = radius * (1 - ROUNDING)
        found = np.asarray(
            dijkstra(self.lengths, directed=False, indices=self._nodes(sites), limit=limit, min_only=True)
        )
        near = (
            np.flatnonzero(found <= limit) if self._selected is None else np.flatnonzero(found[self._selected] <= limit)
        )
        return np.union1d(near, np.atleast_1d(sites)).astype(np.int64)

    def taper(self, first: ArrayLike, second: ArrayLike, length: float) -> NDArray[np.float32]:
        """Return the heat kernel with ones on its diagonal; see `Metric.taper`.

        The diffusion time is half the squared length scale in units of a tenth of the graph's radius in edges, so that
        the scales of `LENGTH_SCALES` range from the whole graph to a few neighbours.
        """
        one, two = self._nodes(first), self._nodes(second)
        if np.isinf(length):
            return np.ones((len(one), len(two)), np.float32)
        values, vectors = self._spectrum
        factor = vectors * np.exp(-0.25 * np.square(length * self._reach) * values)
        root = np.sqrt(np.maximum(np.square(factor).sum(axis=1), np.finfo(float).tiny))
        factor = factor / root[:, np.newaxis]
        return np.asarray(factor[one] @ factor[two].T, np.float32)

    def adjacency(self) -> Any:
        """Return the weights of the edges, those of nodes that are no sites last; see `Metric.adjacency`."""
        if self._selected is None:
            return self.weights
        order = np.concatenate([self._selected, np.setdiff1d(np.arange(self.weights.shape[0]), self._selected)])
        return self.weights[order][:, order]

    def take(self, sites: NDArray[np.int64]) -> GraphMetric:
        """Return the metric of some of the sites; paths may still lead over the others."""
        other = GraphMetric.__new__(GraphMetric)
        other.__dict__.update({name: one for name, one in self.__dict__.items() if name != "laplacian"})
        other._selected = self._nodes(sites)
        return other

    def contract(self, units: NDArray[np.int64]) -> GraphMetric:
        """Return the metric of groups of sites: edges between two groups become one, with the sum of their weights.

        Parameters
        ----------
        units
            ``(m,)``, the number of the group of each site, from 0.
        """
        from scipy.sparse import csr_array

        adjacency, count = self.adjacency(), int(units.max()) + 1
        others = np.arange(adjacency.shape[0] - len(units))
        group = np.concatenate([units, count + others])
        member = csr_array((np.ones(len(group)), (np.arange(len(group)), group)))
        weights = csr_array(member.T @ adjacency @ member)
        weights.setdiag(0)
        weights.eliminate_zeros()
        lengths = weights.copy()
        lengths.data = 1 / lengths.data
        return GraphMetric(lengths, weights, self.unit).take(np.arange(count))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return arrays from which `restore` recovers the metric, but for its unit."""
        parts = {"lengths": self.lengths, "weights": self.weights}
        arrays = {f"{name}.{of}": getattr(part, of) for name, part in parts.items() for of in _SPARSE}
        return arrays | ({} if self._selected is None else {"selected": self._selected})

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], unit: str = "") -> GraphMetric:
        """Recover a metric from the result of `state`.

        Raises
        ------
        PlanError
            If the arrays are missing or are no graph.
        """
        from scipy.sparse import csr_array

        nodes = len(array_of(arrays, "lengths.indptr", (None,), "iu")) - 1
        matrices = {}
        for name in ("lengths", "weights"):
            data = array_of(arrays, f"{name}.data", (None,))
            indices = array_of(arrays, f"{name}.indices", (len(data),), "iu").astype(np.int64)
            indptr = array_of(arrays, f"{name}.indptr", (nodes + 1,), "iu").astype(np.int64)
            if not (data > 0).all() or ((indices < 0) | (indices >= nodes)).any() or (np.diff(indptr) < 0).any():
                raise PlanError(f"the array '{name}.data' and its indices are no graph")
            if len(indptr) and (indptr[0] != 0 or indptr[-1] != len(data)):
                raise PlanError(f"the array '{name}.indptr' does not end where the data do")
            matrices[name] = csr_array((data, indices, indptr), shape=(nodes, nodes))
        found = cls(matrices["lengths"], matrices["weights"], unit)
        if "selected" in arrays:
            selected = array_of(arrays, "selected", (None,), "iu").astype(np.int64)
            if ((selected < 0) | (selected >= nodes)).any():
                raise PlanError("the array 'selected' has a node that is not in the graph")
            return found.take(selected)
        return found

    @cached_property
    def laplacian(self) -> Any:
        """The normalised Laplacian of the sites' graph, sparse; edges to other nodes do not count."""
        from scipy.sparse.csgraph import laplacian

        chosen = self._selected
        return laplacian(self.weights if chosen is None else self.weights[chosen][:, chosen], normed=True)

    @cached_property
    def _spectrum(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Smallest eigenvalues of the Laplacian and their eigenvectors: all of a small graph, 512 of a large one."""
        small = self.lengths.shape[0] <= MAX_DENSE_NODES
        return smallest_eigenpairs(self.weights, None if small else _MAX_EIGENVECTORS)

    @cached_property
    def _reach(self) -> float:
        """Number of edges from a node in the middle to the farthest one, by breadth-first search from node 0 twice."""
        from scipy.sparse.csgraph import dijkstra

        first = np.asarray(dijkstra(self.lengths, directed=False, indices=0, unweighted=True))
        far = int(np.where(np.isfinite(first), first, -1).argmax())
        second = np.asarray(dijkstra(self.lengths, directed=False, indices=far, unweighted=True))
        return max(1.0, float(second[np.isfinite(second)].max()) / 2)

    def _nodes(self, sites: ArrayLike) -> NDArray[np.int64]:
        rows = np.atleast_1d(np.asarray(sites, np.int64))
        return rows if self._selected is None else self._selected[rows]

    def _inverse_lengths(self) -> Any:
        inverse = self.lengths.copy()
        inverse.data = 1 / np.maximum(inverse.data, np.finfo(float).tiny)
        return inverse
