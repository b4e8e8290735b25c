"""How quick things are: each as a ratio to what it is measured against, in one run, turn by turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from keyhole.core.run import Run
from keyhole_benchmarks import races
from keyhole_benchmarks.peers import is_installed
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["RACES", "Race", "jobs"]

_ROUNDS = 5
_QUICK = 25  # of what takes a tenth of a second or less


@dataclass(frozen=True)
class Race:
    """Two ways to do a thing, what the first may take of the second's time, and what it needs beside Keyhole.

    ``prepare`` gives both, and notes; it may also give a figure of its own in place of the ratio of times.
    """

    words: str
    goal: float
    prepare: Callable[[], races.Duel]
    rounds: int = _ROUNDS
    package: str = "keyhole"

    def is_there(self) -> bool:
        """Whether what it needs is installed."""
        return is_installed(self.package)


RACES = {
    "vln_step": Race("a step of VLN with a dense reconstructor / the same on a fixed mask", 1.25, races.vln_step),
    "hnet_step": Race("a step of HNet-LN, 8 draws / the same on a fixed mask", 1.6, races.hnet_step),
    "qr": Race("`qr` and ridge / PySensors' SSPOR(SVD)", 0.25, races.qr_against_pysensors, 3, "pysensors"),
    "greedy": Race("`greedy` and ridge / PySensors' SSPOR(SVD)", 0.5, races.greedy_against_pysensors, 3, "pysensors"),
    "greedy_growth": Race("`greedy` on 10⁶ sites / 10 x on 10⁵", 1.2, races.greedy_growth, 1),
    "large_grid": Race("GiB that learned selection on 1024 x 1024 sites takes", 6.0, races.large_grid, 1),
    "larger_than_memory": Race("GiB that `greedy` takes on a store of 8 GiB", 2.5, races.larger_than_memory, 1),
    "curve": Race("ridge for ten K of a curve / for the largest alone", 2.0, races.curve, _QUICK),
    "reconstruct": Race("`plan.reconstruct` of 10000 fields / numpy's product", 1.5, races.reconstruct, _QUICK),
}


def jobs(names: Sequence[str], seeds: Sequence[int]) -> Iterator[Job]:
    """Give one job for each race and seed."""
    for name in names:
        for seed in seeds:
            case = Case("speed", "synthetic", "ratio", name, "none", 0, seed, {"rounds": RACES[name].rounds})
            yield Job([case], {}, "32-true", partial(_work, RACES[name]))


def _work(race: Race, run: Run) -> Iterator[Outcome]:
    duel = race.prepare()
    ours, theirs = _turn_by_turn(duel.ours, duel.theirs, race.rounds)
    metrics = {"ratio": duel.share * ours / theirs, "ours": ours, "theirs": theirs, **duel.figures()}
    yield Outcome(metrics, 0, {"goal": race.goal})


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
