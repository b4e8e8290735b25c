"""Figures of the chosen plan: its sites, reconstructions, errors and prediction intervals."""

from __future__ import annotations

from types import ModuleType

from matplotlib.figure import Figure

from keyhole.core.errors import DataError
from keyhole.data.grid import Grid
from keyhole.report import lines, maps
from keyhole.report.findings import ReportData
from keyhole.report.style import WIDE

__all__ = ["can_draw", "error_figure", "interval_figure", "samples_figure", "sites_figure"]

_BY_AXES = {1: lines, 2: maps}


def can_draw(grid: Grid) -> bool:
    """Whether the grid has one or two axes and can be drawn."""
    return len(grid.shape) in _BY_AXES


def sites_figure(findings: ReportData, *, width: float = WIDE) -> Figure:
    """Show the ranked sites over the standard deviation of the field.

    Parameters
    ----------
    findings
        Of a comparison, see `ReportData.of`. The grid has one axis (lines) or two (maps).
    width
        Inches to lay the figure out for: ``WIDE`` or ``NARROW``.
    """
    figure: Figure = _artist(findings.grid).sites(findings, width)
    return figure


def samples_figure(findings: ReportData, *, width: float = WIDE) -> Figure:
    """Show truth, reconstruction and error of the best, median and worst test sample; parameters as `sites_figure`."""
    figure: Figure = _artist(findings.grid).samples(findings, width)
    return figure


def error_figure(findings: ReportData, *, width: float = WIDE) -> Figure:
    """Show the RMSE of each cell on the test part, with the sites as dots."""
    figure: Figure = _artist(findings.grid).errors(findings, width)
    return figure


def interval_figure(findings: ReportData, *, width: float = WIDE) -> Figure:
    """Show the mean width of the 90 % prediction interval in each cell, with the sites as dots."""
    figure: Figure = _artist(findings.grid).intervals(findings, width)
    return figure


def _artist(grid: Grid) -> ModuleType:
    if not can_draw(grid):
        raise DataError(f"a grid of {len(grid.shape)} axes {grid.shape} cannot be drawn; one or two axes can")
    return _BY_AXES[len(grid.shape)]
