"""From signals to a plan: split, scale, select, refit, evaluate."""

from __future__ import annotations

import contextlib
import platform
import time as clock
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole import metrics
from keyhole.core.errors import KeyholeError, StorageError
from keyhole.core.memory import explain_out_of_memory
from keyhole.core.processes import is_first
from keyhole.core.progress import progress
from keyhole.core.run import Event, Run
from keyhole.data.constraints import Constraints
from keyhole.data.origin import STANDARDISED
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.data.readers import read
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.splits import Split, SplitLike
from keyhole.data.target import TargetKind
from keyhole.models.predictors import Predictor, fit_predictor
from keyhole.models.predictors import nested_errors as nested_target_errors
from keyhole.models.reconstructors import RECONSTRUCTORS, Reconstructor, Ridge, fit_best, nested_errors
from keyhole.placement import SELECTORS, Selection, Selector
from keyhole.placement.classical import Greedy
from keyhole.placement.conditioning import SelectionView
from keyhole.placement.failures import harden_against_failures
from keyhole.plan.plan import Plan
from keyhole.plan.readings import range_of
from keyhole.training.checkpoint import clear_states
from keyhole.workflow.calibration import calibrate, coverage, spread_of
from keyhole.workflow.checks import (
    check_budget,
    check_failures,
    check_reconstructor,
    check_run,
    check_stages,
    deadline_after,
)

__all__ = [
    "SELECTION_SHARE",
    "choose_sites",
    "constraint_metadata",
    "fit_reconstructor",
    "fit_target",
    "make_plan",
    "make_run",
    "managed_checkpoints",
    "record",
    "select",
    "told_in",
]

# Share of a time limit that the choice of sites may take; the rest is for the reconstructor.
SELECTION_SHARE = 1 / 3


