"""SIGKILL, SIGTERM and Ctrl-C from outside: nothing is lost."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from typer.testing import CliRunner

import keyhole as kh
from keyhole.cli import app
from keyhole.workflow.sweeps import finished, read_study

SCRIPT = Path(__file__).parents[1] / "scripts" / "kill_and_resume.py"
LONG = ["select", "digits", "-k", "6", "--method", "learned", "--reconstructor", "ridge", "--save-every", "0.05"]
LONG += ["--set", 'train={"steps": 600, "batch_size": 128, "ema_decay": 0}']

STUDY = 'source = "digits"\nk = [3]\nmethods = ["qr"]\nreconstructors = ["ridge"]\ntrials = 1\nheartbeat = 1\n'


def start(out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "keyhole", *LONG, *more, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Exit code and standard error."""
    _, errors = process.communicate()
    return process.returncode, errors


@pytest.mark.parametrize(("what", "kills"), [("training", 2), ("sweep", 1)])
def test_what_was_killed_comes_to_what_one_left_alone_does(what, kills, capsys):
    """The short form of scripts/kill_and_resume.py, which exits where it does not."""
    runpy.run_path(str(SCRIPT))["compare"](what, kills, seed=0)
    assert f"{what}: {kills} kills" in capsys.readouterr().out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_the_state_and_says_so(tmp_path, number, code):
    """The step ends, the state is saved, the exit code tells, and --resume goes on to the plan."""
    out = tmp_path / "plan.keyhole"
    process = start(out)
    runpy.run_path(str(SCRIPT))["wait_for_traces"](process, tmp_path, "*.state")
    os.kill(process.pid, number)
    found, errors = finish(process)
    assert found == code
    assert b"resume" in errors
    assert b"Traceback" not in errors
    assert not out.exists()
    assert finish(start(out, "--resume"))[0] == 0
    assert kh.load(out).k == 6
    assert list(tmp_path.iterdir()) == [out]


def test_a_trial_whose_worker_never_signed_is_given_up(tmp_path):
    """Its worker was killed between asking for it and the first sign of life."""
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    asked = read_study(path)
    optuna.create_study(study_name=asked.name, storage=asked.url(path), directions=["minimize"] * 3).ask()
    done = CliRunner().invoke(app, ["sweep", str(path)])
    assert done.exit_code == 0, done.output
    assert [one.number for one in finished(asked, asked.url(path))] == [1]
