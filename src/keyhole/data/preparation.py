"""Split and scale samples for selection and fitting."""

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
from keyhole.data.screening import exclude, notes, screen, warn_about
from keyhole.data.series import features, find_series
from keyhole.data.splits import Split, SplitLike

__all__ = ["PreparedSamples", "default_split", "prepare", "prepare_with"]

_FEWEST_KNOWN = 5  # training samples that must know a cell


@dataclass(frozen=True, eq=False)
class PreparedSamples:
    """Samples that are split and scaled.

    Parameters
    ----------
    signals : Samples
        All samples, unscaled.
    split : Split
        The parts.
    choosing : Scaler
        Fitted to the training part; scales ``train`` and ``validation``, on which choices are made.
    scaling : Scaler
        Fitted to training and validation parts; scales ``development``, and is the plan's scaler.
    train, validation, development : Samples
        Scaled; missing values are imputed. ``development`` is train and validation together.
    test, calibration : Samples
        Unscaled.
    notes : mapping
        Findings about the columns of a table, for the plan's record.
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
        """Flat grid indices of the existing sites."""
        return self.signals.existing


def prepare(signals: Samples, split: SplitLike, seed: int, *, calibrate_intervals: bool = False) -> PreparedSamples:
    """Split and scale samples.

    Choices are made with a scaler fitted to the training part; the plan's scaler is fitted to all but the test part.
    Columns of a table that duplicate others or number the rows are reported and excluded from the candidates
    (`screen`).

    Parameters
    ----------
    signals : Samples
        In the user's units.
    split : Split, str, mapping, tuple or None
        See `as_split`; None: the data set's own split, else `default_split`.
    seed : int
        Seed of a random split.
    calibrate_intervals : bool
        Whether to set samples aside to calibrate prediction intervals.

    Returns
    -------
    PreparedSamples

    Raises
    ------
    DataError
        If the split is invalid, or the training part or its target is constant.
    """
    findings = screen(signals) if signals.origin.kind == "table" else []
    warn_about(findings)
    signals, n = exclude(signals, findings), len(signals)
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
    return replace(prepared, notes=notes(findings))


def prepare_with(signals: Samples, split: Split, choosing: Scaler, scaling: Scaler) -> PreparedSamples:
    """Split, scale with given scalers, and impute missing values."""
    train, validation = (choosing.apply(signals.take(rows)) for rows in (split.train, split.validation))
    train = train.filled()
    validation = validation.filled(train.imputer)
    development = scaling.apply(signals.take(split.development)).filled()
    test, calibration = signals.take(split.test), signals.take(split.calibration) if len(split.calibration) else None
    return PreparedSamples(signals, split, choosing, scaling, train, validation, development, test, calibration)


def default_split(
    about: Samples, n: int, time: NDArray[Any] | None, seed: int, blocks: Callable[[], Iterable[Samples]]
) -> Split:
    """Choose a split: blocks for samples with a time or that look like a time series, else at random.

    Rows of a table, and samples with a target, are a time series only if they have a time.

    Parameters
    ----------
    about : Samples
        Samples of the same kind.
    n : int
        Number of samples.
    time : ndarray of shape (n,), optional
        Time of each sample.
    seed : int
        Seed of a random split.
    blocks : callable
        Returns an iterator over all samples in order, in blocks.

    Returns
    -------
    Split
        With its ``reason``.
    """
    if time is not None:
        return replace(Split.blocks(n, time=time), reason="samples have a time")
    if about.origin.kind == "table" or about.target is not None:
        return replace(Split.random(n, seed=seed), reason="samples have no time")
    found = find_series(features(blocks(), n))
    if found is None:
        reason = "samples have no time and do not look like a series"
        return replace(Split.random(n, seed=seed), reason=reason)
    return replace(Split.blocks(n), reason=found.reason)


def _known_enough(signals: Samples, parts: Split) -> Samples:
    """Make sites invalid that have fewer than 5 known values in the training part."""
    if signals.gaps is None:
        return signals
    inside = signals.grid.inside & ((~signals.gaps[parts.train]).sum(axis=0).min(axis=0) >= _FEWEST_KNOWN)
    if not inside.any():
        raise DataError(f"no cell is known in {_FEWEST_KNOWN} training samples")
    kept = replace(signals, grid=replace(signals.grid, inside=inside), observable=signals.observable & inside)
    return replace(kept, gaps=signals.gaps & inside)


def _check_varies(train: Samples) -> None:
    """Raise a DataError if the training part is constant."""
    cells = train.valid_values()
    if not (np.nanmax(cells, axis=0) > np.nanmin(cells, axis=0)).any():
        raise DataError("the training part is constant: every sample in it is the same, so nothing can be learned")


def _check_target_varies(train: Samples) -> None:
    """Raise a DataError if the target is constant in the training part."""
    target = train.target
    if target is not None and not (target.values != target.values[0]).any():
        raise DataError(f"target {target.name!r}: it never varies in the training part, so nothing can be learned")
