"""What `auto` reaches in a given time, beside classical sites with ridge and with the same reconstructor."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import product

from keyhole.core.run import Run
from keyhole.data import datasets
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.placement import SELECTORS, Selection, Selector
from keyhole.workflow.selection import SELECTION_SHARE, choose_sites, fit_reconstructor, make_plan
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = [
    "CLASSICAL",
    "GOALS",
    "METHODS",
    "RECONSTRUCTORS",
    "MaskObjective",
    "finish",
    "jobs",
    "load_prepared",
    "until",
]

METHODS = ("auto", "greedy", "qr")
CLASSICAL = METHODS[1:]
RECONSTRUCTORS = ("auto", "ridge")
_ROWS = {"stages": "search", "races": "compare by network", "fits": "fit"}  # of a plan's history, that a line has


@dataclass(frozen=True)
class MaskObjective:
    """The error to reach on a data set.

    Parameters
    ----------
    ks
        Numbers of sites.
    share
        Error as a share of the best classical sites' with ridge; None where ``errors`` are given.
    errors
        Error for each K.
    """

    ks: tuple[int, ...]
    share: float | None = None
    errors: dict[int, float] = field(default_factory=dict)


GOALS = {
    "mnist": MaskObjective((20, 30, 50), errors={20: 0.0172, 30: 0.0122, 50: 0.0080}),
    "ipsl": MaskObjective((20, 50, 100), 0.90),
    "oisst": MaskObjective((25, 50, 100), 0.90),
    "ncep": MaskObjective((100, 200, 300), 0.90),
    "celeba": MaskObjective((100, 200, 300), 0.70),
    "isolet": MaskObjective((50,), 0.85),
    "coil20": MaskObjective((50,), 0.85),
    "sst": MaskObjective((25,), 0.90),
}


def jobs(
    names: Sequence[str], methods: Sequence[str], reconstructors: Sequence[str], ks: Sequence[int],
    seeds: Sequence[int], limit: float,
) -> Iterator[Job]:  # fmt: skip
    """Return one job for each data set, K, seed and method; a method without randomness runs once.

    Parameters
    ----------
    names
        Names of data sets, keys of `GOALS`.
    methods
        Names of selectors.
    reconstructors
        Reconstructors that are fitted to the same sites.
    ks
        Numbers of sites; empty for those of `GOALS`.
    seeds
        Seeds of the runs.
    limit
        Time limit of a case in seconds.

    Yields
    ------
    Job
        A job with one case for each reconstructor.
    """
    for name in names:
        for k, seed, method in product(ks or GOALS[name].ks, seeds, methods):
            if method in CLASSICAL and seed != seeds[0]:
                continue
            prepared, protocol = load_prepared(name), f"{limit:g} s"
            settings = {"selector": SELECTORS.make(method, {}).settings()}
            cases = [Case("quality", name, protocol, method, one, k, seed, settings) for one in reconstructors]
            yield Job(cases, prepared.split.sizes(), "auto", partial(_work, cases, prepared, limit))


def _work(cases: Sequence[Case], prepared: PreparedSamples, limit: float, run: Run) -> Iterator[Outcome]:
    """Choose sites once; each reconstructor has what is left of the time when selection takes its full share."""
    selector = SELECTORS.make(cases[0].method, {})
    selection = choose_sites(selector, prepared, cases[0].k, until(run, limit))
    for case in cases:
        yield finish(case, prepared, selector, selection, until(run, (1 - SELECTION_SHARE) * limit))


def finish(case: Case, prepared: PreparedSamples, selector: Selector, selection: Selection, run: Run) -> Outcome:
    """Fit the reconstructor of a case on the selected sites, and score the plan.

    Parameters
    ----------
    case
        The case.
    prepared
        Samples.
    selector
        The selector that was used.
    selection
        Its result.
    run
        Run with the deadline of the fit.

    Returns
    -------
    Outcome
        Errors, notes and sites.
    """
    fitted = fit_reconstructor(case.reconstructor, prepared, selection.sites, run)
    plan = make_plan(prepared, selection, fitted, selector, run, method=case.method)
    test = dict(plan.metrics["test"])
    validation = {f"validation_{name}": value for name, value in plan.metrics["validation"].items()}
    rows = {name: [row for row in plan.history if row["stage"] == stage] for name, stage in _ROWS.items()}
    notes = {**selection.notes, "reconstructor": fitted.name, **rows}
    return Outcome(test | validation, plan.k, notes, arrays={"sites": plan.indices})


def until(run: Run, seconds: float) -> Run:
    """Return a run with a deadline.

    Parameters
    ----------
    run
        The run.
    seconds
        Seconds from now.

    Returns
    -------
    Run
        The run that ends then.
    """
    return replace(run, deadline=time.monotonic() + seconds)


@lru_cache(maxsize=1)
def load_prepared(name: str) -> PreparedSamples:
    """Load a data set, split and scaled as `keyhole.select` does it.

    Parameters
    ----------
    name
        Name of the data set.

    Returns
    -------
    PreparedSamples
        The samples.
    """
    return prepare(datasets.load(name).with_weights(None), None, seed=0)
