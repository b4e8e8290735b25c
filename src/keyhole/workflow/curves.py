"""Error against the number of sites: several methods at several K, and the fewest sites that reach an error."""

from __future__ import annotations

import itertools
import math
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.callbacks import CallbackLike
from keyhole.core.errors import InfeasibleError, SettingsError
from keyhole.core.interrupts import Interrupted, deferred
from keyhole.core.progress import reporting
from keyhole.core.run import Event, Run
from keyhole.data.climatology import MEAN, Anomalies, Climatology
from keyhole.data.origin import SourceInfo
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.data.readers import read
from keyhole.data.samples import Samples
from keyhole.data.splits import SplitLike
from keyhole.data.target import TargetKind
from keyhole.models.predictors import Predictor
from keyhole.models.reconstructors import NestedRidge, Ridge
from keyhole.models.reconstructors.module import ReconstructorLike, as_reconstructor
from keyhole.placement import Selection
from keyhole.plan.fitted import FittedModels
from keyhole.workflow.arguments import Methods, Parts, check_k, deadline_after, make_all_parts, make_run
from keyhole.workflow.scoring import scores_of
from keyhole.workflow.selection import choose_sites, fit_plan

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Curve", "CurveInterrupted", "Row", "curve"]

_LABELS = {
    "fvu": "unexplained variance",
    "rmse": "RMSE",
    "mse": "mean squared error",
    "fvu_area": "unexplained variance, area-weighted",
    "rmse_area": "RMSE, area-weighted",
    "target_error": "misclassification rate of the target",
    "target_log_loss": "log loss of the target",
    "target_fvu": "unexplained variance of the target",
    "target_rmse": "RMSE of the target",
    "target_mse": "mean squared error of the target",
}
_IN_UNITS = ("rmse", "rmse_area")


@dataclass(frozen=True, eq=False)
class Row:
    """One method at one K.

    Parameters
    ----------
    method, k
        Label of the selector, and the number of sites.
    validation, test
        Metrics by name, as in ``Plan.metrics``.
    seconds
        Time that site selection took; the rows of a nested method share one selection.
    sites
        ``(k,)``, positions of the sites in the data (C order), by rank.
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
        Sorted by method, then by K: every given K, and those tried during the bisection for ``target_error``.
    ks
        The given K, ascending.
    metric
        Name of the metric to report.
    reconstructor
        Reconstructor fitted to the sites of every method.
    target_error
        Validation error to reach, if given.
    origin
        Name, units and attributes of the data.
    warning
        Why errors on later samples are larger, where they are; see `keyhole.Split`.
    climatology
        What was subtracted from the samples.

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
    origin: SourceInfo = field(default_factory=SourceInfo)
    warning: str = ""
    climatology: Climatology = MEAN

    def __repr__(self) -> str:
        """Return a table of the errors, as `keyhole curve` prints it."""
        from keyhole.report.tables import as_text, curve_table

        return as_text(curve_table(self))

    @property
    def methods(self) -> list[str]:
        """Methods that have a row, in the order given."""
        return list(dict.fromkeys(row.method for row in self.rows))

    @property
    def label(self) -> str:
        """Name of the metric for axes and tables, with its units."""
        units = f" ({self.origin.error_units})" if self.origin.error_units and self.metric in _IN_UNITS else ""
        return _LABELS[self.metric] + units

    @property
    def title(self) -> str:
        """Title for tables and figures: data, reconstructor and metric."""
        reconstructed = "" if self.metric.startswith("target_") else f", reconstructed by {self.reconstructor}"
        return f"{self.origin.name}{reconstructed}: {self.label} on test"

    def of(self, method: str) -> list[Row]:
        """Return the rows of one method, by ascending K."""
        if method not in self.methods:
            raise SettingsError(f"method {method!r} is not on this curve; expected one of {', '.join(self.methods)}")
        return [row for row in self.rows if row.method == method]

    def best(self, method: str) -> Row:
        """Return the row of a method with the smallest validation error."""
        return min(self.of(method), key=lambda row: np.nan_to_num(row.validation[self.metric], nan=np.inf))

    def smallest(self, method: str) -> Row | None:
        """Return the row with the fewest sites whose validation error is at most ``target_error``, or None."""
        if self.target_error is None:
            raise SettingsError("this curve has no target error; give one with curve(..., target_error=...)")
        return next((row for row in self.of(method) if self.reaches(row)), None)

    def smallest_k(self, method: str) -> int | None:
        """Return the smallest K that reaches ``target_error`` on validation; None if it is never reached.

        One site fewer was tried and did not reach it. If the error is not monotonic in K, a smaller K between two given
        ones may reach it as well. An interrupted curve takes only the finished rows into account.
        """
        row = self.smallest(method)
        return None if row is None else row.k

    def reaches(self, row: Row) -> bool:
        """Return whether the validation error of a row is at most ``target_error``."""
        return self.target_error is not None and row.validation[self.metric] <= self.target_error

    def records(self) -> list[dict[str, Any]]:
        """Return one dict for each method and K: validation and test metrics, seconds and sites."""
        return [
            {
                "method": row.method,
                "k": row.k,
                "reconstructor": self.reconstructor,
                **{f"validation_{name}": value for name, value in row.validation.items()},
                **{f"test_{name}": value for name, value in row.test.items()},
                "seconds": round(row.seconds, 2),
                "sites": row.sites.tolist(),
                **({"warning": self.warning} if self.warning else {}),
            }
            for row in self.rows
        ]

    def frame(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame; ``sites`` are positions in the data by rank."""
        import pandas as pd

        return pd.DataFrame(self.records())

    def plot(self) -> Figure:
        """Plot the test error against K, with a band of one standard error.

        With a target error, also the validation error and the smallest K.
        """
        from keyhole.report import Line, error_by_k_figure

        lines = []
        for method in self.methods:
            rows = self.of(method)
            test, validation = [row.test[self.metric] for row in rows], [row.validation[self.metric] for row in rows]
            smallest = None if self.target_error is None else self.smallest_k(method)
            errors = [row.test.get(f"{self.metric}_se", np.nan) for row in rows]
            lines.append(Line(method, [row.k for row in rows], test, validation, smallest, errors))
        return error_by_k_figure(lines, self.title, self.label, target_error=self.target_error, warning=self.warning)


