"""Samples as methods work on them: anomalies in single precision, of unit variance in each channel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from keyhole.data.imputation import GaussianImputer, impute_by_covariance
from keyhole.data.noise import ASSUMED_NOISE
from keyhole.data.placed_sensors import PlacedSensors
from keyhole.data.sample_set import CHANNEL_AXES, SampleSet
from keyhole.data.splits import Indices
from keyhole.data.values import as_slice, read_columns

__all__ = ["ScaledSamples"]

_LEAST_AVAILABLE = 0.02  # lower bound of the availability, so that the noise variance stays finite


@dataclass(frozen=True, eq=False, kw_only=True)
class ScaledSamples(SampleSet):
    r"""Samples as methods work on them: anomalies in single precision, of unit variance in each channel.

    What a sensor reads is ``values``; what is to be reconstructed is `targets`, the values times the square root of the
    relative loss weights, so that a plain sum of squared errors is the weighted one.

    Parameters
    ----------
    offset : ndarray of shape (channels, m), optional
        The offset subtracted from all samples, in scaled units; None where it differs between samples, or weights do.
    root : ndarray of shape (m,), optional
        Square root of the relative loss weights; None: uniform.
    missing : ndarray of bool, shape (N, channels, m), optional
        Which values are missing; ``values`` holds imputed ones there, or zeros.
    imputer : GaussianImputer, optional
        The model that imputed missing values.
    site_variance : ndarray of shape (channels, m), optional
        Variance of the targets over these samples, where it is known already.
    **others
        Those of `SampleSet`.
    """

    offset: NDArray[np.floating[Any]] | None = None
    root: NDArray[np.float32] | None = None
    missing: NDArray[np.bool_] | None = None
    imputer: GaussianImputer | None = None
    site_variance: NDArray[np.float64] | None = None

    def observed_by(self, sensors: PlacedSensors | None, scale: NDArray[np.float64]) -> ScaledSamples:
        """Return the samples as sensors observe them, which have been scaled by ``scale``; unchanged without any."""
        from keyhole.data.observed import ObservedSamples

        return self if sensors is None else ObservedSamples.of(self, sensors, scale)

    def reading_sites(self, candidates: Indices) -> NDArray[np.int64]:
        """Return the site of each reading, ``(readings,)``, by which its distance to other sites is known."""
        return np.repeat(candidates, self.channels)

    @property
    def is_noisy(self) -> bool:
        """Whether the measurement noise of the sensors is known, which their readings then contain."""
        return self.noise is not None and bool(self.noise.any())

    @cached_property
    def targets(self) -> NDArray[np.float32]:
        """What is to be reconstructed, ``(N, channels, m)``: ``values`` times ``root``."""
        return self.values if self.root is None else self.values * self.root

    def target_variance(self) -> NDArray[np.float64]:
        """Return the variance of the targets over the samples, ``(channels, m)``."""
        return self._target_variance if self.site_variance is None else self.site_variance

    @cached_property
    def _target_variance(self) -> NDArray[np.float64]:
        """The variance in two passes."""
        mean = sum((panel.targets.sum(axis=0, dtype=np.float64) for _, panel in self.panels()), 0.0) / len(self)
        centre = np.asarray(mean, np.float32)
        squares = (np.square(panel.targets - centre).sum(axis=0, dtype=np.float64) for _, panel in self.panels())
        return np.asarray(sum(squares, 0.0)) / len(self)

    def at(self, sites: Indices) -> ScaledSamples:
        """Restrict the samples to some sites, in memory and without constraints.

        Parameters
        ----------
        sites : ndarray of int
            Numbers of the sites.
        """
        return replace(
            self, data=read_columns(self.source, sites), sites=self.sites.take(sites),
            observable=self.observable[sites], constraints=None, weights=_of(self.weights, sites),
            root=_of(self.root, sites), noise=_of(self.noise, sites), offset=_of(self.offset, sites),
            missing=_of(self.missing, sites), imputer=None, site_variance=_of(self.site_variance, sites),
        )  # fmt: skip

    @property
    def known_targets(self) -> NDArray[np.float32]:
        """The targets, NaN where they are missing, so that imputed values count in neither loss nor score."""
        targets = self.targets
        return targets if self.missing is None else np.where(self.missing, np.float32(np.nan), targets)

    def take(self, indices: Indices) -> ScaledSamples:
        """Return a subset of the samples; see `SampleSet.take`."""
        return replace(self, **self._entries(indices))

    def _entries(self, indices: Indices) -> dict[str, Any]:
        missing = None if self.missing is None else self.missing[as_slice(indices)]
        return super()._entries(indices) | {"missing": missing, "site_variance": None}

    def with_targets(self, targets: NDArray[Any], **changes: Any) -> ScaledSamples:
        """Return samples whose targets are given, such as the residual of a prediction."""
        values = targets if self.root is None else targets / self.root
        return replace(self, data=np.asarray(values, np.float32), offset=None, site_variance=None, **changes)

    def impute(self, imputer: GaussianImputer | None = None) -> ScaledSamples:
        """Impute the missing values by their conditional mean given the rest of the sample.

        Parameters
        ----------
        imputer : GaussianImputer, optional
            A fitted imputer of the targets; None to fit one to these samples.

        Returns
        -------
        ScaledSamples
            With ``imputer`` set; ``missing`` still marks the imputed values.
        """
        if self.missing is None:
            return self
        rows, missing = self.targets.reshape(len(self), -1), self.missing.reshape(len(self), -1)
        imputer = imputer or GaussianImputer.fit(rows, missing)
        filled = imputer.fill(rows, missing).reshape(self.values.shape)
        return replace(self.with_targets(filled), offset=self.offset, imputer=imputer)

    def availability(self) -> NDArray[np.float64] | None:
        """Return the share of samples with a value at each site, ``(m,)``; None without missing values."""
        return None if self.missing is None else 1 - self.missing.mean(axis=(0, 1), dtype=np.float64)

    def readings(self, sites: Indices) -> NDArray[np.floating[Any]]:
        """Return what sensors at some sites measure, with measurement noise.

        Parameters
        ----------
        sites : ndarray of int, shape (K,)
            Numbers of the sites.

        Returns
        -------
        ndarray of shape (N, K, channels)
            A missing reading is NaN, or, if missing values were imputed, its conditional mean given the other readings
            of the same sample.
        """
        readings = read_columns(self.source, sites)
        if self.noise is not None:
            readings = readings + self.draw_noise(sites).astype(np.float32)
        if self.missing is not None:
            readings = self._impute_readings(readings, sites)
        return readings.transpose(0, 2, 1)

    def _impute_readings(self, readings: NDArray[Any], sites: Indices) -> NDArray[np.floating[Any]]:
        """Impute missing readings from the others of the same sample; leave NaN if there is no imputer."""
        missing = np.zeros(readings.shape, bool) if self.missing is None else self.missing[:, :, sites]
        rows = np.where(missing, np.nan, readings)
        if self.imputer is None or not missing.any():
            return rows
        covariance = self.reading_covariance(sites)
        return impute_by_covariance(rows.reshape(len(rows), -1), covariance).reshape(rows.shape).astype(np.float32)

    def reading_covariance(self, sites: Indices) -> NDArray[np.float64]:
        """Return the covariance of the readings, noise included.

        Parameters
        ----------
        sites : ndarray of int, shape (K,)
            Numbers of the sites.

        Returns
        -------
        ndarray of shape (channels * K, channels * K)
            Channel-major. From the imputer's low-rank model if there are missing values, else the sample covariance.
        """
        if self.imputer is None:
            rows = self.readings(sites).transpose(0, 2, 1).reshape(len(self), -1).astype(np.float64)
            return np.asarray(rows.T @ rows / len(rows))
        columns = np.concatenate([channel * len(self.sites) + sites for channel in range(self.channels)])
        root = np.ones(len(columns)) if self.root is None else np.tile(self.root[sites], self.channels)
        noise = np.zeros(len(columns)) if self.noise is None else np.square(self.noise[:, sites].ravel())
        return np.asarray(self.imputer.covariance(columns) / np.outer(root, root) + np.diag(noise))

    def observed(self) -> NDArray[np.float32]:
        """Return what sensors at all sites measure, ``(N, channels, m)``; zero where values are missing."""
        values = self.values
        if self.noise is not None:
            values = values + self.draw_noise(np.arange(len(self.sites))).astype(np.float32)
        return values if self.missing is None else np.where(self.missing, np.float32(0), values)

    def observed_targets(self) -> NDArray[np.float32]:
        """Return `observed` in units of `targets`; `targets` itself where sensors are perfect."""
        if self.noise is None and self.missing is None:
            return self.targets
        return self.observed() if self.root is None else self.observed() * self.root

    def reading_noise(self, sites: Indices) -> NDArray[np.float64]:
        """Return the effective noise variance of each site's readings, in units of ``targets`` squared.

        The availability :math:`a` of a site enters as additional noise of :math:`(1/a - 1)` times the variance of the
        site: a single site then explains the share :math:`a` of what it would explain if it were always available.

        Parameters
        ----------
        sites : ndarray of int, shape (K,)
            Numbers of the sites.

        Returns
        -------
        ndarray of shape (channels, K)
        """
        noise = np.zeros((self.channels, len(sites)))
        root = 1.0 if self.root is None else self.root[sites]
        if self.noise is not None:
            noise = noise + np.square(self.noise[:, sites] * root)
        available = self.availability()
        if available is not None:
            variance = (read_columns(self.source, sites) * root).var(axis=0, dtype=np.float64)
            noise = noise + variance * (1 / np.maximum(available[sites], _LEAST_AVAILABLE) - 1)
        return noise

    def reading_spread(self, sites: Indices) -> NDArray[np.float64]:
        """Return the spread of the channel of each reading, ``(channels, K)``: one, by the scaling.

        Where channels were made sites of their own (`Samples.channels_apart`), all were scaled together, and it is the
        root mean variance of the sites of the same channel.
        """
        if self.sites.dims[:1] not in {(axis,) for axis in CHANNEL_AXES}:
            return np.ones((self.channels, len(sites)))
        channel = self.sites.places[0]
        variance = self.target_variance()[0] / (1.0 if self.root is None else np.square(self.root))
        mean = np.bincount(channel, variance) / np.maximum(np.bincount(channel), 1)
        return np.asarray(np.sqrt(mean)[channel[sites]][np.newaxis])

    def assumed_noise(self, sites: Indices) -> NDArray[np.float64]:
        """Return the standard deviation of the noise that searches assume of each reading, ``(channels, K)``.

        It is `ASSUMED_NOISE` of the channel's spread; zero where the noise is given, and for the columns of a table,
        which no sensor measures. Readings for fits and errors are without it.
        """
        if self.noise is not None or self.origin.kind == "table":
            return np.zeros((self.channels, len(sites)))
        return ASSUMED_NOISE * self.reading_spread(sites)

    def search_noise(self, sites: Indices) -> NDArray[np.float64]:
        """Return the noise variance that searches count with, in units of ``targets`` squared, ``(channels, K)``.

        That of `reading_noise`, and where no noise is given that of `assumed_noise`.
        """
        root = 1.0 if self.root is None else self.root[sites]
        return self.reading_noise(sites) + np.square(self.assumed_noise(sites) * root)


Of = TypeVar("Of", bound=np.generic)


def _of(values: NDArray[Of] | None, sites: Indices) -> NDArray[Of] | None:
    """Entries of some sites along the last axis."""
    return None if values is None else values[..., sites]
