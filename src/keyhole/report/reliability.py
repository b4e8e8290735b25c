"""Figures of reliability: coverage of the prediction intervals, and the error under sensor failures."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from keyhole.report.formatting import with_units
from keyhole.report.report_data import ReportData
from keyhole.report.style import ACCENT, INK, MUTED, NARROW, SMALL, WIDE, literal, new_figure, tidy

__all__ = ["coverage_figure", "failures_figure"]


def coverage_figure(data: ReportData, *, width: float = WIDE) -> Figure:
    """Draw the coverage of the prediction intervals on test against their nominal coverage.

    Parameters
    ----------
    data : ReportData
        Of a plan with prediction intervals.
    width : float
        Inches: ``WIDE`` or ``NARROW``.

    Returns
    -------
    Figure
    """
    side = min(width, 4.4)
    figure = new_figure(side, 0.85 * side)
    axes = figure.subplots()
    nominal, found = data.reliability
    axes.plot([0, 1], [0, 1], color=MUTED, linestyle=":", linewidth=1, label="nominal")
    axes.plot(nominal, found, color=ACCENT, linewidth=2, marker="o", markersize=4, label="on test")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="nominal coverage", ylabel="coverage on test")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1))
    axes.legend(fontsize=SMALL, frameon=False, loc="upper left", labelcolor=INK)
    tidy(axes, grid="y")
    return figure


def failures_figure(data: ReportData, *, width: float = WIDE) -> Figure:
    """Draw the test RMSE with 0, 1, ... failed sensors: mean and worst over random sets of them.

    Parameters
    ----------
    data : ReportData
        Of a plan with more than one site.
    width : float
        Inches: ``WIDE`` or ``NARROW``.

    Returns
    -------
    Figure
    """
    figure = new_figure(width, 3.4 if width > NARROW else 3.0)
    axes = figure.subplots()
    mean, worst = data.by_failures
    lost = np.arange(len(mean))
    axes.fill_between(lost, mean, worst, color=ACCENT, alpha=0.15, linewidth=0)
    axes.plot(lost, worst, color=ACCENT, linewidth=1, linestyle="--", label="worst")
    axes.plot(lost, mean, color=ACCENT, linewidth=2, marker="o", markersize=4, label="mean")
    axes.set(xlabel="failed sensors", ylabel=literal(with_units("test RMSE", data.units)))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=SMALL, frameon=False, loc="lower right", labelcolor=INK)
    tidy(axes, grid="y")
    return figure
