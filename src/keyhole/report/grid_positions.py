"""Positions of the cells of curvilinear grids, also of those on land, which files often do not give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from keyhole.data.coordinates import FULL_TURN
from keyhole.data.sites import Sites

__all__ = ["grid_positions"]

Numbers = NDArray[np.float64]
_DIRECTIONS = [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1) if row or column]


def grid_positions(sites: Sites, across: str, up: str, *, degrees: bool) -> tuple[Numbers, Numbers]:
    """Return where all cells of a grid of two axes lie, valid or not.

    Cells that are not valid may have no position, or all of them the same one, such as latitude and longitude 0 where a
    model leaves out the processors on land. Their positions are continued in line with the nearest two cells in each
    direction, as the corners of the valid cells beside them need.

    Parameters
    ----------
    sites
        Sites of a grid of two axes.
    across, up
        Horizontal and vertical coordinate.
    degrees
        Whether the horizontal one is longitude: without jumps of a turn then.

    Returns
    -------
    x, y : ndarray of shape (rows, columns)
    """
    from scipy.ndimage import distance_transform_edt

    x, y = (_on_grid(sites, name) for name in (across, up))
    known = _have_position(sites, x, y)
    nearest = None
    if not known.all():
        nearest = tuple(distance_transform_edt(~known, return_distances=False, return_indices=True))
        x, y = x[nearest], y[nearest]
    if degrees:
        x = _unwrapped(x)
    return (x, y) if nearest is None else (_continued(x, known), _continued(y, known))


def _on_grid(sites: Sites, name: str) -> Numbers:
    """A coordinate at all positions of the data, valid or not."""
    return replace(sites, index=np.arange(sites.size)).coordinate(name).astype(float).reshape(sites.shape)


def _have_position(sites: Sites, x: Numbers, y: Numbers) -> NDArray[np.bool_]:
    """Which cells have a position of their own; valid ones do."""
    known = np.isfinite(x) & np.isfinite(y)
    others = known & ~sites.to_grid(np.ones(len(sites), bool), False)
    points = np.stack([x[others], y[others]])
    _, which, counts = np.unique(points, axis=1, return_inverse=True, return_counts=True)
    known[others] = counts[which] == 1
    return known


def _continued(centres: Numbers, known: NDArray[np.bool_]) -> Numbers:
    """Centres beside known ones, in line with the two next to them, the mean over directions; others unchanged."""
    padded = np.pad(np.where(known, centres, np.nan), 2, constant_values=np.nan)
    rows, columns = centres.shape
    total, count = np.zeros(centres.shape), np.zeros(centres.shape)
    for row, column in _DIRECTIONS:
        one, two = (
            padded[2 + step * row : 2 + step * row + rows, 2 + step * column : 2 + step * column + columns]
            for step in (1, 2)
        )
        line = 2 * one - two
        total += np.nan_to_num(line)
        count += np.isfinite(line)
    return np.where(~known & (count > 0), total / np.maximum(count, 1), centres)


def _unwrapped(longitude: Numbers) -> Numbers:
    """Longitudes without jumps of a turn between neighbours, in their own convention as far as may be."""
    whole = np.unwrap(longitude, period=FULL_TURN, axis=1)
    first = np.unwrap(whole[:, 0], period=FULL_TURN)
    whole += (first - whole[:, 0])[:, np.newaxis]
    return np.asarray(whole + FULL_TURN * np.round((np.median(longitude) - np.median(whole)) / FULL_TURN))
