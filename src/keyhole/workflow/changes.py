"""Modify an existing network: add the next best sites, drop the least important ones, or fit it to new data."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import InfeasibleError, KeyholeWarning, PlanError, SettingsError
from keyhole.core.progress import reporting
from keyhole.core.run import Run
from keyhole.data.alignment import same_sites
from keyhole.data.constraints import Constraints
from keyhole.data.constraints.site_lookup import sites_given
from keyhole.data.placed_sensors import PlacedSensors
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.data.readers import read
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.splits import SplitLike
from keyhole.models.predictors import eliminate
from keyhole.models.reconstructors.module import ReconstructorLike
from keyhole.placement import SELECTORS, Selection
from keyhole.placement.failures import Network
from keyhole.placement.posterior_covariance import fit_localised_covariance
from keyhole.plan.plan import Plan
from keyhole.workflow.arguments import check_whole, make_run
from keyhole.workflow.refitting import Seconds, refit_on_all
from keyhole.workflow.selection import FIT_SHARE, fit_reconstructor, fit_target, make_plan, select

__all__ = ["drop", "extend", "groups_column", "refit"]


def extend(plan: Plan, data: Any, k: int | None = None, *, constraints: Any = None, **options: Any) -> Plan:
    """Select ``k`` further sites for an existing network and refit.

    Parameters
    ----------
    plan
        Plan of the existing network; its sites are kept and come first in the new plan.
    data
        `Samples` of the sites of the plan, or anything that `read` takes. Target, treatment of missing values and the
        column or coordinate that names groups of samples are those of the plan unless given.
    k
        Number of further sites; None under a cost limit.
    constraints
        Constraints on the new sites, as in `select`.
    options
        Options of `select`; for a plan with sensors of its own, ``sensors`` are those that may be added. Reconstructor
        and predictor are of the plan's kind, with its settings, unless given.

    Returns
    -------
    Plan
        Plan of the extended network; ``sites["existing"]`` marks the sites kept.

    Raises
    ------
    PlanError
        The data have other sites, or lack the plan's target.

    Examples
    --------
    >>> import keyhole as kh
    >>> first = kh.select(kh.datasets.sst(), k=5, method="qr", reconstructor="ridge")
    >>> kh.extend(first, kh.datasets.sst(), k=2, method="qr").sites["existing"].sum()
    np.int64(5)
    """
    reading = {name: options.pop(name, None) for name in ("missing", "target", "target_kind", "groups", "memory")}
    samples = _read_like(plan, data, **reading)
    constraints, sensors = Constraints.of(constraints), options.pop("sensors", None)
    if plan.sensors is None:
        if sensors is not None or samples.sensors is not None:
            raise SettingsError("sensors: those of the plan are at sites; give them as existing= of select instead")
        kept = plan.names if plan.origin.columns else samples.sites.index[_sites_in(plan, samples)].tolist()
        existing = [*kept, *sites_given(constraints.existing)]
    else:
        samples = _with_sensors_of(plan, samples if sensors is None else samples.with_sensors(sensors))
        existing = [*plan.names, *sites_given(constraints.existing)]
    defaults: dict[str, Any] = {"reconstructor": plan.reconstructor, "missing": reading["missing"] or _missing(plan)}
    if plan.predictor is not None:
        defaults["predictor"] = plan.predictor
    return select(samples, k, constraints=replace(constraints, existing=existing), **(defaults | options))


def drop(
    plan: Plan, data: Any, k: int, *, reconstructor: ReconstructorLike | None = None, groups: Any = None,
    missing: Literal["error", "model"] | None = None, seed: int = 0, device: str = "auto",
    time_limit: float | None = None, split: SplitLike = None, memory: str | int | None = None,
    refit: bool | None = None,
) -> Plan:  # fmt: skip
    """Drop the ``k`` least important sites by backward elimination, and refit.

    Each step drops the site whose loss increases the unexplained variance least: of the target if the plan has one
    (linear prediction), else of the field (optimal interpolation). ``metadata["notes"]["dropped"]`` of the new plan
    lists them in this order with the unexplained variance after each step (``fvu``). A column of words is dropped with
    all of its indicators, and counts once.

    Parameters
    ----------
    plan
        Plan of the existing network.
    data
        `Samples` of the sites of the plan, or anything that `read` takes. The target is that of the plan.
    k
        Number of sites to drop (of a table, of columns), less than the plan has.
    reconstructor
        Name or object, as in `select`; by default the plan's kind and settings.
    groups
        Groups of samples, as in `select`; by default the column or coordinate that named those of the plan.
    missing
        Treatment of missing values, as in `read`; by default the plan's.
    seed, device, time_limit, split, memory, refit
        As in `select`.

    Returns
    -------
    Plan
        Plan of the remaining sites, in their former order.

    Raises
    ------
    InfeasibleError
        ``k`` is less than 1, or as large as the number of sites or more.
    PlanError
        The data have other sites, or lack the plan's target.

    Examples
    --------
    >>> import keyhole as kh
    >>> first = kh.select(kh.datasets.sst(), k=5, method="qr", reconstructor="ridge")
    >>> kh.drop(first, kh.datasets.sst(), k=2).k
    3
    """
    count = len(plan.names)
    k = check_whole(k)
    if not 1 <= k < count:
        raise InfeasibleError(f"k={k!r}: between 1 and {count - 1} of the {count} sites can be dropped")
    run = make_run(seed=seed, device=device, time_limit=time_limit)
    with reporting() as report:
        prepared, sites = _prepared(plan, data, missing, groups, split, seed, memory)
        kept, dropped = _eliminate(plan, prepared.development, sites, k)
        selection, run = Selection(kept, notes={"dropped": dropped}), replace(run, callback=report)
        return _fit_again(plan, prepared, selection, run, reconstructor or plan.reconstructor, refit=refit)


def refit(
    plan: Plan, data: Any, *, groups: Any = None, missing: Literal["error", "model"] | None = None, seed: int = 0,
    device: str = "auto",
    time_limit: float | None = None, split: SplitLike = None, memory: str | int | None = None,
    refit: bool | None = None,
) -> Plan:  # fmt: skip
    """Fit the models of a plan to new data, at the same sites; `Plan.refit` calls it.

    Parameters
    ----------
    plan
        The plan; its sites, and kinds and settings of its models are kept.
    data
        `Samples` of the sites of the plan, or anything that `read` takes. The target is that of the plan.
    groups
        Groups of samples, as in `select`; by default the column or coordinate that named those of the plan.
    missing
        Treatment of missing values, as in `read`; by default the plan's.
    seed, device, time_limit, split, memory, refit
        As in `select`.

    Returns
    -------
    Plan
        Its errors are measured on the test part of the new data; the models are then fitted to all of them.

    Raises
    ------
    PlanError
        The data have other sites, or lack the plan's target.

    Examples
    --------
    >>> import keyhole as kh
    >>> field = kh.datasets.sst()
    >>> early = kh.select(field.take(np.arange(240)), k=5, method="qr", reconstructor="ridge")
    >>> later = early.refit(field)
    >>> later.metadata["refit"]["samples"], bool((later.indices == early.indices).all())
    (494, True)
    """
    run = make_run(seed=seed, device=device, time_limit=time_limit)
    with reporting() as report:
        prepared, sites = _prepared(plan, data, missing, groups, split, seed, memory)
        run = replace(run, callback=report)
        return _fit_again(plan, prepared, Selection(sites), run, plan.reconstructor, refit=refit)


def _prepared(
    plan: Plan, data: Any, missing: Any, groups: Any, split: SplitLike, seed: int, memory: str | int | None
) -> tuple[PreparedSamples, NDArray[np.int64]]:  # fmt: skip
    """Read, split and scale samples as those of the plan were; return them, and the numbers of the plan's sites."""
    samples = _read_like(plan, data, missing=missing, groups=groups, memory=memory)
    samples = samples if plan.predictor is not None else samples.with_target(None)
    if plan.sensors is not None:
        samples = samples.with_sensors(None).with_sensors(_on(plan, plan.sensors, samples))
    prepared = prepare(samples, split, seed)
    found = _sites_in(plan, prepared.samples) if plan.sensors is None else plan.candidates_in(prepared.samples)
    return prepared, found


