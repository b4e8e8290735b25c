"""Several processes that train together: the same gradients, the same weights, one file."""

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
import torch

import keyhole as kh
from command_processes import Launched, launch
from example_data import smooth
from keyhole.core.errors import SettingsError
from keyhole.core.processes import Processes, processes
from keyhole.core.run import Run
from keyhole.placement.learned import Learned
from keyhole.training.settings import TrainSettings

SETTINGS = ("--method", "vln", "--set", "decoder=dense", "--set", "n_masks=4", "--reconstructor", "ridge")
TRAIN = {"steps": 12, "batch_size": 16, "ema_decay": 0.0, "validation_steps": 2}
STEPS = ("--set", f"train={json.dumps(TRAIN)}")


def gradients(several: Processes) -> list[torch.Tensor]:
    """Of one step of a joint training, in one of several processes."""
    settings = TrainSettings(steps=1, batch_size=16, ema_decay=0.0)
    samples = kh.read(smooth(40, 4, 5).astype(np.float32)).as_scaled()
    task, _ = Learned(distribution="vln", decoder="dense", n_masks=4, train=settings).learn(samples, 3, Run())
    task.zero_grad()
    task.processes = several
    parts, _ = task(torch.arange(16), torch.Generator().manual_seed(0))
    sum(parts.values()).backward()
    return [torch.zeros_like(one) if one.grad is None else one.grad for one in task.parameters()]


@pytest.mark.parametrize("count", [2, 4])
def test_averaged_gradients_are_those_of_one_process(count):
    """Draws are made globally, and sliced."""
    alone = gradients(Processes())
    parts = [gradients(Processes(rank, count)) for rank in range(count)]
    for one, several in zip(alone, zip(*parts, strict=True), strict=True):
        torch.testing.assert_close(torch.stack(several).mean(dim=0), one, rtol=1e-5, atol=1e-6)


def together(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command by torchrun in two processes of one thread each, to its end."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "keyhole"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    return subprocess.run([*run, *arguments], capture_output=True, text=True, cwd=folder, env=environment)


def test_two_processes_choose_what_one_does(tmp_path):
    """The law ends where it ends in one process, but for rounding; one file, told once."""
    np.save(tmp_path / "data.npy", smooth(60, 4, 5).astype(np.float32))
    done = together(tmp_path, "select", "data.npy", "-k", "3", *SETTINGS, *STEPS, "--out", "two.keyhole")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("plan   two.keyhole") == 1
    settings = {"decoder": "dense", "n_masks": 4, "train": TRAIN}
    alone = kh.select(np.load(tmp_path / "data.npy"), 3, method="vln", reconstructor="ridge", settings=settings)
    two = kh.load(tmp_path / "two.keyhole")
    assert two.indices.tolist() == alone.indices.tolist()
    figures = [[row["concentration"] for row in plan.history if "concentration" in row] for plan in (two, alone)]
    np.testing.assert_allclose(*figures, rtol=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.npy", "two.keyhole"]


def pair(folder: Path, prints: Path, *arguments: str) -> list[Launched]:
    """Start a command in two processes, with the variables that torchrun sets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        launch(folder, prints / f"{rank}", *arguments, **both, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in (0, 1)
    ]


def test_either_of_two_is_killed_and_both_go_on(tmp_path):
    """The other ends with it, and not well; resumed after both kills, they end as two left alone."""
    folder, prints = tmp_path / "work", tmp_path / "prints"
    folder.mkdir()
    prints.mkdir()
    np.save(folder / "data.npy", smooth(60, 4, 5).astype(np.float32))
    steps = ("--set", f"train={json.dumps(TRAIN | {'steps': 100})}")
    command = ("select", "data.npy", "-k", "3", *SETTINGS, *steps, "--save-every", "0.02", "--resume", "--out")
    for rank in (0, 1):
        several = pair(folder, prints, *command, "killed.keyhole")
        several[0].wait_for(folder, "*.state")
        several[rank].send(signal.SIGKILL)
        assert several[rank].end() == -9, several[rank].errors.read_text()
        assert several[1 - rank].end() != 0
        assert len(list(folder.rglob("*.state"))) == 1
        assert not (folder / "killed.keyhole").exists()
    for name in ("killed.keyhole", "alone.keyhole"):
        for one in pair(folder, prints, *command, name):
            assert one.end() == 0, one.errors.read_text()
    killed, alone = (kh.load(folder / name) for name in ("killed.keyhole", "alone.keyhole"))
    assert killed.indices.tolist() == alone.indices.tolist()
    assert killed.history == alone.history
    weights = [plan.reconstructor.state()[1] for plan in (killed, alone)]
    np.testing.assert_equal(*weights)


def test_a_time_limit_is_refused(monkeypatch):
    """Clocks differ, and with them where a search ends."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert processes() == Processes(1, 2, 1)
    assert replace(processes(), nodes=2).mine(list(range(6))) == [3, 4, 5]
    with pytest.raises(SettingsError, match="several processes"):
        kh.select(smooth(40, 4, 5), 3, method="qr", reconstructor="ridge", time_limit=5)
