"""Figures of numbers that do not lie on the grid: error against K, methods side by side, training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from keyhole.plan.plan import Plan
from keyhole.report.formatting import STAGES, number, with_units
from keyhole.report.style import (
    ACCENT,
    INK,
    MUTED,
    NARROW,
    SMALL,
    WIDE,
    caution,
    colours,
    heading,
    literal,
    method_styles,
    new_figure,
    tidy,
)
from keyhole.workflow.comparison import Comparison, Entry

__all__ = ["comparison_figure", "curve_figure", "training_figure"]

_FIRST = ("loss", "validation")
_NOT_FIGURES = ("stage", "step", "stopped")
# A figure whose values span more than this factor is drawn on a logarithmic axis.
_LOG_FROM = 30.0
# Share of an error below which two are the same to the eye.
_SAME = 2e-3
# Up to so many points, each has its dot.
_DOTTED = 60


def curve_figure(comparison: Comparison, *, width: float = WIDE) -> Figure:
    """Draw the test error of each method with its first 0, 1, ... K sites.

    Curves are by ridge; a diamond is the error of the plan's own reconstructor if that differs.

    Parameters
    ----------
    comparison : Comparison
        Result of `compare`.
    width : float
        Inches: ``WIDE`` or ``NARROW``.

    Returns
    -------
    Figure
    """
    figure = new_figure(width, 4.2 if width > NARROW else 3.4)
    _draw_curves(figure.subplots(), comparison)
    return figure


def comparison_figure(comparison: Comparison, *, width: float = WIDE) -> Figure:
    """Draw the test error of each method as bars, and against the number of sites.

    Parameters
    ----------
    comparison : Comparison
        Result of `compare`.
    width : float
        Inches: ``WIDE`` or ``NARROW``.

    Returns
    -------
    Figure

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.workflow.comparison import compare
    >>> len(comparison_figure(compare(kh.datasets.sst(), 5, ["qr", "variance"])).axes)
    2
    """
    beside = width > NARROW
    bars_tall = 0.32 * len(comparison.entries) + 1.1
    tall = max(4.0, bars_tall) if beside else bars_tall + 3.4
    figure = new_figure(width, tall)
    if beside:
        left, right = figure.subplots(1, 2, width_ratios=(4, 5))
    else:
        left, right = figure.subplots(2, 1, height_ratios=(bars_tall, 3.4))
    _draw_bars(left, comparison, slots=max(len(comparison.entries), 6 if beside else 0))
    _draw_curves(right, comparison)
    heading(right, "error against the number of sites")
    caution(figure, comparison.prepared.split.warning)
    return figure


def training_figure(plan: Plan, *, width: float = WIDE) -> Figure:
    """Draw the training history of a plan.

    Parameters
    ----------
    plan : Plan
        With a ``history``.
    width : float
        Inches: ``WIDE`` or ``NARROW``.

    Returns
    -------
    Figure
        One panel for each recorded quantity; the best validation error is marked.
    """
    panels = _panels(plan.history)
    most, tall = (3, 2.5) if width > NARROW else (1, 2.0)
    columns = max(1, min(len(panels), most))
    rows = max(1, -(-len(panels) // columns))
    figure = new_figure(width, tall * rows)
    spots = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, ((stage, name), points) in zip(spots, panels.items(), strict=False):
        best = min(value for _, value in points)
        note = f", best {number(best)}" if name == "validation" else ""
        heading(axes, f"{STAGES.get(stage, stage)}: {name.replace('_', ' ')}{note}")
        _draw_training(axes, points, lowest=name == "validation")
    for axes in spots[len(panels) :]:
        axes.set_axis_off()
    return figure


def differs(entry: Entry) -> bool:
    """Return whether the error of the plan's own reconstructor differs from that of ridge, which draws the curve."""
    by_ridge = float(entry.curve[-1])
    return abs(entry.plan.metrics["test"]["rmse"] - by_ridge) > _SAME * by_ridge


