"""Drawing of graphs: where nodes lie, and what is drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import block_diag, csr_array, eye_array, kron
from scipy.spatial.distance import pdist, squareform

import keyhole as kh
from keyhole.report import ReportData, sites_figure
from keyhole.report.layout import frame_of
from keyhole.report.network import NetworkFrame, graph_layout
from keyhole.workflow.comparison import compare


def path(count: int) -> csr_array:
    ones = np.diag(np.ones(count - 1), 1)
    return csr_array(ones + ones.T)


@pytest.mark.parametrize("side", [9, 30])
def test_a_lattice_is_laid_out_as_one(side):
    """Distances on paper are in proportion to those on the lattice, within a few per cent; refined or not."""
    lattice = csr_array(kron(path(side), eye_array(side)) + kron(eye_array(side), path(side)))
    points = graph_layout(lattice)
    rows, columns = np.divmod(np.arange(side**2), side)
    apart = pdist(np.stack([rows, columns], axis=1))
    correlation = np.corrcoef(apart, pdist(points))[0, 1]
    assert correlation > 0.97
    assert points.min() == pytest.approx(0)
    assert points.max() == pytest.approx(1)


def test_nodes_do_not_lie_on_each_other():
    """A star, whose ends have equal distances to all but themselves."""
    star = np.zeros((9, 9))
    star[0, 1:] = star[1:, 0] = 1
    assert pdist(graph_layout(star)).min() > 0.1


def test_parts_that_are_not_connected_lie_beside_each_other():
    points = graph_layout(csr_array(block_diag([path(6), path(6)])))
    gaps = squareform(pdist(points))
    assert gaps[:6, 6:].min() > 0.1
    assert np.isfinite(points).all()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_tiny_graphs_have_a_layout(count):
    assert graph_layout(path(count)).shape == (count, 2)


def test_the_layout_is_the_same_each_time():
    adjacency = kh.datasets.water().sites.metric.adjacency()
    np.testing.assert_array_equal(graph_layout(adjacency), graph_layout(adjacency))


def test_nodes_lie_at_their_coordinates_if_there_are_any():
    samples = kh.datasets.water()
    frame = frame_of(samples.sites)
    assert isinstance(frame, NetworkFrame)
    assert frame.has_coordinates
    np.testing.assert_allclose(frame.x, samples.sites.coordinate("x"))
    assert len(frame.edges) == 119 - 2  # river and lake are no sites and have no coordinates
    network = kh.datasets.water_network()
    laid_out = frame_of(kh.read(network.share, graph=network.pipes).sites)
    assert not laid_out.has_coordinates
    assert len(laid_out.edges) == 119


def test_a_figure_shows_edges_sites_and_ranks():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 8)).cumsum(axis=1), columns=list("abcdefgh"))
    samples = kh.read(table, graph=[("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"), ("f", "g"), ("g", "h")])
    figure = sites_figure(ReportData.of(compare(samples, 2, ["greedy"], reconstructor="ridge")))
    axes = figure.axes[0]
    assert {text.get_text() for text in axes.texts} == {"1", "2"}
    lines = [one for one in axes.collections if hasattr(one, "get_segments")]
    assert len(lines[0].get_segments()) == 7
    assert axes.get_xlabel() == ""
