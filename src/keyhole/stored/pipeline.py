"""From a store to a plan: split, scale, select, refit, evaluate, some samples at a time."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole import split as splits
from keyhole.checks import check_budget
from keyhole.errors import DataError, SettingsError
from keyhole.memory import told_when_short
from keyhole.metrics import Tally
from keyhole.pipeline import kept_to, make_selector, own_states, record, run_of, told_in
from keyhole.plan import Plan
from keyhole.preparation import default_split
from keyhole.progress import progress
from keyhole.readings import range_of
from keyhole.reconstructors import Ridge, nested_errors
from keyhole.reconstructors.base import flat
from keyhole.reconstructors.choice import squared_error
from keyhole.reconstructors.ridge import Regression
from keyhole.run import Event, Run
from keyhole.scaling import Scaling
from keyhole.selectors import Selection, Selector
from keyhole.selectors.classical import QR, Greedy
from keyhole.selectors.learned import Learned
from keyhole.signals import Signals
from keyhole.split import Split, SplitLike
from keyhole.stored.components import leading_components, sketch
from keyhole.stored.store import Part, Store
from keyhole.uncertainty import calibrate, coverage, spread_of

__all__ = ["samples_of", "select_stored"]

_CLASSICAL: dict[str, type[Selector]] = {"greedy": Greedy, "qr": QR}  # that "auto" chooses between
_BANDS_SHARE = 1 / 64  # of the memory for samples that tell the spread: a plan's file grows with them


@dataclass(frozen=True, eq=False)
class _Scaled:
    """A store, split, with its scalings: one that knows train alone, and the plan's, which knows all but test."""

    store: Store
    split: Split
    choosing: Scaling
    scaling: Scaling
    _fitted: dict[bytes, Ridge] = field(default_factory=dict)

    def ridge(self, sites: NDArray[np.int64]) -> Ridge:
        """Ridge from sites, fitted on train; kept, since it takes four passes."""
        if sites.tobytes() not in self._fitted:
            self._fitted[sites.tobytes()] = _ridge(self.train, sites)
        return self._fitted[sites.tobytes()]

    @property
    def train(self) -> Part:
        return self.store.part(self.split.train, self.choosing)

    @property
    def validation(self) -> Part:
        return self.store.part(self.split.validation, self.choosing)

    @property
    def development(self) -> Part:
        return self.store.part(self.split.development, self.scaling)


