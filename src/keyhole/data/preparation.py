"""Signals split and scaled, as everything that follows needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.data import splits
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.screening import leave_out, notes_of, screen, warn_of
from keyhole.data.series import features, find_series
from keyhole.data.splits import Split, SplitLike

__all__ = ["PreparedSamples", "default_split", "prepare", "prepare_with"]

_FEWEST_KNOWN = 5  # training samples that must know a cell


@dataclass(frozen=True, eq=False)
class PreparedSamples:
    """Signals split and scaled. ``train``, ``validation`` and ``development`` (both) are scaled, the others are raw.

    ``choosing`` is the scaling that choices are made with: train and validation are scaled by it, and it knows train
    alone, as a plan knows nothing of the days it will be used on. ``scaling``, the plan's and that of ``development``,
    knows all but test. ``notes`` are what a plan's record is to say of the columns of a table.
    """

    signals: Samples
    split: Split
    choosing: Scaler
    scaling: Scaler
    train: Samples
    validation: Samples
    development: Samples
    test: Samples
    calibration: Samples | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def existing(self) -> NDArray[np.int64]:
        """Flat grid index of the sites that are there already."""
        return self.signals.existing


def prepare(signals: Samples, split: SplitLike, seed: int, *, calibrate_intervals: bool = False) -> PreparedSamples:
    """Split and scale; choices are made with a scaling from the training part, the plan's is from all but test.

    To calibrate bands, some samples are held back from both. Of a table, columns that are copies of others or number
    the rows are pointed out, and are no candidates (`screen`).
    """
    findings = screen(signals) if signals.origin.kind == "table" else []
    warn_of(findings)
    signals, n = leave_out(signals, findings), len(signals)
    parts = splits.as_split(split, n, time=signals.time, seed=seed) or signals.split
    parts = parts or default_split(signals, n, signals.time, seed, lambda: [signals])
    parts = parts.calibrate_intervals(signals.time) if calibrate_intervals else parts
    splits.check(parts, n)
    signals = replace(_known_enough(signals, parts), ordered=parts.kind == "blocks")
    _check_varies(signals.take(parts.train))
    _check_target_varies(signals.take(parts.train))
    choosing, scaling = (Scaler.fit(signals.take(rows)) for rows in (parts.train, parts.development))
    prepared = prepare_with(signals, parts, choosing, scaling)
    values = prepared.development.values
    if not np.isfinite(values).all() or not values.any():
        raise DataError("the values are too large or too small for single precision once scaled; change their unit")
    return replace(prepared, notes=notes_of(findings))


def prepare_with(signals: Samples, split: Split, choosing: Scaler, scaling: Scaler) -> PreparedSamples:
    """Split, and scale as told."""
    train, validation = (choosing.apply(signals.take(rows)) for rows in (split.train, split.validation))
    train = train.filled()
    validation = validation.filled(train.imputer)
    development = scaling.apply(signals.take(split.development)).filled()
    test, calibration = signals.take(split.test), signals.take(split.calibration) if len(split.calibration) else None
    return PreparedSamples(signals, split, choosing, scaling, train, validation, development, test, calibration)


def default_split(
    about: Samples, n: int, time: NDArray[Any] | None, seed: int, blocks: Callable[[], Iterable[Samples]]
) -> Split:
    """Blocks where samples have a time or look like a series, at random where they have none.

    Rows of a table, and samples with a target, are a series if they have a time, and not otherwise.

    Parameters
    ----------
    about
        Signals of the same kind.
    n, time
        How many samples there are, and their time.
    blocks
        Gives all samples in their order, some at a time.
    """
    if time is not None:
        return replace(splits.blocks(n, time=time), reason="samples have a time")
    if about.origin.kind == "table" or about.target is not None:
        return replace(splits.random_split(n, seed=seed), reason="samples have no time")
    found = find_series(features(blocks(), n))
    if found is None:
        reason = "samples have no time and do not look like a series"
        return replace(splits.random_split(n, seed=seed), reason=reason)
    return replace(splits.blocks(n), reason=found.words)


def _known_enough(signals: Samples, parts: Split) -> Samples:
    """Leave out cells that training samples hardly know."""
    if signals.gaps is None:
        return signals
    inside = signals.grid.inside & ((~signals.gaps[parts.train]).sum(axis=0).min(axis=0) >= _FEWEST_KNOWN)
    if not inside.any():
        raise DataError(f"no cell is known in {_FEWEST_KNOWN} training samples")
    kept = replace(signals, grid=replace(signals.grid, inside=inside), observable=signals.observable & inside)
    return replace(kept, gaps=signals.gaps & inside)


def _check_varies(train: Samples) -> None:
    cells = train.valid_values()
    if not (np.nanmax(cells, axis=0) > np.nanmin(cells, axis=0)).any():
        raise DataError("the training part is constant: every sample in it is the same, so nothing can be learned")


def _check_target_varies(train: Samples) -> None:
    target = train.target
    if target is not None and not (target.values != target.values[0]).any():
        raise DataError(f"target {target.name!r}: it never varies in the training part, so nothing can be learned")