class CurveInterrupted(Interrupted):
    """Raised when a signal interrupts `curve`; ``curve`` holds the finished rows."""

    def __init__(self, message: str, signum: int, curve: Curve) -> None:
        super().__init__(message, signum)
        self.curve = curve


def curve(
    data: Any,
    ks: Sequence[int] = (5, 10, 20, 50),
    methods: Methods = ("greedy", "qr"),
    *,
    target: str | None = None,
    target_kind: TargetKind | None = None,
    groups: Any = None,
    reconstructor: ReconstructorLike = "ridge",
    predictor: str | Predictor = "auto",
    settings: Mapping[str, Any] | None = None,
    target_error: float | None = None,
    metric: str | None = None,
    split: SplitLike = None,
    anomalies: Anomalies = "auto",
    time_limit: float | None = None,
    seed: int = 0,
    device: str = "auto",
    precision: str = "auto",
    memory: str | int | None = None,
    callbacks: Sequence[CallbackLike] = (),
) -> Curve:
    """Compute the error of several selectors against the number of sites.

    A nested selector (greedy, variance, laplacian, random) ranks sites once, for the largest K, and its ranking is
    truncated; any other is run for each K. With ``target_error`` the smallest K that reaches it is found.

    Parameters
    ----------
    data
        `Samples`, or anything that `read` takes.
    ks
        Numbers of sites.
    methods
        Selectors: names (``docs/methods.md``) or objects, or a mapping of labels to names or objects.
    reconstructor
        Reconstructor fitted to the sites of every method, by name or object.
    settings
        Settings of the models that are named, such as ``{"reconstructor.width": 512}``.
    target_error
        Validation error to reach. The smallest K that reaches it is found by bisection between the given ``ks``; a
        selector that is not nested is run again for each K tried.
    metric
        Error to report: ``"fvu"`` (unexplained variance, the default), ``"rmse"`` or ``"mse"``; ``"fvu_area"`` or
        ``"rmse_area"`` (area-weighted) where the areas of the sites are known; with a target ``"target_error"``,
        ``"target_fvu"``, ..., of which the first is the default.
    time_limit
        Time limit in seconds for selection and fit of one method at one K.
    target, target_kind, groups, predictor, split, anomalies, seed, device, precision,
    memory, callbacks
        As in `select`.

    Returns
    -------
    Curve
        Errors by method and K.

    Raises
    ------
    CurveInterrupted
        On SIGINT or SIGTERM, after the current K (at once on a second signal); ``curve`` holds the finished rows.

    Examples
    --------
    >>> import keyhole as kh
    >>> found = kh.curve(kh.datasets.sst(), ks=(5, 10), methods=("greedy", "qr"))
    >>> found.frame()[["method", "k"]].to_records(index=False).tolist()
    [('greedy', 5), ('greedy', 10), ('qr', 5), ('qr', 10)]
    """
    run = make_run(seed=seed, device=device, precision=precision, time_limit=time_limit)
    if target_error is not None and not 0 < target_error < math.inf:
        raise SettingsError(f"target_error={target_error!r}: expected a positive number")
    each = make_all_parts(methods, reconstructor, predictor, settings)
    samples = read(data, target=target, target_kind=target_kind, groups=groups, memory=memory)
    samples = samples.anomalies_as_asked(anomalies)
    for parts in each.values():
        parts.check_early(samples)
    with reporting(callbacks):
        prepared = prepare(samples, split, seed)
    for parts in each.values():
        parts.check(prepared.samples)
    metric, counts = _check_metric(metric, prepared.samples), _check_ks(ks, prepared.samples)
    for parts, k in itertools.product(each.values(), counts):
        parts.check(prepared.samples, k)
    name = reconstructor if isinstance(reconstructor, str) else as_reconstructor(reconstructor).name
    samples, warning = prepared.samples, prepared.split.warning
    empty = Curve((), counts, metric, name, target_error, samples.origin, warning, samples.climatology)
    rows: list[Row] = []
    with deferred() as pending, reporting(callbacks) as report:
        run = replace(run, callback=report)
        try:
            for label, parts in each.items():
                for row in _MethodRows(label, parts, prepared, empty, run, time_limit).rows():
                    rows.append(row)
                    if pending.signum is not None:
                        raise Interrupted("stopped", pending.signum)
        except KeyboardInterrupt as stop:
            signum = stop.signum if isinstance(stop, Interrupted) else signal.SIGINT
            message = f"stopped; finished points of the curve: {len(rows)}"
            raise CurveInterrupted(message, signum, _with_rows(empty, rows)) from stop
    return _with_rows(empty, rows)


