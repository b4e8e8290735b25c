"""Style of all figures: sizes, colours, axes, and writing to files."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keyhole.core.errors import SettingsError
from keyhole.core.storage import replacing

__all__ = [
    "ACCENT",
    "INK",
    "LAND",
    "LEAST_ERROR_RANGE",
    "MOST_NUMBERED",
    "MUTED",
    "NARROW",
    "PALETTE",
    "RULE",
    "SMALL",
    "TEXT",
    "WIDE",
    "caution",
    "colours",
    "heading",
    "literal",
    "method_styles",
    "new_figure",
    "png",
    "save_figure",
    "tidy",
]

# Widths in inches that a figure is laid out for: a desk's screen or paper, and a telephone's.
WIDE, NARROW = 10.0, 4.4
TEXT, SMALL = 9.5, 8.0
_CHARACTERS = 14  # of small text in an inch
DPI = 180

INK, MUTED, RULE, LAND = "#1d2530", "#667085", "#d5dae1", "#d3d6db"
ACCENT = "#0b6e8f"
# Ranks of more sites than this would hide what they are drawn on.
MOST_NUMBERED = 60
# Share of the range of the values that the axis or the colours of their errors span at least.
LEAST_ERROR_RANGE = 0.05
# Beside the accent: told apart by the colour-blind too, and none louder than the accent.
_OTHERS = ("#d9822b", "#7a5195", "#3f8f5b", "#b8475f", "#8a6d3b", "#5b7fb8", "#7f7f7f")
PALETTE = 1 + len(_OTHERS)
# What a figure is written as, and what would tell two files of the same figure apart.
_KINDS = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure with constrained layout, without the global state of pyplot.

    Parameters
    ----------
    width, height : float
        Inches.

    Returns
    -------
    Figure
    """
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def colours(count: int) -> list[str]:
    """Return distinguishable colours.

    Parameters
    ----------
    count : int
        Number of colours; after ``PALETTE`` of them they repeat.

    Returns
    -------
    list of str
        The accent colour first.

    Examples
    --------
    >>> colours(2)
    ['#0b6e8f', '#d9822b']
    """
    return [(ACCENT, *_OTHERS)[i % PALETTE] for i in range(count)]


def method_styles(count: int) -> list[dict[str, Any]]:
    """Return how the lines of methods are drawn.

    Parameters
    ----------
    count : int
        Number of methods, from the best, which is heavier and on top, to the worst.

    Returns
    -------
    list of dict
        Keyword arguments of ``Axes.plot``.
    """
    return [
        {"color": colour, "linewidth": 2.0 if rank == 0 else 1.4, "linestyle": "-" if rank < PALETTE else "-.",
         "zorder": count - rank + 2}
        for rank, colour in enumerate(colours(count))
    ]  # fmt: skip


def literal(text: str) -> str:
    r"""Escape dollar signs, so that a text is not taken for a formula.

    Examples
    --------
    >>> print(literal("cost in $"))
    cost in \$
    """
    return text.replace("$", r"\$")


def heading(axes: Axes, text: str) -> None:
    """Set a bold title at the left that may be wider than its axes.

    Parameters
    ----------
    axes : Axes
        Axes of a figure.
    text : str
        The title.
    """
    axes.set_title(" ", fontsize=TEXT)
    axes.annotate(
        literal(text), (0, 1), (0, 5), xycoords="axes fraction", textcoords="offset points",
        fontsize=TEXT, fontweight="bold", color=INK,
    ).set_in_layout(False)  # fmt: skip


def caution(figure: Figure, warning: str) -> None:
    """Write a warning below everything else, if there is one.

    Parameters
    ----------
    figure : Figure
        The figure, with its axes.
    warning : str
        The warning, or nothing.
    """
    if warning:
        lines = textwrap.fill(f"warning: {warning}", int(_CHARACTERS * figure.get_figwidth()))
        figure.supxlabel(literal(lines), x=0.01, ha="left", fontsize=SMALL, color=INK)


def tidy(axes: Axes, *, frame: Sequence[str] = ("left", "bottom"), grid: str | None = None) -> None:
    """Apply the common style to axes.

    Parameters
    ----------
    axes : Axes
        Axes of a figure.
    frame : sequence of str
        Sides with a visible spine.
    grid : {"x", "y", "both"}, optional
        Direction of grid lines; None: none.
    """
    for side, spine in axes.spines.items():
        spine.set_visible(side in frame)
        spine.set_color(MUTED)
        spine.set_linewidth(0.6)
    axes.tick_params(labelsize=SMALL, colors=MUTED, labelcolor=INK, width=0.6, length=3)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(fontsize=TEXT, color=INK)
    if grid is not None:
        axes.grid(visible=True, axis=grid, color=RULE, linewidth=0.6)  # type: ignore[arg-type]
        axes.set_axisbelow(True)


def png(figure: Figure) -> bytes:
    """Render a figure as PNG."""
    buffer = io.BytesIO()
    _render(figure, buffer, "png")
    return buffer.getvalue()


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file; an existing file is replaced only when the new one is complete.

    Parameters
    ----------
    figure : Figure
        Any figure of matplotlib.
    path : str or Path
        With the extension .png, .svg or .pdf.

    Raises
    ------
    SettingsError
        If the extension is another one.
    StorageError
        If the file cannot be written.
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in _KINDS:
        raise SettingsError(f"{path}: figures are written as .png, .svg or .pdf; end the name with one of them")
    with replacing(Path(path)) as file:
        _render(figure, file, kind)


def _render(figure: Figure, file: IO[bytes], kind: str) -> None:
    """Write a figure in one format, without metadata that would make equal figures differ."""
    with warnings.catch_warnings():
        # A name in a script that the font lacks is boxes in the figure; the page's tables show it as it is.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(file, format=kind, dpi=DPI, metadata={_KINDS[kind]: None})
