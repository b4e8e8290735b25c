"""Test samples as each method reconstructs them: masks, reconstructions and truth, one above the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keyhole.report.style import INK, SMALL, TEXT, literal
from keyhole_benchmarks.drawing.panels import ColourScale, PanelGrid, bar, box, dots, image, is_field, place, symmetric
from keyhole_benchmarks.drawing.stored_cases import StoredCase
from keyhole_benchmarks.drawing.style import COLOURS
from keyhole_benchmarks.names import DATA, METHODS

__all__ = ["gan_against_squared", "samples"]

# Inches: width of an image and of a field, gaps within a group of panels and between groups, room left of the panels.
_IMAGE, _FIELD, _NEAR, _FAR, _LABELS = 1.15, 1.4, 0.05, 0.15, 1.0
_TOP, _BELOW, _BELOW_FIELDS = 0.58, 0.1, 0.68
_ROWS = ("reconstruction", "truth")
_EACH = 4  # columns of each objective


def samples(rows: Sequence[StoredCase], title: str) -> Figure:
    """Draw two test samples: a column for each method; its mask, then reconstruction and truth of each sample.

    The mask is the same for all samples. Fields share one scale around zero, images are grey.

    Parameters
    ----------
    rows
        One case for each method, of the same data and K.
    title
        Title of the figure.

    Returns
    -------
    Figure
        The panels.
    """
    shown = (0, len(rows[0].arrays["truth"]) // 2)
    below = [gap for _ in shown for gap in (_FAR, _NEAR)]
    figure, panels = _wall(rows[0], _beside(len(rows)), below).figure()
    shades = _shades(rows)
    for row, (mask, *pairs) in zip(rows, zip(*panels, strict=True), strict=True):
        mask.set_title(METHODS[row.method], fontsize=TEXT, fontweight="bold", color=INK, pad=4)
        _draw_mask(mask, row, COLOURS[row.method])
        for sample, at in zip(shown, range(0, len(pairs), 2), strict=True):
            _draw_pair(pairs[at : at + 2], row, sample, shades)
    _label(panels)
    _finish(figure, title, shades, rows[0].data)
    return figure


def gan_against_squared(gan: StoredCase, squared: StoredCase) -> Figure:
    """Draw the same test samples reconstructed by a conditional GAN, and by a network with squared error.

    Parameters
    ----------
    gan
        Case of the conditional GAN.
    squared
        Case of the network with squared error.

    Returns
    -------
    Figure
        Both groups of panels.
    """
    each = min(_EACH, len(gan.arrays["truth"]))
    columns = [*_beside(each), 2 * _FAR, *_beside(each)[1:]]
    figure, panels = _wall(gan, columns, (_NEAR, _NEAR)).figure()
    shades = _shades((gan, squared))
    for at, (row, title) in enumerate(((gan, "conditional GAN"), (squared, "squared error"))):
        words = title + _scores(row.line["metrics"])
        panels[0][at * each].set_title(words, loc="left", fontsize=TEXT, fontweight="bold", color=INK, pad=4)
        for sample in range(each):
            mask, *pair = (line[at * each + sample] for line in panels)
            _draw_mask(mask, row, COLOURS["vln"])
            _draw_pair(pair, row, sample, shades)
    _label(panels)
    _finish(figure, f"{DATA.get(gan.data, gan.data)}, K = {gan.k}", shades, gan.data)
    return figure


def _scores(metrics: Mapping[str, float | None]) -> str:
    """Words on both sides of the trade: error and sharpness."""
    error, sharpness = metrics.get("mse"), metrics.get("sharpness")
    return "" if error is None or sharpness is None else f": MSE {100 * error:.2f} × 10⁻², sharpness {sharpness:.2f}"


def _wall(row: StoredCase, columns: Sequence[float], below: Sequence[float]) -> PanelGrid:
    field = is_field(row.data)
    wide = _FIELD if field else _IMAGE
    tall = wide * box(row.data, row.arrays["truth"].shape[2:])
    return PanelGrid((wide, tall), columns, (0.0, *below), (_LABELS, 0.1, _TOP, _BELOW_FIELDS if field else _BELOW))


def _beside(columns: int) -> list[float]:
    return [0.0, *[_NEAR] * (columns - 1)]


def _shades(rows: Sequence[StoredCase]) -> ColourScale:
    """ColourScale that truth and all reconstructions share."""
    if is_field(rows[0].data):
        return symmetric(rows[0].arrays["truth"], *(row.arrays["reconstructed"] for row in rows))
    return ColourScale("gray", 0.0, 1.0)


def _draw_mask(axes: Axes, row: StoredCase, colour: str) -> None:
    dots(axes, row.arrays["sites"], row.arrays["truth"].shape[2:], colour, row.data)


def _draw_pair(panels: Sequence[Axes], row: StoredCase, sample: int, shades: ColourScale) -> None:
    for axes, name in zip(panels, ("reconstructed", "truth"), strict=True):
        image(axes, row.arrays[name][sample], shades, row.data)


def _label(panels: Sequence[Sequence[Axes]]) -> None:
    """Name each row at its left."""
    for line, name in zip(panels, ("mask", *_ROWS * (len(panels) // 2)), strict=True):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=SMALL, color=INK, labelpad=6)


def _finish(figure: Figure, title: str, shades: ColourScale, data: str) -> None:
    """Set the title and, for fields, the scale below."""
    wide, tall = figure.get_size_inches()
    figure.text(
        _LABELS / wide, 1 - 0.1 / tall, literal(title), va="top", fontsize=TEXT + 1, fontweight="bold", color=INK
    )
    if is_field(data):
        axes = place(figure, _LABELS, tall - 0.54, wide - _LABELS - 0.1, 0.11)
        bar(axes, shades, "anomaly, scaled", upright=False)
