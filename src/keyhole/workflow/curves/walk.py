"""One method of a curve: select and score sites for each K, and bisect for the smallest K."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.data.preparation import PreparedSamples
from keyhole.models.reconstructors import NestedRidge
from keyhole.placement import Selection, Selector
from keyhole.plan.plan import Plan
from keyhole.workflow.checks import deadline_after
from keyhole.workflow.curves.result import Curve, Row
from keyhole.workflow.selection import choose_sites, fit_reconstructor, fit_target, make_plan, score

__all__ = ["CurveRunner"]


class CurveRunner:
    """Compute the rows of one method; ``asked`` is an empty curve that holds K, metric and target error."""

    def __init__(
        self, method: str, selector: Selector, prepared: PreparedSamples, asked: Curve, predictor: str, run: Run,
        time_limit: float | None,
    ) -> None:  # fmt: skip
        self.method, self.selector, self.prepared, self.asked = method, selector, prepared, asked
        self.predictor, self.run, self.time_limit = predictor, run, time_limit
        self.ranking: tuple[NDArray[np.int64], float] | None = None

    def rows(self) -> Iterator[Row]:
        """Yield a row for each given K, then those of the bisection."""
        stage, ks, reached = f"curve of {self.method}", self.asked.ks, list[int]()
        for done, k in enumerate(ks):
            self.run.tell(Event(stage, done, len(ks)))
            row = self._row(k)
            reached += [k] if self._reaches(row) else []
            yield row
        self.run.tell(Event(stage, len(ks), len(ks)))
        if reached:
            yield from self._between(max((k for k in ks if k < reached[0]), default=0), reached[0])

    def _between(self, low: int, high: int) -> Iterator[Row]:
        """Bisect between a K that does not reach the target error and one that does."""
        stage, tries = f"smallest K of {self.method}", math.ceil(math.log2(high - low))
        stage += "" if self.selector.nested else ", selected again for each K"
        done = 0
        while high - low > 1:
            self.run.tell(Event(stage, done, tries))
            middle, done = (low + high) // 2, done + 1
            row = self._row(middle)
            low, high = (low, middle) if self._reaches(row) else (middle, high)
            yield row
        self.run.tell(Event(stage, tries, tries))

    def _reaches(self, row: Row) -> bool:
        error = self.asked.target_error
        return error is not None and row.validation[self.asked.metric] <= error

    def _row(self, k: int) -> Row:
        """Score the method at ``k`` as a plan of ``k`` sites is scored."""
        run = replace(self.run, deadline=deadline_after(self.time_limit))
        sites, seconds = self._sites(k, run)
        if self._shares_ridge():
            return Row(self.method, k, *self._by_ridge(sites), seconds, sites)
        fitted = fit_reconstructor(self.asked.reconstructor, self.prepared, sites, run)
        predictor = fit_target(self.predictor, self.prepared, sites, run)
        plan = make_plan(
            self.prepared, Selection(sites), fitted, self.selector, run, method=self.method, predictor=predictor
        )
        return Row(self.method, k, plan.metrics["validation"], plan.metrics["test"], seconds, sites)

    def _shares_ridge(self) -> bool:
        """Whether all K of a ranking can share one decomposition; imputation of missing values depends on the sites."""
        signals = self.prepared.signals
        plain = signals.target is None and signals.gaps is None
        return plain and self.ranking is not None and self.asked.reconstructor == "ridge"

    def _by_ridge(self, sites: NDArray[np.int64]) -> tuple[dict[str, float], dict[str, float]]:
        """Return validation and test errors of the first sites of the ranking, which share one decomposition."""
        parts, signals = self.prepared, self.prepared.signals
        choosing, last = (ridge.first(len(sites)) for ridge in self._ridges)
        plan = Plan(signals.grid, sites, np.zeros(len(sites)), parts.choosing, choosing, signals.origin)
        validation = score(plan, signals.take(parts.split.validation), parts.choosing)
        plan = replace(plan, scaling=parts.scaling, reconstructor=last)
        return validation, score(plan, parts.test, parts.scaling)

    @cached_property
    def _ridges(self) -> tuple[NestedRidge, NestedRidge]:
        """Nested ridge of the ranking, on the training part and on all but the test part."""
        sites = np.empty(0, np.int64) if self.ranking is None else self.ranking[0]
        return NestedRidge.of(self.prepared.train, sites), NestedRidge.of(self.prepared.development, sites)

    def _sites(self, k: int, run: Run) -> tuple[NDArray[np.int64], float]:
        """Return ``k`` sites and the seconds of their selection; a nested ranking is truncated."""
        if not self.selector.nested:
            return self._selected(k, run)
        if self.ranking is None:
            self.ranking = self._selected(self.asked.ks[-1], run)
        sites, seconds = self.ranking
        return _first(sites, k, self.prepared), seconds

    def _selected(self, k: int, run: Run) -> tuple[NDArray[np.int64], float]:
        started = time.monotonic()
        sites = choose_sites(self.selector, self.prepared, k, run).sites
        return sites, time.monotonic() - started


def _first(sites: NDArray[np.int64], k: int, prepared: PreparedSamples) -> NDArray[np.int64]:
    """Truncate a ranking to the existing sites and the first ``k`` others, or groups of them."""
    existing, constraints = len(prepared.existing), prepared.signals.constraints
    if constraints is None or constraints.grouping is None:
        return sites[: existing + k]
    units = constraints.grouping.units_of(sites[existing:])
    return sites[: existing + int(np.isin(units, list(dict.fromkeys(units.tolist()))[:k]).sum())]
