"""The grid: shape, coordinates, names and valid sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["FULL_TURN", "Grid", "is_latitude", "is_longitude"]

FULL_TURN = 360.0  # degrees

_LATITUDES = ("lat", "latitude", "nav_lat")
_LONGITUDES = ("lon", "longitude", "nav_lon")
_TURN_ROUNDING = 1e-9  # radians
_DIGITS = (6, 9, 17)  # significant digits of labels: short, single precision, double precision


@dataclass(frozen=True, eq=False)
class Grid:
    """A shape whose elements are sites, with coordinates.

    Parameters
    ----------
    shape : tuple of int
        Lengths of the axes: ``(36, 72)`` for a map, ``(617,)`` for the columns of a table.
    dims : tuple of str
        A name for each axis.
    coordinates : mapping of str to ndarray
        A 1-D coordinate array for each axis, by name.
    inside : ndarray of bool, of ``shape``
        The valid sites: those that exist (sea, not land). Only these are reconstructed and scored.
    names : tuple of str, optional
        A name for each site in C order (columns of a table); None: made from the coordinates.
    spots : ndarray of shape (size, d), optional
        Position of each site, where it does not follow from the coordinates of the axes.

    Examples
    --------
    >>> grid = Grid.plain((2, 3))
    >>> grid.name(4), grid.position(4)
    ('row=1 column=1', {'row': np.int64(1), 'column': np.int64(1)})
    """

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    coordinates: Mapping[str, NDArray[np.generic]]
    inside: NDArray[np.bool_]
    names: tuple[str, ...] | None = field(default=None)
    spots: NDArray[np.float64] | None = None

    @classmethod
    def plain(cls, shape: tuple[int, ...], inside: NDArray[np.bool_] | None = None) -> Grid:
        """Make the grid of an array without coordinates: axes are numbered from 0.

        Parameters
        ----------
        shape : tuple of int
            Lengths of the axes.
        inside : ndarray of bool, of ``shape``, optional
            Valid sites; None: all.

        Returns
        -------
        Grid
            With axes ``column``; ``row`` and ``column``; or ``axis0``, ``axis1``, ... .
        """
        dims = {1: ("column",), 2: ("row", "column")}.get(len(shape), tuple(f"axis{i}" for i in range(len(shape))))
        coordinates = {dim: np.arange(n) for dim, n in zip(dims, shape, strict=True)}
        return cls(shape, dims, coordinates, np.ones(shape, bool) if inside is None else inside)

    @property
    def size(self) -> int:
        """Number of sites, valid or not."""
        return int(np.prod(self.shape))

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """Flat indices, in C order, of the valid sites."""
        return np.flatnonzero(self.inside.ravel()).astype(np.int64)

    def position(self, index: int) -> dict[str, np.generic]:
        """Return the coordinates of a site, given its flat index, by axis name."""
        place = np.unravel_index(index, self.shape)
        return {dim: self.coordinates[dim][i] for dim, i in zip(self.dims, place, strict=True)}

    def name(self, index: int) -> str:
        """Return the name of a site, given its flat index: its own, or one made from its coordinates."""
        if self.names is not None:
            return self.names[index]
        place = np.unravel_index(index, self.shape)
        return " ".join(labels[i] for labels, i in zip(self._labels, place, strict=True))

    @cached_property
    def _labels(self) -> tuple[list[str], ...]:
        """Labels of the positions along each axis."""
        return tuple(_label(dim, self.coordinates[dim]) for dim in self.dims)

    def axis_of_latitude(self) -> int | None:
        """Return the position of the axis that holds latitude in degrees, or None."""
        return self._axis_named(_LATITUDES)

    def axis_of_longitude(self) -> int | None:
        """Return the position of the axis that holds longitude in degrees, or None."""
        return self._axis_named(_LONGITUDES)

    def axis_named(self, name: str) -> int | None:
        """Position of an axis by its name; latitude and longitude by any of theirs.

        Examples
        --------
        >>> axes = {"latitude": np.array([0.0, 1.0]), "x": np.arange(3)}
        >>> grid = Grid((2, 3), tuple(axes), axes, np.ones((2, 3), bool))
        >>> grid.axis_named("lat"), grid.axis_named("x"), grid.axis_named("lon")
        (0, 1, None)
        """
        if name in self.dims:
            return self.dims.index(name)
        return next((self._axis_named(names) for names in (_LATITUDES, _LONGITUDES) if name.lower() in names), None)

    def _axis_named(self, names: tuple[str, ...]) -> int | None:
        return next((i for i, dim in enumerate(self.dims) if dim.lower() in names), None)

    @cached_property
    def places(self) -> NDArray[np.float64]:
        """Position of each site, ``(size, d)``, such that distance is Euclidean.

        Latitude and longitude become a point on the unit sphere, so that distance is the chord of the great circle.
        Other axes are counted in grid steps, the longest of them scaled to run from 0 to 1.
        """
        if self.spots is not None:
            return self.spots
        latitude, longitude = self.axis_of_latitude(), self.axis_of_longitude()
        index = np.indices(self.shape, dtype=np.float64).reshape(len(self.shape), -1)
        if latitude is None or longitude is None:
            return np.asarray(index.T / max(max(self.shape) - 1, 1))
        angles = [np.deg2rad(self.along(axis)) for axis in (latitude, longitude)]
        sphere = _on_sphere(*angles)
        others = [axis for axis in range(len(self.shape)) if axis not in (latitude, longitude)]
        longest = max((self.shape[axis] - 1 for axis in others), default=1)
        return np.concatenate([sphere, index[others].T / max(longest, 1)], axis=1)

    def labels(self, axis: int) -> NDArray[np.generic]:
        """Return the labels of an axis: the sites' own names on a grid of one axis that has them, else coordinates."""
        if self.names is not None and len(self.shape) == 1:
            return np.asarray(self.names)
        return np.asarray(self.coordinates[self.dims[axis]])

    def along(self, axis: int) -> NDArray[np.float64]:
        """Return the coordinate of one axis at each site, ``(size,)``."""
        line = np.asarray(self.coordinates[self.dims[axis]], float)
        shape = [-1 if i == axis else 1 for i in range(len(self.shape))]
        return np.broadcast_to(line.reshape(shape), self.shape).ravel()

    def area(self) -> NDArray[np.float64] | None:
        """Return the relative area of each site, or None if the grid has no latitude.

        The area is the cosine of latitude. A row of cells that would extend beyond a pole gets the mean of the cosine
        over the part that does not, so that a row at the pole has a positive area.

        Returns
        -------
        ndarray of ``shape`` or None
        """
        axis = self.axis_of_latitude()
        if axis is None:
            return None
        line = np.deg2rad(np.asarray(self.coordinates[self.dims[axis]], np.float64))
        area = np.cos(line)
        if len(line) > 1:
            steps = np.abs(np.diff(line))
            step = np.minimum(np.append(steps, np.inf), np.append(np.inf, steps))
            inner = np.clip(np.abs(line) - step / 2, 0.0, np.pi / 2)
            beyond = np.abs(line) + step / 2 > np.pi / 2 + _TURN_ROUNDING
            area = np.where(beyond, (1 - np.sin(inner)) / np.where(step > 0, step, 1.0), area)
        shape = [-1 if i == axis else 1 for i in range(len(self.shape))]
        return np.broadcast_to(np.clip(area, 0.0, None).reshape(shape), self.shape).copy()


def is_latitude(dim: str) -> bool:
    """Whether an axis of this name holds latitudes."""
    return dim.lower() in _LATITUDES


def is_longitude(dim: str) -> bool:
    """Whether an axis of this name holds longitudes."""
    return dim.lower() in _LONGITUDES


def _on_sphere(latitude: NDArray[np.float64], longitude: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points ``(n, 3)`` of the unit sphere; angles in radians."""
    flat = np.cos(latitude)
    return np.stack([flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)], axis=1)


def _label(dim: str, values: NDArray[np.generic]) -> list[str]:
    """Label the positions of an axis by coordinate, with as few digits as make them distinct, else by number."""
    for digits in _DIGITS:
        texts = [_text(value, digits) for value in values]
        if len(set(texts)) == len(texts):
            return [f"{dim}={text}" for text in texts]
    return [f"{dim}[{i}]" for i in range(len(values))]


def _text(value: object, digits: int) -> str:
    """A coordinate as text."""
    return f"{value:.{digits}g}" if isinstance(value, float | np.floating) else str(value)
