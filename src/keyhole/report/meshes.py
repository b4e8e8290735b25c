"""Layout of the cells, faces and nodes of a mesh as polygons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from keyhole.data.coordinates import FULL_TURN
from keyhole.data.mesh import Mesh
from keyhole.data.sites import Sites
from keyhole.report.geometry import CellFrame, Frame, Ruler, draw_symbols, in_degrees, on_paper
from keyhole.report.rings import Rings, flat_rings, repeated
from keyhole.report.style import LAND
from keyhole.report.triangles import are_even, positions_of, triangles_between

if TYPE_CHECKING:
    from keyhole.report.projections import Projection

__all__ = ["PolygonFrame"]

Numbers = NDArray[np.float64]
Owners = NDArray[np.int64]

_DOT = 4.0  # square points of a site in no triangle
_FOUND: WeakKeyDictionary[Sites, Owners] = WeakKeyDictionary()


class PolygonFrame(Frame):
    """Layout of sites as polygons, each of which shows the mean of one or several sites.

    Parameters
    ----------
    sites, across, up, x, y, projection
        See `Frame`.
    rings : sequence of Rings
        The polygons on paper.
    owners : ndarray of shape (polygons, sites of each)
        Numbers of the sites that each polygon shows; -1 where none is valid.
    """

    def __init__(
        self, sites: Sites, across: Ruler, up: Ruler, x: Numbers, y: Numbers, rings: list[Rings], owners: Owners,
        projection: Projection | None = None,
    ) -> None:  # fmt: skip
        super().__init__(sites, across, up, x, y, projection)
        self.rings, self.owners = rings, owners

    @classmethod
    def of_mesh(
        cls, sites: Sites, mesh: Mesh, across: str, up: str, projection: Projection | None = None
    ) -> PolygonFrame:  # fmt: skip
        """Lay out sites on the faces of a mesh as these faces, or sites on its nodes as the triangles between them."""
        numbers = sites.number(np.arange(sites.size))
        if mesh.location == "face":
            return cls._made(sites, across, up, *mesh.corners(), numbers[:, np.newaxis], projection)
        triangles = mesh.triangles()
        return cls._made(sites, across, up, mesh.x[triangles], mesh.y[triangles], numbers[triangles], projection)

    @classmethod
    def between(
        cls, sites: Sites, across: str, up: str, projection: Projection | None = None
    ) -> PolygonFrame | None:  # fmt: skip
        """Lay out evenly spaced sites as the triangles between them; None where they are not, or have names."""
        if sites not in _FOUND:  # several figures show the same sites
            _FOUND[sites] = _triangles(sites, across, up)
        triangles = _FOUND[sites]
        if not len(triangles):
            return None
        x, y = (sites.coordinate(name).astype(float)[triangles] for name in (across, up))
        return cls._made(sites, across, up, x, y, triangles, projection)

    @classmethod
    def of_cells(cls, cells: CellFrame, names: tuple[str, str], projection: Projection) -> PolygonFrame:
        """Lay out the cells of a grid of latitudes and longitudes in a projection."""
        x, y = (
            np.stack([one[:-1, :-1], one[:-1, 1:], one[1:, 1:], one[1:, :-1]], axis=-1).reshape(-1, 4)
            for one in cells.corners
        )
        owners = cells.pixels(cells.sites.to_grid(np.arange(len(cells.sites)), -1)).reshape(-1, 1)
        made = cls._made(cells.sites, *names, x, np.clip(y, -90.0, 90.0), owners, projection)
        made.background = cells.background
        return made

    @classmethod
    def _made(
        cls, sites: Sites, across: str, up: str, x: Numbers, y: Numbers, owners: Owners, projection: Projection | None
    ) -> PolygonFrame:
        """Lay out polygons ``(n, corners)`` that show sites ``(n, of each)``."""
        own = on_paper(sites, across, up)
        if projection is not None:
            rings = projection.rings(x, y)
            corners = np.concatenate([one.corners.reshape(-1, 2) for one in rings])
            (x, y), limits = projection.points(*own), projection.limits(*corners.T)
            first, second = (Ruler.between("", one, edges) for one, edges in zip((x, y), limits, strict=True))
            return cls(sites, first, second, x, y, rings, owners, projection)
        degrees = in_degrees(sites, across)
        if degrees:
            middle = np.where(owners[:, 0] < 0, np.median(own[0]), own[0][owners[:, 0]])
            rings = flat_rings(x, y, middle)
        else:
            finite = np.flatnonzero(np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1))
            rings = [Rings(np.stack([x, y], axis=2)[finite], finite)]
        limits = _limits(rings, degrees=degrees)
        if degrees:
            rings = [repeated(one, *limits[0]) for one in rings]
        if degrees and np.ptp(limits[0]) >= FULL_TURN:
            own = (own[0] - limits[0][0]) % FULL_TURN + limits[0][0], own[1]
        first, second = (
            Ruler.between(name, one, edges, degrees=in_degrees(sites, name))
            for name, one, edges in zip((across, up), own, limits, strict=True)
        )
        return cls(sites, first, second, *own, rings, owners)

    def draw(self, axes: Axes, values: NDArray[Any], colours: str, norm: Normalize) -> None:
        """Colour the polygons, grey where a site is not valid; a site in no polygon is a dot."""
        shown = np.asarray(values, np.float64)[self.owners].mean(axis=1)
        shown[(self.owners < 0).any(axis=1)] = np.nan
        for rings in self.rings:
            of_each = shown[rings.number]
            known = np.isfinite(of_each)
            style: dict[str, Any] = {"linewidths": 0, "antialiaseds": False, "rasterized": True}
            axes.add_collection(PolyCollection(rings.corners[~known], facecolors=LAND, **style), autolim=False)
            coloured = PolyCollection(rings.corners[known], array=of_each[known], cmap=colours, norm=norm, **style)
            axes.add_collection(coloured, autolim=False)
        drawn = self.owners[np.concatenate([rings.number for rings in self.rings])]
        alone = np.setdiff1d(np.arange(len(self.sites)), drawn[(drawn >= 0).all(axis=1)])
        if len(alone):
            draw_symbols(axes, self.x[alone], self.y[alone], np.asarray(values)[alone], _DOT, cmap=colours, norm=norm)


def _triangles(sites: Sites, across: str, up: str) -> Owners:
    """Triangles between evenly spaced sites without names, by their numbers."""
    x, y = (sites.coordinate(name).astype(float) for name in (across, up))
    points = positions_of(x, y, degrees=in_degrees(sites, across))
    return triangles_between(points) if sites.names is None and are_even(points) else np.empty((0, 3), np.int64)


def _limits(rings: list[Rings], *, degrees: bool) -> tuple[Numbers, Numbers]:
    """Limits of a map that holds some polygons; around the globe, from longitude 0 or -180."""
    corners = np.concatenate([one.corners.reshape(-1, 2) for one in rings])
    low, high = corners.min(axis=0), corners.max(axis=0)
    across = np.array([low[0], high[0]])
    if degrees and high[0] - low[0] >= FULL_TURN:
        start = -FULL_TURN / 2 if low[0] < -FULL_TURN / 4 else 0.0
        across = np.array([start, start + FULL_TURN])
    return across, np.array([low[1], high[1]])
