"""Signals split and scaled, as everything that follows needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole import split as splits
from keyhole.errors import DataError
from keyhole.scaling import Scaling
from keyhole.screening import leave_out, notes_of, screen, warn_of
from keyhole.signals import Signals
from keyhole.split import Split

__all__ = ["Prepared", "default_split", "prepare", "prepare_with"]

_FEWEST_KNOWN = 5  # training samples that must know a cell


@dataclass(frozen=True, eq=False)
class Prepared:
    """Signals split and scaled. ``train``, ``validation`` and ``development`` (both) are scaled, the others are raw.

    ``choosing`` is the scaling that choices are made with: train and validation are scaled by it, and it knows train
    alone, as a plan knows nothing of the days it will be used on. ``scaling``, the plan's and that of ``development``,
    knows all but test. ``notes`` are what a plan's record is to say of the columns of a table.
    """

    signals: Signals
    split: Split
    choosing: Scaling
    scaling: Scaling
    train: Signals
    validation: Signals
    development: Signals
    test: Signals
    calibration: Signals | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fixed(self) -> NDArray[np.int64]:
        """Flat grid index of the sites that are there already."""
        return self.signals.existing


def prepare(signals: Signals, split: Split | None, seed: int, *, calibrating: bool = False) -> Prepared:
    """Split and scale; choices are made with a scaling from the training part, the plan's is from all but test.

    To calibrate bands, some samples are held back from both. Of a table, columns that are copies of others or number
    the rows are pointed out, and are no candidates (`screen`).
    """
    findings = screen(signals) if signals.origin.kind == "table" else []
    warn_of(findings)
    signals = leave_out(signals, findings)
    parts = split or signals.split or default_split(len(signals), signals.time, seed)
    parts = parts.calibrating() if calibrating else parts
    splits.check(parts, len(signals))
    signals = _known_enough(signals, parts)
    _check_varies(signals.take(parts.train))
    _check_target_varies(signals.take(parts.train))
    choosing, scaling = (Scaling.fit(signals.take(rows)) for rows in (parts.train, parts.development))
    prepared = prepare_with(signals, parts, choosing, scaling)
    values = prepared.development.values
    if not np.isfinite(values).all() or not values.any():
        raise DataError("the values are too large or too small for single precision once scaled; change their unit")
    return replace(prepared, notes=notes_of(findings))


def prepare_with(signals: Signals, split: Split, choosing: Scaling, scaling: Scaling) -> Prepared:
    """Split, and scale as told."""
    train, validation = (choosing.apply(signals.take(rows)) for rows in (split.train, split.validation))
    train = train.filled()
    validation = validation.filled(train.filler)
    development = scaling.apply(signals.take(split.development)).filled()
    test, calibration = signals.take(split.test), signals.take(split.calibration) if len(split.calibration) else None
    return Prepared(signals, split, choosing, scaling, train, validation, development, test, calibration)


def default_split(n: int, time: NDArray[np.datetime64] | None, seed: int) -> Split:
    """Blocks where samples have a time, at random where they have none."""
    return splits.shuffled(n, seed=seed) if time is None else splits.blocks(n)


def _known_enough(signals: Signals, parts: Split) -> Signals:
    """Leave out cells that training samples hardly know."""
    if signals.gaps is None:
        return signals
    inside = signals.grid.inside & ((~signals.gaps[parts.train]).sum(axis=0).min(axis=0) >= _FEWEST_KNOWN)
    if not inside.any():
        raise DataError(f"no cell is known in {_FEWEST_KNOWN} training samples")
    kept = replace(signals, grid=replace(signals.grid, inside=inside), observable=signals.observable & inside)
    return replace(kept, gaps=signals.gaps & inside)


def _check_varies(train: Signals) -> None:
    cells = train.packed()
    if not (np.nanmax(cells, axis=0) > np.nanmin(cells, axis=0)).any():
        raise DataError("the training part is constant: every sample in it is the same, so nothing can be learned")


def _check_target_varies(train: Signals) -> None:
    target = train.target
    if target is not None and not (target.values != target.values[0]).any():
        raise DataError(f"target {target.name!r}: it never varies in the training part, so nothing can be learned")
