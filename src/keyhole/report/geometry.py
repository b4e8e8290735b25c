"""Layout of a grid on paper: which axis is horizontal, which is vertical, and where cells end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from keyhole.data.grid import Grid, is_latitude, is_longitude
from keyhole.report.formatting import plain, shorten
from keyhole.report.style import literal

__all__ = ["Frame", "Ruler"]

Numbers = NDArray[np.float64]

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
    """One axis of a figure.

    Parameters
    ----------
    name : str
        Name of the axis.
    centres, edges : ndarray
        Centres of its n cells, and their n + 1 edges.
    labels : sequence of str, optional
        Labels of the cells, where positions replace the coordinates.
    """

    name: str
    centres: Numbers
    edges: Numbers
    labels: Sequence[str] | None = None

    @classmethod
    def of(cls, name: str, coordinate: NDArray[Any], labels: Sequence[str] | None = None) -> Ruler:
        """Make an axis from coordinates.

        Parameters
        ----------
        name : str
            Name of the axis.
        coordinate : ndarray of shape (n,)
            Used as they are if they are monotonic numbers; otherwise cells lie at 0, 1, ... and are labelled.
        labels : sequence of str, optional
            Labels to use in any case.

        Returns
        -------
        Ruler
        """
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
        elif is_latitude(self.name) or is_longitude(self.name):
            axis.set_major_locator(MaxNLocator(most, steps=_DEGREES))
        elif (self.centres == np.rint(self.centres)).all():
            axis.set_major_locator(MaxNLocator(most, integer=True))


@dataclass(frozen=True, eq=False)
class Frame:
    """Layout of a grid with two axes.

    Parameters
    ----------
    across, up : Ruler
        Horizontal and vertical axis.
    turned : bool
        Whether the grid's first axis is horizontal.
    downward : bool
        Whether the vertical axis points down, as for rows of an image or depths.
    box : float
        Height of the axes divided by their width.

    Examples
    --------
    >>> Frame.of(Grid.plain((2, 4))).box
    0.5
    """

    across: Ruler
    up: Ruler
    turned: bool
    downward: bool
    box: float

    @classmethod
    def of(cls, grid: Grid) -> Frame:
        """Lay out a grid with two axes; latitude is vertical, also where longitude is the first axis."""
        turned = is_longitude(grid.dims[0])
        rulers = [Ruler.of(dim, grid.coordinates[dim]) for dim in grid.dims]
        up, across = reversed(rulers) if turned else rulers
        return cls(across, up, turned, up.name.lower() in _DOWNWARD, _box(grid, across, up))

    def pixels(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the grid as rows (vertical) and columns (horizontal)."""
        return values.T if self.turned else values

    def places(self, grid: Grid, indices: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
        """Return the centres of sites.

        Parameters
        ----------
        grid : Grid
            The grid.
        indices : ndarray of int
            Flat grid indices.

        Returns
        -------
        across, up : ndarray
        """
        first, second = np.unravel_index(indices, grid.shape)
        i, j = (first, second) if self.turned else (second, first)
        return self.across.centres[i], self.up.centres[j]

    def apply(self, axes: Axes, *, labelled: bool) -> None:
        """Set limits, aspect and, if wanted, labels of axes."""
        low, high = self.up.limits()
        axes.set(xlim=self.across.limits(), ylim=(high, low) if self.downward else (low, high))
        axes.set_box_aspect(self.box)
        if labelled:
            self.across.mark(axes.xaxis, 7)
            self.up.mark(axes.yaxis, 7)
        else:
            axes.set(xticks=[], yticks=[])

    def coast(self, inside: NDArray[np.bool_]) -> Numbers:
        """Return the outline of the valid sites.

        Parameters
        ----------
        inside : ndarray of bool
            Valid sites of the grid.

        Returns
        -------
        ndarray of shape (n, 2, 2)
            Segments between a valid and an invalid cell.
        """
        pixels, x, y = self.pixels(inside), self.across.edges, self.up.edges
        row, column = np.nonzero(pixels[:, 1:] != pixels[:, :-1])
        upright = _segments(x[column + 1], y[row], x[column + 1], y[row + 1])
        row, column = np.nonzero(pixels[1:] != pixels[:-1])
        level = _segments(x[column], y[row + 1], x[column + 1], y[row + 1])
        return np.concatenate([upright, level])


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


def _box(grid: Grid, across: Ruler, up: Ruler) -> float:
    """Height by width: true to scale on maps and images, within bounds; fixed where axes are of different kinds."""
    shape = up.length / across.length
    if None not in (grid.axis_of_latitude(), grid.axis_of_longitude()):
        # A degree of longitude is shorter than one of latitude away from the equator.
        shape /= max(0.2, float(np.cos(np.deg2rad(np.mean(up.limits())))))
    elif {across.name.lower(), up.name.lower()} not in _SAME_SCALE:
        return _OTHERWISE
    return float(np.clip(shape, _FLATTEST, _TALLEST))


def _segments(*corners: Numbers) -> Numbers:
    """Segments from the coordinates of both ends."""
    return np.stack(corners, axis=1).reshape(-1, 2, 2)
