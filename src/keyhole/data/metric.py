"""Distances between sites: along the great circle, in a plane or space, or none; see `GraphMetric` for graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keyhole.core.errors import SettingsError

__all__ = ["EARTH_RADIUS_KM", "ROUNDING", "Euclidean", "GreatCircle", "Metric", "NoMetric"]

EARTH_RADIUS_KM = 6371.0
ROUNDING = 1e-9  # relative tolerance of a radius
_N_NEIGHBOURS = 6


class Metric(ABC):
    """Base class of metrics: distances between m sites, and localisation of covariances by distance.

    Matrices of all sites by all sites are never made.

    Attributes
    ----------
    unit
        Unit of the distances, such as ``"km"``; empty where coordinates have none.
    """

    unit: str = ""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of sites."""

    @abstractmethod
    def distances(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
        """Return the distances between two sets of sites.

        Parameters
        ----------
        first, second
            Numbers of the sites, ``(i,)`` and ``(j,)``.

        Returns
        -------
        ndarray of shape (i, j)
        """

    @abstractmethod
    def within(self, sites: ArrayLike, radius: float) -> NDArray[np.int64]:
        """Return the sites closer than a radius to any of some sites, which are among them, in ascending order."""

    @abstractmethod
    def taper(self, first: ArrayLike, second: ArrayLike, length: float) -> NDArray[np.float32]:
        """Return the localisation weights between two sets of sites, from 0 to 1.

        The weights are a positive definite function, so that the entrywise product with a covariance is a covariance
        (Schur product theorem).

        Parameters
        ----------
        first, second
            Numbers of the sites, ``(i,)`` and ``(j,)``.
        length
            Length scale relative to the extent of the sites (the sphere's radius, the longest side of a map); infinite
            for no localisation.

        Returns
        -------
        ndarray of shape (i, j)
        """

    @abstractmethod
    def adjacency(self) -> Any:
        """Return the weights of the edges between neighbouring sites.

        Returns
        -------
        csr_array of shape (n, n)
            Symmetric. The first nodes are the sites; further nodes only connect others.

        Raises
        ------
        SettingsError
            If the sites have no positions.
        """

    @abstractmethod
    def take(self, sites: NDArray[np.int64]) -> Metric:
        """Return the metric of some of the sites, in the given order."""


class NoMetric(Metric):
    """Sites without distances, such as the columns of a table.

    Parameters
    ----------
    count
        Number of sites.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def distances(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
        """Refuse: there are no distances."""
        raise SettingsError("these sites have no positions, so there are no distances between them")

    def within(self, sites: ArrayLike, radius: float) -> NDArray[np.int64]:
        """Refuse: there are no distances."""
        raise SettingsError("these sites have no positions, so there are no distances between them")

    def taper(self, first: ArrayLike, second: ArrayLike, length: float) -> NDArray[np.float32]:
        """Return ones: no localisation at any length scale."""
        return np.ones((len(np.atleast_1d(first)), len(np.atleast_1d(second))), np.float32)

    def adjacency(self) -> Any:
        """Refuse: there are no neighbours."""
        raise SettingsError("these sites have neither a graph nor positions, so none are neighbours")

    def take(self, sites: NDArray[np.int64]) -> NoMetric:
        """Return as many sites without distances."""
        return NoMetric(len(sites))


class Euclidean(Metric):
    """Straight distances between points.

    Parameters
    ----------
    points
        ``(m, d)``, in one unit.
    unit
        Unit of the coordinates.
    extent
        Length that length scales of the localisation are relative to; None: the longest side of the points' bounding
        box.

    Examples
    --------
    >>> metric = Euclidean(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
    >>> metric.distances([0], [1, 2])
    array([[5., 1.]])
    >>> metric.within(0, 2.0)
    array([0, 2])
    """

    def __init__(self, points: NDArray[np.float64], unit: str = "", extent: float | None = None) -> None:
        self.points, self.unit = np.asarray(points, np.float64), unit
        self.extent = (
            extent or (float(np.ptp(self.points, axis=0).max(initial=0.0)) if len(self.points) else 0.0) or 1.0
        )

    def __len__(self) -> int:
        return len(self.points)

    def distances(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
        """Return the straight distances; see `Metric.distances`."""
        from scipy.spatial.distance import cdist

        return np.asarray(cdist(self._rows(first), self._rows(second)))

    def within(self, sites: ArrayLike, radius: float) -> NDArray[np.int64]:
        """Return the sites closer than a radius, by a k-d tree; see `Metric.within`."""
        found = self.tree.query_ball_point(self._rows(sites), self._straight(radius) * (1 - ROUNDING))
        return np.unique(np.concatenate([np.asarray(part, np.int64) for part in [*found, np.atleast_1d(sites)]]))

    def nearest(self, points: NDArray[np.float64], count: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the distances to the nearest sites of some points, and their numbers, each ``(p, count)``."""
        distances, sites = self.tree.query(points, np.arange(1, count + 1))
        return self._distance(np.asarray(distances)), np.asarray(sites, np.int64)

    def taper(self, first: ArrayLike, second: ArrayLike, length: float) -> NDArray[np.float32]:
        """Return `exp(-distance / length)`, positive definite in any number of dimensions; see `Metric.taper`.

        The distance is the straight one, also on the sphere (the chord), in units of the extent.

        References
        ----------
        Houtekamer & Mitchell (2001), *A sequential ensemble Kalman filter for atmospheric data assimilation*.
        Gaspari & Cohn (1999), *Construction of correlation functions in two and three dimensions*, whose compactly
        supported function is the usual alternative.
        """
        one, two = self._rows(first) / self.extent, self._rows(second) / self.extent
        if np.isinf(length):
            return np.ones((len(one), len(two)), np.float32)
        squares = np.square(one).sum(axis=1)[:, np.newaxis] + np.square(two).sum(axis=1) - 2 * one @ two.T
        # From here on in single precision and in place: half the time.
        weights: NDArray[np.float32] = np.maximum(squares, 0).astype(np.float32)
        np.sqrt(weights, out=weights)
        np.multiply(weights, np.float32(-1 / length), out=weights)
        np.exp(weights, out=weights)
        return weights

    def adjacency(self) -> Any:
        """Return edges of weight 1 between each site and its six nearest ones; see `Metric.adjacency`.

        Six is the mean number of neighbours in a triangulation of the plane.
        """
        from scipy.sparse import csr_array

        count = min(_N_NEIGHBOURS, len(self) - 1)
        if count < 1:
            return csr_array((len(self), len(self)))
        near = self.tree.query(self.tree.data, count + 1)[1]
        one = np.repeat(np.arange(len(self)), count + 1)
        found = csr_array((np.ones(near.size), (one, near.ravel())), shape=(len(self), len(self)))
        found.setdiag(0)
        found.eliminate_zeros()
        return found.maximum(found.T)

    def take(self, sites: NDArray[np.int64]) -> Euclidean:
        """Return the metric of some of the sites; length scales stay relative to the extent of all."""
        return Euclidean(self.points[sites], self.unit, self.extent)

    @cached_property
    def tree(self) -> Any:
        """The k-d tree of the points."""
        from scipy.spatial import KDTree

        return KDTree(self.points)

    def _rows(self, sites: ArrayLike) -> NDArray[np.float64]:
        return np.atleast_2d(self.points[np.atleast_1d(np.asarray(sites))])

    def _straight(self, radius: float) -> float:
        """Straight distance in units of ``points`` of a distance as users give it."""
        return radius

    def _distance(self, straight: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distances as users see them of straight distances in units of ``points``; the inverse of `_straight`."""
        return straight


class GreatCircle(Euclidean):
    """Distances along the great circle, in kilometres.

    Sites are points on the sphere of radius 1. Further axes, such as depth, come after these three coordinates; the
    distance is then the root of the sum of squares.

    Parameters
    ----------
    latitude, longitude
        ``(m,)``, in degrees.
    others
        ``(m, e)``, further coordinates in kilometres of horizontal distance; None: none.
    only_horizontal
        Whether distances leave the further coordinates out, which then count in `taper` alone. So it is where nobody
        said how many kilometres along the surface a metre of depth is worth.

    Examples
    --------
    >>> metric = GreatCircle(np.array([0.0, 0.0, 90.0]), np.array([0.0, 90.0, 0.0]))
    >>> metric.distances([0], [1, 2]).round()
    array([[10008., 10008.]])
    """

    def __init__(
        self, latitude: NDArray[np.float64], longitude: NDArray[np.float64], others: NDArray[np.float64] | None = None,
        *, only_horizontal: bool = False,
    ) -> None:  # fmt: skip
        points = on_sphere(latitude, longitude)
        if others is not None:
            points = np.concatenate([points, np.asarray(others, np.float64) / EARTH_RADIUS_KM], axis=1)
        super().__init__(points, "km", extent=1.0)
        self.only_horizontal = only_horizontal

    def distances(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
        """Return the distances in kilometres; see `Metric.distances`."""
        from scipy.spatial.distance import cdist

        one, two = self._rows(first), self._rows(second)
        along = self._distance(cdist(one[:, :3], two[:, :3]))
        if self.only_horizontal or one.shape[1] == 3:
            return along
        return np.asarray(np.hypot(along, EARTH_RADIUS_KM * cdist(one[:, 3:], two[:, 3:])))

    def within(self, sites: ArrayLike, radius: float) -> NDArray[np.int64]:
        """Return the sites closer than a radius in kilometres; see `Metric.within`."""
        rows, found = np.atleast_1d(np.asarray(sites, np.int64)), []
        horizontal = self.tree.query_ball_point(self.points[rows, :3], self._straight(radius) * (1 - ROUNDING))
        for site, near in zip(rows, horizontal, strict=True):
            near = np.asarray(near, np.int64)
            exact = self.only_horizontal or self.points.shape[1] == 3
            found.append(near if exact else near[self.distances(site, near)[0] < radius * (1 - ROUNDING)])
        return np.unique(np.concatenate([rows, *found]))

    def nearest(self, points: NDArray[np.float64], count: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the horizontally nearest sites of some points of the sphere, ``(p, 3)``; see `Euclidean.nearest`."""
        return super().nearest(points[:, :3], count)

    def take(self, sites: NDArray[np.int64]) -> GreatCircle:
        """Return the metric of some of the sites."""
        other = copy(self)
        other.__dict__.pop("tree", None)
        other.points = self.points[sites]
        return other

    @cached_property
    def tree(self) -> Any:
        """The k-d tree of the points on the sphere."""
        from scipy.spatial import KDTree

        return KDTree(self.points[:, :3])

    def _straight(self, radius: float) -> float:
        if radius > np.pi * EARTH_RADIUS_KM:
            raise SettingsError(f"{radius:g} km: no two places on earth are more than 20015 km apart")
        return 2 * float(np.sin(radius / EARTH_RADIUS_KM / 2))

    def _distance(self, straight: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(2 * EARTH_RADIUS_KM * np.arcsin(np.clip(straight / 2, 0.0, 1.0)))


def on_sphere(latitude: NDArray[np.float64], longitude: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the points ``(m, 3)`` of the unit sphere at some latitudes and longitudes, in degrees."""
    up, around = np.deg2rad(np.asarray(latitude, np.float64)), np.deg2rad(np.asarray(longitude, np.float64))
    flat = np.cos(up)
    return np.stack([flat * np.cos(around), flat * np.sin(around), np.sin(up)], axis=1)
