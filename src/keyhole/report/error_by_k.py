"""Figure of the error against the number of sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from keyhole.report.style import INK, MUTED, NARROW, PALETTE, SMALL, WIDE, colours, heading, literal, new_figure, tidy

__all__ = ["Line", "error_by_k_figure"]

# Values that span more than this factor are drawn on a logarithmic axis.
_LOG_FROM = 8.0
# Errors that span more than this factor are drawn from zero on.
_ZERO_FROM = 3.0
_DASHES: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (4, 2))}


@dataclass(frozen=True)
class Line:
    """One method of the figure.

    Parameters
    ----------
    name
        Name in the legend.
    sites
        Numbers of sites, ascending.
    test, validation
        Errors for each number of sites.
    smallest
        The smallest of these numbers that reaches the target error on validation, if any.
    """

    name: str
    sites: Sequence[int]
    test: Sequence[float]
    validation: Sequence[float]
    smallest: int | None = None


def error_by_k_figure(
    lines: Sequence[Line], title: str, label: str, *, target_error: float | None = None, width: float = WIDE
) -> Figure:
    """Plot the test error of each method against the number of sites.

    Parameters
    ----------
    lines
        One line for each method.
    title, label
        Title of the figure, and name of the error.
    target_error
        If given, the validation error is drawn dashed, and the smallest K that reaches the target error is marked on it
        and listed in the legend.
    width
        Inches to lay the figure out for: ``WIDE`` or ``NARROW``.
    """
    figure = new_figure(width, 4.4 if width > NARROW else 4.0)
    axes = figure.subplots()
    ranked = sorted(lines, key=lambda line: line.test[-1])
    # The best is drawn last, on top of the others.
    for rank, (line, colour) in enumerate(zip(ranked, colours(len(ranked)), strict=True)):
        style: dict[str, Any] = {"color": colour, "zorder": len(ranked) - rank + 2}
        dash, weight = "-" if rank < PALETTE else "-.", 2.0 if rank == 0 else 1.4
        name = _name(line, with_target=target_error is not None)
        axes.plot(line.sites, line.test, dash, linewidth=weight, marker="o", markersize=4, label=name, **style)
        if target_error is not None:
            _draw_validation(axes, line, **style)
    axes.set(xlabel="number of sites", ylabel=literal(label))
    _scale(axes, ranked)
    if target_error is not None:
        axes.plot([], [], color=MUTED, label="validation", **_DASHES)
        axes.axhline(target_error, color=INK, linewidth=1, zorder=1.5, label=f"target error: {target_error:g}")
    style = {"fontsize": SMALL, "labelcolor": INK, "frameon": False}
    if width > NARROW:
        figure.legend(loc="outside right upper", **style)
    else:
        figure.legend(loc="outside lower left", ncols=2, **style)
    heading(axes, title)
    tidy(axes, grid="y")
    return figure


def _draw_validation(axes: Axes, line: Line, *, color: str, zorder: float) -> None:
    """Draw the validation error, and a ring on it where it reaches the target error, with a line down to K."""
    axes.plot(line.sites, line.validation, color=color, zorder=zorder - 0.5, **_DASHES)
    if line.smallest is not None:
        error = line.validation[line.sites.index(line.smallest)]
        drop = {"arrowstyle": "-", "color": color, "linestyle": ":", "shrinkA": 0, "shrinkB": 0}
        foot = (line.smallest, 0)
        axes.annotate("", (line.smallest, error), foot, textcoords=("data", "axes fraction"), arrowprops=drop)
        axes.plot(line.smallest, error, "o", mfc="white", mec=color, mew=1.6, markersize=7, zorder=zorder + 100)


def _scale(axes: Axes, lines: Sequence[Line]) -> None:
    """Make an axis logarithmic where the points span much; sites are whole numbers."""
    errors = np.array([error for line in lines for error in line.test if np.isfinite(error)])
    if errors.size and 0 < _LOG_FROM * errors.min() < errors.max():
        axes.set_yscale("log")
        _count_by_decades(axes.yaxis)
    elif errors.size and _ZERO_FROM * errors.min() < errors.max():
        axes.set_ylim(bottom=0)
    sites = [k for line in lines for k in line.sites]
    if _LOG_FROM * min(sites) < max(sites):
        axes.set_xscale("log")
        _count_by_decades(axes.xaxis)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _count_by_decades(axis: Axis) -> None:
    """Label 1, 2 and 5 of each decade, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _name(line: Line, *, with_target: bool) -> str:
    reached = "not reached" if line.smallest is None else f"{line.smallest} site{'s' * (line.smallest > 1)}"
    return literal(f"{line.name}: {reached}" if with_target else line.name)
