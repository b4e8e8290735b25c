"""Figures of the chosen plan: sites, reconstructions, errors and prediction intervals, as maps or as lines."""

from __future__ import annotations

from types import ModuleType

from matplotlib.figure import Figure

from keyhole.core.errors import DataError
from keyhole.data.grid import Grid
from keyhole.report import lines, maps
from keyhole.report.report_data import Quantity, ReportData
from keyhole.report.style import WIDE

__all__ = ["can_draw", "error_figure", "interval_figure", "samples_figure", "sites_figure"]

_BY_AXES = {1: lines, 2: maps}


def can_draw(grid: Grid) -> bool:
    """Return whether a grid has one axis, which is drawn as lines, or two, which are drawn as maps."""
    return len(grid.shape) in _BY_AXES


def sites_figure(data: ReportData, *, width: float = WIDE) -> Figure:
    """Draw the ranked sites over the standard deviation of the field.

    Parameters
    ----------
    data : ReportData
        Of a comparison, see `ReportData.of`; its grid has one or two axes.
    width : float
        Inches: ``WIDE`` or ``NARROW``.

    Returns
    -------
    Figure

    Raises
    ------
    DataError
        If the grid has more than two axes.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.workflow.comparison import compare
    >>> figure = sites_figure(ReportData.of(compare(kh.datasets.sst(), 5, ["qr"])))
    >>> figure.axes[0].get_xlabel()
    'lon'
    """
    return _figure(data, Quantity(data.spread, "standard deviation", "viridis", shows_ranks=True), width)


def error_figure(data: ReportData, *, width: float = WIDE) -> Figure:
    """Draw the RMSE of each site on the test part; parameters as for `sites_figure`."""
    return _figure(data, Quantity(data.error_map, "RMSE on test", "cividis", baseline=data.spread), width)


def interval_figure(data: ReportData, *, width: float = WIDE) -> Figure:
    """Draw the mean width of the 90 % prediction interval of each site; parameters as for `sites_figure`."""
    return _figure(data, Quantity(data.interval_map, "mean width of the 90 % prediction interval", "magma"), width)


def samples_figure(data: ReportData, *, width: float = WIDE) -> Figure:
    """Draw truth, reconstruction and error of the best, median and worst test sample.

    Parameters as for `sites_figure`.
    """
    figure: Figure = _module(data.grid).draw_samples(data, width)
    return figure


def _figure(data: ReportData, quantity: Quantity, width: float) -> Figure:
    """Draw one quantity of each site, with the selected sites on it."""
    figure: Figure = _module(data.grid).draw_quantity(data, quantity, width)
    return figure


def _module(grid: Grid) -> ModuleType:
    """Module that draws grids of this number of axes."""
    if not can_draw(grid):
        raise DataError(f"a grid of {len(grid.shape)} axes {grid.shape} cannot be drawn; one or two axes can")
    return _BY_AXES[len(grid.shape)]
