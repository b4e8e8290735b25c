"""The default `select` beside principal components, QR pivoting and ridge, on samples later than all that both saw."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

import keyhole as kh
from keyhole.core.run import Run
from keyhole.errors import ReadingsWarning
from keyhole_benchmarks.floor_sets import FLOOR_SETS, FloorSet
from keyhole_benchmarks.plain import PlainPlan
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["FloorScores", "jobs", "score"]

_INTERVAL = 0.9
_BLOCKS = 10


@dataclass(frozen=True)
class FloorScores:
    """Errors of the floor and of the default `select` on later samples.

    Parameters
    ----------
    floor, error : float
        Unexplained variance about the climatology of the given samples (their mean where there are no dates), weighted
        by area where it is known.
    ratio, ratio_se : float
        The second by the first, and its standard error by leaving out ten consecutive blocks in turn (jackknife).
    reported, reported_se, true : float
        Root mean square error that the plan reports, its standard error (NaN where there is none), and the error on
        later samples, all sites alike.
    coverage : float
        Share of later values within the 90 % prediction interval.
    seconds : float
        Time of the selection.
    """

    floor: float
    error: float
    ratio: float
    ratio_se: float
    reported: float
    reported_se: float
    true: float
    coverage: float
    seconds: float

    @property
    def is_honest(self) -> bool:
        """Whether the reported error is within 25 % of the true one, or within two of its standard errors."""
        off = abs(self.reported - self.true)
        return bool(off <= 0.25 * self.true or off <= 2 * self.reported_se)


def score(samples: FloorSet, k: int, *, seed: int = 0) -> FloorScores:
    """Select with the defaults, and compare with the floor.

    Parameters
    ----------
    samples
        Given and later samples.
    k
        Number of sites.
    seed
        Seed of the selection.

    Returns
    -------
    FloorScores
    """
    given, later = samples.phases
    plain = PlainPlan(samples.given, k, given, samples.weight)
    floor = plain.reconstruct(samples.later[:, plain.sites], later)
    start = time.monotonic()
    plan = kh.select(samples.data, k, seed=seed)
    seconds = time.monotonic() - start
    readings = samples.later[:, np.searchsorted(samples.index, plan.indices)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadingsWarning)  # later samples may be beyond all that were given
        found = plan.reconstruct(readings, time=samples.later_times, interval=_INTERVAL)
    mean, lower, upper = (np.asarray(one).reshape(len(readings), -1)[:, samples.index] for one in found)
    errors, of_floor, variance = (
        np.square(samples.later - one) @ samples.weight for one in (mean, floor, plain.climatology[later])
    )
    reported = plan.metrics["test"]
    return FloorScores(
        floor=float(of_floor.sum() / variance.sum()),
        error=float(errors.sum() / variance.sum()),
        ratio=float(errors.sum() / of_floor.sum()),
        ratio_se=_jackknife(errors, of_floor),
        reported=reported["rmse"],
        reported_se=reported.get("rmse_se", np.nan),
        true=float(np.sqrt(np.square(samples.later - mean).mean())),
        coverage=float(((lower <= samples.later) & (samples.later <= upper)).mean()),
        seconds=seconds,
    )


def _jackknife(above: NDArray[np.float64], below: NDArray[np.float64]) -> float:
    """Standard error of a ratio of sums over samples, by leaving out consecutive blocks in turn."""
    blocks = np.array_split(np.arange(len(above)), _BLOCKS)
    ratios = [np.delete(above, block).sum() / np.delete(below, block).sum() for block in blocks]
    return float(np.sqrt((_BLOCKS - 1) * np.var(ratios)))


def jobs(names: Sequence[str], ks: Sequence[int], seeds: Sequence[int]) -> Iterator[Job]:
    """Return one job for each set, K and seed.

    Parameters
    ----------
    names
        Names of sets, keys of `FLOOR_SETS`.
    ks
        Numbers of sites; empty for those of the set.
    seeds
        Seeds of the selections.

    Yields
    ------
    Job
        A job with one case.
    """
    for name in names:
        make, usual = FLOOR_SETS[name]
        samples = make()
        split = {"given": len(samples.given), "later": len(samples.later)}
        for k, seed in product(ks or usual, seeds):
            case = Case("floor", name, "default", "auto", "auto", k, seed)
            yield Job([case], split, "auto", partial(_work, case, samples))


def _work(case: Case, samples: FloorSet, run: Run) -> Iterator[Outcome]:
    found = score(samples, case.k, seed=run.seed)
    metrics = {name: value for name, value in asdict(found).items() if np.isfinite(value)}
    yield Outcome(metrics, case.k, {"honest": found.is_honest})
