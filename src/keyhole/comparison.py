"""Several methods on the same data, side by side: same K, same split, same reconstructor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.pipeline import (
    Prepared,
    check_k,
    choose_sites,
    deadline_after,
    fit_reconstructor,
    make_plan,
    make_selector,
    prepare,
)
from keyhole.plan import Plan
from keyhole.progress import progress
from keyhole.readers import read
from keyhole.reconstructors import Ridge, nested_errors
from keyhole.run import Event, Run
from keyhole.selectors import Selector
from keyhole.split import Split

__all__ = ["Comparison", "Entry", "compare", "single"]


@dataclass(frozen=True, eq=False)
class Entry:
    """One method's plan.

    ``curve`` is the test RMSE of ridge with the first 0, 1, ... K sites, in the user's units; ``seconds`` is what the
    choice of the sites took.
    """

    method: str
    plan: Plan
    curve: NDArray[np.float64]
    seconds: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """The data as they were split and scaled, and an entry for each method, the best on test first."""

    prepared: Prepared
    entries: Sequence[Entry]

    @property
    def choice(self) -> Entry:
        """The entry to take: the best on validation, since test is only to judge."""
        return min(self.entries, key=lambda entry: entry.plan.metrics["validation"]["fvu"])

    def rows(self) -> list[dict[str, Any]]:
        """Give one row of plain values for each method, for tables and machines."""
        return [
            {
                "method": entry.method,
                "k": entry.plan.k,
                "reconstructor": entry.plan.reconstructor.name,
                **{f"test_{name}": value for name, value in entry.plan.metrics["test"].items()},
                "validation_fvu": entry.plan.metrics["validation"]["fvu"],
                "seconds": round(entry.seconds, 2),
            }
            for entry in self.entries
        ]


def compare(
    signals: Any,
    k: int,
    methods: Sequence[str],
    *,
    reconstructor: str = "ridge",
    split: Split | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    device: str = "auto",
    callback: Callable[[Event], None] | None = None,
) -> Comparison:
    """Let each method choose ``k`` sites and fit the same reconstructor to them; ``time_limit`` is for each method."""
    selectors = {method: make_selector(method, {}) for method in methods}
    prepared = prepare(read(signals), split, seed)
    k = check_k(k, prepared.signals)
    with progress(callback) as tell:
        entries = []
        for method, selector in selectors.items():
            run = Run(seed=seed, device=device, deadline=deadline_after(time_limit), callback=tell)
            entries.append(_contest(method, selector, prepared, k, reconstructor, run))
    return Comparison(prepared, sorted(entries, key=lambda entry: entry.plan.metrics["test"]["mse"]))


def _contest(method: str, selector: Selector, prepared: Prepared, k: int, reconstructor: str, run: Run) -> Entry:
    started = time.monotonic()
    selection = choose_sites(selector, prepared, k, run)
    seconds = time.monotonic() - started
    fitted = fit_reconstructor(reconstructor, prepared, selection.sites, run)
    return _entry(make_plan(prepared, selection, fitted, selector, run, method=method), prepared, seconds)


def _entry(plan: Plan, prepared: Prepared, seconds: float) -> Entry:
    """Give a plan with its error against the number of sites."""
    return Entry(plan.made["method"], plan, _curve(prepared, plan), seconds)


def _curve(prepared: Prepared, plan: Plan) -> NDArray[np.float64]:
    test = prepared.scaling.apply(prepared.test)
    ridge = Ridge().fit(prepared.development, plan.indices, validation=prepared.validation, run=Run())
    errors = nested_errors(prepared.development, test, plan.indices, ridge.strength, prepared.scaling.scale)
    return np.asarray(np.sqrt(np.maximum(errors, 0) / test.packed().size))


def single(plan: Plan, prepared: Prepared) -> Comparison:
    """Give one plan as a comparison, for its report."""
    return Comparison(prepared, [_entry(plan, prepared, float(plan.made.get("seconds", 0.0)))])
