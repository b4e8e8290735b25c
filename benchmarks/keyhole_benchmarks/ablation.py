"""Ablation of `auto`: one stage is left out at a time, and each mask distribution replaces the search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

from keyhole.core.run import Run
from keyhole.data.preparation import PreparedSamples
from keyhole.placement import SELECTORS
from keyhole.placement.auto import STAGES
from keyhole.workflow.selection import SELECTION_SHARE, choose_sites
from keyhole_benchmarks.quality import finish, load_prepared, until
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["N_SITES", "VARIANTS", "jobs"]

N_SITES = {"mnist": 20, "ipsl": 50}
_DISTRIBUTIONS = ("vln", "iln", "hnet", "sct")


def _without(*stages: str) -> dict[str, Any]:
    return {"stages": [stage for stage in STAGES if stage not in stages]}


# By name: settings of auto, and the reconstructor.
VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    "all stages": (_without(), "auto"),
    "classical sites": (_without("exchange", "learned", "kernel_exchange"), "auto"),
    "without exchange": (_without("exchange"), "auto"),
    "without learned masks": (_without("learned"), "auto"),
    "without kernel exchange": (_without("kernel_exchange"), "auto"),
    "without a network": ({}, "ridge"),
    "one network without periodic embedding": ({}, "residual"),
    "best of 64 sampled masks": ({"collapse": "best"}, "auto"),
    **{
        f"{distribution} alone": (
            _without("qr", "exchange", "kernel_exchange") | {"distribution": distribution},
            "auto",
        )
        for distribution in _DISTRIBUTIONS
    },
    **{
        f"{distribution} and kernel exchange": (_without("qr", "exchange") | {"distribution": distribution}, "auto")
        for distribution in _DISTRIBUTIONS
    },
}


def jobs(names: Sequence[str], variants: Sequence[str], seeds: Sequence[int], limit: float) -> Iterator[Job]:
    """Return one job for each data set, seed and variant.

    Parameters
    ----------
    names
        Names of data sets, keys of `N_SITES`.
    variants
        Names of variants, keys of `VARIANTS`.
    seeds
        Seeds of the runs.
    limit
        Time limit of a case in seconds.

    Yields
    ------
    Job
        A job with one case.
    """
    for name, seed, variant in product(names, seeds, variants):
        settings, reconstructor = VARIANTS[variant]
        prepared = load_prepared(name)
        words = {"variant": variant, "selector": SELECTORS.make("auto", settings).settings()}
        case = Case("ablation", name, f"{limit:g} s", variant, reconstructor, N_SITES[name], seed, words)
        yield Job([case], prepared.split.sizes(), "auto", partial(_work, case, settings, prepared, limit))


def _work(case: Case, settings: dict[str, Any], prepared: PreparedSamples, limit: float, run: Run) -> Iterator[Outcome]:
    selector = SELECTORS.make("auto", settings)
    selection = choose_sites(selector, prepared, case.k, until(run, limit))
    yield finish(case, prepared, selector, selection, until(run, (1 - SELECTION_SHARE) * limit))