def _fit_again(
    plan: Plan, prepared: PreparedSamples, selection: Selection, run: Run, reconstructor: ReconstructorLike,
    *, refit: bool | None,
) -> Plan:  # fmt: skip
    """Fit models like those of a plan to some of its sites, measure them, and fit them to all samples."""
    started, method = time.monotonic(), str(plan.metadata["method"])
    refit = prepared.samples.memory is None if refit is None else refit
    to_fit = run.share(FIT_SHARE) if refit else run
    fitted = fit_reconstructor(reconstructor, prepared, selection.sites, to_fit)
    predictor = fit_target(plan.predictor, prepared, selection.sites, to_fit)
    # Of a selector of the user's own a plan has the name alone; like random selection it assumes no noise.
    selector = SELECTORS.make(method if method in SELECTORS else "random", {})
    measured = make_plan(
        prepared, selection, fitted, selector, run, method=method, predictor=predictor,
        recorded={"settings": plan.metadata.get("settings", {})}, intervals=True,
    )  # fmt: skip
    took = Seconds(0.0, time.monotonic() - started)
    return refit_on_all(measured, prepared, run, took=took) if refit else measured


def groups_column(plan: Plan) -> str | None:
    """Return the column of the plan's table that names groups of samples, so that it is no site; None without."""
    name = plan.metadata.get("split", {}).get("groups")
    return name if plan.origin.kind == "table" else None