def _draw_bars(axes: Axes, comparison: Comparison, *, slots: int) -> None:
    """Draw the test error of each method as a bar."""
    entries, units = comparison.entries, comparison.prepared.samples.origin.error_units
    errors = [entry.plan.metrics["test"]["rmse"] for entry in entries]
    places = np.arange(len(entries))
    axes.barh(places, errors, height=0.62, color=colours(len(entries)))
    for place, error in zip(places, errors, strict=True):
        style: dict[str, Any] = {"va": "center", "fontsize": SMALL, "color": INK}
        axes.annotate(number(error), (error, place), (4, 0), textcoords="offset points", **style)
    axes.set_yticks(places, labels=[literal(entry.method) for entry in entries])
    # A few bars keep to the top instead of swelling to fill the height.
    axes.set_ylim(slots - 0.4, -0.6)
    axes.set_xlim(0, 1.15 * max(*errors, entries[0].curve[0]))
    _without_sensors(axes, entries[0].curve[0], upright=True)
    axes.set_xlabel(_rmse(units))
    heading(axes, f"{entries[0].plan.k} sites")
    tidy(axes, frame=("bottom",))
    axes.tick_params(axis="y", length=0, labelsize=SMALL + 1)


def _draw_curves(axes: Axes, comparison: Comparison) -> None:
    """Draw the test error of each method against the number of sites."""
    entries, units = comparison.entries, comparison.prepared.samples.origin.error_units
    for entry, style in zip(entries, method_styles(len(entries)), strict=True):
        sites = np.arange(len(entry.curve))
        dots = 2.5 if len(sites) <= _DOTTED else 0
        axes.plot(sites, entry.curve, label=literal(entry.method), marker="o", markersize=dots, **style)
        if differs(entry):
            own = entry.plan.metrics["test"]["rmse"]
            axes.plot(entry.plan.k, own, "D", markersize=6, mec="white", clip_on=False, **style)
    _without_sensors(axes, entries[0].curve[0], upright=False)
    axes.set(xlabel="number of sites", ylabel=_rmse(units))
    axes.set_xlim(-0.02 * entries[0].plan.k, 1.02 * entries[0].plan.k)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if min(np.nanmin(entry.curve) for entry in entries) < entries[0].curve[0] / 3:
        axes.set_ylim(bottom=0)
    axes.legend(fontsize=SMALL, frameon=False, ncols=2 if len(entries) > 6 else 1, loc="lower left")
    tidy(axes, grid="y")


def _without_sensors(axes: Axes, error: float, *, upright: bool) -> None:
    """Draw the error of the prediction without sensors."""
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": SMALL, "color": MUTED}
    if upright:
        axes.axvline(error, color=MUTED, linestyle=":", linewidth=1)
        axes.annotate("without sensors", (error, 1), (0, 3), ("data", "axes fraction"), ha="center", **style)
    else:
        axes.axhline(error, color=MUTED, linestyle=":", linewidth=1)
        axes.annotate("without sensors", (1, error), (0, 3), ("axes fraction", "data"), ha="right", **style)


Points = list[tuple[float, float]]


def _panels(history: Sequence[Mapping[str, float]]) -> dict[tuple[str, str], Points]:
    """Points by stage and quantity: stages in order, loss and validation first."""
    stages = list(dict.fromkeys(str(row.get("stage", "")) for row in history))
    panels = {}
    for stage in stages:
        rows = [row for row in history if str(row.get("stage", "")) == stage and "step" in row]
        names = dict.fromkeys([*_FIRST, *(name for row in rows for name in row if name not in _NOT_FIGURES)])
        for name in names:
            values = [(row["step"], row[name]) for row in rows if isinstance(row.get(name), int | float)]
            panels[stage, name] = [point for point in values if np.isfinite(point[1])]
    return {key: points for key, points in panels.items() if points}


def _draw_training(axes: Axes, points: Points, *, lowest: bool) -> None:
    """Draw one quantity against the step; repeated runs of one stage are lines of their own."""
    steps, values = np.array(points).T
    dots = 2.5 if len(steps) <= _DOTTED else 0
    # Several runs of one stage follow each other, each from its first step on; each is a line of its own.
    starts = np.flatnonzero(np.diff(steps) <= 0) + 1
    for run in np.split(np.arange(len(steps)), starts):
        axes.plot(steps[run], values[run], color=ACCENT, linewidth=1.5, marker="o", markersize=dots)
    axes.set_xlabel("step")
    if values.min() > 0 and values.max() > _LOG_FROM * values.min():
        axes.set_yscale("log")
    if lowest:
        best = int(np.argmin(values))
        axes.plot(steps[best], values[best], "o", mfc="white", mec=INK, markersize=6)
    tidy(axes, grid="y")


def _rmse(units: str) -> str:
    """Label of the test RMSE."""
    return literal(with_units("test RMSE", units))