@told_when_short("select", "allow more (--memory), ask for fewer sites, or coarsen the grid")
def select_stored(
    store: Store,
    k: int | None = None,
    *,
    method: str = "auto",
    reconstructor: str = "auto",
    settings: Mapping[str, Any] | None = None,
    bands: bool = True,
    split: SplitLike = None,
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
    """Choose ``k`` sites of data larger than memory, and fit ridge on all of them.

    Parameters
    ----------
    store
        What `open_store` gives.
    method
        ``"greedy"`` or ``"qr"``, which choose as they do in memory, ``"auto"``, the better of both on validation, or
        ``"learned"`` or a law, which is trained from chunks of the file in a random order.
    reconstructor
        ``"ridge"``, which ``"auto"`` is too.

    The other parameters are those of `keyhole.select`. Ridge and all errors come from every sample; what each site
    gains and the bands come from as many as fit.
    """
    started = clock.monotonic()
    run = run_of(
        seed=seed, device=device, precision=precision, compiled=compiled, time_limit=time_limit, checkpoint=checkpoint,
        resume=resume, save_every=save_every,
    )  # fmt: skip
    selector = _selector(method, settings or {})
    if reconstructor not in ("auto", "ridge"):
        raise SettingsError(f"reconstructor {reconstructor!r} needs the data in memory; with a limit there is ridge")
    k = check_budget(k, store.about)
    with own_states(run), progress(callback) as tell:
        run = replace(run, callback=tell)
        scaled = _scaled(store, split, seed, bands)
        selection = _chosen(scaled, method, selector, k, run)
        plan = _plan(scaled, selection, method, selector, run)
    return replace(plan, made={**plan.made, "seconds": round(clock.monotonic() - started, 2)})


def samples_of(store: Store, seed: int, *, calibrating: bool, split: SplitLike = None) -> tuple[Signals, Split]:
    """Give as many samples as fit, evenly spaced, and the parts that they are of, for a report."""
    parts = _parts(store, split, seed, calibrating)
    whole = store.part(np.arange(len(store)))
    few = whole.some()
    rows = np.linspace(0, len(store) - 1, len(few)).astype(np.int64)
    every = (parts.train, parts.validation, parts.test, parts.calibration)
    train, validation, test, calibration = (np.flatnonzero(np.isin(rows, part)) for part in every)
    return few, Split(train, validation, test, parts.kind, calibration, parts.reason)


def _selector(method: str, settings: Mapping[str, Any]) -> Selector:
    selector = make_selector(method, {} if method == "auto" else settings)
    if method == "auto" and settings:
        raise SettingsError(f"method 'auto' does not take {', '.join(settings)} with a limit of memory")
    if method == "auto" or isinstance(selector, Greedy | QR):
        return selector
    if not isinstance(selector, Learned) or selector.settings()["objective"] != "squared" or selector.decides:
        raise SettingsError(
            f"method {method!r} needs the data in memory; with a limit there are auto, greedy, qr, learned and the laws"
        )
    return selector


def _parts(store: Store, split: SplitLike, seed: int, calibrating: bool) -> Split:
    n, time = len(store), store.field.time
    parts = splits.as_split(split, n, time=time, seed=seed)
    parts = parts or default_split(store.about, n, time, seed, lambda: (block for _, block in store.blocks()))
    parts = parts.calibrating(time) if calibrating else parts
    splits.check(parts, len(store))
    return parts


def _scaled(store: Store, split: SplitLike, seed: int, calibrating: bool) -> _Scaled:
    parts = _parts(store, split, seed, calibrating)
    choosing, scaling = (Scaling.fit_blocks(store.part(rows).blocks) for rows in (parts.train, parts.development))
    made = _Scaled(store, parts, choosing, scaling)
    if not any(block.values.any() for block in made.train.blocks()):
        raise DataError("the training part is constant: every sample in it is the same, so nothing can be learned")
    return made


def _chosen(scaled: _Scaled, method: str, selector: Selector, k: int | None, run: Run) -> Selection:
    """Choose on all but test; of ``"auto"``'s two, the better on validation."""
    most = max(4 * (k or 0), 200)
    whole = sketch(scaled.development, leading_components(scaled.development, most, run))
    k = len(Greedy().select(whole, 1, validation=None, run=run).sites) if k is None else k
    if method != "auto":
        return replace(selector.select(whole, k, validation=None, run=run), rebuild=None)
    found = {name: kind().select(whole, k, validation=None, run=run) for name, kind in _CLASSICAL.items()}
    scores = {name: _left(scaled, one.sites) for name, one in found.items()}
    best = min(scores, key=scores.__getitem__)
    return replace(found[best], notes={"chosen": best, "scores": scores})


def _left(scaled: _Scaled, sites: NDArray[np.int64]) -> float:
    """Fraction of variance that ridge from ``sites`` leaves on validation."""
    ridge, error, energy = scaled.ridge(sites), 0.0, 0.0
    for block in scaled.validation.blocks():
        error += squared_error(ridge, sites, block)
        energy += float(np.square(block.packed(), dtype=np.float64).sum())
    return error / max(energy, np.finfo(float).tiny)


def _ridge(part: Part, sites: NDArray[np.int64]) -> Ridge:
    readings, about = flat(part.readings(sites)), part.store.about
    return Regression(readings, part.packed).ridge(readings.shape[1], about.channels, about.grid)


def _plan(scaled: _Scaled, selection: Selection, method: str, selector: Selector, run: Run) -> Plan:
    """Put the plan together, judge it on validation, fit it on all but test, and judge it there once."""
    store, sites = scaled.store, selection.sites
    ridge = scaled.ridge(sites)
    made = {
        **record(selector, run, method=method, fitted=ridge, notes=selection.notes),
        **kept_to(store.about, sites),
        **told_in(store.about),
        "split": scaled.split.sizes(),
        "memory": store.memory,
        "data": {"name": store.about.origin.name, "fingerprint": store.fingerprint()},
    }
    history = [{"stage": "select", **row} for row in selection.history]
    readings = scaled.development.readings(sites)
    rows = flat(readings.transpose(0, 2, 1)).astype(np.float64)
    time = store.field.time
    time = None if time is None else time[scaled.split.development]
    plan = Plan(
        store.about.grid, sites, _gains(scaled, sites, ridge.strength), scaled.choosing, ridge, store.about.origin,
        made, {}, history, None, rows.T @ rows / len(rows),
        ranges=range_of(scaled.scaling.unscale_readings(readings, sites, time)),
    )  # fmt: skip
    held = store.part(scaled.split.validation)
    validation = _score(plan, held, scaled.choosing)
    spread = spread_of(plan, held.some(_BANDS_SHARE)) if len(scaled.split.calibration) else None
    plan = replace(plan, scaling=scaled.scaling, reconstructor=_ridge(scaled.development, sites))
    if spread is not None:
        plan = replace(plan, bands=calibrate(plan, spread, store.part(scaled.split.calibration).some(_BANDS_SHARE)))
    test = _score(plan, store.part(scaled.split.test), scaled.scaling)
    return replace(plan, metrics={"validation": validation, "test": test})


def _score(plan: Plan, part: Part, baseline: Scaling) -> dict[str, float]:
    """Errors of a plan on samples as they are, as `pipeline.score` gives them."""
    origin = part.store.about.origin
    scale = baseline.scale if origin.units_differ else None
    tally = Tally(plan.grid, scale=scale, names=tuple(origin.variables))
    for block in part.blocks():
        rebuilt = plan.rebuild(block.sensed(plan.indices), block.time, block.context)
        tally.add(block.values, rebuilt, baseline.expected(block))
    scores = tally.scores(part.store.about.weights)
    if plan.bands is None:
        return scores
    few = part.some(_BANDS_SHARE)
    return scores | coverage(plan, few, plan.rebuild(few.sensed(plan.indices), few.time, few.context))


def _gains(scaled: _Scaled, sites: NDArray[np.int64], strength: float) -> NDArray[np.float64]:
    """Drop of the validation error as each site joins those before it, by as many samples as fit."""
    train, validation = scaled.train.some(), scaled.validation.some()
    errors = nested_errors(train, validation, sites, strength * len(train) / len(scaled.train))
    return np.asarray(-np.diff(errors) / max(float(errors[0]), 1e-300))
