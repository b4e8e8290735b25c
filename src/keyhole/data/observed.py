"""Samples as sensors observe them that are rows of an operator, instead of one at each site."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.data.imputation import impute_by_covariance
from keyhole.data.placed_sensors import PlacedSensors, read_rows_over, rows_over
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.splits import Indices

__all__ = ["ObservedSamples"]

_LEAST_AVAILABLE = 0.02  # lower bound of the availability, so that the noise variance stays finite


@dataclass(frozen=True, eq=False, kw_only=True)
class ObservedSamples(ScaledSamples):
    r"""Scaled samples whose candidates are sensors: ``observable``, ``constraints`` and ``readings`` are about these.

    Values and targets are those of the sites, as in `ScaledSamples`. A sensor reads :math:`y = h z + e` with a row
    :math:`h` of ``operator`` and one value for each sample, so readings are ``(N, K, 1)``.

    Parameters
    ----------
    operator
        ``(s, channels * m)`` sparse array over the scaled values.
    spread
        ``(s,)``, standard deviation of the measurement noise of each sensor, in its own scale.
    unknown_noise
        ``(s,)``, the sensors whose noise neither they nor the data give.
    **others
        Those of `ScaledSamples`; ``sensors`` is given and ``noise`` is not.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.data import Sensors
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(20, 4, 5)))
    >>> between = Sensors.at({"row": [0.5, 3.0], "column": [1.5, 2.0]})
    >>> observed = samples.with_sensors(between).as_scaled()
    >>> observed.readings(np.array([0, 1])).shape, observed.targets.shape
    ((20, 2, 1), (20, 1, 20))
    """

    operator: Any = None
    spread: NDArray[np.float64] | None = None
    unknown_noise: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, samples: ScaledSamples, sensors: PlacedSensors, scale: NDArray[np.float64]) -> Self:
        """Return samples as sensors observe them.

        Parameters
        ----------
        samples
            Scaled by ``scale``; their noise is that of sensors which have none of their own.
        sensors
            The sensors.
        scale
            ``(channels,)``.
        """
        operator, own = sensors.scaled(scale)
        noise = None if samples.noise is None else samples.noise * scale[:, np.newaxis]
        given = {one.name: getattr(samples, one.name) for one in fields(samples) if one.init}
        given |= {
            "sensors": sensors, "noise": None, "operator": operator, "spread": sensors.noise_of(noise) / own,
            "unknown_noise": np.isnan(sensors.noise) & (noise is None),
        }  # fmt: skip
        return cls(**given)

    @property
    def placed(self) -> PlacedSensors:
        """The sensors."""
        if self.sensors is None:
            raise ValueError("ObservedSamples need sensors; make them with Samples.with_sensors")
        return self.sensors

    @cached_property
    def home(self) -> NDArray[np.int64]:
        """Site of the largest weight of each sensor."""
        return self.placed.home(len(self.sites))

    def reading_sites(self, candidates: Indices) -> NDArray[np.int64]:
        """Return the site of each reading: that of the largest weight of its sensor."""
        return self.home[candidates]

    @cached_property
    def level(self) -> NDArray[np.float64]:
        """Mean root of the loss weights that each sensor reads: the scale of its readings in units of the targets."""
        if self.root is None:
            return np.ones(len(self.placed))
        weights = abs(self.operator)
        root = np.tile(self.root.astype(np.float64), self.channels)
        level = np.asarray((weights @ root) / np.asarray(weights.sum(axis=1)).ravel())
        alone = np.diff(self.operator.indptr) == 1
        level[alone] = root[self.operator.indices[self.operator.indptr[:-1][alone]]]
        return level

    @cached_property
    def over_targets(self) -> Any:
        """The operator over targets instead of values, times ``level``, ``(s, channels * m)``."""
        if self.root is None:
            return self.operator
        from scipy.sparse import csr_array

        root = np.tile(self.root.astype(np.float64), self.channels)
        factor = np.repeat(self.level, np.diff(self.operator.indptr)) / root[self.operator.indices]
        parts = (self.operator.data * factor, self.operator.indices, self.operator.indptr)
        return csr_array(parts, shape=self.operator.shape)

    def clean_readings(self, candidates: Indices) -> NDArray[np.float32]:
        """Return readings without noise, ``(N, K)``; of imputed values where some are missing."""
        return np.asarray(read_rows_over(self.operator[candidates], self), np.float32)

    def draw_noise(self, sites: Indices) -> NDArray[np.float64]:
        """Return the measurement noise of each sample at some sensors, ``(N, 1, K)``; see `SampleSet.draw_noise`."""
        rows = np.arange(len(self)) if self.rows is None else self.rows
        return self.placed.draw_noise(rows, sites) * self._spread[sites]

    @property
    def _spread(self) -> NDArray[np.float64]:
        return np.zeros(len(self.placed)) if self.spread is None else self.spread

    def _unknown(self, candidates: Indices) -> NDArray[np.bool_]:
        """Which readings are missing, ``(N, K)``: those of a value that is."""
        if self.missing is None:
            return np.zeros((len(self), len(candidates)), bool)
        return np.asarray(rows_over(abs(self.operator[candidates]), self.missing.astype(np.float32)) > 0)

    def readings(self, sites: Indices) -> NDArray[np.floating[Any]]:
        """Return what some sensors measure, ``(N, K, 1)``; see `ScaledSamples.readings`."""
        sites = np.asarray(sites)
        readings = self.clean_readings(sites)
        if self._spread[sites].any():
            readings = readings + self.draw_noise(sites)[:, 0].astype(np.float32)
        unknown = self._unknown(sites)
        if unknown.any():
            readings = np.where(unknown, np.float32(np.nan), readings)
            if self.imputer is not None:
                readings = impute_by_covariance(readings, self.reading_covariance(sites)).astype(np.float32)
        return readings[:, :, np.newaxis]

    def reading_covariance(self, sites: Indices) -> NDArray[np.float64]:
        """Return the covariance of the readings, noise included, ``(K, K)``; see `ScaledSamples.reading_covariance`."""
        if self.imputer is None:
            return super().reading_covariance(sites)
        rows = self.operator[np.asarray(sites)]
        touched = np.unique(rows.indices)
        weights = rows[:, touched].toarray()
        if self.root is not None:
            weights = weights / self.root[touched % len(self.sites)]
        covariance = weights @ self.imputer.covariance(touched) @ weights.T
        return np.asarray(covariance + np.diag(np.square(self._spread[sites])))

    def availability(self) -> NDArray[np.float64] | None:
        """Return the share of the samples that each sensor reports, ``(s,)``; None where all always do."""
        own = self.placed.availability
        if self.missing is not None:
            return np.asarray(own * (1 - self._unknown(np.arange(len(self.placed))).mean(axis=0)))
        return own if (own < 1).any() else None

    def observed(self) -> NDArray[np.float32]:
        """Return what all sensors measure, ``(N, 1, s)``; zero where a value is missing."""
        every = np.arange(len(self.placed))
        readings = self.clean_readings(every)
        if self._spread.any():
            readings = readings + self.draw_noise(every)[:, 0].astype(np.float32)
        return np.where(self._unknown(every), np.float32(0), readings)[:, np.newaxis]

    def reading_noise(self, sites: Indices) -> NDArray[np.float64]:
        """Return the effective noise variance of each sensor in units of ``targets``; see `ScaledSamples`."""
        sites = np.asarray(sites)
        level, available = self.level[sites], self.availability()
        noise = np.square(self._spread[sites] * level)
        if available is not None:
            variance = (self.clean_readings(sites) * level).var(axis=0, dtype=np.float64)
            noise = noise + variance * (1 / np.maximum(available[sites], _LEAST_AVAILABLE) - 1)
        return np.asarray(noise[np.newaxis])

    def reading_spread(self, sites: Indices) -> NDArray[np.float64]:
        """Return one for each sensor, ``(1, K)``, as each has a scale of its own."""
        return np.ones((1, len(sites)))

    def assumed_noise(self, sites: Indices) -> NDArray[np.float64]:
        """Return the noise that searches assume of sensors without one of their own; see `ScaledSamples`."""
        if self.unknown_noise is None:
            return np.zeros((1, len(sites)))
        return super().assumed_noise(sites) * self.unknown_noise[sites]

    def search_noise(self, sites: Indices) -> NDArray[np.float64]:
        """Return the noise variance that searches count with, in units of ``targets``; see `ScaledSamples`."""
        return self.reading_noise(sites) + np.square(self.assumed_noise(sites) * self.level[sites])

    def at(self, sites: Indices) -> ScaledSamples:
        """Restrict the samples to some sites, with a noise-free sensor at each; see `ScaledSamples.at`."""
        return self.field.at(sites)

    @property
    def is_large(self) -> bool:
        """Always false: hyperparameters are chosen on all sites, which sensors may read."""
        return False

    @property
    def is_noisy(self) -> bool:
        """Whether any sensor has measurement noise."""
        return bool(self._spread.any())

    @cached_property
    def field(self) -> ScaledSamples:
        """The same samples with a noise-free sensor at each site."""
        given = {one.name: getattr(self, one.name) for one in fields(ScaledSamples) if one.init}
        return ScaledSamples(
            **{
                **given,
                "data": self.source,
                "sensors": None,
                "constraints": None,
                "observable": np.ones(len(self.sites), bool),
            }
        )
