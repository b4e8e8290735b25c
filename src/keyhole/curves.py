"""Error against the number of sites: several methods at several K, and the fewest sites that reach an error."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.checks import check_k, check_run, check_stages, deadline_after
from keyhole.errors import BudgetError, SettingsError
from keyhole.interrupts import Interrupted, Pending, deferred
from keyhole.origin import Origin
from keyhole.pipeline import choose_sites, fit_reconstructor, fit_target, make_plan, make_selector, score
from keyhole.plan import Plan
from keyhole.preparation import Prepared, prepare
from keyhole.progress import progress
from keyhole.readers import read
from keyhole.reconstructors import NestedRidge
from keyhole.run import Event, Run
from keyhole.selectors import Selection, Selector
from keyhole.signals import Signals
from keyhole.split import Split
from keyhole.target import TargetKind

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Curve", "Row", "Stopped", "curve"]

_WORDS = {
    "fvu": "variance left",
    "rmse": "RMSE",
    "mse": "mean squared error",
    "fvu_area": "variance left, by area",
    "rmse_area": "RMSE, by area",
    "target_error": "share of the target told wrongly",
    "target_log_loss": "log loss of the target",
    "target_fvu": "the target's variance left",
    "target_rmse": "RMSE of the target",
    "target_mse": "mean squared error of the target",
}
_IN_UNITS = ("rmse", "rmse_area")


@dataclass(frozen=True, eq=False)
class Row:
    """One method at one K: its sites, best first, and the errors by name, as a plan's metrics are.

    ``seconds`` is what the choice of the sites took; of a nested method, the one choice that all its rows share.
    """

    method: str
    k: int
    validation: Mapping[str, float]
    test: Mapping[str, float]
    seconds: float
    sites: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Curve:
    """Error against K of several methods.

    Parameters
    ----------
    rows
        By method, then by K: every K asked for, and those tried on the way to the fewest sites.
    ks
        The K asked for, ascending.
    metric
        The error that counts: a name among the metrics of each row.
    reconstructor
        The one that all methods share.
    target_error
        The error to reach on validation, if one was named.
    origin
        What the signals were before they were read.

    Examples
    --------
    >>> import keyhole as kh
    >>> found = kh.curve(kh.datasets.sst(), ks=(5, 20), methods=("greedy", "random"), target_error=0.7)
    >>> found.smallest_k("greedy"), found.smallest_k("random")
    (14, None)
    """

    rows: Sequence[Row]
    ks: Sequence[int]
    metric: str
    reconstructor: str
    target_error: float | None = None
    origin: Origin = field(default_factory=Origin)

    @property
    def methods(self) -> list[str]:
        """Methods that have a row, in the order asked for."""
        return list(dict.fromkeys(row.method for row in self.rows))

    @property
    def label(self) -> str:
        """The error that counts, in words, with its units."""
        units = f" ({self.origin.units})" if self.origin.units and self.metric in _IN_UNITS else ""
        return _WORDS[self.metric] + units

    @property
    def title(self) -> str:
        """What is shown: the data, what rebuilds them, and the error on test."""
        rebuilt = "" if self.metric.startswith("target_") else f", rebuilt by {self.reconstructor}"
        return f"{self.origin.name}{rebuilt}: {self.label} on test"

    def of(self, method: str) -> list[Row]:
        """Give the rows of one method."""
        if method not in self.methods:
            raise SettingsError(f"method {method!r} is not on this curve; there are {', '.join(self.methods)}")
        return [row for row in self.rows if row.method == method]

    def best(self, method: str) -> Row:
        """Give the row with the least error on validation."""
        return min(self.of(method), key=lambda row: np.nan_to_num(row.validation[self.metric], nan=np.inf))

    def smallest(self, method: str) -> Row | None:
        """Give the row with the fewest sites whose error on validation is the target error or less, if there is one."""
        if self.target_error is None:
            raise SettingsError("this curve has no error to reach; name one with curve(..., target_error=...)")
        return next((row for row in self.of(method) if row.validation[self.metric] <= self.target_error), None)

    def smallest_k(self, method: str) -> int | None:
        """Give the fewest sites that reach the target error on validation; None where it is never reached.

        One site fewer was tried and did not reach it. Where the error goes up and down with K, another K further down
        may reach it too, between two of those asked for that do not. A curve that was stopped knows what it tried.
        """
        row = self.smallest(method)
        return None if row is None else row.k

    def records(self) -> list[dict[str, Any]]:
        """Give one row of plain values for each method and K, for tables and machines."""
        return [
            {
                "method": row.method,
                "k": row.k,
                "reconstructor": self.reconstructor,
                **{f"validation_{name}": value for name, value in row.validation.items()},
                **{f"test_{name}": value for name, value in row.test.items()},
                "seconds": round(row.seconds, 2),
                "sites": row.sites.tolist(),
            }
            for row in self.rows
        ]

    def frame(self) -> pd.DataFrame:
        """Give the rows as a pandas frame; ``sites`` are flat grid indices, best first."""
        import pandas as pd

        return pd.DataFrame(self.records())

    def plot(self) -> Figure:
        """Draw the errors on test against K; with a target error, those on validation too, and the fewest sites."""
        from keyhole.report import Line, error_by_k_figure

        lines = []
        for method in self.methods:
            rows = self.of(method)
            test, validation = [row.test[self.metric] for row in rows], [row.validation[self.metric] for row in rows]
            smallest = None if self.target_error is None else self.smallest_k(method)
            lines.append(Line(method, [row.k for row in rows], test, validation, smallest))
        return error_by_k_figure(lines, self.title, self.label, target_error=self.target_error)


class Stopped(Interrupted):
    """A curve was stopped by a signal; ``curve`` holds what was finished."""

    def __init__(self, message: str, signum: int, curve: Curve) -> None:
        super().__init__(message, signum)
        self.curve = curve


def curve(
    signals: Any,
    ks: Sequence[int] = (5, 10, 20, 50),
    methods: Sequence[str] = ("greedy", "qr"),
    *,
    target: str | None = None,
    target_kind: TargetKind | None = None,
    reconstructor: str = "ridge",
    predictor: str = "auto",
    target_error: float | None = None,
    metric: str | None = None,
    split: Split | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    device: str = "auto",
    precision: str = "auto",
    callback: Callable[[Event], None] | None = None,
) -> Curve:
    """Let each method choose sites for every K, with the same reconstructor, and find how many are enough.

    A nested method (greedy, variance, laplacian, random) ranks sites once, for the largest K, and its ranking is cut;
    any other chooses anew for each K.

    Parameters
    ----------
    signals
        Signals, or anything that `read` takes.
    ks, methods
        Numbers of sites, and names of selectors (``docs/methods.md``).
    target_error
        An error to reach on validation. Between the K asked for, the fewest sites that reach it are found by bisection,
        exact to one site; this costs a method that is not nested one more choice of sites a try.
    metric
        The error that counts: ``"fvu"`` (the default: the share of the variance that is left), ``"rmse"`` or ``"mse"``;
        ``"fvu_area"`` or ``"rmse_area"`` where the grid knows latitude; with a target its own (``"target_error"``,
        ``"target_fvu"``, ...), which is the default then.
    time_limit
        Seconds for the sites and the reconstructor of one method at one K.
    target, target_kind, reconstructor, predictor, split, seed, device, precision, callback
        As `select` takes them.

    Raises
    ------
    Stopped
        A signal arrived: when the K at hand was done, or at once for the second one. The error holds what was finished.

    Examples
    --------
    >>> import keyhole as kh
    >>> found = kh.curve(kh.datasets.sst(), ks=(5, 10), methods=("greedy", "qr"))
    >>> found.frame()[["method", "k"]].to_records(index=False).tolist()
    [('greedy', 5), ('greedy', 10), ('qr', 5), ('qr', 10)]
    """
    check_run(device, precision)
    deadline_after(time_limit)
    _check_target_error(target_error)
    selectors = {method: make_selector(method, {}) for method in methods}
    if not selectors:
        raise SettingsError("no method is named; a curve needs one at least")
    prepared = prepare(read(signals, target=target, target_kind=target_kind), split, seed)
    check_stages(selectors, reconstructor, predictor, prepared.signals)
    metric, counts = _check_metric(metric, prepared.signals), _check_ks(ks, prepared.signals)
    blank = Curve((), counts, metric, reconstructor, target_error, prepared.signals.origin)
    rows: list[Row] = []
    with deferred() as pending, progress(callback) as tell:
        run = Run(seed=seed, device=device, precision=precision, callback=tell)
        try:
            for method, selector in selectors.items():
                for row in _Walk(method, selector, prepared, blank, predictor, run, time_limit).rows():
                    rows.append(row)
                    _stop_if(pending)
        except KeyboardInterrupt as stop:
            signum = stop.signum if isinstance(stop, Interrupted) else signal.SIGINT
            message = f"stopped; points of the curve that are finished: {len(rows)}"
            raise Stopped(message, signum, _filled(blank, rows)) from stop
    return _filled(blank, rows)


class _Walk:
    """One method on its way along the K of a curve, which tells what is asked for."""

    def __init__(
        self, method: str, selector: Selector, prepared: Prepared, asked: Curve, predictor: str, run: Run,
        time_limit: float | None,
    ) -> None:  # fmt: skip
        self.method, self.selector, self.prepared, self.asked = method, selector, prepared, asked
        self.predictor, self.run, self.time_limit = predictor, run, time_limit
        self.ranking: tuple[NDArray[np.int64], float] | None = None

    def rows(self) -> Iterator[Row]:
        """Give a row for each K asked for, then those on the way to the fewest sites."""
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
        """Halve the gap between a K that is too small and one that is enough, until it is one site."""
        stage, tries = f"fewest sites of {self.method}", math.ceil(math.log2(high - low))
        stage += "" if self.selector.nested else ", a new choice for each try"
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
        """Judge the method at ``k`` as a plan of that many sites is judged."""
        run = replace(self.run, deadline=deadline_after(self.time_limit))
        sites, seconds = self._sites(k, run)
        if self._shares_ridge():
            return Row(self.method, k, *self._by_ridge(sites), seconds, sites)
        fitted = fit_reconstructor(self.asked.reconstructor, self.prepared, sites, run)
        told = fit_target(self.predictor, self.prepared, sites, run)
        plan = make_plan(
            self.prepared, Selection(sites), fitted, self.selector, run, method=self.method, predictor=told
        )
        return Row(self.method, k, plan.metrics["validation"], plan.metrics["test"], seconds, sites)

    def _shares_ridge(self) -> bool:
        """Whether all K of the ranking can share one decomposition; what fills gaps depends on the sites."""
        signals = self.prepared.signals
        plain = signals.target is None and signals.gaps is None
        return plain and self.ranking is not None and self.asked.reconstructor == "ridge"

    def _by_ridge(self, sites: NDArray[np.int64]) -> tuple[dict[str, float], dict[str, float]]:
        """Errors on validation and on test of the first sites of the ranking, all of which share one decomposition."""
        parts, signals = self.prepared, self.prepared.signals
        choosing, last = (ridge.first(len(sites)) for ridge in self._ridges)
        plan = Plan(signals.grid, sites, np.zeros(len(sites)), parts.choosing, choosing, signals.origin)
        validation = score(plan, signals.take(parts.split.validation), parts.choosing)
        plan = replace(plan, scaling=parts.scaling, reconstructor=last)
        return validation, score(plan, parts.test, parts.scaling)

    @cached_property
    def _ridges(self) -> tuple[NestedRidge, NestedRidge]:
        """Of the ranking, on what chooses and on all but test."""
        sites = np.empty(0, np.int64) if self.ranking is None else self.ranking[0]
        return NestedRidge(self.prepared.train, sites), NestedRidge(self.prepared.development, sites)

    def _sites(self, k: int, run: Run) -> tuple[NDArray[np.int64], float]:
        """Give ``k`` sites and what their choice took: a nested ranking is cut, any other made anew."""
        if not self.selector.nested:
            return self._chosen(k, run)
        if self.ranking is None:
            self.ranking = self._chosen(self.asked.ks[-1], run)
        sites, seconds = self.ranking
        return _first(sites, k, self.prepared), seconds

    def _chosen(self, k: int, run: Run) -> tuple[NDArray[np.int64], float]:
        started = time.monotonic()
        sites = choose_sites(self.selector, self.prepared, k, run).sites
        return sites, time.monotonic() - started


def _first(sites: NDArray[np.int64], k: int, prepared: Prepared) -> NDArray[np.int64]:
    """Cut a ranking: those that are there already, and the first ``k`` others, or groups of them."""
    there, constraints = len(prepared.fixed), prepared.signals.constraints
    if constraints is None or constraints.grouping is None:
        return sites[: there + k]
    units = constraints.grouping.units_of(sites[there:])
    return sites[: there + int(np.isin(units, list(dict.fromkeys(units.tolist()))[:k]).sum())]


def _filled(blank: Curve, rows: Sequence[Row]) -> Curve:
    """Give the curve with its rows, methods in the order in which they came."""
    order = list(dict.fromkeys(row.method for row in rows))
    return replace(blank, rows=sorted(rows, key=lambda row: (order.index(row.method), row.k)))


def _stop_if(pending: Pending) -> None:
    if pending.signum is not None:
        raise Interrupted("stopped", pending.signum)


def _check_target_error(error: float | None) -> None:
    if error is not None and not 0 < error < math.inf:
        raise SettingsError(f"target_error={error!r}: a positive number is needed")


def _check_ks(ks: Sequence[int], signals: Signals) -> list[int]:
    """Give the K in ascending order, each once, or say why one cannot be had."""
    counts = sorted({check_k(k, signals) for k in ks})
    if not counts:
        raise BudgetError("no K is named; a curve needs one at least")
    return counts


def _check_metric(metric: str | None, signals: Signals) -> str:
    """Give the metric asked for, or the first of those that the signals have."""
    known = _metrics_of(signals)
    if metric is not None and metric not in known:
        raise SettingsError(f"metric {metric!r} is not known; there are {', '.join(known)}")
    return metric or known[0]


def _metrics_of(signals: Signals) -> list[str]:
    """Names of the errors that plans on these signals have, what they are judged by first."""
    names = ["fvu", "rmse", "mse"] + (["fvu_area", "rmse_area"] if signals.grid.area() is not None else [])
    if signals.target is None:
        return names
    own = (
        ["target_error", "target_log_loss"] if signals.target.is_class else ["target_fvu", "target_rmse", "target_mse"]
    )
    return own + names