def _missing(plan: Plan) -> str:
    """Return the treatment of missing values in the plan's metadata."""
    return str(plan.metadata.get("missing", "error"))


def _read_like(
    plan: Plan, data: Any, *, missing: Any = None, target: Any = None, target_kind: Any = None, groups: Any = None,
    memory: Any = None,
) -> Samples:  # fmt: skip
    """Read samples as those of the plan were: with its target and groups, treatment of missing values and anomalies."""
    predictor, is_read = plan.predictor, isinstance(data, Samples)
    if is_read and predictor is not None and data.target is None:
        raise PlanError(
            f"the plan predicts {predictor.target!r}, and the samples have no target; set one with "
            "Samples.with_target, or give a table that has the column"
        )
    if predictor is not None and not is_read:
        target, target_kind = target or predictor.target, target_kind or ("class" if predictor.is_class else "number")
    if groups is None and not is_read:
        groups = groups_column(plan)
    missing = "error" if is_read else missing or _missing(plan)
    columns = None if is_read else plan.origin.columns
    samples = read(
        data, target=target, target_kind=target_kind, groups=groups, missing=missing, memory=memory, columns=columns
    )
    there, here = plan.domain, samples.sites
    if not there.auxiliary and (here.shape, here.dims) != (there.shape, there.dims):
        raise PlanError(
            f"the plan is for data along {there.dims} of shape {there.shape}, and these are along {here.dims} of shape "
            f"{here.shape}"
        )
    _sites_in(plan, samples)
    samples = _grouped_like(plan, samples)
    return samples.anomalies(plan.scaling.climatology.kind)


def _grouped_like(plan: Plan, samples: Samples) -> Samples:
    """Group samples by the coordinate that named the groups of the plan's; warn where there is none."""
    split = plan.metadata.get("split") or {}
    name = split.get("groups", "")
    if samples.sample_groups is not None or not (name or split.get("kind") == "groups"):
        return samples
    if name in samples.coordinates or (name == "time" and samples.time is not None):
        return samples.with_groups(name)
    by = f" ({name})" if name else ""
    warnings.warn(
        f"the samples of the plan were split by groups{by}, and these have none: samples of one group may be in "
        "several parts, and errors too small; name the groups (groups=, --group-by)",
        KeyholeWarning,
        stacklevel=4,
    )
    return samples


