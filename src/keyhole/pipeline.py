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
from keyhole.checkpoint import clear_states
from keyhole.checks import check_budget, check_failures, check_reconstructor, check_run, check_stages, deadline_after
from keyhole.constraints import Constraints
from keyhole.errors import KeyholeError, SettingsError, StorageError
from keyhole.memory import told_when_short
from keyhole.plan import Plan
from keyhole.predictors import Predictor, fit_predictor
from keyhole.predictors import nested_errors as nested_target_errors
from keyhole.preparation import Prepared, prepare
from keyhole.processes import is_first
from keyhole.progress import progress
from keyhole.readers import read
from keyhole.readings import range_of
from keyhole.reconstructors import RECONSTRUCTORS, Reconstructor, Ridge, fit_best, nested_errors
from keyhole.run import Event, Run
from keyhole.scaling import Scaling
from keyhole.selectors import SELECTORS, Selection, Selector
from keyhole.selectors.classical import Greedy
from keyhole.selectors.failures import harden
from keyhole.signals import Signals
from keyhole.split import Split
from keyhole.target import TargetKind
from keyhole.uncertainty import calibrate, coverage, spread_of
from keyhole.views import View

__all__ = [
    "SELECTION_SHARE",
    "choose_sites",
    "fit_reconstructor",
    "kept_to",
    "make_plan",
    "own_states",
    "record",
    "run_of",
    "select",
]

# Share of a time limit that the choice of sites may take; the rest is for the reconstructor.
SELECTION_SHARE = 1 / 3


