"""Errors of what is known without sensors: mean, climatology, calendar, neighbours in time, principal components."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.data.climatology import Climatology
from keyhole.data.imputation import GaussianImputer
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.splits import Indices
from keyhole.data.target import Target
from keyhole.data.values import Panel
from keyhole.metrics import target_scores

__all__ = ["BASELINES", "BaselineSums", "Baselines", "EigenBasis", "KnownValues", "baseline_scores", "target_baseline"]

BASELINES = ("mean", "climatology", "calendar", "persistence", "interpolation", "components")
_NORM = "norm"  # the error of nothing: the values themselves
_BLOCK = 2**20  # values at a time

Field = NDArray[np.floating[Any]]
Sums = dict[str, NDArray[np.float64]]  # by baseline, (2, channels): squared errors, and how many


@dataclass(frozen=True, eq=False)
class EigenBasis:
    """Leading principal components of scaled training samples.

    Parameters
    ----------
    basis
        ``(channels, m, r)``, orthonormal over channels and sites together.
    mean
        ``(channels, m)``, subtracted before the projection.
    imputer
        The model that imputes missing values of the training samples.
    """

    basis: Field
    mean: Field
    imputer: GaussianImputer | None = None

    def projected(self, samples: Samples, scaler: Scaler) -> Field:
        """Return samples as these components hold them, in the user's units."""
        plain = replace(samples, sensors=None, constraints=None, observable=np.ones(len(samples.sites), bool))
        targets = scaler.apply(plain).impute(self.imputer).targets.reshape(len(samples), -1)
        flat, mean = self.basis.reshape(targets.shape[1], -1).astype(np.float32), self.mean.ravel().astype(np.float32)
        held = ((targets - mean) @ flat) @ flat.T + mean
        return scaler.undo(held.reshape(samples.shape), samples.time)


@dataclass(frozen=True, eq=False)
class Baselines:
    """Predictions of samples that use no readings, fitted to training samples.

    Parameters
    ----------
    samples
        All samples in the user's units, among which those before and after one in time are found.
    scaler
        Its baseline is the climatology; fitted to the training samples.
    mean
        ``(channels, m)``, mean of the training samples.
    calendar
        Harmonics of year and day, and their coefficients; None where there are none, or samples stay in their file.
    components
        Leading principal components, as many as readings; None if they are left out.
    """

    samples: Samples
    scaler: Scaler
    mean: Field
    calendar: tuple[Climatology, Field] | None = None
    components: EigenBasis | None = None

    @classmethod
    def of(cls, samples: Samples, train: Indices, scaler: Scaler, calendar: Climatology | None) -> Baselines:
        """Fit mean and calendar to training samples.

        Parameters
        ----------
        samples
            All samples, with their climatology.
        train
            Positions of the training samples, which ``scaler`` was fitted to.
        scaler
            Scaler of the training samples.
        calendar
            Harmonics to fit to samples in memory; None: none.
        """
        time = None if samples.time is None else samples.time[train]
        # The residuals of a least-squares fit sum to zero, so the mean of the fit is that of the samples.
        weights = scaler.climatology.design(time, len(train)).mean(axis=0)
        mean = np.tensordot(weights, scaler.baseline.astype(np.float64), axes=1)
        if calendar is None or calendar == scaler.climatology:
            return cls(samples, scaler, mean, None if calendar is None else (calendar, scaler.baseline))
        fitted = Scaler.fit(replace(samples.take(train), climatology=calendar))
        return cls(samples, scaler, mean, (calendar, fitted.baseline))

    @cached_property
    def neighbours(self) -> tuple[Indices, Indices] | None:
        """Position of the sample before and after each in time, in its own group, -1 where there is none.

        None for samples that are no series, or of which some of a group are of the same time.
        """
        time, groups = self.samples.time, self.samples.sample_groups
        if not self.samples.is_series:
            return None
        order, before = self.samples.order_in_time(), np.full(len(self.samples), -1)
        after, group = before.copy(), np.zeros(len(order), np.int64)
        if groups is not None:
            group = np.unique(groups, return_inverse=True)[1]
            order = order[np.argsort(group[order], kind="stable")]
        one, two = order[:-1], order[1:]
        same = group[one] == group[two]
        one, two = one[same], two[same]
        if time is not None and (time[one] == time[two]).any():
            return None
        before[two], after[one] = one, two
        return before, after

    def predictions(self, some: Samples, rows: Indices, known: KnownValues) -> Iterator[tuple[str, Field]]:
        """Yield the name of each baseline and its prediction of some samples, NaN where it has none.

        Parameters
        ----------
        some
            The samples.
        rows
            Their positions among all samples.
        known
            Samples whose values are at hand; all where ``samples`` are in memory.
        """
        yield _NORM, np.zeros((1, 1, 1))
        yield "mean", self.mean[np.newaxis]
        yield "climatology", self.scaler.expected(some)
        if self.calendar is not None:
            climatology, coefficients = self.calendar
            yield "calendar", climatology.expected(coefficients, climatology.lookup(some.time, len(some)))
        if self.neighbours is not None:
            before, after = (numbers[rows] for numbers in self.neighbours)
            previous, following = known.at(before), known.at(after)
            yield "persistence", previous
            share = self._share_of_step(rows, before, after)[:, np.newaxis, np.newaxis]
            yield "interpolation", previous + share * (following - previous)
        if self.components is not None:
            yield "components", self.components.projected(some, self.scaler)

    def _share_of_step(self, rows: Indices, before: Indices, after: Indices) -> NDArray[np.float64]:
        """How far each sample is from the one before it to the one after it, from 0 to 1."""
        if self.samples.time is None:
            return np.full(len(rows), 0.5)
        one, two, three = (self.samples.time[numbers] for numbers in (before, rows, after))
        with np.errstate(divide="ignore", invalid="ignore"):  # beside the first sample or the last
            return np.asarray((two - one) / (three - one), np.float64)


