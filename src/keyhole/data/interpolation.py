"""Weights that interpolate a field from its sites to any position."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import KeyholeWarning, SettingsError
from keyhole.data.constraints.site_lookup import nearest_site
from keyhole.data.coordinates import FULL_TURN
from keyhole.data.metric import GreatCircle, on_sphere
from keyhole.data.sites import Sites

__all__ = ["Interpolation", "interpolation_weights", "points_at"]

Interpolation = Literal["linear", "nearest"]
Weights = dict[int, float]  # of sites by number

_MOST_SHOWN = 3  # sensors that a warning names
_ROUNDING = 1e-6  # of a step, within which a position is that of a site
_NEAR = 24  # sites among which the simplex around a position is sought
_FOURTH = 4  # neighbour whose distance is the spacing of the sites, as the next ones of a grid
_LONGEST = 2.0  # spacings that a corner of a simplex may be away; beyond is a gap in the sites
_NEAREST = 1.5  # spacings within which sites are near, as the next along a diagonal of a grid
_INVERSE_DISTANCE = 4  # sites whose values are weighted by inverse squared distance where there is no simplex


def interpolation_weights(
    sites: Sites, positions: Mapping[str, NDArray[Any]], names: Sequence[str], method: Interpolation
) -> Any:
    """Return the weights of the sites' values in the value at each position.

    ``"nearest"`` takes the nearest site, about one step away at most. ``"linear"`` is multilinear on a lattice, that
    is where every axis has a coordinate of its own, across the date line too, and barycentric elsewhere: on the sphere
    in the plane that touches it at the position. Where there is no simplex of near sites around a position, as at the
    edge of a mesh, values are weighted by inverse squared distance. Sites that are not valid (land) have no weight:
    the weights of the others are scaled to a sum of one, and a warning says where.

    Parameters
    ----------
    sites
        The valid sites.
    positions
        A column for each coordinate that locates a site (`Sites.location`).
    names
        Names of the positions, for messages.
    method
        ``"linear"`` or ``"nearest"``.

    Returns
    -------
    csr_array of shape (positions, m)

    Raises
    ------
    SettingsError
        If a position lies outside the data, or no valid site is near.

    Examples
    --------
    >>> sites = Sites.plain((2, 3))
    >>> where = {"row": np.array([0.5]), "column": np.array([1.0])}
    >>> interpolation_weights(sites, where, ["a"], "linear").toarray()
    array([[0. , 0.5, 0. , 0. , 0.5, 0. ]])
    """
    from scipy.sparse import csr_array

    count = len(names)
    rows = [{name: column[i] for name, column in positions.items()} for i in range(count)]
    if method == "nearest":
        found = [{nearest_site(row, sites, f"sensor {name!r}"): 1.0} for row, name in zip(rows, names, strict=True)]
    elif all(name in sites.dims for name in sites.location):
        found = _on_lattice(sites, rows, names)
    else:
        found = _in_simplices(sites, points_at(sites, positions), names)
    data = np.array([weight for one in found for weight in one.values()])
    columns = np.array([site for one in found for site in one], np.int64)
    starts = np.cumsum([0, *(len(one) for one in found)])
    matrix = csr_array((data, columns, starts), shape=(count, len(sites)))
    matrix.sort_indices()
    return matrix


def points_at(sites: Sites, positions: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Return positions as points in the space of the sites' metric, ``(positions, d)``.

    Parameters
    ----------
    sites
        Sites with a Euclidean metric or that of the sphere.
    positions
        As `interpolation_weights` takes them.
    """
    metric, columns = sites.metric, list(sites.location)
    parts: list[NDArray[np.float64]] = []
    if isinstance(metric, GreatCircle):
        horizontal = [sites.roles["latitude"], sites.roles["longitude"]]
        parts.append(on_sphere(*(np.asarray(positions[name], np.float64) for name in horizontal)))
        columns = [name for name in columns if name not in horizontal]
    points = metric.points  # type: ignore[attr-defined]
    first = sum(part.shape[1] for part in parts)
    columns = columns[len(columns) - (points.shape[1] - first) :]  # copies of sites, as of each channel, lie together
    for place, name in enumerate(columns, start=first):
        parts.append((_number(sites, name, positions[name]) * _unit(sites, name, points[:, place]))[:, np.newaxis])
    return np.concatenate(parts, axis=1)


