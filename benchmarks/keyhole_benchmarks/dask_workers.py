"""Processor time of dask workers against that of one process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from keyhole.plan import load
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
    from distributed import LocalCluster

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
            shared["cpu_seconds"] = processor_seconds() - started
            one, two = (load(folder / f"{name}.keyhole").indices for name in ("serial", "dask"))
        figures.update({f"serial_{name}": value for name, value in serial.items()})
        figures.update({f"dask_{name}": value for name, value in shared.items()})
        figures["ratio"] = shared["cpu_seconds"] / serial["cpu_seconds"]
        figures["same_sites"] = float(np.array_equal(one, two))

    return TaskPair(ours, lambda: None, figures=lambda: figures)


def _timed_selection(store: Path, out: Path, memory: str, *options: str) -> dict[str, float]:
    """Select 50 sites by the command line with one thread; its seconds."""
    command = [sys.executable, "-m", "keyhole", "select", str(store), "-k", "50", "--method", "greedy"]
    command += ["--reconstructor", "ridge", "--memory", memory, "--out", str(out), *options]
    started, processor = time.monotonic(), processor_seconds()
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return {"seconds": time.monotonic() - started, "cpu_seconds": processor_seconds() - processor}


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it has started and that have ended.

    Returns
    -------
    float
    """
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in own)
