"""SIGKILL, SIGTERM and Ctrl-C from outside: nothing is lost."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import optuna
import pytest
from typer.testing import CliRunner

import keyhole as kh
from command_processes import Launched, launch
from example_data import smooth
from keyhole.cli import app
from keyhole.workflow.sweeps import finished, read_study

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "kill_and_resume.py"))
TRAIN = {"steps": 150, "batch_size": 64, "ema_decay": 0}
TRAINING = ["select", "../data.npy", "-k", "3", "--method", "learned", "--reconstructor", "residual"]
TRAINING += ["--set", f"train={json.dumps(TRAIN)}", "--save-every", "0.02", "--resume"]
STUDY = 'source = "digits"\nk = [3]\nmethods = ["qr"]\nreconstructors = ["ridge"]\ntrials = 1\nheartbeat = 1\n'


def train(folder: Path) -> Launched:
    """Start the training whose plan goes to a folder beside the data, or resume it."""
    return launch(folder, folder.parent / folder.name, *TRAINING, "--out", folder / "plan.keyhole")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data of all trainings."""
    folder = tmp_path_factory.mktemp("trainings")
    np.save(folder / "data.npy", smooth(60, 4, 5).astype(np.float32))
    return folder


@pytest.fixture(scope="module")
def uninterrupted(data: Path) -> str:
    """Digest of sites and weights of a training that nobody interrupts, for all tests of interrupted ones."""
    folder = data / "uninterrupted"
    folder.mkdir()
    assert train(folder).end() == 0
    return SCRIPT["weights_digest"](folder)


def assert_resumed(folder: Path, uninterrupted: str) -> None:
    """Resume to the end: sites and weights are those of the uninterrupted run, and only the plan is left."""
    assert list(folder.rglob("*.state"))
    assert not (folder / "plan.keyhole").exists()
    assert train(folder).end() == 0
    assert kh.load(folder / "plan.keyhole").k == 3
    assert SCRIPT["weights_digest"](folder) == uninterrupted
    assert list(folder.iterdir()) == [folder / "plan.keyhole"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_keyhole_process_that_is_interrupted_resumes_to_the_same_result(data, uninterrupted, number, code):
    """Ctrl-C or SIGTERM to a process started from the shell: the step ends, the state is saved, a sentence says so."""
    folder = data / signal.Signals(number).name
    folder.mkdir()
    command = [sys.executable, "-m", "keyhole", *TRAINING, "--out", str(folder / "plan.keyhole")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    while not list(folder.rglob("*.state")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    _, messages = process.communicate(timeout=200)
    assert process.returncode == code, messages
    assert "resume" in messages
    assert "Traceback" not in messages
    assert_resumed(folder, uninterrupted)


def test_a_training_that_is_killed_in_every_stage_resumes_to_the_same_result(data, uninterrupted):
    """SIGKILL while it selects sites, and once more while it trains the reconstructor."""
    folder = data / "killed"
    folder.mkdir()
    for pattern in ("*.state", "*dense*.state"):
        run = train(folder)
        run.wait_for(folder, pattern)
        run.send(signal.SIGKILL)
        assert run.end() == -9, run.errors.read_text()
        assert not (folder / "plan.keyhole").exists()
    assert_resumed(folder, uninterrupted)


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
