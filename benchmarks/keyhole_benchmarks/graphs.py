"""Sensors on a water network: selectors and reconstructors that use its graph, beside those that do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

from keyhole.core.run import Run
from keyhole.data import datasets
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.data.splits import Split
from keyhole.placement import SELECTORS
from keyhole.workflow.selection import choose_sites
from keyhole_benchmarks.quality import finish
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["HOURS", "KS", "LEARNED", "LEARNED_KS", "METHODS", "RECONSTRUCTORS", "jobs"]

HOURS, KS, LEARNED_KS = (24, 48, 384), (5, 10, 20), (10,)
LEARNED = ("iln", "vln", "graph_vln")
METHODS = ("greedy", "exchange", *LEARNED)
RECONSTRUCTORS = ("ridge", "graph_ridge", "optimal_interpolation")
_BEFORE_TEST, _ALL = 384, 480
_VALIDATION = 3  # one of so many hours, the latest


def jobs(
    hours: Sequence[int], methods: Sequence[str], reconstructors: Sequence[str], ks: Sequence[int], seeds: Sequence[int]
) -> Iterator[Job]:
    """Return one job for each number of hours, K, seed and method; a method without randomness runs once.

    Parameters
    ----------
    hours
        Numbers of measured hours, the last before the test part; a third of them is the validation part.
    methods
        Names of selectors. Masks are learned from scratch, so that they do not end where greedy selection does.
    reconstructors
        Reconstructors that are fitted to the same sites.
    ks
        Numbers of sites; empty for `KS`, and `LEARNED_KS` of learned masks.
    seeds
        Seeds of the runs.

    Yields
    ------
    Job
        A job with one case for each reconstructor.
    """
    for count, method in product(hours, methods):
        given = {"warm_start": "none"} if method in LEARNED else {}
        settings = {"selector": SELECTORS.make(method, given).settings()}
        prepared, usual = _prepared(count), LEARNED_KS if method in LEARNED else KS
        for k, seed in product(ks or usual, seeds if method in LEARNED else seeds[:1]):
            cases = [Case("graphs", "water", f"{count} h", method, one, k, seed, settings) for one in reconstructors]
            yield Job(cases, prepared.split.sizes(), "auto", partial(_work, cases, prepared, given))


def _prepared(hours: int) -> PreparedSamples:
    """The hours before the test part: the latest third of them is the validation part."""
    first, middle = _BEFORE_TEST - hours, _BEFORE_TEST - hours // _VALIDATION
    split = Split.given(range(first, middle), range(_BEFORE_TEST, _ALL), list(range(middle, _BEFORE_TEST)))
    return prepare(datasets.water(), split, seed=0)


def _work(cases: Sequence[Case], prepared: PreparedSamples, given: dict[str, str], run: Run) -> Iterator[Outcome]:
    """Choose sites once, and fit each reconstructor to them."""
    selector = SELECTORS.make(cases[0].method, given)
    selection = choose_sites(selector, prepared, cases[0].k, run)
    for case in cases:
        yield finish(case, prepared, selector, selection, run)
