"""Sites: where sensors could be, with coordinates, names, distances and areas, on any geometry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.data.areas import area_on_lattice
from keyhole.data.coordinate_metric import metric_of
from keyhole.data.coordinates import (
    DIGITS,
    Auxiliary,
    Role,
    count_distinct,
    digits_of_axis,
    is_latitude,
    is_longitude,
    is_radian,
    roles_of,
    rows_by_name,
    text_of,
)
from keyhole.data.mesh import Mesh
from keyhole.data.metric import Euclidean, GreatCircle, Metric, NoMetric, on_sphere

__all__ = ["Sites"]

_NEIGHBOURS = 4
_ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, eq=False)
class Sites:
    """The m positions where a sensor could be, and how they lie in the data.

    A regular grid, a curvilinear one, the cells of a mesh, stations, the pixels of an image and the columns of a table
    are all sites: values come in arrays of some ``shape``, of which m positions are valid. Land costs no memory.

    Parameters
    ----------
    shape
        Shape of one sample in the data: ``(36, 72)`` for a map, ``(617,)`` for the columns of a table.
    dims
        A name for each axis.
    axes
        The coordinate along each axis, by name.
    index
        ``(m,)``, position of each valid site in the data, in C order, ascending.
    auxiliary
        Further coordinates by name, such as latitude and longitude on a curvilinear grid.
    roles
        Which coordinates are latitude and longitude (in degrees), the vertical one, and x and y of a projection.
    names
        ``(m,)``, names of the sites' own, such as the columns of a table; None: made from the coordinates.
    metric
        Distances between the sites.
    cell_area
        ``(m,)``, area of each site where the data say it (cell measures, bounds); None: not known.
    vertical_scale
        See `Sites.build`.
    mesh
        Faces of the mesh on whose faces or nodes the sites are; None where they lie on none, or it is not known.

    Examples
    --------
    >>> sites = Sites.plain((2, 3))
    >>> len(sites), sites.name(4), sites.position(4)
    (6, 'row=1 column=1', {'row': np.int64(1), 'column': np.int64(1)})
    """

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    axes: Mapping[str, NDArray[Any]]
    index: NDArray[np.int64]
    auxiliary: Mapping[str, Auxiliary] = field(default_factory=dict)
    roles: Mapping[Role, str] = field(default_factory=dict)
    names: tuple[str, ...] | None = None
    metric: Metric = field(default_factory=lambda: NoMetric(0))
    cell_area: NDArray[np.float64] | None = None
    vertical_scale: float | None = None
    mesh: Mesh | None = None

    @classmethod
    def build(
        cls,
        shape: tuple[int, ...],
        dims: tuple[str, ...],
        axes: Mapping[str, NDArray[Any]],
        *,
        valid: NDArray[np.bool_] | None = None,
        auxiliary: Mapping[str, Auxiliary] | None = None,
        roles: Mapping[Role, str] | None = None,
        names: tuple[str, ...] | None = None,
        cell_area: NDArray[np.float64] | None = None,
        vertical_scale: float | None = None,
        mesh: Mesh | None = None,
    ) -> Sites:
        """Make sites from coordinates, with the metric that these allow.

        Parameters
        ----------
        shape, dims, axes, auxiliary, roles
            See `Sites`; without ``roles`` latitude and longitude are known by their usual names.
        valid
            Of ``shape``: which positions are valid; None: all.
        names
            One for each position in the data, valid or not.
        cell_area
            Of ``shape``: area of each cell, in any unit.
        vertical_scale
            Kilometres of horizontal distance (units of the horizontal coordinates, without latitude and longitude) that
            count like one unit of the vertical coordinate. None: distances are horizontal.
        mesh
            See `Sites`.

        Returns
        -------
        Sites
        """
        count = int(np.prod(shape))
        index = np.arange(count) if valid is None else np.flatnonzero(valid)
        auxiliary = dict(auxiliary or {})
        sites = cls(
            shape, dims, dict(axes), index.astype(np.int64), auxiliary,
            roles_of((*dims, *auxiliary)) if roles is None else dict(roles),
            None if names is None else tuple(names[place] for place in index),
            cell_area=None if cell_area is None else np.asarray(cell_area, np.float64).ravel()[index],
            vertical_scale=vertical_scale, mesh=mesh,
        )  # fmt: skip
        return replace(sites, metric=metric_of(sites, vertical_scale))

    @classmethod
    def plain(cls, shape: tuple[int, ...], valid: NDArray[np.bool_] | None = None) -> Sites:
        """Make the sites of an array without coordinates: axes are numbered from 0.

        Parameters
        ----------
        shape
            Shape of one sample.
        valid
            Of ``shape``: which positions are valid; None: all.

        Returns
        -------
        Sites
            With axes ``column``; ``row`` and ``column``; or ``axis0``, ``axis1``, ... .
        """
        dims = {1: ("column",), 2: ("row", "column")}.get(len(shape), tuple(f"axis{i}" for i in range(len(shape))))
        return cls.build(shape, dims, {dim: np.arange(n) for dim, n in zip(dims, shape, strict=True)}, valid=valid)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def size(self) -> int:
        """Number of positions in the data, valid or not."""
        return int(np.prod(self.shape))

    def take(self, sites: NDArray[np.int64]) -> Sites:
        """Return some of the sites, which must be given in ascending order."""
        return replace(
            self, index=self.index[sites], metric=self.metric.take(sites),
            names=None if self.names is None else tuple(self.names[site] for site in sites),
            cell_area=None if self.cell_area is None else self.cell_area[sites],
        )  # fmt: skip

    # Between arrays of the sites and arrays of the data

    def to_grid(self, values: NDArray[Any], fill: Any = np.nan) -> NDArray[Any]:
        """Put values of the sites ``(..., m)`` back into the shape of the data, ``(..., *shape)``.

        Parameters
        ----------
        values
            The last axis runs along the sites.
        fill
            What stands where no valid site is.
        """
        if len(self) == self.size:
            return values.reshape(*values.shape[:-1], *self.shape)
        kind = np.result_type(values.dtype, np.asarray(fill).dtype) if values.dtype.kind in "iub" else values.dtype
        whole = np.full((*values.shape[:-1], self.size), fill, kind)
        whole[..., self.index] = values
        return whole.reshape(*values.shape[:-1], *self.shape)

    def from_grid(self, values: NDArray[Any]) -> NDArray[Any]:
        """Take the sites from arrays of the data's shape, ``(..., *shape)``: ``(..., m)``."""
        flat = values.reshape(*values.shape[: values.ndim - len(self.shape)], self.size)
        return flat if len(self) == self.size else np.take(flat, self.index, axis=-1)

    def number(self, index: Any) -> NDArray[np.int64]:
        """Return the numbers (0 to m - 1) of the sites at some positions in the data; -1 where none is valid."""
        index = np.asarray(index, np.int64)
        found = np.searchsorted(self.index, index)
        found = np.minimum(found, len(self) - 1)
        return np.where(self.index[found] == index, found, -1)

    # Coordinates

    @cached_property
    def places(self) -> tuple[NDArray[np.int64], ...]:
        """Position of each site along each axis of the data."""
        return tuple(np.asarray(one, np.int64) for one in np.unravel_index(self.index, self.shape))

    def coordinate(self, name: str) -> NDArray[Any]:
        """Return a coordinate of each site, ``(m,)``, by the name of an axis or of an auxiliary coordinate."""
        if name in self.auxiliary:
            dims, values = self.auxiliary[name]
            return np.asarray(values[tuple(self.places[self.dims.index(dim)] for dim in dims)])
        return np.asarray(self.axes[name])[self.places[self.dims.index(name)]]

    def role(self, role: Role) -> NDArray[np.float64] | None:
        """Return the coordinate of each site in some role, ``(m,)``, or None."""
        return np.asarray(self.coordinate(self.roles[role]), np.float64) if role in self.roles else None

    @property
    def is_geographic(self) -> bool:
        """Whether the sites have a latitude and a longitude."""
        return "latitude" in self.roles and "longitude" in self.roles

    def find_coordinate(self, name: str) -> str | None:
        """Return the coordinate that a user means: by its name, or latitude and longitude by any of theirs.

        Examples
        --------
        >>> axes = {"latitude": np.array([0.0, 1.0]), "x": np.arange(3)}
        >>> sites = Sites.build((2, 3), tuple(axes), axes)
        >>> sites.find_coordinate("lat"), sites.find_coordinate("x"), sites.find_coordinate("lon")
        ('latitude', 'x', None)
        """
        if name in self.dims or name in self.auxiliary:
            return name
        lower = name.lower()
        role: Role | None = "latitude" if is_latitude(lower) else "longitude" if is_longitude(lower) else None
        return None if role is None else self.roles.get(role)

    def labels(self, name: str, coordinate: Any) -> NDArray[Any]:
        """Return the values of a coordinate of a DataArray; latitude and longitude in radians become degrees."""
        values = np.asarray(coordinate.values)
        is_angle = self.find_coordinate(name) in (self.roles.get("latitude"), self.roles.get("longitude"))
        return np.rad2deg(values) if is_angle and is_radian(coordinate.attrs) else values

    @cached_property
    def location(self) -> tuple[str, ...]:
        """Names of the coordinates that tell where a site is, in the order of the data's axes.

        An axis counts unless an auxiliary coordinate with a role, such as latitude, varies along it, which then stands
        in its place.
        """
        roles, found = [self.roles[role] for role in _ROLES if role in self.roles], list[str]()
        for dim in self.dims:
            along = [name for name in roles if name in self.auxiliary and dim in self.auxiliary[name].dims]
            found += [name for name in along or [dim] if name not in found]
        return tuple(found)

    def position(self, site: int) -> dict[str, Any]:
        """Return the coordinates of a site by name."""
        at = [int(place[site]) for place in self.places]
        found: dict[str, Any] = {}
        for name in self.location:
            if name in self.auxiliary:
                dims, values = self.auxiliary[name]
                found[name] = values[tuple(at[self.dims.index(dim)] for dim in dims)]
            else:
                found[name] = self.axes[name][at[self.dims.index(name)]]
        return found

    def name(self, site: int) -> str:
        """Return the name of a site: its own, or one made from its coordinates."""
        if self.names is not None:
            return self.names[site]
        if self._share_positions:
            return " ".join(f"{dim}[{int(place[site])}]" for dim, place in zip(self.dims, self.places, strict=True))
        position = self.position(site)
        return " ".join(
            f"{name}[{int(self.places[self.dims.index(name)][site])}]" if digits == 0
            else f"{name}={text_of(position[name], digits)}"
            for name, digits in self._digits.items()
        )  # fmt: skip

    @cached_property
    def _digits(self) -> dict[str, int]:
        """Significant digits of each coordinate that make names distinct: the values of an axis, positions of sites."""
        columns = [self.coordinate(name) for name in self.location if name in self.auxiliary]
        count = count_distinct(columns, None)  # fewer than sites where they repeat at each level
        together = next((digits for digits in DIGITS if count_distinct(columns, digits) == count), DIGITS[-1])
        return {
            name: together if name in self.auxiliary else digits_of_axis(np.asarray(self.axes[name]))
            for name in self.location
        }

    @cached_property
    def _share_positions(self) -> bool:
        """Whether two sites have the same auxiliary coordinates, so that these name neither."""
        if not self.auxiliary or not set(self.location) & set(self.auxiliary):
            return False
        return count_distinct([self.coordinate(name) for name in self.location], None) < len(self)

    def distances_from(self, position: Mapping[str, float]) -> tuple[NDArray[np.float64], float]:
        """Return the distance of each site from a position, and how far apart neighbouring sites are.

        Parameters
        ----------
        position
            Coordinates by name: latitude and longitude, or all that the sites have.

        Returns
        -------
        distances : ndarray of shape (m,)
            In units of the metric.
        spacing : float
            Of the nearest site, the distance to the fourth neighbour; so far the next site of a regular grid is along
            its diagonal.
        """
        names = list(position)
        if self.is_geographic and {self.roles["latitude"], self.roles["longitude"]} == set(names):
            ends = [
                np.append(self.coordinate(self.roles[one]), position[self.roles[one]])
                for one in ("latitude", "longitude")
            ]
            metric: Metric = GreatCircle(*ends)
        else:
            metric = Euclidean(np.stack([np.append(self.coordinate(name), position[name]) for name in names], axis=1))
        distances = metric.distances([len(self)], range(len(self)))[0]
        around = np.sort(metric.distances([int(distances.argmin())], range(len(self)))[0])
        return distances, float(around[min(_NEIGHBOURS, len(around) - 1)]) or 1.0

    def grid_points(self) -> NDArray[np.float64]:
        """Return points ``(size, d)`` of all positions in the data, valid or not, whose distances are straight.

        Points of the unit sphere with latitude and longitude; else positions along the axes, the longest from 0 to 1,
        as convolutions see them, whatever their coordinates.
        """
        index = np.indices(self.shape, dtype=np.float64).reshape(len(self.shape), -1)
        if set(self.location) == {self.roles.get("latitude"), self.roles.get("longitude")}:
            whole = replace(self, index=np.arange(self.size))
            points = on_sphere(*(whole.coordinate(self.roles[role]) for role in ("latitude", "longitude")))
            if np.isfinite(points).all():
                return points
        return np.asarray(index.T / max(max(self.shape) - 1, 1))

    def with_graph(self, graph: Any) -> Sites:
        """Return the sites with distances along the edges of a graph; see `Graph.read`."""
        from keyhole.data.graphs import Graph

        found = Graph.read(graph)
        if self.names is not None:
            return replace(self, metric=found.metric(self.names))
        if found.size == self.size:  # nodes where no site is valid still lie on paths
            return replace(self, metric=found.metric(self.size).take(self.index))
        return replace(self, metric=found.metric(len(self)))

    def with_coordinates(self, table: Any) -> Sites:
        """Return sites with positions from a table; see `Samples.with_coordinates`."""
        if self.auxiliary or len(self.shape) > 1:
            raise SettingsError("coordinates: only the columns of a table, or data of one axis, can be given positions")
        labels = [str(label) for label in (self.names or self.axes[self.dims[0]][self.index].tolist())]
        rows, columns = rows_by_name(table, labels)
        auxiliary = {}
        for name in columns:
            values = np.full(self.size, np.nan)
            values[self.index] = rows[name].to_numpy(np.float64)
            auxiliary[name] = Auxiliary(self.dims, values)
        roles = roles_of(tuple(columns))
        if not set(roles) >= {"latitude", "longitude"}:
            roles = {"x": "x", "y": "y", **{role: name for role, name in roles.items() if role == "vertical"}}
        sites = replace(self, auxiliary=auxiliary, roles=roles, names=tuple(labels))
        return replace(sites, metric=metric_of(sites, None))

    def with_vertical_scale(self, scale: float) -> Sites:
        """Return the sites with distances in which one unit of the vertical coordinate counts like ``scale``.

        Kilometres with latitude and longitude, else units of the horizontal coordinates.
        """
        if isinstance(scale, bool) or not isinstance(scale, Real) or not 0 < float(scale) < np.inf:
            raise SettingsError(f"vertical_scale={scale!r}: a number above zero is needed")
        if "vertical" not in self.roles:
            raise SettingsError("vertical_scale: the sites have no vertical coordinate")
        return replace(self, metric=metric_of(self, scale), vertical_scale=scale)

    def repeat(self, axis: str, labels: NDArray[Any]) -> Sites:
        """Return as many copies of the sites as there are labels, along a new first axis."""
        count = len(labels)
        rows = np.tile(np.arange(len(self)), count)
        return replace(
            self, shape=(count, *self.shape), dims=(axis, *self.dims), axes={axis: labels, **self.axes},
            index=np.concatenate([copy * self.size + self.index for copy in range(count)]),
            names=None if self.names is None else tuple(f"{label} {name}" for label in labels for name in self.names),
            metric=self.metric.take(rows), cell_area=None if self.cell_area is None else self.cell_area[rows],
        )  # fmt: skip

    # Areas

    @cached_property
    def area(self) -> NDArray[np.float64] | None:
        """Relative area of each site, ``(m,)``; None where it is not known.

        The area that the data give; else, where positions are a lattice of latitudes and longitudes, the cosine of
        latitude. The cells of a mesh and stations have no known area.
        """
        if self.cell_area is not None:
            return self.cell_area
        latitude = self.role("latitude")
        if latitude is None:
            return None
        names = [self.roles[role] for role in ("latitude", "longitude") if role in self.roles]
        ends = [self.auxiliary.get(name, Auxiliary((name,), self.axes.get(name, np.empty(0)))) for name in names]
        latitudes, *longitudes = (np.asarray(one.values, np.float64).ravel() for one in ends)
        together = len(ends) == 2 and ends[0].dims == ends[1].dims
        return area_on_lattice(latitude, latitudes, longitudes[0] if together else None)
