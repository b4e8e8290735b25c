"""Learned mask distributions: the covariance of their logits, and their mean masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from keyhole.report.style import INK, MUTED, SMALL, TEXT, heading, new_figure, tidy
from keyhole_benchmarks.drawing.panels import ColourScale, PanelGrid, bar, box, image, place, symmetric
from keyhole_benchmarks.drawing.stored_cases import StoredCase
from keyhole_benchmarks.drawing.style import COLOURS
from keyhole_benchmarks.names import METHODS

__all__ = ["averages", "by_distance", "correlation", "covariance"]

Arrays = Mapping[str, NDArray[Any]]
Numbers = NDArray[np.float64]

# Inches: side of the matrix, of a map, of the gap below a map; width of a colour bar, of the figure.
_MATRIX, _MAP, _GAP, _BAR, _WIDE = 3.15, 1.42, 0.31, 0.12, 10.0
_MAPS = 4
_SIDE = 1.9  # of a panel of averages
_FARTHEST = 14  # cells, of the distances shown
_OPENS = 0.01  # a cell whose average mask is less hardly ever opens
_FINE = 400  # more cells than this are finer than the dots of the print
_ROWS = 4  # of the grid, from one labelled to the next


def covariance(arrays: Arrays) -> Figure:
    """Draw the covariance of a mask distribution's logits, correlation maps of likely sites, and by distance.

    Cells that hardly ever open, whose covariance means nothing, are left out of the matrix and pale on the maps.

    Parameters
    ----------
    arrays
        Arrays of one case: ``covariance``, ``(cells, cells)`` in C order with every cell observable; ``average``,
        the mean mask on the grid; the selected ``sites``.

    Returns
    -------
    Figure
        Three panels.
    """
    figure = new_figure(_WIDE, _MATRIX + 1.15)
    figure.set_layout_engine("none")
    top, left = 0.36, 0.62
    beside = left + _MATRIX + 0.1
    shades = _draw_matrix(place(figure, left, top, _MATRIX, _MATRIX), arrays)
    bar(place(figure, beside, top, _BAR, _MATRIX), shades, "", upright=True)
    maps = beside + 0.66
    _draw_maps(figure, maps, top, arrays)
    curve = maps + 2 * _MAP + 0.1 + 0.78
    _draw_reach(place(figure, curve, top, _WIDE - 0.12 - curve, _MATRIX), arrays)
    return figure


def averages(rows: Sequence[StoredCase]) -> Figure:
    """Draw the mean mask of each mask distribution on one scale.

    Parameters
    ----------
    rows
        One case for each distribution.

    Returns
    -------
    Figure
        One panel for each case.
    """
    tall = _SIDE * box(rows[0].data, rows[0].arrays["average"].shape)
    wall = PanelGrid((_SIDE, tall), (0.0, *[0.12] * (len(rows) - 1)), (0.0,), (0.1, 0.75, 0.45, 0.1))
    figure, (panels,) = wall.figure()
    shades = ColourScale("viridis", 0.0, 1.0)
    for axes, row in zip(panels, rows, strict=True):
        image(axes, row.arrays["average"], shades, row.data)
        _two_lines(axes, METHODS[row.method], _concentration(row))
    scale = place(figure, float(figure.get_figwidth()) - 0.65, 0.45, _BAR, tall)
    bar(scale, shades, f"average mask, K = {rows[0].k}", upright=True)
    return figure


def correlation(matrix: NDArray[Any]) -> Numbers:
    """Return the correlation matrix of a covariance matrix, with zeros where a variance is zero.

    Parameters
    ----------
    matrix
        Covariance.

    Returns
    -------
    ndarray
        Correlation.
    """
    values = matrix.astype(float)
    spread = np.sqrt(np.clip(values.diagonal(), 0, None))
    size = np.outer(spread, spread)
    found: Numbers = np.divide(values, size, out=np.zeros_like(values), where=size > 0)
    return found


def by_distance(arrays: Arrays) -> tuple[Numbers, Numbers]:
    """Return the mean correlation of pairs of sites by distance, weighted by the product of their mean masks.

    Parameters
    ----------
    arrays
        Arrays of one case, with ``covariance`` and ``average``.

    Returns
    -------
    tuple of ndarray
        Distances in cells, and the mean correlation at each.
    """
    average = arrays["average"].astype(float)
    row, column = (index.ravel() for index in np.indices(average.shape))
    apart = np.rint(np.hypot(np.subtract.outer(row, row), np.subtract.outer(column, column))).astype(int).ravel()
    weight = np.outer(average, average).ravel()
    total = np.bincount(apart, weight)
    mean = np.bincount(apart, weight * correlation(arrays["covariance"]).ravel()) / np.maximum(total, 1e-300)
    shown = np.flatnonzero(total)[1:]
    shown = shown[shown <= _FARTHEST]
    return shown.astype(float), mean[shown]


def _draw_matrix(axes: Axes, arrays: Arrays) -> ColourScale:
    """Draw the covariance of the cells that open, in C order; labels are the grid's rows."""
    average = arrays["average"]
    cells = np.union1d(np.flatnonzero(average >= _OPENS), arrays["sites"].astype(int))
    values = arrays["covariance"][np.ix_(cells, cells)].astype(float)
    shades = symmetric(values[~np.eye(len(cells), dtype=bool)])
    image(axes, values, shades, "", smooth=len(cells) > _FINE)
    rows = cells // average.shape[1]
    labels = [row for row in range(0, average.shape[0], _ROWS) if row in rows]
    ticks = (np.searchsorted(rows, labels) - 0.5).tolist()
    axes.set_xticks(ticks, labels=list(map(str, labels)))
    axes.set_yticks(ticks, labels=list(map(str, labels)))
    axes.set(xlabel=f"row of the {len(cells)} cells that open", ylabel="row")
    tidy(axes, frame=("left", "bottom", "top", "right"))
    heading(axes, "(a) covariance of the logits")
    return replace(shades, extend="both")


