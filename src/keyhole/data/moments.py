"""Sums over samples, from which climatology, scale and variance of each site follow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.core.reduction import reduce
from keyhole.data.climatology import Climatology
from keyhole.data.samples import Samples
from keyhole.data.splits import Indices
from keyhole.data.values import Panel, as_slice, read_rows

__all__ = ["Moments", "Sums", "sums_over"]

_BLOCK = 2**20  # values that are converted to double precision at a time


@dataclass(eq=False)
class Moments:
    r"""Sums of values and of their squares over samples, relative to a shift, ignoring missing values.

    With the design :math:`D` of a climatology and the values :math:`X` of a site, the sums :math:`D'X` and :math:`D'D`
    give the coefficients of the climatology by least squares. Sums over different samples can be added.

    Parameters
    ----------
    climatology
        The climatology whose design it is.
    shift
        ``(channels, m)``, subtracted before summing, so that no digits are lost.
    totals
        ``(columns, channels, m)``, sums :math:`D'X`: of a monthly climatology those of each month.
    counts
        ``(groups, channels, m)``, number of the values, by month for a monthly climatology, else one group.
    squares
        ``(channels, m)``, sum of squares.
    low, high
        ``(channels, m)``, smallest and largest value.
    gram
        ``(columns, columns)``, sums :math:`D'D` over all samples.
    """

    climatology: Climatology
    shift: NDArray[np.floating[Any]]
    totals: NDArray[np.float64]
    counts: NDArray[np.int32]
    squares: NDArray[np.float64]
    low: NDArray[np.floating[Any]]
    high: NDArray[np.floating[Any]]
    gram: NDArray[np.float64]

    @classmethod
    def of(cls, samples: Samples, *parts: Indices) -> list[Moments]:
        """Sum over some parts of samples, in one pass and with one shift, so that the sums can be added.

        Parameters
        ----------
        samples
            In the user's units, with the climatology that is fitted.
        *parts
            Positions of the samples of each part.

        Raises
        ------
        DataError
            If the first part is empty.
        """
        together, sums = sums_over(samples, *parts)
        return reduce(samples.take(together).panels(), sums)

    def __add__(self, other: Moments) -> Moments:
        """Sums over both sets of samples."""
        return Moments(
            self.climatology, self.shift, self.totals + other.totals, self.counts + other.counts,
            self.squares + other.squares, np.fmin(self.low, other.low), np.fmax(self.high, other.high),
            self.gram + other.gram,
        )  # fmt: skip

    @property
    def varies(self) -> bool:
        """Whether any site has different values in different samples."""
        return bool((self.high > self.low).any())

    @property
    def are_complete(self) -> bool:
        """Whether no value is missing, so that the sums determine the coefficients of harmonics."""
        return bool((self.counts.sum(axis=0) == round(float(self.climatology.constant @ np.diag(self.gram)))).all())

    def restricted(self, climatology: Climatology) -> Moments:
        """Return the sums of a climatology whose columns are some of those of this one, by harmonics or the mean."""
        terms = climatology.terms or self.climatology.terms[:1]
        kept = [self.climatology.terms.index(term) for term in terms] if terms else [0]
        return replace(self, climatology=climatology, totals=self.totals[kept], gram=self.gram[np.ix_(kept, kept)])

    def baseline(self) -> NDArray[np.floating[Any]]:
        """Return the coefficients of the climatology, ``(columns, channels, m)``.

        They are the mean of each site, or of each site and month (over all months where a month has no value); or those
        of harmonics by least squares, where no value is missing (`are_complete`).

        Raises
        ------
        DataError
            If a month has no sample.
        """
        if self.climatology.kind == "harmonics":
            solved = np.linalg.solve(self.gram, self.totals.reshape(len(self.gram), -1)).reshape(self.totals.shape)
            solved[0] += self.shift
            return np.asarray(solved, self.shift.dtype)
        absent = [str(month + 1) for month in np.flatnonzero(np.diag(self.gram) == 0)]
        if absent:
            raise DataError(
                f"the training part has no sample of month {', '.join(absent)}; a climatology needs all twelve"
            )
        overall = _ratio(self.totals.sum(axis=0), self.counts.sum(axis=0), 0.0)
        return np.asarray(self.shift + _ratio(self.totals, self.counts, overall), self.shift.dtype)

    def anomaly_squares(self, baseline: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the sum of squared anomalies of each site, ``(channels, m)``; of harmonics if `are_complete`."""
        if self.climatology.kind == "harmonics":
            about = baseline.astype(np.float64)
            about[0] -= self.shift
            changes = (about * (np.tensordot(self.gram, about, axes=1) - 2 * self.totals)).sum(axis=0)
        else:
            about = np.subtract(baseline, self.shift, dtype=np.float64)
            changes = (about * (self.counts * about - 2 * self.totals)).sum(axis=0)
        return np.asarray(np.maximum(self.squares + changes, 0))


