"""Tasks that are timed, each with the reference that it is timed against."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keyhole.core.run import Run
from keyhole.data import datasets
from keyhole.data.readers import read
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.scaler import Scaler
from keyhole.models.reconstructors.ridge import NestedRidge, Ridge
from keyhole.placement import Selector
from keyhole.placement.classical import QR, Greedy
from keyhole.placement.learned import Learned
from keyhole.placement.learned_objectives import MaskObjective, make_objective
from keyhole.training.loop import Task, seeded, train
from keyhole.training.settings import TrainSettings
from keyhole.workflow.selection import select
from keyhole_benchmarks.records import Meter

__all__ = [
    "TaskPair", "curve", "greedy_against_pysensors", "greedy_growth", "hnet_step", "large_grid",
    "qr_against_pysensors",
    "reconstruct", "two_processes", "vln_step", "write_store",
]  # fmt: skip

_STEPS, _BATCH = 150, 256
_SAMPLES, _TEST, _SITES, _COMPONENTS, _K = 500, 100, 200_000, 100, 100


@dataclass(frozen=True)
class TaskPair:
    """A task and the reference that it is timed against.

    A figure called ``ratio`` replaces the ratio of times.

    Parameters
    ----------
    ours
        The task.
    theirs
        The reference.
    share
        Factor of the task's time, where it does more work than the reference.
    figures
        Function that returns further figures once both have run.
    """

    ours: Callable[[], object]
    theirs: Callable[[], object]
    share: float = 1.0
    figures: Callable[[], Mapping[str, float]] = field(default=dict)


def vln_step() -> TaskPair:
    """Training of VLN with the dense reconstructor, against the same reconstructor on one mask.

    Returns
    -------
    TaskPair
        The task and its reference.
    """
    return _steps("vln", 32)


def hnet_step() -> TaskPair:
    """Training of HNet-LN, 8 draws a batch, against the same reconstructor on one mask.

    Returns
    -------
    TaskPair
        The task and its reference.
    """
    return _steps("hnet", 8)


class _OneMask(Task):
    """The goal of a joint training, without its mask distribution: every sample is seen through the same mask."""

    def __init__(self, goal: MaskObjective, signals: ScaledSamples, k: int) -> None:
        super().__init__()
        self.goal, self.samples = goal, len(signals)
        self.register_buffer("signals", torch.from_numpy(signals.values), persistent=False)
        mask = torch.zeros(1, len(signals.sites))
        mask[0, torch.linspace(0, len(signals.sites) - 1, k).long()] = 1
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], None]:
        x = self.get_buffer("signals")[batch]
        return self.goal(x, x, self.get_buffer("mask"), batch, generator), None


def _steps(distribution: str, draws: int) -> TaskPair:
    signals, settings = _images(), TrainSettings(steps=_STEPS, batch_size=_BATCH, ema_decay=0.0, validation_steps=1)
    learned = Learned(distribution=distribution, decoder="dense", n_masks=draws, warm_start="none", train=settings)

    def ours() -> None:
        learned.learn(signals, 50, Run())

    def theirs() -> None:
        with seeded(Run().seed_of("decoder")):
            goal = make_objective(signals, 50, learned.options)
        train(_OneMask(goal, signals, 50), settings, name="one mask", identity="one mask", run=Run())

    return TaskPair(ours, theirs)


def _images() -> ScaledSamples:
    """Ten thousand of MNIST's pictures, scaled."""
    signals = datasets.load("mnist")
    part = signals.take(np.arange(10_000))
    return Scaler.fit(part).apply(part)


def qr_against_pysensors() -> TaskPair:
    """Sites by QR, and ridge, against PySensors.

    Returns
    -------
    TaskPair
        The task and its reference.
    """
    return _against_pysensors(QR())


def greedy_against_pysensors() -> TaskPair:
    """Sites by greedy, and ridge, against PySensors.

    Returns
    -------
    TaskPair
        The task and its reference.
    """
    return _against_pysensors(Greedy(n_components=_COMPONENTS))


def _against_pysensors(selector: Selector) -> TaskPair:
    from pysensors import SSPOR
    from pysensors.basis import SVD

    values = field_of(_SAMPLES + _TEST, _SITES, 0)
    matrix, test = values[:_SAMPLES], values[_SAMPLES:]
    reconstructed = dict[str, NDArray[Any]]()
    train, test_samples = read(matrix).as_scaled(), read(test).as_scaled()

    def ours() -> None:
        new = replace(train)  # so that nothing is known of it from the last round
        sites = selector.select(new, _K, validation=None, run=Run()).sites
        fitted = Ridge().fit(new, sites, validation=new, run=Run())
        reconstructed["our_error"] = fitted.reconstruct(test_samples.readings(sites)).reshape(test.shape)

    model = SSPOR(basis=SVD(n_basis_modes=_COMPONENTS), n_sensors=_K)

    def theirs() -> None:
        model.fit(matrix, quiet=True)
        reconstructed["their_error"] = model.predict(test[:, model.get_selected_sensors()])

    def errors() -> dict[str, float]:
        """Shares of the variance that are left; PySensors' with its prior, as by default, and without."""
        plain = model.predict(test[:, model.get_selected_sensors()], method="unregularized")
        found = {**reconstructed, "their_error_without_prior": plain}
        return {name: float(np.square(test - made).sum() / np.square(test).sum()) for name, made in found.items()}

    return TaskPair(ours, theirs, figures=errors)


