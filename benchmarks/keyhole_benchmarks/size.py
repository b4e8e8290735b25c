"""Memory and passes of selections of large data, each measured on a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from keyhole_benchmarks.cost import estimate
from keyhole_benchmarks.tasks import TaskPair, write_store

__all__ = ["SITES", "K", "in_memory", "larger_than_memory"]

K = 50
SITES = 360 * 720
# A field of 60 components whose variances fall with their number, and some noise; then the peak of a selection.
_IN_MEMORY = """
import sys, resource, numpy as np, keyhole as kh
samples, rows, columns, labelled = map(int, sys.argv[1:])
rng, sites = np.random.default_rng(0), rows * columns
scores = rng.standard_normal((samples, 60), np.float32) * np.arange(1, 61, dtype=np.float32) ** -0.7
modes = rng.standard_normal((60, sites), np.float32)
values = np.empty((samples, sites), np.float32)
for start in range(0, sites, 50_000):
    block = slice(start, start + 50_000)
    values[:, block] = scores @ modes[:, block]
    values[:, block] += 0.05 * rng.standard_normal(values[:, block].shape, np.float32)
del modes
data = values.reshape(samples, rows, columns)
if labelled:
    import pandas as pd, xarray as xr
    axes = {"time": pd.date_range("2000", periods=samples), "lat": np.linspace(-89, 89, rows)}
    data = xr.DataArray(data, {**axes, "lon": np.linspace(0, 359, columns)}, ("time", "lat", "lon"))
kh.select(data, 25, method="greedy", reconstructor="ridge")
print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / values.nbytes)
"""


def larger_than_memory(size: int = 8 * 2**30, memory: str = "2GiB") -> TaskPair:
    """Greedy and ridge on a store: peak memory of the whole command in GiB, and the passes through the store.

    Parameters
    ----------
    size
        Bytes of the store.
    memory
        Memory limit.

    Returns
    -------
    TaskPair
        The task, with its memory as the ratio, and what `keyhole_benchmarks.cost` estimates beside it.
    """
    figures = dict[str, float]()

    def ours() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = write_store(Path(folder) / "field.zarr", size)
            command = [sys.executable, "-m", "keyhole", "select", str(store), "-k", str(K), "--method", "greedy"]
            command += ["--reconstructor", "ridge", "--memory", memory, "--out", f"{folder}/plan.keyhole"]
            started = time.monotonic()
            figures.update(_cost_of(command, size))
            figures["seconds"] = time.monotonic() - started
        model = estimate(size // (4 * SITES), SITES, K, shuffled=True)
        figures.update(model_passes=model.passes, model_gib=model.memory / 2**30)
        figures["ratio"] = figures["peak_gib"]

    return TaskPair(ours, lambda: None, figures=lambda: figures)


def in_memory(samples: int, rows: int, columns: int, *, labelled: bool) -> TaskPair:
    """Greedy and ridge on a field in memory: peak memory of the process, divided by the bytes of the field.

    Parameters
    ----------
    samples, rows, columns
        Shape of the field, in single precision.
    labelled
        Whether it has times, latitudes and longitudes, and with them area weights.

    Returns
    -------
    TaskPair
        The task, with that quotient as the ratio.
    """
    figures = dict[str, float]()

    def ours() -> None:
        shape = [str(number) for number in (samples, rows, columns, int(labelled))]
        done = subprocess.run(
            [sys.executable, "-c", _IN_MEMORY, *shape], check=True, capture_output=True, text=True
        )  # fmt: skip
        figures["ratio"] = float(done.stdout.split()[-1])

    return TaskPair(ours, lambda: None, figures=lambda: figures)


def _cost_of(command: list[str], size: int) -> dict[str, float]:
    """Run a command; its peak memory, its processor seconds, and the bytes that it read by those of the data."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and its accounts are still there
    counts = dict(line.split(": ") for line in Path(f"/proc/{child.pid}/io").read_text().splitlines())
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), command)
    return {
        "passes": int(counts["rchar"]) / size,
        "peak_gib": usage.ru_maxrss / 2**20,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
    }
