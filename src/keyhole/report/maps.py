"""Figures of sites with two coordinates or more: maps, and slices of volumes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from keyhole.plan.plan import Plan
from keyhole.report.formatting import quantity, with_units
from keyhole.report.layout import Panel, Panels, panels_of
from keyhole.report.projections import Projection, draw_coastlines
from keyhole.report.report_data import Quantity, ReportData
from keyhole.report.style import (
    INK,
    LEAST_ERROR_RANGE,
    MOST_NUMBERED,
    NARROW,
    SMALL,
    TEXT,
    heading,
    literal,
    new_figure,
    tidy,
)

__all__ = ["draw_quantity", "draw_samples"]

# Inches: the tallest map, the tallest map of a sample, and the room for a sample's heading and name.
_TALLEST, _TALLEST_SAMPLE, _AROUND_SAMPLE = 4.6, 2.2, 0.5
# Inches around a slice and for what is said above all of them; how many slices there are at most, and side by side.
_AROUND_SLICE, _TITLE = 0.45, 0.3
_MOST_SLICES, _COLUMNS, _MOST_NARROW, _COLUMNS_NARROW = 6, 3, 4, 2
# Left, bottom, width and height that the axes of a projection have of the figure.
_ROOM = (0.04, 0.02, 0.96, 0.98)
# A few outliers are clipped so that the others stay distinguishable: beyond which percentile, and how far.
_CLIP, _FAR = 99.8, 1.25


@dataclass(frozen=True)
class _Shades:
    """A colour map between two values.

    Parameters
    ----------
    name : str
        Colour map of matplotlib.
    low, high : float
        Values at its ends.
    extend : {"neither", "both", "min", "max"}
        Ends at which values are clipped.
    """

    name: str
    low: float
    high: float
    extend: Literal["neither", "both", "min", "max"]

    def norm(self) -> Normalize:
        """Return the normalisation of values to the colour map."""
        return Normalize(self.low, self.high)

    @classmethod
    def rising(cls, name: str, *fields: NDArray[Any], floor: float | None = None) -> _Shades:
        """Cover all values from ``floor``, or from the smallest."""
        values = _finite(fields)
        least = float(values.min()) if floor is None else floor
        most = least + (_reach(values - least) or 1.0)
        return cls(name, least, most, "max" if values.max() > most else "neither")

    @classmethod
    def around_zero(cls, name: str, *fields: NDArray[Any], least: float = 0.0) -> _Shades:
        """Cover all values symmetrically around zero, and at least up to ``least``."""
        size = np.abs(_finite(fields))
        most = max(_reach(size), least) or 1.0
        return cls(name, -most, most, "both" if size.max() > most else "neither")


def draw_quantity(plan: Plan, shown: Quantity, width: float, projection: Projection | None = None) -> Figure:
    """Draw a quantity of each site as a map, or as slices of a volume, with a colour bar and the selected sites.

    Parameters
    ----------
    plan : Plan
        Of sites with two coordinates or more.
    shown : Quantity
        The quantity.
    width : float
        Inches.
    projection : Projection, optional
        Of sites with latitude and longitude.

    Returns
    -------
    Figure
    """
    narrow = width <= NARROW
    layout = _layout(plan, projection, _MOST_NARROW if narrow else _MOST_SLICES)
    columns = min(len(layout.panels), _COLUMNS_NARROW if narrow else _COLUMNS)
    single = len(layout.panels) == 1
    beside, below = (0.8, 1.2) if narrow else (1.6, 0.6)
    rows, box = -(-len(layout.panels) // columns), layout.panels[0].frame.box
    wide = min((width - beside) / columns, _TALLEST / box / (1 if single else 2))
    tall = wide * box + (_AROUND_SLICE if layout.title else 0.0)
    figure = new_figure(wide * columns + beside, tall * rows + below + (_TITLE if layout.title else 0.0))
    grid = _panels(figure, rows, columns, projection)
    panels = grid.ravel().tolist()[: len(layout.panels)]
    shades = _Shades.rising(shown.colours, shown.values, floor=0.0 if shown.from_zero else None)
    numbered = shown.shows_ranks and plan.k <= MOST_NUMBERED
    for i, (axes, panel) in enumerate(zip(panels, layout.panels, strict=True)):
        _draw(axes, panel, shown.values, shades)
        panel.frame.apply(axes, labelled=single or projection is None)
        _mark(axes, panel, numbered=numbered, small=narrow or not single)
        if panel.label:
            heading(axes, panel.label)
        _label_outer(axes, left=i % columns == 0, bottom=i + columns >= len(panels))
    for axes in grid.ravel()[len(panels) :]:
        axes.remove()
    _bar(figure, panels, shades, with_units(shown.label, shown.units), beside=not narrow)
    _say(figure, layout, plan, narrow=narrow)
    return figure


def draw_samples(data: ReportData, width: float, projection: Projection | None = None) -> Figure:
    """Draw truth, reconstruction and error of the samples shown, one row each, on common scales.

    Parameters
    ----------
    data : ReportData
        Of sites with two coordinates or more; of a volume, the slice with the most sites is drawn.
    width : float
        Inches.
    projection : Projection, optional
        Of sites with latitude and longitude.

    Returns
    -------
    Figure
    """
    layout = _layout(data.plan, projection, _MOST_SLICES)
    panel, picks = max(layout.panels, key=lambda one: len(one.ranks)), data.picks
    box = panel.frame.box
    side = min(width / 3 - 0.1, _TALLEST_SAMPLE / box)
    figure = new_figure(3 * side + 0.3, (side * box + _AROUND_SAMPLE) * len(picks) + 0.7)
    panels = _panels(figure, len(picks), 3, projection)
    values, error = _sample_shades(data)
    shades = {"true": values, "reconstructed": values, "error": error}
    labels = {"true": "truth", "reconstructed": "reconstruction", "error": "error"}
    for row, pick in zip(panels, picks, strict=True):
        slice_ = f" ({panel.label})" if panel.label else ""
        heading(row[0], f"{pick.label}: {pick.when}, RMSE {quantity(pick.rmse, data.units)}")
        for axes, (name, shade) in zip(row, shades.items(), strict=True):
            _draw(axes, panel, getattr(pick, name), shade)
            panel.frame.apply(axes, labelled=False)
            axes.set_xlabel(literal(labels[name] + slice_), fontsize=SMALL, color=INK)
        _mark(row[1], panel, numbered=False, small=True)
    _sample_bars(figure, panels, values, error, data)
    return figure


def _layout(plan: Plan, projection: Projection | None, most: int) -> Panels:
    """Lay out the sites of a plan."""
    units = {name: str(said["units"]) for name, said in plan.origin.axis_attributes.items() if "units" in said}
    return panels_of(plan.domain, plan.numbers, projection, most=most, units=units)


def _panels(figure: Figure, rows: int, columns: int, projection: Projection | None) -> NDArray[Any]:
    """Make the axes of a figure, ``(rows, columns)``."""
    if projection is not None:  # room for the degrees, which the layout does not see
        figure.get_layout_engine().set(rect=_ROOM)  # type: ignore[union-attr, call-arg]
    kind = {} if projection is None else {"projection": projection.crs}
    return figure.subplots(rows, columns, squeeze=False, subplot_kw=kind)


def _label_outer(axes: Axes, *, left: bool, bottom: bool) -> None:
    """Keep the labels of axes at the left and at the bottom of a figure, where slices share them."""
    if not left:
        axes.set_ylabel("")
        axes.tick_params(labelleft=False)
    if not bottom:
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)


def _say(figure: Figure, layout: Panels, plan: Plan, *, narrow: bool) -> None:
    """Write above a figure which slices it shows, and how many sites it does not show."""
    hidden = sum(int((~np.isfinite(panel.x + panel.y)).sum()) for panel in layout.panels)
    text = [layout.title] if layout.title else []
    text += [f"{hidden} of {plan.k} sites are not visible in this projection"] if hidden else []
    if text:
        lines = textwrap.fill("; ".join(text), 60 if narrow else 130)
        figure.suptitle(literal(lines), fontsize=SMALL, color=INK, x=0.01, ha="left")


def _sample_shades(data: ReportData) -> tuple[_Shades, _Shades]:
    """Shades of values and errors; the same if values are shown as deviations."""
    picks = data.picks
    fields = [field for pick in picks for field in (pick.true, pick.reconstructed)]
    if data.as_anomalies:
        both = _Shades.around_zero("RdBu_r", *fields)
        return both, both
    values = _Shades.rising("viridis", *fields)
    # Errors that are invisible beside the values look small.
    least = LEAST_ERROR_RANGE * (values.high - values.low)
    return values, _Shades.around_zero("RdBu_r", *[pick.error for pick in picks], least=least)


def _sample_bars(figure: Figure, panels: NDArray[Any], values: _Shades, error: _Shades, data: ReportData) -> None:
    """Draw the colour bars of the examples."""
    units = data.units
    if data.as_anomalies:
        climatology = data.plan.scaling.climatology.text
        _bar(figure, panels.ravel().tolist(), values, with_units(f"deviation from the {climatology}", units))
        return
    _bar(figure, panels[:, :2].ravel().tolist(), values, with_units("value", units))
    _bar(figure, panels[:, 2].tolist(), error, with_units("error", units))


def _draw(axes: Axes, panel: Panel, values: NDArray[Any], shades: _Shades) -> None:
    """Draw values of the sites in a slice, with cells that are not valid in grey behind an outline."""
    frame = panel.frame
    frame.draw(axes, values[panel.numbers], shades.name, shades.norm())
    axes.set_facecolor(frame.background)
    tidy(axes, frame=("left", "bottom", "top", "right") if frame.projection is None else ("geo",))
    if frame.is_map:
        draw_coastlines(axes, frame.across.limits(), frame.projection, colors=INK, linewidths=0.5)


def _mark(axes: Axes, panel: Panel, *, numbered: bool, small: bool) -> None:
    """Mark the selected sites, with or without their ranks; better ones lie on top."""
    if not numbered:
        axes.scatter(panel.x, panel.y, s=6 if small else 16, c="white", edgecolors=INK, linewidths=0.6, zorder=3)
        return
    disc, text = (7.5, 4.6) if small else (11.5, 6.8)
    for rank, x, y in zip(panel.ranks + 1, panel.x, panel.y, strict=True):
        if not np.isfinite(x + y):
            continue
        level = 3 + 1 / rank
        axes.plot(x, y, "o", markersize=disc, mfc="white", mec=INK, mew=0.7, zorder=level)
        axes.text(x, y, str(rank), fontsize=text, color=INK, ha="center", va="center_baseline", zorder=level)


def _bar(figure: Figure, panels: Sequence[Axes], shades: _Shades, label: str, *, beside: bool = False) -> None:
    """Draw a colour bar beside or below panels."""
    shape: dict[str, Any] = {"location": "right", "aspect": 25} if beside else {"location": "bottom", "aspect": 40}
    key = ScalarMappable(shades.norm(), shades.name)
    shape |= {"extend": shades.extend, "ticks": MaxNLocator(6, steps=(1, 2, 2.5, 5, 10)), "fraction": 0.05, "pad": 0.02}
    bar = figure.colorbar(key, ax=panels, **shape)
    bar.set_label(literal(label), fontsize=TEXT, color=INK)
    bar.ax.tick_params(labelsize=SMALL, colors=INK, width=0.6, length=3)
    bar.outline.set_linewidth(0.5)


def _finite(fields: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """All finite values of some fields."""
    values = np.concatenate([np.ravel(field) for field in fields])
    finite: NDArray[Any] = values[np.isfinite(values)]
    return finite


def _reach(sizes: NDArray[Any]) -> float:
    """Largest size, or a high percentile if that is far smaller."""
    usual, most = float(np.percentile(sizes, _CLIP)), float(sizes.max())
    return usual if most > _FAR * usual else most