@explain_out_of_memory(
    "select", "go through a NetCDF or Zarr field some samples at a time (--memory), or coarsen the grid"
)
def select(
    signals: Any,
    k: int | None = None,
    *,
    constraints: Constraints | Mapping[str, Any] | None = None,
    weights: Any = None,
    noise: Any = None,
    missing: Literal["error", "model"] = "error",
    failures: int = 0,
    intervals: bool = True,
    target: str | None = None,
    target_kind: TargetKind | None = None,
    method: str = "auto",
    reconstructor: str | Reconstructor = "auto",
    predictor: str = "auto",
    settings: Mapping[str, Any] | None = None,
    split: SplitLike = None,
    anomalies: Literal["month", "none"] | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    device: str = "auto",
    precision: str = "auto",
    compiled: bool = False,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    save_every: float = 15.0,
    callback: Callable[[Event], None] | None = None,
) -> Plan:
    """Choose ``k`` sites and fit what rebuilds the whole from them.

    Parameters
    ----------
    signals
        Signals, or anything that `read` takes.
    k
        How many sites; exactly so many distinct observable ones come out. Of groups, how many groups; None where a
        limit of cost stands in its place.
    constraints
        What the sites must keep to (`Constraints`, or its parts by name): regions, distance, cost, groups, and sites
        that are there already, to which ``k`` more are chosen.
    weights
        Where errors count, as `Samples.weighted` takes it: ``"area"``, the default where there is latitude and
        longitude, ``"none"``, an array of the grid's shape, or a region of interest.
    noise
        What sensors add to the truth: a standard deviation in the data's units, one, or by channel or cell. Sites are
        chosen, reconstructors fitted and errors given for readings with that noise.
    missing
        ``"model"``: cells may be NaN in some samples; see `read`.
    failures
        How many sites may fail: the mean error over the loss of so many at random is made least.
    bands
        Whether to hold back a tenth of the samples, the last before the test part, to calibrate bands on
        (``plan.reconstruct(..., interval=0.9)``); not where there is a target.
    target
        Column of a frame or CSV file to tell from the sites, a class or a number, instead of rebuilding all the others;
        signals may also carry one (`Samples.with_target`).
    target_kind
        ``"class"`` or ``"number"``, where the guess from the column's values would be wrong.
    method
        A selector: ``"auto"`` tries several and keeps the best on validation; ``"learned"`` or a law (``"vln"``,
        ``"hnet"``, ...); ``"greedy"``, ``"qr"`` or any other of ``docs/methods.md``.
    reconstructor
        ``"ridge"``, ``"optimal_interpolation"``, ``"kernel"``, ``"dense"``, ``"dense_conv"``, ``"resnet"``,
        ``"dcgan"``, ``"residual"``, ``"ensemble"``, or ``"auto"``: ridge, kriging or kernel, unless networks on top
        leave clearly less on validation; always ridge where there is a target. Or the reconstructor of another plan:
        one of its kind and settings is fitted anew.
    predictor
        What tells the target: ``"linear"``, ``"network"``, or ``"auto"``: the network, unless the linear one is better
        on validation.
    settings
        Settings of the selector, by name, where its defaults do not fit.
    split
        Which samples train, validate and test: ``"blocks"`` of time, ``"random"``, a `Split`, ``(train, test)`` or
        ``(train, validation, test)`` of sample numbers or boolean arrays, or a mapping of these names. By default that
        of the data set, else blocks of time where samples have a time or, without one, look like a series (of tables
        and of samples with a target this is not asked), and a random split elsewhere. The plan's record says which.
    anomalies
        ``"month"``: work on anomalies from the monthly climatology of the training part, which needs dates;
        ``"none"``: on deviations from the mean; None: as the signals say.
    time_limit
        Seconds after which learning stops with what it has.
    seed
        Same seed, machine and thread count: same plan, as long as no time limit cuts in.
    device, precision
        ``"auto"``, ``"cpu"`` or ``"cuda"``; ``"32-true"``, ``"bf16-mixed"``, or ``"auto"``: the latter for networks
        that rebuild, on a device that has instructions for it.
    compiled
        Whether networks are compiled (``torch.compile``) before they are trained: a minute at first, worth it for long
        runs on a GPU.
    checkpoint, resume, save_every
        A folder to keep unfinished training in, whether to go on from what it holds (what it holds is cleared
        otherwise), and how often to save, in seconds. A run that fails for what it was given leaves nothing there:
        going on would fail again.
    callback
        Called with an Event for every step of training; None shows a bar where standard error is a terminal.

    Examples
    --------
    >>> import keyhole as kh
    >>> plan = kh.select(kh.datasets.sst(), k=5, method="qr", reconstructor="ridge")
    >>> plan.reconstruct([25.0, 18.0, 28.0, 8.0, 14.0], time="2023-02-01").shape
    (1, 36, 72)
    """
    started = clock.monotonic()
    run = make_run(
        seed=seed, device=device, precision=precision, compiled=compiled, time_limit=time_limit, checkpoint=checkpoint,
        resume=resume, save_every=save_every,
    )  # fmt: skip
    selector = SELECTORS.make(method, settings or {})
    source = read(signals, target=target, target_kind=target_kind, missing=missing).anomalies_as_asked(anomalies)
    source = source if constraints is None else source.with_constraints(constraints)
    source = source if weights is None else source.with_weights(weights)
    source = source if noise is None else source.with_noise(noise)
    prepared = prepare(source, split, seed, calibrate_intervals=intervals and source.target is None)
    k = check_budget(k, prepared.signals)
    check_stages({method: selector}, reconstructor, predictor, prepared.signals)
    with managed_checkpoints(run), progress(callback) as tell:
        run = replace(run, callback=tell)
        selection = choose_sites(selector, prepared, k, run, failures=failures)
        fitted = fit_reconstructor(reconstructor, prepared, selection.sites, run)
        told = fit_target(predictor, prepared, selection.sites, run)
    plan = make_plan(prepared, selection, fitted, selector, run, method=method, predictor=told)
    treated = {"missing": missing} if missing == "model" else {}
    return replace(plan, metadata={**plan.metadata, **treated, "seconds": round(clock.monotonic() - started, 2)})


def make_run(
    *, seed: int, device: str, precision: str, compiled: bool, time_limit: float | None, checkpoint: str | Path | None,
    resume: bool, save_every: float,
) -> Run:  # fmt: skip
    """Give the circumstances that were asked for, with a time limit that starts now."""
    check_run(device, precision, save_every)
    return Run(
        seed=seed, device=device, precision=precision, compiled=compiled, deadline=deadline_after(time_limit),
        folder=None if checkpoint is None else Path(checkpoint), resume=resume, save_seconds=save_every,
    )  # fmt: skip


