"""Samples in the user's units: N samples of values at sites, with everything that is known about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.core.text import listed
from keyhole.data.climatology import AUTO, Anomalies, Climatology
from keyhole.data.constraints import Constraints
from keyhole.data.covariates import Period, check_periods
from keyhole.data.labels import align_in_time, match_times
from keyhole.data.origin import SourceInfo
from keyhole.data.sample_labels import Coordinates, group_labels
from keyhole.data.sample_set import CHANNEL_AXES, SampleSet
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.sites import Sites
from keyhole.data.splits import Indices, Split
from keyhole.data.target import Target
from keyhole.data.validation import (
    check_anomalies,
    check_dates,
    check_positions,
    check_shape,
    check_time,
    check_values,
    columns_of,
    floating,
)
from keyhole.data.values import read_columns
from keyhole.data.weights import resolve_noise, resolve_weights, sqrt_of_weights

__all__ = ["Samples"]

_SHOWN = 5  # names in an error message


@dataclass(frozen=True, eq=False, kw_only=True)
class Samples(SampleSet):
    """N samples of values at sites in the user's units, with everything that is known about them.

    Use `keyhole.read` to make samples from arrays, files, DataArrays or data frames; use `Samples.build` where values
    and sites are at hand. Methods named ``with_...`` return a changed copy. A value that is missing is NaN.

    Parameters
    ----------
    climatology : Climatology
        What is subtracted from the samples; `anomalies` sets it.
    split : Split, optional
        Training, validation and test parts, where the data set defines them.
    periods : tuple of {"year", "day"}, optional
        Periods of ``time`` that are given to reconstructors as covariates. None: those that ``climatology`` follows.
    coordinates : mapping of str to ndarray of shape (N,)
        Coordinates along the samples by name, such as the members of an ensemble, which `with_groups` takes.
    groups_name : str
        Name of the column or coordinate that ``sample_groups`` come from.
    standardise : bool
        Whether each column of a table is divided by its standard deviation, so that all count alike.
    spread : ndarray of shape (m,), optional
        These standard deviations, once the samples are split; None before, and where there is one scale for all sites.
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

    climatology: Climatology = AUTO
    split: Split | None = None
    periods: tuple[Period, ...] | None = None
    coordinates: Coordinates = field(default_factory=dict)
    groups_name: str = ""
    standardise: bool = False
    spread: NDArray[np.float64] | None = None

    @classmethod
    def build(
        cls,
        values: NDArray[Any],
        sites: Sites,
        *,
        time: NDArray[Any] | None = None,
        anomalies: Anomalies = "auto",
        split: Split | None = None,
        origin: SourceInfo | None = None,
        coordinates: Coordinates | None = None,
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
        anomalies : {"auto", "none", "month", "harmonics"}
            Anomalies to work on, as in `Samples.anomalies`.
        split : Split, optional
            Parts defined by the data set.
        origin : SourceInfo, optional
            Where the data come from.
        coordinates : mapping of str to ndarray of shape (N,), optional
            Coordinates along the samples, by name.

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
        climatology = check_anomalies(anomalies, time)
        if not valid.all():
            kept = np.flatnonzero(valid)
            packed, sites = np.take(packed, kept, axis=2), sites.take(kept)
        check_positions(sites)
        samples = cls(
            data=packed, sites=sites, observable=np.ones(len(sites), bool), time=time, climatology=climatology,
            split=split, origin=origin or SourceInfo(), coordinates=coordinates or {},
        )  # fmt: skip
        return samples.with_weights("area") if sites.is_geographic and sites.area is not None else samples

    def take(self, indices: Indices) -> Samples:
        """Return a subset of the samples, without ``split``, which refers to all of them; see `SampleSet.take`."""
        return replace(self, **self._entries(indices), split=None)

    def _entries(self, indices: Indices) -> dict[str, Any]:
        coordinates = {name: labels[indices] for name, labels in self.coordinates.items()}
        return super()._entries(indices) | {"coordinates": coordinates}

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
            return rest if constraints is None else rest.with_constraints(constraints.asked)
        observable = self.observable if constraints is None else constraints.before
        rest = replace(
            self, data=np.take(self.values, sites, axis=2), sites=self.sites.take(sites),
            observable=observable[sites], constraints=None,
            weights=None if self.weights is None else self.weights[sites],
            spread=None if self.spread is None else self.spread[sites],
            noise=None if self.noise is None else self.noise[:, sites],
        )  # fmt: skip
        return rest if constraints is None else rest.with_constraints(constraints.asked)

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
            `keyhole.Constraints`, a mapping of its parameters, or None to remove all constraints. Of a table they are
            about its columns; the indicators of a column of words are always selected together.

        Returns
        -------
        Samples
            With ``observable`` narrowed to the sites that the constraints allow.
        """
        observable = self.observable if self.constraints is None else self.constraints.before
        asked = specified = Constraints.of(constraints)
        if self.sensors is not None and asked.given():
            asked = specified = self.sensors.constraints(asked)
        elif self.origin.columns is not None:
            specified = asked.of_columns(self.origin.columns)
        if not specified.given():
            return replace(self, observable=observable, constraints=None)
        resolved = replace(specified.resolve(self.candidates, observable), asked=asked)
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
        return plain if constraints is None else plain.with_constraints(constraints.asked)

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

    def with_groups(self, groups: Any) -> Samples:
        """Set which samples belong together, such as those of one subject, station or member of an ensemble.

        A group is in one part of a split alone (`Split.groups`), so that errors are those of a new group.

        Parameters
        ----------
        groups : str, array-like of shape (N,) or None
            Labels, or the name of a coordinate along the samples (``"member"``) or of a column of a table, which is
            then no site. A Series is aligned by its index, a DataArray by the coordinate of its dimension, if the
            samples have these labels. None removes the groups.

        Returns
        -------
        Samples

        Raises
        ------
        DataError
            If there is no such coordinate or column, not one label for each sample, or a label is missing.

        Examples
        --------
        >>> import keyhole as kh
        >>> samples = kh.read(np.random.default_rng(0).normal(size=(40, 6))).with_groups(np.arange(40) // 8)
        >>> plan = kh.select(samples, k=2, method="qr", reconstructor="ridge")
        >>> plan.metadata["split"]["train"], plan.metadata["split"]["test"]
        (24, 8)
        """
        if groups is None or not isinstance(groups, str):
            time, known = self.time, self.coordinates
            labels = None if groups is None else group_labels(groups, len(self), time=time, coordinates=known)
            return replace(self, sample_groups=labels, groups_name=str(getattr(groups, "name", None) or ""))
        samples, labels = self._named_labels(groups)
        return replace(samples, sample_groups=group_labels(labels, len(self)), groups_name=groups)

    def _named_labels(self, name: str) -> tuple[Samples, NDArray[Any]]:
        """Labels of a coordinate or of the time; of a column of a table, which is left out of the sites."""
        if name in self.coordinates:
            return self, self.coordinates[name]
        if name == "time" and self.time is not None:
            return self, self.time
        names = list(self.sites.names or ()) if self.origin.kind == "table" else []
        if name in names:
            column = names.index(name)
            labels = read_columns(self.source, np.array([column]))[:, 0, 0]
            return self.restrict(np.arange(len(names)) != column), labels
        known = [*self.coordinates, *(["time"] if self.time is not None else []), *names]
        raise DataError(f"groups: no column or coordinate {name!r}; there are {listed(known, _SHOWN) or 'none'}")

    def with_weights(self, weights: Any) -> Samples:
        """Set the loss weights: how much a squared error at each site counts.

        Parameters
        ----------
        weights : {"area", "variance", "none"}, array-like, region or None
            ``"area"`` for the relative area of each site; ``"variance"`` to divide each column of a table by its
            standard deviation, so that all count alike whatever their units, and errors are in standard deviations
            (the default of tables); ``"none"`` or None for uniform weights; an array of the shape
            of the data; a DataArray or Series, aligned by coordinate or site name; or a region of interest in any form
            that `keyhole.Constraints` takes, with weight 1 inside and 0 elsewhere. While sites are selected, a weight
            of 0 is replaced by 1e-4 of the mean weight.

        Returns
        -------
        Samples
        """
        if isinstance(weights, str) and weights == "variance":
            if self.channels > 1:
                raise SettingsError("weights='variance': sites of several channels; take them apart (channels_apart)")
            return replace(self, weights=None, standardise=True)
        if self.origin.columns is not None and not isinstance(weights, str | None):
            weights = self.origin.columns.each(weights, "weights")
        return replace(self, weights=resolve_weights(weights, self.sites), standardise=False, spread=None)

    def with_noise(self, noise: Any) -> Samples:
        """Set the standard deviation of the measurement noise, in the data's units.

        Parameters
        ----------
        noise : float, array-like or None
            One number, one for each channel, an array of the shape of the data, or ``(channels, *shape)``. Labelled
            values are aligned by variable, coordinate or site name. None: not known. Readings are then free of noise,
            and searches assume 1 % of each channel's spread, unless the data are a table; 0: perfect sensors.

        Returns
        -------
        Samples
        """
        if self.origin.columns is not None and noise is not None:
            noise = self.origin.columns.each(noise, "noise")
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
        sites = self.sites.repeat(CHANNEL_AXES[0 if self.origin.variables else 1], names)
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
            sample_groups=self.sample_groups, weights=self.weights, noise=self.noise, rows=self.rows,
            missing=self.missing, root=sqrt_of_weights(self.weights),
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
        placed = replace(self._with_sites(self.sites.with_coordinates(table)), standardise=False)
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
            return moved if constraints is None else moved.with_constraints(constraints.asked)
        plain = replace(self, sites=sites, constraints=None)
        if constraints is None:
            return plain
        return replace(plain, observable=constraints.before).with_constraints(constraints.asked)

    def anomalies(self, kind: Anomalies = "month") -> Samples:
        """Set what is subtracted from the samples: what the calendar knows of them without sensors.

        Parameters
        ----------
        kind : {"auto", "none", "month", "harmonics"}
            ``"none"``: the mean. ``"month"``: the monthly climatology, which needs dates, and all twelve months in the
            training part. ``"harmonics"``: harmonics of the year and of the day, as many as cross-validate best on the
            training part, which need dates over one and a half cycles of either. ``"auto"``: the one of these that
            cross-validates best (`keyhole.data.climatology_choice.choose_climatology`); the mean without dates.

        Returns
        -------
        Samples
        """
        return replace(self, climatology=check_anomalies(kind, self.time))

    def anomalies_as_asked(self, asked: Anomalies) -> Samples:
        """Apply the ``anomalies`` setting of the command line and of `keyhole.select`.

        Parameters
        ----------
        asked : {"auto", "none", "month", "harmonics"}
            As in `anomalies`, but ``"auto"`` keeps what is set on the samples already.

        Returns
        -------
        Samples
        """
        checked = self.anomalies(asked)
        return self if asked == "auto" else checked

    def _settings(self) -> tuple[Any, ...]:
        kind, terms = self.climatology.kind, self.climatology.terms
        own = ("standardised",) if self.standardise else ()
        return (None, *own) if kind == "none" else (kind, *terms, *own)

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
