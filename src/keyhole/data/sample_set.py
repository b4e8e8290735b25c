"""What samples have in common, in the user's units and scaled: values at sites, and what is known of both."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.data.constraints import FeasibleSet, PlacementRules, ResolvedConstraints
from keyhole.data.noise import standard_noise
from keyhole.data.origin import SourceInfo
from keyhole.data.placed_sensors import PlacedSensors
from keyhole.data.sites import Sites
from keyhole.data.splits import Indices
from keyhole.data.target import Target
from keyhole.data.values import (
    DeferredValues,
    SamplePanels,
    Values,
    is_large,
    memory_of,
    probe_sites,
    read_rows,
    subset_stride,
    take_rows,
    whole_of,
)

__all__ = ["CHANNEL_AXES", "SampleSet"]

CHANNEL_AXES = ("variable", "channel")  # first axis of sites that channels were made of, with and without names


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
    sample_groups : ndarray of shape (N,), optional
        Label of the group of each sample, such as its subject; a group is in one part of a split alone.
    constraints : ResolvedConstraints, optional
        Constraints on the placement beyond ``observable``.
    weights : ndarray of shape (m,), optional
        Loss weight of each site; None: uniform.
    noise : ndarray of shape (channels, m), optional
        Standard deviation of the measurement noise, in units of ``values``; None: not given, so that
        readings are free of noise and searches assume a little.
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
    sample_groups: NDArray[Any] | None = None
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

    def join(self, others: Self) -> Self:
        """Return these samples, then others of the same kind at the same sites, in memory.

        Parameters
        ----------
        others : SampleSet
            As many optional entries as these.
        """
        first, second = (part._entries(np.arange(len(part))) | {"data": part.values} for part in (self, others))
        return replace(self, **{name: _joined(one, second[name]) for name, one in first.items()})

    def _entries(self, indices: Indices) -> dict[str, Any]:
        """The fields that have one entry for each sample, for some of the samples."""
        rows = np.arange(len(self)) if self.rows is None else self.rows
        return {
            "data": take_rows(self.source, indices),
            "time": None if self.time is None else self.time[indices],
            "target": None if self.target is None else self.target.take(indices),
            "covariates": None if self.covariates is None else self.covariates[indices],
            "sample_groups": None if self.sample_groups is None else self.sample_groups[indices],
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
        if self.noise is None or not self.noise.any():
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


def _joined(one: Any, other: Any) -> Any:
    """Entries of some samples, then those of others; None where there are none."""
    if one is None or other is None:
        return None
    if isinstance(one, Mapping):
        return {name: np.concatenate([labels, other[name]]) for name, labels in one.items() if name in other}
    return one.join(other) if isinstance(one, Target) else np.concatenate([one, other])
