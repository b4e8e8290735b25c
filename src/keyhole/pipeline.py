"""From signals to a plan: split, scale, select, refit, evaluate."""

from __future__ import annotations

import numbers
import platform
import time as clock
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole import metrics
from keyhole import split as splits
from keyhole.checkpoint import clear_states
from keyhole.errors import BudgetError, DataError, SettingsError
from keyhole.plan import Plan
from keyhole.progress import progress
from keyhole.readers import read
from keyhole.reconstructors import RECONSTRUCTORS, Reconstructor, Residual, Ridge, nested_errors
from keyhole.run import Event, Run
from keyhole.scaling import Scaling
from keyhole.selectors import SELECTORS, Selection, Selector
from keyhole.signals import Signals
from keyhole.split import Split

__all__ = ["Prepared", "check_k", "choose_sites", "fit_reconstructor", "make_plan", "prepare", "select"]

# A network must beat ridge by this much on validation to be worth its weight: ridge is refitted on validation too.
_WORTH_A_NETWORK = 0.98
# Share of a time limit that the choice of sites may take; the rest is for the reconstructor.
_SELECTION_SHARE = 0.6


@dataclass(frozen=True, eq=False)
class Prepared:
    """Signals split and scaled. ``train``, ``validation`` and ``development`` (both) are scaled, ``test`` is raw."""

    signals: Signals
    split: Split
    scaling: Scaling
    train: Signals
    validation: Signals
    development: Signals
    test: Signals