def _unit(sites: Sites, name: str, column: NDArray[np.float64]) -> float:
    """How long one unit of a coordinate is in the space of the metric, where each column is a multiple of one."""
    own = _number(sites, name, sites.coordinate(name))
    largest = int(np.abs(own).argmax())
    return float(column[largest] / own[largest]) if own[largest] else 1.0


def _number(sites: Sites, name: str, values: NDArray[Any]) -> NDArray[np.float64]:
    """A coordinate as numbers; labels of an axis, such as variables, by their place along it."""
    if name in sites.axes and np.asarray(sites.axes[name]).dtype.kind not in "biuf":
        labels = [str(label) for label in sites.axes[name]]
        return np.array([labels.index(str(value)) for value in values], np.float64)
    return np.asarray(values, np.float64)


# Lattices -------------------------------------------------------------------------------------------------------------


def _on_lattice(sites: Sites, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Weights]:
    """Multilinear weights of the corners around each position, those of valid sites scaled to a sum of one."""
    found, scaled = list[Weights](), list[str]()
    for row, name in zip(rows, names, strict=True):
        ends = [_along(sites, dim, row[dim], name) for dim in sites.dims]
        weights: Weights = {}
        for corner in product(*ends):
            index = int(np.ravel_multi_index([place for place, _ in corner], sites.shape))
            number = int(sites.number(index))
            weights[number] = weights.get(number, 0.0) + float(np.prod([share for _, share in corner]))
        if weights.pop(-1, 0.0):
            scaled.append(name)
        if not weights:
            raise SettingsError(
                f"sensor {name!r}: no cell around {_text(row)} is valid (land); move it, or take the nearest site"
            )
        total = sum(weights.values())
        found.append({number: weight / total for number, weight in weights.items()} if total != 1 else weights)
    if scaled:
        shown = ", ".join(scaled[:_MOST_SHOWN]) + (", ..." if len(scaled) > _MOST_SHOWN else "")
        have = f"{len(scaled)} of {len(names)} sensors have invalid cells (land) beside them, which have no weight"
        warnings.warn(f"{have}: {shown}", KeyholeWarning, stacklevel=2)
    return found


def _along(sites: Sites, dim: str, value: Any, name: str) -> list[tuple[int, float]]:
    """Places along an axis between which a position lies, and the share of each; those of no share are left out."""
    axis = np.asarray(sites.axes[dim])
    if axis.dtype.kind not in "biuf":
        labels = [str(label) for label in axis]
        if str(value) not in labels:
            raise SettingsError(f"sensor {name!r}: {dim}={value!r} is none of {', '.join(labels)}")
        return [(labels.index(str(value)), 1.0)]
    order = np.argsort(axis)
    line, position = axis[order].astype(np.float64), float(value)
    if dim == sites.roles.get("longitude"):
        line, order, position = _around(line, order, position)
    if len(line) == 1:
        return [(int(order[0]), 1.0)]
    low = int(np.clip(np.searchsorted(line, position, side="right") - 1, 0, len(line) - 2))
    share = (position - line[low]) / (line[low + 1] - line[low])
    if not -0.5 - _ROUNDING <= share <= 1.5 + _ROUNDING:
        raise SettingsError(
            f"sensor {name!r}: {dim}={float(value):g} is outside the data, whose cells lie from {line[0]:g} to "
            f"{line[-1]:g}"
        )
    share = float(np.clip(share, 0.0, 1.0))  # in the outer half of the last cell
    if share < _ROUNDING or share > 1 - _ROUNDING:
        return [(int(order[low + round(share)]), 1.0)]
    return [(int(order[low]), 1 - share), (int(order[low + 1]), share)]


def _around(
    line: NDArray[np.float64], order: NDArray[np.int64], position: float
) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
    """Shift a longitude to the convention of the axis, whose first place follows its last where it is a full circle."""
    position = line[0] + (position - line[0]) % FULL_TURN
    step = float(np.median(np.diff(line))) if len(line) > 1 else FULL_TURN
    if line[0] + FULL_TURN - line[-1] < (1 + _ROUNDING) * 1.5 * step:
        return np.append(line, line[0] + FULL_TURN), np.append(order, order[0]), position
    nearer_to_the_first = line[0] + FULL_TURN - position < position - line[-1]
    return line, order, position - FULL_TURN if nearer_to_the_first else position