@contextlib.contextmanager
def managed_checkpoints(run: Run) -> Iterator[None]:
    """Clear the run's folder before a run that starts anew, and again if it fails for what it was given.

    To go on would fail again then. What is kept where a run is stopped, or where the machine had no room, is good; and
    a run that was to resume clears nothing: it may have been asked for by mistake.
    """
    if run.folder is None or run.resume or not is_first():
        yield
        return
    clear_states(run.folder)
    try:
        yield
    except StorageError:
        raise
    except KeyholeError:
        clear_states(run.folder)
        raise


def choose_sites(
    selector: Selector, prepared: PreparedSamples, k: int | None, run: Run, *, failures: int = 0
) -> Selection:
    """Let the selector choose, on everything but test; one that decides on validation gets that part apart first.

    Without K, as many are chosen as can be paid for; what greedy can pay for is the guide. Sites that are there already
    come first. With ``failures``, they are exchanged until the loss of so many is missed least.
    """
    run, parts = run.share(SELECTION_SHARE), (prepared.train, prepared.validation, prepared.development)
    view = SelectionView.of(*parts, supervised=selector.supervised)
    if k is None:
        k = len(Greedy().select(view.development, 1, validation=None, run=run).sites)
    if selector.requires_validation:
        found = selector.select(view.train, k, validation=view.validation, run=run)
        found = selector.refit(found, view.development, run)
    else:
        found = selector.select(view.development, k, validation=None, run=run)
    if failures:
        found = harden_against_failures(
            found, SelectionView.of(*parts).development, check_failures(failures, len(found.sites)), run
        )
    if view.grouping is None and len(prepared.existing) == 0:
        return found
    sites = np.concatenate([prepared.existing, view.sites(found.sites)])
    return replace(found, sites=sites, reconstruct=None, distribution=None)


def fit_reconstructor(
    name: str | Reconstructor, prepared: PreparedSamples, sites: NDArray[np.int64], run: Run
) -> Reconstructor:
    """Fit the reconstructor named, or one like that given, or choose among them on validation."""
    check_reconstructor(name, prepared.signals.grid)
    train, validation = prepared.train, prepared.validation
    if isinstance(name, Reconstructor):
        return name.anew().fit(train, sites, validation=validation, run=run)
    if name == "auto" and prepared.signals.target is not None:
        name = "ridge"  # time goes to what was asked for
    if name == "auto":
        return fit_best(train, sites, validation=validation, run=run)
    return RECONSTRUCTORS[name]().fit(train, sites, validation=validation, run=run)


def fit_target(name: str, prepared: PreparedSamples, sites: NDArray[np.int64], run: Run) -> Predictor | None:
    """Fit the predictor named, or the best on validation; None where the signals have no target."""
    if prepared.signals.target is None:
        return None
    return fit_predictor(name, prepared.train, sites, validation=prepared.validation, run=run)


def make_plan(
    prepared: PreparedSamples, selection: Selection, fitted: Reconstructor, selector: Selector, run: Run,
    *, method: str, predictor: Predictor | None = None,
) -> Plan:  # fmt: skip
    """Put the plan together, judge it on validation, fit a closed form on all but test, and judge it there once."""
    signals = prepared.signals
    made = {
        **record(selector, run, method=method, fitted=fitted, notes={**prepared.notes, **selection.notes}),
        **_told_by(predictor),
        **constraint_metadata(signals, selection.sites),
        **told_in(signals),
        **({} if signals.gaps is None else {"missing": "model"}),
        "split": prepared.split.sizes(),
        "data": {"name": signals.origin.name, "fingerprint": signals.fingerprint()},
    }
    history: list[dict[str, Any]] = [{"stage": "select", **row} for row in selection.history]
    history += [{"stage": "refit", **row} for row in (*fitted.history, *fitted.tried)]
    history += [{"stage": "predict", **row} for row in (predictor.history if predictor else [])]
    plan = Plan(
        signals.grid, selection.sites, gains(prepared, selection.sites), prepared.choosing, fitted, signals.origin,
        made, {}, history, predictor, prepared.development.reading_covariance(selection.sites),
        ranges=range_of(signals.noisy_readings(selection.sites)[_seen(prepared.split)]),
    )  # fmt: skip
    held = signals.take(prepared.split.validation)
    validation = score(plan, held, prepared.choosing)
    spread = None if prepared.calibration is None else spread_of(plan, held)
    plan = _fit_on_all_but_test(plan, prepared, run)
    if spread is not None and prepared.calibration is not None:
        plan = replace(plan, intervals=calibrate(plan, spread, prepared.calibration))
    return replace(plan, metrics={"validation": validation, "test": score(plan, prepared.test, prepared.scaling)})


