"""Scaling: subtract what is known without sensors, divide by one number for each channel, and undo both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, PlanError
from keyhole.data.covariates import Period, harmonics
from keyhole.data.samples import Samples
from keyhole.data.validation import Cycle
from keyhole.data.weights import sqrt_of_weights

__all__ = ["Scaler"]

_NOISE_SEED = 20_261_116  # the same draw whenever the same samples are scaled


@dataclass(frozen=True, eq=False)
class Scaler:
    """A map to anomalies of unit size, and back.

    ``scaled = (x - baseline) / scale``. The baseline is what is known without sensors: the mean of the training
    block, or its climatology, one field for each month. The scale is one number for each channel, the root mean
    square of the anomalies.

    Parameters
    ----------
    baseline
        ``(1, channels, *grid)`` mean, or ``(12, channels, *grid)`` monthly climatology; zero outside.
    scale
        ``(channels,)``, positive.
    cycle
        ``"month"`` where the baseline is a climatology.
    rhythms
        Rhythms of time that are given to reconstructors.
    columns
        ``(2, c)``, mean and standard deviation of the other columns of context.
    root
        Of the grid's shape, the root of how much cells count: signals are multiplied by it, readings are not.
    """

    baseline: NDArray[np.floating[Any]]
    scale: NDArray[np.float64]
    cycle: Cycle | None = None
    periods: tuple[Period, ...] = ()
    columns: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 0)))
    root: NDArray[np.float32] | None = None

    @classmethod
    def fit(cls, signals: Samples) -> Scaler:
        """Learn baseline and scale; the test part is not to be among ``signals``."""
        return cls.fit_blocks(lambda: [signals])

    @classmethod
    def fit_blocks(cls, blocks: Callable[[], Iterable[Samples]]) -> Scaler:
        """Learn baseline and scale from signals that come some at a time; they are gone through twice."""
        baseline = _baseline(blocks())
        columns: list[NDArray[Any]] = []
        squares, known = np.zeros(baseline.shape[1]), np.zeros(baseline.shape[1])
        for block in blocks():
            root = sqrt_of_weights(block.weights, block.grid)
            values, axes = _inside(block), (0, *range(2, block.values.ndim))
            off = np.square(values - baseline[_phase_of(block)], dtype=np.float64)
            squares += np.nansum(off * (1.0 if root is None else np.square(root)), axis=axes)
            known += (~np.isnan(values) & block.grid.inside).sum(axis=axes)
            columns += [] if block.covariates is None else [block.covariates]
        scale = np.sqrt(squares / np.maximum(known, 1))
        standard = _standard(np.concatenate(columns) if columns else None)
        return cls(baseline, np.where(scale > 0, scale, 1.0), block.cycle, _rhythms(block), standard, root)

    def apply(self, signals: Samples) -> Samples:
        """Scale signals; single precision, zero outside the inside cells and where values are missing."""
        values = signals.values - (self.baseline if self.cycle is None else self.expected(signals))
        if not signals.grid.inside.all():
            values[:, :, ~signals.grid.inside] = 0
        if signals.gaps is not None:
            values[signals.gaps] = 0
        if self.root is not None:
            values *= self.root
        column = self._column(values.ndim)
        values = np.divide(values, column, out=np.empty(values.shape, np.float32), casting="same_kind")
        covariates = self.covariates(signals.time, signals.covariates, len(signals))
        zero = None if self.cycle or self.root is not None else self.baseline[0] / column
        scaled = replace(signals, values=values, covariates=covariates, zero=zero, root=self.root)
        if signals.noise is None:
            return scaled
        noise = signals.noise / column
        drawn = np.random.default_rng(_NOISE_SEED).standard_normal(values.shape, np.float32)
        return replace(scaled, noise=noise, noise_draw=np.asarray(drawn * noise, np.float32))

    def covariates(
        self, time: NDArray[np.datetime64] | None, columns: NDArray[Any] | None, n: int
    ) -> NDArray[np.float32]:
        """Give what is known of ``n`` samples without sensors, ``(n, columns)``: rhythms, and columns of unit size."""
        if self.periods and time is None:
            raise PlanError(f"this plan knows the time of {self.periods[0]}: give the time of each reading (time=...)")
        given = np.zeros((n, 0)) if columns is None else np.asarray(columns, np.float64).reshape(n, -1)
        if given.shape[1] != self.columns.shape[1]:
            raise PlanError(
                f"context: {given.shape[1]} columns where the plan was made with {self.columns.shape[1]} (context=...)"
            )
        known = harmonics(time, self.periods) if time is not None else np.zeros((n, 0), np.float32)
        return np.concatenate([known, ((given - self.columns[0]) / self.columns[1]).astype(np.float32)], axis=1)

    def expected(self, signals: Samples) -> NDArray[np.floating[Any]]:
        """Give what is known without sensors of each sample, ``(N, channels, *grid)``."""
        return self.baseline[_phase(signals.time, len(signals), self.cycle)]

    def phase(self, time: NDArray[np.datetime64] | None, n: int) -> NDArray[np.int64]:
        """Give the place in the baseline of each of ``n`` samples."""
        return _phase(time, n, self.cycle)

    def scale_readings(
        self, readings: NDArray[Any], sites: NDArray[np.int64], time: NDArray[np.datetime64] | None
    ) -> NDArray[np.float32]:
        """Scale readings ``(N, K, channels)`` of the sites (flat grid indices)."""
        phase = _phase(time, len(readings), self.cycle)
        flat = self.baseline.reshape(*self.baseline.shape[:2], -1)[:, :, sites]
        return np.asarray((readings - flat.transpose(0, 2, 1)[phase]) / self.scale, np.float32)

    def unscale_readings(
        self, scaled: NDArray[Any], sites: NDArray[np.int64], time: NDArray[np.datetime64] | None
    ) -> NDArray[np.float64]:
        """Bring scaled readings ``(N, K, channels)`` of the sites back to the user's units."""
        phase = _phase(time, len(scaled), self.cycle)
        flat = self.baseline.reshape(*self.baseline.shape[:2], -1)[:, :, sites]
        return np.asarray(scaled * self.scale + flat.transpose(0, 2, 1)[phase], np.float64)

    def undo(self, scaled: NDArray[Any], time: NDArray[np.datetime64] | None) -> NDArray[np.floating[Any]]:
        """Bring rebuilt ``(N, channels, *grid)`` back to the user's units."""
        phase = _phase(time, len(scaled), self.cycle)
        plain = scaled if self.root is None else scaled / self.root
        return np.asarray(plain * self._column(scaled.ndim) + self.baseline[phase], self.baseline.dtype)

    def _column(self, ndim: int) -> NDArray[np.float64]:
        return self.scale.reshape(-1, *[1] * (ndim - 2))


