"""Comparison of feature selectors: accuracy, unexplained variance, and the features that Keyhole selected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from keyhole.report.style import ACCENT, INK, MUTED, WIDE, heading, new_figure, tidy
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.names import DATA
from keyhole_benchmarks.peers import PEERS
from keyhole_benchmarks.sections.tables import standard_error

__all__ = ["features_figure"]

_OURS = "keyhole"
_TALL = 3.1


def features_figure(lines: Lines) -> Figure:
    """Draw accuracy and unexplained variance of each selector, and how often Keyhole selected each feature.

    Parameters
    ----------
    lines
        Records of one data set.

    Returns
    -------
    Figure
        Three panels.
    """
    figure = new_figure(WIDE, _TALL)
    figure.set_layout_engine("constrained", w_pad=0.07)
    accuracy, unexplained, chosen = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 1.1))
    names = sorted(lines.each("method"), key=lambda name: float(np.mean(lines.where(method=name).metric("accuracy"))))
    _dots(accuracy, lines, names, "accuracy")
    accuracy.set_yticks(range(len(names)), [PEERS[name].words.replace("`", "") for name in names], fontsize=7)
    data = lines.each("data")[0]
    heading(accuracy, f"{DATA.get(data, data)}: accuracy")
    _dots(unexplained, lines, names, "fvu")
    unexplained.set_yticks(range(len(names)), [])
    heading(unexplained, "unexplained variance, ridge")
    if _OURS in names:
        _chosen(chosen, lines.where(method=_OURS))
    return figure


def _dots(axes: Axes, lines: Lines, names: Sequence[str], metric: str) -> None:
    """A dot for each selector, with one standard error to either side."""
    for place, name in enumerate(names):
        values = lines.where(method=name).metric(metric)
        colour = ACCENT if name.startswith(_OURS) else INK
        axes.errorbar(np.mean(values), place, xerr=standard_error(values), fmt="o", color=colour, markersize=4)
    tidy(axes)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="x", alpha=0.3)


def _chosen(axes: Axes, lines: Lines) -> None:
    """How often each feature was chosen over the splits: a picture of a picture, bars of a table."""
    shape = tuple(lines.records[0]["notes"]["shape"])
    often = _counts([one["notes"]["features"] for one in lines], int(np.prod(shape)))
    heading(axes, f"times chosen, of {len(lines)} splits")
    if len(shape) == 2:
        image = axes.imshow(often.reshape(shape), cmap="magma", vmin=0, vmax=len(lines))
        axes.set_axis_off()
        axes.figure.colorbar(image, ax=axes, shrink=0.8, ticks=range(len(lines) + 1))
        return
    axes.bar(np.arange(len(often)), often, width=1.0, color=ACCENT)
    axes.set_xlabel("feature", color=MUTED)
    tidy(axes)


def _counts(chosen: Sequence[Sequence[int]], size: int) -> NDArray[np.int64]:
    return np.bincount(np.concatenate([np.asarray(one, np.int64) for one in chosen]), minlength=size)
