"""Sums over samples, by month, from which baseline, scale and variance of each site follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.core.reduction import reduce
from keyhole.data.samples import Samples
from keyhole.data.splits import Indices
from keyhole.data.values import Panel, as_slice, read_rows

__all__ = ["Moments"]

MONTHS = 12
_BLOCK = 2**20  # values that are converted to double precision at a time


@dataclass(eq=False)
class Moments:
    """Sums of values and of their squares over samples, relative to a shift, ignoring missing values.

    Parameters
    ----------
    shift
        ``(channels, m)``, subtracted before summing, so that no digits are lost.
    totals, counts
        ``(phases, channels, m)``, sum and number of the values; one phase, or the twelve months.
    squares
        ``(channels, m)``, sum of squares.
    low, high
        ``(channels, m)``, smallest and largest value.
    seen
        ``(phases,)``, number of samples.
    """

    shift: NDArray[np.floating[Any]]
    totals: NDArray[np.float64]
    counts: NDArray[np.int32]
    squares: NDArray[np.float64]
    low: NDArray[np.floating[Any]]
    high: NDArray[np.floating[Any]]
    seen: NDArray[np.int64]

    @classmethod
    def of(cls, samples: Samples, *parts: Indices) -> list[Moments]:
        """Sum over some parts of samples, in one pass and with one shift, so that the sums can be added.

        Parameters
        ----------
        samples
            In the user's units.
        *parts
            Positions of the samples of each part.

        Raises
        ------
        DataError
            If the first part is empty.
        """
        if len(parts[0]) == 0:
            raise DataError("there are no samples to fit a scaler to")
        together = np.sort(np.concatenate(parts))
        number = np.zeros(len(samples), np.int64)
        for count, part in enumerate(parts):
            number[part] = count
        shift = np.nan_to_num(read_rows(samples.source, np.arange(1))[0])
        sums = _Sums(shift, 1 if samples.cycle is None else MONTHS, number[together], len(parts))
        return reduce(samples.take(together).panels(), sums)

    def __add__(self, other: Moments) -> Moments:
        """Sums over both sets of samples."""
        return Moments(
            self.shift, self.totals + other.totals, self.counts + other.counts, self.squares + other.squares,
            np.fmin(self.low, other.low), np.fmax(self.high, other.high), self.seen + other.seen,
        )  # fmt: skip

    @property
    def varies(self) -> bool:
        """Whether any site has different values in different samples."""
        return bool((self.high > self.low).any())

    def baseline(self) -> NDArray[np.floating[Any]]:
        """Return the mean of each site by phase, ``(phases, channels, m)``; over all where a phase has no value.

        Raises
        ------
        DataError
            If a month has no sample.
        """
        absent = [str(month + 1) for month in np.flatnonzero(self.seen == 0)]
        if absent:
            raise DataError(
                f"the training part has no sample of month {', '.join(absent)}; a climatology needs all twelve"
            )
        overall = _ratio(self.totals.sum(axis=0), self.counts.sum(axis=0), 0.0)
        return np.asarray(self.shift + _ratio(self.totals, self.counts, overall), self.shift.dtype)

    def anomaly_squares(self, baseline: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the sum of squared anomalies of each site, ``(channels, m)``."""
        about = np.subtract(baseline, self.shift, dtype=np.float64)
        changes = (about * (self.counts * about - 2 * self.totals)).sum(axis=0)
        return np.asarray(np.maximum(self.squares + changes, 0))


@dataclass(frozen=True, eq=False)
class _Sums:
    """The reduction that sums over panels, for each part: which part a sample is of is its ``number``."""

    stage: ClassVar[str] = "means and variances"
    shift: NDArray[np.floating[Any]]
    phases: int
    number: NDArray[np.int64]
    n_parts: int

    def start(self) -> list[Moments]:
        return [self._nothing() for _ in range(self.n_parts)]

    def update(self, state: list[Moments], panel: Panel[Samples]) -> list[Moments]:
        samples, step = panel.samples, max(1, _BLOCK // self.shift.size)
        number, phase = self.number[panel.start : panel.start + len(samples)], samples.phase()
        for part, moments in enumerate(state):
            mine = np.flatnonzero(number == part)
            for month in np.unique(phase[mine]):
                rows = mine[phase[mine] == month]
                moments.seen[month] += len(rows)
                for start in range(0, len(rows), step):
                    self._add(moments, int(month), samples.values[as_slice(rows[start : start + step])])
        return state

    def merge(self, one: list[Moments], other: list[Moments]) -> list[Moments]:
        return [first + second for first, second in zip(one, other, strict=True)]

    def _nothing(self) -> Moments:
        """Sums over no samples."""
        shape = (self.phases, *self.shift.shape)
        unknown = np.full(self.shift.shape, np.nan, self.shift.dtype)
        return Moments(
            self.shift, np.zeros(shape), np.zeros(shape, np.int32), np.zeros(shape[1:]), unknown, unknown.copy(),
            np.zeros(self.phases, np.int64),
        )  # fmt: skip

    def _add(self, state: Moments, month: int, values: NDArray[np.floating[Any]]) -> None:
        """Add some samples of one month."""
        state.low = np.fmin(state.low, np.fmin.reduce(values))
        state.high = np.fmax(state.high, np.fmax.reduce(values))
        shifted = np.subtract(values, self.shift, dtype=np.float64)
        missing = np.isnan(shifted)
        shifted[missing] = 0
        state.totals[month] += shifted.sum(axis=0)
        state.counts[month] += len(values) - missing.sum(axis=0, dtype=np.int32)
        state.squares += np.einsum("nij,nij->ij", shifted, shifted)


def _ratio(totals: NDArray[np.float64], counts: NDArray[Any], otherwise: Any) -> NDArray[np.float64]:
    """Quotient, and a default value where the count is zero."""
    return np.asarray(np.where(counts > 0, totals / np.maximum(counts, 1), otherwise), np.float64)