@told_when_short("select", "go through a NetCDF or Zarr field some samples at a time (--memory), or coarsen the grid")
def select(
    signals: Any,
    k: int | None = None,
    *,
    constraints: Constraints | Mapping[str, Any] | None = None,
    weights: Any = None,
    noise: Any = None,
    missing: Literal["error", "model"] = "error",
    failures: int = 0,
    bands: bool = True,
    target: str | None = None,
    target_kind: TargetKind | None = None,
    method: str = "auto",
    reconstructor: str = "auto",
    predictor: str = "auto",
    settings: Mapping[str, Any] | None = None,
    split: Split | None = None,
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
        Where errors count, as `Signals.weighted` takes it: ``"area"``, the default where there is latitude and
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
        signals may also carry one (`Signals.with_target`).
    target_kind
        ``"class"`` or ``"number"``, where the guess from the column's values would be wrong.
    method
        A selector: ``"auto"`` tries several and keeps the best on validation; ``"learned"`` or a law (``"vln"``,
        ``"hnet"``, ...); ``"greedy"``, ``"qr"`` or any other of ``docs/methods.md``.
    reconstructor
        ``"ridge"``, ``"kriging"``, ``"kernel"``, ``"dense"``, ``"detail"``, ``"resnet"``, ``"dcgan"``, ``"residual"``,
        ``"ensemble"``, or ``"auto"``: ridge, kriging or kernel, unless networks on top leave clearly less on
        validation; always ridge where there is a target.
    predictor
        What tells the target: ``"linear"``, ``"network"``, or ``"auto"``: the network, unless the linear one is better
        on validation.
    settings
        Settings of the selector, by name, where its defaults do not fit.
    split
        Which samples train, validate and test; by default that of the data set, else contiguous blocks where samples
        have a time and a random split where they have none.
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
    >>> plan.reconstruct([25.0, 11.0, 28.0, 5.0, 9.0], time="2023-02-01").shape
    (1, 36, 72)
    """
    started = clock.monotonic()
    run = run_of(
        seed=seed, device=device, precision=precision, compiled=compiled, time_limit=time_limit, checkpoint=checkpoint,
        resume=resume, save_every=save_every,
    )  # fmt: skip
    selector = make_selector(method, settings or {})
    source = read(signals, target=target, target_kind=target_kind, missing=missing)
    source = source if constraints is None else source.constrained(constraints)
    source = source if weights is None else source.weighted(weights)
    source = source if noise is None else source.noisy(noise)
    prepared = prepare(source, split, seed, calibrating=bands and source.target is None)
    k = check_budget(k, prepared.signals)
    check_stages({method: selector}, reconstructor, predictor, prepared.signals)
    with own_states(run), progress(callback) as tell:
        run = replace(run, callback=tell)
        selection = choose_sites(selector, prepared, k, run, failures=failures)
        fitted = fit_reconstructor(reconstructor, prepared, selection.sites, run)
        told = fit_target(predictor, prepared, selection.sites, run)
    plan = make_plan(prepared, selection, fitted, selector, run, method=method, predictor=told)
    return replace(plan, made={**plan.made, "seconds": round(clock.monotonic() - started, 2)})


def run_of(
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
def own_states(run: Run) -> Iterator[None]:
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


def make_selector(method: str, settings: Mapping[str, Any]) -> Selector:
    """Give a selector by its name, with settings that it takes."""
    if method not in SELECTORS:
        raise SettingsError(f"method {method!r} is not known; there are {', '.join(SELECTORS)}")
    try:
        return SELECTORS[method](**settings)
    except TypeError as error:
        raise SettingsError(f"method {method!r} does not take {', '.join(settings)} ({error})") from error


def choose_sites(selector: Selector, prepared: Prepared, k: int | None, run: Run, *, failures: int = 0) -> Selection:
    """Let the selector choose, on everything but test; one that decides on validation gets that part apart first.

    Without K, as many are chosen as can be paid for; what greedy can pay for is the guide. Sites that are there already
    come first. With ``failures``, they are exchanged until the loss of so many is missed least.
    """
    run, view = run.share(SELECTION_SHARE), View.of(prepared.train, prepared.validation, prepared.development)
    if k is None:
        k = len(Greedy().select(view.development, 1, validation=None, run=run).sites)
    if selector.decides:
        found = selector.select(view.train, k, validation=view.validation, run=run)
        found = selector.again(found, view.development, run)
    else:
        found = selector.select(view.development, k, validation=None, run=run)
    if failures:
        found = harden(found, view.development, check_failures(failures, len(found.sites)), run)
    if view.train is prepared.train:
        return found
    sites = np.concatenate([prepared.fixed, view.sites(found.sites)])
    return replace(found, sites=sites, rebuild=None, law=None)


def fit_reconstructor(name: str, prepared: Prepared, sites: NDArray[np.int64], run: Run) -> Reconstructor:
    """Fit the reconstructor named, or choose among them on validation."""
    check_reconstructor(name, prepared.signals.grid)
    train, validation = prepared.train, prepared.validation
    if name == "auto" and prepared.signals.target is not None:
        name = "ridge"  # time goes to what was asked for
    if name == "auto":
        return fit_best(train, sites, validation=validation, run=run)
    return RECONSTRUCTORS[name]().fit(train, sites, validation=validation, run=run)


def fit_target(name: str, prepared: Prepared, sites: NDArray[np.int64], run: Run) -> Predictor | None:
    """Fit the predictor named, or the best on validation; None where the signals have no target."""
    if prepared.signals.target is None:
        return None
    return fit_predictor(name, prepared.train, sites, validation=prepared.validation, run=run)


def make_plan(
    prepared: Prepared, selection: Selection, fitted: Reconstructor, selector: Selector, run: Run,
    *, method: str, predictor: Predictor | None = None,
) -> Plan:  # fmt: skip
    """Put the plan together, judge it on validation, fit a closed form on all but test, and judge it there once."""
    signals = prepared.signals
    made = {
        **record(selector, run, method=method, fitted=fitted, notes=selection.notes),
        **_told_by(predictor),
        **kept_to(signals, selection.sites),
        "split": prepared.split.sizes(),
        "data": {"name": signals.origin.name, "fingerprint": signals.fingerprint()},
    }
    history: list[dict[str, Any]] = [{"stage": "select", **row} for row in selection.history]
    history += [{"stage": "refit", **row} for row in (*fitted.history, *fitted.tried)]
    history += [{"stage": "predict", **row} for row in (predictor.history if predictor else [])]
    plan = Plan(
        signals.grid, selection.sites, gains(prepared, selection.sites), prepared.choosing, fitted, signals.origin,
        made, {}, history, predictor, prepared.development.reading_covariance(selection.sites),
        ranges=range_of(signals.sensed(selection.sites)[_seen(prepared.split)]),
    )  # fmt: skip
    held = signals.take(prepared.split.validation)
    validation = score(plan, held, prepared.choosing)
    spread = None if prepared.calibration is None else spread_of(plan, held)
    plan = _fit_on_all_but_test(plan, prepared, run)
    if spread is not None and prepared.calibration is not None:
        plan = replace(plan, bands=calibrate(plan, spread, prepared.calibration))
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


def score(plan: Plan, part: Signals, baseline: Scaling) -> dict[str, float]:
    """Errors of a plan on raw signals; variances are about what ``baseline`` expects, the same for all plans."""
    readings = part.sensed(plan.indices)
    rebuilt = plan.rebuild(readings, part.time, part.context)
    scores = metrics.evaluate(part.values, rebuilt, baseline.expected(part), plan.grid, part.weights)
    if plan.bands is not None:
        scores |= coverage(plan, part, rebuilt)
    if plan.predictor is None or part.target is None:
        return scores
    told = metrics.target_scores(part.target, plan.tell(readings, part.time), plan.predictor.expected)
    return scores | {f"target_{name}": value for name, value in told.items()}


def gains(prepared: Prepared, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Drop of the validation error (fraction of variance, ridge) as each site joins those before it."""
    errors = _nested_errors(prepared, sites)
    return np.asarray(-np.diff(errors) / max(float(errors[0]), 1e-300))


def _nested_errors(prepared: Prepared, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Validation error with the first 0, 1, ... K sites: of the target where there is one, else of the signals."""
    train, validation = prepared.train, prepared.validation
    if prepared.signals.target is not None:
        return nested_target_errors(train, validation, sites)
    strength = Ridge().fit(train, sites, validation=validation, run=Run()).strength
    return nested_errors(train, validation, sites, strength)


def kept_to(signals: Signals, sites: NDArray[np.int64]) -> dict[str, Any]:
    """What a plan's record says of its constraints."""
    constraints = signals.constraints
    if constraints is None:
        return {}
    held = len(constraints.rules.held)
    told: dict[str, Any] = {"asked": constraints.asked.words(), "fixed": held}
    if constraints.rules.costs is not None:
        told |= {"cost": float(constraints.rules.costs[sites[held:]].sum()), "cost_limit": constraints.rules.limit}
    if constraints.grouping is not None:
        told["groups"] = constraints.grouping.units_of(sites).tolist()
    return {"constraints": told}


def _told_by(predictor: Predictor | None) -> dict[str, Any]:
    """What a plan's record says of its target."""
    if predictor is None:
        return {}
    kind = "class" if predictor.is_class else "number"
    return {"predictor": predictor.name, "target": {"name": predictor.target, "kind": kind}}


def _fit_on_all_but_test(plan: Plan, prepared: Prepared, run: Run) -> Plan:
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