def _rhythms(signals: Samples) -> tuple[Period, ...]:
    """Those asked for; else the year where there is a cycle by month, for then the time must be given anyway."""
    if signals.periods is not None:
        return signals.periods
    return () if signals.cycle is None else ("year",)


def _standard(columns: NDArray[Any] | None) -> NDArray[np.float64]:
    if columns is None:
        return np.zeros((2, 0))
    spread = columns.std(axis=0)
    return np.stack([columns.mean(axis=0), np.where(spread > 0, spread, 1.0)])


def _phase(time: NDArray[np.datetime64] | None, n: int, cycle: Cycle | None) -> NDArray[np.int64]:
    if cycle is None:
        return np.zeros(n, np.int64)
    if time is None:
        raise PlanError(
            "this plan was made on anomalies by month: give the time of each reading "
            "(time=..., --time, or a time column)"
        )
    if time.dtype.kind != "M":
        raise PlanError("this plan was made on anomalies by month: give dates as the time of each reading, not numbers")
    if len(time) != n:
        raise PlanError(f"time has {len(time)} entries for {n} readings")
    return time.astype("datetime64[M]").astype(np.int64) % 12


def _phase_of(signals: Samples) -> NDArray[np.int64]:
    return _phase(signals.time, len(signals), signals.cycle)


def _inside(signals: Samples) -> NDArray[Any]:
    """Values, zero outside; NaN where they are missing."""
    return np.where(signals.grid.inside, signals.values, 0)


def _baseline(blocks: Iterable[Samples]) -> NDArray[np.floating[Any]]:
    """Mean of each cell, by month where there is a cycle; of one that no sample of a month knows, that over all."""
    totals: NDArray[np.float64] | None = None
    for block in blocks:
        values, phase = _inside(block), _phase_of(block)
        if totals is None:
            shape = (1 if block.cycle is None else 12, *values.shape[1:])
            totals, counts, seen = np.zeros(shape), np.zeros(shape), np.zeros(shape[0], np.int64)
        for month in np.unique(phase):
            mine = values[phase == month]
            totals[month] += np.nansum(mine, axis=0, dtype=np.float64)
            counts[month] += (~np.isnan(mine)).sum(axis=0)
            seen[month] += len(mine)
    if totals is None:
        raise DataError("there are no samples to learn a scaling from")
    absent = [str(month + 1) for month in np.flatnonzero(seen == 0)]
    if absent:
        raise DataError(
            f"the training block has no sample of month {', '.join(absent)}; a climatology needs all twelve"
        )
    whole = _ratio(totals.sum(axis=0), counts.sum(axis=0), 0.0)
    return _ratio(totals, counts, whole).astype(values.dtype)


def _ratio(totals: NDArray[np.float64], counts: NDArray[np.float64], otherwise: Any) -> NDArray[np.float64]:
    return np.where(counts > 0, totals / np.maximum(counts, 1), otherwise)
