"""Figures of grids with two axes: maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from keyhole.report.findings import ReportData
from keyhole.report.geometry import Frame
from keyhole.report.style import INK, LAND, NARROW, SMALL, TEXT, heading, literal, new_figure, tidy
from keyhole.report.words import quantity, with_units

__all__ = ["errors", "intervals", "samples", "sites"]

# Inches: the tallest map, the tallest map of a sample, and the room for a sample's heading and name.
_TALLEST, _TALLEST_SAMPLE, _AROUND_SAMPLE = 4.6, 2.2, 0.5
# Beyond so many, numbers hide the map.
_NUMBERED = 60
# A few cells far beyond all others are clipped, lest they wash those out: beyond which percentile, how far.
_CLIP, _FAR = 99.8, 1.25
_COAST = "#4a5058"
# Share of the values' range that the shades of errors span at least.
_VISIBLE = 0.05


@dataclass(frozen=True)
class _Shades:
    """A colour map between two values; ``extend`` says on which sides values were clipped."""

    name: str
    low: float
    high: float
    extend: Literal["neither", "both", "min", "max"]

    def norm(self) -> Normalize:
        """Where each value lies between both."""
        return Normalize(self.low, self.high)

    @classmethod
    def rising(cls, name: str, *fields: NDArray[Any], floor: float | None = None) -> _Shades:
        """Cover all fields, from ``floor`` or from their least value."""
        values = _finite(fields)
        least = float(values.min()) if floor is None else floor
        most = least + (_reach(values - least) or 1.0)
        return cls(name, least, most, "max" if values.max() > most else "neither")

    @classmethod
    def around_zero(cls, name: str, *fields: NDArray[Any], least: float = 0.0) -> _Shades:
        """Cover all fields, as far below zero as above it, and ``least`` at least."""
        size = np.abs(_finite(fields))
        most = max(_reach(size), least) or 1.0
        return cls(name, -most, most, "both" if size.max() > most else "neither")


def sites(findings: ReportData, width: float) -> Figure:
    """Draw the ranked sites over the standard deviation of the field."""
    shades = _Shades.rising("viridis", findings.spread, floor=0.0)
    figure, axes, frame = _one_map(findings, findings.spread, shades, "standard deviation", width)
    _mark(axes, findings, frame, numbered=findings.plan.k <= _NUMBERED, small=width <= NARROW)
    return figure


def errors(findings: ReportData, width: float) -> Figure:
    """Draw the RMSE of each cell on the test part, and the sites as dots."""
    shades = _Shades.rising("cividis", findings.error_map, floor=0.0)
    figure, axes, frame = _one_map(findings, findings.error_map, shades, "RMSE on test", width)
    _mark(axes, findings, frame, numbered=False, small=width <= NARROW)
    return figure


def intervals(findings: ReportData, width: float) -> Figure:
    """Draw the mean width of the 90 % prediction interval in each cell, and the sites as dots."""
    shades = _Shades.rising("magma", findings.interval_map, floor=0.0)
    figure, axes, frame = _one_map(
        findings, findings.interval_map, shades, "mean width of the 90 % prediction interval", width
    )
    _mark(axes, findings, frame, numbered=False, small=width <= NARROW)
    return figure


def samples(findings: ReportData, width: float) -> Figure:
    """Draw truth, reconstruction and error of each sample, a row for each, on a common scale."""
    frame, picks = Frame.of(findings.grid), findings.picks
    side = min(width / 3 - 0.1, _TALLEST_SAMPLE / frame.box)
    figure = new_figure(3 * side + 0.3, (side * frame.box + _AROUND_SAMPLE) * len(picks) + 0.7)
    panels = figure.subplots(len(picks), 3, squeeze=False)
    values, error = _sample_shades(findings)
    shades = {"true": values, "reconstructed": values, "error": error}
    labels = {"true": "truth", "reconstructed": "reconstruction", "error": "error"}
    for row, pick in zip(panels, picks, strict=True):
        heading(row[0], f"{pick.label}: {pick.when}, RMSE {quantity(pick.rmse, findings.units)}")
        for axes, (name, shade) in zip(row, shades.items(), strict=True):
            _draw(axes, findings, frame, getattr(pick, name), shade)
            frame.apply(axes, labelled=False)
            axes.set_xlabel(labels[name], fontsize=SMALL, color=INK)
        _mark(row[1], findings, frame, numbered=False, small=True)
    _sample_bars(figure, panels, values, error, findings)
    return figure


def _sample_shades(findings: ReportData) -> tuple[_Shades, _Shades]:
    """Shades of the values and of their errors: the same where both are deviations, so that sizes compare."""
    picks = findings.picks
    fields = [field for pick in picks for field in (pick.true, pick.reconstructed)]
    if findings.as_anomalies:
        both = _Shades.around_zero("RdBu_r", *fields)
        return both, both
    values = _Shades.rising("viridis", *fields)
    # Errors too small to see beside the values are to look small.
    least = _VISIBLE * (values.high - values.low)
    return values, _Shades.around_zero("RdBu_r", *[pick.error for pick in picks], least=least)


def _sample_bars(figure: Figure, panels: NDArray[Any], values: _Shades, error: _Shades, findings: ReportData) -> None:
    units = findings.units
    if findings.as_anomalies:
        baseline = "monthly climatology" if findings.plan.scaling.cycle else "mean"
        _bar(figure, panels.ravel().tolist(), values, with_units(f"deviation from the {baseline}", units))
        return
    _bar(figure, panels[:, :2].ravel().tolist(), values, with_units("value", units))
    _bar(figure, panels[:, 2].tolist(), error, with_units("error", units))


def _one_map(
    findings: ReportData, values: NDArray[Any], shades: _Shades, label: str, width: float
) -> tuple[Figure, Axes, Frame]:
    """Draw one labelled map, its colour bar beside it, or below where the width is dear."""
    frame, narrow = Frame.of(findings.grid), width <= NARROW
    beside, below = (0.8, 1.2) if narrow else (1.6, 0.6)
    wide = min(width - beside, _TALLEST / frame.box)
    figure = new_figure(wide + beside, wide * frame.box + below)
    axes = figure.subplots()
    _draw(axes, findings, frame, values, shades)
    frame.apply(axes, labelled=True)
    _bar(figure, [axes], shades, with_units(label, findings.units), beside=not narrow)
    return figure, axes, frame


def _draw(axes: Axes, findings: ReportData, frame: Frame, values: NDArray[Any], shades: _Shades) -> None:
    """Draw values with land in grey and a line along the coast."""
    pixels = np.ma.masked_invalid(frame.pixels(values))
    edges = frame.across.edges, frame.up.edges
    axes.pcolormesh(*edges, pixels, cmap=shades.name, norm=shades.norm(), rasterized=True)
    coast = LineCollection(list(frame.coast(findings.grid.inside)), colors=_COAST, linewidths=0.5)
    axes.add_collection(coast, autolim=False)
    axes.set_facecolor(LAND)
    tidy(axes, frame=("left", "bottom", "top", "right"))


def _mark(axes: Axes, findings: ReportData, frame: Frame, *, numbered: bool, small: bool) -> None:
    """Mark the sites; the better ones lie on top of the others, each number on its own disc."""
    across, up = frame.places(findings.grid, findings.plan.indices)
    if not numbered:
        axes.scatter(across, up, s=6 if small else 16, c="white", edgecolors=INK, linewidths=0.6, zorder=3)
        return
    disc, text = (7.5, 4.6) if small else (11.5, 6.8)
    for rank, (x, y) in enumerate(zip(across, up, strict=True), start=1):
        level = 3 + 1 / rank
        axes.plot(x, y, "o", markersize=disc, mfc="white", mec=INK, mew=0.7, zorder=level)
        axes.text(x, y, str(rank), fontsize=text, color=INK, ha="center", va="center_baseline", zorder=level)


def _bar(figure: Figure, panels: Sequence[Axes], shades: _Shades, label: str, *, beside: bool = False) -> None:
    shape: dict[str, Any] = {"location": "right", "aspect": 25} if beside else {"location": "bottom", "aspect": 40}
    key = ScalarMappable(shades.norm(), shades.name)
    shape |= {"extend": shades.extend, "ticks": MaxNLocator(6, steps=(1, 2, 2.5, 5, 10)), "fraction": 0.05, "pad": 0.02}
    bar = figure.colorbar(key, ax=panels, **shape)
    bar.set_label(literal(label), fontsize=TEXT, color=INK)
    bar.ax.tick_params(labelsize=SMALL, colors=INK, width=0.6, length=3)
    bar.outline.set_linewidth(0.5)


def _finite(fields: Sequence[NDArray[Any]]) -> NDArray[Any]:
    values = np.concatenate([np.ravel(field) for field in fields])
    finite: NDArray[Any] = values[np.isfinite(values)]
    return finite


def _reach(sizes: NDArray[Any]) -> float:
    usual, most = float(np.percentile(sizes, _CLIP)), float(sizes.max())
    return usual if most > _FAR * usual else most
