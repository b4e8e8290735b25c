"""How sites are drawn: as lines, as one map, or as slices of a volume, each laid out by its geometry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.data.coordinates import FULL_TURN, Auxiliary
from keyhole.data.graph_metric import GraphMetric
from keyhole.data.metric import NoMetric
from keyhole.data.sites import Sites
from keyhole.report.formatting import number, plain
from keyhole.report.geometry import CellFrame, Frame, SymbolFrame
from keyhole.report.meshes import PolygonFrame
from keyhole.report.projections import Projection

__all__ = ["Panel", "Panels", "are_lines", "frame_of", "horizontal", "panels_of"]

Numbers = NDArray[np.int64]

# Of points in a volume: at most so many different heights are slices of their own, else there are so many layers.
_MOST_LEVELS, _LAYERS = 6, 4
_FEWEST_CORNERS = 3  # of a face


@dataclass(frozen=True, eq=False)
class Panel:
    """One map, of all sites or of those in a slice.

    Parameters
    ----------
    frame : Frame
        Layout of the sites in the slice.
    numbers : ndarray of shape (n,)
        Their numbers among all sites.
    ranks : ndarray of int
        Ranks, from 0, of the selected sites that are drawn on it.
    x, y : ndarray
        Where these are drawn.
    label : str
        Which slice it is; empty where there is one map of all sites.
    """

    frame: Frame
    numbers: Numbers
    ranks: Numbers
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    label: str = ""


@dataclass(frozen=True, eq=False)
class Panels:
    """Maps of all sites: one, or several slices.

    Parameters
    ----------
    panels : list of Panel
        In the order of the slices.
    title : str
        Which slices they are, and where selected sites of other slices are drawn; empty for a single map.
    """

    panels: list[Panel]
    title: str = ""


def are_lines(sites: Sites) -> bool:
    """Return whether sites lie along one axis without two coordinates, and are drawn as lines."""
    return len(sites.shape) == 1 and horizontal(sites) is None and not isinstance(sites.metric, GraphMetric)


def frame_of(sites: Sites, projection: Projection | None = None) -> Frame:
    """Lay out sites as cells, faces, triangles or symbols of one map.

    Parameters
    ----------
    sites : Sites
        On a grid of two axes, or in a list with two coordinates.
    projection : Projection, optional
        Of sites with latitude and longitude.

    Returns
    -------
    Frame
        Nodes and edges of a graph; cells of a regular or curvilinear grid; faces of a mesh, or triangles between its
        nodes; triangles between evenly spaced sites without names; else symbols.

    Examples
    --------
    >>> frame_of(Sites.plain((2, 4))).box
    0.5
    """
    from keyhole.report.network import NetworkFrame, is_network  # which is made of the frames here

    if is_network(sites):
        return NetworkFrame.of_graph(sites)
    names = horizontal(sites)
    if len(sites.shape) == 2:
        cells = CellFrame.regular(sites) if names is None or set(names) == set(sites.dims) else None
        if cells is None and names is not None and min(sites.shape) > 1:
            cells = CellFrame.curvilinear(sites, *names)
        if cells is not None:
            projected = projection is not None and names is not None
            return PolygonFrame.of_cells(cells, names, projection) if projected else cells  # type: ignore[arg-type]
    if names is None:
        raise SettingsError(f"data of {len(sites.shape)} axes {sites.shape} are no single map; use panels_of")
    mesh = sites.mesh
    if mesh is not None and sites.dims == (mesh.dim,) and ((mesh.faces >= 0).sum(axis=1) >= _FEWEST_CORNERS).any():
        return PolygonFrame.of_mesh(sites, mesh, *names, projection)
    triangles = PolygonFrame.between(sites, *names, projection)
    return SymbolFrame.around(sites, *names, projection) if triangles is None else triangles


def panels_of(
    sites: Sites, chosen: Numbers, projection: Projection | None = None, *, most: int = _MOST_LEVELS,
    units: Mapping[str, str] | None = None,
) -> Panels:  # fmt: skip
    """Lay out sites as one map, or as slices where they fill a volume.

    A grid is cut along the axes that are not horizontal; the slices are the levels that hold selected sites, and a site
    at another level is drawn on the nearest of them. Points with x, y and z are cut into layers.

    Parameters
    ----------
    sites : Sites
        The sites.
    chosen : ndarray of shape (k,)
        Numbers of the selected sites by rank.
    projection : Projection, optional
        Of sites with latitude and longitude.
    most : int
        Largest number of slices.
    units : mapping of str to str, optional
        Units of the coordinates by name, for the labels.

    Returns
    -------
    Panels
    """
    along = _cut_along(sites)
    if along:
        return _levels(sites, chosen, along, projection, most, units or {})
    names, height = horizontal(sites), _height(sites)
    if names is not None and height is not None:
        return _layers(sites, chosen, names, height, projection, (units or {}).get(height, ""))
    frame = frame_of(sites, projection)
    x, y = frame.places(chosen)
    return Panels([Panel(frame, np.arange(len(sites)), np.arange(len(chosen)), x, y)])


def horizontal(sites: Sites) -> tuple[str, str] | None:
    """The names of two coordinates by which sites are drawn, across and up, if they lie along all axes of the data."""
    names, dims = _horizontal(sites)
    return names if names is not None and dims == set(sites.dims) else None


def _horizontal(sites: Sites) -> tuple[tuple[str, str] | None, set[str]]:
    """The names of two horizontal coordinates, across and up, and the axes of the data along which they vary."""
    roles = sites.roles
    for across, up in ((roles.get("longitude"), roles.get("latitude")), (roles.get("x"), roles.get("y"))):
        if across is not None and up is not None:
            along = [sites.auxiliary[name].dims if name in sites.auxiliary else (name,) for name in (across, up)]
            return (across, up), {*along[0], *along[1]}
    return None, set()


def _cut_along(sites: Sites) -> tuple[str, ...]:
    """The axes along which a volume is cut into slices: all but the horizontal ones, or but the last two."""
    names, along = _horizontal(sites)
    if names is not None and along < set(sites.dims):
        # A section, such as latitude and depth of one meridian's grid, is a map of its own.
        return tuple(dim for dim in sites.dims if dim not in along)
    if names is not None or len(sites.dims) < 3:
        return ()
    flat = [dim for dim in sites.dims if dim != sites.roles.get("vertical")][-2:]
    return tuple(dim for dim in sites.dims if dim not in flat)


def _height(sites: Sites) -> str | None:
    """The vertical coordinate of points that fill a volume; None where they lie on a surface, as stations do."""
    height, names = sites.roles.get("vertical"), horizontal(sites)
    if height is None or names is None or len(sites.shape) != 1 or height not in sites.auxiliary:
        return None
    if sites.is_geographic and sites.vertical_scale is None:
        places = np.stack([sites.coordinate(name).astype(float) for name in names], axis=1)
        return height if len(np.unique(places, axis=0)) < len(places) else None
    return height


def _levels(
    sites: Sites, chosen: Numbers, along: tuple[str, ...], projection: Projection | None, most: int,
    units: Mapping[str, str],
) -> Panels:  # fmt: skip
    """Slices of a grid at the levels that hold selected sites."""
    places = np.stack([sites.places[sites.dims.index(dim)] for dim in along], axis=1)
    levels, level = np.unique(places, axis=0, return_inverse=True)
    level = level.ravel()
    shown = _most_frequent(level[chosen], most)
    scaled = np.stack([_scaled(sites.axes[dim])[levels[:, i]] for i, dim in enumerate(along)], axis=1)
    apart = np.linalg.norm(scaled[level[chosen]][:, np.newaxis] - scaled[shown], axis=2)
    nearest = apart.argmin(axis=1)
    panels = []
    for i, one in enumerate(shown):
        at = dict(zip(along, (int(place) for place in levels[one]), strict=True))
        numbers = np.flatnonzero(level == one)
        frame = frame_of(_section(sites, at, numbers), projection)
        ranks = np.flatnonzero(nearest == i)
        x, y = _places_on(frame, sites, chosen[ranks])
        label = ", ".join(
            f"{dim} {plain(sites.axes[dim][place])} {units.get(dim, '')}".strip() for dim, place in at.items()
        )
        panels.append(Panel(frame, numbers, ranks, x, y, label))
    return Panels(panels, _levels_title(len(shown), len(np.unique(level[chosen])), len(levels), " and ".join(along)))


def _levels_title(shown: int, held: int, levels: int, along: str) -> str:
    """What a figure of slices says of them."""
    if shown < held:
        return f"{shown} of {levels} slices along {along}; sites of other slices are drawn on the nearest of these"
    return f"{shown} of {levels} slices along {along}: those that hold the sites"


def _most_frequent(levels: Numbers, most: int) -> Numbers:
    """The levels that hold the most selected sites, in their own order."""
    found, count = np.unique(levels, return_counts=True)
    return np.asarray(np.sort(found[np.argsort(-count, kind="stable")[:most]]))


def _scaled(axis: NDArray[Any]) -> NDArray[np.float64]:
    """A coordinate from 0 to 1; positions along the axis where it is no number."""
    numbers = axis.astype(np.float64) if axis.dtype.kind in "iuf" and np.isfinite(axis).all() else np.arange(len(axis))
    return np.asarray((numbers - numbers.min()) / (np.ptp(numbers) or 1.0))


def _section(sites: Sites, at: Mapping[str, int], numbers: Numbers) -> Sites:
    """The sites of one slice of a grid, as sites of its other axes."""
    dims = tuple(dim for dim in sites.dims if dim not in at)
    shape = tuple(n for n, dim in zip(sites.shape, sites.dims, strict=True) if dim not in at)
    places = tuple(sites.places[sites.dims.index(dim)][numbers] for dim in dims)
    auxiliary = {}
    for name, (own, values) in sites.auxiliary.items():
        rest = tuple(dim for dim in own if dim not in at)
        if rest:
            auxiliary[name] = Auxiliary(rest, values[tuple(at.get(dim, slice(None)) for dim in own)])
    return replace(
        sites, shape=shape, dims=dims, axes={dim: sites.axes[dim] for dim in dims}, auxiliary=auxiliary,
        index=np.ravel_multi_index(places, shape).astype(np.int64), metric=NoMetric(len(numbers)), cell_area=None,
        roles={role: name for role, name in sites.roles.items() if name in dims or name in auxiliary},
        names=None if sites.names is None else tuple(sites.names[i] for i in numbers),
    )  # fmt: skip


def _places_on(frame: Frame, sites: Sites, numbers: Numbers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where sites of any slice are drawn on one of them, which need not have a valid site there."""
    names, _ = _horizontal(sites)
    if names is None or (frame.projection is None and set(names) <= set(sites.dims)):
        x, y = (
            ruler.centres[sites.places[sites.dims.index(ruler.name)][numbers]] for ruler in (frame.across, frame.up)
        )
        return x, y
    x, y = (sites.coordinate(name)[numbers].astype(float) for name in names)
    if frame.projection is not None:
        return frame.projection.points(x, y)
    if frame.across.degrees:
        low, _ = frame.across.limits()
        x = (x - low) % FULL_TURN + low
    return x, y


def _layers(
    sites: Sites, chosen: Numbers, names: tuple[str, str], height: str, projection: Projection | None, units: str
) -> Panels:
    """Slices of points: at each of their heights if these are few, else layers of equal thickness."""
    values = sites.coordinate(height).astype(float)
    heights = np.unique(values)
    whole = SymbolFrame.around(sites, *names, projection)
    if len(heights) <= _MOST_LEVELS:
        layer = np.searchsorted(heights, values)
        labels = [f"{height} {plain(one)} {units}".strip() for one in heights]
    else:
        edges = np.linspace(heights[0], heights[-1], _LAYERS + 1)
        layer = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, _LAYERS - 1)
        labels = [f"{height} {number(a)} to {number(b)} {units}".strip() for a, b in pairwise(edges)]
    panels = []
    for i, label in enumerate(labels):
        numbers, ranks = np.flatnonzero(layer == i), np.flatnonzero(layer[chosen] == i)
        if len(numbers):
            panels.append(Panel(whole.part(numbers), numbers, ranks, *whole.places(chosen[ranks]), label))
    kind = "Slices at each" if len(heights) <= _MOST_LEVELS else f"{len(panels)} layers of"
    return Panels(panels, f"{kind} {height}, each with its own points and sites")
