"""Scaling: subtract the mean or climatology, divide by one standard deviation for each channel, and invert both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, PlanError
from keyhole.data.covariates import Period, harmonics
from keyhole.data.samples import Samples, ScaledSamples
from keyhole.data.validation import Cycle
from keyhole.data.weights import sqrt_of_weights

__all__ = ["Scaler"]


@dataclass(frozen=True, eq=False)
class Scaler:
    r"""Map samples to anomalies of unit variance, and back.

    .. math:: z = (x - b) / s

    The baseline :math:`b` is the mean of the training samples, or their monthly climatology; the scale :math:`s` is the
    weighted root mean square of each channel's anomalies over samples and sites. Targets are
    :math:`\sqrt{w}\,z` with the loss weights :math:`w` relative to their mean.

    Parameters
    ----------
    baseline : ndarray of shape (1, channels, m) or (12, channels, m)
        Mean, or monthly climatology from January to December.
    scale : ndarray of shape (channels,)
        Positive; 1 for a constant channel.
    cycle : {"month"}, optional
        ``"month"`` where the baseline is a climatology.
    periods : tuple of {"year", "day"}
        Periods of time that are given to reconstructors as covariates.
    columns : ndarray of shape (2, c)
        Mean and standard deviation of the other covariates.
    root : ndarray of shape (m,), optional
        Square root of the relative loss weights; None: uniform.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(15.0, 3.0, size=(50, 4, 5)))
    >>> scaler = Scaler.fit(samples)
    >>> scaled = scaler.apply(samples)
    >>> np.allclose(scaled.values.std(), 1), np.allclose(scaler.undo(scaled.targets, None), samples.values, atol=1e-5)
    (True, True)
    """

    baseline: NDArray[np.floating[Any]]
    scale: NDArray[np.float64]
    cycle: Cycle | None = None
    periods: tuple[Period, ...] = ()
    columns: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 0)))
    root: NDArray[np.float32] | None = None

    @classmethod
    def fit(cls, samples: Samples) -> Scaler:
        """Estimate baseline and scale.

        Parameters
        ----------
        samples : Samples
            Training samples in the user's units; test samples must not be among them.

        Returns
        -------
        Scaler

        Raises
        ------
        DataError
            If there are no samples, or a climatology is wanted and a month has none.
        """
        return cls.fit_blocks(lambda: [samples])

    @classmethod
    def fit_blocks(cls, blocks: Callable[[], Iterable[Samples]]) -> Scaler:
        """Estimate baseline and scale from samples that do not fit in memory, in two passes.

        Parameters
        ----------
        blocks : callable
            Returns an iterator over blocks of samples; called once for each pass.

        Returns
        -------
        Scaler
        """
        baseline = _baseline(blocks())
        columns: list[NDArray[Any]] = []
        squares, known = np.zeros(baseline.shape[1]), np.zeros(baseline.shape[1])
        for block in blocks():
            root = sqrt_of_weights(block.weights)
            anomalies = np.square(block.values - baseline[_phase_of(block)], dtype=np.float64)
            squares += np.nansum(anomalies * (1.0 if root is None else np.square(root)), axis=(0, 2))
            known += (~np.isnan(block.values)).sum(axis=(0, 2))
            columns += [] if block.covariates is None else [block.covariates]
        scale = np.sqrt(squares / np.maximum(known, 1))
        moments = _moments(np.concatenate(columns) if columns else None)
        return cls(baseline, np.where(scale > 0, scale, 1.0), block.cycle, _periods_of(block), moments, root)

    def apply(self, samples: Samples) -> ScaledSamples:
        """Scale samples.

        Parameters
        ----------
        samples : Samples
            In the user's units.

        Returns
        -------
        ScaledSamples
            float32; zero where values are missing. ``covariates`` holds the standardised covariates with the harmonics
            of time.
        """
        values = samples.values - self.expected(samples)
        scaled = values if values.dtype == np.float32 else np.empty(values.shape, np.float32)
        values = np.divide(values, self._column, out=scaled, casting="same_kind")
        if samples.missing is not None:
            values[samples.missing] = 0
        return ScaledSamples(
            values=values, sites=samples.sites, observable=samples.observable, time=samples.time,
            ordered=samples.ordered, origin=samples.origin, target=samples.target,
            covariates=self.covariates(samples.time, samples.covariates, len(samples)), constraints=samples.constraints,
            weights=samples.weights, noise=None if samples.noise is None else samples.noise / self._column,
            rows=samples.rows, offset=None if self.cycle or self.root is not None else self.baseline[0] / self._column,
            missing=samples.missing,
        )  # fmt: skip

    def covariates(
        self, time: NDArray[np.datetime64] | None, columns: NDArray[Any] | None, n: int
    ) -> NDArray[np.float32]:
        """Return the covariates as reconstructors take them: harmonics of time, and standardised columns.

        Parameters
        ----------
        time : ndarray of datetime64, shape (n,), optional
            Needed if the scaler has periods.
        columns : ndarray of shape (n, c), optional
            Other covariates, in the user's units.
        n : int
            Number of samples.

        Returns
        -------
        ndarray of shape (n, 2 * periods + c)
            float32.

        Raises
        ------
        PlanError
            If time is missing, or the number of columns differs from the training samples.
        """
        if self.periods and time is None:
            raise PlanError(
                f"this plan uses the time of {self.periods[0]} as a covariate: give the time of each reading (time=...)"
            )
        given = np.zeros((n, 0)) if columns is None else np.asarray(columns, np.float64).reshape(n, -1)
        if given.shape[1] != self.columns.shape[1]:
            raise PlanError(
                f"covariates: {given.shape[1]} columns, the plan has {self.columns.shape[1]} (covariates=...)"
            )
        known = harmonics(time, self.periods) if time is not None else np.zeros((n, 0), np.float32)
        return np.concatenate([known, ((given - self.columns[0]) / self.columns[1]).astype(np.float32)], axis=1)

    def expected(self, samples: Samples) -> NDArray[np.floating[Any]]:
        """Return the baseline of each sample, ``(N, channels, m)``: the prediction without sensors.

        Without a climatology it is one row, ``(1, channels, m)``.
        """
        return self.baseline if self.cycle is None else self.baseline[_phase_of(samples)]

    def phase(self, time: NDArray[np.datetime64] | None, n: int) -> NDArray[np.int64]:
        """Return the row of ``baseline`` for each of ``n`` samples: the month from 0 to 11, or 0."""
        return _phase(time, n, self.cycle)

    def scale_readings(
        self, readings: NDArray[Any], sites: NDArray[np.int64], time: NDArray[np.datetime64] | None
    ) -> NDArray[np.float32]:
        """Scale readings; the inverse of `unscale_readings`.

        Parameters
        ----------
        readings : ndarray of shape (N, K, channels)
            In the user's units.
        sites : ndarray of int, shape (K,)
            Numbers of the sites.
        time : ndarray of datetime64, shape (N,), optional
            Needed with a monthly climatology.

        Returns
        -------
        ndarray of shape (N, K, channels)
            float32.
        """
        phase = _phase(time, len(readings), self.cycle)
        flat = self.baseline[:, :, sites]
        return np.asarray((readings - flat.transpose(0, 2, 1)[phase]) / self.scale, np.float32)

    def unscale_readings(
        self, scaled: NDArray[Any], sites: NDArray[np.int64], time: NDArray[np.datetime64] | None
    ) -> NDArray[np.float64]:
        """Convert scaled readings to the user's units; the inverse of `scale_readings`.

        Parameters
        ----------
        scaled : ndarray of shape (N, K, channels)
            Scaled readings.
        sites : ndarray of int, shape (K,)
            Numbers of the sites.
        time : ndarray of datetime64, shape (N,), optional
            Needed with a monthly climatology.

        Returns
        -------
        ndarray of shape (N, K, channels)
        """
        phase = _phase(time, len(scaled), self.cycle)
        flat = self.baseline[:, :, sites]
        return np.asarray(scaled * self.scale + flat.transpose(0, 2, 1)[phase], np.float64)

    def undo(self, scaled: NDArray[Any], time: NDArray[np.datetime64] | None) -> NDArray[np.floating[Any]]:
        """Convert scaled targets to the user's units; the inverse of `apply`.

        Parameters
        ----------
        scaled : ndarray of shape (N, channels, m)
            Reconstructed targets.
        time : ndarray of datetime64, shape (N,), optional
            Needed with a monthly climatology.

        Returns
        -------
        ndarray of shape (N, channels, m)
        """
        phase = _phase(time, len(scaled), self.cycle)
        plain = scaled if self.root is None else scaled / self.root
        return np.asarray(plain * self._column + self.baseline[phase], self.baseline.dtype)

    @property
    def _column(self) -> NDArray[np.float64]:
        """Scale of each channel, ``(channels, 1)``."""
        return self.scale[:, np.newaxis]


def _periods_of(samples: Samples) -> tuple[Period, ...]:
    """Periods that were set; by default the year where anomalies are monthly, as the time is then needed anyway."""
    if samples.periods is not None:
        return samples.periods
    return () if samples.cycle is None else ("year",)


def _moments(columns: NDArray[Any] | None) -> NDArray[np.float64]:
    """Mean and standard deviation of the covariates, ``(2, c)``."""
    if columns is None:
        return np.zeros((2, 0))
    spread = columns.std(axis=0)
    return np.stack([columns.mean(axis=0), np.where(spread > 0, spread, 1.0)])


def _phase(time: NDArray[np.datetime64] | None, n: int, cycle: Cycle | None) -> NDArray[np.int64]:
    """Row of the baseline for each of ``n`` samples."""
    if cycle is None:
        return np.zeros(n, np.int64)
    if time is None:
        raise PlanError(
            "this plan was fitted to monthly anomalies: give the time of each reading "
            "(time=..., --time, or a time column)"
        )
    if time.dtype.kind != "M":
        raise PlanError(
            "this plan was fitted to monthly anomalies: the time of each reading must be a date, not a number"
        )
    if len(time) != n:
        raise PlanError(f"time has {len(time)} entries for {n} readings")
    return time.astype("datetime64[M]").astype(np.int64) % 12


def _phase_of(samples: Samples) -> NDArray[np.int64]:
    """Row of the baseline for each sample."""
    return _phase(samples.time, len(samples), samples.cycle)


def _baseline(blocks: Iterable[Samples]) -> NDArray[np.floating[Any]]:
    """Mean of each site, by month with a climatology; the mean over all months where a month has no value."""
    totals: NDArray[np.float64] | None = None
    for block in blocks:
        values, phase = block.values, _phase_of(block)
        if totals is None:
            shape = (1 if block.cycle is None else 12, *values.shape[1:])
            totals, counts, seen = np.zeros(shape), np.zeros(shape), np.zeros(shape[0], np.int64)
        for month in np.unique(phase):
            selected = values[phase == month]
            totals[month] += np.nansum(selected, axis=0, dtype=np.float64)
            counts[month] += (~np.isnan(selected)).sum(axis=0)
            seen[month] += len(selected)
    if totals is None:
        raise DataError("there are no samples to fit a scaler to")
    absent = [str(month + 1) for month in np.flatnonzero(seen == 0)]
    if absent:
        raise DataError(f"the training part has no sample of month {', '.join(absent)}; a climatology needs all twelve")
    overall = _ratio(totals.sum(axis=0), counts.sum(axis=0), 0.0)
    return _ratio(totals, counts, overall).astype(values.dtype)


def _ratio(totals: NDArray[np.float64], counts: NDArray[np.float64], otherwise: Any) -> NDArray[np.float64]:
    """Quotient, and a default value where the count is zero."""
    return np.where(counts > 0, totals / np.maximum(counts, 1), otherwise)
