"""The worked examples: a flow without divergence, losses, and a run of few steps."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from keyhole.data.preparation import prepare
from keyhole.data.readers import read
from keyhole.data.splits import Split
from keyhole_benchmarks.example_tasks import EXAMPLES, GridDecoder, with_divergence, with_edges
from keyhole_benchmarks.examples import jobs
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.made_up import vortex_street
from keyhole_benchmarks.records import Store
from keyhole_benchmarks.runner import run_jobs
from keyhole_benchmarks.sections import examples
from keyhole_benchmarks.sections.examples import difference


def test_the_flow_has_no_divergence():
    """By central differences, and whatever its channels are divided by, if the loss is told."""
    flow = vortex_street(3, (8, 12), seed=1)
    divergence = np.gradient(flow[:, 0], axis=2) + np.gradient(flow[:, 1], axis=1)
    np.testing.assert_allclose(divergence[:, 1:-1, 1:-1], 0, atol=1e-12)
    given = torch.from_numpy(flow / np.array([2.0, 0.5])[:, None, None])
    loss = with_divergence(given, given, spread=(2.0, 0.5), weight=1.0)
    np.testing.assert_allclose(loss, 0, atol=1e-12)
    assert float(with_divergence(given, given, spread=(1.0, 1.0), weight=1.0).min()) > 1e-6


def test_edges_count_in_both_directions():
    """A step of one between two columns, and between two rows."""
    truth = torch.zeros(1, 1, 2, 2)
    step = torch.tensor([[0.0, 1.0], [0.0, 1.0]])[None, None]
    assert float(with_edges(step, truth)) == pytest.approx(0.5 + 1.0)
    assert float(with_edges(step.mT, truth)) == pytest.approx(0.5 + 1.0)


def _small_flow(seed):
    flow = vortex_street(50, (8, 12), seed, n_free=0)
    return prepare(read(flow, channels=1), Split.given(range(30), range(40, 50), range(30, 40)), seed)


def test_an_example_is_run_and_shown(tmp_path, monkeypatch):
    """Learned masks leave two records, before and after the local search."""
    decoder = partial(GridDecoder, (8, 12), channels=2, width=8)
    monkeypatch.setitem(EXAMPLES, "flow", replace(EXAMPLES["flow"], prepare=_small_flow, decoder=decoder, k=3))
    store, asked = Store(tmp_path, "examples"), ("greedy", "qr", "warm", "local_search")
    assert run_jobs(jobs(["flow"], asked, [50], 0.004), store, device="cpu", say=lambda _: None) == 4
    lines = Lines(store.lines()).latest()
    for one in lines:
        assert one["k_distinct"] == EXAMPLES["flow"].k
        assert one["metrics"]["loss"] == pytest.approx(one["metrics"]["mse"] + one["metrics"]["divergence"], rel=1e-5)
    page = "\n".join(examples(lines))
    assert "| learned, warm start |" in page
    assert "| the same, then local search |" in page


def test_differences_are_paired_by_seed():
    """Mean and standard error of the seeds that both have."""
    made = [("a", 0, 1.0), ("a", 1, 3.0), ("a", 2, 9.0), ("b", 0, 0.0), ("b", 1, 1.0)]
    lines = Lines([{"method": name, "seed": seed, "metrics": {"loss": loss}} for name, seed, loss in made])
    assert difference(lines, "a", "b") == pytest.approx((1.5, 0.5))
    assert difference(Lines(lines.records[:2]), "a", "b") is None
