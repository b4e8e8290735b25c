"""From a store to a plan: split, scale, select, refit, evaluate, some samples at a time."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.core.memory import explain_out_of_memory
from keyhole.core.progress import progress
from keyhole.core.run import Event, Run
from keyhole.data import splits
from keyhole.data.origin import STANDARDISED
from keyhole.data.preparation import default_split
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.splits import Split, SplitLike
from keyhole.metrics import ErrorAccumulator
from keyhole.models.reconstructors import NestedRidge, Ridge, nested_errors
from keyhole.models.reconstructors.base import flat
from keyhole.models.reconstructors.model_selection import squared_error
from keyhole.placement import SELECTORS, Selection, Selector
from keyhole.placement.classical import QR, Greedy
from keyhole.placement.learned import Learned
from keyhole.plan.fitted import FittedModels, range_of
from keyhole.plan.plan import Plan
from keyhole.workflow.arguments import check_budget, make_run, managed_checkpoints
from keyhole.workflow.calibration import calibrate, coverage, spread_of
from keyhole.workflow.selection import constraint_metadata, run_metadata
from keyhole.workflow.stored.components import leading_components, sketch
from keyhole.workflow.stored.store import Part, Store

__all__ = ["samples_of", "select_stored"]

_CLASSICAL: dict[str, type[Selector]] = {"greedy": Greedy, "qr": QR}  # that "auto" chooses between
_BANDS_SHARE = 1 / 64  # of the memory for samples that tell the spread: a plan's file grows with them


@dataclass(frozen=True, eq=False)
class _Scaled:
    """A store, split, with its scalings: one that knows train alone, and the plan's, which knows all but test."""

    store: Store
    split: Split
    choosing: Scaler
    scaling: Scaler
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


