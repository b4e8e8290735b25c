"""Panels placed in inches, and what is drawn in them: images, fields, sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from keyhole.report.style import INK, SMALL, new_figure, tidy

__all__ = ["ColourScale", "PanelGrid", "bar", "bare", "box", "dots", "image", "is_field", "place", "symmetric"]

_FIELDS = ("ipsl", "ncep")  # of the globe
_UPWARD = ("ipsl",)  # whose first row is the south
_GLOBE = 0.5  # its height by its width, a degree being as long in both directions
_SIDES = ("left", "bottom", "top", "right")
# Share of its cell that a dot spans, and the least diameter in points that print shows.
_DOT, _LEAST_DOT = 0.85, 1.8
# Beyond this percentile values are clipped, lest a few wash out all others.
_CLIP = 99.5


@dataclass(frozen=True)
class ColourScale:
    """A colour map between two values.

    Parameters
    ----------
    name
        Name of a Matplotlib colour map.
    low
        Value of its first colour.
    high
        Value of its last colour.
    extend
        On which sides values were clipped.
    """

    name: str
    low: float
    high: float
    extend: Literal["neither", "both", "min", "max"] = "neither"

    def norm(self) -> Normalize:
        """Return the normalisation of values to the scale.

        Returns
        -------
        Normalize
            From ``low`` to ``high``.
        """
        return Normalize(self.low, self.high)


def symmetric(*values: NDArray[Any]) -> ColourScale:
    """Return a colour scale that is symmetric around zero; the few largest values are clipped.

    Parameters
    ----------
    values
        Arrays to show.

    Returns
    -------
    ColourScale
        Their common scale.
    """
    sizes = np.abs(np.concatenate([np.ravel(one).astype(float) for one in values]))
    most = (float(np.nanpercentile(sizes, _CLIP)) if len(sizes) else 0.0) or 1.0
    return ColourScale("RdBu_r", -most, most, "both" if (sizes > most).any() else "neither")


@dataclass(frozen=True)
class PanelGrid:
    """The layout of a figure whose panels have one size; all lengths are in inches.

    ``columns`` and ``rows`` are the gaps before each column and row; ``margins`` are left, right, top and bottom.

    Parameters
    ----------
    panel
        Width and height of a panel.
    columns
        Gap before each column.
    rows
        Gap before each row.
    margins
        Left, right, top and bottom margins.
    """

    panel: tuple[float, float]
    columns: Sequence[float]
    rows: Sequence[float]
    margins: tuple[float, float, float, float]

    def figure(self) -> tuple[Figure, list[list[Axes]]]:
        """Create the figure and its panels.

        Returns
        -------
        tuple
            The figure, and a list of axes for each row.
        """
        (wide, tall), (left, right, top, bottom) = self.panel, self.margins
        xs = left + np.cumsum(self.columns) + wide * np.arange(len(self.columns))
        tops = top + np.cumsum(self.rows) + tall * np.arange(len(self.rows))
        figure = new_figure(float(xs[-1]) + wide + right, float(tops[-1]) + tall + bottom)
        figure.set_layout_engine("none")
        return figure, [[place(figure, x, y, wide, tall) for x in xs] for y in tops]


def place(figure: Figure, x: float, y: float, wide: float, tall: float) -> Axes:
    """Add axes at a position in inches.

    Parameters
    ----------
    figure
        The figure.
    x, y
        Distance of the left and upper edges from those of the figure.
    wide, tall
        Width and height.

    Returns
    -------
    Axes
        The new axes.
    """
    width, height = figure.get_size_inches()
    return figure.add_axes((x / width, 1 - (y + tall) / height, wide / width, tall / height))


def is_field(data: str) -> bool:
    """Whether a data set holds anomalies on the globe, not images.

    Parameters
    ----------
    data
        Name of the data set.

    Returns
    -------
    bool
        True for fields.
    """
    return data in _FIELDS


def box(data: str, grid: Sequence[int]) -> float:
    """Return the aspect ratio, height by width, of a panel.

    Parameters
    ----------
    data
        Name of the data set.
    grid
        Shape of the grid.

    Returns
    -------
    float
        The ratio.
    """
    return _GLOBE if is_field(data) else grid[0] / grid[1]


def image(axes: Axes, values: NDArray[Any], shades: ColourScale, data: str, *, smooth: bool = False) -> None:
    """Draw an image or a field.

    Cells stay crisp unless ``smooth``, for those finer than the print's dots.

    Parameters
    ----------
    axes
        Where to draw.
    values
        ``(channels, rows, columns)`` or ``(rows, columns)``: three channels are colours, else the first is shown.
    shades
        Colour scale of the values.
    data
        Name of the data set.
    smooth
        Whether to interpolate, for cells finer than the resolution of print.
    """
    pixels = values.astype(float)
    if pixels.ndim == 3:
        pixels = np.clip(np.moveaxis(pixels, 0, -1), 0, 1) if len(pixels) == 3 else pixels[0]
    axes.imshow(
        pixels, cmap=shades.name, norm=shades.norm(), aspect="auto", interpolation="auto" if smooth else "none",
        origin="lower" if data in _UPWARD else "upper",
    )  # fmt: skip
    bare(axes)


def dots(axes: Axes, sites: NDArray[Any], grid: tuple[int, ...], colour: str, data: str) -> None:
    """Draw sites as dots on white, each as large as its cell, or larger where that is tiny.

    Parameters
    ----------
    axes
        Where to draw.
    sites
        Flat indices into the grid.
    grid
        Shape of the grid.
    colour
        Colour of the dots.
    data
        Name of the data set.
    """
    row, column = np.unravel_index(sites.astype(int), grid)
    points = 72 / axes.figure.dpi
    cell = points * float(np.sqrt(axes.bbox.width / grid[1] * axes.bbox.height / grid[0]))
    diameter = max(_LEAST_DOT, _DOT * cell)
    axes.scatter(column, row, s=diameter**2, c=colour, linewidths=0)
    ends = (-0.5, grid[0] - 0.5)
    axes.set(xlim=(-0.5, grid[1] - 0.5), ylim=ends if data in _UPWARD else ends[::-1])
    bare(axes)


def bare(axes: Axes) -> None:
    """Remove ticks and labels, leaving a thin frame.

    Parameters
    ----------
    axes
        The axes.
    """
    axes.set(xticks=[], yticks=[])
    axes.set_facecolor("white")
    tidy(axes, frame=_SIDES)


def bar(axes: Axes, shades: ColourScale, label: str, *, upright: bool) -> None:
    """Draw a colour bar.

    Parameters
    ----------
    axes
        Axes that the bar fills.
    shades
        The colour scale.
    label
        Its label.
    upright
        Whether the bar is vertical.
    """
    scale = axes.figure.colorbar(
        ScalarMappable(shades.norm(), shades.name), cax=axes, extend=shades.extend,
        orientation="vertical" if upright else "horizontal", ticks=MaxNLocator(5, steps=(1, 2, 2.5, 5, 10)),
    )  # fmt: skip
    scale.set_label(label, fontsize=SMALL, color=INK)
    axes.tick_params(labelsize=SMALL, colors=INK, width=0.6, length=3)
    scale.outline.set_linewidth(0.5)
