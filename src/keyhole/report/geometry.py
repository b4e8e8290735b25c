"""Layouts of sites on paper: which coordinate is horizontal, which is vertical, and where cells end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from keyhole.data.coordinates import FULL_TURN
from keyhole.data.sites import Sites
from keyhole.report.formatting import plain, shorten
from keyhole.report.grid_positions import grid_positions
from keyhole.report.style import LAND, RULE, literal

if TYPE_CHECKING:
    from keyhole.report.projections import Projection

__all__ = ["CellFrame", "Frame", "Ruler", "SymbolFrame", "draw_symbols", "in_degrees", "on_paper"]

Numbers = NDArray[np.float64]

# Steps that divide a circle well.
_DEGREES = (1, 1.5, 2, 3, 5, 6, 10)
# Counted from the top by custom: rows of images, depths, pressure levels.
_DOWNWARD = ("row", "depth", "level", "lev", "plev")
# Pairs of axes on one scale, whose cells are drawn in proportion.
_SAME_SCALE = ({"row", "column"}, {"x", "y"})
# Shapes beyond these, height by width, are squeezed to be readable.
_FLATTEST, _TALLEST, _OTHERWISE = 0.25, 1.6, 0.6
# Share of the map that symbols cover, and the smallest and largest of them in square points.
_COVERED, _SYMBOLS = 0.5, (1.0, 60.0)
_COAST = "#4a5058"
# Share of their extent that is left free around symbols.
_ROOM = 0.04


@dataclass(frozen=True, eq=False)
class Ruler:
    """One axis of a figure.

    Parameters
    ----------
    name : str
        Name of the axis.
    centres, edges : ndarray
        Centres of its n cells, and their n + 1 edges.
    labels : sequence of str, optional
        Labels of the cells, where positions replace the coordinates.
    degrees : bool
        Whether coordinates are latitudes or longitudes.
    """

    name: str
    centres: Numbers
    edges: Numbers
    labels: Sequence[str] | None = None
    degrees: bool = False

    @classmethod
    def of(
        cls, name: str, coordinate: NDArray[Any], labels: Sequence[str] | None = None, *, degrees: bool = False
    ) -> Ruler:  # fmt: skip
        """Make an axis from coordinates.

        Parameters
        ----------
        name : str
            Name of the axis.
        coordinate : ndarray of shape (n,)
            Used as they are if they are monotonic numbers; otherwise cells lie at 0, 1, ... and are labelled.
        labels : sequence of str, optional
            Labels to use in any case.
        degrees : bool
            Whether coordinates are latitudes or longitudes.

        Returns
        -------
        Ruler
        """
        if labels is None and _is_scale(coordinate):
            centres = coordinate.astype(float)
            return cls(name, centres, _edges(centres), degrees=degrees)
        centres = np.arange(len(coordinate), dtype=float)
        shown = labels or [plain(value) for value in coordinate]
        return cls(name, centres, _edges(centres), shown, degrees)

    @classmethod
    def between(cls, name: str, values: Numbers, limits: Numbers, *, degrees: bool = False) -> Ruler:
        """Make an axis of positions that form no row of cells, such as those of stations, between two limits."""
        return cls(name, values, limits, degrees=degrees)

    @property
    def length(self) -> float:
        """Distance between the outer edges."""
        return float(abs(self.edges[-1] - self.edges[0]))

    def limits(self) -> tuple[float, float]:
        """Return the outer edges, the lower first."""
        return float(self.edges.min()), float(self.edges.max())

    def mark(self, axis: Axis, most: int, **style: Any) -> None:
        """Label an axis with its name, and with coordinates or labels.

        Parameters
        ----------
        axis : Axis
            Horizontal or vertical axis of a figure.
        most : int
            Largest number of ticks.
        **style
            Style of the labels.
        """
        axis.set_label_text(literal(self.name))
        if self.labels is not None:
            step = -(-len(self.labels) // most)
            shown = [literal(shorten(label, 18)) for label in self.labels[::step]]
            axis.set_ticks(self.centres[::step].tolist(), labels=shown, **style)
        elif self.degrees:
            axis.set_major_locator(MaxNLocator(most, steps=_DEGREES))
        elif (self.centres == np.rint(self.centres)).all():
            axis.set_major_locator(MaxNLocator(most, integer=True))


class Frame(ABC):
    """Layout of sites on paper.

    Parameters
    ----------
    sites : Sites
        The sites.
    across, up : Ruler
        Horizontal and vertical axis.
    x, y : ndarray of shape (m,)
        Where each site is drawn; NaN where a projection does not show it.
    projection : Projection, optional
        The projection in whose coordinates all of these are; None: they are coordinates of the sites.

    Attributes
    ----------
    downward : bool
        Whether the vertical axis points down, as for rows of an image or depths.
    box : float
        Height of the axes divided by their width.
    background : str
        Colour where nothing is drawn.
    """

    background = "white"

    def __init__(
        self, sites: Sites, across: Ruler, up: Ruler, x: Numbers, y: Numbers, projection: Projection | None = None
    ) -> None:
        self.sites, self.across, self.up, self.x, self.y, self.projection = sites, across, up, x, y, projection
        self.downward = up.name.lower() in _DOWNWARD
        self.box = up.length / across.length if projection is not None else _box(across, up)

    @property
    def is_map(self) -> bool:
        """Whether the axes are longitude and latitude, or those of a projection."""
        return self.projection is not None or (self.across.degrees and self.up.degrees)

    @abstractmethod
    def draw(self, axes: Axes, values: NDArray[Any], colours: str, norm: Normalize) -> None:
        """Draw values of the sites.

        Parameters
        ----------
        axes : Axes
            Axes of a figure.
        values : ndarray of shape (m,)
            One for each site.
        colours : str
            Colour map.
        norm : Normalize
            Values at its ends.
        """

    def places(self, numbers: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
        """Return where sites are drawn, horizontally and vertically, by their numbers."""
        return self.x[numbers], self.y[numbers]

    def apply(self, axes: Axes, *, labelled: bool) -> None:
        """Set limits, aspect and, if wanted, labels of axes."""
        low, high = self.up.limits()
        if self.projection is not None:
            axes.set(xlim=self.across.limits(), ylim=(low, high))
            if labelled:
                self.projection.mark(axes, color=RULE)
            return
        axes.set(xlim=self.across.limits(), ylim=(high, low) if self.downward else (low, high))
        axes.set_box_aspect(self.box)
        if labelled:
            self.across.mark(axes.xaxis, 7)
            self.up.mark(axes.yaxis, 7)
        else:
            axes.set(xticks=[], yticks=[])


class CellFrame(Frame):
    """Layout of sites as the cells of a grid, regular or curvilinear.

    Parameters
    ----------
    sites, across, up, x, y
        See `Frame`.
    corners : tuple of two ndarray of shape (rows + 1, columns + 1)
        Horizontal and vertical position of the corners of all cells, valid or not.
    turned : bool
        Whether the first axis of the data is horizontal.
    """

    background = LAND

    def __init__(
        self, sites: Sites, across: Ruler, up: Ruler, x: Numbers, y: Numbers, corners: tuple[Numbers, Numbers], *,
        turned: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(sites, across, up, x, y)
        self.corners, self.turned = corners, turned

    @classmethod
    def regular(cls, sites: Sites) -> CellFrame:
        """Lay out a grid of two axes; longitude is horizontal, also where it is the first axis."""
        turned = sites.dims[0] == sites.roles.get("longitude")
        rulers = [Ruler.of(dim, sites.axes[dim], degrees=in_degrees(sites, dim)) for dim in sites.dims]
        places = [ruler.centres[place] for ruler, place in zip(rulers, sites.places, strict=True)]
        up, across = reversed(rulers) if turned else rulers
        y, x = reversed(places) if turned else places
        x_edges, y_edges = np.meshgrid(across.edges, up.edges)
        return cls(sites, across, up, x, y, (x_edges, y_edges), turned=turned)

    @classmethod
    def curvilinear(cls, sites: Sites, across: str, up: str) -> CellFrame:
        """Lay out a grid by coordinates of two axes."""
        whole = grid_positions(sites, across, up, degrees=in_degrees(sites, across))
        corners = _corners(whole[0]), _corners(whole[1])
        first, second = (
            Ruler.between(name, one.ravel(), _ends(edges), degrees=in_degrees(sites, name))
            for name, one, edges in zip((across, up), whole, corners, strict=True)
        )
        x, y = (sites.from_grid(one) for one in whole)
        return cls(sites, first, second, x, y, corners)

    def draw(self, axes: Axes, values: NDArray[Any], colours: str, norm: Normalize) -> None:
        """Colour the cells, with those that are not valid behind an outline."""
        pixels = np.ma.masked_invalid(self.pixels(self.sites.to_grid(np.asarray(values, np.float64))))
        axes.pcolormesh(*self.corners, pixels, cmap=colours, norm=norm, rasterized=True)
        axes.add_collection(LineCollection(list(self.coast()), colors=_COAST, linewidths=0.5), autolim=False)

    def coast(self) -> Numbers:
        """Return the outline of the valid sites: segments ``(n, 2, 2)`` between a valid and an invalid cell."""
        valid = self.pixels(self.sites.to_grid(np.ones(len(self.sites), bool), False))
        points = np.stack(self.corners, axis=-1)
        row, column = np.nonzero(valid[:, 1:] != valid[:, :-1])
        upright = np.stack([points[row, column + 1], points[row + 1, column + 1]], axis=1)
        row, column = np.nonzero(valid[1:] != valid[:-1])
        level = np.stack([points[row + 1, column], points[row + 1, column + 1]], axis=1)
        return np.concatenate([upright, level])

    def pixels(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the data's shape as rows (vertical) and columns (horizontal)."""
        return values.T if self.turned else values


