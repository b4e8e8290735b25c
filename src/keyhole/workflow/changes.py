"""Changes to a network that exists: the next sites, and those that would be missed least."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import InfeasibleError, PlanError
from keyhole.core.progress import progress
from keyhole.core.run import Run
from keyhole.data.alignment import same_sites
from keyhole.data.constraints import Constraints
from keyhole.data.constraints.site_lookup import sites_given
from keyhole.data.preparation import prepare
from keyhole.data.readers import read
from keyhole.data.samples import Samples
from keyhole.data.splits import SplitLike
from keyhole.data.target import TargetKind
from keyhole.models.predictors import eliminate
from keyhole.models.reconstructors import Reconstructor
from keyhole.placement import SELECTORS, Selection
from keyhole.placement.failures import Network
from keyhole.placement.posterior_covariance import fit_localised_covariance
from keyhole.plan.plan import Plan
from keyhole.workflow.checks import deadline_after
from keyhole.workflow.selection import fit_reconstructor, fit_target, make_plan, select

__all__ = ["drop", "extend"]


def extend(plan: Plan, signals: Any, k: int | None = None, *, constraints: Any = None, **options: Any) -> Plan:
    """Choose ``k`` more sites for a network that exists.

    Parameters
    ----------
    plan
        Whose sites stay; they come first in the new plan.
    signals
        Signals on the same grid, or anything that `read` takes. The target is read as the plan has it, and missing
        values are treated as they were.
    k
        How many more; None where a limit of cost stands in its place.
    constraints
        What the new sites must keep to.
    options
        Those of `select`; the reconstructor and the predictor are of the plan's kind unless others are named.

    Examples
    --------
    >>> import keyhole as kh
    >>> first = kh.select(kh.datasets.sst(), k=5, method="qr", reconstructor="ridge")
    >>> kh.extend(first, kh.datasets.sst(), k=2, method="qr").sites["existing"].sum()
    np.int64(5)
    """
    how = {name: options.pop(name, None) for name in ("missing", "target", "target_kind")}
    source = _like(plan, signals, **how)
    asked = Constraints.of(constraints)
    there = [int(site) for site in _sites_on(plan, source)]
    existing = [*there, *sites_given(asked.existing)]
    own: dict[str, Any] = {"reconstructor": plan.reconstructor, "missing": how["missing"] or _missing(plan)}
    if plan.predictor is not None:
        own["predictor"] = plan.predictor.name
    return select(source, k, constraints=replace(asked, existing=existing), **(own | options))


def drop(
    plan: Plan, signals: Any, k: int, *, reconstructor: str | Reconstructor | None = None,
    missing: Literal["error", "model"] | None = None, seed: int = 0, device: str = "auto",
    time_limit: float | None = None, split: SplitLike = None,
) -> Plan:  # fmt: skip
    """Leave out the ``k`` sites that would be missed least, one after the other, and fit a plan to the rest.

    The new plan's record (``made["notes"]["dropped"]``) names them, the least missed first, with the share of the
    variance that is left after each: of the target where the plan has one, else of the signals.

    Parameters
    ----------
    plan
        Whose sites are to be fewer.
    signals
        Signals on the same grid, or anything that `read` takes. The target is read as the plan has it.
    k
        How many sites to leave out.
    reconstructor
        Of the plan's kind and settings by default; or a name, as `select` takes it.
    missing
        How missing values are treated, as they were by default; see `read`.
    seed, device, time_limit, split
        As `select` takes them.

    Examples
    --------
    >>> import keyhole as kh
    >>> first = kh.select(kh.datasets.sst(), k=5, method="qr", reconstructor="ridge")
    >>> kh.drop(first, kh.datasets.sst(), k=2).k
    3
    """
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k < plan.k:
        raise InfeasibleError(f"k={k!r}: between 1 and {plan.k - 1} of the {plan.k} sites can be dropped")
    deadline_after(time_limit)
    source = _like(plan, signals, missing=missing)
    source = source if plan.predictor is not None else source.with_target(None)
    prepared = prepare(source, split, seed, calibrate_intervals=plan.predictor is None)
    kept, dropped = _least_missed(prepared.development, _sites_on(plan, prepared.signals), k)
    with progress(None) as tell:
        run = Run(seed=seed, device=device, deadline=deadline_after(time_limit), callback=tell)
        fitted = fit_reconstructor(plan.reconstructor if reconstructor is None else reconstructor, prepared, kept, run)
        told = fit_target("auto" if plan.predictor is None else plan.predictor.name, prepared, kept, run)
    selection, method = Selection(kept, notes={"dropped": dropped}), str(plan.metadata["method"])
    made = make_plan(prepared, selection, fitted, SELECTORS.make(method, {}), run, method=method, predictor=told)
    return replace(made, metadata={**made.metadata, "settings": plan.metadata.get("settings", {})})


def _missing(plan: Plan) -> str:
    """How missing values were treated when the plan was made, as its record says."""
    return str(plan.metadata.get("missing", "error"))


def _like(plan: Plan, signals: Any, *, missing: Any = None, target: Any = None, target_kind: Any = None) -> Samples:
    """Read signals as those that the plan was made from: with its target, and with its treatment of missing values."""
    predictor, missing = plan.predictor, missing or _missing(plan)
    if isinstance(signals, Samples):
        if predictor is not None and signals.target is None:
            raise PlanError(
                f"the plan predicts {predictor.target!r}, and the signals have no target; give them one by "
                "Signals.with_target, or a table that has the column"
            )
        return _on_grid(plan, read(signals, target=target, target_kind=target_kind))
    if predictor is not None:
        kind: TargetKind = "class" if predictor.is_class else "number"
        target, target_kind = target or predictor.target, target_kind or kind
    return _on_grid(plan, read(signals, target=target, target_kind=target_kind, missing=missing))


def _on_grid(plan: Plan, signals: Samples) -> Samples:
    """Give the signals, worked on as the plan was; they must be on its grid."""
    if signals.grid.shape != plan.grid.shape or signals.grid.dims != plan.grid.dims:
        raise PlanError(
            f"the plan is for a grid {plan.grid.dims} of shape {plan.grid.shape}, and the data are on "
            f"{signals.grid.dims} of shape {signals.grid.shape}"
        )
    outside = [signals.grid.name(int(s)) for s in _sites_on(plan, signals) if not signals.grid.inside.ravel()[s]]
    if outside:
        raise PlanError(f"the plan's site {outside[0]} is outside (missing) in the data")
    return signals.anomalies(plan.scaling.cycle) if plan.scaling.cycle is not None else signals


def _sites_on(plan: Plan, signals: Samples) -> NDArray[np.int64]:
    """Flat index of the plan's sites on the data's grid, by coordinate or name."""
    sites = same_sites(plan.indices, plan.grid, signals.grid)
    if (sites < 0).any():
        name = plan.names[int(np.flatnonzero(sites < 0)[0])]
        raise PlanError(
            f"the plan's site {name} is not on the grid of the data, whose coordinates or names differ from the plan's"
        )
    return sites


def _least_missed(
    development: Samples, sites: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], list[dict[str, Any]]]:
    """Drop sites one by one, the least missed first; the rest keep their order."""
    by = _missed_of_target if development.target is not None else _missed_of_signals
    gone = by(development, sites, k)
    dropped = [{"site": development.grid.name(site), "index": site, "left": left} for site, left in gone]
    return np.array([site for site in sites if site not in [one for one, _ in gone]], np.int64), dropped


def _missed_of_target(development: Samples, sites: NDArray[np.int64], k: int) -> list[tuple[int, float]]:
    """Sites that a linear prediction of the target misses least, and the share of its variance that is left."""
    return [(int(sites[place]), left) for place, left in eliminate(development, sites, k)]


def _missed_of_signals(development: Samples, sites: NDArray[np.int64], k: int) -> list[tuple[int, float]]:
    """Sites that a reconstruction by covariance misses least, and the share of the variance that is left."""
    among = np.zeros(development.grid.size, bool)
    among[sites] = True
    only = replace(development, observable=among.reshape(development.grid.shape))
    covariance, _ = fit_localised_covariance(only, sites, Run(), "drop")
    total = float(np.square(covariance.targets, dtype=np.float64).sum())
    picks, gone = list(range(len(covariance.candidates))), []
    for _ in range(k):
        network = Network(covariance, picks)
        losses = network.losses(np.arange(len(picks))[:, np.newaxis])
        least = int(losses.argmin())
        site = int(covariance.candidates[picks.pop(least)])
        gone.append((site, (total - network.explained + float(losses[least])) / total))
    return gone
