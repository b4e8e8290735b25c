"""Triangles between scattered sites, without those that span holes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, Delaunay, KDTree, QhullError

from keyhole.data.metric import on_sphere

__all__ = ["are_even", "positions_of", "triangles_between"]

Numbers = NDArray[np.float64]

# In a mesh the nearest two neighbours of a point are about as far as each other: the tenth percentile of the ratio of
# their distances is 0.6 to 1 in usual meshes. In points that are spread at random it is the root of one tenth, 0.32,
# and of a hundred such points hardly ever above 0.5.
_EVEN, _PERCENTILE, _FEWEST = 0.55, 10, 100
# The longest edge, in distances to the eighth neighbour: less than two cells across the diagonal of a lattice, and
# enough for one whose rows are seven times as far apart as its columns.
_NEIGHBOURS, _LONGEST = 8, 1.9
# Length of the mean of unit vectors beyond which they lie on one side of the sphere.
_ONE_SIDE = 0.5


def positions_of(x: Numbers, y: Numbers, *, degrees: bool) -> Numbers:
    """Return points whose distances are straight: of the unit sphere, ``(m, 3)``, or of the plane, ``(m, 2)``."""
    return on_sphere(y, x) if degrees else np.stack([x, y], axis=1)


def are_even(points: Numbers) -> bool:
    """Return whether points lie as evenly as the cells or nodes of a mesh, and not as stations do.

    Parameters
    ----------
    points : ndarray of shape (m, d)
        See `positions_of`.

    Examples
    --------
    >>> lattice = np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0)), axis=-1).reshape(-1, 2)
    >>> are_even(lattice), are_even(np.random.default_rng(0).uniform(size=(200, 2)))
    (True, False)
    """
    if len(points) < _FEWEST or not np.isfinite(points).all():
        return False
    apart = KDTree(points).query(points, k=3)[0]
    return bool(apart[:, 1].min() > 0 and np.percentile(apart[:, 1] / apart[:, 2], _PERCENTILE) > _EVEN)


def triangles_between(points: Numbers) -> NDArray[np.int64]:
    """Return the Delaunay triangles between points whose edges are not much longer than the points are apart there.

    Parameters
    ----------
    points : ndarray of shape (m, d)
        See `positions_of`; on the sphere, triangles cross the date line and surround the poles like any others.

    Returns
    -------
    ndarray of shape (triangles, 3)
        Empty where the points are too few, or in a line.
    """
    if len(points) <= _NEIGHBOURS:
        return np.empty((0, 3), np.int64)
    try:
        found = _delaunay(points)
    except QhullError:
        return np.empty((0, 3), np.int64)
    apart, neighbours = KDTree(points).query(points, k=_NEIGHBOURS + 1)
    spacing = apart[neighbours, -1].min(axis=1)  # beside a hole, as far from it
    ends = points[found]
    longest = np.linalg.norm(ends - np.roll(ends, 1, axis=1), axis=2).max(axis=1)
    return np.asarray(found[longest <= _LONGEST * spacing[found].max(axis=1)], np.int64)


def _delaunay(points: Numbers) -> NDArray[np.int64]:
    """Delaunay triangles of the plane; of the sphere, the convex hull, or those of the stereographic projection."""
    if points.shape[1] == 2:
        return np.asarray(Delaunay(points).simplices, np.int64)
    mean = points.mean(axis=0)
    if np.linalg.norm(mean) < _ONE_SIDE:
        return np.asarray(ConvexHull(points).simplices, np.int64)
    centre = mean / np.linalg.norm(mean)
    east = np.cross(centre, np.eye(3)[np.abs(centre).argmin()])
    east /= np.linalg.norm(east)
    height = 1 + points @ centre
    far = height < 1e-9  # opposite to the centre, where the projection has no point
    flat = (
        np.stack([points @ east, points @ np.cross(centre, east)], axis=1) / np.where(far, 1.0, height)[:, np.newaxis]
    )
    return np.asarray(np.flatnonzero(~far)[Delaunay(flat[~far]).simplices], np.int64)