class SymbolFrame(Frame):
    """Layout of a list of sites, such as stations: a symbol for each."""

    @classmethod
    def around(cls, sites: Sites, across: str, up: str, projection: Projection | None = None) -> SymbolFrame:
        """Lay out sites by two coordinates; longitudes are cut where the largest gap is."""
        x, y = on_paper(sites, across, up)
        if projection is not None:
            x, y = projection.points(x, y)
            limits = projection.limits(x, y, room=_ROOM)
            first, second = (Ruler.between("", one, edges) for one, edges in zip((x, y), limits, strict=True))
        else:
            first, second = (
                Ruler.between(name, one, _padded(one), degrees=in_degrees(sites, name))
                for name, one in ((across, x), (up, y))
            )
        return cls(sites, first, second, x, y, projection)

    def part(self, numbers: NDArray[np.int64]) -> SymbolFrame:
        """Return the layout of some of the sites within the same limits."""
        x, y = self.places(numbers)
        return SymbolFrame(self.sites.take(numbers), self.across, self.up, x, y, self.projection)

    def draw(self, axes: Axes, values: NDArray[Any], colours: str, norm: Normalize) -> None:
        """Draw a symbol for each site, smaller the more there are."""
        figure, part = axes.get_figure(), axes.get_position()
        wide = 72 * part.width * (figure.get_figwidth() if isinstance(figure, Figure) else 1.0)
        size = float(np.clip(_COVERED * wide**2 * self.box / max(len(values), 1), *_SYMBOLS))
        draw_symbols(axes, self.x, self.y, values, size, cmap=colours, norm=norm)