def select(
    signals: Any,
    k: int,
    *,
    method: str = "auto",
    reconstructor: str = "auto",
    settings: Mapping[str, Any] | None = None,
    split: Split | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    device: str = "auto",
    precision: str = "32-true",
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
        How many sites; exactly so many distinct observable ones come out.
    method
        A selector: ``"auto"`` tries several and keeps the best on validation; ``"learned"``, ``"vln"``, ``"hnet"``,
        ``"iln"``, ``"sct"``, ``"simplex"``, ``"greedy"``, ``"qr"``, ``"variance"``, ``"random"``.
    reconstructor
        ``"ridge"``, ``"dense"``, ``"resnet"``, ``"residual"``, or ``"auto"``: ridge, unless a network on top of it is
        clearly better on validation.
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
        ``"auto"``, ``"cpu"`` or ``"cuda"``; ``"32-true"`` or ``"bf16-mixed"``.
    checkpoint, resume, save_every
        A folder to keep unfinished training in, whether to go on from what it holds (what it holds is cleared
        otherwise), and how often to save, in seconds.
    callback
        Called with an Event for every step of training; None shows a bar where standard error is a terminal.

    Examples
    --------
    >>> import keyhole as kh
    >>> plan = kh.select(kh.datasets.sst(), k=5, method="qr", reconstructor="ridge")
    >>> plan.reconstruct([25.0, 11.0, 20.0, 8.0, 28.0], time="2023-02-01").shape
    (1, 36, 72)
    """
    started = clock.monotonic()
    _check_run(device, precision, save_every)
    run = Run(
        seed=seed,
        device=device,
        precision=precision,
        deadline=deadline_after(time_limit),
        folder=None if checkpoint is None else Path(checkpoint),
        resume=resume,
        save_seconds=save_every,
    )
    selector = make_selector(method, settings or {})
    prepared = prepare(read(signals), split, seed)
    k = check_k(k, prepared.signals)
    check_reconstructor(reconstructor)
    if run.folder is not None and not resume:
        clear_states(run.folder)
    with progress(callback) as tell:
        run = replace(run, callback=tell)
        selection = choose_sites(selector, prepared, k, run)
        fitted = fit_reconstructor(reconstructor, prepared, selection.sites, run)
    plan = make_plan(prepared, selection, fitted, selector, run, method=method)
    return replace(plan, made={**plan.made, "seconds": round(clock.monotonic() - started, 2)})


def make_selector(method: str, settings: Mapping[str, Any]) -> Selector:
    """Give a selector by its name, with settings that it takes."""
    if method not in SELECTORS:
        raise SettingsError(f"method {method!r} is not known; there are {', '.join(SELECTORS)}")
    try:
        return SELECTORS[method](**settings)
    except TypeError as error:
        raise SettingsError(f"method {method!r} does not take {', '.join(settings)} ({error})") from error


def prepare(signals: Signals, split: Split | None, seed: int) -> Prepared:
    """Split and scale; the scaling comes from everything but the test part."""
    parts = split or signals.split or _default_split(signals, seed)
    splits.check(parts, len(signals))
    development = signals.take(parts.development)
    scaling = Scaling.fit(development)
    whole = scaling.apply(development)
    cut = len(parts.train)
    _check_varies(signals.take(parts.train))
    if not np.isfinite(whole.values).all() or not whole.values.any():
        raise DataError("the values are too large or too small for single precision once scaled; change their unit")
    train, validation = whole.take(np.arange(cut)), whole.take(np.arange(cut, len(whole)))
    return Prepared(signals, parts, scaling, train, validation, whole, signals.take(parts.test))


def check_k(k: Any, signals: Signals) -> int:
    """Give K as an int, or say why it cannot be had."""
    if isinstance(k, bool) or not isinstance(k, numbers.Real) or not float(k).is_integer():
        raise BudgetError(f"k={k!r}: a whole number of sites is needed")
    count, most = int(float(k)), int(signals.observable.sum())
    if not 1 <= count <= most:
        raise BudgetError(f"k={count}: between 1 and the {most} observable sites are possible")
    return count


def check_reconstructor(name: str) -> None:
    """Raise a SettingsError unless there is such a reconstructor."""
    if name not in ("auto", *RECONSTRUCTORS):
        raise SettingsError(f"reconstructor {name!r} is not known; there are auto, {', '.join(RECONSTRUCTORS)}")


def choose_sites(selector: Selector, prepared: Prepared, k: int, run: Run) -> Selection:
    """Let the selector choose, on everything but test; one that decides on validation gets that part apart."""
    left = run.seconds_left()
    if np.isfinite(left):
        run = replace(run, deadline=clock.monotonic() + _SELECTION_SHARE * left)
    if selector.decides:
        return selector.select(prepared.train, k, validation=prepared.validation, run=run)
    return selector.select(prepared.development, k, validation=None, run=run)


def fit_reconstructor(name: str, prepared: Prepared, sites: NDArray[np.int64], run: Run) -> Reconstructor:
    """Fit the reconstructor named, or choose between ridge and ridge + network on validation."""
    check_reconstructor(name)
    train, validation = prepared.train, prepared.validation
    if name != "auto":
        return RECONSTRUCTORS[name]().fit(train, sites, validation=validation, run=run)
    network = Residual().fit(train, sites, validation=validation, run=run)
    if network.improvement < _WORTH_A_NETWORK:
        return network
    return Ridge().fit(train, sites, validation=validation, run=run)


def make_plan(
    prepared: Prepared, selection: Selection, fitted: Reconstructor, selector: Selector, run: Run, *, method: str
) -> Plan:
    """Put the plan together, judge it on validation, fit a closed form on all but test, and judge it there once."""
    signals = prepared.signals
    made = {
        "method": method,
        "settings": selector.settings(),
        "reconstructor": fitted.name,
        "seed": run.seed,
        "split": {"kind": prepared.split.kind} | {p: len(getattr(prepared.split, p)) for p in _PARTS},
        "notes": selection.notes,
        "data": {"name": signals.origin.name, "fingerprint": signals.fingerprint()},
        "versions": _versions(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    history: list[dict[str, Any]] = [{"stage": "select", **row} for row in selection.history]
    history += [{"stage": "refit", **row} for row in fitted.history]
    plan = Plan(
        signals.grid, selection.sites, gains(prepared, selection.sites), prepared.scaling, fitted, signals.origin,
        made, {}, history,
    )  # fmt: skip
    validation = score(plan, signals.take(prepared.split.validation))
    if fitted.closed_form:
        final = type(fitted)().fit(prepared.development, selection.sites, validation=prepared.validation, run=run)
        plan = replace(plan, reconstructor=final)
    return replace(plan, metrics={"validation": validation, "test": score(plan, prepared.test)})


def score(plan: Plan, part: Signals) -> dict[str, float]:
    """Errors of a plan on raw signals."""
    rebuilt = plan.rebuild(part.readings(plan.indices), part.time)
    return metrics.evaluate(part.values, rebuilt, plan.scaling.expected(part), plan.grid)


def gains(prepared: Prepared, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Drop of the validation error (fraction of variance, ridge) as each site joins those before it."""
    strength = Ridge().fit(prepared.train, sites, validation=prepared.validation, run=Run()).strength
    errors = nested_errors(prepared.train, prepared.validation, sites, strength)
    return np.asarray(-np.diff(errors) / max(float(errors[0]), 1e-300))


_PARTS = ("train", "validation", "test")
_DEVICES = ("auto", "cpu", "cuda", "gpu", "mps")
_PRECISIONS = ("32-true", "bf16-mixed")


def _default_split(signals: Signals, seed: int) -> Split:
    if signals.time is not None:
        return splits.blocks(len(signals))
    return splits.shuffled(len(signals), seed=seed)


def _check_varies(train: Signals) -> None:
    cells = train.packed()
    if not (cells != cells[:1]).any():
        raise DataError("the training part is constant: every sample in it is the same, so nothing can be learned")


def _check_run(device: str, precision: str, save_every: float) -> None:
    """Raise a SettingsError for what no machine has; whether this one has it shows when something is trained."""
    if device not in _DEVICES:
        raise SettingsError(f"device {device!r} is not known; there are {', '.join(_DEVICES)}")
    if precision not in _PRECISIONS:
        raise SettingsError(f"precision {precision!r} is not known; there are {', '.join(_PRECISIONS)}")
    if not save_every >= 0:
        raise SettingsError(f"save_every={save_every!r}: a number of seconds is needed")


def deadline_after(time_limit: float | None) -> float | None:
    """Clock time at which a time limit that starts now is over."""
    if time_limit is None:
        return None
    if not time_limit > 0:
        raise SettingsError(f"time_limit={time_limit!r}: a positive number of seconds is needed")
    return clock.monotonic() + time_limit


def _versions() -> dict[str, Any]:
    import torch

    names = ("keyhole", "torch", "numpy")
    found: dict[str, Any] = {name: version(name) for name in names}
    return found | {"python": platform.python_version(), "threads": torch.get_num_threads()}
