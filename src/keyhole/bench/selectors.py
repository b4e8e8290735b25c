"""Keyhole's selectors on benchmark data, each with the same reconstructor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from keyhole.bench.data import Data, load
from keyhole.bench.records import Case
from keyhole.bench.runner import Job, Outcome
from keyhole.bench.table1 import refit_settings
from keyhole.pipeline import choose_sites, make_plan, make_selector
from keyhole.reconstructors import RECONSTRUCTORS
from keyhole.run import Run

__all__ = ["jobs"]

_METHODS, _SEEDS = ("learned", "greedy", "qr", "variance", "random"), (0, 1, 2)
_RANDOM = ("learned", "random")
# Data, K, reconstructor, methods, seeds. The network costs minutes a case, so it judges three methods with one seed.
_GROUPS: list[tuple[str, int, str, tuple[str, ...], tuple[int, ...]]] = [
    ("sst", 25, "ridge", _METHODS, _SEEDS),
    ("ipsl", 20, "ridge", _METHODS, _SEEDS),
    ("ipsl", 50, "ridge", _METHODS, _SEEDS),
    ("mnist", 20, "ridge", _METHODS, _SEEDS),
    ("mnist", 20, "residual", ("learned", "greedy", "qr"), _SEEDS[:1]),
]


def jobs() -> Iterator[Job]:
    """Give one job for each case; a method without randomness runs once."""
    for name, k, reconstructor, methods, seeds in _GROUPS:
        data = load(name, None)
        for method in methods:
            settings = {
                "selector": make_selector(method, {}).settings(),
                "reconstructor": refit_settings(len(data.scaled.train)) if reconstructor == "residual" else {},
            }
            for seed in seeds if method in _RANDOM else seeds[:1]:
                case = Case("selectors", name, "compare", method, reconstructor, k, seed, settings)
                yield Job([case], data.split(), "32-true", partial(_work, case, data))


def _work(case: Case, data: Data, run: Run) -> Iterator[Outcome]:
    selector, prepared = make_selector(case.method, case.settings["selector"]), data.scaled
    selection = choose_sites(selector, prepared, case.k, run)
    reconstructor = RECONSTRUCTORS[case.reconstructor](**case.settings["reconstructor"])
    fitted = reconstructor.fit(prepared.train, selection.sites, validation=prepared.validation, run=run)
    plan = make_plan(prepared, selection, fitted, selector, run, method=case.method)
    yield Outcome(plan.metrics["test"], plan.k, selection.notes)
