"""Split and scale samples for selection and fitting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.data.climatology_choice import choose_and_sum
from keyhole.data.moments import Moments
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.scaler import Scaler
from keyhole.data.screening import exclude, notes, screen, warn_about
from keyhole.data.sentinels import warn_of_sentinels
from keyhole.data.split_choice import choose_split
from keyhole.data.splits import Split, SplitLike
from keyhole.data.table_columns import column_spread

__all__ = ["PreparedSamples", "prepare", "prepare_all", "prepare_with", "split_of", "standardise"]

_FEWEST_KNOWN = 5  # training samples that must know a cell
_ROUNDING = 1e-6  # standard deviation, as a share of a column's largest value, below which it varies by rounding only


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
    test : Samples
        Unscaled.
    notes : mapping
        Findings about the columns of a table, for the plan's record.
    anomalies_reason : str
        Why the climatology of the samples was chosen.
    """

    samples: Samples
    split: Split
    choosing: Scaler
    scaling: Scaler
    train: ScaledSamples
    validation: ScaledSamples
    development: ScaledSamples
    test: Samples
    notes: Mapping[str, Any] = field(default_factory=dict)
    anomalies_reason: str = ""

    def with_site_variance(
        self, train: NDArray[np.float64], development: NDArray[np.float64]
    ) -> PreparedSamples:  # fmt: skip
        """Set the variance of the targets over the training part, and over the development part."""
        return replace(
            self, train=replace(self.train, site_variance=train),
            development=replace(self.development, site_variance=development),
        )  # fmt: skip

    @property
    def existing(self) -> NDArray[np.int64]:
        """Numbers of the existing sites."""
        return self.samples.existing


def prepare(samples: Samples, split: SplitLike, seed: int) -> PreparedSamples:
    """Split and scale samples.

    Choices are made with a scaler fitted to the training part; the plan's scaler is fitted to all but the test part.
    Columns of a table that duplicate others or number the rows are reported and excluded from the candidates
    (`screen`).

    Parameters
    ----------
    samples : Samples
        In the user's units.
    split : Split, str, mapping, tuple or None
        As `choose_split` takes it.
    seed : int
        Seed of a random split.

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
    samples = exclude(samples, findings)
    parts = split_of(samples, split, seed)
    samples = replace(_known_enough(samples, parts), ordered=parts.kind == "blocks")
    samples, reason, (moments, others) = choose_and_sum(samples, parts.train, parts.validation)
    train, development = samples.take(parts.train), samples.take(_development(samples, parts))
    if not moments.varies:
        raise DataError("the training part is constant: every sample in it is the same, so nothing can be learned")
    _check_target_varies(train)
    together = moments + others
    warn_of_sentinels(development, together.low, together.high)
    if samples.standardise and samples.sensors is None:
        samples = standardise(samples, together)
        train, development = samples.take(parts.train), samples.take(_development(samples, parts))
    choosing, scaling = Scaler.of(moments, train), Scaler.of(together, development)
    _check_precision(together, scaling)
    prepared = prepare_with(samples, parts, choosing, scaling)
    if samples.is_large and samples.missing is None:
        variances = choosing.target_variance(moments), scaling.target_variance(together)
        prepared = prepared.with_site_variance(*variances)
    return replace(prepared, notes=notes(findings), anomalies_reason=reason)


def prepare_all(prepared: PreparedSamples) -> PreparedSamples:
    """Scale all samples, for the fit that follows once everything is chosen and measured.

    Parameters
    ----------
    prepared : PreparedSamples
        The parts on which that was done.

    Returns
    -------
    PreparedSamples
        All samples are the development part, also those of the test part and of gaps; one scaler is fitted to them.
        ``validation`` has the samples of the validation part.
    """
    samples, split = prepared.samples, prepared.split
    rows = split.all_rows(samples.order_in_time() if samples.is_series else None, len(samples))
    whole = samples.take(rows)
    scaling = Scaler.of(Moments.of(samples, np.sort(rows))[0], whole)
    development = scaling.apply(whole).impute()
    validation = scaling.apply(samples.take(split.validation)).impute(development.imputer)
    return replace(
        prepared,
        choosing=scaling,
        scaling=scaling,
        train=development,
        validation=validation,
        development=development,
    )


def standardise(samples: Samples, moments: Moments) -> Samples:
    """Set the standard deviations by which the columns of a table are divided; errors are in these units.

    Parameters
    ----------
    samples : Samples
        A table.
    moments : Moments
        Sums over all samples but the test part.

    Returns
    -------
    Samples
        With ``spread``.
    """
    squares, counts = moments.anomaly_squares(moments.baseline()), moments.counts.sum(axis=0)
    largest = np.maximum(np.abs(moments.low), np.abs(moments.high))
    variance = squares / np.maximum(counts, 1)
    varies = np.sqrt(variance) > _ROUNDING * largest
    columns = samples.origin.columns
    owners = None if columns is None else columns.owners[samples.sites.index]
    spread = column_spread(np.where(varies, variance, 0.0)[0], owners)
    constant = np.where(largest > 0, largest, 1.0)[0]
    origin = replace(samples.origin, standardised=True)
    return replace(samples, spread=np.where(spread > 0, spread, constant), origin=origin)


def split_of(samples: Samples, split: SplitLike, seed: int) -> Split:
    """Return the parts that `prepare` splits samples into; parameters as there."""
    parts = choose_split(samples, split, seed)
    return parts if samples.memory is None else parts.in_order()


def prepare_with(samples: Samples, split: Split, choosing: Scaler, scaling: Scaler) -> PreparedSamples:
    """Split, scale with given scalers, and impute missing values."""
    train, validation = (choosing.apply(samples.take(rows)) for rows in (split.train, split.validation))
    train = train.impute()
    validation = validation.impute(train.imputer)
    development = scaling.apply(samples.take(_development(samples, split))).impute()
    test = samples.take(split.test)
    return PreparedSamples(samples, split, choosing, scaling, train, validation, development, test)


def _development(samples: Samples, split: Split) -> NDArray[np.int64]:
    """Training and validation samples, in the order of the file where they stay in it."""
    return split.development if samples.memory is None else np.sort(split.development)


def _known_enough(samples: Samples, parts: Split) -> Samples:
    """Leave out sites that have fewer than 5 known values in the training part."""
    if samples.missing is None:
        return samples
    known = (~samples.missing[parts.train]).sum(axis=0).min(axis=0) >= _FEWEST_KNOWN
    if not known.any():
        raise DataError(f"no site is known in {_FEWEST_KNOWN} training samples")
    return samples if known.all() else samples.restrict(known)


def _check_precision(moments: Moments, scaler: Scaler) -> None:
    """Raise a DataError if scaled values are infinite or vanish in single precision."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        extremes = [(bound - scaler.mean) / scaler.unit for bound in (moments.low, moments.high)]
        scaled = np.stack(extremes).astype(np.float32)
    known = scaled[:, ~np.isnan(moments.low)]
    if not np.isfinite(known).all() or not known.any():
        raise DataError("the values are too large or too small for single precision once scaled; change their unit")


def _check_target_varies(train: Samples) -> None:
    """Raise a DataError if the target is constant in the training part."""
    target = train.target
    if target is not None and not (target.values != target.values[0]).any():
        raise DataError(f"target {target.name!r}: it never varies in the training part, so nothing can be learned")