def _seen(split: Split) -> NDArray[np.int64]:
    """All samples but those of the test part."""
    return np.concatenate([split.development, split.calibration])


def record(
    selector: Selector, run: Run, *, method: str, fitted: Reconstructor, notes: Mapping[str, Any]
) -> dict[str, Any]:
    """What a plan tells of how it was made, but for the data."""
    return {
        "method": method,
        "settings": selector.settings(),
        "reconstructor": fitted.name,
        "seed": run.seed,
        "notes": dict(notes),
        "versions": _versions(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def score(plan: Plan, part: Samples, baseline: Scaler) -> dict[str, float]:
    """Errors of a plan on raw signals; variances are about what ``baseline`` expects, the same for all plans."""
    readings = part.noisy_readings(plan.indices)
    reconstructed = plan.reconstruct_array(readings, part.time, part.covariates)
    scale = baseline.scale if part.origin.units_differ else None
    scores = metrics.evaluate(
        part.values, reconstructed, baseline.expected(part), plan.grid, part.weights, scale=scale,
        names=tuple(part.origin.variables),
    )  # fmt: skip
    if plan.intervals is not None:
        scores |= coverage(plan, part, reconstructed)
    if plan.predictor is None or part.target is None:
        return scores
    told = metrics.target_scores(part.target, plan.tell(readings, part.time), plan.predictor.expected)
    return scores | {f"target_{name}": value for name, value in told.items()}


def gains(prepared: PreparedSamples, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Drop of the validation error (fraction of variance, ridge) as each site joins those before it."""
    errors = _nested_errors(prepared, sites)
    return np.asarray(-np.diff(errors) / max(float(errors[0]), 1e-300))


def _nested_errors(prepared: PreparedSamples, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Validation error with the first 0, 1, ... K sites: of the target where there is one, else of the signals."""
    train, validation = prepared.train, prepared.validation
    if prepared.signals.target is not None:
        return nested_target_errors(train, validation, sites)
    strength = Ridge().fit(train, sites, validation=validation, run=Run()).strength
    return nested_errors(train, validation, sites, strength)


def constraint_metadata(signals: Samples, sites: NDArray[np.int64]) -> dict[str, Any]:
    """What a plan's record says of its constraints."""
    constraints = signals.constraints
    if constraints is None:
        return {}
    held = len(constraints.rules.held)
    told: dict[str, Any] = {"asked": constraints.asked.words(), "existing": held}
    if constraints.rules.costs is not None:
        told |= {"cost": float(constraints.rules.costs[sites[held:]].sum()), "cost_limit": constraints.rules.limit}
    if constraints.grouping is not None:
        told["groups"] = constraints.grouping.units_of(sites).tolist()
    return {"constraints": told}


def told_in(signals: Samples) -> dict[str, Any]:
    """What a plan's record says of the units of its errors, where they are not those of the data."""
    return {"error_units": STANDARDISED} if signals.origin.units_differ else {}


def _told_by(predictor: Predictor | None) -> dict[str, Any]:
    """What a plan's record says of its target."""
    if predictor is None:
        return {}
    kind = "class" if predictor.is_class else "number"
    return {"predictor": predictor.name, "target": {"name": predictor.target, "kind": kind}}


def _fit_on_all_but_test(plan: Plan, prepared: PreparedSamples, run: Run) -> Plan:
    """Scale and fit a plan that has a closed form once more, now that all choices are made.

    Networks stay as they are, with the scaling that they were trained with.
    """
    reconstructor, predictor = plan.reconstructor, plan.predictor
    if not reconstructor.closed_form or (predictor is not None and not predictor.closed_form):
        return plan
    parts: Any = {"train": prepared.development, "sites": plan.indices, "validation": prepared.validation, "run": run}
    told = None if predictor is None else type(predictor)().fit(**parts)
    return replace(plan, scaling=prepared.scaling, reconstructor=type(reconstructor)().fit(**parts), predictor=told)


def _versions() -> dict[str, Any]:
    import torch

    names = ("keyhole", "torch", "numpy")
    found: dict[str, Any] = {name: version(name) for name in names}
    return found | {"python": platform.python_version(), "threads": torch.get_num_threads()}
