"""From samples to a plan: split, scale, select sites, fit models, evaluate."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.callbacks import CallbackLike
from keyhole.core.errors import SettingsError
from keyhole.core.memory import explain_out_of_memory
from keyhole.core.progress import reporting
from keyhole.core.run import Run
from keyhole.data.climatology import Anomalies
from keyhole.data.constraints import Constraints
from keyhole.data.origin import STANDARDISED
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.data.readers import read
from keyhole.data.splits import SplitLike
from keyhole.data.target import TargetKind
from keyhole.models.predictors import Predictor, fit_predictor
from keyhole.models.reconstructors import RECONSTRUCTORS, Reconstructor, Ridge, fit_best
from keyhole.models.reconstructors.module import ReconstructorLike
from keyhole.placement import Selection, Selector
from keyhole.placement.classical import Greedy
from keyhole.placement.conditioning import SelectionView
from keyhole.placement.failures import harden_against_failures
from keyhole.placement.stability import stability
from keyhole.plan.fitted import FittedModels, range_of
from keyhole.plan.plan import Plan
from keyhole.workflow.arguments import (
    Parts,
    check_budget,
    check_failures,
    check_reconstructor,
    make_model,
    make_parts,
    make_run,
    managed_checkpoints,
)
from keyhole.workflow.calibration import interval_warnings
from keyhole.workflow.cross_fitting import calibrated
from keyhole.workflow.noise_errors import errors_with_noise
from keyhole.workflow.plan_metadata import (
    constraint_metadata,
    noise_metadata,
    run_metadata,
    split_metadata,
    stopped_metadata,
    target_metadata,
    training_history,
)
from keyhole.workflow.refitting import Seconds, refit_models, refit_on_all, select_again
from keyhole.workflow.scoring import gains, scores_of

__all__ = ["SELECTION_SHARE", "choose_sites", "count_in", "fit_plan", "fit_reconstructor", "make_plan", "select"]

# Fraction of the time limit for site selection; the rest is for fitting the reconstructor.
SELECTION_SHARE = 1 / 3
# Fraction of that rest for the fit that is measured, if it is repeated on all samples.
FIT_SHARE = 0.5


@explain_out_of_memory("select", "allow less (memory=, --memory), so that a field stays in its file, or coarsen it")
def select(
    data: Any,
    k: int | None = None,
    *,
    constraints: Constraints | Mapping[str, Any] | None = None,
    weights: Any = None,
    noise: Any = None,
    sensors: Any = None,
    missing: Literal["error", "model"] = "error",
    failures: int = 0,
    intervals: bool = True,
    target: str | None = None,
    target_kind: TargetKind | None = None,
    groups: Any = None,
    method: str | Selector = "auto",
    reconstructor: ReconstructorLike = "auto",
    predictor: str | Predictor = "auto",
    settings: Mapping[str, Any] | None = None,
    split: SplitLike = None,
    anomalies: Anomalies = "auto",
    refit: bool | None = None,
    time_limit: float | None = None,
    memory: str | int | None = None,
    seed: int = 0,
    device: str = "auto",
    precision: str = "auto",
    compiled: bool = False,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    save_every: float = 15.0,
    callbacks: Sequence[CallbackLike] = (),
) -> Plan:
    """Select ``k`` sites to observe and fit a model that reconstructs the whole field from their readings.

    The samples are split into training, validation and test parts and scaled; a selector ranks ``k`` sites; a
    reconstructor (and a predictor, if there is a target) is fitted to them; and the errors on validation and test are
    recorded in the plan. The test part takes no part in selection, fitting or model choice. When all is measured, the
    chosen method selects and fits once more, on all samples (``refit``). Use `compare` to compare several selectors,
    `curve` to find out how many sites are needed, and `extend` or `drop` to modify a plan.

    Parameters
    ----------
    data
        `Samples`, or anything that `read` takes: an array ``(N, ...)``, a DataArray or Dataset, a frame, or a path.
    k
        Number of sites; exactly ``k`` distinct observable sites are selected, besides existing ones. With groups, the
        number of groups. None if ``constraints`` has a cost limit, which then determines the number; with both, ``k``
        sites are selected that cost no more than the limit.
    constraints
        Constraints on the sites (`Constraints`, or its fields as a mapping): allowed and forbidden regions, minimum
        distance, costs and cost limit, groups, and existing sites, to which ``k`` are added.
    weights
        Loss weights of the sites, as `Samples.with_weights` takes them: ``"area"`` (the default where the areas of the
        sites are known), ``"variance"`` (the default of tables, whose columns then count alike), ``"none"``, an array
        of the shape of the data, or a region of interest.
    noise
        Standard deviation of the measurement noise in the units of the data: a scalar, or one value for each channel or
        site. Selection, fitting and scoring then use readings with this noise. None: readings are free of noise, and
        the closed-form searches assume 1 % of each channel's spread (``plan.metadata["assumed_noise"]``), unless the
        data are a table, so that no site is selected where nothing moves. 0: perfect sensors.
    sensors
        Sensors to select among, where they are not simply one at each site: positions between cells, kinds of
        instruments with a noise and a cost, weighted means (`keyhole.data.Sensors`; several, or a mapping of them by
        kind; a table of positions or its CSV file). ``k`` then counts sensors.
    missing
        Treatment of NaN at sites that are not missing in all samples: ``"error"`` refuses them, ``"model"`` fits to the
        values present and scores on them; see `read`.
    failures
        Number of sensors that may fail. If positive, the sites are exchanged to minimise the mean error over random
        failures of that many sensors.
    intervals
        Whether to calibrate prediction intervals (``plan.reconstruct(..., interval=0.9)``, ``plan.interval``): closed
        forms by cross-fitting, networks and fields that stay in their file on held-out samples. Ignored if there is a
        target.
    target
        Column of a frame or CSV file to predict from the sites, a class or a number, instead of reconstructing the
        other columns. `Samples` may also carry a target (`Samples.with_target`).
    target_kind
        ``"class"`` or ``"number"``; by default inferred from the values of the target.
    groups
        Which samples belong together, such as those of one subject, station or member of an ensemble: a column of a
        table (then no site), a coordinate along the samples (``"member"``), or labels; see `Samples.with_groups`. A
        group is in one part of the split alone, so that errors are those of a new group.
    method
        Selector: ``"auto"`` runs several and keeps the simplest within one standard error of the best on validation;
        ``"greedy"``, ``"qr"``, ``"exchange"``; ``"learned"`` or a mask distribution (``"vln"``, ``"hnet"``, ...); any
        other name in ``docs/methods.md``; or a selector object, such as ``Greedy(n_components=300)``.
    reconstructor
        ``"ridge"``, ``"optimal_interpolation"``, ``"kernel"``, ``"dense"``, ``"dense_conv"``, ``"resnet"``,
        ``"dcgan"``, ``"residual"`` or ``"ensemble"``. ``"auto"`` takes the best closed form on validation (ridge,
        optimal interpolation or kernel), or a network if its validation error is smaller by more than one standard
        error; with a target it is ridge. A reconstructor object, such as ``Dense(width=512)`` or that of another plan,
        is cloned with its settings and fitted. A ``torch.nn.Module`` of your own, or its class, maps the readings to
        the field (`ModuleReconstructor`, ``docs/modules.md``).
    predictor
        Model of the target: ``"linear"``, ``"network"``, ``"auto"``, the better of both on validation; or an object.
    settings
        Settings of the parts that are named: of the selector by their names, of the models with a prefix, such as
        ``{"n_components": 300, "reconstructor.width": 512, "predictor.width": 64}``. The defaults are listed in
        ``docs/methods.md``.
    split
        Training, validation and test samples: ``"blocks"`` (contiguous in time, with gaps of the decorrelation time),
        ``"random"``, ``"groups"``, a `Split`, ``(train, test)`` or ``(train, validation, test)`` as indices or boolean
        masks, or a mapping of these names. By default the split of the data set if it has one; else by groups if there
        are any; else blocks for samples that have a time or are autocorrelated (not checked for tables and with a
        target); else random. ``plan.metadata["split"]`` records which, how many samples were left out in gaps, and a
        warning where samples of a series are not split in blocks.
    anomalies
        What is subtracted from the samples, since the calendar knows it without sensors: ``"none"`` (the mean),
        ``"month"`` (the mean of each month) or ``"harmonics"`` (of the year and of the day), fitted to the training
        part. ``"auto"``: as set on the samples (`Samples.anomalies`); where nothing is set and samples have dates, the
        one that best predicts training samples that are left out. ``plan.metadata["anomalies"]`` records which.
    refit
        Whether the plan is selected and fitted once more on all samples, after its errors were measured on the test
        part: later data are usually closest to the latest samples. Closed forms are repeated; networks are trained for
        the number of steps that was best on validation; masks keep their sites. ``plan.measured`` is the plan whose
        errors ``plan.metrics`` holds, and ``plan.metadata["refit"]`` says what was repeated. None: yes, unless the data
        stay in their file (``memory``), where it takes further passes. Compare methods with ``refit=False``.
    time_limit
        Time limit in seconds, after which training stops with the best model so far.
    memory
        Bytes that work on the data may take, beside the program's own, such as ``"2GiB"``; None: half of what is free.
        A NetCDF or Zarr field or a dask-backed DataArray that takes more than a third of it is not loaded: it is gone
        through a few samples at a time, by the linear methods (``docs/scaling.md``), on dask workers where there is a
        client. ``plan.metadata["memory"]`` then records the limit.
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
    callbacks
        Called while masks and networks are trained: functions of the `Event` of each step, or objects with methods for
        start, epochs and end (`keyhole.training.Callback`), such as `keyhole.training.CSVLogger`. One that returns True
        ends that training, as ``plan.metadata["stopped"]`` then says.

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
    >>> plan.reconstruct(kh.datasets.sst().readings(plan.indices)[-1, :, 0], time="2023-02-01").shape
    (1, 36, 72)
    """
    started = clock.monotonic()
    run = make_run(
        seed=seed, device=device, precision=precision, compiled=compiled, time_limit=time_limit, checkpoint=checkpoint,
        resume=resume, save_every=save_every,
    )  # fmt: skip
    parts = make_parts(method, reconstructor, predictor, settings)
    samples = read(data, target=target, target_kind=target_kind, groups=groups, missing=missing, memory=memory)
    samples = samples.anomalies_as_asked(anomalies)
    samples = samples if sensors is None else samples.with_sensors(sensors)
    samples = samples if constraints is None else samples.with_constraints(constraints)
    samples = samples if weights is None else samples.with_weights(weights)
    samples = samples if noise is None else samples.with_noise(noise)
    parts.check_early(samples)
    if samples.memory is not None:
        check_budget(k, samples)
    if failures and samples.memory is not None:
        raise SettingsError("failures: the exchange for failing sensors needs the data in memory; allow more (memory=)")
    with reporting(callbacks) as report:
        prepared = prepare(samples, split, seed)
        k = check_budget(k, prepared.samples)
        parts.check(prepared.samples, k)
        run = replace(run, callback=report)
        with managed_checkpoints(run):
            if refit is None:
                refit = prepared.samples.memory is None
            plan = _select_and_fit(
                prepared, parts, k, run, failures=failures, missing=missing, refit=refit, intervals=intervals
            )
            return replace(plan, metadata={**plan.metadata, "seconds": round(clock.monotonic() - started, 2)})


def _select_and_fit(
    prepared: PreparedSamples, parts: Parts, k: int | None, run: Run,
    *, failures: int, missing: str, refit: bool, intervals: bool,
) -> Plan:  # fmt: skip
    """Select sites and fit a plan to them; then, with ``refit``, both once more on all samples."""
    begun = clock.monotonic()
    selection = choose_sites(parts.selector, prepared, k, run, failures=failures)
    found = clock.monotonic()
    to_fit = run.share(FIT_SHARE) if refit else run
    measured = fit_plan(prepared, selection, parts, to_fit, missing=missing, intervals=intervals)
    if not refit:
        return measured
    took = Seconds(found - begun, clock.monotonic() - found)
    again = partial(select_again, found=selection, selector=parts.selector, k=k, run=run, failures=failures)
    return refit_on_all(measured, prepared, run, took=took, select=again)


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
    run = run.share(SELECTION_SHARE)
    samples = tuple(part.with_count(k) for part in (prepared.train, prepared.validation, prepared.development))
    view = SelectionView.of(*samples, supervised=selector.supervised)
    k = count_in(view, k, run)
    if selector.requires_validation:
        found = selector.select(view.train, k, validation=view.validation, run=run)
        found = selector.refit(found, view.development, run)
    else:
        found = selector.select(view.development, k, validation=None, run=run)
    if failures:
        found = harden_against_failures(
            found, SelectionView.of(*samples).development, check_failures(failures, len(found.sites)), run
        )
    if view.grouping is None and len(prepared.existing) == 0:
        return found
    sites = np.concatenate([prepared.existing, view.sites(found.sites)])
    return replace(found, sites=sites, reconstruct=None, distribution=None)


def count_in(view: SelectionView, k: int | None, run: Run) -> int:
    """Return the number of sites to select: ``k``, or under a cost limit alone as many as greedy selection affords."""
    return len(Greedy().select(view.development, 1, validation=None, run=run).sites) if k is None else k


def fit_plan(
    prepared: PreparedSamples, selection: Selection, parts: Parts, run: Run,
    *, missing: str = "error", intervals: bool = False,
) -> Plan:  # fmt: skip
    """Fit the models to selected sites, evaluate them and return the plan.

    Parameters
    ----------
    prepared
        The split and scaled samples.
    selection
        The selected sites, with notes and training history.
    parts
        The selector that was used, and the models to fit.
    run
        Seed and deadline.
    missing
        Treatment of missing values, for the record.
    intervals
        Whether to calibrate prediction intervals.

    Returns
    -------
    Plan
        Closed forms fitted to all samples but the test part.
    """
    fitted = fit_reconstructor(parts.reconstructor, prepared, selection.sites, run)
    predictor = fit_target(parts.predictor, prepared, selection.sites, run)
    return make_plan(
        prepared, selection, fitted, parts.selector, run, method=parts.method, predictor=predictor,
        recorded={} if missing == "error" else {"missing": missing}, intervals=intervals,
    )  # fmt: skip


def fit_reconstructor(
    given: ReconstructorLike | None, prepared: PreparedSamples, sites: NDArray[np.int64], run: Run
) -> Reconstructor:
    """Fit a reconstructor to sites.

    Parameters
    ----------
    given
        A name in the registry, or an object to clone; ``"auto"`` or None for the best on validation, or for ridge if
        there is a target, so that the time is spent on that.
    prepared, sites, run
        The split and scaled samples, numbers of the sites by rank, and the run.
    """
    reconstructor: Reconstructor | None = make_model(RECONSTRUCTORS, Reconstructor, given, {})
    check_reconstructor(reconstructor, prepared.samples.sites)
    train, validation = prepared.train, prepared.validation
    if reconstructor is None and prepared.samples.target is None:
        return fit_best(train, sites, validation=validation, run=run)
    reconstructor = Ridge() if reconstructor is None else reconstructor.clone()
    return reconstructor.fit(train, sites, validation=validation, run=run)


def fit_target(
    predictor: Predictor | None, prepared: PreparedSamples, sites: NDArray[np.int64], run: Run
) -> Predictor | None:
    """Fit the predictor, or the best on validation if it is None; return None if the samples have no target."""
    if prepared.samples.target is None:
        return None
    train, validation = prepared.train, prepared.validation
    if predictor is None:
        return fit_predictor(train, sites, validation=validation, run=run)
    return predictor.clone().fit(train, sites, validation=validation, run=run)


def make_plan(
    prepared: PreparedSamples, selection: Selection, fitted: Reconstructor, selector: Selector, run: Run,
    *, method: str, predictor: Predictor | None = None, recorded: Mapping[str, Any] | None = None,
    intervals: bool = False,
) -> Plan:  # fmt: skip
    """Evaluate fitted models and assemble the plan.

    The models are scored on validation; closed forms are then scaled and fitted to all samples but the test part,
    prediction intervals are calibrated, and the final models are scored once on test.

    Parameters
    ----------
    prepared
        The split and scaled samples.
    selection
        The selected sites, with notes and training history.
    fitted, predictor
        The models fitted to these sites on the training part.
    selector, method
        The selector and its name, for the record.
    run
        Seed and deadline.
    recorded
        Further metadata, which take precedence.
    intervals
        Whether to calibrate prediction intervals; ignored if there is a target.
    """
    samples, sites, split = prepared.samples, selection.sites, prepared.split
    on_train = FittedModels(
        domain=samples.sites, indices=samples.positions(sites), scaling=prepared.choosing, reconstructor=fitted,
        origin=samples.origin, predictor=predictor, covariance=prepared.development.reading_covariance(sites),
        sensors=None if samples.sensors is None else samples.sensors.take(sites).resolved(samples.noise),
    )  # fmt: skip
    final = _refitted(on_train, prepared, run)
    if intervals and samples.target is None:
        final = replace(final, intervals=calibrated(on_train, final, prepared, run))
    scores = scores_of(prepared, {"validation": on_train, **({"test": final} if len(split.test) else {})})
    if "test" in scores and predictor is None:
        unit, error = prepared.development.reading_spread(sites), scores["test"].metrics["rmse"]
        scores["test"].metrics.update(errors_with_noise(final, samples.take(split.test), unit, error))
    history = training_history(selection, fitted, predictor)
    metadata = {
        **run_metadata(selector, run, method=method, fitted=fitted, notes={**prepared.notes, **selection.notes}),
        **target_metadata(predictor),
        **constraint_metadata(samples, sites),
        "anomalies": {"kind": samples.climatology.kind, "reason": prepared.anomalies_reason},
        **noise_metadata(prepared, selector, selection),
        **({"error_units": STANDARDISED} if samples.origin.units_differ else {}),
        **({} if samples.missing is None else {"missing": "model"}),
        **({} if samples.memory is None else {"memory": samples.memory}),
        **stopped_metadata(history),
        "split": split_metadata(prepared),
        "data": {"name": samples.origin.name, "fingerprint": samples.fingerprint()},
        **(recorded or {}),
    }
    warned = interval_warnings({name: one.metrics for name, one in scores.items()})
    metadata |= {"warnings": warned} if warned else {}
    return Plan(
        **final.parts(),
        gain=gains(prepared, sites),
        metadata=metadata,
        metrics={name: one.metrics for name, one in scores.items()},
        sample_errors={name: one.ratios for name, one in scores.items()},
        history=history,
        stability=stability(prepared.development, sites),
        ranges=range_of(final.readings_of(samples.take(split.development))),
    )


def _refitted(models: FittedModels, prepared: PreparedSamples, run: Run) -> FittedModels:
    """Rescale and refit closed forms on all samples but the test part; networks keep their weights and scaling."""
    reconstructor, predictor = models.reconstructor, models.predictor
    if not reconstructor.closed_form or (predictor is not None and not predictor.closed_form):
        return models
    return refit_models(models, prepared, models.candidates_in(prepared.samples), run)
