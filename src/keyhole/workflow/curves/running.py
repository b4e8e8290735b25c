"""Error against the number of sites: several methods at several K."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from keyhole.core.errors import InfeasibleError, SettingsError
from keyhole.core.interrupts import Interrupted, Pending, deferred
from keyhole.core.progress import progress
from keyhole.core.run import Event, Run
from keyhole.data.preparation import prepare
from keyhole.data.readers import read
from keyhole.data.samples import Samples
from keyhole.data.splits import SplitLike
from keyhole.data.target import TargetKind
from keyhole.placement import SELECTORS
from keyhole.workflow.checks import check_k, check_run, check_stages, deadline_after
from keyhole.workflow.curves.result import Curve, CurveInterrupted, Row
from keyhole.workflow.curves.walk import CurveRunner

__all__ = ["curve"]


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
    split: SplitLike = None,
    anomalies: Literal["month", "none"] | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    device: str = "auto",
    precision: str = "auto",
    callback: Callable[[Event], None] | None = None,
) -> Curve:
    """Compute the error of several selectors against the number of sites.

    A nested selector (greedy, variance, laplacian, random) ranks sites once, for the largest K, and its ranking is
    truncated; any other is run for each K. With ``target_error`` the smallest K that reaches it is found.

    Parameters
    ----------
    signals
        `Samples`, or anything that `read` takes.
    ks, methods
        Numbers of sites, and names of selectors (``docs/methods.md``).
    target_error
        Validation error to reach. The smallest K that reaches it is found by bisection between the given ``ks``; a
        selector that is not nested is run again for each K tried.
    metric
        Error to report: ``"fvu"`` (unexplained variance, the default), ``"rmse"`` or ``"mse"``; ``"fvu_area"`` or
        ``"rmse_area"`` (area-weighted) on latitude-longitude grids; with a target ``"target_error"``, ``"target_fvu"``,
        ..., of which the first is the default.
    time_limit
        Time limit in seconds for selection and fit of one method at one K.
    reconstructor
        Reconstructor fitted to the sites of every method.
    target, target_kind, predictor, split, anomalies, seed, device, precision, callback
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
    check_run(device, precision)
    deadline_after(time_limit)
    _check_target_error(target_error)
    selectors = {method: SELECTORS.make(method, {}) for method in methods}
    if not selectors:
        raise SettingsError("methods is empty; name at least one")
    source = read(signals, target=target, target_kind=target_kind).anomalies_as_asked(anomalies)
    prepared = prepare(source, split, seed)
    check_stages(selectors, reconstructor, predictor, prepared.signals)
    metric, counts = _check_metric(metric, prepared.signals), _check_ks(ks, prepared.signals)
    blank = Curve((), counts, metric, reconstructor, target_error, prepared.signals.origin)
    rows: list[Row] = []
    with deferred() as pending, progress(callback) as tell:
        run = Run(seed=seed, device=device, precision=precision, callback=tell)
        try:
            for method, selector in selectors.items():
                for row in CurveRunner(method, selector, prepared, blank, predictor, run, time_limit).rows():
                    rows.append(row)
                    _stop_if(pending)
        except KeyboardInterrupt as stop:
            signum = stop.signum if isinstance(stop, Interrupted) else signal.SIGINT
            message = f"stopped; finished points of the curve: {len(rows)}"
            raise CurveInterrupted(message, signum, _filled(blank, rows)) from stop
    return _filled(blank, rows)


def _filled(blank: Curve, rows: Sequence[Row]) -> Curve:
    """Return the curve with its rows sorted by method, in the order given, and K."""
    order = list(dict.fromkeys(row.method for row in rows))
    return replace(blank, rows=sorted(rows, key=lambda row: (order.index(row.method), row.k)))


def _stop_if(pending: Pending) -> None:
    if pending.signum is not None:
        raise Interrupted("stopped", pending.signum)


def _check_target_error(error: float | None) -> None:
    if error is not None and not 0 < error < math.inf:
        raise SettingsError(f"target_error={error!r}: expected a positive number")


def _check_ks(ks: Sequence[int], signals: Samples) -> list[int]:
    """Return the distinct K in ascending order; raise if one is infeasible."""
    counts = sorted({check_k(k, signals) for k in ks})
    if not counts:
        raise InfeasibleError("ks is empty; name at least one number of sites")
    return counts


def _check_metric(metric: str | None, signals: Samples) -> str:
    """Return the given metric, or the default of the samples."""
    known = _metrics_of(signals)
    if metric is not None and metric not in known:
        raise SettingsError(f"metric {metric!r} is unknown; expected one of {', '.join(known)}")
    return metric or known[0]


def _metrics_of(signals: Samples) -> list[str]:
    """Return the names of the metrics of plans on these samples, the default first."""
    names = ["fvu", "rmse", "mse"] + (["fvu_area", "rmse_area"] if signals.grid.area() is not None else [])
    if signals.target is None:
        return names
    own = (
        ["target_error", "target_log_loss"] if signals.target.is_class else ["target_fvu", "target_rmse", "target_mse"]
    )
    return own + names