@explain_out_of_memory("select", "allow more (--memory), ask for fewer sites, or coarsen the grid")
def select_stored(
    store: Store,
    k: int | None = None,
    *,
    method: str = "auto",
    reconstructor: str = "auto",
    settings: Mapping[str, Any] | None = None,
    intervals: bool = True,
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
    run = make_run(
        seed=seed, device=device, precision=precision, compiled=compiled, time_limit=time_limit, checkpoint=checkpoint,
        resume=resume, save_every=save_every,
    )  # fmt: skip
    selector = _selector(method, settings or {})
    if reconstructor not in ("auto", "ridge"):
        raise SettingsError(f"reconstructor {reconstructor!r} needs the data in memory; with a limit there is ridge")
    k = check_budget(k, store.about)
    with managed_checkpoints(run), progress(callback) as tell:
        run = replace(run, callback=tell)
        scaled = _scaled(store, split, seed, intervals)
        selection = _chosen(scaled, method, selector, k, run)
        return _plan(scaled, selection, method, selector, run, started)


def samples_of(store: Store, seed: int, *, calibrate_intervals: bool, split: SplitLike = None) -> tuple[Samples, Split]:
    """Give as many samples as fit, evenly spaced, and the parts that they are of, for a report."""
    parts = _parts(store, split, seed, calibrate_intervals)
    whole = store.part(np.arange(len(store)))
    few = whole.some()
    rows = np.linspace(0, len(store) - 1, len(few)).astype(np.int64)
    every = (parts.train, parts.validation, parts.test, parts.calibration)
    train, validation, test, calibration = (np.flatnonzero(np.isin(rows, part)) for part in every)
    return few, Split(train, validation, test, parts.kind, calibration, parts.reason)


def _selector(method: str, settings: Mapping[str, Any]) -> Selector:
    selector: Selector = SELECTORS.make(method, {} if method == "auto" else settings)
    if method == "auto" and settings:
        raise SettingsError(f"method 'auto' does not take {', '.join(settings)} with a limit of memory")
    if method == "auto" or isinstance(selector, Greedy | QR):
        return selector
    if (
        not isinstance(selector, Learned)
        or selector.settings()["objective"] != "squared"
        or selector.requires_validation
    ):
        raise SettingsError(
            f"method {method!r} needs the data in memory; with a limit there are auto, greedy, qr, learned and the laws"
        )
    return selector


def _parts(store: Store, split: SplitLike, seed: int, calibrate_intervals: bool) -> Split:
    n, time = len(store), store.field.time
    parts = splits.as_split(split, n, time=time, seed=seed)
    parts = parts or default_split(store.about, n, time, seed, lambda: (block for _, block in store.blocks()))
    parts = parts.calibrate_intervals(time) if calibrate_intervals else parts
    splits.check(parts, len(store))
    return parts


def _scaled(store: Store, split: SplitLike, seed: int, calibrate_intervals: bool) -> _Scaled:
    parts = _parts(store, split, seed, calibrate_intervals)
    choosing, scaling = (Scaler.fit_blocks(store.part(rows).blocks) for rows in (parts.train, parts.development))
    made = _Scaled(store, parts, choosing, scaling)
    if not any(block.values.any() for block in made.train.scaled_blocks()):
        raise DataError("the training part is constant: every sample in it is the same, so nothing can be learned")
    return made


def _chosen(scaled: _Scaled, method: str, selector: Selector, k: int | None, run: Run) -> Selection:
    """Choose on all but test; of ``"auto"``'s two, the better on validation."""
    most = max(4 * (k or 0), 200)
    whole = sketch(scaled.development, leading_components(scaled.development, most, run))
    k = len(Greedy().select(whole, 1, validation=None, run=run).sites) if k is None else k
    if method != "auto":
        return replace(selector.select(whole, k, validation=None, run=run), reconstruct=None)
    found = {name: kind().select(whole, k, validation=None, run=run) for name, kind in _CLASSICAL.items()}
    scores = {name: _left(scaled, one.sites) for name, one in found.items()}
    best = min(scores, key=scores.__getitem__)
    return replace(found[best], notes={"chosen": best, "scores": scores})


def _left(scaled: _Scaled, sites: NDArray[np.int64]) -> float:
    """Fraction of variance that ridge from ``sites`` leaves on validation."""
    ridge, error, energy = scaled.ridge(sites), 0.0, 0.0
    for block in scaled.validation.scaled_blocks():
        error += squared_error(ridge, sites, block)
        energy += float(np.square(block.targets, dtype=np.float64).sum())
    return error / max(energy, np.finfo(float).tiny)


def _ridge(part: Part, sites: NDArray[np.int64]) -> Ridge:
    return NestedRidge(part.readings(sites), part.targets, part.store.about.sites).first(len(sites))


def _plan(scaled: _Scaled, selection: Selection, method: str, selector: Selector, run: Run, started: float) -> Plan:
    """Score the models on validation, refit them on all samples but the test part, and score them there once."""
    store, sites = scaled.store, selection.sites
    ridge = scaled.ridge(sites)
    readings = scaled.development.readings(sites)
    rows = flat(readings.transpose(0, 2, 1)).astype(np.float64)
    time = store.field.time
    time = None if time is None else time[scaled.split.development]
    on_train = FittedModels(
        domain=store.about.sites, indices=store.about.sites.index[sites], scaling=scaled.choosing, reconstructor=ridge,
        origin=store.about.origin, covariance=rows.T @ rows / len(rows),
    )  # fmt: skip
    held = store.part(scaled.split.validation)
    scores = {"validation": _score(on_train, held, scaled.choosing)}
    final = replace(on_train, scaling=scaled.scaling, reconstructor=_ridge(scaled.development, sites))
    if len(scaled.split.calibration):
        spread = spread_of(on_train, held.some(_BANDS_SHARE))
        part = store.part(scaled.split.calibration).some(_BANDS_SHARE)
        final = replace(final, intervals=calibrate(final, spread, part))
    scores["test"] = _score(final, store.part(scaled.split.test), scaled.scaling)
    gain = _gains(scaled, sites, ridge.strength)
    metadata = {
        **run_metadata(selector, run, method=method, fitted=ridge, notes=selection.notes),
        **constraint_metadata(store.about, sites),
        **({"error_units": STANDARDISED} if store.about.origin.units_differ else {}),
        "split": scaled.split.sizes(),
        "memory": store.memory,
        "data": {"name": store.about.origin.name, "fingerprint": store.fingerprint()},
        "seconds": round(clock.monotonic() - started, 2),
    }
    return Plan(
        **final.parts(),
        gain=gain,
        metadata=metadata,
        metrics=scores,
        history=[{"stage": "select", **row} for row in selection.history],
        ranges=range_of(scaled.scaling.unscale_readings(readings, sites, time)),
    )


def _score(models: FittedModels, part: Part, baseline: Scaler) -> dict[str, float]:
    """Errors of fitted models on samples as they are, as `selection.score` gives them."""
    origin = part.store.about.origin
    scale = baseline.scale if origin.units_differ else None
    tally = ErrorAccumulator(models.domain, scale=scale, names=tuple(origin.variables))
    for block in part.blocks():
        tally.add(block.values, models.reconstruct_samples(block), baseline.expected(block))
    scores = tally.scores(part.store.about.weights)
    if models.intervals is None:
        return scores
    few = part.some(_BANDS_SHARE)
    return scores | coverage(models, few, models.reconstruct_samples(few))


def _gains(scaled: _Scaled, sites: NDArray[np.int64], strength: float) -> NDArray[np.float64]:
    """Drop of the validation error as each site joins those before it, by as many samples as fit."""
    train, validation = (part.scale(part.some()) for part in (scaled.train, scaled.validation))
    errors = nested_errors(train, validation, sites, strength * len(train) / len(scaled.train))
    return np.asarray(-np.diff(errors) / max(float(errors[0]), 1e-300))
