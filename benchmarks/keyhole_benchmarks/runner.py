"""Running cases: those that have a line are skipped, the others leave theirs as they end."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from keyhole.core.progress import progress
from keyhole.core.run import Event, Run
from keyhole.core.storage import replacing
from keyhole.training.checkpoint import StateError
from keyhole_benchmarks.records import Case, Costs, Meter, Store, code_in_use, record

__all__ = ["Job", "Outcome", "run_jobs"]

_SAVE_SECONDS = 30.0


@dataclass(frozen=True)
class Outcome:
    """The result of one case.

    Parameters
    ----------
    metrics
        Errors on the test part.
    k_distinct
        Number of distinct sites.
    notes
        Further results.
    published
        The paper's value.
    comparable
        Whether the paper's value is of the same data and scale.
    arrays
        Arrays for figures.
    """

    metrics: Mapping[str, float]
    k_distinct: int
    notes: Mapping[str, Any] = field(default_factory=dict)
    published: float | None = None
    comparable: bool = False
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """Cases that share their work, such as one choice of sites scored by several reconstructors.

    Parameters
    ----------
    cases
        The cases, in the order of their outcomes.
    split
        Sizes of the parts.
    precision
        Precision of networks, as lightning-fabric takes it.
    work
        Function of a run that yields one outcome for each case.
    """

    cases: Sequence[Case]
    split: Mapping[str, Any]
    precision: str
    work: Callable[[Run], Iterable[Outcome]]

    def go(self, run: Run, store: Store, costs: _CostLog) -> Iterator[dict[str, Any]]:
        """Run the cases; each is charged with the costs since the one before it.

        Parameters
        ----------
        run
            Seed, deadline, folder and callback.
        store
            Where arrays are written.
        costs
            Log of the costs.

        Yields
        ------
        dict
            The record of each case.
        """
        for case, outcome in zip(self.cases, self.work(run), strict=True):
            words = {name: value for name, value in vars(outcome).items() if name != "arrays"}
            store.keep_arrays(case, outcome.arrays)
            yield record(case, costs=costs.close(), split=self.split, **words)


class _CostLog:
    """What each case of a job has cost, kept beside its unfinished training, so that a resumed job tells all parts."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "costs.json"
        self.before: list[Costs] = json.loads(self.path.read_text()) if self.path.exists() else []
        self.closed: list[Costs] = []
        self.meter, self.kept_at = self._next(), time.monotonic()

    def close(self) -> Costs:
        """Give the costs of the case that ends here, and begin with the next."""
        self.closed.append(self.meter.costs())
        self.meter = self._next()
        return self.closed[-1]

    def keep(self) -> None:
        """Write the costs so far, if there is unfinished training that they belong to."""
        if self.path.parent.exists():
            later = self.before[len(self.closed) + 1 :]
            with replacing(self.path) as file:
                file.write(json.dumps([*self.closed, self.meter.costs(), *later]).encode())
        self.kept_at = time.monotonic()

    def keep_if_due(self) -> None:
        """Keep them when the last time is long enough ago."""
        if time.monotonic() - self.kept_at >= _SAVE_SECONDS:
            self.keep()

    def _next(self) -> Meter:
        return Meter(self.before[len(self.closed)] if len(self.closed) < len(self.before) else None)


def run_jobs(
    jobs: Iterable[Job], store: Store, *, device: str, say: Callable[[str], None], to_draw: bool = False
) -> int:
    """Run every job that has a case without a record.

    Unfinished training is kept beside the records, so that a benchmark that is stopped continues where it was, or
    starts the case anew where it cannot; a record says whether it was resumed, and its costs are those of all parts
    (but for what a kill cut off since they were last written).

    Parameters
    ----------
    jobs
        The jobs.
    store
        Records of the benchmark.
    device
        ``auto``, ``cpu`` or ``cuda``.
    say
        Function that shows a message.
    to_draw
        Whether to run a case again whose arrays are not stored here.

    Returns
    -------
    int
        Number of records added.
    """
    code_in_use()
    added = 0
    for job in jobs:
        if _is_done(job, store, to_draw):
            continue
        kept = store.path.parent / ".unfinished" / job.cases[0].case_id
        records = _records(job, store, device, say, kept)
        store.append(records)
        shutil.rmtree(kept, ignore_errors=True)
        for one in records:
            say(_line(one))
        added += len(records)
    return added


def _records(job: Job, store: Store, device: str, say: Callable[[str], None], kept: Path) -> list[dict[str, Any]]:
    """Run a job from where it was; from its beginning where what is kept of it is refused."""
    try:
        return _attempt(job, store, device, kept)
    except StateError as incompatibility:
        say(f"an unfinished case is started anew: {incompatibility}")
        shutil.rmtree(kept)
        return _attempt(job, store, device, kept)


def _attempt(job: Job, store: Store, device: str, kept: Path) -> list[dict[str, Any]]:
    resumed, costs = kept.exists(), _CostLog(kept)
    with progress() as tell:

        def callback(event: Event) -> None:
            tell(event)
            costs.keep_if_due()

        run = Run(
            seed=job.cases[0].seed, device=device, precision=job.precision, folder=kept, resume=True,
            save_seconds=_SAVE_SECONDS, callback=callback,
        )  # fmt: skip
        try:
            return [one | {"resumed": resumed} for one in job.go(run, store, costs)]
        finally:
            costs.keep()


def _is_done(job: Job, store: Store, to_draw: bool) -> bool:
    known = {case.case_id for case in job.cases} <= store.done()
    return known and not (to_draw and store.arrays(job.cases[0].case_id) is None)


def _line(one: Mapping[str, Any]) -> str:
    """Say what was run and what it took; the errors are left to `show`, so that nobody tunes on them."""
    words = " ".join(str(one[name]) for name in ("bench", "data", "method", "reconstructor"))
    return f"{words} K={one['k']} seed={one['seed']}: {one['seconds']:.0f} s"
