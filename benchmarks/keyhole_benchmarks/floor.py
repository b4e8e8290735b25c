"""The default `select` beside principal components, QR pivoting and ridge, on samples later than all that both saw."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

import keyhole as kh
from keyhole.core.run import Run
from keyhole.errors import ReadingsWarning
from keyhole_benchmarks.floor_sets import FLOOR_SETS, FloorSet
from keyhole_benchmarks.plain import PlainPlan
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["FloorScores", "jobs", "score"]

_INTERVAL = 0.9


@dataclass(frozen=True)
class FloorScores:
    """Errors of the floor and of the default `select` on later samples.

    Parameters
    ----------
    floor, error : float
        Unexplained variance about the climatology of the given samples (their mean where there are no dates), weighted
        by area where it is known.
    reported, reported_se, true : float
        Root mean square error that the plan reports, its standard error (NaN where there is none), and the error on
        later samples, all sites alike.
    coverage : float
        Share of later values within the 90 % prediction interval; NaN where the plan has none.
    seconds : float
        Time of the selection.
    """

    floor: float
    error: float
    reported: float
    reported_se: float
    true: float
    coverage: float
    seconds: float

    @property
    def ratio(self) -> float:
        """The error of the default `select` relative to the floor."""
        return self.error / self.floor

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
    expected = plain.climatology[later]
    floor = plain.reconstruct(samples.later[:, plain.sites], later)
    start = time.monotonic()
    plan = kh.select(samples.data, k, seed=seed)
    seconds = time.monotonic() - start
    readings = samples.later[:, np.searchsorted(samples.index, plan.indices)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadingsWarning)  # later samples may be beyond all that were given
        found = plan.reconstruct(readings, time=samples.later_times, interval=_INTERVAL)
    mean, lower, upper = (np.asarray(one).reshape(len(readings), -1)[:, samples.index] for one in found)
    errors, reported = np.square(samples.later - mean), plan.metrics["test"]
    variance = np.sum(samples.weight * np.square(samples.later - expected))
    return FloorScores(
        floor=float(np.sum(samples.weight * np.square(samples.later - floor)) / variance),
        error=float(np.sum(samples.weight * errors) / variance),
        reported=reported["rmse"],
        reported_se=reported.get("rmse_se", np.nan),
        true=float(np.sqrt(errors.mean())),
        coverage=float(((lower <= samples.later) & (samples.later <= upper)).mean()),
        seconds=seconds,
    )