def _draw_maps(figure: Figure, x: float, y: float, arrays: Arrays) -> None:
    """Draw the correlation of every cell with each of the likeliest chosen sites."""
    average, sites = arrays["average"].astype(float), arrays["sites"].astype(int)
    values, shades = correlation(arrays["covariance"]), ColourScale("RdBu_r", -1.0, 1.0)
    likeliest = sites[np.argsort(-average.ravel()[sites], kind="stable")][:_MAPS]
    opacity = np.sqrt(np.clip(average / max(average.ravel()[sites].mean(), _OPENS), 0, 1))
    for rank, site in enumerate(likeliest):
        axes = place(figure, x + (rank % 2) * (_MAP + 0.1), y + (rank // 2) * (_MAP + _GAP), _MAP, _MAP)
        image(axes, _paled(values[site].reshape(average.shape), shades, opacity), shades, "")
        _point_out(axes, *np.unravel_index(site, average.shape))
        if rank == 0:
            heading(axes, "(b) correlation with likely sites")
    scale = place(figure, x, y + 2 * _MAP + _GAP + 0.28, 2 * _MAP + 0.1, _BAR)
    bar(scale, shades, "pale: seldom open", upright=False)


def _paled(values: Numbers, shades: ColourScale, opacity: Numbers) -> Numbers:
    """Give values as colours on white, ``(3, rows, columns)``: SVG would forget an opacity that differs by cell."""
    colours = np.moveaxis(np.asarray(colormaps[shades.name](shades.norm()(values)))[..., :3], -1, 0)
    paled: Numbers = 1 - opacity * (1 - colours)
    return paled


def _point_out(axes: Axes, row: Any, column: Any) -> None:
    axes.plot(column, row, "o", markersize=6, mfc="none", mec=INK, mew=1)
    axes.set_xlabel(f"row {row}, column {column}", fontsize=SMALL, color=INK, labelpad=2)


def _draw_reach(axes: Axes, arrays: Arrays) -> None:
    distance, mean = by_distance(arrays)
    axes.axhline(0, color=MUTED, linewidth=0.6)
    axes.plot(distance, mean, "o-", color=COLOURS["vln"], markersize=4, linewidth=1.4)
    axes.set(xlabel="distance in cells", ylabel="mean correlation")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    tidy(axes, grid="y")
    heading(axes, "(c) by distance")


def _two_lines(axes: Axes, title: str, below: str) -> None:
    style: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "color": INK}
    axes.annotate(title, (0, 1), (0, 17), fontsize=TEXT, fontweight="bold", **style)
    axes.annotate(below, (0, 1), (0, 5), fontsize=SMALL, **style)


def _concentration(row: StoredCase) -> str:
    return "" if row.concentration is None else f"concentration {row.concentration:.2f}"
