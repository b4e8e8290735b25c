"""SIGKILL, SIGTERM and Ctrl-C from outside: nothing is lost."""

from __future__ import annotations

import runpy
import signal
from pathlib import Path

import numpy as np
import optuna
from typer.testing import CliRunner

import keyhole as kh
from command_processes import Launched, launch
from example_data import smooth
from keyhole.cli import app
from keyhole.workflow.sweeps import finished, read_study

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "kill_and_resume.py"))
TRAINING = [
    "select",
    "../data.npy",
    "-k",
    "3",
    "--method",
    "learned",
    "--reconstructor",
    "residual",
    "--save-every",
    "0.02",
]
TRAINING += ["--set", 'train={"steps": 150, "batch_size": 64, "ema_decay": 0}', "--resume"]

STUDY = 'source = "digits"\nk = [3]\nmethods = ["qr"]\nreconstructors = ["ridge"]\ntrials = 1\nheartbeat = 1\n'


def train(folder: Path) -> Launched:
    return launch(folder, folder.parent / folder.name, *TRAINING, "--out", folder / "plan.keyhole")


def test_a_training_that_is_stopped_four_times_comes_to_what_one_left_alone_does(tmp_path):
    """Ctrl-C, SIGTERM and SIGKILL while it chooses, SIGKILL once more as it learns to reconstruct.

    A signal that can be caught lets the step end and the state be saved, the exit code and a sentence tell, and no
    plan is there; resumed after all of them, sites and weights are those of a run left alone, to the last bit, and
    nothing but the plan is left.
    """
    alone, stopped = tmp_path / "alone", tmp_path / "stopped"
    np.save(tmp_path / "data.npy", smooth(60, 4, 5).astype(np.float32))
    alone.mkdir()
    stopped.mkdir()
    left_alone = train(alone)
    stops = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9), (signal.SIGKILL, -9)]
    for turn, (number, code) in enumerate(stops):
        run = train(stopped)
        run.wait_for(stopped, "*.state" if turn < 3 else "*dense*.state")
        run.send(number)
        assert run.end() == code, run.errors.read_text()
        told = run.errors.read_text()
        assert ("resume" in told) is (number != signal.SIGKILL)
        assert "Traceback" not in told
        assert list(stopped.rglob("*.state"))
        assert not (stopped / "plan.keyhole").exists()
    assert train(stopped).end() == 0
    assert left_alone.end() == 0
    assert kh.load(stopped / "plan.keyhole").k == 3
    assert SCRIPT["weights_digest"](stopped) == SCRIPT["weights_digest"](alone)
    assert list(stopped.iterdir()) == [stopped / "plan.keyhole"]


def test_a_killed_sweep_has_every_trial_once(tmp_path):
    """Killed as soon as its database is there and again as a trial begins, as scripts/kill_and_resume.py does it."""
    folder = tmp_path / "sweep"
    folder.mkdir()
    arguments = SCRIPT["sweep_command"](folder)[3:]
    for turn in range(3):
        run = launch(folder, tmp_path / "sweep", *arguments)
        if turn == 0:
            run.wait_for(folder, "*.db")
        if turn == 1:
            run.wait_for_message("begins")
        if turn < 2:
            run.send(signal.SIGKILL)
        assert run.end() == (0 if turn == 2 else -9), run.errors.read_text()
    assert SCRIPT["sweep_result"](folder) == SCRIPT["SUBJECTS"]["sweep"].expected


def test_a_trial_whose_worker_never_signed_is_given_up(tmp_path):
    """Its worker was killed between asking for it and the first sign of life."""
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    asked = read_study(path)
    optuna.create_study(study_name=asked.name, storage=asked.url(path), directions=["minimize"] * 3).ask()
    done = CliRunner().invoke(app, ["sweep", str(path)])
    assert done.exit_code == 0, done.output
    assert [one.number for one in finished(asked, asked.url(path))] == [1]
