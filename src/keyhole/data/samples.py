"""The data model: N samples of a field on one grid, with time, target, covariates, constraints and missing values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.data.alignment import by_time, same_times
from keyhole.data.batches import Source
from keyhole.data.constraints import Constraints, FeasibleSet, PlacementRules, ResolvedConstraints
from keyhole.data.covariates import Period, check_periods
from keyhole.data.grid import Grid
from keyhole.data.imputation import GaussianImputer, impute_by_covariance
from keyhole.data.origin import SourceInfo
from keyhole.data.splits import Indices, Split
from keyhole.data.target import Target
from keyhole.data.validation import (
    Cycle,
    check_cycle,
    check_dates,
    check_shape,
    check_time,
    check_values,
    columns_of,
    floating,
)
from keyhole.data.weights import resolve_noise, resolve_weights

__all__ = ["Samples"]

_LEAST_AVAILABLE = 0.02  # lower bound of the availability, so that the noise variance stays finite


@dataclass(frozen=True, eq=False)
class Samples:
    """N samples of a field on one grid, with everything that is known about them.

    All of Keyhole takes and returns this class. It is immutable: methods named ``with_...`` return a changed copy that
    shares the arrays. Use `keyhole.read` to make samples from arrays, files, DataArrays or data frames; use
    `Samples.build` where values and grid are at hand.

    Parameters
    ----------
    values : ndarray of shape (N, channels, *grid)
        Floating; NaN at sites that are not valid (land), and where a value is missing.
    grid : Grid
        Shape, coordinates and valid sites.
    observable : ndarray of bool, shape (*grid,)
        The sites that may be selected; a subset of the valid sites, ``grid.inside``.
    time : ndarray of shape (N,), optional
        One ``datetime64``, ``timedelta64`` or number for each sample, in any order.
    cycle : {"month"}, optional
        ``"month"`` for anomalies from the monthly climatology of the training part, which needs ``time``; None for
        deviations from the mean.
    split : Split, optional
        Training, validation and test parts, where the data set defines them.
    origin : SourceInfo
        Where the data come from: file, variables, attributes, axis order. Used for export and the report.
    target : Target, optional
        A class or a number for each sample, predicted from the readings in place of the field.
    periods : tuple of {"year", "day"}, optional
        Periods of ``time`` that are given to reconstructors as covariates. None: the year, where ``cycle`` is
        ``"month"``.
    covariates : ndarray of shape (N, c), optional
        Further covariates: what is known of each sample without any sensor.
    zero : ndarray of shape (channels, *grid), optional
        Scaled samples only: the offset subtracted from all samples, in scaled units.
    constraints : ResolvedConstraints, optional
        Constraints on the placement beyond ``observable``.
    weights : ndarray of shape (*grid,), optional
        Loss weight of each site; None: uniform.
    noise : ndarray of shape (channels, *grid), optional
        Standard deviation of the measurement noise; None: noise-free sensors.
    root : ndarray of shape (*grid,), optional
        Scaled samples only: square root of the loss weights, by which ``values`` are multiplied.
    noise_draw : ndarray of shape (N, channels, *grid), optional
        Scaled samples only: one realisation of the measurement noise, added to readings.
    gaps : ndarray of bool, shape (N, channels, *grid), optional
        Which values of the valid sites are missing; None: no missing values.
    imputer : GaussianImputer, optional
        Scaled samples with missing values only: the model that imputed them, so that ``values`` has no NaN.
    source : Source, optional
        Access to all samples where ``values`` is a subset of data larger than memory.
    ordered : bool
        Whether samples without ``time`` are in temporal order.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(20, 4, 5)))
    >>> samples.values.shape, samples.grid.shape, samples.is_series
    ((20, 1, 4, 5), (4, 5), False)
    >>> samples.with_constraints({"forbidden": {"row": (0, 1)}}).observable.sum()
    np.int64(10)
    """

    values: NDArray[np.floating[Any]]
    grid: Grid
    observable: NDArray[np.bool_]
    time: NDArray[Any] | None = None
    cycle: Cycle | None = None
    split: Split | None = None
    origin: SourceInfo = field(default_factory=SourceInfo)
    target: Target | None = None
    periods: tuple[Period, ...] | None = None
    covariates: NDArray[np.floating[Any]] | None = None
    zero: NDArray[np.floating[Any]] | None = None
    constraints: ResolvedConstraints | None = None
    weights: NDArray[np.float64] | None = None
    noise: NDArray[np.float64] | None = None
    root: NDArray[np.float32] | None = None
    noise_draw: NDArray[np.float32] | None = None
    gaps: NDArray[np.bool_] | None = None
    imputer: GaussianImputer | None = None
    source: Source | None = None
    ordered: bool = False

    @classmethod
    def build(
        cls,
        values: NDArray[Any],
        grid: Grid,
        *,
        time: NDArray[Any] | None = None,
        cycle: Cycle | None = None,
        split: Split | None = None,
        origin: SourceInfo | None = None,
    ) -> Samples:
        """Make samples from values and a grid, after checking them.

        Sites that are NaN in all samples are not valid (land); values that are NaN in some samples are recorded as
        missing. Readers decide whether missing values are accepted. On grids with latitude and longitude the loss
        weights are the relative areas of the sites; `with_weights` changes that.

        Parameters
        ----------
        values : ndarray of shape (N, channels, *grid)
            Real numbers of any type.
        grid : Grid
            Its ``inside`` is narrowed to the sites that have values.
        time : ndarray of shape (N,), optional
            Time of each sample.
        cycle : {"month"}, optional
            Work on anomalies from the monthly climatology.
        split : Split, optional
            Parts defined by the data set.
        origin : SourceInfo, optional
            Where the data come from.

        Returns
        -------
        Samples

        Raises
        ------
        DataError
            If the shape does not match the grid, values are infinite, constant or all missing, or a time is missing.
        """
        values = floating(values)
        check_shape(values, grid)
        missing = np.isnan(values)
        inside = grid.inside & ~missing.all(axis=(0, 1))
        check_values(values, inside)
        if time is not None:
            check_time(time, len(values))
        check_cycle(cycle, time)
        samples = cls(values, replace(grid, inside=inside), inside, time, cycle, split, origin or SourceInfo())
        missing &= inside
        samples = replace(samples, gaps=missing) if missing.any() else samples
        geographic = None not in (grid.axis_of_latitude(), grid.axis_of_longitude())
        return samples.with_weights("area") if geographic else samples

    def __len__(self) -> int:
        return len(self.values)

    @property
    def taught(self) -> int:
        """Number of training samples: these, or those of ``source`` where ``values`` is a subset of them."""
        return len(self) if self.source is None else len(self.source)

    @property
    def is_series(self) -> bool:
        """Whether the samples are a time series, so that consecutive samples are correlated."""
        return self.time is not None or self.ordered

    def order_in_time(self) -> Indices:
        """Return the indices that sort the samples by time; the given order where they have no time."""
        return np.arange(len(self)) if self.time is None else np.argsort(self.time, kind="stable")

    @property
    def channels(self) -> int:
        """Number of values at each site, such as variables of a Dataset or colours of an image."""
        return int(self.values.shape[1])

    def take(self, indices: Indices) -> Samples:
        """Return a subset of the samples.

        Parameters
        ----------
        indices : ndarray of int
            Sample numbers, in the order wanted.

        Returns
        -------
        Samples
            Without ``split``, which refers to all samples.
        """
        time = None if self.time is None else self.time[indices]
        target = None if self.target is None else self.target.take(indices)
        covariates = None if self.covariates is None else self.covariates[indices]
        noise_draw = None if self.noise_draw is None else self.noise_draw[indices]
        gaps = None if self.gaps is None else self.gaps[indices]
        return replace(
            self, values=self.values[indices], time=time, split=None, target=target, covariates=covariates,
            noise_draw=noise_draw,
            gaps=gaps,
        )  # fmt: skip

    def feasible_set(self) -> FeasibleSet:
        """Return the feasible set before any site is selected: all observable sites that satisfy the constraints."""
        rules = PlacementRules(self.grid.size) if self.constraints is None else self.constraints.rules
        return rules.feasible_set(self.observable)

    @property
    def choices(self) -> tuple[int, ...]:
        """Shape of the candidates: the grid, or ``(groups,)`` where sites are selected in groups."""
        grouping = None if self.constraints is None else self.constraints.grouping
        return self.grid.shape if grouping is None else grouping.observable.shape

    @property
    def existing(self) -> NDArray[np.int64]:
        """Flat grid indices of the existing sites, which are kept and to which new ones are added."""
        return np.empty(0, np.int64) if self.constraints is None else self.constraints.rules.existing

    def with_constraints(self, constraints: Constraints | Mapping[str, Any] | None) -> Samples:
        """Set the constraints on the placement, replacing earlier ones.

        Parameters
        ----------
        constraints : Constraints or mapping, optional
            `keyhole.Constraints`, a mapping of its parameters, or None to remove all constraints.

        Returns
        -------
        Samples
            With ``observable`` narrowed to the sites that the constraints allow.
        """
        observable = self.observable if self.constraints is None else self.constraints.before
        specified = Constraints.of(constraints)
        if not specified.given():
            return replace(self, observable=observable, constraints=None)
        resolved = specified.resolve(self.grid, observable)
        return replace(self, observable=resolved.observable, constraints=resolved)

    def with_target(self, target: Target | None) -> Samples:
        """Set what is predicted from the readings; None to reconstruct the field itself.

        Parameters
        ----------
        target : Target, optional
            One class or number for each sample. If both the target and the samples have times, values are aligned by
            time; otherwise they are taken in order.

        Returns
        -------
        Samples

        Raises
        ------
        DataError
            If there is not one value for each sample.
        """
        if target is not None and target.time is not None:
            target = replace(target.take(same_times(target.time, self.time, f"target {target.name!r}")), time=None)
        if target is not None and len(target) != len(self):
            raise DataError(f"target {target.name!r}: {len(target)} values for {len(self)} samples")
        return replace(self, target=target)

    def with_covariates(self, *periods: str, columns: Any = None) -> Samples:
        """Set the covariates: what is known of a sample without any sensor.

        Without arguments all covariates are removed, so that only readings are used.

        Parameters
        ----------
        *periods : {"year", "day"}
            Phase of the year or of the day, encoded as cosine and sine; needs dates.
        columns : array-like of shape (N, c) or (N,), optional
            Other covariates. If they carry times (a DatetimeIndex, a DataArray's coordinate) and the samples do too,
            they are aligned by time.

        Returns
        -------
        Samples

        Raises
        ------
        SettingsError
            If a period is unknown.
        DataError
            If samples have no dates, or columns have the wrong length or missing values.
        """
        chosen = check_periods(periods)
        if chosen:
            check_dates(self.time, f"covariate {chosen[0]!r} needs")
        if columns is None:
            return replace(self, periods=chosen, covariates=None)
        return replace(
            self, periods=chosen, covariates=columns_of(by_time(columns, self.time, "covariates"), len(self))
        )

    def with_weights(self, weights: Any) -> Samples:
        """Set the loss weights: how much a squared error at each site counts.

        Parameters
        ----------
        weights : {"area", "none"}, array-like, region or None
            ``"area"`` for the relative area of each site (cosine of latitude); ``"none"`` or None for uniform weights;
            an array of the grid's shape; a DataArray or Series, aligned by coordinate or site name; or a region of
            interest in any form that `keyhole.Constraints` takes, with weight 1 inside and 0 elsewhere. While sites are
            selected, a weight of 0 is replaced by 1e-4 of the mean weight.

        Returns
        -------
        Samples
        """
        return replace(self, weights=resolve_weights(weights, self.grid))

    def channels_apart(self) -> Samples:
        """Make each channel of a site a site of its own, for sensors that measure one variable each.

        The channels become the first axis of the grid, labelled by the variables' names if known. Loss weights are
        divided by each channel's variance, so that channels of different units are comparable. Set constraints
        afterwards: earlier ones are removed.

        Returns
        -------
        Samples
            With one channel on a grid of shape ``(channels, *grid)``.

        Examples
        --------
        >>> import keyhole as kh
        >>> samples = kh.read(np.random.default_rng(0).normal(size=(20, 4, 5, 2)), channels=-1)
        >>> samples.channels_apart().grid.shape
        (2, 4, 5)
        """
        names = np.array(list(self.origin.variables) or [f"channel {i}" for i in range(self.channels)])
        axis = "variable" if self.origin.variables else "channel"
        shape = (self.channels, *self.grid.shape)
        inside = np.broadcast_to(self.grid.inside, shape).copy()
        grid = Grid(shape, (axis, *self.grid.dims), {axis: names, **self.grid.coordinates}, inside)
        variance = np.nanvar(self.values[:, :, self.grid.inside], axis=(0, 2), dtype=np.float64)
        precision = 1 / np.where(variance > 0, variance, 1.0).reshape(-1, *[1] * len(self.grid.shape))
        origin = replace(self.origin, variables={}, channel_axis=None, attributes={})
        return replace(
            self, values=self.values[:, np.newaxis], grid=grid, origin=origin, constraints=None,
            observable=np.broadcast_to(self.observable, shape).copy(),
            weights=np.broadcast_to(precision * (1.0 if self.weights is None else self.weights), shape).copy(),
            noise=None if self.noise is None else self.noise[np.newaxis],
            gaps=None if self.gaps is None else self.gaps[:, np.newaxis],
        )  # fmt: skip

    def unweighted(self) -> Samples:
        """Return scaled samples without the square roots of the loss weights."""
        return self if self.root is None else replace(self, values=self.values / self.root, root=None)

    def with_noise(self, noise: Any) -> Samples:
        """Set the standard deviation of the measurement noise, in the data's units.

        Parameters
        ----------
        noise : float, array-like or None
            One number, one for each channel, an array of the grid's shape, or ``(channels, *grid)``. Labelled values
            are aligned by variable, coordinate or site name. None: noise-free sensors.

        Returns
        -------
        Samples
        """
        return replace(self, noise=resolve_noise(noise, self.channels, self.grid, tuple(self.origin.variables)))

    def anomalies(self, cycle: Cycle | None = "month") -> Samples:
        """Work on anomalies from a monthly climatology (``"month"``), or on deviations from the mean (None).

        Parameters
        ----------
        cycle : {"month"}, optional
            ``"month"`` needs a date for each sample, and all twelve months in the training part.

        Returns
        -------
        Samples
        """
        check_cycle(cycle, self.time)
        return replace(self, cycle=cycle)

    def anomalies_as_asked(self, asked: str | None) -> Samples:
        """Apply the ``anomalies`` setting of the command line and of `keyhole.select`.

        Parameters
        ----------
        asked : {"month", "none"}, optional
            Monthly anomalies, deviations from the mean, or None to keep the samples' own ``cycle``.

        Returns
        -------
        Samples
        """
        if asked not in (None, "month", "none"):
            raise SettingsError(f"anomalies={asked!r}: 'month', 'none' or None is needed")
        return self if asked is None else self.anomalies("month" if asked == "month" else None)

    def valid_values(self) -> NDArray[np.floating[Any]]:
        """Return the values at the valid sites, ``(N, channels, valid sites)``."""
        flat = self.values.reshape(len(self), self.channels, -1)
        return flat if self.grid.inside.all() else flat[:, :, self.grid.cells]

    def truth(self) -> NDArray[np.floating[Any]]:
        """Return the values at the valid sites, ``(N, channels, valid sites)``, NaN where they are missing."""
        values = self.valid_values()
        return values if self.gaps is None else np.where(self._missing_valid(), np.nan, values)

    def filled(self, imputer: GaussianImputer | None = None) -> Samples:
        """Impute the missing values of scaled samples by their conditional mean given the rest of the sample.

        Parameters
        ----------
        imputer : GaussianImputer, optional
            A fitted imputer; None to fit one to these samples.

        Returns
        -------
        Samples
            With ``imputer`` set; ``gaps`` still marks the imputed values, so that they count in neither loss nor score.
        """
        if self.gaps is None:
            return self
        rows, missing = self.valid_values().reshape(len(self), -1), self._missing_valid().reshape(len(self), -1)
        imputer = imputer or GaussianImputer.fit(rows, missing)
        values = np.zeros((len(self), self.channels, self.grid.size), np.float32)
        values[:, :, self.grid.cells] = imputer.fill(rows, missing).reshape(len(self), self.channels, -1)
        return replace(self, values=values.reshape(self.values.shape), imputer=imputer)

    def availability(self) -> NDArray[np.float64] | None:
        """Return the share of samples with a value at each site, ``(*grid,)``; None without missing values."""
        return None if self.gaps is None else 1 - self.gaps.mean(axis=(0, 1), dtype=np.float64)

    def _missing_valid(self) -> NDArray[np.bool_]:
        """Missing values at the valid sites, ``(N, channels, valid sites)``."""
        missing = np.zeros(self.values.shape, bool) if self.gaps is None else self.gaps
        return missing.reshape(len(self), self.channels, -1)[:, :, self.grid.cells]

    def readings(self, sites: Indices) -> NDArray[np.floating[Any]]:
        """Return what sensors at the sites measure.

        Parameters
        ----------
        sites : ndarray of int, shape (K,)
            Flat grid indices.

        Returns
        -------
        ndarray of shape (N, K, channels)
            With measurement noise if the samples are scaled. A missing reading is NaN, or, if missing values were
            imputed, its conditional mean given the other readings of the same sample.
        """
        readings = self.values.reshape(len(self), self.channels, -1)[:, :, sites]
        if self.root is not None:
            readings = readings / self.root.ravel()[sites]
        if self.noise_draw is not None:
            readings = readings + self.noise_draw.reshape(len(self), self.channels, -1)[:, :, sites]
        if self.gaps is not None:
            readings = self._impute_readings(readings, sites)
        return readings.transpose(0, 2, 1)

    def _impute_readings(self, readings: NDArray[Any], sites: Indices) -> NDArray[np.floating[Any]]:
        """Impute missing readings from the others of the same sample; leave NaN if there is no imputer."""
        missing = np.zeros(self.values.shape, bool) if self.gaps is None else self.gaps
        rows = np.where(missing.reshape(len(self), self.channels, -1)[:, :, sites], np.nan, readings)
        if self.imputer is None or not np.isnan(rows).any():
            return rows
        covariance = self.reading_covariance(sites)
        return impute_by_covariance(rows.reshape(len(rows), -1), covariance).reshape(rows.shape).astype(np.float32)

    def reading_covariance(self, sites: Indices) -> NDArray[np.float64]:
        """Return the covariance of the readings of scaled samples, noise included.

        Parameters
        ----------
        sites : ndarray of int, shape (K,)
            Flat grid indices.

        Returns
        -------
        ndarray of shape (channels * K, channels * K)
            Channel-major. From the imputer's low-rank model if there are missing values, else the sample covariance.
        """
        if self.imputer is None:
            rows = self.readings(sites).transpose(0, 2, 1).reshape(len(self), -1).astype(np.float64)
            return np.asarray(rows.T @ rows / len(rows))
        position = np.searchsorted(self.grid.cells, sites)
        columns = np.concatenate([channel * len(self.grid.cells) + position for channel in range(self.channels)])
        root = np.ones(len(columns)) if self.root is None else np.tile(self.root.ravel()[sites], self.channels)
        noise = np.zeros((self.channels, self.grid.size)) if self.noise is None else self.noise
        noise_covariance = np.diag(np.square(noise.reshape(self.channels, -1)[:, sites].ravel()))
        return np.asarray(self.imputer.covariance(columns) / np.outer(root, root) + noise_covariance)

    def noisy_readings(self, sites: Indices) -> NDArray[np.floating[Any]]:
        """Return simulated sensor readings of unscaled samples, ``(N, K, channels)``: values plus measurement noise.

        Parameters
        ----------
        sites : ndarray of int, shape (K,)
            Flat grid indices. The noise is the same at each call.
        """
        readings = self.readings(sites)
        if self.noise is None:
            return readings
        noise = self.noise.reshape(self.channels, -1)[:, sites].T
        return readings + np.random.default_rng(0).standard_normal(readings.shape) * noise

    def seen(self) -> NDArray[np.floating[Any]]:
        """Return ``values`` plus measurement noise, in the same units; zero where they are missing."""
        values = self.values
        if self.noise_draw is not None:
            values = values + self.noise_draw * (np.float32(1) if self.root is None else self.root)
        return values if self.gaps is None else np.where(self.gaps, np.float32(0), values)

    def reading_noise(self, sites: Indices) -> NDArray[np.float64]:
        """Return the effective noise variance of each site's readings, in units of ``values`` squared.

        The availability :math:`a` of a site enters as additional noise of :math:`(1/a - 1)` times the variance of the
        site: a single site then explains the share :math:`a` of what it would explain if it were always available.

        Parameters
        ----------
        sites : ndarray of int, shape (K,)
            Flat grid indices.

        Returns
        -------
        ndarray of shape (channels, K)
        """
        noise = np.zeros((self.channels, len(sites)))
        if self.noise is not None:
            root = 1.0 if self.root is None else self.root.ravel()[sites]
            noise = noise + np.square(self.noise.reshape(self.channels, -1)[:, sites] * root)
        available = self.availability()
        if available is not None:
            variance = self.values.reshape(len(self), self.channels, -1)[:, :, sites].var(axis=0, dtype=np.float64)
            noise = noise + variance * (1 / np.maximum(available.ravel()[sites], _LEAST_AVAILABLE) - 1)
        return noise

    def fingerprint(self) -> str:
        """Return the SHA-256 of values, shape, valid and observable sites, constraints, weights and target."""
        return self.fingerprint_of([self.values])

    def fingerprint_of(self, blocks: Iterable[NDArray[Any]], samples: int | None = None) -> str:
        """Return the fingerprint that samples of this kind would have with other values, passed in blocks.

        Parameters
        ----------
        blocks : iterable of ndarray
            Consecutive blocks of ``values``; together they give the same fingerprint as one array.
        samples : int, optional
            Total number of samples; None: as many as here.

        Returns
        -------
        str
            64 hexadecimal digits.
        """
        shape = (len(self) if samples is None else samples, *self.values.shape[1:])
        digest = hashlib.sha256(repr((shape, str(self.values.dtype), self.cycle)).encode())
        for array in chain(blocks, (self.grid.inside, self.observable)):
            digest.update(np.ascontiguousarray(array).data)
        if self.covariates is not None:
            digest.update(np.ascontiguousarray(self.covariates).data)
        if self.constraints is not None:
            self.constraints.add_to(digest)
        for optional in (self.weights, self.noise):
            digest.update(b"" if optional is None else np.ascontiguousarray(optional).data)
        if self.target is not None:
            digest.update(repr((self.target.name, self.target.classes)).encode())
            digest.update(np.ascontiguousarray(self.target.values).data)
        return digest.hexdigest()
