"""Graphs of sites, in every form that they are given in."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from keyhole.core.errors import DataError, SettingsError
from keyhole.data.graphs import Graph
from keyhole.data.metric import Euclidean, NoMetric

EDGES = [("a", "b", 2.0), ("b", "c", 4.0), ("c", "d", 1.0)]
EXPECTED = np.array([[0, 2, 6, 7], [2, 0, 4, 5], [6, 4, 0, 1], [7, 5, 1, 0]], float)


def forms():
    graph = nx.Graph()
    for one, other, length in EDGES:
        graph.add_edge(one, other, length=length)
    matrix = np.zeros((4, 4))
    for place, (_, _, length) in enumerate(EDGES):
        matrix[place, place + 1] = matrix[place + 1, place] = 1 / length
    frame = pd.DataFrame(EDGES, columns=["source", "target", "length"])
    weighted = frame.assign(weight=1 / frame["length"]).drop(columns="length")
    return {"list": EDGES, "networkx": graph, "frame": frame, "weights": weighted, "dense": matrix,
            "sparse": csr_array(matrix)}  # fmt: skip


@pytest.mark.parametrize("form", ["list", "networkx", "frame", "weights", "dense", "sparse"])
def test_every_form_gives_the_same_distances(form):
    metric = Graph.read(forms()[form]).metric(["a", "b", "c", "d"])
    np.testing.assert_allclose(metric.distances(range(4), range(4)), EXPECTED)


def test_sites_are_matched_by_name_and_paths_lead_over_other_nodes():
    metric = Graph.read(EDGES).metric(["d", "a"])
    np.testing.assert_allclose(metric.distances(range(2), range(2)), [[0, 7], [7, 0]])
    assert set(metric.within(0, 7.5)) == {0, 1}
    assert metric.taper([0, 1], [0, 1], 1.0).shape == (2, 2)


def test_repeated_edges_and_loops_are_harmless():
    metric = Graph.read([*EDGES, ("b", "a", 1.0), ("a", "a", 3.0)]).metric(["a", "b", "c", "d"])
    assert metric.distances(0, 1)[0, 0] == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((2, 3)), "as many rows as columns"),
        (np.array([[0.0, 1.0], [2.0, 0.0]]), "not symmetric"),
        (np.array([[0.0, -1.0], [-1.0, 0.0]]), "above zero"),
        (np.zeros((3, 3)), "no edges"),
        ([("a", "b", 0.0)], "above zero"),
        (pd.DataFrame({"x": [1]}), "source and target"),
        ("a graph", "is needed"),
    ],
)
def test_what_is_no_graph_is_refused(given, message):
    with pytest.raises((DataError, SettingsError), match=message):
        Graph.read(given)


def test_sites_that_are_no_nodes_are_refused():
    with pytest.raises(SettingsError, match="'e' is no node"):
        Graph.read(EDGES).metric(["a", "e"])
    with pytest.raises(SettingsError, match="4 nodes for 3 sites"):
        Graph.read(forms()["dense"]).metric(3)


@pytest.mark.parametrize("start", [0, 1])
def test_numbered_nodes_are_the_sites_of_these_numbers(start):
    """In whatever order the edges name them."""
    edges = [(start + 10, start + 3), (start + 3, start), *((start + one, start + one + 1) for one in range(10))]
    frame = pd.DataFrame(edges, columns=["source", "target"])
    for given in (edges, frame, nx.Graph(edges)):
        metric = Graph.read(given).metric(11)
        assert metric.distances(0, range(11))[0].tolist() == [0, 1, 2, 1, 2, 3, 4, 5, 4, 3, 2]


def test_nodes_are_not_matched_by_the_order_of_the_edges():
    with pytest.raises(SettingsError, match=r"\(a, b, ...\), but the sites have no names"):
        Graph.read(EDGES).metric(4)
    with pytest.raises(SettingsError, match="site 'A' is no node; 4 of 4"):
        Graph.read(EDGES).metric(["A", "B", "C", "D"])
    named = nx.path_graph(["a", "b", "c", "d"])  # its nodes have an order
    assert Graph.read(named).metric(4).distances(0, 3)[0, 0] == 3


def test_the_adjacency_has_the_sites_first():
    """Nodes that are no sites come after them."""
    adjacency = Graph.read(EDGES).metric(["d", "a"]).adjacency().toarray()
    expected = np.zeros((4, 4))  # d, a, b, c
    for one, other, length in ((1, 2, 2.0), (2, 3, 4.0), (3, 0, 1.0)):
        expected[one, other] = expected[other, one] = 1 / length
    np.testing.assert_allclose(adjacency, expected)


def test_groups_of_nodes_are_connected_by_the_sum_of_their_edges():
    weights = np.array([[0, 1, 2, 0], [1, 0, 0, 3], [2, 0, 0, 1], [0, 3, 1, 0]], float)
    contracted = Graph.read(weights).metric(4).contract(np.array([0, 0, 1, 1]))
    np.testing.assert_allclose(contracted.adjacency().toarray(), [[0, 5], [5, 0]])
    assert contracted.distances(0, 1)[0, 0] == pytest.approx(1 / 5)
    over = Graph.read(EDGES).metric(["a", "b", "d"]).contract(np.array([1, 0, 0]))  # c still connects
    assert len(over) == 2
    assert np.isfinite(over.distances(0, 1)[0, 0])


def test_positions_have_their_nearest_ones_as_neighbours(rng):
    points = rng.uniform(size=(40, 2))
    adjacency = Euclidean(points).adjacency().toarray()
    nearest = np.argsort(np.linalg.norm(points[:, np.newaxis] - points, axis=2), axis=1)[:, 1:7]
    expected = np.zeros((40, 40))
    np.put_along_axis(expected, nearest, 1.0, axis=1)
    np.testing.assert_array_equal(adjacency, np.maximum(expected, expected.T))
    assert Euclidean(points[:1]).adjacency().nnz == 0
    with pytest.raises(SettingsError, match="neither a graph nor positions"):
        NoMetric(3).adjacency()
