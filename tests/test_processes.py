"""Several processes that train together: the same gradients, the same weights, one file."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import keyhole as kh
from keyhole.core.errors import SettingsError
from keyhole.core.processes import Processes, processes
from keyhole.core.run import Run
from keyhole.placement.learned import Learned
from keyhole.training.settings import TrainSettings
from samples import smooth

SCRIPT = Path(__file__).parents[1] / "scripts" / "kill_and_resume.py"
SETTINGS = ("--method", "vln", "--set", "decoder=dense", "--set", "n_masks=4", "--reconstructor", "ridge")
TRAIN = {"steps": 12, "batch_size": 16, "ema_decay": 0.0, "validation_steps": 2}
STEPS = ("--set", f"train={json.dumps(TRAIN)}")


def gradients(several: Processes) -> list[torch.Tensor]:
    """Of one step of a joint training, in one of several processes."""
    settings = TrainSettings(steps=1, batch_size=16, ema_decay=0.0)
    signals = kh.read(smooth(40, 4, 5).astype(np.float32))
    task, _ = Learned(distribution="vln", decoder="dense", n_masks=4, train=settings)._task(signals, 3, Run())
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


def start(folder: Path, *arguments: str, count: int = 2) -> subprocess.Popen[str]:
    """Start a command in several processes of one thread each."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "-m", "keyhole"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*run, *arguments], **pipes, text=True, cwd=folder, env=environment)


def together(folder: Path, *arguments: str, count: int = 2) -> subprocess.CompletedProcess[str]:
    """Run a command in several processes to its end."""
    process = start(folder, *arguments, count=count)
    out, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


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


def worker(process: subprocess.Popen[str], rank: int) -> int:
    """Number of the process that torchrun started as one of several."""
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    children = [child for thread in threads for child in (thread / "children").read_text().split()]
    mine = f"RANK={rank}".encode()
    return next(int(one) for one in children if mine in Path(f"/proc/{one}/environ").read_bytes().split(b"\0"))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are looked up as Linux tells them")
def test_either_of_two_is_killed_and_both_go_on(tmp_path):
    """The job ends with it, and not well; resumed after both kills, it ends as one left alone."""
    np.save(tmp_path / "data.npy", smooth(60, 4, 5).astype(np.float32))
    steps = ("--set", f"train={json.dumps(TRAIN | {'steps': 400})}")
    command = ("select", "data.npy", "-k", "3", *SETTINGS, *steps, "--save-every", "0.05", "--resume", "--out")
    for rank in (0, 1):
        process = start(tmp_path, *command, "killed.keyhole")
        runpy.run_path(str(SCRIPT))["wait_for_traces"](process, tmp_path, "*.state")
        os.kill(worker(process, rank), signal.SIGKILL)
        process.communicate(timeout=200)
        assert process.returncode != 0
        assert len(list(tmp_path.rglob("*.state"))) == 1
        assert not (tmp_path / "killed.keyhole").exists()
    for name in ("killed.keyhole", "alone.keyhole"):
        done = together(tmp_path, *command, name)
        assert done.returncode == 0, done.stderr
    killed, alone = (kh.load(tmp_path / name) for name in ("killed.keyhole", "alone.keyhole"))
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
