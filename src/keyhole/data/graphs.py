"""Graphs whose nodes are sites: from an adjacency matrix, a networkx graph or a list of edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.data.graph_metric import GraphMetric
from keyhole.data.labels import is_a

__all__ = ["Graph"]

_LENGTHS, _WEIGHTS = "length", "weight"
_ENDS = (("source", "target"), ("from", "to"), ("node1", "node2"), ("u", "v"))


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph with a length and a weight for each edge.

    Parameters
    ----------
    lengths, weights
        ``(n, n)`` sparse and symmetric: how long an edge is, and how strongly it connects its ends.
    names
        ``(n,)``, names of the nodes; None: numbered.
    is_ordered
        Whether the order of the nodes is given, or they are consecutive numbers; that in which edges are listed says
        nothing.

    Examples
    --------
    >>> graph = Graph.read([("a", "b"), ("b", "c")])
    >>> graph.names, graph.metric(["c", "b", "a"]).distances([0], [2])
    (('a', 'b', 'c'), array([[2.]]))
    """

    lengths: Any
    weights: Any
    names: tuple[str, ...] | None = None
    is_ordered: bool = True

    @classmethod
    def read(cls, given: Any) -> Self:
        """Read a graph in any accepted form.

        Parameters
        ----------
        given
            An adjacency matrix ``(n, n)``, dense or sparse, whose entries are the weights of the edges (a length is the
            inverse of the weight); a networkx graph, whose edges may have a ``length`` or a ``weight``; a frame of
            edges with the columns ``source`` and ``target`` (or ``from`` and ``to``), and ``length`` or ``weight``; or
            a list of pairs, or of triples with the length.

        Returns
        -------
        Graph

        Raises
        ------
        DataError
            If the matrix is not square or not symmetric, or a length or weight is not above zero.
        """
        if isinstance(given, Graph):
            return cls(given.lengths, given.weights, given.names, given.is_ordered)
        if hasattr(given, "edges") and hasattr(given, "nodes"):  # networkx
            nodes, edges = _in_order([str(node) for node in given.nodes]), list(given.edges(data=True))
            ends = [(str(one), str(other)) for one, other, _ in edges]
            kind = next(
                (name for name in (_LENGTHS, _WEIGHTS) if edges and all(name in said for *_, said in edges)), None
            )
            return cls._of_edges(nodes, ends, None if kind is None else [said[kind] for *_, said in edges], kind)
        if is_a(given, "pandas", "DataFrame"):
            return cls._of_frame(given)
        if hasattr(given, "tocsr") or (isinstance(given, np.ndarray) and given.dtype.kind in "biuf"):
            return cls._of_matrix(given)
        if isinstance(given, Sequence) and not isinstance(given, str) and all(len(edge) in (2, 3) for edge in given):
            ends = [(str(edge[0]), str(edge[1])) for edge in given]
            lengths = [edge[2] for edge in given] if given and all(len(edge) == 3 for edge in given) else None
            return cls._of_edges(_ends_of(ends), ends, lengths, _LENGTHS, is_ordered=False)
        raise SettingsError(
            f"graph: a {type(given).__name__}; an adjacency matrix, a networkx graph, or a frame or list of edges "
            "is needed"
        )

    @classmethod
    def _of_frame(cls, frame: Any) -> Self:
        ends = next((pair for pair in _ENDS if set(pair) <= set(frame.columns)), None)
        if ends is None:
            raise SettingsError("graph: a frame of edges needs the columns source and target")
        pairs = [(str(one), str(other)) for one, other in zip(frame[ends[0]], frame[ends[1]], strict=True)]
        kind = next((name for name in (_LENGTHS, _WEIGHTS) if name in frame.columns), None)
        values = None if kind is None else frame[kind].to_numpy()
        return cls._of_edges(_ends_of(pairs), pairs, values, kind, is_ordered=False)

    @classmethod
    def _of_edges(
        cls, nodes: list[str], ends: list[tuple[str, str]], values: Any, kind: str | None, *, is_ordered: bool = True
    ) -> Self:
        from scipy.sparse import csr_array

        number = {name: place for place, name in enumerate(nodes)}
        rows, columns = (np.array([number[pair[end]] for pair in ends], np.int64) for end in (0, 1))
        given = np.ones(len(ends)) if values is None else np.asarray(values, np.float64)
        _check_positive(given, kind or _LENGTHS)
        lengths = given if kind != _WEIGHTS else 1 / given
        shortest: dict[tuple[int, int], float] = {}
        for one, other, length in zip(rows.tolist(), columns.tolist(), lengths.tolist(), strict=True):
            if one != other:
                key = (min(one, other), max(one, other))
                shortest[key] = min(length, shortest.get(key, np.inf))
        if not shortest:
            raise DataError("graph: it has no edges")
        pairs, values = np.array(list(shortest)), np.array(list(shortest.values()))
        index = np.concatenate([pairs, pairs[:, ::-1]]).T
        matrix = csr_array((np.tile(values, 2), tuple(index)), shape=(len(nodes), len(nodes)))
        return cls(matrix, _inverse(matrix), tuple(nodes), is_ordered or _are_numbers(nodes))

    @classmethod
    def _of_matrix(cls, matrix: Any) -> Self:
        from scipy.sparse import csr_array

        weights = csr_array(matrix, dtype=np.float64)
        weights.setdiag(0)
        weights.eliminate_zeros()
        if weights.shape[0] != weights.shape[1]:
            raise DataError(f"graph: an adjacency matrix of shape {weights.shape}; as many rows as columns are needed")
        if not weights.nnz:
            raise DataError("graph: it has no edges")
        _check_positive(weights.data, _WEIGHTS)
        off = abs(weights - weights.T)
        if off.nnz and off.max() > 1e-9 * weights.max():
            raise DataError("graph: the adjacency matrix is not symmetric; for a directed graph give (A + A.T) / 2")
        return cls(_inverse(weights), weights)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return int(self.lengths.shape[0])

    def metric(self, names: Sequence[str] | int) -> GraphMetric:
        """Return the metric for sites in a given order.

        Parameters
        ----------
        names
            Names of the sites, which are looked up among the nodes, also numbered ones; or the number of sites, whose
            order is then that of the nodes.

        Raises
        ------
        SettingsError
            If a site is no node, their numbers differ, or the order of the nodes is not known.
        """
        count = names if isinstance(names, int) else len(names)
        size = self.size
        known = self.names or ()
        if self.names is None or isinstance(names, int) or (_are_numbers(known) and not {*known} & {*names}):
            if count != size:
                raise SettingsError(f"graph: {size} nodes for {count} sites, and no names to match them by")
            if not self.is_ordered:
                raise SettingsError(
                    f"graph: its edges name nodes ({', '.join(known[:2])}, ...), but the sites have no names; number "
                    f"the nodes from 0 to {size - 1}, or give an adjacency matrix or names to the sites"
                )
            return GraphMetric(self.lengths, self.weights)
        number = {name: place for place, name in enumerate(self.names)}
        missing = [name for name in names if name not in number]
        if missing:
            raise SettingsError(f"graph: site {missing[0]!r} is no node; {len(missing)} of {count} sites are none")
        order = np.array([number[name] for name in names], np.int64)
        rest = np.setdiff1d(np.arange(size), order)
        every = np.concatenate([order, rest])
        whole = GraphMetric(self.lengths[every][:, every], self.weights[every][:, every])
        return whole if not len(rest) else whole.take(np.arange(len(order)))


def _ends_of(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Nodes of a list of edges; in the order of their numbers if they are numbered."""
    return _in_order(list(dict.fromkeys(node for pair in pairs for node in pair)))


def _in_order(nodes: list[str]) -> list[str]:
    return sorted(nodes, key=int) if _are_numbers(nodes) else nodes


def _are_numbers(nodes: Sequence[str]) -> bool:
    """Whether nodes are called by consecutive numbers."""
    if not all(node.isdecimal() for node in nodes):
        return False
    numbers = {int(node) for node in nodes}
    return len(numbers) == len(nodes) == max(numbers, default=0) - min(numbers, default=1) + 1


def _check_positive(values: NDArray[np.float64], what: str) -> None:
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise DataError(f"graph: the {what} of every edge must be a finite number above zero")


def _inverse(matrix: Any) -> Any:
    other = matrix.copy()
    other.data = 1 / other.data
    return other
