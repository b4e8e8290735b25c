"""Areas of cells on the sphere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keyhole.data.metric import on_sphere

__all__ = ["area_of_polygons", "area_on_lattice"]

_TURN_ROUNDING = 1e-9  # radians
_LEAST_FILLED = 0.25  # share of a lattice's positions that must hold a site for it to count as one
_DECIMALS = 6  # of degrees, within which two coordinates are the same


def area_on_lattice(
    latitude: NDArray[np.float64], latitudes: NDArray[np.float64], longitudes: NDArray[np.float64] | None = None
) -> NDArray[np.float64] | None:
    """Return the relative area of cells that lie on a lattice of latitudes and longitudes: the cosine of latitude.

    A row of cells that would extend beyond a pole gets the mean of the cosine over the part that does not, so that a
    row at the pole has a positive area.

    Parameters
    ----------
    latitude
        ``(m,)``, of each site in degrees.
    latitudes
        All latitudes of the data, also where no site is valid; their steps say how high a row is.
    longitudes
        The longitude at each of ``latitudes``, which together tell whether there is a lattice; None where there is one
        for sure, since latitudes run along an axis.

    Returns
    -------
    ndarray of shape (m,) or None
        None where the positions are no lattice, as the cells of a mesh and stations: their density then says nothing
        about areas.

    Examples
    --------
    >>> area_on_lattice(np.array([60.0, 0.0]), np.array([60.0, 0.0])).round(3)
    array([0.5, 1. ])
    """
    if longitudes is not None and not _is_lattice(latitudes, longitudes):
        return None
    lines, row = np.unique(np.round(latitude, _DECIMALS), return_inverse=True)
    every = np.deg2rad(np.unique(np.round(latitudes[np.isfinite(latitudes)], _DECIMALS)))
    line = np.deg2rad(lines)
    area = np.cos(line)
    if len(every) > 1:
        steps = np.diff(every)
        at = np.searchsorted(every, line - _TURN_ROUNDING)
        step = np.minimum(np.append(steps, np.inf)[at], np.append(np.inf, steps)[at])
        inner = np.clip(np.abs(line) - step / 2, 0.0, np.pi / 2)
        beyond = np.abs(line) + step / 2 > np.pi / 2 + _TURN_ROUNDING
        area = np.where(beyond, (1 - np.sin(inner)) / step, area)
    return np.asarray(np.clip(area, 0.0, None)[row])


def _is_lattice(latitude: NDArray[np.float64], longitude: NDArray[np.float64]) -> bool:
    """Whether positions fill a good part of the product of their latitudes and longitudes."""
    known = np.isfinite(latitude) & np.isfinite(longitude)
    latitude, longitude = latitude[known], longitude[known]
    rows, columns = (len(np.unique(np.round(one, _DECIMALS))) for one in (latitude, longitude % 360.0))
    return len(latitude) >= max(_LEAST_FILLED * rows * columns, 2 * min(rows, columns))


def area_of_polygons(latitude: NDArray[np.float64], longitude: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the areas of polygons on the unit sphere, whose edges are great circles.

    Each polygon is divided into triangles from its first corner; the area of a triangle is its spherical excess [1]_.

    Parameters
    ----------
    latitude, longitude
        ``(..., corners)``, in degrees; corners may be repeated or NaN where a polygon has fewer.

    Returns
    -------
    ndarray of shape (...)
        Steradians.

    References
    ----------
    .. [1] van Oosterom & Strackee (1983). The solid angle of a plane triangle. IEEE Trans. Biomed. Eng. 30, 125-126.

    Examples
    --------
    >>> area_of_polygons(np.array([0.0, 0.0, 90.0]), np.array([0.0, 90.0, 0.0])) / np.pi  # an eighth of the sphere
    np.float64(0.5)
    """
    latitude, longitude = (np.asarray(one, np.float64) for one in (latitude, longitude))
    corners = on_sphere(latitude.reshape(-1), longitude.reshape(-1)).reshape(*latitude.shape, 3)
    missing = np.isnan(corners).any(axis=-1, keepdims=True)
    corners = np.where(missing, corners[..., :1, :], corners)
    first, second, third = corners[..., :1, :], corners[..., 1:-1, :], corners[..., 2:, :]
    volume = (first * np.cross(second, third)).sum(axis=-1)
    cosines = 1 + (first * second).sum(axis=-1) + (second * third).sum(axis=-1) + (first * third).sum(axis=-1)
    return np.asarray(np.abs((2 * np.arctan2(volume, cosines)).sum(axis=-1)))
