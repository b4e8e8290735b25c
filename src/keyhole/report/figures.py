"""Figures of the chosen plan: sites, reconstructions, errors and prediction intervals, as maps or as lines."""

from __future__ import annotations

from types import ModuleType

from matplotlib.figure import Figure

from keyhole.core.errors import DataError
from keyhole.data.sites import Sites
from keyhole.report import lines, maps
from keyhole.report.geometry import horizontal
from keyhole.report.report_data import Quantity, ReportData
from keyhole.report.style import WIDE

__all__ = ["can_draw", "error_figure", "interval_figure", "samples_figure", "sites_figure"]


def can_draw(sites: Sites) -> bool:
    """Return whether sites lie along one axis, which is drawn as lines, or have two coordinates, drawn as maps."""
    return _module_or_none(sites) is not None


def sites_figure(data: ReportData, *, width: float = WIDE) -> Figure:
    """Draw the ranked sites over the standard deviation of the field.

    Parameters
    ----------
    data : ReportData
        Of a comparison, see `ReportData.of`; on one or two axes, or cells and stations with two coordinates.
    width : float
        Inches: ``WIDE`` or ``NARROW``.

    Returns
    -------
    Figure

    Raises
    ------
    DataError
        If there are more than two axes.

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
    figure: Figure = _module(data.domain).draw_samples(data, width)
    return figure


def _figure(data: ReportData, quantity: Quantity, width: float) -> Figure:
    """Draw one quantity of each site, with the selected sites on it."""
    figure: Figure = _module(data.domain).draw_quantity(data, quantity, width)
    return figure


def _module(sites: Sites) -> ModuleType:
    """Module that draws such sites."""
    found = _module_or_none(sites)
    if found is None:
        raise DataError(f"data of {len(sites.shape)} axes {sites.shape} cannot be drawn; one or two axes can")
    return found


def _module_or_none(sites: Sites) -> ModuleType | None:
    """Maps for a grid of two axes and for sites with two coordinates, lines for what lies along one axis."""
    if horizontal(sites) is not None or (len(sites.shape) == 2 and set(sites.location) == set(sites.dims)):
        return maps
    return lines if len(sites.shape) == 1 else None
