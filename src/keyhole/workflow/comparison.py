"""Compare selectors on the same data: same K, same split, same reconstructor."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.progress import progress
from keyhole.core.run import Event, Run
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.data.readers import read
from keyhole.data.splits import SplitLike
from keyhole.data.target import TargetKind
from keyhole.models.reconstructors import Ridge, nested_errors
from keyhole.placement import SELECTORS, Selector
from keyhole.plan.plan import Plan
from keyhole.workflow.checks import check_budget, check_stages, deadline_after
from keyhole.workflow.selection import choose_sites, fit_reconstructor, fit_target, make_plan

__all__ = ["Comparison", "Entry", "compare", "single"]


@dataclass(frozen=True, eq=False)
class Entry:
    """One method of a comparison.

    Parameters
    ----------
    method
        Name of the selector.
    plan
        Its plan.
    curve
        ``(K + 1,)``, test RMSE of ridge with the first 0, 1, ... K sites, in the units of the plan's errors.
    seconds
        Time that site selection took.
    """

    method: str
    plan: Plan
    curve: NDArray[np.float64]
    seconds: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Result of `compare`.

    Parameters
    ----------
    prepared
        The split and scaled samples that all methods share.
    entries
        One entry for each method, the smallest test error first.
    """

    prepared: PreparedSamples
    entries: Sequence[Entry]

    @property
    def choice(self) -> Entry:
        """The best entry on validation; the test part must not take part in model choice."""
        return min(self.entries, key=lambda entry: _ranking_key(entry.plan.metrics["validation"]))

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict for each method: method, k, reconstructor, test and validation metrics, seconds."""
        return [
            {
                "method": entry.method,
                "k": entry.plan.k,
                "reconstructor": entry.plan.reconstructor.name,
                **{f"test_{name}": value for name, value in entry.plan.metrics["test"].items()},
                **{f"validation_{name}": entry.plan.metrics["validation"][name] for name in _shown_metrics(entry.plan)},
                "seconds": round(entry.seconds, 2),
            }
            for entry in self.entries
        ]


def compare(
    signals: Any,
    k: int | None,
    methods: Sequence[str],
    *,
    target: str | None = None,
    target_kind: TargetKind | None = None,
    reconstructor: str = "ridge",
    predictor: str = "auto",
    split: SplitLike = None,
    anomalies: Literal["month", "none"] | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    device: str = "auto",
    intervals: bool = False,
    callback: Callable[[Event], None] | None = None,
) -> Comparison:
    """Compare selectors at the same ``k`` with the same split and reconstructor.

    With a target, a predictor is fitted as well and the methods are ranked by the error of the target.

    Parameters
    ----------
    signals
        `Samples`, or anything that `read` takes.
    k
        Number of sites; None under a cost limit.
    methods
        Names of selectors (``docs/methods.md``), run with their default settings.
    reconstructor
        Reconstructor fitted to the sites of every method.
    time_limit
        Time limit in seconds for each method.
    intervals
        Whether to hold out samples to calibrate the prediction intervals of each plan.
    target, target_kind, predictor, split, anomalies, seed, device, callback
        As in `select`.

    Returns
    -------
    Comparison
        One entry for each method, the smallest test error first; ``choice`` is the best on validation.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.workflow import compare
    >>> found = compare(kh.datasets.sst(), 5, ["greedy", "random"])
    >>> [entry.method for entry in found.entries]
    ['greedy', 'random']
    """
    selectors = {method: SELECTORS.make(method, {}) for method in methods}
    deadline_after(time_limit)
    source = read(signals, target=target, target_kind=target_kind).anomalies_as_asked(anomalies)
    prepared = prepare(source, split, seed, calibrate_intervals=intervals)
    k = check_budget(k, prepared.signals)
    check_stages(selectors, reconstructor, predictor, prepared.signals)
    with progress(callback) as tell:
        entries = []
        for method, selector in selectors.items():
            run = Run(seed=seed, device=device, deadline=deadline_after(time_limit), callback=tell)
            entries.append(_run_method(method, selector, prepared, k, (reconstructor, predictor), run))
    return Comparison(prepared, sorted(entries, key=lambda entry: _ranking_key(entry.plan.metrics["test"])))


def _ranking_key(scores: Mapping[str, float]) -> tuple[float, ...]:
    """Return the key that plans are ranked by: the error of the target, then its log loss; else the MSE."""
    names = ("target_error", "target_log_loss", "target_mse")
    return tuple(scores[name] for name in names if name in scores) or (scores["mse"],)


def _shown_metrics(plan: Plan) -> list[str]:
    """Return the names of the validation metrics to list: unexplained variance, and those of the target."""
    return ["fvu", *(name for name in plan.metrics["validation"] if name.startswith("target_"))]


def _run_method(
    method: str, selector: Selector, prepared: PreparedSamples, k: int | None, refit: tuple[str, str], run: Run
) -> Entry:
    """Run one method; ``refit`` names the reconstructor and the predictor."""
    started = time.monotonic()
    selection = choose_sites(selector, prepared, k, run)
    seconds = time.monotonic() - started
    fitted = fit_reconstructor(refit[0], prepared, selection.sites, run)
    predictor = fit_target(refit[1], prepared, selection.sites, run)
    plan = make_plan(prepared, selection, fitted, selector, run, method=method, predictor=predictor)
    return _entry(plan, prepared, seconds)


def _entry(plan: Plan, prepared: PreparedSamples, seconds: float) -> Entry:
    """Return the entry of a plan, with its error against the number of sites."""
    return Entry(plan.metadata["method"], plan, _curve(prepared, plan), seconds)


def _curve(prepared: PreparedSamples, plan: Plan) -> NDArray[np.float64]:
    development = prepared.development.unweighted()
    test = prepared.scaling.apply(prepared.test).filled(development.imputer).unweighted()
    ridge = Ridge().fit(prepared.development, plan.indices, validation=prepared.validation, run=Run())
    scale = None if prepared.signals.origin.units_differ else prepared.scaling.scale
    errors = nested_errors(development, test, plan.indices, ridge.strength, scale)
    return np.asarray(np.sqrt(np.maximum(errors, 0) / test.valid_values().size))


def single(plan: Plan, prepared: PreparedSamples) -> Comparison:
    """Return a comparison of one plan, for its report."""
    return Comparison(prepared, [_entry(plan, prepared, float(plan.metadata.get("seconds", 0.0)))])
