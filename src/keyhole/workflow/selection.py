"""From samples to a plan: split, scale, select sites, fit models, evaluate."""

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

# Fraction of the time limit for site selection; the rest is for fitting the reconstructor.
SELECTION_SHARE = 1 / 3


@explain_out_of_memory("select", "process a NetCDF or Zarr field in chunks of samples (--memory), or coarsen the grid")
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
    """Select ``k`` sites to observe and fit a model that reconstructs the whole field from their readings.

    The samples are split into training, validation and test parts and scaled; a selector ranks ``k`` sites; a
    reconstructor (and a predictor, if there is a target) is fitted to them; and the errors on validation and test are
    recorded in the plan. The test part takes no part in selection, fitting or model choice. Use `compare` to compare
    several selectors, `curve` to find out how many sites are needed, and `extend` or `drop` to modify a plan.

    Parameters
    ----------
    signals
        `Samples`, or anything that `read` takes: an array ``(N, *grid)``, a DataArray or Dataset, a frame, or a path.
    k
        Number of sites; exactly ``k`` distinct observable sites are selected, besides existing ones. With groups, the
        number of groups. None if ``constraints`` has a cost limit, which then determines the number.
    constraints
        Constraints on the sites (`Constraints`, or its fields as a mapping): allowed and forbidden regions, minimum
        distance, costs and cost limit, groups, and existing sites, to which ``k`` are added.
    weights
        Loss weights of the cells, as `Samples.with_weights` takes them: ``"area"`` (cell area, the default on
        latitude-longitude grids), ``"none"``, an array of the grid's shape, or a region of interest.
    noise
        Standard deviation of the measurement noise in the units of the data: a scalar, or one value for each channel or
        cell. Selection, fitting and scoring then use readings with this noise.
    missing
        Treatment of NaN in cells that are not missing in all samples: ``"error"`` refuses them, ``"model"`` fits to the
        values present and scores on them; see `read`.
    failures
        Number of sensors that may fail. If positive, the sites are exchanged to minimise the mean error over random
        failures of that many sensors.
    intervals
        Whether to hold out a tenth of the samples, the last before the test part, to calibrate prediction intervals
        (``plan.reconstruct(..., interval=0.9)``). Ignored if there is a target.
    target
        Column of a frame or CSV file to predict from the sites, a class or a number, instead of reconstructing the
        other columns. `Samples` may also carry a target (`Samples.with_target`).
    target_kind
        ``"class"`` or ``"number"``; by default inferred from the values of the target.
    method
        Selector: ``"auto"`` runs several and keeps the best on validation; ``"greedy"``, ``"qr"``, ``"exchange"``;
        ``"learned"`` or a mask distribution (``"vln"``, ``"hnet"``, ...); or any other name in ``docs/methods.md``.
    reconstructor
        ``"ridge"``, ``"optimal_interpolation"``, ``"kernel"``, ``"dense"``, ``"dense_conv"``, ``"resnet"``,
        ``"dcgan"``, ``"residual"`` or ``"ensemble"``. ``"auto"`` takes the best closed form on validation (ridge,
        optimal interpolation or kernel), or a network if its validation error is clearly smaller; with a target it is
        ridge. A reconstructor object, such as that of another plan, is cloned with its settings and refitted.
    predictor
        Model of the target: ``"linear"``, ``"network"``, or ``"auto"``, the better of both on validation.
    settings
        Settings of the selector by name; the defaults are listed in ``docs/methods.md``.
    split
        Training, validation and test samples: ``"blocks"`` (contiguous in time), ``"random"``, a `Split`,
        ``(train, test)`` or ``(train, validation, test)`` as indices or boolean masks, or a mapping of these names. By
        default the split of the data set if it has one; else blocks for samples that have a time or are autocorrelated
        (not checked for tables and with a target); else random. ``plan.metadata["split"]`` records which.
    anomalies
        ``"month"``: subtract the monthly climatology of the training part (requires dates). ``"none"``: subtract the
        mean. None: as set on the samples.
    time_limit
        Time limit in seconds, after which training stops with the best model so far.
    seed
        Random seed. The same seed, machine and thread count give the same plan unless the time limit is reached.
    device
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    precision
        ``"32-true"``, ``"bf16-mixed"``, or ``"auto"``: mixed precision for reconstruction networks on devices that
        support it.
    compiled
        Whether to compile networks with ``torch.compile``: about a minute at the start, worthwhile for long runs on a
        GPU.
    checkpoint
        Folder for checkpoints of unfinished training; None saves none.
    resume
        Whether to resume from the checkpoints in that folder; otherwise they are deleted at the start. A run that fails
        because of its input deletes its checkpoints, since resuming would fail again.
    save_every
        Seconds between checkpoints.
    callback
        Called with an `Event` at every training step; None shows a progress bar if standard error is a terminal.

    Returns
    -------
    Plan
        Ranked sites, fitted reconstructor (and predictor), metrics and metadata.

    Raises
    ------
    InfeasibleError
        Fewer than ``k`` sites satisfy the constraints.
    SettingsError
        A method, reconstructor, predictor or setting is unknown or does not suit the data.
    DataError
        The data cannot be used, for example because of missing values.

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
        fitted_predictor = fit_target(predictor, prepared, selection.sites, run)
    plan = make_plan(prepared, selection, fitted, selector, run, method=method, predictor=fitted_predictor)
    handling = {"missing": missing} if missing == "model" else {}
    return replace(plan, metadata={**plan.metadata, **handling, "seconds": round(clock.monotonic() - started, 2)})


def make_run(
    *, seed: int, device: str, precision: str, compiled: bool, time_limit: float | None, checkpoint: str | Path | None,
    resume: bool, save_every: float,
) -> Run:  # fmt: skip
    """Return the `Run` of a workflow, whose time limit starts now; parameters as in `select`."""
    check_run(device, precision, save_every)
    return Run(
        seed=seed, device=device, precision=precision, compiled=compiled, deadline=deadline_after(time_limit),
        folder=None if checkpoint is None else Path(checkpoint), resume=resume, save_seconds=save_every,
    )  # fmt: skip


@contextlib.contextmanager
def managed_checkpoints(run: Run) -> Iterator[None]:
    """Delete checkpoints before a new run, and again if the run fails because of its input.

    Resuming would then fail again. Checkpoints of a run that was interrupted, or that ran out of disk space, are kept,
    and a run that resumes deletes nothing.
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
    """Select sites on all samples but the test part.

    Parameters
    ----------
    selector
        A selector that requires validation selects on the training part, is scored on the validation part, and is
        refitted on both; any other selects on both parts together.
    prepared
        The split and scaled samples.
    k
        Number of sites; None under a cost limit, where the number that greedy selection can afford is used.
    run
        Seed, deadline and callback; a third of the remaining time is used here.
    failures
        If positive, exchange sites to minimise the mean error over random failures of that many sensors.

    Returns
    -------
    Selection
        Existing sites first, then the selected ones by rank.
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
    """Fit a reconstructor to sites.

    Parameters
    ----------
    name
        A name in the registry, ``"auto"`` for the best on validation, or an object to clone and refit.
    prepared, sites, run
        The split and scaled samples, flat indices of the sites by rank, and the run.
    """
    check_reconstructor(name, prepared.signals.grid)
    train, validation = prepared.train, prepared.validation
    if isinstance(name, Reconstructor):
        return name.clone().fit(train, sites, validation=validation, run=run)
    if name == "auto" and prepared.signals.target is not None:
        name = "ridge"  # spend the time on the target
    if name == "auto":
        return fit_best(train, sites, validation=validation, run=run)
    return RECONSTRUCTORS[name]().fit(train, sites, validation=validation, run=run)


def fit_target(name: str, prepared: PreparedSamples, sites: NDArray[np.int64], run: Run) -> Predictor | None:
    """Fit the named predictor, or the best on validation (``"auto"``); None if the samples have no target."""
    if prepared.signals.target is None:
        return None
    return fit_predictor(name, prepared.train, sites, validation=prepared.validation, run=run)


def make_plan(
    prepared: PreparedSamples, selection: Selection, fitted: Reconstructor, selector: Selector, run: Run,
    *, method: str, predictor: Predictor | None = None,
) -> Plan:  # fmt: skip
    """Assemble and evaluate a plan.

    The plan is scored on validation; closed forms are then refitted on all samples but the test part, prediction
    intervals are calibrated, and the final plan is scored once on test.

    Parameters
    ----------
    prepared
        The split and scaled samples.
    selection
        The selected sites, with notes and training history.
    fitted, predictor
        The models fitted to these sites.
    selector, method
        The selector and its registry name, for the metadata.
    run
        Seed and deadline.
    """
    signals = prepared.signals
    made = {
        **record(selector, run, method=method, fitted=fitted, notes={**prepared.notes, **selection.notes}),
        **_target_metadata(predictor),
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
    """Return the indices of all samples but those of the test part."""
    return np.concatenate([split.development, split.calibration])


def record(
    selector: Selector, run: Run, *, method: str, fitted: Reconstructor, notes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the metadata of a plan that do not depend on the data: method, settings, seed, versions, date."""
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
    """Compute the errors of a plan on unscaled samples.

    Parameters
    ----------
    plan
        The plan to score.
    part
        Samples in the user's units.
    baseline
        Scaler whose mean or climatology is the reference of the unexplained variance, the same for all plans.

    Returns
    -------
    dict
        Metrics by name; those of the target begin with ``target_``, those of the 90 % prediction interval are
        ``coverage_90`` and ``width_90``.
    """
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
    target_scores = metrics.target_scores(part.target, plan.tell(readings, part.time), plan.predictor.expected)
    return scores | {f"target_{name}": value for name, value in target_scores.items()}


