"""Sensors apart from sites: moorings between cells, kinds of instruments, means over regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.data.constraints.regions import region
from keyhole.data.interpolation import Interpolation, interpolation_weights, points_at
from keyhole.data.metric import Euclidean, Metric
from keyhole.data.placed_sensors import PlacedSensors, join, metric_at, sensor_sites
from keyhole.data.sites import Sites

if TYPE_CHECKING:
    from keyhole.data.samples import Samples

__all__ = ["Sensors", "place_sensors"]

_OWN = ("name", "noise", "cost", "availability", "kind", "variable")  # columns of a table that are no coordinates


@dataclass(frozen=True, eq=False)
class Sensors:
    """Sensors that may be selected, where they are not simply one at each site.

    Made by `at` (positions, between cells too), `every_site` (a kind of instrument that may stand at every site) or
    `of_rows` (any weighted sum of values: the mean over a region, the path of a drifter). A list of several, or a
    mapping of their names, is selected among: cheap and noisy sensors beside dear and good ones.

    Parameters
    ----------
    positions
        Columns of coordinates; None: at every site.
    rows
        Weights over the data, in place of positions.
    names
        Names of the sensors, all different.
    interpolation
        How a position between sites is read: ``"linear"`` or ``"nearest"``.
    noise
        Standard deviation of the measurement noise in the user's units: one number, or one for each sensor. None: that
        of the data (`Samples.with_noise`).
    cost
        Cost of each sensor, for ``constraints={"cost_limit": ...}``.
    availability
        Share of the time that a sensor reports. It enters the selection as additional noise of `1 / a - 1` times the
        variance of the reading.
    kind
        Kind of instrument, one text or one for each sensor.
    variable
        Name or number of the channel that the sensors read; needed if the data have several.
    within
        Region where sensors of `every_site` may be, in any form that `keyhole.Constraints` takes.

    Examples
    --------
    >>> import keyhole as kh
    >>> field = kh.datasets.sst()
    >>> buoys = Sensors.every_site(noise=0.5, cost=1.0)
    >>> floats = Sensors.every_site(noise=0.05, cost=4.0)
    >>> kinds = field.with_sensors({"buoy": buoys, "float": floats})
    >>> len(kinds.sensors) == 2 * len(field.sites)
    True
    """

    positions: Any = None
    rows: Any = None
    names: Sequence[str] | None = None
    interpolation: Interpolation = "linear"
    noise: Any = None
    cost: Any = None
    availability: Any = 1.0
    kind: Any = None
    variable: Any = None
    within: Any = None

    @classmethod
    def at(
        cls, positions: Any, *, names: Sequence[str] | None = None, interpolation: Interpolation = "linear",
        noise: Any = None, cost: Any = None, availability: Any = None, kind: Any = None, variable: Any = None,
    ) -> Self:  # fmt: skip
        """Return sensors at positions.

        Parameters
        ----------
        positions : mapping of columns, DataFrame or path
            Coordinates of the sensors by name, as the data have them (latitude and longitude by any of their usual
            names). Columns ``name``, ``noise``, ``cost``, ``availability``, ``kind`` and ``variable`` stand for the
            arguments of these names that are not given. A path is that of a CSV file.
        names, interpolation, noise, cost, availability, kind, variable
            See `Sensors`.

        Examples
        --------
        >>> moorings = Sensors.at({"lat": [10.2, 11.7], "lon": [200.0, 210.5]}, names=["A", "B"], noise=0.1)
        >>> moorings.names
        ['A', 'B']
        """
        columns = _columns_of(positions)
        own = {name: columns.pop(name) for name in _OWN if name in columns}
        given = {"noise": noise, "cost": cost, "availability": availability, "kind": kind, "variable": variable}
        given = {name: own.get(name) if value is None else value for name, value in given.items()}
        if given["availability"] is None:
            given["availability"] = 1.0
        if interpolation not in ("linear", "nearest"):
            raise SettingsError(f"interpolation={interpolation!r}: 'linear' or 'nearest' is needed")
        labels = own.get("name") if names is None else names
        texts = None if labels is None else [str(name) for name in labels]
        return cls(positions=columns, names=texts, interpolation=interpolation, **given)

    @classmethod
    def every_site(
        cls, *, noise: Any = None, cost: Any = None, availability: Any = 1.0, kind: str | None = None,
        variable: Any = None, within: Any = None,
    ) -> Self:  # fmt: skip
        """Return sensors of one kind, of which one may stand at each valid site; see `Sensors`."""
        return cls(noise=noise, cost=cost, availability=availability, kind=kind, variable=variable, within=within)

    @classmethod
    def of_rows(
        cls, rows: Any, *, names: Sequence[str] | None = None, noise: Any = None, cost: Any = None,
        availability: Any = 1.0, kind: Any = None,
    ) -> Self:  # fmt: skip
        """Return sensors that read weighted sums of values, such as the mean over a region.

        Parameters
        ----------
        rows : array-like or sparse array
            Weights of each sensor over the data: of shape ``(s, *shape)`` or ``(s, channels, *shape)``, or sparse with
            as many columns, in the data's order. Sites that are not valid must have none.
        names, noise, cost, availability, kind
            See `Sensors`.
        """
        return cls(rows=rows, names=names, noise=noise, cost=cost, availability=availability, kind=kind)

    def place(self, sites: Sites, variables: Sequence[str], channels: int) -> PlacedSensors:
        """Return the sensors as rows over the values of the valid sites.

        Parameters
        ----------
        sites
            The valid sites of the data.
        variables
            Names of the channels, if they have any.
        channels
            Number of channels.
        """
        if self.rows is not None:
            operator, coordinates, metric = _given_rows(self.rows, sites, channels)
        elif self.positions is None:
            operator, coordinates, metric = self._at_sites(sites)
        else:
            operator, coordinates, metric = self._at_positions(sites)
        count = operator.shape[0]
        if self.rows is None:
            operator = _of_channels(operator, _channels_of(self.variable, variables, channels, count), channels)
        roles = {role: name for role, name in sites.roles.items() if name in coordinates}
        names = self._names(sites, coordinates, count)
        noise, cost = (_column(getattr(self, name), count, name, least=0.0) for name in ("noise", "cost"))
        availability = _column(self.availability, count, "availability", least=0.0, most=1.0)
        if (cost <= 0).any() or (availability <= 0).any():
            raise SettingsError("sensors: costs and availability must be above zero")
        return PlacedSensors(
            operator=operator, sites=sensor_sites(names, coordinates, roles, metric), noise=noise, cost=cost,
            availability=np.where(np.isnan(availability), 1.0, availability), kinds=_kinds(self.kind, count),
            keys=np.arange(count),
        )  # fmt: skip

    def _at_sites(self, sites: Sites) -> tuple[Any, dict[str, NDArray[Any]], Metric]:
        from scipy.sparse import csr_array

        chosen = np.ones(len(sites), bool) if self.within is None else region(self.within, sites, "within")
        numbers = np.flatnonzero(chosen)
        if not len(numbers):
            raise SettingsError("within: there is no valid site in this region")
        operator = csr_array(
            (np.ones(len(numbers)), numbers, np.arange(len(numbers) + 1)), shape=(len(numbers), len(sites))
        )
        columns = {} if _is_a_table(sites) else {name: sites.coordinate(name)[numbers] for name in sites.location}
        return operator, columns, sites.metric.take(numbers)

    def _at_positions(self, sites: Sites) -> tuple[Any, dict[str, NDArray[Any]], Metric]:
        if not isinstance(self.positions, Mapping):
            raise SettingsError(
                "sensors: positions are columns of coordinates; make sensors by Sensors.at, Sensors.of_rows (weights "
                "over the data) or Sensors.every_site"
            )
        columns = {}
        for given, column in self.positions.items():
            name = sites.find_coordinate(str(given))
            if name is None or name not in sites.location:
                raise SettingsError(
                    f"sensors: {given!r} is no coordinate of the sites; they have {', '.join(sites.location)}"
                )
            columns[name] = column
        missing = [name for name in sites.location if name not in columns]
        if missing:
            raise SettingsError(
                f"sensors: the coordinate {missing[0]!r} is missing; {', '.join(sites.location)} are needed"
            )
        columns = {name: columns[name] for name in sites.location}
        count = len(next(iter(columns.values())))
        names = self._names(sites, columns, count)
        if not isinstance(sites.metric, Euclidean):
            raise SettingsError(
                "sensors: the sites have no positions in space; sensors can be at sites only (every_site)"
            )
        operator = interpolation_weights(sites, columns, names, self.interpolation)
        return operator, columns, metric_at(sites.metric, points_at(sites, columns))

    def _names(self, sites: Sites, coordinates: Mapping[str, NDArray[Any]], count: int) -> list[str]:
        """The names given, those of the sites, or names made from the coordinates."""
        if self.names is not None:
            if len(self.names) != count:
                raise SettingsError(f"sensors: {len(self.names)} names for {count} sensors")
            return list(self.names)
        if self.rows is None and self.positions is None:
            chosen = range(len(sites)) if self.within is None else np.flatnonzero(region(self.within, sites, "within"))
            return [sites.name(int(number)) for number in chosen]
        columns = {name: column.tolist() for name, column in coordinates.items()}
        made = [" ".join(f"{name}={_short(column[i])}" for name, column in columns.items()) for i in range(count)]
        different = bool(columns) and len(set(made)) == count
        return made if different else [f"sensor {i + 1}" for i in range(count)]


def place_sensors(given: Any, samples: Samples) -> PlacedSensors:
    """Place sensors on samples.

    Parameters
    ----------
    given : Sensors, sequence or mapping of these, DataFrame, path or PlacedSensors
        Several are numbered, or named by the keys of a mapping, as kinds of instruments. A DataFrame or CSV file is a
        table of positions, as `Sensors.at` takes it.
    samples
        The samples that they observe.

    Returns
    -------
    PlacedSensors
    """
    if isinstance(given, PlacedSensors):
        if given.operator.shape[1] != samples.channels * len(samples.sites):
            raise SettingsError(
                f"sensors: they are placed on {given.operator.shape[1]} values, and the data have {samples.channels} x "
                f"{len(samples.sites)}"
            )
        return given
    parts = _parts_of(given)
    variables = tuple(samples.origin.variables)
    placed = [part.place(samples.sites, variables, samples.channels) for part in parts]
    return replace(_joined(placed, samples.sites.metric), specification=tuple(parts))


def _parts_of(given: Any) -> list[Sensors]:
    if isinstance(given, Sensors):
        return [given]
    if isinstance(given, str | Path) or hasattr(given, "columns"):
        return [Sensors.at(given)]
    if isinstance(given, Mapping) and all(isinstance(one, Sensors) for one in given.values()):
        found = [replace(one, kind=str(kind)) for kind, one in given.items()]
    elif isinstance(given, Sequence) and all(isinstance(one, Sensors) for one in given):
        found = list(given)
        if len(found) > 1:
            found = [one if one.kind is not None else replace(one, kind=str(i + 1)) for i, one in enumerate(found)]
    else:
        raise SettingsError("sensors: Sensors.at(...), Sensors.every_site(...), a list or mapping of these, or a table")
    if not found:
        raise SettingsError("sensors: the list is empty")
    return found


def _joined(parts: list[PlacedSensors], metric: Metric) -> PlacedSensors:
    """All sensors in one list; names that are not different get their kind in front."""
    for named in (parts, [part.with_names(_with_kinds(part)) for part in parts]):
        every = [name for part in named for name in part.names]
        if len(set(every)) == len(every):
            break
    else:
        twice = next(name for name in every if every.count(name) > 1)
        raise SettingsError(f"sensors: two of them are called {twice!r}; give them different names or kinds")
    if len(named) == 1:
        return named[0]
    starts = np.cumsum([0, *(len(part) for part in named)])
    return join([replace(part, keys=part.keys + start) for part, start in zip(named, starts, strict=False)], metric)


def _with_kinds(part: PlacedSensors) -> list[str]:
    return [f"{kind} {name}".strip() for kind, name in zip(part.kinds, part.names, strict=True)]


def _columns_of(positions: Any) -> dict[str, NDArray[Any]]:
    """Columns of a table of positions, all of one length and without missing coordinates."""
    if isinstance(positions, str | Path):
        from keyhole.data.readers.tables import load_csv

        positions = load_csv(Path(positions), whole=True)
    if not hasattr(positions, "keys"):
        raise SettingsError("positions: columns of coordinates are needed: {'lat': [...], 'lon': [...]}, or a frame")
    columns = {str(name): np.atleast_1d(np.asarray(positions[name])) for name in positions.keys()}  # noqa: SIM118
    lengths = {name: len(column) for name, column in columns.items()}
    if not lengths or min(lengths.values()) < 1 or len(set(lengths.values())) > 1:
        raise SettingsError(f"positions: columns of one length are needed, not {lengths}")
    for name, column in columns.items():
        if name not in _OWN and column.dtype.kind in "fO":
            try:
                missing = ~np.isfinite(column.astype(np.float64))
            except (TypeError, ValueError):
                continue  # labels of an axis
            if missing.any():
                raise SettingsError(f"positions: {name!r} is missing in row {int(missing.argmax()) + 1}")
    return columns


def _channels_of(variable: Any, variables: Sequence[str], channels: int, count: int) -> NDArray[np.int64]:
    """The channel that each sensor reads."""
    if variable is None:
        if channels > 1:
            known = ", ".join(variables) or f"0 to {channels - 1}"
            raise SettingsError(
                f"sensors: the data have {channels} channels; say which the sensors read (variable={known})"
            )
        return np.zeros(count, np.int64)
    given = [variable] * count if isinstance(variable, str | Integral) else list(variable)
    if len(given) != count:
        raise SettingsError(f"variable: {len(given)} for {count} sensors")
    numbers = [list(variables).index(str(one)) if str(one) in variables else one for one in given]
    for number, one in zip(numbers, given, strict=True):
        if not isinstance(number, Integral) or not 0 <= int(number) < channels:
            known = ", ".join(variables) or f"0 to {channels - 1}"
            raise SettingsError(f"variable={one!r}: there are {known}")
    return np.array(numbers, np.int64)


def _of_channels(operator: Any, channel: NDArray[np.int64], channels: int) -> Any:
    """Rows over the sites as rows over channels and sites."""
    from scipy.sparse import csr_array

    m = operator.shape[1]
    columns = operator.indices + m * np.repeat(channel, np.diff(operator.indptr))
    return csr_array((operator.data, columns, operator.indptr), shape=(operator.shape[0], channels * m))


def _given_rows(rows: Any, sites: Sites, channels: int) -> tuple[Any, dict[str, NDArray[Any]], Metric]:
    """Rows over the whole data as rows over the valid sites; each lies at the weighted mean of its sites."""
    from scipy.sparse import csr_array, issparse

    whole = csr_array(rows if issparse(rows) else np.asarray(rows, np.float64).reshape(len(rows), -1))
    if whole.shape[1] == sites.size and channels > 1:
        raise SettingsError(
            f"rows: {channels * sites.size} weights are needed, for each of {channels} channels and site"
        )
    if whole.shape[1] != channels * sites.size or not np.isfinite(whole.data).all():
        raise SettingsError(f"rows: finite weights of shape (sensors, {channels * sites.size}) are needed")
    columns = np.concatenate([channel * sites.size + sites.index for channel in range(channels)])
    operator = csr_array(whole[:, columns])
    operator.eliminate_zeros()
    operator.sort_indices()
    whole.eliminate_zeros()
    if operator.nnz < whole.nnz:
        raise SettingsError("rows: a site that is not valid (land) has a weight")
    if (np.diff(operator.indptr) == 0).any():
        raise SettingsError(f"rows: row {int((np.diff(operator.indptr) == 0).argmax())} has no weight")
    weights = abs(operator)
    by_site = csr_array(
        (weights.data, weights.indices % len(sites), weights.indptr), shape=(whole.shape[0], len(sites))
    )
    by_site.sum_duplicates()
    total = np.asarray(by_site.sum(axis=1)).ravel()
    if isinstance(sites.metric, Euclidean):
        metric: Metric = metric_at(sites.metric, (by_site @ sites.metric.points) / total[:, np.newaxis])
    else:
        largest = [int(by_site[[row]].toarray().argmax()) for row in range(by_site.shape[0])]
        metric = sites.metric.take(np.array(largest, np.int64))
    return operator, {}, metric


def _column(given: Any, count: int, name: str, *, least: float, most: float = np.inf) -> NDArray[np.float64]:
    """One number for each sensor; NaN for None."""
    if given is None:
        return np.full(count, np.nan)
    if isinstance(given, bool) or (not isinstance(given, Real) and not hasattr(given, "__len__")):
        raise SettingsError(f"{name}={given!r}: a number, or one for each sensor, is needed")
    try:
        values = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{name}: a number for each sensor is needed ({error})") from error
    if values.ndim > 1 or (values.ndim == 1 and len(values) != count):
        raise SettingsError(f"{name}: one number, or one for each of {count} sensors, is needed; not {values.shape}")
    values = np.broadcast_to(values, (count,)).copy()
    known = values[~np.isnan(values)]
    if not ((known >= least) & (known <= most) & np.isfinite(known)).all():
        limits = f"from {least:g} to {most:g}" if np.isfinite(most) else f"{least:g} or more"
        raise SettingsError(f"{name}: numbers {limits} are needed")
    return values


def _kinds(kind: Any, count: int) -> tuple[str, ...]:
    if kind is None or isinstance(kind, str):
        return (kind or "",) * count
    if len(kind) != count:
        raise SettingsError(f"kind: {len(kind)} for {count} sensors")
    return tuple("" if one is None or one != one else str(one) for one in kind)


def _is_a_table(sites: Sites) -> bool:
    """Whether sites are columns of a table, which have names and no coordinates."""
    return sites.names is not None and not sites.auxiliary


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
