"""Figures of a plan: sites, reconstructions, errors and prediction intervals, as maps or as lines."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from keyhole.core.errors import SettingsError
from keyhole.plan.plan import Plan
from keyhole.report import lines, maps
from keyhole.report.layout import are_lines
from keyhole.report.projections import Projection
from keyhole.report.report_data import Quantity, ReportData
from keyhole.report.style import WIDE

__all__ = ["error_figure", "interval_figure", "plan_figure", "samples_figure", "sites_figure"]


def plan_figure(plan: Plan, *, projection: Any = None, width: float = WIDE) -> Figure:
    """Draw the ranked sites of a plan over the mean of the field.

    Parameters
    ----------
    plan : Plan
        Any plan: its data are not needed.
    projection : str or cartopy.crs.Projection, optional
        See `sites_figure`.
    width : float
        Inches: ``WIDE`` or ``NARROW``.

    Returns
    -------
    Figure

    Raises
    ------
    SettingsError, MissingExtraError
        See `sites_figure`.
    """
    mean, origin = plan.scaling.mean, plan.origin
    if origin.units_differ and not origin.standardised:
        name = next(iter(origin.variables))
        shown, label, units = mean[0], f"mean of {name}", origin.channel_units(len(mean))[0]
    else:
        shown, label, units = mean.mean(axis=0), "mean", origin.units
    return _figure(plan, Quantity(shown, label, units, "viridis", shows_ranks=True, from_zero=False), width, projection)


def sites_figure(data: ReportData, *, projection: Any = None, width: float = WIDE) -> Figure:
    """Draw the ranked sites over the standard deviation of the field.

    Parameters
    ----------
    data : ReportData
        Of a comparison, see `ReportData.of`.
    projection : str or cartopy.crs.Projection, optional
        Map projection of sites with latitude and longitude: a projection of cartopy or its name, such as
        ``"Robinson"``. None: longitude and latitude are the axes.
    width : float
        Inches: ``WIDE`` or ``NARROW``.

    Returns
    -------
    Figure

    Raises
    ------
    SettingsError
        If there is no such projection, or the sites have no latitude and longitude.
    MissingExtraError
        If a projection is asked for and cartopy is not installed.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.workflow.comparison import compare
    >>> figure = sites_figure(ReportData.of(compare(kh.datasets.sst(), 5, ["qr"])))
    >>> figure.axes[0].get_xlabel()
    'lon'
    """
    shown = Quantity(data.spread, "standard deviation", data.units, "viridis", shows_ranks=True)
    return _figure(data.to_use, shown, width, projection)


def error_figure(data: ReportData, *, projection: Any = None, width: float = WIDE) -> Figure:
    """Draw the RMSE of each site on the test part; parameters as for `sites_figure`."""
    shown = Quantity(data.error_map, "RMSE on test", data.units, "cividis", baseline=data.spread)
    return _figure(data.plan, shown, width, projection)


def interval_figure(data: ReportData, *, projection: Any = None, width: float = WIDE) -> Figure:
    """Draw the mean width of the 90 % prediction interval of each site; parameters as for `sites_figure`."""
    shown = Quantity(data.interval_map, "mean width of the 90 % prediction interval", data.units, "magma")
    return _figure(data.plan, shown, width, projection)


def samples_figure(data: ReportData, *, projection: Any = None, width: float = WIDE) -> Figure:
    """Draw truth, reconstruction and error of the best, median and worst test sample.

    Of a volume, the slice that holds the most sites is drawn. Parameters as for `sites_figure`.
    """
    if are_lines(data.domain):
        _refuse(projection)
        return lines.draw_samples(data, width)
    return maps.draw_samples(data, width, Projection.of(projection, data.domain))


def _figure(plan: Plan, quantity: Quantity, width: float, projection: Any) -> Figure:
    """Draw one quantity of each site, with the selected sites on it."""
    if are_lines(plan.domain):
        _refuse(projection)
        return lines.draw_quantity(plan, quantity, width)
    return maps.draw_quantity(plan, quantity, width, Projection.of(projection, plan.domain))


def _refuse(projection: Any) -> None:
    if projection is not None:
        raise SettingsError(f"projection={projection!r}: the sites have no latitude and longitude to project")
