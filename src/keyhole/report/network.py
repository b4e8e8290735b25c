"""Layout of a graph on paper: edges as lines, nodes by their coordinates or, without any, by their distances."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from keyhole.data.graph_metric import GraphMetric
from keyhole.data.sites import Sites
from keyhole.report.geometry import Ruler, SymbolFrame
from keyhole.report.layout import horizontal
from keyhole.report.style import MUTED

__all__ = ["NetworkFrame", "graph_layout", "is_network"]

Numbers = NDArray[np.float64]

_PIVOTS = 60  # nodes whose distances to all others place these
_MAX_REFINED, _ROUNDS = 600, 200  # nodes up to which the layout is refined, and how often
_MARGIN = 0.04
_CONNECTING = 6.0  # square points of a node that is no site
_MOST_EDGES = 20_000  # more would be a blot, and slow


def is_network(sites: Sites) -> bool:
    """Return whether sites are a list of nodes of a graph, and no grid."""
    return isinstance(sites.metric, GraphMetric) and len(sites.shape) == 1


class NetworkFrame(SymbolFrame):
    """Layout of the nodes of a graph: a symbol for each site, over lines for the edges.

    Nodes lie at their coordinates. Without any, they are laid out by `graph_layout`, and the axes have no labels.

    Parameters
    ----------
    sites, across, up
        See `Frame`.
    points : ndarray of shape (n, 2)
        Where the nodes are drawn, the sites first; the others only connect sites.
    edges : ndarray of shape (e, 2)
        Their pairs that share an edge.
    has_coordinates : bool
        Whether the axes mean something.
    """

    def __init__(
        self, sites: Sites, across: Ruler, up: Ruler, points: Numbers, edges: NDArray[np.int64], *,
        has_coordinates: bool,
    ) -> None:  # fmt: skip
        super().__init__(sites, across, up, *points[: len(sites)].T)
        self.points, self.edges, self.has_coordinates = points, edges, has_coordinates

    @classmethod
    def of_graph(cls, sites: Sites) -> NetworkFrame:
        """Lay out the nodes of a graph."""
        adjacency, names = sites.metric.adjacency(), horizontal(sites)
        if names is not None:
            base = SymbolFrame.around(sites, *names)
            points, across, up = np.stack([base.x, base.y], axis=1), base.across, base.up
        else:
            points = graph_layout(adjacency)
            across, up = (Ruler(name, one, _limits(one)) for name, one in zip("xy", points.T, strict=True))
        return cls(sites, across, up, points, _edges(adjacency, len(points)), has_coordinates=names is not None)

    def draw(self, axes: Axes, values: NDArray[Any], colours: str, norm: Normalize) -> None:
        """Draw the edges, and a symbol for each site."""
        lines = LineCollection(list(self.points[self.edges]), colors=MUTED, linewidths=0.6, zorder=0)
        axes.add_collection(lines, autolim=False)
        x, y = self.points[len(self.sites) :].T
        axes.scatter(x, y, s=_CONNECTING, c=MUTED, linewidths=0, zorder=0)
        super().draw(axes, values, colours, norm)

    def apply(self, axes: Axes, *, labelled: bool) -> None:
        """Set limits, aspect and, if wanted and there are coordinates, labels of axes."""
        super().apply(axes, labelled=labelled and self.has_coordinates)


def graph_layout(adjacency: Any) -> Numbers:
    """Return points in the plane whose distances are about the numbers of edges between nodes.

    Multidimensional scaling from the distances to 60 pivots [1]_, and for up to 600 nodes a descent on the stress of
    all distances, weighted by their inverse squares [2]_. The same graph has always the same layout.

    Parameters
    ----------
    adjacency : sparse array of shape (n, n)
        Symmetric.

    Returns
    -------
    ndarray of shape (n, 2)
        The longer side is horizontal and has length 1.

    References
    ----------
    .. [1] Brandes & Pich (2007). Eigensolver methods for progressive multidimensional scaling of large data. GD 2006.
    .. [2] Gansner, Koren & North (2005). Graph drawing by stress majorization. GD 2004.

    Examples
    --------
    >>> path = np.diag(np.ones(3), 1)
    >>> graph_layout(path + path.T)[:, 0].round(2).tolist()
    [0.0, 0.33, 0.67, 1.0]
    """
    from scipy.sparse import csr_array

    matrix = csr_array(adjacency)
    count = int(matrix.shape[0])
    if count < 3:
        return np.stack([np.linspace(0, 1, count), np.zeros(count)], axis=1)
    small = count <= _MAX_REFINED
    distances = _hops(matrix, np.arange(count)) if small else _from_pivots(matrix)
    points = _scaled(distances)
    if small:
        points = _refined(points, distances)
    points = points - points.mean(axis=0)
    points = points @ np.linalg.svd(points, full_matrices=False)[2].T
    points *= np.where(points[0] > 0, -1.0, 1.0)  # the first node is on the left and below
    points -= points.min(axis=0)
    return np.asarray(points / (points.max() or 1.0))


def _hops(matrix: Any, starts: NDArray[np.int64]) -> Numbers:
    """Numbers of edges from some nodes to all, with parts that are not connected beside each other."""
    from scipy.sparse.csgraph import dijkstra

    found = np.atleast_2d(dijkstra(matrix, directed=False, indices=starts, unweighted=True))
    finite = np.isfinite(found)
    return np.where(finite, found, found[finite].max() + 2)


def _from_pivots(matrix: Any) -> Numbers:
    """Numbers of edges from pivots, each the farthest from those before."""
    rows, nearest, pivot = [], np.full(matrix.shape[0], np.inf), 0
    for _ in range(min(_PIVOTS, matrix.shape[0])):
        rows.append(_hops(matrix, np.array([pivot]))[0])
        nearest = np.minimum(nearest, rows[-1])
        pivot = int(nearest.argmax())
    return np.stack(rows)


def _scaled(distances: Numbers) -> Numbers:
    """Points from distances to pivots, by classical scaling."""
    squares = np.square(distances)
    centred = squares.mean() - squares + squares.mean(axis=0) - squares.mean()
    centred += squares.mean(axis=1, keepdims=True) - squares.mean()
    vectors = np.linalg.svd(centred / 2, full_matrices=False)[2]
    points = vectors[:2].T
    reach = np.abs(centred @ points / 2).sum(axis=0)
    spread = np.sqrt(np.maximum(reach, np.finfo(float).tiny))
    return np.asarray(points * spread)


def _refined(points: Numbers, distances: Numbers) -> Numbers:
    """Points of lower stress, by majorisation."""
    count = len(points)
    wanted = distances + np.eye(count)
    weights = wanted**-2.0 * (1 - np.eye(count))
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    points = points + 1e-3 * np.random.default_rng(0).normal(size=points.shape)  # nodes may coincide
    for _ in range(_ROUNDS):
        apart = np.linalg.norm(points[:, np.newaxis] - points, axis=2)
        ratio = weights * distances / np.maximum(apart, 1e-9)
        points = inverse @ ((np.diag(ratio.sum(axis=1)) - ratio) @ points)
    return points


def _edges(adjacency: Any, count: int) -> NDArray[np.int64]:
    """Pairs of nodes, among the first ones, that share an edge; none where there are too many to be told apart."""
    pairs = np.stack(adjacency.tocoo().coords, axis=1)
    pairs = pairs[(pairs[:, 0] < pairs[:, 1]) & (pairs[:, 1] < count)]
    return pairs if len(pairs) <= _MOST_EDGES else pairs[:0]


def _limits(values: Numbers) -> Numbers:
    return np.array([values.min() - _MARGIN, values.max() + _MARGIN])
