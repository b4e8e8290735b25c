"""Running cases: those that have a line are skipped, the others leave theirs as they end."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from keyhole.bench.records import Case, Meter, Store, record
from keyhole.progress import progress
from keyhole.run import Run

__all__ = ["Job", "Outcome", "run_jobs"]


@dataclass(frozen=True)
class Outcome:
    """What one case gave: errors on test, what is worth knowing beside them, and arrays to draw."""

    metrics: Mapping[str, float]
    k_distinct: int
    notes: Mapping[str, Any] = field(default_factory=dict)
    published: float | None = None
    comparable: bool = False
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """Cases that share their work, such as one choice of sites judged by several reconstructors."""

    cases: Sequence[Case]
    split: Mapping[str, Any]
    precision: str
    work: Callable[[Run], Iterable[Outcome]]

    def go(self, run: Run, store: Store) -> Iterator[dict[str, Any]]:
        """Run the cases; each is charged with what it took beyond the ones before it."""
        meter = Meter()
        for case, outcome in zip(self.cases, self.work(run), strict=True):
            words = {name: value for name, value in vars(outcome).items() if name != "arrays"}
            store.keep_arrays(case, outcome.arrays)
            yield record(case, costs=meter.costs(), split=self.split, **words)
            meter = Meter()


def run_jobs(
    jobs: Iterable[Job], store: Store, *, device: str, say: Callable[[str], None], to_draw: bool = False
) -> int:
    """Run every job that has a case without a line; gives the number of lines added.

    With ``to_draw`` a job is run again where what is to be drawn of it was not kept here. Unfinished training is kept
    beside the lines, so that a bench that is stopped goes on where it was; its line then says that it was resumed, and
    its costs are those since.
    """
    added = 0
    for job in jobs:
        if _is_done(job, store, to_draw):
            continue
        records = _records(job, store, device)
        store.append(records)
        for one in records:
            say(_line(one))
        added += len(records)
    return added


def _records(job: Job, store: Store, device: str) -> list[dict[str, Any]]:
    first = job.cases[0]
    kept = store.path.parent / ".unfinished" / first.case_id
    resumed = kept.exists()
    with progress() as tell:
        run = Run(
            seed=first.seed, device=device, precision=job.precision, folder=kept, resume=True, save_seconds=30,
            callback=tell,
        )  # fmt: skip
        records = [one | {"resumed": resumed} for one in job.go(run, store)]
    shutil.rmtree(kept, ignore_errors=True)
    return records


def _is_done(job: Job, store: Store, to_draw: bool) -> bool:
    known = {case.case_id for case in job.cases} <= store.done()
    return known and not (to_draw and store.arrays(job.cases[0].case_id) is None)


def _line(one: Mapping[str, Any]) -> str:
    """Say what was run and what it took; the errors are left to `show`, so that nobody tunes on them."""
    words = " ".join(str(one[name]) for name in ("bench", "data", "method", "reconstructor"))
    return f"{words} K={one['k']} seed={one['seed']}: {one['seconds']:.0f} s"
