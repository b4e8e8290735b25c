"""Sensors that may be selected, as rows of a sparse operator over the values of a field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.data.constraints import Constraints
from keyhole.data.coordinates import Auxiliary, Role
from keyhole.data.metric import Euclidean, Metric
from keyhole.data.noise import standard_noise
from keyhole.data.sites import Sites
from keyhole.data.values import read_columns

if TYPE_CHECKING:
    from keyhole.data.sample_set import SampleSet
    from keyhole.data.sensors import Sensors

__all__ = ["SENSOR", "PlacedSensors", "join", "metric_at", "read_rows_over", "rows_over", "sensor_sites"]

SENSOR = "sensor"  # the one dimension of sensors


def sensor_sites(
    names: Sequence[str], coordinates: Mapping[str, NDArray[Any]], roles: Mapping[Role, str], metric: Metric
) -> Sites:
    """Return sensors as sites, by which constraints, costs and readings find them.

    Parameters
    ----------
    names
        One for each sensor, all different.
    coordinates
        Columns of the sensors' own coordinates.
    roles
        Which of them are latitude, longitude and so on.
    metric
        Distances between the sensors.
    """
    count = len(names)
    auxiliary = {name: Auxiliary((SENSOR,), np.asarray(column)) for name, column in coordinates.items()}
    return Sites(
        (count,), (SENSOR,), {SENSOR: np.arange(count)}, np.arange(count), auxiliary, dict(roles), tuple(names), metric
    )


def rows_over(operator: Any, values: NDArray[Any]) -> NDArray[Any]:
    """Apply rows over channels and sites to values ``(N, channels, m)``: ``(N, rows)``.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rows_over(csr_array(np.array([[0.5, 0.5, 0.0]])), np.array([[[1.0, 3.0, 7.0]]]))
    array([[2.]])
    """
    flat = values.reshape(len(values), -1)
    if operator.nnz == operator.shape[0] and (np.diff(operator.indptr) == 1).all():  # each row reads one value
        picked = flat[:, operator.indices]
        return picked if (operator.data == 1).all() else picked * operator.data.astype(flat.dtype)
    touched = np.unique(operator.indices)
    return np.asarray((operator[:, touched] @ flat[:, touched].T).T, flat.dtype)


def read_rows_over(operator: Any, samples: SampleSet) -> NDArray[Any]:
    """Apply rows over channels and sites to the values of samples, of which only those that are touched are read."""
    m = len(samples.sites)
    touched, places = np.unique(operator.indices % m, return_inverse=True)
    if len(touched) == m:
        return rows_over(operator, samples.values)
    columns = (operator.indices // m) * len(touched) + places
    narrow = csr_like(operator, columns, samples.channels * len(touched))
    return rows_over(narrow, read_columns(samples.source, touched))


def csr_like(operator: Any, columns: NDArray[np.int64], width: int) -> Any:
    """Return the rows of an operator with the weights in other columns."""
    from scipy.sparse import csr_array

    return csr_array((operator.data, columns, operator.indptr), shape=(operator.shape[0], width))


@dataclass(frozen=True, eq=False, kw_only=True)
class PlacedSensors:
    """Sensors over the values of some sites; what `Sensors` becomes on given data.

    A sensor reads a row `h` of the operator, `y = h x + e` with the values `x` of all channels and sites in the user's
    units and measurement noise `e`.

    Parameters
    ----------
    operator
        ``(s, channels * m)`` sparse array, channel by channel.
    sites
        The sensors themselves as sites: names, coordinates and the distances between them.
    noise
        ``(s,)``, standard deviation of the measurement noise in the user's units; NaN where it is that of the data
        (`Samples.with_noise`).
    cost
        ``(s,)``; NaN where none was given.
    availability
        ``(s,)``, share of the time that each sensor reports.
    kinds
        ``(s,)``, kind of each sensor; empty texts without kinds.
    keys
        ``(s,)``, number of each sensor among all that might have been selected, which its noise is keyed by.
    specification
        What the user asked for; None for sensors of a plan.
    """

    operator: Any
    sites: Sites
    noise: NDArray[np.float64]
    cost: NDArray[np.float64]
    availability: NDArray[np.float64]
    kinds: tuple[str, ...]
    keys: NDArray[np.int64]
    specification: tuple[Sensors, ...] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sensors."""
        return self.sites.names or ()

    @property
    def coordinates(self) -> dict[str, NDArray[Any]]:
        """Columns of the sensors' own coordinates."""
        return {name: np.asarray(one.values) for name, one in self.sites.auxiliary.items()}

    def take(self, sensors: NDArray[np.int64]) -> PlacedSensors:
        """Return some of the sensors, in the given order."""
        coordinates = {name: column[sensors] for name, column in self.coordinates.items()}
        names = [self.names[number] for number in sensors]
        return replace(
            self, operator=self.operator[sensors], noise=self.noise[sensors], cost=self.cost[sensors],
            sites=sensor_sites(names, coordinates, self.sites.roles, self.sites.metric.take(sensors)),
            availability=self.availability[sensors], kinds=tuple(self.kinds[number] for number in sensors),
            keys=self.keys[sensors],
        )  # fmt: skip

    def with_names(self, names: Sequence[str]) -> PlacedSensors:
        """Return the sensors under other names."""
        return replace(self, sites=sensor_sites(names, self.coordinates, self.sites.roles, self.sites.metric))

    def numbers_of(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the numbers of sensors by name."""
        numbers = {name: number for number, name in enumerate(self.names)}
        missing = [name for name in names if name not in numbers]
        if missing:
            raise SettingsError(f"sensors: there is none called {missing[0]!r}")
        return np.array([numbers[name] for name in names], np.int64)

    def restrict(self, keep: NDArray[np.bool_]) -> PlacedSensors:
        """Return the sensors over some of the sites only, of which they must read no others.

        Parameters
        ----------
        keep
            ``(m,)``, the sites to keep.
        """
        from scipy.sparse import csr_array

        columns = np.flatnonzero(np.tile(keep, self.operator.shape[1] // len(keep)))
        rest = csr_array(self.operator[:, columns])
        if rest.nnz < self.operator.nnz:
            lost = int((np.diff(rest.indptr) < np.diff(self.operator.indptr)).argmax())
            raise SettingsError(f"sensor {self.names[lost]!r} reads a site that is left out")
        return replace(self, operator=rest)

    def beside(self, others: PlacedSensors, metric: Metric) -> PlacedSensors:
        """Return these sensors and others of the same data; those of the same name are the same.

        Parameters
        ----------
        others
            Further sensors, whose keys are made to differ.
        metric
            Distances between the sites.
        """
        new = others.take(np.flatnonzero([name not in self.names for name in others.names]))
        return join((self, replace(new, keys=new.keys + int(self.keys.max()) + 1)), metric)

    def home(self, m: int) -> NDArray[np.int64]:
        """Return the site of the largest weight of each sensor, which stands for it in the distances to other sites."""
        starts, data, columns = self.operator.indptr, np.abs(self.operator.data), self.operator.indices
        if len(data) == len(self):
            return np.asarray(columns % m, np.int64)
        largest = [start + int(data[start:stop].argmax()) for start, stop in pairwise(starts)]
        return np.asarray(columns[largest] % m, np.int64)

    def scaled(self, scale: NDArray[np.float64]) -> tuple[Any, NDArray[np.float64]]:
        """Return the operator over values in units of each channel's scale, and the scale of each sensor.

        The scale of a sensor is the mean of the scales of the channels that it reads, by its weights.

        Parameters
        ----------
        scale
            ``(channels,)``, as in `Scaler`.
        """
        from scipy.sparse import csr_array

        m = self.operator.shape[1] // len(scale)
        of_entry = scale[self.operator.indices // m]
        weights = np.abs(self.operator.data)
        own = np.add.reduceat(weights * of_entry, self.operator.indptr[:-1])
        own = own / np.add.reduceat(weights, self.operator.indptr[:-1])
        if len(np.unique(scale)) == 1:
            own = np.full(len(self), scale[0])
        data = self.operator.data * (of_entry / np.repeat(own, np.diff(self.operator.indptr)))
        return csr_array((data, self.operator.indices, self.operator.indptr), shape=self.operator.shape), own

    def noise_of(self, noise: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return the standard deviation of each sensor's noise: its own, or that of the data, interpolated.

        Parameters
        ----------
        noise
            ``(channels, m)``, noise of the data in the user's units; None for none.
        """
        of_data = np.zeros(len(self)) if noise is None else np.abs(self.operator) @ noise.ravel()
        return np.where(np.isnan(self.noise), of_data, self.noise)

    def draw_noise(self, rows: NDArray[np.int64], sensors: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return standard normal numbers keyed by sample and sensor, ``(N, 1, K)``."""
        return standard_noise(rows, self.keys[sensors], 1)

    def readings(self, samples: SampleSet, sensors: NDArray[np.int64], *, noisy: bool = False) -> NDArray[Any]:
        """Return what some sensors read of unscaled samples, ``(N, K, 1)``; NaN where a value is missing.

        Parameters
        ----------
        samples
            In the user's units.
        sensors
            Numbers of the sensors.
        noisy
            Whether measurement noise is added.
        """
        readings = read_rows_over(self.operator[sensors], samples)
        if noisy:
            rows = np.arange(len(samples)) if samples.rows is None else samples.rows
            spread = self.noise_of(samples.noise)[sensors]
            if spread.any():
                readings = readings + (self.draw_noise(rows, sensors) * spread)[:, 0]
        return readings[:, :, np.newaxis]

    def constraints(self, given: Constraints) -> Constraints:
        """Return constraints with the sensors' costs, where there is a limit of these.

        Raises
        ------
        SettingsError
            If costs are given twice or not at all, or sites are in groups.
        """
        if given.groups is not None:
            raise SettingsError("groups: sites can be selected in groups, sensors cannot")
        if given.cost_limit is None or given.costs is not None:
            if given.costs is not None and not np.isnan(self.cost).all():
                raise SettingsError("costs: the sensors have costs of their own; give them in one place")
            return given
        if np.isnan(self.cost).any():
            name = self.names[int(np.isnan(self.cost).argmax())]
            raise SettingsError(f"cost_limit: sensor {name!r} has no cost (Sensors.at(..., cost=...))")
        return replace(given, costs=self.cost)

    def columns(self) -> dict[str, Any]:
        """Return the columns of a table of the sensors: coordinates, then kind, noise and cost where they are known."""
        own: dict[str, Any] = dict(self.coordinates)
        if any(self.kinds):
            own["kind"] = list(self.kinds)
        known = {"noise": self.noise, "cost": self.cost}
        return own | {name: column for name, column in known.items() if (column > 0).any()}

    def counted(self) -> str:
        """Return the number of sensors of each kind as text, such as ``"7 buoy, 3 float"``."""
        counts = Counter(kind or "without a kind" for kind in self.kinds)
        return ", ".join(f"{count} {kind}" for kind, count in counts.items()) if any(self.kinds) else f"{len(self)}"

    def units(self, of_channels: Sequence[str]) -> list[str]:
        """Return the unit of the readings, empty where sensors read channels of several units."""
        m = self.operator.shape[1] // len(of_channels)
        found = {of_channels[channel] for channel in np.unique(self.operator.indices // m)}
        return [found.pop() if len(found) == 1 else ""]

    def resolved(self, noise: NDArray[np.float64] | None) -> PlacedSensors:
        """Return the sensors of a plan: with the noise of the data where they have none, and without a specification.

        Parameters
        ----------
        noise
            ``(channels, m)``, noise of the data in the user's units; None for none.
        """
        return replace(self, noise=self.noise_of(noise), specification=None)

    def add_to(self, digest: Any) -> None:
        """Add everything that changes results to a hash."""
        digest.update(repr((self.names, self.kinds)).encode())
        for array in (self.operator.data, self.operator.indices, self.operator.indptr, self.noise, self.availability):
            digest.update(np.ascontiguousarray(array).data)


def join(parts: Sequence[PlacedSensors], metric: Metric) -> PlacedSensors:
    """Return several lists of sensors over the same values as one; their names and keys must differ.

    Parameters
    ----------
    parts
        The lists.
    metric
        Distances between the sites.
    """
    from scipy.sparse import csr_array, vstack

    shared = [name for name in parts[0].coordinates if all(name in part.coordinates for part in parts)]
    coordinates = {name: np.concatenate([part.coordinates[name] for part in parts]) for name in shared}
    roles = {role: name for role, name in parts[0].sites.roles.items() if name in coordinates}
    if isinstance(metric, Euclidean):
        own = [part.sites.metric for part in parts]
        metric = metric_at(metric, np.concatenate([one.points for one in own if isinstance(one, Euclidean)]))
    else:
        metric = metric.take(np.concatenate([part.home(len(metric)) for part in parts]))
    return PlacedSensors(
        operator=csr_array(vstack([part.operator for part in parts])),
        sites=sensor_sites([name for part in parts for name in part.names], coordinates, roles, metric),
        noise=np.concatenate([part.noise for part in parts]),
        cost=np.concatenate([part.cost for part in parts]),
        availability=np.concatenate([part.availability for part in parts]),
        kinds=tuple(kind for part in parts for kind in part.kinds),
        keys=np.concatenate([part.keys for part in parts]),
    )


def metric_at(metric: Euclidean, points: NDArray[np.float64]) -> Euclidean:
    """Return the distances between points in the space of a metric."""
    found = metric.take(np.zeros(len(points), np.int64))
    found.points = points
    return found
