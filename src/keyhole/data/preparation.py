"""Split and scale samples for selection and fitting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.data import splits
from keyhole.data.samples import Samples, ScaledSamples
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
    samples : Samples
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

    samples: Samples
    split: Split
    choosing: Scaler
    scaling: Scaler
    train: ScaledSamples
    validation: ScaledSamples
    development: ScaledSamples
    test: Samples
    calibration: Samples | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def existing(self) -> NDArray[np.int64]:
        """Numbers of the existing sites."""
        return self.samples.existing


def prepare(samples: Samples, split: SplitLike, seed: int, *, calibrate_intervals: bool = False) -> PreparedSamples:
    """Split and scale samples.

    Choices are made with a scaler fitted to the training part; the plan's scaler is fitted to all but the test part.
    Columns of a table that duplicate others or number the rows are reported and excluded from the candidates
    (`screen`).

    Parameters
    ----------
    samples : Samples
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
    findings = screen(samples) if samples.origin.kind == "table" else []
    warn_about(findings)
    samples, n = exclude(samples, findings), len(samples)
    parts = splits.as_split(split, n, time=samples.time, seed=seed) or samples.split
    parts = parts or default_split(samples, n, samples.time, seed, lambda: [samples])
    parts = parts.calibrate_intervals(samples.time) if calibrate_intervals else parts
    splits.check(parts, n)
    samples = replace(_known_enough(samples, parts), ordered=parts.kind == "blocks")
    _check_varies(samples.take(parts.train))
    _check_target_varies(samples.take(parts.train))
    choosing, scaling = (Scaler.fit(samples.take(rows)) for rows in (parts.train, parts.development))
    prepared = prepare_with(samples, parts, choosing, scaling)
    values = prepared.development.values
    if not np.isfinite(values).all() or not values.any():
        raise DataError("the values are too large or too small for single precision once scaled; change their unit")
    return replace(prepared, notes=notes(findings))


def prepare_with(samples: Samples, split: Split, choosing: Scaler, scaling: Scaler) -> PreparedSamples:
    """Split, scale with given scalers, and impute missing values."""
    train, validation = (choosing.apply(samples.take(rows)) for rows in (split.train, split.validation))
    train = train.impute()
    validation = validation.impute(train.imputer)
    development = scaling.apply(samples.take(split.development)).impute()
    test, calibration = samples.take(split.test), samples.take(split.calibration) if len(split.calibration) else None
    return PreparedSamples(samples, split, choosing, scaling, train, validation, development, test, calibration)


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


def _known_enough(samples: Samples, parts: Split) -> Samples:
    """Leave out sites that have fewer than 5 known values in the training part."""
    if samples.missing is None:
        return samples
    known = (~samples.missing[parts.train]).sum(axis=0).min(axis=0) >= _FEWEST_KNOWN
    if not known.any():
        raise DataError(f"no site is known in {_FEWEST_KNOWN} training samples")
    return samples if known.all() else samples.restrict(known)


def _check_varies(train: Samples) -> None:
    """Raise a DataError if the training part is constant."""
    if not (np.fmax.reduce(train.values) > np.fmin.reduce(train.values)).any():
        raise DataError("the training part is constant: every sample in it is the same, so nothing can be learned")


def _check_target_varies(train: Samples) -> None:
    """Raise a DataError if the target is constant in the training part."""
    target = train.target
    if target is not None and not (target.values != target.values[0]).any():
        raise DataError(f"target {target.name!r}: it never varies in the training part, so nothing can be learned")
