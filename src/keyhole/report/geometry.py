"""How a grid of two axes lies on paper: which axis is across, which is up, and where cells end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from keyhole.data.grid import Grid
from keyhole.report.style import literal
from keyhole.report.words import plain, shorten

__all__ = ["Frame", "Ruler"]

Numbers = NDArray[np.float64]

_LATITUDES = ("lat", "latitude", "nav_lat")
_LONGITUDES = ("lon", "longitude", "nav_lon")
# Steps that divide a circle well.
_DEGREES = (1, 1.5, 2, 3, 5, 6, 10)
# Counted from the top by custom: rows of images, depths, pressure levels.
_DOWNWARD = ("row", "depth", "level", "lev", "plev")
# Pairs of axes on one scale, whose cells are drawn in proportion.
_SAME_SCALE = ({"row", "column"}, {"x", "y"})
# Shapes beyond these, height by width, are squeezed to be readable.
_FLATTEST, _TALLEST, _OTHERWISE = 0.25, 1.6, 0.6


@dataclass(frozen=True, eq=False)
class Ruler:
    """One axis: ``centres`` and ``edges`` of its cells; ``labels`` where positions stand for coordinates."""

    name: str
    centres: Numbers
    edges: Numbers
    labels: Sequence[str] | None = None

    @classmethod
    def of(cls, name: str, coordinate: NDArray[Any], labels: Sequence[str] | None = None) -> Ruler:
        """Use the coordinate as it is where it rises or falls throughout, else positions labelled with it."""
        if labels is None and _is_scale(coordinate):
            centres = coordinate.astype(float)
            return cls(name, centres, _edges(centres))
        centres = np.arange(len(coordinate), dtype=float)
        return cls(name, centres, _edges(centres), labels or [plain(value) for value in coordinate])

    @property
    def length(self) -> float:
        """Distance between the outer edges."""
        return float(abs(self.edges[-1] - self.edges[0]))

    def limits(self) -> tuple[float, float]:
        """Outer edges, the lower first."""
        return float(self.edges.min()), float(self.edges.max())

    def mark(self, axis: Axis, most: int, **style: Any) -> None:
        """Label the axis: its name, and some of the cells' labels where numbers would not do."""
        axis.set_label_text(literal(self.name))
        if self.labels is not None:
            step = -(-len(self.labels) // most)
            shown = [literal(shorten(label, 18)) for label in self.labels[::step]]
            axis.set_ticks(self.centres[::step].tolist(), labels=shown, **style)
        elif self.name.lower() in (*_LATITUDES, *_LONGITUDES):
            axis.set_major_locator(MaxNLocator(most, steps=_DEGREES))
        elif (self.centres == np.rint(self.centres)).all():
            axis.set_major_locator(MaxNLocator(most, integer=True))


@dataclass(frozen=True, eq=False)
class Frame:
    """Both axes of a grid; whether it is turned (its first axis runs across); the box' height by width."""

    across: Ruler
    up: Ruler
    turned: bool
    downward: bool
    box: float

    @classmethod
    def of(cls, grid: Grid) -> Frame:
        """Lay out a grid of two axes; latitude goes up, also where longitude is the first axis."""
        turned = grid.dims[0].lower() in _LONGITUDES
        rulers = [Ruler.of(dim, grid.coordinates[dim]) for dim in grid.dims]
        up, across = reversed(rulers) if turned else rulers
        return cls(across, up, turned, up.name.lower() in _DOWNWARD, _box(grid, across, up))

    def pixels(self, values: NDArray[Any]) -> NDArray[Any]:
        """Give values of the grid as rows (up) and columns (across)."""
        return values.T if self.turned else values

    def places(self, grid: Grid, indices: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
        """Centres of cells (flat grid indices), across and up."""
        first, second = np.unravel_index(indices, grid.shape)
        i, j = (first, second) if self.turned else (second, first)
        return self.across.centres[i], self.up.centres[j]

    def apply(self, axes: Axes, *, labelled: bool) -> None:
        """Set limits, shape and, if asked for, labels of axes."""
        low, high = self.up.limits()
        axes.set(xlim=self.across.limits(), ylim=(high, low) if self.downward else (low, high))
        axes.set_box_aspect(self.box)
        if labelled:
            self.across.mark(axes.xaxis, 7)
            self.up.mark(axes.yaxis, 7)
        else:
            axes.set(xticks=[], yticks=[])

    def coast(self, inside: NDArray[np.bool_]) -> Numbers:
        """Segments ``(n, 2, 2)`` along the edges between cells inside and outside."""
        pixels, x, y = self.pixels(inside), self.across.edges, self.up.edges
        row, column = np.nonzero(pixels[:, 1:] != pixels[:, :-1])
        upright = _segments(x[column + 1], y[row], x[column + 1], y[row + 1])
        row, column = np.nonzero(pixels[1:] != pixels[:-1])
        level = _segments(x[column], y[row + 1], x[column + 1], y[row + 1])
        return np.concatenate([upright, level])


def _is_scale(coordinate: NDArray[Any]) -> bool:
    if coordinate.dtype.kind not in "iuf" or not np.isfinite(coordinate).all():
        return False
    steps = np.diff(coordinate.astype(float))
    return bool((steps > 0).all() or (steps < 0).all())


def _edges(centres: Numbers) -> Numbers:
    if len(centres) == 1:
        return np.array([centres[0] - 0.5, centres[0] + 0.5])
    middles = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[2 * centres[0] - middles[0]], middles, [2 * centres[-1] - middles[-1]]])


def _box(grid: Grid, across: Ruler, up: Ruler) -> float:
    shape = up.length / across.length
    names = {across.name.lower(), up.name.lower()}
    if grid.axis_of_latitude() is not None and names & set(_LONGITUDES):
        # A degree of longitude is shorter than one of latitude away from the equator.
        shape /= max(0.2, float(np.cos(np.deg2rad(np.mean(up.limits())))))
    elif names not in _SAME_SCALE:
        return _OTHERWISE
    return float(np.clip(shape, _FLATTEST, _TALLEST))


def _segments(*corners: Numbers) -> Numbers:
    return np.stack(corners, axis=1).reshape(-1, 2, 2)
