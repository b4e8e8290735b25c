"""The benchmark of graphs: selectors and reconstructors on the water network."""

from __future__ import annotations

import pytest

from keyhole_benchmarks.graphs import RECONSTRUCTORS, jobs
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.records import Store
from keyhole_benchmarks.runner import run_jobs
from keyhole_benchmarks.sections import graphs


def test_methods_are_run_and_shown(tmp_path):
    """A line for each reconstructor at the same sites, and a table of each kind."""
    store = Store(tmp_path, "graphs")
    asked = jobs((24,), ("greedy", "exchange"), RECONSTRUCTORS, (5,), (0, 1))
    assert run_jobs(asked, store, device="cpu", say=lambda _: None) == 6
    lines = Lines(store.lines())
    assert set(lines.each("reconstructor")) == set(RECONSTRUCTORS)
    for one in lines:
        assert 0 < one["metrics"]["fvu"] < 1
        assert one["split"] == pytest.approx({"train": 16, "validation": 8, "test": 96, "kind": "given"})
    page = "\n".join(graphs(lines.latest()))
    assert "| 24 h | 5 |" in page
    assert "Selectors, K = 5" in page


def test_masks_are_learned_from_scratch():
    """Otherwise they would end near greedy's sites."""
    for job in jobs((24,), ("vln", "graph_vln"), ("ridge",), (5,), (0, 1)):
        assert job.cases[0].settings["selector"]["warm_start"] == "none"
