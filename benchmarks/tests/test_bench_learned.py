"""The benchmark of learned masks beside local search, on digits."""

from __future__ import annotations

import pytest

from keyhole_benchmarks import learned as bench
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.records import Store
from keyhole_benchmarks.runner import run_jobs
from keyhole_benchmarks.sections import learned


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    quick = {"train": {"steps": 10, "batch_size": 32, "ema_decay": 0.0}, "n_masks": 4, "n_restarts": 0}
    for name, one in bench.METHODS.items():
        if one.selector == "learned":
            monkeypatch.setitem(
                bench.METHODS, name, bench.Method(one.words, "learned", {**one.settings, **quick}, one.start)
            )
    monkeypatch.setattr(bench, "KS", {"digits": (4,), "digits classes": (4,)})


@pytest.mark.parametrize("task", ["digits", "digits classes"])
def test_methods_are_run_with_one_refit_and_shown_beside_the_best_classical_one(tmp_path, task):
    store = Store(tmp_path, "learned")
    methods = ("qr", "relevance", "learned", "learned_kernel_search")
    added = run_jobs(bench.jobs((task,), methods, (), (0,)), store, device="cpu", say=lambda _: None)
    lines = Lines(store.lines())
    assert added == (4 if task == "digits classes" else 3)  # forward selection is for classes alone
    assert all(line["k_distinct"] == 4 for line in lines)
    page = "\n".join(learned(lines.latest()))
    assert "learned masks, kernel decoder, local search" in page
    assert "1.0000" in page  # the best classical method, relative to itself
