"""Processor time of dask workers against that of one process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from keyhole.plan import load
from keyhole_benchmarks.cost import estimate
from keyhole_benchmarks.size import SITES, K
from keyhole_benchmarks.tasks import TaskPair, write_store

__all__ = ["dask_workers", "processor_seconds"]


def dask_workers(size: int = 8 * 2**30, memory: str = "2GiB") -> TaskPair:
    """Greedy and ridge on a store with two dask workers, against one process: total processor time of both.

    The scheduler and the start of the workers count. Every process has one thread.

    Parameters
    ----------
    size
        Bytes of the store.
    memory
        Memory limit.

    Returns
    -------
    TaskPair
        The task, with the ratio of processor seconds as the ratio; ``same_sites`` is 1 if both select the same sites.
    """
    from distributed import Client, LocalCluster

    figures = dict[str, float]()

    def ours() -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            store = write_store(folder / "field.zarr", size)
            serial = _timed_selection(store, folder / "serial.keyhole", memory)
            started = processor_seconds()
            with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
                where = ("--scheduler", cluster.scheduler_address)
                shared = _timed_selection(store, folder / "dask.keyhole", memory, *where)
                with Client(cluster) as client:
                    shared |= _totals(client.run(_cost_of_worker).values())
            shared["cpu_seconds"] = processor_seconds() - started
            one, two = (load(folder / f"{name}.keyhole").indices for name in ("serial", "dask"))
        figures.update({f"serial_{name}": value for name, value in serial.items()})
        figures.update({f"dask_{name}": value for name, value in shared.items()})
        figures["ratio"] = shared["cpu_seconds"] / serial["cpu_seconds"]
        figures["same_sites"] = float(np.array_equal(one, two))
        model = estimate(size // (4 * SITES), SITES, K, shuffled=True)
        figures.update(model_worker_gib=model.worker / 2**30, model_sent_gib=model.sent / 2**30)

    return TaskPair(ours, lambda: None, figures=lambda: figures)


def _timed_selection(store: Path, out: Path, memory: str, *options: str) -> dict[str, float]:
    """Select sites by the command line with one thread; its seconds."""
    command = [sys.executable, "-m", "keyhole", "select", str(store), "-k", str(K), "--method", "greedy"]
    command += ["--reconstructor", "ridge", "--memory", memory, "--out", str(out), *options]
    started, processor = time.monotonic(), processor_seconds()
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return {"seconds": time.monotonic() - started, "cpu_seconds": processor_seconds() - processor}


def _cost_of_worker(dask_worker: Any) -> tuple[float, float]:
    """Peak memory of the worker in whose process this runs, and what it sent, in GiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return peak, dask_worker.transfer_outgoing_bytes_total / 2**30


def _totals(workers: Iterable[tuple[float, float]]) -> dict[str, float]:
    """The largest peak, and all that was sent."""
    peaks, sent = zip(*workers, strict=True)
    return {"worker_gib": max(peaks), "sent_gib": sum(sent)}


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it has started and that have ended.

    Returns
    -------
    float
    """
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in own)