class KnownValues:
    """Samples whose values are at hand.

    Parameters
    ----------
    values
        ``(n, channels, m)``.
    rows
        ``(n,)``, their positions among all samples, ascending.
    """

    def __init__(self, values: Field, rows: Indices) -> None:
        self.values, self.rows = values, rows

    def at(self, wanted: Indices) -> Field:
        """Return the values at some positions; NaN where they are not at hand."""
        place = np.minimum(np.searchsorted(self.rows, wanted), len(self.rows) - 1)
        found = self.values[place]
        found[self.rows[place] != wanted] = np.nan
        return found


@dataclass(frozen=True, eq=False)
class BaselineSums:
    """The reduction that sums squared errors of baselines, each over samples of its own.

    Parameters
    ----------
    rows
        Position of each sample of the panels among all samples, ascending.
    scored
        The baselines, and the positions of the samples that they predict.
    """

    stage: ClassVar[str] = "errors without sensors"
    rows: Indices
    scored: Sequence[tuple[Baselines, Indices]]

    def start(self) -> list[Sums]:
        """Return sums over no samples."""
        return [{} for _ in self.scored]

    def update(self, state: list[Sums], panel: Panel[Samples]) -> list[Sums]:
        """Add the samples of a panel."""
        rows = self.rows[panel.start : panel.start + len(panel.samples)]
        step = max(1, _BLOCK // panel.samples.values[0].size)
        for sums, (baselines, part) in zip(state, self.scored, strict=True):
            known = KnownValues(panel.samples.values, rows)
            if baselines.samples.memory is None:
                known = KnownValues(baselines.samples.values, np.arange(len(baselines.samples)))
            mine = np.flatnonzero(np.isin(rows, part))
            for block in (mine[start : start + step] for start in range(0, len(mine), step)):
                some = panel.samples.take(block)
                for name, predicted in baselines.predictions(some, rows[block], known):
                    sums[name] = sums.get(name, 0.0) + _squares(some.values, predicted, baselines.scaler.spread)
        return state

    def merge(self, one: list[Sums], other: list[Sums]) -> list[Sums]:
        """Add the sums of two groups."""
        return [_together(first, second) for first, second in zip(one, other, strict=True)]


def _together(one: Sums, other: Sums) -> Sums:
    """Sums over both."""
    return {name: np.asarray(one.get(name, 0.0) + other.get(name, 0.0)) for name in {**one, **other}}


def _squares(truth: Field, predicted: Field, spread: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Squared errors over the spread, and how many there are, ``(2, channels)``, where both are known."""
    error = np.subtract(truth, predicted, dtype=np.float64) / (1.0 if spread is None else spread)
    known = ~np.isnan(error)
    error[~known] = 0
    return np.stack([np.einsum("ncm,ncm->c", error, error), known.sum(axis=(0, 2))])


def baseline_scores(
    sums: Mapping[str, NDArray[np.float64]], rmse: float, scale: NDArray[Any] | None
) -> dict[str, float]:
    r"""Return the errors of baselines, and the error of a plan relative to the field.

    Parameters
    ----------
    sums
        Of one part, from `BaselineSums`.
    rmse
        Root mean squared error of the plan on it.
    scale
        ``(channels,)``, by which errors of each channel are divided before they are averaged; None: not at all.

    Returns
    -------
    dict of str to float
        ``relative_l2``, the norm of the error over the norm of the field,
        :math:`\lVert x - \hat x \rVert / \lVert x \rVert`; ``fvu_field``, the squared error over that of the mean of
        the training samples; and ``baseline_rmse[name]`` of each baseline. What is not defined is left out.
    """
    square = 1.0 if scale is None else np.square(scale)
    roots = {name: _root(float((error / square).sum()), float(known.sum())) for name, (error, known) in sums.items()}
    norm, spread = roots.pop(_NORM), roots["mean"]
    found = {
        "relative_l2": rmse / norm if norm > 0 else math.nan,
        "fvu_field": (rmse / spread) ** 2 if spread > 0 else math.nan,
        **{f"baseline_rmse[{name}]": roots[name] for name in BASELINES if name in roots},
    }
    return {name: error for name, error in found.items() if math.isfinite(error)}


def _root(total: float, count: float) -> float:
    """Root of a mean; NaN of nothing."""
    return math.sqrt(total / count) if count > 0 else math.nan


def target_baseline(train: Target, part: Target) -> dict[str, float]:
    """Score what is known of a target without sensors: the share of each class, or the mean, of training samples.

    Parameters
    ----------
    train, part
        Target of the training samples, and of those that are scored.

    Returns
    -------
    dict of str to float
        ``baseline_target_error``, of the most frequent class, and ``baseline_target_log_loss``, of the shares of all
        classes; of a number ``baseline_target_rmse``.

    Examples
    --------
    >>> target = Target.of(["rain", "sun", "sun", "sun", "rain", "rain"])
    >>> target_baseline(target.take(np.arange(4)), target.take(np.arange(4, 6)))["baseline_target_error"]
    1.0
    """
    if train.is_class:
        shares = np.bincount(train.values.astype(np.int64), minlength=len(train.classes)) / len(train)
        known: Field = np.broadcast_to(shares, (len(part), len(shares)))
    else:
        known = np.full(len(part), train.values.mean())
    scores, kept = target_scores(part, known), ("error", "log_loss") if train.is_class else ("rmse",)
    return {f"baseline_target_{name}": scores[name] for name in kept}
