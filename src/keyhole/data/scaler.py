"""Scaling: subtract the climatology, divide by one standard deviation for each channel, and invert both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError
from keyhole.data.climatology import MEAN, Climatology
from keyhole.data.climatology_choice import with_climatology
from keyhole.data.covariates import Period, harmonics
from keyhole.data.moments import Moments
from keyhole.data.normal_equations import fit_harmonics
from keyhole.data.origin import SourceInfo
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.values import DeferredValues, Values, memory_of, read_columns, read_rows, whole_of
from keyhole.data.weights import sqrt_of_weights

__all__ = ["Scaler"]


@dataclass(frozen=True, eq=False)
class Scaler:
    r"""Map samples to anomalies of unit variance, and back.

    .. math:: z = (x - b) / s

    The baseline :math:`b` is the climatology of the training samples: their mean, the mean of each month, or harmonics
    of the year and of the day. The scale :math:`s` is the weighted root mean square of each channel's anomalies over
    samples and sites. Targets are
    :math:`\sqrt{w}\,z` with the loss weights :math:`w` relative to their mean.

    Parameters
    ----------
    baseline : ndarray of shape (columns, channels, m)
        Coefficients of the climatology: the mean, the means of January to December, or those of harmonics.
    scale : ndarray of shape (channels,)
        Positive; 1 for a constant channel.
    climatology : Climatology
        What the coefficients are of.
    periods : tuple of {"year", "day"}
        Periods of time that are given to reconstructors as covariates.
    columns : ndarray of shape (2, c)
        Mean and standard deviation of the other covariates.
    root : ndarray of shape (m,), optional
        Square root of the relative loss weights; None: uniform.
    spread : ndarray of shape (m,), optional
        Standard deviation of each column of a table, by which values are divided besides ``scale``; None: one for all.

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
    climatology: Climatology = MEAN
    periods: tuple[Period, ...] = ()
    columns: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 0)))
    root: NDArray[np.float32] | None = None
    spread: NDArray[np.float64] | None = None

    @classmethod
    def fit(cls, samples: Samples) -> Scaler:
        """Estimate baseline and scale.

        Parameters
        ----------
        samples : Samples
            Training samples in the user's units; test samples must not be among them. If they name no climatology, it
            is chosen by cross-validation (`choose_climatology`).

        Returns
        -------
        Scaler

        Raises
        ------
        DataError
            If there are no samples, or a climatology is wanted and a month has none.
        """
        every = np.arange(len(samples))
        samples, _ = with_climatology(samples, every)
        return cls.of(Moments.of(samples, every)[0], samples)

    @classmethod
    def of(cls, moments: Moments, samples: Samples) -> Scaler:
        """Make a scaler from sums over samples.

        Parameters
        ----------
        moments : Moments
            Sums over the samples.
        samples : Samples
            The samples themselves, for weights and covariates.

        Returns
        -------
        Scaler
        """
        climatology, root = moments.climatology, sqrt_of_weights(samples.weights)
        partly = climatology.kind == "harmonics" and not moments.are_complete
        baseline = fit_harmonics(samples, climatology) if partly else moments.baseline()
        # Large samples are not gone through once more.
        once = samples.is_large and not partly
        squares = moments.anomaly_squares(baseline) if once else _anomaly_squares(samples, climatology, baseline)
        known = moments.counts.sum(axis=(0, 2), dtype=np.int64)
        weighted = squares * (1.0 if root is None else np.square(root))
        weighted = weighted if samples.spread is None else weighted / np.square(samples.spread)
        scale = np.sqrt(weighted.sum(axis=1) / np.maximum(known, 1))
        columns = _moments(samples.covariates)
        periods, scale = (
            climatology.periods if samples.periods is None else samples.periods,
            np.where(scale > 0, scale, 1.0),
        )
        return cls(baseline, scale, climatology, periods, columns, root, samples.spread)

    def target_variance(self, moments: Moments) -> NDArray[np.float64]:
        """Return the variance of the scaled targets over the samples of some sums, ``(channels, m)``."""
        weight = 1.0 if self.root is None else np.square(self.root)
        squares = moments.anomaly_squares(self.baseline) / np.square(self.unit)
        return np.asarray(squares * weight / np.maximum(moments.counts.sum(axis=0), 1))

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
        scaled = ScaledSamples(
            data=_ScaledValues(samples.source, self, self.climatology.lookup(samples.time, len(samples))),
            sites=samples.sites,
            observable=samples.observable, time=samples.time, ordered=samples.ordered, origin=samples.origin,
            target=samples.target, covariates=self.covariates(samples.time, samples.covariates, len(samples)),
            sample_groups=samples.sample_groups, constraints=samples.constraints, weights=samples.weights,
            noise=None if samples.noise is None else samples.noise / self.unit, rows=samples.rows,
            offset=None if self.climatology.needs_time or self.root is not None else self.baseline[0] / self.unit,
            root=sqrt_of_weights(samples.weights), missing=samples.missing,
        )  # fmt: skip
        return scaled.observed_by(samples.sensors, self.scale)

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

    def error_scale(self, origin: SourceInfo) -> NDArray[np.float64]:
        """Return what errors are divided by before they are averaged, ``(channels, m)``.

        One; the standard deviation of the channel where units differ; that of the column where columns count alike.
        """
        shape = self.baseline.shape[1:]
        return np.array(np.broadcast_to(self.unit if origin.units_differ else 1.0, shape), np.float64)

    def expected(self, samples: Samples) -> NDArray[np.floating[Any]]:
        """Return the baseline of each sample, ``(N, channels, m)``: the prediction without sensors.

        Where it is the mean it is one row, ``(1, channels, m)``.
        """
        return self._expected(self.baseline, samples.time, len(samples))

    @property
    def mean(self) -> NDArray[np.floating[Any]]:
        """Mean of the baseline over the calendar, ``(channels, m)``."""
        return self.climatology.mean(self.baseline)

    def _expected(
        self, coefficients: NDArray[Any], time: NDArray[np.datetime64] | None, n: int
    ) -> NDArray[np.floating[Any]]:
        """Baseline of each of ``n`` samples by coefficients ``(columns, ...)``; the mean as one row."""
        return self.climatology.expected(coefficients, self.climatology.lookup(time, n))

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
            Needed unless the baseline is the mean.

        Returns
        -------
        ndarray of shape (N, K, channels)
            float32.
        """
        baseline = self._expected(self.baseline[:, :, sites].transpose(0, 2, 1), time, len(readings))
        return np.asarray((readings - baseline) / self.unit_at(sites).T, np.float32)

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
            Needed unless the baseline is the mean.

        Returns
        -------
        ndarray of shape (N, K, channels)
        """
        baseline = self._expected(self.baseline[:, :, sites].transpose(0, 2, 1), time, len(scaled))
        return np.asarray(scaled * self.unit_at(sites).T + baseline, np.float64)

    def undo(self, scaled: NDArray[Any], time: NDArray[np.datetime64] | None) -> NDArray[np.floating[Any]]:
        """Convert scaled targets to the user's units; the inverse of `apply`.

        Parameters
        ----------
        scaled : ndarray of shape (N, channels, m)
            Reconstructed targets.
        time : ndarray of datetime64, shape (N,), optional
            Needed unless the baseline is the mean.

        Returns
        -------
        ndarray of shape (N, channels, m)
        """
        plain = scaled if self.root is None else scaled / self.root
        return np.asarray(plain * self.unit + self._expected(self.baseline, time, len(scaled)), self.baseline.dtype)

    @property
    def unit(self) -> NDArray[np.float64]:
        """What values are divided by: ``(channels, 1)``, or ``(channels, m)`` where each site has its own spread."""
        scale = self.scale[:, np.newaxis]
        if self.spread is None:
            return scale
        with np.errstate(over="ignore"):  # of a damaged file; what is not finite is refused where it is used
            return np.asarray(scale * self.spread)

    def unit_at(self, sites: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        """Return the unit of some sites, ``(channels, 1)`` or ``(channels, sites)``."""
        return self.unit if self.spread is None else self.unit[:, sites]


@dataclass(frozen=True, eq=False)
class _ScaledValues(DeferredValues):
    """Values that are scaled when they are used.

    Parameters
    ----------
    base
        In the user's units.
    scaler
        Baseline and scale.
    lookup
        What the climatology needs of each sample's time.
    """

    base: Values
    scaler: Scaler
    lookup: NDArray[Any]
    shape: tuple[int, int, int] = field(init=False)
    dtype: np.dtype[Any] = field(init=False, default=np.dtype(np.float32))

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", self.base.shape)

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scale some samples; see `DeferredValues.read`."""
        return self._scaled(read_rows(self.base, rows), self.lookup[rows], slice(None))

    def columns(self, sites: NDArray[np.int64] | slice) -> NDArray[np.float32]:
        """Scale some sites; see `DeferredValues.columns`."""
        return self._scaled(read_columns(self.base, sites), self.lookup, sites)

    @property
    def memory(self) -> int | None:
        """Bytes that may be taken, as for ``base``."""
        return memory_of(self.base)

    @property
    def whole(self) -> int:
        """Number of samples of the data that ``base`` is part of."""
        return whole_of(self.base)

    def _scaled(
        self, values: NDArray[Any], lookup: NDArray[Any], sites: NDArray[np.int64] | slice
    ) -> NDArray[np.float32]:
        """Scaled values of some sites; zero where they are missing."""
        anomalies = values - self.scaler.climatology.expected(self.scaler.baseline[:, :, sites], lookup)
        scaled = anomalies if anomalies.dtype == np.float32 else np.empty(anomalies.shape, np.float32)
        np.divide(anomalies, self.scaler.unit_at(sites), out=scaled, casting="same_kind")
        missing = np.isnan(scaled)
        if missing.any():
            scaled[missing] = 0
        return scaled


def _anomaly_squares(
    samples: Samples, climatology: Climatology, baseline: NDArray[np.floating[Any]]
) -> NDArray[np.float64]:
    """Sum of squared anomalies of each site, ``(channels, m)``."""
    squares = np.zeros(baseline.shape[1:])
    for _, panel in samples.panels():
        expected = climatology.expected(baseline, climatology.lookup(panel.time, len(panel)))
        squares += np.nansum(np.square(panel.values - expected, dtype=np.float64), axis=0)
    return squares


def _moments(columns: NDArray[Any] | None) -> NDArray[np.float64]:
    """Mean and standard deviation of the covariates, ``(2, c)``."""
    if columns is None:
        return np.zeros((2, 0))
    spread = columns.std(axis=0)
    return np.stack([columns.mean(axis=0), np.where(spread > 0, spread, 1.0)])
