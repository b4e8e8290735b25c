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

from keyhole.report.style import (
    INK,
    MUTED,
    NARROW,
    SMALL,
    WIDE,
    caution,
    heading,
    literal,
    method_styles,
    new_figure,
    tidy,
)

__all__ = ["Line", "error_by_k_figure"]

# Values that span more than this factor are drawn on a logarithmic axis.
_LOG_FROM = 8.0
# Errors that span more than this factor are drawn from zero on.
_ZERO_FROM = 3.0
_DASHES: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (4, 2))}


@dataclass(frozen=True)
class Line:
    """Errors of one method by number of sites.

    Parameters
    ----------
    name : str
        Name in the legend.
    sites : sequence of int
        Numbers of sites, ascending.
    test, validation : sequence of float
        Error for each number of sites.
    smallest : int, optional
        Smallest number of sites that reaches the target error on validation.
    error : sequence of float, optional
        Standard error of each test error, drawn as a band.
    """

    name: str
    sites: Sequence[int]
    test: Sequence[float]
    validation: Sequence[float]
    smallest: int | None = None
    error: Sequence[float] = ()


def error_by_k_figure(
    lines: Sequence[Line], title: str, label: str, *, target_error: float | None = None, warning: str = "",
    width: float = WIDE,
) -> Figure:  # fmt: skip
    """Draw the test error of each method against the number of sites, with a band of one standard error.

    Parameters
    ----------
    lines : sequence of Line
        One for each method.
    title, label : str
        Title of the figure, and name of the error.
    target_error : float, optional
        If given, the validation error is drawn too, and the smallest K that reaches the target error is marked.
    warning : str
        Warning to write below.
    width : float
        Inches: ``WIDE`` or ``NARROW``.

    Returns
    -------
    Figure

    Examples
    --------
    >>> line = Line("qr", [1, 2, 4], [3.0, 2.0, 1.0], [3.0, 2.0, 1.0])
    >>> error_by_k_figure([line], "buoys", "RMSE").axes[0].get_ylabel()
    'RMSE'
    """
    figure = new_figure(width, 4.4 if width > NARROW else 4.0)
    axes = figure.subplots()
    ranked = sorted(lines, key=lambda line: line.test[-1])
    for line, style in zip(ranked, method_styles(len(ranked)), strict=True):
        name = _name(line, with_target=target_error is not None)
        axes.plot(line.sites, line.test, marker="o", markersize=4, label=name, **style)
        _draw_band(axes, line, color=style["color"], zorder=style["zorder"])
        if target_error is not None:
            _draw_validation(axes, line, color=style["color"], zorder=style["zorder"])
    axes.set(xlabel="number of sites", ylabel=literal(label))
    _scale(axes, ranked)
    if target_error is not None:
        axes.plot([], [], color=MUTED, label="validation", **_DASHES)
        axes.axhline(target_error, color=INK, linewidth=1, zorder=1.5, label=f"target error: {target_error:g}")
    legend: dict[str, Any] = {"fontsize": SMALL, "labelcolor": INK, "frameon": False}
    if width > NARROW:
        figure.legend(loc="outside right upper", **legend)
    else:
        figure.legend(loc="outside lower left", ncols=2, **legend)
    heading(axes, title)
    tidy(axes, grid="y")
    caution(figure, warning)
    return figure


def _draw_band(axes: Axes, line: Line, *, color: str, zorder: float) -> None:
    """Draw a band of one standard error about the test error."""
    test, error = np.array(line.test), np.array(line.error)
    if np.isfinite(error).any():
        axes.fill_between(
            line.sites, test - error, test + error, color=color, alpha=0.15, zorder=zorder - 1, linewidth=0
        )


def _draw_validation(axes: Axes, line: Line, *, color: str, zorder: float) -> None:
    """Draw the validation error, with a mark where it reaches the target error."""
    axes.plot(line.sites, line.validation, color=color, zorder=zorder - 0.5, **_DASHES)
    if line.smallest is not None:
        error = line.validation[line.sites.index(line.smallest)]
        drop = {"arrowstyle": "-", "color": color, "linestyle": ":", "shrinkA": 0, "shrinkB": 0}
        foot = (line.smallest, 0)
        axes.annotate("", (line.smallest, error), foot, textcoords=("data", "axes fraction"), arrowprops=drop)
        axes.plot(line.smallest, error, "o", mfc="white", mec=color, mew=1.6, markersize=7, zorder=zorder + 100)


def _scale(axes: Axes, lines: Sequence[Line]) -> None:
    """Choose logarithmic axes for wide ranges, and whole numbers of sites."""
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
    """Label 1, 2 and 5 of each decade with plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _name(line: Line, *, with_target: bool) -> str:
    """Name in the legend."""
    reached = "not reached" if line.smallest is None else f"{line.smallest} site{'s' * (line.smallest > 1)}"
    return literal(f"{line.name}: {reached}" if with_target else line.name)
