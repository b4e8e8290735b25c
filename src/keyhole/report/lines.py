"""Figures of grids with one axis: lines over the cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from keyhole.data.grid import Grid
from keyhole.report.findings import Pick, ReportData
from keyhole.report.geometry import Ruler
from keyhole.report.style import ACCENT, INK, MUTED, NARROW, RULE, SMALL, heading, literal, new_figure, tidy
from keyhole.report.words import quantity, with_units

__all__ = ["errors", "intervals", "samples", "sites"]

# Beyond so many, numbers hide the line.
_NUMBERED = 60
_TALL = 3.6
_ERROR = "#b8475f"
# Share of the values' range that the axis of errors spans at least.
_VISIBLE = 0.05


def sites(findings: ReportData, width: float) -> Figure:
    """Draw the standard deviation of each cell, and the ranked sites on it."""
    figure, axes, ruler = _one_panel(findings, "standard deviation", width)
    _line(axes, findings.grid, ruler, findings.spread, color=MUTED, fill=RULE)
    _mark(axes, findings, ruler, findings.spread, numbered=findings.plan.k <= _NUMBERED)
    axes.set_ylim(bottom=0)
    return figure


def errors(findings: ReportData, width: float) -> Figure:
    """Draw the RMSE of each cell on the test part and the standard deviation, which is the error without sensors."""
    figure, axes, ruler = _one_panel(findings, "RMSE on test", width)
    _line(axes, findings.grid, ruler, findings.spread, color=MUTED, linestyle=":", label="without sensors")
    _line(axes, findings.grid, ruler, findings.error_map, color=ACCENT, fill="#dcebf0", label="reconstruction")
    _mark(axes, findings, ruler, findings.error_map, numbered=False)
    axes.set_ylim(bottom=0)
    figure.legend(fontsize=SMALL, frameon=False, loc="outside upper right", ncols=2)
    return figure


def intervals(findings: ReportData, width: float) -> Figure:
    """Draw the mean width of the 90 % prediction interval of each cell."""
    figure, axes, ruler = _one_panel(findings, "mean width of the 90 % prediction interval", width)
    _line(axes, findings.grid, ruler, findings.interval_map, color=ACCENT, fill="#dcebf0")
    _mark(axes, findings, ruler, findings.interval_map, numbered=False)
    axes.set_ylim(bottom=0)
    return figure


def samples(findings: ReportData, width: float) -> Figure:
    """Draw truth and reconstruction of each sample over each other, and the error beside or below."""
    picks, beside = findings.picks, width > NARROW
    figure = new_figure(width, (2.1 if beside else 3.2) * len(picks) + 0.6)
    rows, columns, ratios = (len(picks), 2, (2, 1)) if beside else (2 * len(picks), 1, (1,))
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, width_ratios=ratios)
    for pick, (left, right) in zip(picks, panels.reshape(-1, 2), strict=True):
        _sample(findings, pick, left, right)
    for axes in panels[-1]:
        _ruler(findings.grid).mark(axes.xaxis, 40 if axes is panels[-1, 0] else 20, rotation=90)
    lines, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, fontsize=SMALL, frameon=False, loc="outside upper right", ncols=2)
    return figure


def _sample(findings: ReportData, pick: Pick, values: Axes, error: Axes) -> None:
    grid, ruler = findings.grid, _ruler(findings.grid)
    _line(values, grid, ruler, pick.true, color=INK, label="truth")
    _line(values, grid, ruler, pick.reconstructed, color=ACCENT, label="reconstruction")
    _mark(values, findings, ruler, pick.true, numbered=False)
    _line(error, grid, ruler, pick.error, color=_ERROR, fill="#f4dfe3")
    # On the values' own scale where that shows the error, so that a small one looks small.
    reach = max(float(np.nanmax(np.abs(pick.error))), _VISIBLE * float(np.ptp(values.get_ylim())))
    error.set_ylim(-1.1 * reach, 1.1 * reach)
    heading(values, f"{pick.label}: {pick.when}, RMSE {quantity(pick.rmse, findings.units)}")
    error.set_title("error", loc="left", fontsize=SMALL, color=INK)
    kind = "deviation" if findings.as_anomalies else "value"
    values.set_ylabel(literal(with_units(kind, findings.units)))
    for axes in (values, error):
        tidy(axes, grid="y")


def _one_panel(findings: ReportData, label: str, width: float) -> tuple[Figure, Axes, Ruler]:
    figure, ruler = new_figure(width, _TALL), _ruler(findings.grid)
    axes = figure.subplots()
    ruler.mark(axes.xaxis, 40 if width > NARROW else 16, rotation=90)
    axes.set_ylabel(literal(with_units(label, findings.units)))
    axes.margins(x=0.02, y=0.12)
    tidy(axes, grid="y")
    return figure, axes, ruler


def _ruler(grid: Grid) -> Ruler:
    return Ruler.of(grid.dims[0], grid.coordinates[grid.dims[0]], grid.names)


def _line(axes: Axes, grid: Grid, ruler: Ruler, values: NDArray[Any], *, fill: str | None = None, **style: Any) -> None:
    if grid.names is None:
        axes.plot(ruler.centres, values, linewidth=1.3, **style)
        if fill is not None:
            axes.fill_between(ruler.centres, values, 0, color=fill, linewidth=0)
        return
    # Columns of a table have no order, so a step for each claims less than a slope from one to the next.
    if fill is not None:
        axes.stairs(values, ruler.edges, fill=True, color=fill)
    axes.stairs(values, ruler.edges, baseline=None, linewidth=1.3, **style)


def _mark(axes: Axes, findings: ReportData, ruler: Ruler, values: NDArray[Any], *, numbered: bool) -> None:
    indices = findings.plan.indices
    x, y = ruler.centres[indices], values[indices]
    axes.scatter(x, y, s=22 if numbered else 12, c="white", edgecolors=INK, linewidths=0.8, zorder=3)
    for rank, place in enumerate(zip(x, y, strict=True), start=1) if numbered else ():
        axes.annotate(str(rank), place, (0, 5), textcoords="offset points", ha="center", fontsize=SMALL, color=INK)