def draw_symbols(axes: Axes, x: Numbers, y: Numbers, values: NDArray[Any], size: float, **shades: Any) -> None:
    """Draw a dot for each site, grey where its value is not known.

    Parameters
    ----------
    axes : Axes
        Axes of a figure.
    x, y, values : ndarray of shape (n,)
        Positions and values.
    size : float
        Square points.
    **shades
        Colour map and normalisation.
    """
    known = np.isfinite(values)
    axes.scatter(x[~known], y[~known], s=size, c=LAND, linewidths=0, rasterized=True)
    axes.scatter(x[known], y[known], s=size, c=values[known], linewidths=0, rasterized=True, **shades)


def on_paper(sites: Sites, across: str, up: str) -> tuple[Numbers, Numbers]:
    """Return two coordinates of each site, with longitudes in a convention in which they are together."""
    x, y = (sites.coordinate(name).astype(float) for name in (across, up))
    return (_cut_at_gap(x) if in_degrees(sites, across) else x), y


def in_degrees(sites: Sites, name: str) -> bool:
    """Return whether a coordinate is latitude or longitude."""
    return name in (sites.roles.get("latitude"), sites.roles.get("longitude"))


def _cut_at_gap(longitude: Numbers) -> Numbers:
    """Longitudes in the convention in which they span the least, their own where that will do."""
    around = np.unique(longitude % FULL_TURN)
    gaps = np.diff(around, append=around[0] + FULL_TURN)
    if np.ptp(longitude) <= FULL_TURN - gaps.max() + 1e-6:
        return longitude
    start = around[(gaps.argmax() + 1) % len(around)]
    start -= FULL_TURN if start >= FULL_TURN / 2 else 0.0
    return np.asarray((longitude - start) % FULL_TURN + start)


def _corners(centres: Numbers) -> Numbers:
    """Corners of cells ``(rows + 1, columns + 1)``, in the middle of the four centres around them."""
    padded = np.pad(centres, 1, mode="reflect", reflect_type="odd")
    return np.asarray((padded[1:, 1:] + padded[1:, :-1] + padded[:-1, 1:] + padded[:-1, :-1]) / 4)


def _ends(values: Numbers) -> Numbers:
    return np.array([values.min(), values.max()])


def _padded(values: Numbers) -> Numbers:
    """Limits that leave some room around values."""
    low, high = _ends(values)
    room = _ROOM * (high - low) or 0.5
    return np.array([low - room, high + room])


def _is_scale(coordinate: NDArray[Any]) -> bool:
    """Whether coordinates are finite and strictly monotonic numbers."""
    if coordinate.dtype.kind not in "iuf" or not np.isfinite(coordinate).all():
        return False
    steps = np.diff(coordinate.astype(float))
    return bool((steps > 0).all() or (steps < 0).all())


def _edges(centres: Numbers) -> Numbers:
    """Edges of cells, halfway between their centres."""
    if len(centres) == 1:
        return np.array([centres[0] - 0.5, centres[0] + 0.5])
    middles = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[2 * centres[0] - middles[0]], middles, [2 * centres[-1] - middles[-1]]])


def _box(across: Ruler, up: Ruler) -> float:
    """Height by width: true to scale on maps and images, within bounds; fixed where axes are of different kinds."""
    shape = up.length / across.length
    if across.degrees and up.degrees:
        # A degree of longitude is shorter than one of latitude away from the equator.
        shape /= max(0.2, float(np.cos(np.deg2rad(np.mean(up.limits())))))
    elif {across.name.lower(), up.name.lower()} not in _SAME_SCALE:
        return _OTHERWISE
    return float(np.clip(shape, _FLATTEST, _TALLEST))
