"""A benchmark that is killed continues where it was."""

from __future__ import annotations

import json
import runpy
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest

from command_processes import launch
from keyhole.core.run import Run
from keyhole_benchmarks.records import Case, Store
from keyhole_benchmarks.runner import Job, Outcome, run_jobs

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "kill_and_resume.py"))


def test_a_killed_benchmark_has_every_case_once(tmp_path):
    """Killed as soon as its first arrays are there, as scripts/kill_and_resume.py does it."""
    folder = tmp_path / "results"
    folder.mkdir()
    arguments = SCRIPT["bench_command"](folder)[3:]
    for number, code in ((signal.SIGKILL, -9), (None, 0)):
        run = launch(folder, tmp_path / "bench", *arguments, main="keyhole_benchmarks.commands")
        if number is not None:
            run.wait_for(folder, "*.npz")
            run.send(number)
        assert run.end() == code, run.errors.read_text()
    assert SCRIPT["bench_result"](folder) == SCRIPT["SUBJECTS"]["bench"].expected


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
