"""Figures of sites with two coordinates: maps."""

from __future__ import annotations

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

from keyhole.report.formatting import quantity, with_units
from keyhole.report.geometry import CellFrame, Frame
from keyhole.report.report_data import Quantity, ReportData
from keyhole.report.style import (
    INK,
    LAND,
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


def draw_quantity(data: ReportData, shown: Quantity, width: float) -> Figure:
    """Draw a quantity of each site as a map with a colour bar, with the selected sites on it.

    Parameters
    ----------
    data : ReportData
        Of sites with two coordinates.
    shown : Quantity
        The quantity.
    width : float
        Inches.

    Returns
    -------
    Figure
    """
    frame, narrow = Frame.of(data.domain), width <= NARROW
    beside, below = (0.8, 1.2) if narrow else (1.6, 0.6)
    wide = min(width - beside, _TALLEST / frame.box)
    figure = new_figure(wide + beside, wide * frame.box + below)
    axes = figure.subplots()
    shades = _Shades.rising(shown.colours, shown.values, floor=0.0)
    _draw(axes, frame, shown.values, shades)
    frame.apply(axes, labelled=True)
    _bar(figure, [axes], shades, with_units(shown.label, data.units), beside=not narrow)
    _mark(axes, data, frame, numbered=shown.shows_ranks and data.plan.k <= MOST_NUMBERED, small=narrow)
    return figure


def draw_samples(data: ReportData, width: float) -> Figure:
    """Draw truth, reconstruction and error of the samples shown, one row each, on common scales.

    Parameters
    ----------
    data : ReportData
        Of sites with two coordinates.
    width : float
        Inches.

    Returns
    -------
    Figure
    """
    frame, picks = Frame.of(data.domain), data.picks
    side = min(width / 3 - 0.1, _TALLEST_SAMPLE / frame.box)
    figure = new_figure(3 * side + 0.3, (side * frame.box + _AROUND_SAMPLE) * len(picks) + 0.7)
    panels = figure.subplots(len(picks), 3, squeeze=False)
    values, error = _sample_shades(data)
    shades = {"true": values, "reconstructed": values, "error": error}
    labels = {"true": "truth", "reconstructed": "reconstruction", "error": "error"}
    for row, pick in zip(panels, picks, strict=True):
        heading(row[0], f"{pick.label}: {pick.when}, RMSE {quantity(pick.rmse, data.units)}")
        for axes, (name, shade) in zip(row, shades.items(), strict=True):
            _draw(axes, frame, getattr(pick, name), shade)
            frame.apply(axes, labelled=False)
            axes.set_xlabel(labels[name], fontsize=SMALL, color=INK)
        _mark(row[1], data, frame, numbered=False, small=True)
    _sample_bars(figure, panels, values, error, data)
    return figure


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
        baseline = "monthly climatology" if data.plan.scaling.cycle else "mean"
        _bar(figure, panels.ravel().tolist(), values, with_units(f"deviation from the {baseline}", units))
        return
    _bar(figure, panels[:, :2].ravel().tolist(), values, with_units("value", units))
    _bar(figure, panels[:, 2].tolist(), error, with_units("error", units))


def _draw(axes: Axes, frame: Frame, values: NDArray[Any], shades: _Shades) -> None:
    """Draw values, with cells that are not valid in grey behind an outline."""
    frame.draw(axes, values, shades.name, shades.norm())
    axes.set_facecolor(LAND if isinstance(frame, CellFrame) else "white")
    tidy(axes, frame=("left", "bottom", "top", "right"))


def _mark(axes: Axes, data: ReportData, frame: Frame, *, numbered: bool, small: bool) -> None:
    """Mark the selected sites, with or without their ranks; better ones lie on top."""
    across, up = frame.places(data.plan.numbers)
    if not numbered:
        axes.scatter(across, up, s=6 if small else 16, c="white", edgecolors=INK, linewidths=0.6, zorder=3)
        return
    disc, text = (7.5, 4.6) if small else (11.5, 6.8)
    for rank, (x, y) in enumerate(zip(across, up, strict=True), start=1):
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
