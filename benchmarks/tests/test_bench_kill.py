"""A benchmark that is killed continues where it was."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from unittest.mock import Mock

import pytest

from keyhole.core.run import Run
from keyhole_benchmarks.records import Case, Store
from keyhole_benchmarks.runner import Job, Outcome, run_jobs

SCRIPT = Path(__file__).parents[2] / "scripts" / "kill_and_resume.py"


def test_a_killed_benchmark_has_every_case_once(capsys):
    """The short form of scripts/kill_and_resume.py, which exits where it does not."""
    runpy.run_path(str(SCRIPT))["compare"]("bench", 1, seed=0)
    assert "bench: 1 kills" in capsys.readouterr().out


def test_a_torn_line_is_cut_off(tmp_path):
    """What a kill left half-written goes when the next line comes; a line that lacks nothing but its end stays."""
    store = Store(tmp_path, "quality")
    for number, torn in enumerate(("", '{"case_id": "to', '{"case_id": "whole"}')):
        with store.path.open("a") as file:
            file.write(torn)
        store.append([{"case_id": str(number)}])
    lines = [json.loads(line)["case_id"] for line in store.path.read_text().splitlines()]
    assert lines == ["0", "1", "whole", "2"]


def test_what_was_trained_stays_until_its_line_is_there(tmp_path, monkeypatch):
    """A bench that is killed as it writes a line does not train again."""
    case = Case("quality", "digits", "small", "vln", "ridge", 3, 0)
    found = []

    def work(run: Run) -> list[Outcome]:
        found.append(run.folder.exists())
        run.folder.mkdir(parents=True, exist_ok=True)
        return [Outcome({"mse": 0.5}, 3)]

    store, jobs = Store(tmp_path, "quality"), [Job([case], {}, "auto", work)]
    with monkeypatch.context() as patch:
        patch.setattr(Store, "append", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_jobs(jobs, store, device="cpu", say=print)
    assert run_jobs(jobs, store, device="cpu", say=print) == 1
    assert found == [False, True]
    assert not list(tmp_path.glob(".unfinished/*"))