def gains(prepared: PreparedSamples, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the reduction of the validation error (ridge, fraction of variance) by each site given those before."""
    errors = _nested_errors(prepared, sites)
    return np.asarray(-np.diff(errors) / max(float(errors[0]), 1e-300))


def _nested_errors(prepared: PreparedSamples, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the validation error with the first 0, 1, ... K sites, of the target if there is one."""
    train, validation = prepared.train, prepared.validation
    if prepared.signals.target is not None:
        return nested_target_errors(train, validation, sites)
    strength = Ridge().fit(train, sites, validation=validation, run=Run()).strength
    return nested_errors(train, validation, sites, strength)


def constraint_metadata(signals: Samples, sites: NDArray[np.int64]) -> dict[str, Any]:
    """Return the metadata of the constraints: their description, the number of existing sites, costs and groups."""
    constraints = signals.constraints
    if constraints is None:
        return {}
    n_existing = len(constraints.rules.existing)
    found: dict[str, Any] = {"asked": constraints.specification.described(), "existing": n_existing}
    if constraints.rules.costs is not None:
        cost = float(constraints.rules.costs[sites[n_existing:]].sum())
        found |= {"cost": cost, "cost_limit": constraints.rules.limit}
    if constraints.grouping is not None:
        found["groups"] = constraints.grouping.units_of(sites).tolist()
    return {"constraints": found}


def told_in(signals: Samples) -> dict[str, Any]:
    """Return the metadata of the error units, if they are not the units of the data."""
    return {"error_units": STANDARDISED} if signals.origin.units_differ else {}


def _target_metadata(predictor: Predictor | None) -> dict[str, Any]:
    """Return the metadata of the target and its predictor."""
    if predictor is None:
        return {}
    kind = "class" if predictor.is_class else "number"
    return {"predictor": predictor.name, "target": {"name": predictor.target, "kind": kind}}


def _fit_on_all_but_test(plan: Plan, prepared: PreparedSamples, run: Run) -> Plan:
    """Rescale and refit closed forms on all samples but the test part; networks keep their weights and scaling."""
    reconstructor, predictor = plan.reconstructor, plan.predictor
    if not reconstructor.closed_form or (predictor is not None and not predictor.closed_form):
        return plan
    parts: Any = {"train": prepared.development, "sites": plan.indices, "validation": prepared.validation, "run": run}
    refitted = None if predictor is None else predictor.clone().fit(**parts)
    return replace(plan, scaling=prepared.scaling, reconstructor=reconstructor.clone().fit(**parts), predictor=refitted)


def _versions() -> dict[str, Any]:
    import torch

    names = ("keyhole", "torch", "numpy")
    found: dict[str, Any] = {name: version(name) for name in names}
    return found | {"python": platform.python_version(), "threads": torch.get_num_threads()}
