"""SIGKILL, SIGTERM and Ctrl-C from outside: nothing is lost."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import keyhole as kh

SCRIPT = Path(__file__).parents[1] / "scripts" / "kill_and_resume.py"
LONG = ["select", "digits", "-k", "6", "--method", "learned", "--reconstructor", "ridge", "--save-every", "0.05"]
LONG += ["--set", 'train={"steps": 600, "batch": 128, "average": 0}']


def start(out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "keyhole", *LONG, *more, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Exit code and standard error."""
    _, errors = process.communicate()
    return process.returncode, errors


def test_killed_runs_end_with_the_weights_of_one_left_alone(monkeypatch):
    """The short form of scripts/kill_and_resume.py."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--kills", "2"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert stop.value.code in (0, False)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_the_state_and_says_so(tmp_path, number, code):
    """The step ends, the state is saved, the exit code tells, and --resume goes on to the plan."""
    out = tmp_path / "plan.keyhole"
    process = start(out)
    runpy.run_path(str(SCRIPT))["wait_for_state"](process, out)
    os.kill(process.pid, number)
    found, errors = finish(process)
    assert found == code
    assert b"resume" in errors
    assert b"Traceback" not in errors
    assert not out.exists()
    assert finish(start(out, "--resume"))[0] == 0
    assert kh.load(out).k == 6
    assert list(tmp_path.iterdir()) == [out]
