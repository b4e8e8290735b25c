"""Speed: each task as a ratio to its reference, timed in turn in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from keyhole.core.run import Run
from keyhole_benchmarks import tasks
from keyhole_benchmarks.dask_workers import dask_workers
from keyhole_benchmarks.peers import is_installed
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome
from keyhole_benchmarks.size import in_memory, larger_than_memory

__all__ = ["SPEED_TESTS", "SpeedTest", "jobs"]

_ROUNDS = 5
_QUICK = 25  # of what takes a tenth of a second or less


@dataclass(frozen=True)
class SpeedTest:
    """A task that is timed against a reference.

    ``prepare`` gives both, and notes; it may also give a figure of its own in place of the ratio of times.

    Parameters
    ----------
    words
        Name of task and reference on the page.
    goal
        Largest ratio that is aimed at.
    prepare
        Function that returns both.
    rounds
        How often both are timed, in turn.
    package
        Package that it needs beside Keyhole.
    """

    words: str
    goal: float
    prepare: Callable[[], tasks.TaskPair]
    rounds: int = _ROUNDS
    package: str = "keyhole"

    def is_there(self) -> bool:
        """Whether the package is installed.

        Returns
        -------
        bool
            True if it can be imported.
        """
        return is_installed(self.package)


SPEED_TESTS = {
    "vln_step": SpeedTest("a step of VLN with a dense reconstructor / the same on a fixed mask", 1.25, tasks.vln_step),
    "hnet_step": SpeedTest("a step of HNet-LN, 8 draws / the same on a fixed mask", 1.6, tasks.hnet_step),
    "qr": SpeedTest("`qr` and ridge / PySensors' SSPOR(SVD)", 0.25, tasks.qr_against_pysensors, 3, "pysensors"),
    "greedy": SpeedTest(
        "`greedy` and ridge / PySensors' SSPOR(SVD)", 0.5, tasks.greedy_against_pysensors, 3, "pysensors"
    ),
    "greedy_growth": SpeedTest("`greedy` on 10⁶ sites / 10 x on 10⁵", 1.2, tasks.greedy_growth, 1),
    "large_grid": SpeedTest("GiB that learned selection on 1024 x 1024 sites takes", 6.0, tasks.large_grid, 1),
    "larger_than_memory": SpeedTest("GiB that `greedy` takes on a store of 8 GiB", 2.3, larger_than_memory, 1),
    "store_of_2_gib": SpeedTest("the same on a store of 2 GiB", 2.3, partial(larger_than_memory, 2**31), 1),
    "store_of_1_gib": SpeedTest("the same on a store of 1 GiB", 2.3, partial(larger_than_memory, 2**30), 1),
    "sites_in_memory": SpeedTest(
        "memory that `greedy` takes on 400 samples of 10⁶ sites / that of the samples",
        2.5,
        partial(in_memory, 400, 1000, 1000, labelled=False),
        1,
    ),
    "area_in_memory": SpeedTest(
        "the same on 3000 fields of 300 x 300 with time and area weights",
        2.5,
        partial(in_memory, 3000, 300, 300, labelled=True),
        1,
    ),
    "dask_workers": SpeedTest(
        "processor time of `greedy` on a store of 8 GiB, two dask workers / one process",
        1.5,
        dask_workers,
        1,
        "distributed",
    ),
    "two_processes": SpeedTest(
        "`vln` with a dense network on MNIST, two processes / one", 0.7, partial(tasks.two_processes, "dense", 200), 3
    ),
    "two_processes_resnet": SpeedTest(
        "`vln` with a ResNet on MNIST, two processes / one", 0.6, partial(tasks.two_processes, "resnet", 60), 3
    ),
    "curve": SpeedTest("ridge for ten K of a curve / for the largest alone", 2.0, tasks.curve, _QUICK),
    "reconstruct": SpeedTest("`plan.reconstruct` of 10000 fields / numpy's product", 1.5, tasks.reconstruct, _QUICK),
}


def jobs(names: Sequence[str], seeds: Sequence[int]) -> Iterator[Job]:
    """Return one job for each timed task and seed.

    Parameters
    ----------
    names
        Names of tasks, keys of `SPEED_TESTS`.
    seeds
        Seeds of the records.

    Yields
    ------
    Job
        A job with one case.
    """
    for name in names:
        for seed in seeds:
            case = Case("speed", "synthetic", "ratio", name, "none", 0, seed, {"rounds": SPEED_TESTS[name].rounds})
            yield Job([case], {}, "32-true", partial(_work, SPEED_TESTS[name]))


def _work(task: SpeedTest, run: Run) -> Iterator[Outcome]:
    pair = task.prepare()
    ours, theirs = _turn_by_turn(pair.ours, pair.theirs, task.rounds)
    metrics = {"ratio": pair.share * ours / theirs, "ours": ours, "theirs": theirs, **pair.figures()}
    yield Outcome(metrics, 0, {"goal": task.goal})


def _turn_by_turn(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median seconds of both, after one go each that does not count where there are several."""
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + (rounds > 1)):
        for work, seconds in zip((ours, theirs), taken, strict=True):
            started = time.perf_counter()
            work()
            if turn or rounds == 1:
                seconds.append(time.perf_counter() - started)
    return statistics.median(taken[0]), statistics.median(taken[1])