def _sites_in(plan: Plan, samples: Samples) -> NDArray[np.int64]:
    """Return the numbers of the plan's sites in the data, matched by name or coordinate."""
    sites = same_sites(plan.numbers, plan.domain, samples.sites)
    if (sites < 0).any():
        name = plan.names[int(np.flatnonzero(sites < 0)[0])]
        raise PlanError(
            f"the plan's site {name} is not in the data: it is missing (NaN in all samples), or coordinates or names "
            "differ from the plan's"
        )
    return sites


def _with_sensors_of(plan: Plan, samples: Samples) -> Samples:
    """Return samples whose candidates are the plan's sensors and those that the samples have."""
    if samples.sensors is None or plan.sensors is None:
        raise SettingsError("sensors: the plan has sensors of its own; say which may be added (sensors=)")
    own, others = _on(plan, plan.sensors, samples), samples.sensors
    if set(own.names) <= set(others.names) and np.array_equal(others.keys[others.numbers_of(own.names)], own.keys):
        return samples  # the list that the plan's were selected from
    return samples.with_sensors(own.beside(others, samples.sites.metric))


def _on(plan: Plan, sensors: PlacedSensors, samples: Samples) -> PlacedSensors:
    """Return the sensors of a plan over the sites of samples, which must be those of the plan."""
    if not np.array_equal(plan.domain.index, samples.sites.index):
        raise PlanError("the plan's sensors read sites that are not the same in these data")
    return sensors


def _eliminate(
    plan: Plan, development: ScaledSamples, sites: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], list[dict[str, Any]]]:
    """Drop sites, or columns of a table, one by one, the least important first; the others keep their order."""
    units = _units(plan)
    eliminate_by = eliminate if development.target is not None else _eliminate_for_field
    steps = eliminate_by(development, sites, k, units)
    columns = plan.origin.columns if plan.sensors is None else None
    positions = development.positions(sites) if columns is None else np.array(columns.of_sites(plan.indices))
    dropped = [
        {"site": plan.names[one], "index": int(positions[one]), "fvu": unexplained} for one, unexplained in steps
    ]
    return sites[~np.isin(units, [one for one, _ in steps])], dropped


def _units(plan: Plan) -> NDArray[np.int64]:
    """Return the position in ``plan.names`` that each site is of: indicators of words are of one column."""
    columns = plan.origin.columns
    if columns is None or plan.sensors is not None:
        return np.arange(plan.k)
    rank = {column: rank for rank, column in enumerate(columns.of_sites(plan.indices))}
    return np.array([rank[column] for column in columns.owners[plan.indices].tolist()], np.int64)


def _eliminate_for_field(
    development: ScaledSamples, sites: NDArray[np.int64], k: int, units: NDArray[np.int64]
) -> list[tuple[int, float]]:
    """Return the dropped units and the unexplained variance of the field after each, by optimal interpolation."""
    only = replace(development, observable=np.isin(np.arange(len(development.candidates)), sites))
    covariance, _ = fit_localised_covariance(only, sites, Run(), "drop")
    total = float(np.square(covariance.targets, dtype=np.float64).sum())
    unit_of = dict(zip(sites.tolist(), units.tolist(), strict=True))
    owners = np.array([unit_of[site] for site in covariance.candidates.tolist()], np.int64)
    kept, steps = np.arange(len(owners)), []
    for _ in range(k):
        network, mine = Network(covariance, kept.tolist()), owners[kept]
        losses = {unit: network.loss(np.flatnonzero(mine == unit)) for unit in dict.fromkeys(mine.tolist())}
        least = min(losses, key=losses.__getitem__)
        kept = kept[mine != least]
        steps.append((least, (total - network.explained + losses[least]) / total))
    return steps
