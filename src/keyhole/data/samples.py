"""The data model: N samples of values at sites, in the user's units and as methods work on them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.data.alignment import align_in_time, match_times
from keyhole.data.constraints import Constraints, FeasibleSet, PlacementRules, ResolvedConstraints
from keyhole.data.covariates import Period, check_periods, month_numbers
from keyhole.data.imputation import GaussianImputer, impute_by_covariance
from keyhole.data.noise import standard_noise
from keyhole.data.origin import SourceInfo
from keyhole.data.placed_sensors import PlacedSensors
from keyhole.data.sites import Sites
from keyhole.data.splits import Indices, Split
from keyhole.data.target import Target
from keyhole.data.validation import (
    Cycle,
    check_cycle,
    check_dates,
    check_positions,
    check_shape,
    check_time,
    check_values,
    columns_of,
    floating,
)
from keyhole.data.values import (
    DeferredValues,
    SamplePanels,
    Values,
    as_slice,
    is_large,
    memory_of,
    probe_sites,
    read_columns,
    read_rows,
    subset_stride,
    take_rows,
    whole_of,
)
from keyhole.data.weights import resolve_noise, resolve_weights, sqrt_of_weights

__all__ = ["SampleSet", "Samples", "ScaledSamples"]

_LEAST_AVAILABLE = 0.02  # lower bound of the availability, so that the noise variance stays finite


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleSet:
    """What `Samples` and `ScaledSamples` have in common: values at sites, and what is known of both.

    Immutable: methods that change something return a copy that shares the arrays.

    Parameters
    ----------
    data : ndarray or DeferredValues of shape (N, channels, m)
        The values, floating: in memory, or read or computed when they are used.
    sites : Sites
        The m valid sites.
    observable : ndarray of bool, shape (m,)
        The sites that may be selected.
    time : ndarray of shape (N,), optional
        One ``datetime64``, ``timedelta64`` or number for each sample, in any order.
    ordered : bool
        Whether samples without ``time`` are in temporal order.
    origin : SourceInfo
        Where the data come from: file, variables, attributes, axis order. Used for export and the report.
    target : Target, optional
        A class or a number for each sample, predicted from the readings in place of the field.
    covariates : ndarray of shape (N, c), optional
        What is known of each sample without any sensor.
    constraints : ResolvedConstraints, optional
        Constraints on the placement beyond ``observable``.
    weights : ndarray of shape (m,), optional
        Loss weight of each site; None: uniform.
    noise : ndarray of shape (channels, m), optional
        Standard deviation of the measurement noise, in units of ``values``; None: noise-free sensors.
    rows : ndarray of int, shape (N,), optional
        Number of each sample in the whole data, which its measurement noise depends on; None: as they are here.
    sensors : PlacedSensors, optional
        The sensors that may be selected, which ``observable`` and ``constraints`` are then about; None: one at each
        site.
    """

    data: Values
    sites: Sites
    observable: NDArray[np.bool_]
    time: NDArray[Any] | None = None
    ordered: bool = False
    origin: SourceInfo = field(default_factory=SourceInfo)
    target: Target | None = None
    covariates: NDArray[np.floating[Any]] | None = None
    constraints: ResolvedConstraints | None = None
    weights: NDArray[np.float64] | None = None
    noise: NDArray[np.float64] | None = None
    rows: Indices | None = None
    sensors: PlacedSensors | None = None

    def __len__(self) -> int:
        return int(self.data.shape[0])

    @cached_property
    def values(self) -> NDArray[np.floating[Any]]:
        """All values in memory, ``(N, channels, m)``; read or computed at first use.

        Methods for data of any size go through `panels` in its place.
        """
        return self.data.load() if isinstance(self.data, DeferredValues) else self.data

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the values, ``(N, channels, m)``."""
        n, channels, m = self.data.shape
        return n, channels, m

    @property
    def channels(self) -> int:
        """Number of values at each site, such as variables of a Dataset or colours of an image."""
        return self.shape[1]

    @property
    def memory(self) -> int | None:
        """Bytes that may be taken where the values stay where they are stored; None where they are in memory."""
        return memory_of(self.data)

    @property
    def is_large(self) -> bool:
        """Whether hyperparameters are chosen on the sites of `probe`, because there are so many values."""
        return self.memory is not None or is_large((whole_of(self.data), *self.shape[1:]))

    @property
    def probe(self) -> Indices:
        """Numbers of the sites on which hyperparameters are chosen: all, or a random subset of large data."""
        return probe_sites((whole_of(self.data), *self.shape[1:])) if self.is_large else np.arange(self.shape[2])

    def panels(self) -> SamplePanels[Self]:
        """Return the samples in panels of consecutive ones, cut by the shape of the data alone."""
        return SamplePanels(self)

    def panel(self, indices: Indices) -> Self:
        """Return some samples with their values in memory; the samples themselves where all are asked for."""
        if len(indices) == len(self) and self.memory is None:
            return self
        return replace(self, **self._entries(indices) | {"data": read_rows(self.source, indices)})

    def subset(self) -> Self:
        """Return evenly spaced samples in memory, as many as methods take that need whole samples at once."""
        return self.panel(np.arange(0, len(self), self.subset_step))

    @property
    def subset_step(self) -> int:
        """Step between the samples of `subset`."""
        return subset_stride(self.shape)

    @property
    def source(self) -> Values:
        """The values in memory if they were computed, else as they are stored."""
        known: Values = self.__dict__.get("values", self.data)
        return known

    @property
    def candidates(self) -> Sites:
        """What may be selected, by the numbers that selectors return: the sites, or the sensors as sites."""
        return self.sites if self.sensors is None else self.sensors.sites

    @property
    def reading_channels(self) -> int:
        """Number of values that a sensor reads: all channels of its site, or one where sensors are rows."""
        return self.channels if self.sensors is None else 1

    def positions(self, candidates: Indices) -> NDArray[np.int64]:
        """Return the position of some candidates in the data, which a plan keeps; of sensors their keys."""
        return self.sites.index[candidates] if self.sensors is None else self.sensors.keys[candidates]

    @property
    def is_series(self) -> bool:
        """Whether the samples are a time series, so that consecutive samples are correlated."""
        return self.time is not None or self.ordered

    def order_in_time(self) -> Indices:
        """Return the indices that sort the samples by time; the given order where they have no time."""
        return np.arange(len(self)) if self.time is None else np.argsort(self.time, kind="stable")

    def take(self, indices: Indices) -> Self:
        """Return a subset of the samples.

        Parameters
        ----------
        indices : ndarray of int
            Sample numbers, in the order wanted.
        """
        return replace(self, **self._entries(indices))

    def _entries(self, indices: Indices) -> dict[str, Any]:
        """The fields that have one entry for each sample, for some of the samples."""
        rows = np.arange(len(self)) if self.rows is None else self.rows
        return {
            "data": take_rows(self.source, indices),
            "time": None if self.time is None else self.time[indices],
            "target": None if self.target is None else self.target.take(indices),
            "covariates": None if self.covariates is None else self.covariates[indices],
            "rows": rows[indices],
        }

    @property
    def existing(self) -> NDArray[np.int64]:
        """Numbers of the existing sites, which are kept and to which new ones are added."""
        return np.empty(0, np.int64) if self.constraints is None else self.constraints.rules.existing

    def feasible_set(self) -> FeasibleSet:
        """Return the feasible set before any site is selected: all observable sites that satisfy the constraints."""
        rules = PlacementRules(len(self.candidates)) if self.constraints is None else self.constraints.rules
        return rules.feasible_set(self.observable)

    def with_count(self, k: int | None) -> Self:
        """Return the samples with the number of sites that are selected within a cost limit, if there is one."""
        rules = None if self.constraints is None else self.constraints.rules
        if self.constraints is None or rules is None or rules.costs is None or k is None:
            return self
        return replace(self, constraints=self.constraints.with_count(k))

    @property
    def choices(self) -> tuple[int, ...]:
        """Shape of the candidates: that of the data, or ``(groups,)`` where sites are selected in groups."""
        grouping = None if self.constraints is None else self.constraints.grouping
        return self.candidates.shape if grouping is None else grouping.observable.shape

    def draw_noise(self, sites: Indices) -> NDArray[np.float64]:
        """Return the measurement noise of each sample at some sites, ``(N, channels, K)``; the same at each call."""
        if self.noise is None:
            return np.zeros((len(self), self.channels, len(sites)))
        rows = np.arange(len(self)) if self.rows is None else self.rows
        return standard_noise(rows, self.sites.index[sites], self.channels) * self.noise[:, sites]

    def fingerprint(self) -> str:
        """Return the SHA-256 of values, sites, observable sites, constraints, weights and target.

        Returns
        -------
        str
            64 hexadecimal digits.
        """
        shape = (*self.shape[:2], *self.sites.shape)
        digest = hashlib.sha256(repr((shape, str(self.data.dtype), self._settings(), self._digest())).encode())
        for array in (self.sites.index, self.observable):
            digest.update(np.ascontiguousarray(array).data)
        if self.covariates is not None:
            digest.update(np.ascontiguousarray(self.covariates).data)
        if self.constraints is not None:
            self.constraints.add_to(digest)
        if self.sensors is not None:
            self.sensors.add_to(digest)
        for optional in (self.weights, self.noise):
            digest.update(b"" if optional is None else np.ascontiguousarray(optional).data)
        if self.target is not None:
            digest.update(repr((self.target.name, self.target.classes)).encode())
            digest.update(np.ascontiguousarray(self.target.values).data)
        return digest.hexdigest()

    def _digest(self) -> str:
        """SHA-256 of the values."""
        known = self.data.digest if isinstance(self.data, DeferredValues) else None
        if known is not None:
            return known
        digest = hashlib.sha256()
        for _, panel in self.panels():
            digest.update(np.ascontiguousarray(panel.values).data)
        return digest.hexdigest()

    def _settings(self) -> tuple[Any, ...]:
        """What else changes the results; part of the fingerprint."""
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Samples(SampleSet):
    """N samples of values at sites in the user's units, with everything that is known about them.

    Use `keyhole.read` to make samples from arrays, files, DataArrays or data frames; use `Samples.build` where values
    and sites are at hand. Methods named ``with_...`` return a changed copy. A value that is missing is NaN.

    Parameters
    ----------
    cycle : {"month"}, optional
        ``"month"`` for anomalies from the monthly climatology of the training part, which needs ``time``; None for
        deviations from the mean.
    split : Split, optional
        Training, validation and test parts, where the data set defines them.
    periods : tuple of {"year", "day"}, optional
        Periods of ``time`` that are given to reconstructors as covariates. None: the year, where ``cycle`` is
        ``"month"``.
    **others
        Those of `SampleSet`.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(20, 4, 5)))
    >>> samples.values.shape, samples.sites.shape, samples.is_series
    ((20, 1, 20), (4, 5), False)
    >>> samples.with_constraints({"forbidden": {"row": (0, 1)}}).observable.sum()
    np.int64(10)
    """

    cycle: Cycle | None = None
    split: Split | None = None
    periods: tuple[Period, ...] | None = None

    @classmethod
    def build(
        cls,
        values: NDArray[Any],
        sites: Sites,
        *,
        time: NDArray[Any] | None = None,
        cycle: Cycle | None = None,
        split: Split | None = None,
        origin: SourceInfo | None = None,
    ) -> Samples:
        """Make samples from arrays of the data's shape and their sites, after checking them.

        Sites that are NaN in all samples are not valid (land); values that are NaN in some samples are missing. Readers
        decide whether missing values are accepted. Where the area of the sites is known it is their loss weight;
        `with_weights` changes that.

        Parameters
        ----------
        values : ndarray of shape (N, channels, *sites.shape)
            Real numbers of any type.
        sites : Sites
            Narrowed to the sites that have values.
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
            If the shape does not match the sites, values are infinite, constant or all missing, or a time is missing.
        """
        values = floating(values)
        check_shape(values, sites.shape)
        packed = sites.from_grid(values)
        valid = ~np.isnan(packed).all(axis=(0, 1))
        check_values(packed, valid)
        if time is not None:
            check_time(time, len(values))
        check_cycle(cycle, time)
        if not valid.all():
            kept = np.flatnonzero(valid)
            packed, sites = np.take(packed, kept, axis=2), sites.take(kept)
        check_positions(sites)
        samples = cls(
            data=packed, sites=sites, observable=np.ones(len(sites), bool), time=time, cycle=cycle, split=split,
            origin=origin or SourceInfo(),
        )  # fmt: skip
        return samples.with_weights("area") if sites.is_geographic and sites.area is not None else samples

    def take(self, indices: Indices) -> Samples:
        """Return a subset of the samples, without ``split``, which refers to all of them; see `SampleSet.take`."""
        return replace(self, **self._entries(indices), split=None)

    def restrict(self, keep: NDArray[np.bool_]) -> Samples:
        """Leave out sites; the constraints are applied to the others anew.

        Parameters
        ----------
        keep : ndarray of bool, shape (m,)
            The sites to keep.
        """
        sites, constraints = np.flatnonzero(keep), self.constraints
        if self.sensors is not None:
            sensors = self.sensors.specification or self.sensors.restrict(keep)
            rest = self._without_sensors().restrict(keep).with_sensors(sensors)
            return rest if constraints is None else rest.with_constraints(constraints.specification)
        observable = self.observable if constraints is None else constraints.before
        rest = replace(
            self, data=np.take(self.values, sites, axis=2), sites=self.sites.take(sites),
            observable=observable[sites], constraints=None,
            weights=None if self.weights is None else self.weights[sites],
            noise=None if self.noise is None else self.noise[:, sites],
        )  # fmt: skip
        return rest if constraints is None else rest.with_constraints(constraints.specification)

    @cached_property
    def missing(self) -> NDArray[np.bool_] | None:
        """Which values are missing, ``(N, channels, m)``; None where none are."""
        if self.memory is not None or not any(np.isnan(panel.values).any() for _, panel in self.panels()):
            return None
        return np.asarray(np.isnan(self.values))

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
        if self.sensors is not None:
            specified = self.sensors.constraints(specified)
        resolved = specified.resolve(self.candidates, observable)
        return replace(self, observable=resolved.observable, constraints=resolved)

    def with_sensors(self, sensors: Any) -> Samples:
        """Set the sensors that may be selected, where they are not simply one at each site.

        Parameters
        ----------
        sensors : Sensors, sequence or mapping of these, DataFrame, path, PlacedSensors or None
            `keyhole.data.Sensors`; several are kinds of instruments to choose among. A DataFrame or a CSV file is a
            table of positions. The sensors of a plan (``plan.sensors``) are taken as they are. None: one sensor at each
            site.

        Returns
        -------
        Samples
            With constraints applied anew, to the sensors.

        Raises
        ------
        SettingsError
            If a sensor lies outside the data or where no site is valid, or two have the same name.
        """
        from keyhole.data.sensors import place_sensors

        if sensors is None and self.sensors is None:
            return self
        constraints, plain = self.constraints, self._without_sensors()
        if sensors is not None:
            placed = place_sensors(sensors, plain)
            plain = replace(plain, sensors=placed, observable=np.ones(len(placed), bool))
        return plain if constraints is None else plain.with_constraints(constraints.specification)

    def _without_sensors(self) -> Samples:
        """The samples with a sensor at each site, without constraints."""
        return replace(self, observable=np.ones(len(self.sites), bool), sensors=None, constraints=None)

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
            target = replace(target.take(match_times(target.time, self.time, f"target {target.name!r}")), time=None)
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
        aligned = columns_of(align_in_time(columns, self.time, "covariates"), len(self))
        return replace(self, periods=chosen, covariates=aligned)

    def with_weights(self, weights: Any) -> Samples:
        """Set the loss weights: how much a squared error at each site counts.

        Parameters
        ----------
        weights : {"area", "none"}, array-like, region or None
            ``"area"`` for the relative area of each site; ``"none"`` or None for uniform weights; an array of the shape
            of the data; a DataArray or Series, aligned by coordinate or site name; or a region of interest in any form
            that `keyhole.Constraints` takes, with weight 1 inside and 0 elsewhere. While sites are selected, a weight
            of 0 is replaced by 1e-4 of the mean weight.

        Returns
        -------
        Samples
        """
        return replace(self, weights=resolve_weights(weights, self.sites))

    def with_noise(self, noise: Any) -> Samples:
        """Set the standard deviation of the measurement noise, in the data's units.

        Parameters
        ----------
        noise : float, array-like or None
            One number, one for each channel, an array of the shape of the data, or ``(channels, *shape)``. Labelled
            values are aligned by variable, coordinate or site name. None: noise-free sensors.

        Returns
        -------
        Samples
        """
        return replace(self, noise=resolve_noise(noise, self.channels, self.sites, tuple(self.origin.variables)))

    def channels_apart(self) -> Samples:
        """Make each channel of a site a site of its own, for sensors that measure one variable each.

        The channels become the first axis of the data, labelled by the variables' names if known. Loss weights are
        divided by each channel's variance, so that channels of different units are comparable. Set constraints
        afterwards: earlier ones are removed.

        Returns
        -------
        Samples
            With one channel and ``channels`` times as many sites.

        Examples
        --------
        >>> import keyhole as kh
        >>> samples = kh.read(np.random.default_rng(0).normal(size=(20, 4, 5, 2)), channels=-1)
        >>> samples.channels_apart().sites.shape
        (2, 4, 5)
        """
        names = np.array(list(self.origin.variables) or [f"channel {i}" for i in range(self.channels)])
        sites = self.sites.repeat("variable" if self.origin.variables else "channel", names)
        variance = np.nanvar(self.values, axis=(0, 2), dtype=np.float64)
        precision = 1 / np.where(variance > 0, variance, 1.0)
        weights = np.ones(len(self.sites)) if self.weights is None else self.weights
        return replace(
            self, data=self.values.reshape(len(self), 1, -1), sites=sites, constraints=None,
            origin=replace(self.origin, variables={}, channel_axis=None, attributes={}),
            observable=np.tile(self.observable, self.channels), weights=np.outer(precision, weights).ravel(),
            noise=None if self.noise is None else self.noise.reshape(1, -1), sensors=None,
        )  # fmt: skip

    def as_scaled(self) -> ScaledSamples:
        """Return the samples as methods take them, as they are: neither centred nor scaled, in single precision."""
        values = np.where(np.isnan(self.values), 0, self.values).astype(np.float32)
        scaled = ScaledSamples(
            data=values, sites=self.sites, observable=self.observable, time=self.time, ordered=self.ordered,
            origin=self.origin, target=self.target, covariates=self.covariates, constraints=self.constraints,
            weights=self.weights, noise=self.noise, rows=self.rows, missing=self.missing,
            root=sqrt_of_weights(self.weights),
        )  # fmt: skip
        return scaled.observed_by(self.sensors, np.ones(self.channels))

    def with_graph(self, graph: Any) -> Samples:
        """Set a graph whose nodes are the sites: distances, and what is near, are then along its edges.

        Parameters
        ----------
        graph : sparse or dense array, networkx graph, frame or list of edges
            See `Graph.read`. Nodes with names are matched to the names of the sites, else by number.

        Returns
        -------
        Samples
            With constraints applied anew.
        """
        return self._with_sites(self.sites.with_graph(graph))

    def with_coordinates(self, table: Any) -> Samples:
        """Set the positions of the columns of a table, such as stations.

        Parameters
        ----------
        table : DataFrame or mapping of columns
            One row for each site, by name: in a column of texts (``name``, ``station``, ...) or in the index; with the
            columns ``lat`` and ``lon``, or ``x`` and ``y``, and others such as ``depth``.

        Returns
        -------
        Samples
            With constraints applied anew, and the areas of the sites as loss weights where these lie on a lattice.

        Examples
        --------
        >>> import keyhole as kh
        >>> import pandas as pd
        >>> readings = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 2)), columns=["Ona", "Bay"])
        >>> stations = pd.DataFrame({"name": ["Bay", "Ona"], "lat": [60.0, 62.9], "lon": [5.0, 6.5]})
        >>> kh.read(readings).with_coordinates(stations).sites.position(0)
        {'lat': np.float64(62.9), 'lon': np.float64(6.5)}
        """
        placed = self._with_sites(self.sites.with_coordinates(table))
        return placed.with_weights("area") if self.weights is None and placed.sites.area is not None else placed

    def with_vertical_scale(self, scale: float) -> Samples:
        """Set how much a unit of the vertical coordinate counts in distances; see `Sites.with_vertical_scale`."""
        return self._with_sites(self.sites.with_vertical_scale(scale))

    def _with_sites(self, sites: Sites) -> Samples:
        """The same sites with another metric, or with positions."""
        check_positions(sites)
        constraints = self.constraints
        if self.sensors is not None:
            moved = self._without_sensors()._with_sites(sites).with_sensors(self.sensors.specification or self.sensors)
            return moved if constraints is None else moved.with_constraints(constraints.specification)
        plain = replace(self, sites=sites, constraints=None)
        if constraints is None:
            return plain
        return replace(plain, observable=constraints.before).with_constraints(constraints.specification)

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

    def phase(self) -> NDArray[np.int64]:
        """Return the month of each sample, from 0 to 11, where anomalies are monthly; else 0."""
        return month_numbers(self.time, len(self), self.cycle)

    def _settings(self) -> tuple[Any, ...]:
        return (self.cycle,)

    def readings(self, sites: Indices) -> NDArray[np.floating[Any]]:
        """Return the values at some sites, ``(N, K, channels)``, without noise; NaN where they are missing.

        Parameters
        ----------
        sites : ndarray of int, shape (K,)
            Positions of the sites in the data, such as ``plan.indices``.

        Raises
        ------
        SettingsError
            If a position is not that of a valid site.
        """
        if self.sensors is not None:
            return self.sensors.readings(self, np.asarray(sites))
        return read_columns(self.source, self._numbers(sites)).transpose(0, 2, 1)

    def noisy_readings(self, sites: Indices) -> NDArray[np.floating[Any]]:
        """Return what sensors would measure, ``(N, K, channels)``: `readings` plus measurement noise."""
        if self.sensors is not None:
            return self.sensors.readings(self, np.asarray(sites), noisy=True)
        readings = self.readings(sites)
        return readings if self.noise is None else readings + self.draw_noise(self._numbers(sites)).transpose(0, 2, 1)

    def _numbers(self, positions: Indices) -> NDArray[np.int64]:
        """Numbers of the sites at some positions in the data."""
        numbers = self.sites.number(positions)
        if (numbers < 0).any():
            raise SettingsError(f"site {np.asarray(positions)[numbers < 0][0]} is not valid (no value in any sample)")
        return numbers


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
        return self.noise is not None

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


Of = TypeVar("Of", bound=np.generic)


def _of(values: NDArray[Of] | None, sites: Indices) -> NDArray[Of] | None:
    """Entries of some sites along the last axis."""
    return None if values is None else values[..., sites]