# Curvilinear grids, meshes and stations -------------------------------------------------------------------------------


def _in_simplices(sites: Sites, points: NDArray[np.float64], names: Sequence[str]) -> list[Weights]:
    """Barycentric weights in the simplex of sites around each point."""
    from scipy.spatial import KDTree

    own: NDArray[np.float64] = sites.metric.points  # type: ignore[attr-defined]
    tree, on_earth, found = KDTree(own), isinstance(sites.metric, GreatCircle), list[Weights]()
    for point, name in zip(points, names, strict=True):
        distances, near = (np.atleast_1d(part) for part in tree.query(point, min(_NEAR, len(own))))
        spacing = float(np.median(tree.query(own[near], [min(_FOURTH + 1, len(own))])[0])) or 1.0
        if distances[0] < _ROUNDING * spacing:
            found.append({int(near[0]): 1.0})
            continue
        offsets = _tangential(own[near], point) if on_earth else own[near] - point
        close = np.linalg.norm(offsets, axis=1) <= _LONGEST * spacing
        weights = _barycentric(offsets[close])
        if weights is None:
            few = distances[distances <= _NEAREST * spacing][:_INVERSE_DISTANCE]
            if not len(few):
                nearest = sites.name(int(near[0]))
                raise SettingsError(f"sensor {name!r}: no valid site is near; the nearest is {nearest}")
            inverse = 1 / np.square(few)
            weights, close = dict(enumerate(inverse / inverse.sum())), np.ones(len(near), bool)
        kept = near[close]
        found.append({int(kept[place]): float(weight) for place, weight in weights.items()})
    return found


def _tangential(points: NDArray[np.float64], centre: NDArray[np.float64]) -> NDArray[np.float64]:
    """Offsets from a point of the sphere in the plane that touches it there, and of further coordinates."""
    up = centre[:3]
    across = np.linalg.svd(up[np.newaxis])[2][1:]
    along = points[:, :3] @ up
    flat = points[:, :3] @ across.T / np.maximum(along, np.finfo(float).eps)[:, np.newaxis]
    return np.concatenate([flat, points[:, 3:] - centre[3:]], axis=1)


def _barycentric(offsets: NDArray[np.float64]) -> Weights | None:
    """Weights of some points whose weighted mean is the origin: of the two or three around it; None if there are none.

    Coordinates in which the points do not differ are left out.
    """
    from scipy.spatial import Delaunay, QhullError

    if len(offsets) < 2:
        return None
    spread = np.ptp(offsets, axis=0)
    offsets = offsets[:, spread > _ROUNDING * max(float(spread.max()), np.finfo(float).tiny)]
    dimensions = offsets.shape[1]
    if dimensions == 1:
        return _between(offsets[:, 0])
    if len(offsets) <= dimensions:
        return None
    try:
        simplices = Delaunay(offsets)
    except QhullError:
        return None
    simplex = int(simplices.find_simplex(np.zeros(dimensions)))
    if simplex < 0:
        return None
    transform = simplices.transform[simplex]
    shares = transform[:dimensions] @ -transform[dimensions]
    shares = np.clip(np.append(shares, 1 - shares.sum()), 0.0, 1.0)
    corners = simplices.simplices[simplex]
    return {int(corner): share / shares.sum() for corner, share in zip(corners, shares, strict=True) if share > 0}


def _between(offsets: NDArray[np.float64]) -> Weights | None:
    """Weights of the two points on a line between which the origin lies."""
    below, above = np.flatnonzero(offsets < 0), np.flatnonzero(offsets > 0)
    if not len(below) or not len(above):
        return None
    low, high = int(below[offsets[below].argmax()]), int(above[offsets[above].argmin()])
    share = -offsets[low] / (offsets[high] - offsets[low])
    return {low: 1 - share, high: share}


def _text(row: Mapping[str, Any]) -> str:
    return " ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in row.items()
    )
