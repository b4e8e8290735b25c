"""Table 1 as a chart: error against K, a mark for each method and network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from keyhole.core.errors import DataError
from keyhole.report.style import INK, MUTED, RULE, SMALL, WIDE, heading, new_figure, tidy
from keyhole_benchmarks.drawing.stored_cases import Line, latest
from keyhole_benchmarks.drawing.style import COLOURS, MARKS
from keyhole_benchmarks.names import DATA, METHODS, REFERENCES, measure

__all__ = ["charted", "table1_chart"]

_REFIT = "residual"
_STEP, _ASIDE, _TICK = 0.128, 0.028, 0.05  # between methods, to their two marks, half of a published value's tick
_SIZE = 5.0
_LOG_FROM = 3.0  # errors that span more than this factor are drawn on a logarithmic axis
_TALL = 2.9


@dataclass
class _Spot:
    """What the lines say of one method with one network at one K: errors over the seeds, and the paper's."""

    errors: list[float] = field(default_factory=list)
    published: float | None = None


# By method, whether it was refitted, and K.
_Spots = dict[tuple[str, bool, int], _Spot]


def table1_chart(lines: Iterable[Line]) -> Figure:
    """Show the error of each method at each K, a panel for each data set.

    A mark is the mean over the seeds, its whisker goes from the least to the most. Open marks are of the network that
    was trained with the sites (for classical sites the paper's), filled ones of the refit; ticks are the paper's
    values where they compare, dashed lines references that have no sites.

    Parameters
    ----------
    lines
        Records of Table 1.

    Returns
    -------
    Figure
        The chart.
    """
    chosen = charted(lines)
    names = [name for name in DATA if any(line["data"] == name for line in chosen)]
    if not names:
        raise DataError("no line of Table 1 to draw; run keyhole-bench table1 first")
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    figure = new_figure(WIDE if columns == 2 else 0.6 * WIDE, _TALL * rows + 0.7)
    figure.set_layout_engine("constrained", w_pad=0.07, h_pad=0.06)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, name in zip(panels, names, strict=False):
        _draw(axes, name, _spots(name, chosen))
    _explain(figure, panels[len(names) :], {line["method"] for line in chosen})
    return figure


def charted(lines: Iterable[Line]) -> list[Line]:
    """Select the records that the chart shows: the latest, of known methods, references and data sets.

    Parameters
    ----------
    lines
        Records of Table 1.

    Returns
    -------
    list
        Records in their order.
    """
    return [line for line in latest(lines) if line["data"] in DATA and line["method"] in {**METHODS, **REFERENCES}]


def _spots(data: str, lines: Iterable[Line]) -> _Spots:
    """Errors as they are drawn: squared ones x 100."""
    metric, scale, _ = measure(data)
    spots: _Spots = defaultdict(_Spot)
    for line in lines:
        error = line["metrics"].get(metric)
        if line["data"] == data and error is not None:
            spot = spots[line["method"], line["reconstructor"] == _REFIT, line["k"]]
            spot.errors.append(scale * error)
            if line.get("comparable") and line.get("published") is not None:
                spot.published = scale * line["published"]
    return spots


def _draw(axes: Axes, data: str, spots: _Spots) -> None:
    ks = sorted({k for _, _, k in spots})
    for (method, refit, k), spot in spots.items():
        if method in REFERENCES:
            middle, error = ks.index(k), float(np.mean(spot.errors))
            axes.hlines(error, middle - 0.5, middle + 0.5, colors=MUTED, linestyles="dashed", linewidth=1.0)
            continue
        place = ks.index(k) + _STEP * (list(METHODS).index(method) - (len(METHODS) - 1) / 2)
        _draw_spot(axes, place, spot, method, refit=refit)
    for border in np.arange(len(ks) - 1) + 0.5:
        axes.axvline(border, color=RULE, linewidth=0.8)
    axes.set(xlim=(-0.5, len(ks) - 0.5), xlabel="K, number of sites")
    axes.set_xticks(range(len(ks)), labels=[str(k) for k in ks])
    _scale(axes, [value for spot in spots.values() for value in (*spot.errors, spot.published) if value is not None])
    axes.set_ylabel(measure(data).words)
    tidy(axes, grid="y")
    axes.tick_params(axis="x", length=0)
    heading(axes, DATA[data])


def _draw_spot(axes: Axes, place: float, spot: _Spot, method: str, *, refit: bool) -> None:
    colour, x = COLOURS[method], place + (_ASIDE if refit else -_ASIDE)
    axes.vlines(x, min(spot.errors), max(spot.errors), colors=colour, linewidth=1.1)
    fill = colour if refit else "white"
    axes.plot(x, np.mean(spot.errors), MARKS[method], markersize=_SIZE, mec=colour, mfc=fill, mew=1.1, zorder=3)
    if spot.published is not None:
        axes.hlines(spot.published, place - _TICK, place + _TICK, colors=colour, linewidth=2.2)


def _scale(axes: Axes, values: Sequence[float]) -> None:
    """Go to a logarithmic axis where errors span much, with plain numbers on it."""
    if min(values, default=0) > 0 and max(values) > _LOG_FROM * min(values):
        axes.set_yscale("log")
        wide = max(values) > 20 * min(values)
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if wide else (1, 1.5, 2, 3, 4, 5, 7)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _explain(figure: Figure, spare: Sequence[Axes], methods: set[str]) -> None:
    """Explain marks and colours: in the panel that is left over, or above and below all panels."""
    words: dict[str, Any] = {"frameon": False, "fontsize": SMALL, "labelcolor": INK, "handletextpad": 0.5}
    kinds, names = _kinds(), _names(methods)
    for axes in spare:
        axes.set_axis_off()
        axes.legend(handles=[*names, *kinds], loc="center", labelspacing=0.8, **words)
    if not spare:
        beside = len(kinds) if figure.get_figwidth() == WIDE else 2
        figure.legend(handles=kinds, loc="outside upper center", ncols=beside, **words)
        figure.legend(handles=names, loc="outside lower center", ncols=len(names), **words)


def _kinds() -> list[Line2D]:
    style: dict[str, Any] = {"linestyle": "none", "color": MUTED}
    return [
        Line2D([], [], marker="o", mfc="white", label="method's own network (QR, greedy: ResNet)", **style),
        Line2D([], [], marker="o", label="refit on the sites", **style),
        Line2D([], [], marker="|", markersize=10, label="least to most over seeds", **style),
        Line2D([], [], marker="_", markersize=9, mew=2.2, label="published", **style),
    ]


def _names(methods: set[str]) -> list[Line2D]:
    return [
        Line2D([], [], marker=MARKS[name], label=METHODS[name], linestyle="none", color=COLOURS[name])
        for name in METHODS
        if name in methods
    ] + [
        Line2D([], [], label=REFERENCES[name], linestyle="dashed", linewidth=1.0, color=MUTED)
        for name in REFERENCES
        if name in methods
    ]
