"""Figures of a target: predicted against true, as a confusion matrix of classes or as points of a number."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from keyhole import metrics
from keyhole.core.errors import SettingsError
from keyhole.data.target import Target
from keyhole.report.report_data import ReportData
from keyhole.report.style import ACCENT, INK, MUTED, NARROW, SMALL, TEXT, WIDE, literal, new_figure, tidy

__all__ = ["target_figure"]

_SIDE = 5.2  # inches
_MOST_COUNTS, _MOST_NAMES = 20, 40  # classes whose counts, and whose names, are written
_LONGEST = 18  # characters of a name
_MOST_POINTS = 5000


def target_figure(data: ReportData, *, width: float = WIDE) -> Figure:
    """Draw the predictions of the target on the test part: a confusion matrix, or predicted against true numbers.

    In the confusion matrix a row is a true class, coloured by the share of its samples that each class was predicted
    for; the numbers are samples.

    Parameters
    ----------
    data : ReportData
        Of a plan with a target.
    width : float
        Inches: ``WIDE`` or ``NARROW``.

    Returns
    -------
    Figure

    Raises
    ------
    SettingsError
        If there is no target.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.workflow.comparison import compare
    >>> samples = kh.datasets.load("digits").with_target(kh.datasets.labels("digits"))
    >>> data = ReportData.of(compare(samples, 5, ["qr"], predictor="linear"))
    >>> target_figure(data).axes[0].get_ylabel()
    'true'
    """
    target = data.prepared.test.target
    if target is None or data.plan.predictor is None:
        raise SettingsError("the plan has no target to predict; make one with select(..., target=...) or --target")
    side = min(width, _SIDE)
    figure = new_figure(side, 0.92 * side)
    axes = figure.subplots()
    draw = _draw_confusion if target.is_class else _draw_numbers
    draw(figure, axes, target, data.predicted)
    return figure


def _draw_confusion(figure: Figure, axes: Axes, target: Target, predicted: NDArray[np.float64]) -> None:
    """Draw a confusion matrix, the true classes from the top."""
    counts = metrics.confusion_matrix(target, predicted)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, label="share of the true class")
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=SMALL, colors=MUTED, labelcolor=INK)
    bar.ax.yaxis.label.set(fontsize=TEXT, color=INK)
    step = -(-len(counts) // _MOST_NAMES)
    shown = np.arange(0, len(counts), step)
    names = [_shortened(target.classes[place]) for place in shown]
    axes.set_xticks(shown, names, rotation=90 if max(map(len, names)) > 2 else 0)
    axes.set_yticks(shown, names)
    axes.set(xlabel="predicted", ylabel="true")
    tidy(axes, frame=())
    if len(counts) <= _MOST_COUNTS:
        for (row, column), count in np.ndenumerate(counts):
            if count:
                colour = "white" if shares[row, column] > 0.5 else INK
                axes.text(column, row, str(count), ha="center", va="center", fontsize=SMALL, color=colour)


def _draw_numbers(figure: Figure, axes: Axes, target: Target, predicted: NDArray[np.float64]) -> None:
    """Draw predicted against true numbers, with the line on which both are equal."""
    step = -(-len(predicted) // _MOST_POINTS)
    true, found = target.values[::step], predicted[::step]
    ends = [float(min(true.min(), found.min())), float(max(true.max(), found.max()))]
    narrow = figure.get_size_inches()[0] <= NARROW
    axes.plot(ends, ends, color=MUTED, linestyle=":", linewidth=1, label="predicted = true")
    axes.scatter(true, found, s=8 if narrow else 12, color=ACCENT, alpha=0.6, linewidths=0, label="test samples")
    axes.set(xlabel=literal(f"true {target.name}"), ylabel=literal(f"predicted {target.name}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6))
    axes.legend(fontsize=SMALL, frameon=False, loc="upper left", labelcolor=INK)
    tidy(axes, grid="both")


def _shortened(name: str) -> str:
    return literal(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…")