def greedy_growth() -> TaskPair:
    """Greedy selection on ten times as many sites.

    Returns
    -------
    TaskPair
        The task and its reference.
    """
    small, large = (read(field_of(_SAMPLES, 10**power, 0)).as_scaled() for power in (5, 6))
    selector, memory = Greedy(n_components=_COMPONENTS), dict[str, float]()

    def ours() -> None:
        meter = Meter()
        selector.select(large, _K, validation=None, run=Run())
        memory["peak_of_data"] = meter.costs()["peak_mib"] * 2**20 / large.values.nbytes

    return TaskPair(ours, lambda: selector.select(small, _K, validation=None, run=Run()), 0.1, lambda: memory)


def large_grid() -> TaskPair:
    """Learned selection (VLN, ResNet, batches of 4) on 64 samples of 1024 x 1024 sites: its peak memory, in GiB.

    Returns
    -------
    TaskPair
        The task, with its memory as the ratio.
    """
    signals = read(np.random.default_rng(0).standard_normal((64, 1024, 1024), np.float32)).as_scaled()
    settings = TrainSettings(steps=3, batch_size=4, ema_decay=0.0, validation_steps=1)
    learned, memory = Learned(distribution="vln", decoder="resnet", n_masks=4, train=settings), dict[str, float]()

    def ours() -> None:
        meter = Meter()
        learned.select(signals, _K, validation=None, run=Run())
        memory["ratio"] = meter.costs()["peak_mib"] / 1024

    return TaskPair(ours, lambda: None, figures=lambda: memory)


def two_processes(decoder: str, steps: int) -> TaskPair:
    """Sites of MNIST by VLN in two processes with one thread each, against one process with one thread.

    Whole commands with the same steps and the same batch of all processes, reading and evaluation included. The figures
    are the median processor seconds of each process: what the times would be if nothing else ran on the machine and
    communication took no time.

    Parameters
    ----------
    decoder
        The network that is trained with the masks.
    steps
        Training steps.

    Returns
    -------
    TaskPair
        The task and its reference.
    """
    train = json.dumps({"steps": steps, "batch_size": _BATCH, "ema_decay": 0.0, "validation_steps": 2})
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    taken: dict[int, list[float]] = {1: [], 2: []}

    def work(count: int) -> None:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, *(several if count > 1 else []), "-m", "keyhole", "select", "mnist", "-k", "20"]
            command += ["--method", "vln", "--set", f"decoder={decoder}", "--set", f"train={train}", "--seed", "0"]
            command += ["--reconstructor", "ridge", "--out", f"{folder}/plan.keyhole"]
            subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken[count].append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / count)

    def figures() -> dict[str, float]:
        return {"our_processor": statistics.median(taken[2]), "their_processor": statistics.median(taken[1])}

    return TaskPair(partial(work, 2), partial(work, 1), figures=figures)


def write_store(path: Path, size: int) -> Path:
    """Write a Zarr store of 360 x 720 cells: 150 smooth components and a little noise, 16 samples in a chunk.

    Components are products of waves in both directions whose variances fall with their number.

    Parameters
    ----------
    path
        The store.
    size
        Its size in bytes.

    Returns
    -------
    Path
        The store.
    """
    import zarr

    rng, shape = np.random.default_rng(0), (360, 720)
    waves = [np.cos(np.outer(np.arange(15), np.linspace(0, 3, side)) + rng.uniform(0, 6, (15, 1))) for side in shape]
    samples = size // (4 * shape[0] * shape[1])
    spread = np.sort(rng.exponential(1.0, (15, 15)).ravel())[::-1].reshape(15, 15)
    made = zarr.create_array(
        store=path, name="field", shape=(samples, *shape), chunks=(16, *shape), dtype="f4", compressors=None,
        dimension_names=("sample", "lat", "lon"),
    )  # fmt: skip
    for start in range(0, samples, 16):
        n = min(16, samples - start)
        part = np.einsum("nab,ai,bj->nij", rng.standard_normal((n, 15, 15)) * spread, *waves, optimize=True)
        made[start : start + n] = part.astype(np.float32) + 0.05 * rng.standard_normal((n, *shape), np.float32)
    return path


def reconstruct() -> TaskPair:
    """Reconstruction by a linear plan, against the matrix product alone.

    Returns
    -------
    TaskPair
        The task and its reference.
    """
    field = datasets.sst()
    plan = select(field, 50, method="greedy", reconstructor="ridge")
    rows = np.arange(10_000) % len(field)
    readings, when = field.readings(plan.indices)[rows, :, 0], None if field.time is None else field.time[rows]
    left, right = readings.astype(np.float32), np.ones((50, field.sites.size), np.float32)
    return TaskPair(lambda: plan.reconstruct(readings, time=when), lambda: left @ right)


def curve() -> TaskPair:
    """Ridge for ten numbers of sites, against the largest alone.

    Returns
    -------
    TaskPair
        The task and its reference.
    """
    train = read(field_of(_SAMPLES, 20_000, 0)).as_scaled()
    sites = np.random.default_rng(0).permutation(20_000)[:_K]

    def ours() -> None:
        nested = NestedRidge(train, sites)
        for count in range(_K // 10, _K + 1, _K // 10):
            nested.first(count)

    return TaskPair(ours, lambda: Ridge().fit(train, sites, validation=train, run=Run()))


def field_of(samples: int, sites: int, seed: int) -> NDArray[np.float32]:
    """Return samples of 150 random components whose variances fall over three decades, with a little noise.

    Parameters
    ----------
    samples
        Number of samples.
    sites
        Number of sites.
    seed
        Seed.

    Returns
    -------
    ndarray
        ``(samples, sites)``.
    """
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((samples, 150), np.float32) * np.logspace(0, -1.5, 150, dtype=np.float32)
    values = np.empty((samples, sites), np.float32)
    for start in range(0, sites, 10_000):
        part = values[:, start : start + 10_000]
        np.matmul(weights, rng.standard_normal((150, part.shape[1]), np.float32), out=part)
        part += 0.1 * rng.standard_normal(part.shape, np.float32)
    return values
