"""Figures of sites along one axis, such as the columns of a table: lines over the sites."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from keyhole.data.sites import Sites
from keyhole.plan.plan import Plan
from keyhole.report.formatting import quantity, with_units
from keyhole.report.geometry import Ruler
from keyhole.report.report_data import Pick, Quantity, ReportData
from keyhole.report.style import (
    ACCENT,
    INK,
    LEAST_ERROR_RANGE,
    MOST_NUMBERED,
    MUTED,
    NARROW,
    RULE,
    SMALL,
    heading,
    literal,
    new_figure,
    tidy,
)

__all__ = ["draw_quantity", "draw_samples"]

_TALL = 3.6
_ERROR, _FILL = "#b8475f", "#dcebf0"


def draw_quantity(plan: Plan, shown: Quantity, width: float) -> Figure:
    """Draw a quantity of each site as a line, with the selected sites on it.

    Parameters
    ----------
    plan : Plan
        Of sites along one axis.
    shown : Quantity
        Its baseline becomes a dotted line.
    width : float
        Inches.

    Returns
    -------
    Figure
    """
    figure, ruler = new_figure(width, _TALL), _ruler(plan.domain)
    axes = figure.subplots()
    ruler.mark(axes.xaxis, 40 if width > NARROW else 16, rotation=90)
    axes.set_ylabel(literal(with_units(shown.label, shown.units)))
    axes.margins(x=0.02, y=0.12)
    tidy(axes, grid="y")
    if shown.baseline is not None:
        _line(axes, plan.domain, ruler, shown.baseline, color=MUTED, linestyle=":", label="without sensors")
    line, fill = (MUTED, RULE if shown.from_zero else None) if shown.shows_ranks else (ACCENT, _FILL)
    _line(axes, plan.domain, ruler, shown.values, color=line, fill=fill, label="reconstruction")
    _mark(axes, plan, ruler, shown.values, numbered=shown.shows_ranks and plan.k <= MOST_NUMBERED)
    if shown.from_zero:
        axes.set_ylim(bottom=0)
    if shown.baseline is not None:
        figure.legend(fontsize=SMALL, frameon=False, loc="outside upper right", ncols=2)
    return figure


def draw_samples(data: ReportData, width: float) -> Figure:
    """Draw truth, reconstruction and error of the samples shown.

    Parameters
    ----------
    data : ReportData
        Of sites along one axis.
    width : float
        Inches; the errors lie beside the values on wide figures, else below.

    Returns
    -------
    Figure
    """
    picks, beside = data.picks, width > NARROW
    figure = new_figure(width, (2.1 if beside else 3.2) * len(picks) + 0.6)
    rows, columns, ratios = (len(picks), 2, (2, 1)) if beside else (2 * len(picks), 1, (1,))
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, width_ratios=ratios)
    for pick, (left, right) in zip(picks, panels.reshape(-1, 2), strict=True):
        _sample(data, pick, left, right)
    for axes in panels[-1]:
        _ruler(data.domain).mark(axes.xaxis, 40 if axes is panels[-1, 0] else 20, rotation=90)
    lines, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, fontsize=SMALL, frameon=False, loc="outside upper right", ncols=2)
    return figure


def _sample(data: ReportData, pick: Pick, values: Axes, error: Axes) -> None:
    """Draw one example."""
    sites, ruler = data.domain, _ruler(data.domain)
    _line(values, sites, ruler, pick.true, color=INK, label="truth")
    _line(values, sites, ruler, pick.reconstructed, color=ACCENT, label="reconstruction")
    _mark(values, data.plan, ruler, pick.true, numbered=False)
    _line(error, sites, ruler, pick.error, color=_ERROR, fill="#f4dfe3")
    # On the scale of the values if that shows the error, so that a small one looks small.
    reach = max(float(np.nanmax(np.abs(pick.error))), LEAST_ERROR_RANGE * float(np.ptp(values.get_ylim())))
    error.set_ylim(-1.1 * reach, 1.1 * reach)
    heading(values, f"{pick.label}: {pick.when}, RMSE {quantity(pick.rmse, data.units)}")
    error.set_title("error", loc="left", fontsize=SMALL, color=INK)
    kind = "deviation" if data.as_anomalies else "value"
    values.set_ylabel(literal(with_units(kind, data.units)))
    for axes in (values, error):
        tidy(axes, grid="y")


def _ruler(sites: Sites) -> Ruler:
    """The axis, labelled by names of sites if they have some."""
    names = None
    if sites.names is not None:
        names = [str(one) for one in sites.axes[sites.dims[0]]]
        for place, name in zip(sites.index, sites.names, strict=True):
            names[place] = name
    return Ruler.of(sites.dims[0], sites.axes[sites.dims[0]], names)


def _line(
    axes: Axes, sites: Sites, ruler: Ruler, values: NDArray[Any], *, fill: str | None = None, **style: Any
) -> None:  # fmt: skip
    """Draw a line; for the columns of a table, which have no order, one step for each."""
    values = sites.to_grid(np.asarray(values, np.float64))
    if sites.names is None:
        axes.plot(ruler.centres, values, linewidth=1.3, **style)
        if fill is not None:
            axes.fill_between(ruler.centres, values, 0, color=fill, linewidth=0)
        return
    if fill is not None:
        axes.stairs(values, ruler.edges, fill=True, color=fill)
    axes.stairs(values, ruler.edges, baseline=None, linewidth=1.3, **style)


def _mark(axes: Axes, plan: Plan, ruler: Ruler, values: NDArray[Any], *, numbered: bool) -> None:
    """Mark the selected sites on a line, with or without their ranks."""
    x, y = ruler.centres[plan.domain.index[plan.numbers]], values[plan.numbers]
    axes.scatter(x, y, s=22 if numbered else 12, c="white", edgecolors=INK, linewidths=0.8, zorder=3)
    for rank, place in enumerate(zip(x, y, strict=True), start=1) if numbered else ():
        axes.annotate(str(rank), place, (0, 5), textcoords="offset points", ha="center", fontsize=SMALL, color=INK)
