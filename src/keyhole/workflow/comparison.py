"""Compare selectors on the same data: same K, same split, same reconstructor."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
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
from keyhole.metrics import Ratio, choose, difference_error
from keyhole.models.predictors import Predictor
from keyhole.models.reconstructors import Ridge, nested_errors
from keyhole.models.reconstructors.module import ReconstructorLike
from keyhole.placement import SELECTORS
from keyhole.placement.conditioning import SelectionView
from keyhole.placement.scorer import Scorer
from keyhole.plan.plan import Plan
from keyhole.workflow.arguments import Methods, Parts, check_budget, deadline_after, make_all_parts, make_run
from keyhole.workflow.selection import choose_sites, count_in, fit_plan

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
    in_turn
        Error of methods, by name, with blocks of the training and validation samples left out in turn; empty where they
        are not compared by it.

    Examples
    --------
    >>> import keyhole as kh
    >>> kh.compare(kh.datasets.sst(), 5, ["random", "greedy"]).choice.method
    'greedy'
    """

    prepared: PreparedSamples
    entries: Sequence[Entry]
    in_turn: Mapping[str, Ratio] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return a table of the methods and their errors, as `keyhole compare` prints it."""
        from keyhole.report.tables import as_text, comparison_table

        return as_text(comparison_table(self))

    @cached_property
    def choice(self) -> Entry:
        """The simplest method within one standard error of the best, by the rule of ``auto`` (`metrics.choose`).

        With 30 to 600 samples, closed forms are compared by errors with blocks left out in turn, as one block of a few
        years is one spell of weather; all others, and the best of these, on the validation part. The test part must not
        take part in model choice. Methods are from simple to elaborate as `SELECTORS` lists them.
        """
        errors = [self._error(entry, "validation") for entry in self.entries]
        scored = {at: self.in_turn[one.method] for at, one in enumerate(self.entries) if one.method in self.in_turn}
        order = list(SELECTORS)
        names = [entry.plan.metadata.get("method") for entry in self.entries]
        ranks = [order.index(name) if name in order else len(order) for name in names]
        return self.entries[choose(errors, scored, is_series=self._is_series, simplicity=ranks)]

    @property
    def chosen_by(self) -> str:
        """What `choice` goes by, in words; empty where there is but one method."""
        if len(self.entries) < 2:
            return ""
        if not self.in_turn:
            return "the validation part"
        if len(self.in_turn) == len(self.entries):
            return "blocks left out in turn"
        return f"blocks left out in turn ({', '.join(self.in_turn)}), then the validation part"

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
        ``chosen`` marks the `choice`, which is made by ``chosen_by``; ``in_turn_fvu`` is the unexplained variance with
        blocks left out in turn. Where errors on later samples are larger, ``warning`` says why.
        """
        warning, choice, by = self.prepared.split.warning, self.choice, self.chosen_by
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
                **({"in_turn_fvu": self.in_turn[entry.method].value} if entry.method in self.in_turn else {}),
                **({"chosen": entry is choice, "chosen_by": by} if by else {}),
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
        Time limit in seconds for each method, and for what the choice takes beside.
    intervals
        Whether to calibrate the prediction intervals of each plan.
    target, target_kind, groups, predictor, split, anomalies, seed, device, memory,
    callbacks
        As in `select`.

    Returns
    -------
    Comparison
        One entry for each method, the smallest test error first; ``choice`` is the simplest method within one standard
        error of the best, on validation or with blocks of few samples left out in turn (`Comparison.choice`).

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
        in_turn = _errors_in_turn(prepared, each, k, replace(run, deadline=deadline_after(time_limit)))
    return Comparison(prepared, sorted(entries, key=lambda entry: _ranking_key(entry.plan.metrics["test"])), in_turn)


def _errors_in_turn(prepared: PreparedSamples, each: Mapping[str, Parts], k: int | None, run: Run) -> dict[str, Ratio]:
    """Errors of the quick methods with blocks of few samples left out in turn, by their common reconstructor.

    Empty where ``auto`` has none (many samples, a target), where fewer than two methods are quick, or where the
    reconstructor is a network, which takes too long to be trained five times for each.
    """
    quick = {label: found for label, parts in each.items() if (found := parts.selector.in_turn()) is not None}
    reconstructor = next(iter(each.values())).reconstructor
    is_closed = reconstructor is None or reconstructor.closed_form
    if len(quick) < 2 or not is_closed or prepared.samples.target is not None:
        return {}
    parts = (part.with_count(k) for part in (prepared.train, prepared.validation, prepared.development))
    view = SelectionView.of(*parts)
    if view.grouping is not None:
        reconstructor = None  # groups are single sites here, which only the linear ones take for any data
    scorer = Scorer(view.train, view.validation, run)
    errors = scorer.in_turn(list(quick.values()), count_in(view, k, run), run, reconstructor)
    return {} if errors is None else dict(zip(quick, errors, strict=True))


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
