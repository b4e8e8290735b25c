"""Compare selectors on the same data: same K, same split, same reconstructor."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyhole.core.callbacks import CallbackLike
from keyhole.core.progress import reporting
from keyhole.core.run import Run
from keyhole.data.climatology import Anomalies
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.data.readers import read
from keyhole.data.splits import SplitLike
from keyhole.data.target import TargetKind
from keyhole.metrics import Ratio, difference_error, simplest
from keyhole.models.predictors import Predictor
from keyhole.models.reconstructors import Ridge, nested_errors
from keyhole.models.reconstructors.module import ReconstructorLike
from keyhole.placement import SELECTORS
from keyhole.plan.plan import Plan
from keyhole.workflow.arguments import Methods, check_budget, deadline_after, make_all_parts, make_run
from keyhole.workflow.selection import choose_sites, fit_plan

__all__ = ["Comparison", "Difference", "Entry", "compare", "single"]


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
    final
        The plan to use, where that was fitted once more on all samples after ``plan`` was measured.
    """

    method: str
    plan: Plan
    curve: NDArray[np.float64]
    seconds: float
    final: Plan | None = None


class Difference(NamedTuple):
    """Difference of a method's test error from that of the best method.

    Parameters
    ----------
    metric
        Name of the error: ``"fvu"``; with a target ``"target_error"`` or ``"target_fvu"``.
    value
        The difference, zero for the best.
    standard_error
        Its standard error, from the same resampled blocks of samples for both (paired); NaN where it is not known.
    """

    metric: str
    value: float
    standard_error: float

    @property
    def is_small(self) -> bool:
        """Whether it is no more than one standard error, so that the method is as good as the best."""
        return bool(self.value <= np.nan_to_num(self.standard_error))


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
        """The simplest method within one standard error of the best on validation (`metrics.simplest`).

        The test part must not take part in model choice. Methods are from simple to elaborate as `SELECTORS` lists
        them.
        """
        errors = [self._error(entry, "validation") for entry in self.entries]
        order = list(SELECTORS)
        names = [entry.plan.metadata.get("method") for entry in self.entries]
        ranks = [order.index(name) if name in order else len(order) for name in names]
        return self.entries[simplest(errors, is_series=self._is_series, simplicity=ranks)]

    @property
    def differences(self) -> list[Difference]:
        """Difference of each entry's test error from that of the first, the best."""
        metric, best = self._metric, self._error(self.entries[0], "test")
        errors = [self._error(entry, "test") for entry in self.entries]
        apart = [(one.value - best.value, difference_error(one, best, is_series=self._is_series)) for one in errors]
        return [Difference(metric, *one) for one in apart]

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict for each method: method, k, reconstructor, test and validation metrics, seconds.

        ``difference`` is that of the test error ``difference_of`` from the best, ``difference_se`` its standard error.
        Where errors on later samples are larger, ``warning`` says why.
        """
        warning = self.prepared.split.warning
        return [
            {
                "method": entry.method,
                "k": entry.plan.k,
                "reconstructor": entry.plan.reconstructor.name,
                **{f"test_{name}": value for name, value in entry.plan.metrics["test"].items()},
                **{
                    f"validation_{name}": value
                    for name, value in entry.plan.metrics["validation"].items()
                    if name in ("fvu", "fvu_se") or name.startswith("target_")
                },
                "difference_of": difference.metric,
                "difference": difference.value,
                "difference_se": difference.standard_error,
                "seconds": round(entry.seconds, 2),
                **({"warning": warning} if warning else {}),
            }
            for entry, difference in zip(self.entries, self.differences, strict=True)
        ]

    @property
    def _is_series(self) -> bool:
        samples = self.prepared.samples
        return samples.is_series and samples.sample_groups is None

    @property
    def _metric(self) -> str:
        """The error that methods are compared by."""
        known = self.entries[0].plan.metrics["test"]
        return next(name for name in ("target_error", "target_fvu", "fvu") if name in known)

    def _error(self, entry: Entry, part: str) -> Ratio:
        """Error of an entry on a part, sample by sample; as of a single sample in a plan that was loaded."""
        plan, metric = entry.plan, self._metric
        if part in plan.sample_errors:
            return plan.sample_errors[part][metric]
        return Ratio(np.array([plan.metrics[part][metric]]), np.ones(1))


def compare(
    data: Any,
    k: int | None,
    methods: Methods,
    *,
    target: str | None = None,
    target_kind: TargetKind | None = None,
    groups: Any = None,
    reconstructor: ReconstructorLike = "ridge",
    predictor: str | Predictor = "auto",
    settings: Mapping[str, Any] | None = None,
    split: SplitLike = None,
    anomalies: Anomalies = "auto",
    time_limit: float | None = None,
    seed: int = 0,
    device: str = "auto",
    intervals: bool = False,
    memory: str | int | None = None,
    callbacks: Sequence[CallbackLike] = (),
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
    target, target_kind, groups, predictor, split, anomalies, seed, device, memory,
    callbacks
        As in `select`.

    Returns
    -------
    Comparison
        One entry for each method, the smallest test error first; ``choice`` is the simplest method within one standard
        error of the best on validation.

    Examples
    --------
    >>> import keyhole as kh
    >>> found = kh.compare(kh.datasets.sst(), 5, ["greedy", "random"])
    >>> [entry.method for entry in found.entries]
    ['greedy', 'random']
    """
    run = make_run(seed=seed, device=device, time_limit=time_limit)
    each = make_all_parts(methods, reconstructor, predictor, settings)
    samples = read(data, target=target, target_kind=target_kind, groups=groups, memory=memory)
    samples = samples.anomalies_as_asked(anomalies)
    for parts in each.values():
        parts.check_early(samples)
    entries = []
    with reporting(callbacks) as report:
        prepared = prepare(samples, split, seed)
        k = check_budget(k, prepared.samples)
        for parts in each.values():
            parts.check(prepared.samples, k)
        for label, parts in each.items():
            run = replace(run, deadline=deadline_after(time_limit), callback=report)
            started = time.monotonic()
            selection = choose_sites(parts.selector, prepared, k, run)
            seconds = time.monotonic() - started
            plan = fit_plan(prepared, selection, parts, run, intervals=intervals)
            entries.append(Entry(label, plan, _errors_by_k(plan, prepared), seconds))
    return Comparison(prepared, sorted(entries, key=lambda entry: _ranking_key(entry.plan.metrics["test"])))


def single(plan: Plan, prepared: PreparedSamples) -> Comparison:
    """Return a comparison of one plan, for its report: as it was measured, beside what was fitted to all samples."""
    seconds, measured = float(plan.metadata.get("seconds", 0.0)), plan.measured or plan
    curve = _errors_by_k(measured, prepared)
    return Comparison(prepared, [Entry(plan.metadata["method"], measured, curve, seconds, plan)])


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