def _with_rows(empty: Curve, rows: Sequence[Row]) -> Curve:
    """Return the curve with its rows sorted by method, in the order given, and K."""
    order = list(dict.fromkeys(row.method for row in rows))
    return replace(empty, rows=sorted(rows, key=lambda row: (order.index(row.method), row.k)))


def _check_ks(ks: Sequence[int], samples: Samples) -> list[int]:
    """Return the distinct K in ascending order; raise if one is infeasible."""
    counts = sorted({check_k(k, samples) for k in ks})
    if not counts:
        raise InfeasibleError("ks is empty; name at least one number of sites")
    return counts


def _check_metric(metric: str | None, samples: Samples) -> str:
    """Return the given metric, or the default of the samples."""
    known = ["fvu", "rmse", "mse"] + (["fvu_area", "rmse_area"] if samples.sites.area is not None else [])
    if samples.target is not None:
        of_class, of_number = ["target_error", "target_log_loss"], ["target_fvu", "target_rmse", "target_mse"]
        known = (of_class if samples.target.is_class else of_number) + known
    if metric is not None and metric not in known:
        raise SettingsError(f"metric {metric!r} is unknown; expected one of {', '.join(known)}")
    return metric or known[0]


class _MethodRows:
    """Rows of one method: select and score sites for each K, and bisect for the smallest K.

    ``empty`` is the curve without rows, which holds K, metric and target error.
    """

    def __init__(
        self, label: str, parts: Parts, prepared: PreparedSamples, empty: Curve, run: Run, time_limit: float | None
    ) -> None:
        self.label, self.parts, self.prepared, self.empty = label, parts, prepared, empty
        self.run, self.time_limit = run, time_limit
        self.ranking: tuple[NDArray[np.int64], float] | None = None

    def rows(self) -> Iterator[Row]:
        """Yield a row for each given K, then those of the bisection."""
        stage, ks, reached = f"curve of {self.label}", self.empty.ks, list[int]()
        for done, k in enumerate(ks):
            self.run.tell(Event(stage, done, len(ks)))
            row = self._row(k)
            reached += [k] if self.empty.reaches(row) else []
            yield row
        self.run.tell(Event(stage, len(ks), len(ks)))
        if reached:
            yield from self._between(max((k for k in ks if k < reached[0]), default=0), reached[0])

    def _between(self, low: int, high: int) -> Iterator[Row]:
        """Bisect between a K that does not reach the target error and one that does."""
        stage, tries = f"smallest K of {self.label}", math.ceil(math.log2(high - low))
        stage += "" if self.parts.selector.nested else ", selected again for each K"
        done = 0
        while high - low > 1:
            self.run.tell(Event(stage, done, tries))
            middle, done = (low + high) // 2, done + 1
            row = self._row(middle)
            low, high = (low, middle) if self.empty.reaches(row) else (middle, high)
            yield row
        self.run.tell(Event(stage, tries, tries))

    def _row(self, k: int) -> Row:
        """Score the method at ``k`` as a plan of ``k`` sites is scored."""
        run = replace(self.run, deadline=deadline_after(self.time_limit))
        sites, seconds = self._sites(k, run)
        index = self.prepared.samples.positions(sites)
        if self._shares_ridge():
            return Row(self.label, k, *self._scores_by_ridge(sites), seconds, index)
        metrics = fit_plan(self.prepared, Selection(sites), self.parts, run).metrics
        return Row(self.label, k, metrics["validation"], metrics["test"], seconds, index)

    def _shares_ridge(self) -> bool:
        """Whether all K of a ranking can share one decomposition; imputation of missing values depends on the sites."""
        samples, ridge = self.prepared.samples, self.parts.reconstructor
        plain = samples.target is None and samples.missing is None
        return (
            plain and self.ranking is not None and isinstance(ridge, Ridge) and ridge.settings() == Ridge().settings()
        )

    def _scores_by_ridge(self, sites: NDArray[np.int64]) -> tuple[dict[str, float], dict[str, float]]:
        """Return validation and test errors of the first sites of the ranking, which share one decomposition."""
        prepared, samples = self.prepared, self.prepared.samples
        on_train, final = (
            FittedModels(
                domain=samples.sites, indices=samples.positions(sites), scaling=scaling, origin=samples.origin,
                reconstructor=ridge.first(len(sites)),
                sensors=None if samples.sensors is None else samples.sensors.take(sites).resolved(samples.noise),
            )
            for scaling, ridge in zip((prepared.choosing, prepared.scaling), self._ridges, strict=True)
        )  # fmt: skip
        scores = scores_of(prepared, {"validation": on_train, "test": final})
        return scores["validation"].metrics, scores["test"].metrics

    @cached_property
    def _ridges(self) -> tuple[NestedRidge, NestedRidge]:
        """Nested ridge of the ranking, on the training part and on all but the test part."""
        sites = np.empty(0, np.int64) if self.ranking is None else self.ranking[0]
        return NestedRidge(self.prepared.train, sites), NestedRidge(self.prepared.development, sites)

    def _sites(self, k: int, run: Run) -> tuple[NDArray[np.int64], float]:
        """Return ``k`` sites and the seconds of their selection; a nested ranking is truncated."""
        if not self.parts.selector.nested:
            return self._selected(k, run)
        if self.ranking is None:
            self.ranking = self._selected(self.empty.ks[-1], run)
        sites, seconds = self.ranking
        return _first(sites, k, self.prepared), seconds

    def _selected(self, k: int, run: Run) -> tuple[NDArray[np.int64], float]:
        """Run the selector and measure its time."""
        started = time.monotonic()
        sites = choose_sites(self.parts.selector, self.prepared, k, run).sites
        return sites, time.monotonic() - started


def _first(sites: NDArray[np.int64], k: int, prepared: PreparedSamples) -> NDArray[np.int64]:
    """Truncate a ranking to the existing sites and the first ``k`` others, or groups of them."""
    existing, constraints = len(prepared.existing), prepared.samples.constraints
    if constraints is None or constraints.grouping is None:
        return sites[: existing + k]
    units = constraints.grouping.units[sites[existing:]]
    return sites[: existing + int(np.isin(units, list(dict.fromkeys(units.tolist()))[:k]).sum())]
