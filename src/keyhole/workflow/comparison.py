"""Compare selectors on the same data: same K, same split, same reconstructor."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.progress import progress
from keyhole.core.run import Event, Run
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.data.readers import read
from keyhole.data.splits import SplitLike
from keyhole.data.target import TargetKind
from keyhole.models.predictors import Predictor
from keyhole.models.reconstructors import Reconstructor, Ridge, nested_errors
from keyhole.plan.plan import Plan
from keyhole.workflow.arguments import Methods, check_budget, deadline_after, make_all_parts, make_run
from keyhole.workflow.selection import choose_sites, fit_plan

__all__ = ["Comparison", "Entry", "compare", "single"]


@dataclass(frozen=True, eq=False)
class Entry:
    """One method of a comparison.

    Parameters
    ----------
    method
        Name of the selector, or its label.
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

    Examples
    --------
    >>> import keyhole as kh
    >>> kh.compare(kh.datasets.sst(), 5, ["random", "greedy"]).choice.method
    'greedy'
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
                **{
                    f"validation_{name}": value
                    for name, value in entry.plan.metrics["validation"].items()
                    if name == "fvu" or name.startswith("target_")
                },
                "seconds": round(entry.seconds, 2),
            }
            for entry in self.entries
        ]


def compare(
    data: Any,
    k: int | None,
    methods: Methods,
    *,
    target: str | None = None,
    target_kind: TargetKind | None = None,
    reconstructor: str | Reconstructor = "ridge",
    predictor: str | Predictor = "auto",
    settings: Mapping[str, Any] | None = None,
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
    data
        `Samples`, or anything that `read` takes.
    k
        Number of sites; None under a cost limit.
    methods
        Selectors: names (``docs/methods.md``), which have their default settings, or objects; or a mapping of labels to
        names or objects, such as ``{"few": Greedy(n_components=50), "many": Greedy(n_components=300)}``.
    reconstructor
        Reconstructor fitted to the sites of every method, by name or object.
    settings
        Settings of the models that are named, such as ``{"reconstructor.width": 512}``.
    time_limit
        Time limit in seconds for each method.
    intervals
        Whether to calibrate the prediction intervals of each plan.
    target, target_kind, predictor, split, anomalies, seed, device, callback
        As in `select`.

    Returns
    -------
    Comparison
        One entry for each method, the smallest test error first; ``choice`` is the best on validation.

    Examples
    --------
    >>> import keyhole as kh
    >>> found = kh.compare(kh.datasets.sst(), 5, ["greedy", "random"])
    >>> [entry.method for entry in found.entries]
    ['greedy', 'random']
    """
    run = make_run(seed=seed, device=device, time_limit=time_limit)
    each = make_all_parts(methods, reconstructor, predictor, settings)
    samples = read(data, target=target, target_kind=target_kind).anomalies_as_asked(anomalies)
    prepared = prepare(samples, split, seed)
    k = check_budget(k, prepared.samples)
    for parts in each.values():
        parts.check(prepared.samples)
    entries = []
    with progress(callback) as report:
        for label, parts in each.items():
            run = replace(run, deadline=deadline_after(time_limit), callback=report)
            started = time.monotonic()
            selection = choose_sites(parts.selector, prepared, k, run)
            seconds = time.monotonic() - started
            plan = fit_plan(prepared, selection, parts, run, intervals=intervals)
            entries.append(Entry(label, plan, _errors_by_k(plan, prepared), seconds))
    return Comparison(prepared, sorted(entries, key=lambda entry: _ranking_key(entry.plan.metrics["test"])))


def single(plan: Plan, prepared: PreparedSamples) -> Comparison:
    """Return a comparison of one plan, for its report."""
    seconds = float(plan.metadata.get("seconds", 0.0))
    return Comparison(prepared, [Entry(plan.metadata["method"], plan, _errors_by_k(plan, prepared), seconds)])


def _ranking_key(scores: Mapping[str, float]) -> tuple[float, ...]:
    """Return the key that plans are ranked by: the error of the target, then its log loss; else the MSE."""
    names = ("target_error", "target_log_loss", "target_mse")
    return tuple(scores[name] for name in names if name in scores) or (scores["mse"],)


def _errors_by_k(plan: Plan, prepared: PreparedSamples) -> NDArray[np.float64]:
    """Return the test RMSE of ridge with the first 0, 1, ... K sites of a plan."""
    development = replace(prepared.development, weights=None, root=None, site_variance=None)
    test = prepared.scaling.apply(prepared.test).impute(prepared.development.imputer)
    test, sites = replace(test, weights=None, root=None), plan.candidates_in(prepared.samples)
    ridge = Ridge().fit(prepared.development, sites, validation=prepared.validation, run=Run())
    scale = None if prepared.samples.origin.units_differ else prepared.scaling.scale
    errors = nested_errors(development, test, sites, ridge.strength, scale)
    return np.asarray(np.sqrt(np.maximum(errors, 0) / test.values.size))
