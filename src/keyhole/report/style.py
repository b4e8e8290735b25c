"""One look for all figures: sizes, colours, axes, and how a figure becomes a file."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keyhole.core.errors import SettingsError
from keyhole.core.storage import replacing

__all__ = [
    "ACCENT",
    "INK",
    "LAND",
    "MUTED",
    "NARROW",
    "PALETTE",
    "RULE",
    "SMALL",
    "TEXT",
    "WIDE",
    "colours",
    "heading",
    "literal",
    "new_figure",
    "png",
    "save_figure",
    "tidy",
]

# Widths in inches that a figure is laid out for: a desk's screen or paper, and a telephone's.
WIDE, NARROW = 10.0, 4.4
TEXT, SMALL = 9.5, 8.0
DPI = 180

INK, MUTED, RULE, LAND = "#1d2530", "#667085", "#d5dae1", "#d3d6db"
ACCENT = "#0b6e8f"
# Beside the accent: told apart by the colour-blind too, and none louder than the accent.
_OTHERS = ("#d9822b", "#7a5195", "#3f8f5b", "#b8475f", "#8a6d3b", "#5b7fb8", "#7f7f7f")
PALETTE = 1 + len(_OTHERS)
# What a figure is written as, and what would tell two files of the same figure apart.
_KINDS = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}


def new_figure(width: float, height: float) -> Figure:
    """Give an empty figure that lays its axes out by itself; without pyplot, so no state is kept anywhere."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def colours(count: int) -> list[str]:
    """Give ``count`` colours, the accent first; after ``PALETTE`` of them they start again."""
    return [(ACCENT, *_OTHERS)[i % PALETTE] for i in range(count)]


def literal(text: str) -> str:
    """Escape a user's text, so that its dollar signs are not taken for formulas."""
    return text.replace("$", r"\$")


def heading(axes: Axes, text: str) -> None:
    """Set a title at the left, in bold, that may be wider than its axes without pushing others aside."""
    axes.set_title(" ", fontsize=TEXT)
    axes.annotate(
        literal(text), (0, 1), (0, 5), xycoords="axes fraction", textcoords="offset points",
        fontsize=TEXT, fontweight="bold", color=INK,
    ).set_in_layout(False)  # fmt: skip


def tidy(axes: Axes, *, frame: Sequence[str] = ("left", "bottom"), grid: str | None = None) -> None:
    """Give axes the house's look: a thin frame on the sides named, small ticks, light lines if asked for."""
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
    """Write a figure as PNG, SVG or PDF, by the path's ending; the old file stays until the new one is whole."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in _KINDS:
        raise SettingsError(f"{path}: figures are written as .png, .svg or .pdf; end the name with one of them")
    with replacing(Path(path)) as file:
        _render(figure, file, kind)


def _render(figure: Figure, file: IO[bytes], kind: str) -> None:
    with warnings.catch_warnings():
        # A name in a script that the font lacks is boxes in the figure; the page's tables show it as it is.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(file, format=kind, dpi=DPI, metadata={_KINDS[kind]: None})
