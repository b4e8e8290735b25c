"""Several processes that train together, started as users start them: the same sites, one file, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import keyhole as kh
from command_processes import Launched, launch
from example_data import smooth
from keyhole.core.errors import SettingsError
from keyhole.core.processes import Processes, processes

TRAIN = {"steps": 100, "batch_size": 16, "ema_decay": 0.0, "validation_steps": 2}
COMMAND = ["select", "data.npy", "-k", "3", "--method", "vln", "--set", "decoder=dense", "--set", "n_masks=4"]
COMMAND += ["--set", f"train={json.dumps(TRAIN)}", "--reconstructor", "ridge", "--save-every", "0.02", "--resume"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data of all runs."""
    made = tmp_path_factory.mktemp("work")
    np.save(made / "data.npy", smooth(60, 4, 5).astype(np.float32))
    return made


@pytest.fixture(scope="module")
def two(folder: Path) -> kh.Plan:
    """The plan of two processes that torchrun starts, each with one thread, and that nobody kills."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "keyhole"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"OMP_NUM_THREADS": "1"}
    command = [*run, *COMMAND, "--out", "two.keyhole"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("plan   two.keyhole") == 1
    assert sorted(path.name for path in folder.iterdir()) == ["data.npy", "two.keyhole"]
    return kh.load(folder / "two.keyhole")


def test_two_processes_choose_what_one_does(folder, two):
    """The same sites from other draws of the same masks, about as concentrated; one file, reported once."""
    settings = {"decoder": "dense", "n_masks": 4, "train": TRAIN}
    alone = kh.select(np.load(folder / "data.npy"), 3, method="vln", reconstructor="ridge", settings=settings)
    assert two.indices.tolist() == alone.indices.tolist()
    figures = [[row["concentration"] for row in plan.history if "concentration" in row] for plan in (two, alone)]
    np.testing.assert_allclose(*figures, rtol=0.1)


def pair(folder: Path, messages: Path) -> list[Launched]:
    """Start the command in two processes, with the variables that torchrun sets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [*COMMAND, "--out", "killed.keyhole"]
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in (0, 1)]
    return [launch(folder, messages / rank["RANK"], *command, **both, **rank) for rank in ranks]


def test_either_of_two_is_killed_and_both_go_on(folder, two, tmp_path):
    """The other ends with it, and not well; resumed after both kills, they end as two that nobody killed."""
    for rank in (0, 1):
        several = pair(folder, tmp_path)
        several[0].wait_for(folder, "*.state")
        several[rank].send(signal.SIGKILL)
        assert several[rank].end() == -9, several[rank].errors.read_text()
        assert several[1 - rank].end() != 0
        assert len(list(folder.rglob("*.state"))) == 1
        assert not (folder / "killed.keyhole").exists()
    for one in pair(folder, tmp_path):
        assert one.end() == 0, one.errors.read_text()
    killed = kh.load(folder / "killed.keyhole")
    assert killed.indices.tolist() == two.indices.tolist()
    assert killed.history == two.history
    np.testing.assert_equal(killed.reconstructor.state()[1], two.reconstructor.state()[1])


def test_a_time_limit_is_refused(monkeypatch):
    """Clocks differ, and with them where a search ends."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert processes() == Processes(1, 2, 1)
    assert replace(processes(), nodes=2).mine(list(range(6))) == [3, 4, 5]
    with pytest.raises(SettingsError, match="several processes"):
        kh.select(smooth(40, 4, 5), 3, method="qr", reconstructor="ridge", time_limit=5)