def sums_over(samples: Samples, *parts: Indices) -> tuple[Indices, Sums]:
    """Return the reduction that gives the `Moments` of some parts, and the samples whose panels it takes."""
    if len(parts[0]) == 0:
        raise DataError("there are no samples to fit a scaler to")
    number = np.zeros(len(samples), np.int64)
    for count, part in enumerate(parts):
        number[part] = count
    together = np.sort(np.concatenate(parts))
    shift = np.nan_to_num(read_rows(samples.source, np.arange(1))[0])
    return together, Sums(samples.climatology, shift, number[together], len(parts))


@dataclass(frozen=True, eq=False)
class Sums:
    """The reduction that sums over panels, for each part: which part a sample is of is its ``number``."""

    stage: ClassVar[str] = "means and variances"
    climatology: Climatology
    shift: NDArray[np.floating[Any]]
    number: NDArray[np.int64]
    n_parts: int

    def start(self) -> list[Moments]:
        """Return sums over no samples."""
        return [self._nothing() for _ in range(self.n_parts)]

    def update(self, state: list[Moments], panel: Panel[Samples]) -> list[Moments]:
        """Add the samples of a panel."""
        samples, number = panel.samples, self.number[panel.start : panel.start + len(panel.samples)]
        lookup = self.climatology.lookup(samples.time, len(samples))
        for part, moments in enumerate(state):
            mine = np.flatnonzero(number == part)
            if lookup.ndim == 2:
                self._add_harmonics(moments, lookup[mine], samples.values[as_slice(mine)])
                continue
            for month in np.unique(lookup[mine]):
                rows = mine[lookup[mine] == month]
                moments.gram[month, month] += len(rows)
                for block in self._blocks(len(rows)):
                    self._add(moments, int(month), samples.values[as_slice(rows[block])])
        return state

    def merge(self, one: list[Moments], other: list[Moments]) -> list[Moments]:
        """Join the sums of two groups."""
        return [first + second for first, second in zip(one, other, strict=True)]

    def _nothing(self) -> Moments:
        """Sums over no samples."""
        columns, shape = self.climatology.n_columns, self.shift.shape
        groups = columns if self.climatology.kind == "month" else 1
        unknown = np.full(shape, np.nan, self.shift.dtype)
        return Moments(
            self.climatology, self.shift, np.zeros((columns, *shape)), np.zeros((groups, *shape), np.int32),
            np.zeros(shape), unknown, unknown.copy(), np.zeros((columns, columns)),
        )  # fmt: skip

    def _blocks(self, n: int) -> list[slice]:
        """Blocks of samples that are converted to double precision at a time."""
        step = max(1, _BLOCK // self.shift.size)
        return [slice(start, start + step) for start in range(0, n, step)]

    def _add_harmonics(
        self, state: Moments, design: NDArray[np.float64], values: NDArray[np.floating[Any]]
    ) -> None:  # fmt: skip
        """Add some samples with their rows of the design, the first column of which is one."""
        state.gram += design.T @ design
        for block in self._blocks(len(values)):
            shifted = self._add(state, 0, values[block])
            state.totals[1:] += np.tensordot(design[block, 1:], shifted, axes=(0, 0))

    def _add(self, state: Moments, month: int, values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Add some samples of one month, and return them relative to the shift, zero where missing."""
        state.low = np.fmin(state.low, np.fmin.reduce(values))
        state.high = np.fmax(state.high, np.fmax.reduce(values))
        shifted = np.subtract(values, self.shift, dtype=np.float64)
        missing = np.isnan(shifted)
        shifted[missing] = 0
        state.totals[month] += shifted.sum(axis=0)
        state.counts[month] += len(values) - missing.sum(axis=0, dtype=np.int32)
        state.squares += np.einsum("nij,nij->ij", shifted, shifted)
        return np.asarray(shifted)


def _ratio(totals: NDArray[np.float64], counts: NDArray[Any], otherwise: Any) -> NDArray[np.float64]:
    """Quotient, and a default value where the count is zero."""
    return np.asarray(np.where(counts > 0, totals / np.maximum(counts, 1), otherwise), np.float64)
