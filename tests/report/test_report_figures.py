"""The figures: what lies where, in which colours, and how they are saved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgba
from PIL import Image
from report_examples import field, with_history

from keyhole.core.errors import SettingsError, StorageError
from keyhole.data.sites import Sites
from keyhole.report import (
    NARROW,
    WIDE,
    ReportData,
    comparison_figure,
    curve_figure,
    error_figure,
    samples_figure,
    save_figure,
    sites_figure,
    training_figure,
)
from keyhole.report.layout import frame_of
from keyhole.report.style import LAND
from keyhole.workflow.comparison import Comparison, compare


def mesh_of(axes) -> QuadMesh:
    return next(one for one in axes.collections if isinstance(one, QuadMesh))


def pixel(figure, axes, x: float, y: float) -> tuple[float, ...]:
    """Colour that is drawn at a place of the data."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = np.asarray(canvas.buffer_rgba())
    column, row = axes.transData.transform((x, y))
    return tuple(image[image.shape[0] - 1 - int(row), int(column)] / 255)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("falling", [False, True])
def test_latitude_is_up_whatever_its_order(falling, turned):
    """North is on top, each value in its cell, longitude across, for all four orders of the axes."""
    findings = ReportData.of(compare(field(falling=falling, turned=turned), 2, ["variance"]))
    axes = sites_figure(findings).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("lon", "lat")
    assert axes.get_ylim() == (-60, 60)
    assert axes.get_xlim() == (-20, 340)
    mesh, latitude = mesh_of(axes), findings.domain.axes["lat"]
    spread = findings.domain.to_grid(findings.spread)
    spread = spread.T if turned else spread
    assert np.allclose(mesh.get_array().filled(np.nan), spread, equal_nan=True)
    rows = mesh.get_coordinates()[:, 0, 1]
    assert np.allclose((rows[1:] + rows[:-1]) / 2, latitude)
    assert np.nanmean(spread[np.argmax(latitude)]) > np.nanmean(spread[np.argmin(latitude)])


def test_land_is_grey_inside_a_coast(map_comparison):
    """Cells outside are masked and drawn in grey; the coast is the outline of the 2 x 2 block of land."""
    findings = ReportData.of(map_comparison)
    figure = sites_figure(findings)
    axes = figure.axes[0]
    land_cells = np.isnan(findings.domain.to_grid(findings.spread))
    assert np.array_equal(mesh_of(axes).get_array().mask, land_cells)
    land, sea = pixel(figure, axes, 130.0, 15.0), pixel(figure, axes, 240.0, 15.0)
    assert np.allclose(land, to_rgba(LAND), atol=0.01)
    assert not np.allclose(sea, to_rgba(LAND), atol=0.1)
    assert len(frame_of(findings.domain).coast()) == 8


def test_sites_are_numbered_where_they_are(map_comparison):
    """Each rank stands at its site's coordinates."""
    findings = ReportData.of(map_comparison)
    axes = sites_figure(findings).axes[0]
    numbers = {text.get_text(): text.get_position() for text in axes.texts}
    for row in findings.plan.sites.itertuples():
        assert numbers[str(row.rank)] == (row.lon, row.lat)


def test_spread_and_errors_are_in_the_users_units(map_comparison):
    """The error map's mean square is the test MSE; the spread is that of the anomalies, metres included."""
    findings, signals = ReportData.of(map_comparison), map_comparison.prepared.samples
    mse = findings.plan.metrics["test"]["mse"]
    assert np.nanmean(findings.error_map**2) == pytest.approx(mse)
    assert np.mean(findings.sample_errors**2) == pytest.approx(mse)
    development = signals.take(map_comparison.prepared.split.development)
    anomalies = development.values - map_comparison.prepared.scaling.expected(development)
    assert findings.spread == pytest.approx(anomalies[:, 0].std(axis=0), rel=1e-4)


def test_samples_shown_are_best_median_and_worst(map_comparison):
    """In order of their error, with their times, as anomalies that differ by the error."""
    findings = ReportData.of(map_comparison)
    errors = [pick.rmse for pick in findings.picks]
    assert [pick.label for pick in findings.picks] == ["best", "median", "worst"]
    assert errors == sorted(errors)
    assert (errors[0], errors[-1]) == (findings.sample_errors.min(), findings.sample_errors.max())
    assert all(pick.when.startswith("200") for pick in findings.picks)
    worst = findings.picks[-1]
    assert np.sqrt(np.nanmean(worst.error**2)) == pytest.approx(worst.rmse, rel=1e-4)


@pytest.mark.parametrize("count", [1, 2])
def test_few_test_samples_are_all_shown(map_comparison, count):
    """No sample is shown twice."""
    prepared = map_comparison.prepared
    split = replace(prepared.split, test=prepared.split.test[:count])
    prepared = replace(prepared, split=split, test=prepared.test.take(np.arange(count)))
    findings = ReportData.of(Comparison(prepared, map_comparison.entries))
    assert [pick.label for pick in findings.picks] == ["best", "worst"][:count]
    assert len([axes for axes in samples_figure(findings).axes if axes.get_xlabel() == "truth"]) == count


def test_true_and_reconstructed_share_their_colours(map_comparison, colour_comparison):
    """Anomalies and errors share one symmetric scale; raw values have one, and errors a symmetric one."""
    for comparison, shared in ((map_comparison, True), (colour_comparison, False)):
        panels = samples_figure(ReportData.of(comparison)).axes[:9]
        limits = [mesh_of(axes).get_clim() for axes in panels]
        assert len({limits[i] for i in (0, 1, 3, 4, 6, 7)}) == 1
        assert len({limits[i] for i in (2, 5, 8)}) == 1
        assert limits[2][0] == -limits[2][1]
        assert (limits[0] == limits[2]) is shared


def test_rows_of_images_count_from_the_top(colour_comparison):
    """A bare array is an image: row 0 on top, cells square."""
    axes = error_figure(ReportData.of(colour_comparison)).axes[0]
    assert axes.get_ylim() == (5.5, -0.5)
    assert axes.get_box_aspect() == pytest.approx(6 / 5)
    assert all(tick == round(tick) for tick in axes.get_yticks())


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_one_axis_is_drawn_as_lines(table_comparison, width):
    """Columns of a table: names below, sites at their columns, as wide as asked for."""
    findings = ReportData.of(table_comparison)
    for draw in (sites_figure, samples_figure, error_figure):
        figure = draw(findings, width=width)
        assert figure.get_size_inches()[0] == width
    labels = [label.get_text() for label in sites_figure(findings, width=width).axes[0].get_xticklabels()]
    assert "c3" in labels
    dots = sites_figure(findings).axes[0].collections[-1].get_offsets()
    assert sorted(dots[:, 0]) == sorted(findings.plan.indices)


def test_axes_that_are_no_scale_are_labelled(map_comparison):
    """Longitudes that jump, dates and words are laid out by position, with their values as labels."""
    coordinates = {"day": pd.date_range("2001", periods=3).to_numpy(), "lon": np.array([170.0, 180.0, -170.0, -160.0])}
    frame = frame_of(Sites.build((3, 4), ("day", "lon"), coordinates))
    assert frame.up.labels == ["2001-01-01", "2001-01-02", "2001-01-03"]
    assert frame.across.labels == ["170", "180", "-170", "-160"]
    assert frame.across.edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5]


def test_depth_goes_down():
    """A section by depth and distance is drawn with the surface on top."""
    values = np.random.default_rng(0).normal(size=(30, 4, 5))
    section = xr.DataArray(values, dims=("sample", "depth", "distance"), coords={"depth": [0.0, 10.0, 30.0, 60.0]})
    low, high = sites_figure(ReportData.of(compare(section, 2, ["variance"]))).axes[0].get_ylim()
    assert (low, high) == (75.0, -5.0)


def test_training_has_a_panel_for_each_figure(map_comparison):
    """Loss and validation first, then the others, by stage."""
    plan = with_history(map_comparison, 0).entries[0].plan
    panels = [axes for axes in training_figure(plan).axes if axes.axison]
    titles = [axes.texts[0].get_text() for axes in panels]
    assert titles == [
        "choice of sites: loss",
        "choice of sites: validation, best 1.01",
        "choice of sites: expected l0",
        "reconstructor: loss",
        "reconstructor: validation, best 1.01",
    ]
    assert len(panels[0].lines[0].get_xdata()) == 10


def test_runs_of_one_stage_are_lines_of_their_own(map_comparison):
    """Steps that start again start a new line, and what is no number is left out."""
    rows = [{"stage": "select", "step": float(step), "loss": 1.0, "distribution": "vln"} for step in (1, 2, 3, 1, 2)]
    (axes,) = training_figure(replace(map_comparison.entries[0].plan, history=rows)).axes
    assert [len(line.get_xdata()) for line in axes.lines] == [3, 2]


def test_own_reconstructor_is_a_diamond(map_comparison):
    """Where the plan is not rebuilt by ridge, its own error stands at the end of the curve."""
    entry = map_comparison.entries[0]
    better = replace(entry.plan, metrics={"test": {**entry.plan.metrics["test"], "rmse": 0.1}})
    comparison = replace(map_comparison, entries=[replace(entry, plan=better)])
    marks = [line for line in curve_figure(comparison).axes[0].lines if line.get_marker() == "D"]
    assert [(mark.get_xdata()[0], mark.get_ydata()[0]) for mark in marks] == [(4, 0.1)]
    assert not [line for line in curve_figure(map_comparison).axes[0].lines if line.get_marker() == "D"]


def test_curves_and_bars_hold_the_numbers(map_comparison):
    """Bars are the test RMSE, lines are the curves, with the units on their axes."""
    bars, lines = comparison_figure(map_comparison).axes
    widths = [bar.get_width() for bar in bars.patches]
    assert widths == [entry.plan.metrics["test"]["rmse"] for entry in map_comparison.entries]
    assert bars.get_xlabel() == lines.get_ylabel() == "test RMSE (m)"
    for axes in (lines, curve_figure(map_comparison, width=NARROW).axes[0]):
        for entry, line in zip(map_comparison.entries, axes.lines, strict=False):
            assert line.get_label() == entry.method
            assert np.array_equal(line.get_ydata(), entry.curve)


def test_figures_are_saved_by_ending(map_comparison, tmp_path):
    """PNG, SVG and PDF are written whole; another ending and a missing folder are errors."""
    figure = curve_figure(map_comparison)
    save_figure(figure, tmp_path / "curve.png")
    save_figure(figure, tmp_path / "curve.svg")
    save_figure(figure, tmp_path / "curve.pdf")
    with Image.open(tmp_path / "curve.png") as image:
        assert image.size[0] == 1800
    assert "<svg" in (tmp_path / "curve.svg").read_text(encoding="utf-8")
    assert (tmp_path / "curve.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(SettingsError, match=r"\.png, \.svg or \.pdf"):
        save_figure(figure, tmp_path / "curve.jpg")
    with pytest.raises(StorageError):
        save_figure(figure, tmp_path / "missing" / "curve.png")


# Other geometries than regular grids ---------------------------------------------------------------------------------


def curvilinear(east: float = 0.0) -> xr.DataArray:
    """A rotated grid over the north Atlantic with a block of land; ``east`` shifts it around the globe."""
    j, i = np.meshgrid(np.linspace(-1, 1, 6), np.linspace(-1, 1, 8), indexing="ij")
    coordinates = {
        "nav_lat": (("j", "i"), 50 + 10 * j + 4 * i, {"standard_name": "latitude", "units": "degrees_north"}),
        "nav_lon": (
            ("j", "i"), (-30 + 20 * i - 8 * j + east + 180) % 360 - 180,
            {"standard_name": "longitude", "units": "degrees_east"},
        ),
    }  # fmt: skip
    values = np.random.default_rng(0).normal(size=(40, 6, 8))
    values[:, 1:3, 2:4] = np.nan
    return xr.DataArray(values, coordinates, ("time", "j", "i"), "sst", {"units": "degC"})


def drawn(source, k: int = 3) -> ReportData:
    return ReportData.of(compare(source, k, ["variance"]))


@pytest.mark.parametrize("east", [0.0, 205.0])
def test_a_curvilinear_grid_is_drawn_where_its_cells_are(east):
    """Also over the date line, where longitudes jump; land is grey behind a coast."""
    source = curvilinear(east)
    data = drawn(source)
    axes = sites_figure(data).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("nav_lon", "nav_lat")
    mesh = mesh_of(axes)
    corners, values = mesh.get_coordinates(), mesh.get_array()
    centres = (corners[1:, 1:] + corners[1:, :-1] + corners[:-1, 1:] + corners[:-1, :-1]) / 4
    np.testing.assert_allclose(centres[..., 1], source.nav_lat)
    np.testing.assert_allclose((centres[..., 0] - source.nav_lon + 180) % 360, 180, atol=1e-9)
    assert np.ptp(corners[..., 0]) < 75
    np.testing.assert_array_equal(values.mask, np.isnan(source[0]))
    np.testing.assert_allclose(values.compressed(), data.spread)
    assert len(frame_of(data.domain).coast()) == 8
    numbers = {text.get_text(): text.get_position() for text in axes.texts}
    for row in data.plan.sites.itertuples():
        x, y = numbers[str(row.rank)]
        assert y == row.nav_lat
        assert (x - row.nav_lon + 180) % 360 == pytest.approx(180)


def stations(longitude) -> xr.DataArray:
    """As many stations, with a height above the sea that does not matter on a map."""
    count = len(longitude)
    coordinates = {
        "lat": ("station", np.linspace(-20.0, 30.0, count), {"standard_name": "latitude"}),
        "lon": ("station", longitude, {"standard_name": "longitude"}),
        "alt": ("station", np.arange(count) * 100.0, {"standard_name": "height", "axis": "Z", "positive": "up"}),
    }
    values = np.random.default_rng(0).normal(size=(40, count)) * np.linspace(1, 3, count)
    return xr.DataArray(values, coordinates, ("time", "station"), "level")


@pytest.mark.parametrize("longitude", [[10.0, 20, 40, 35, 12], [175.0, 178, -179, -170, -160], [350.0, 355, 2, 8, 12]])
def test_stations_are_symbols_coloured_by_value(longitude):
    """Together on the map whatever the convention of longitude, with the selected ones on top."""
    data = drawn(stations(np.array(longitude)))
    for draw in (sites_figure, error_figure):
        axes = draw(data).axes[0]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("lon", "lat")
        symbols = axes.collections[1]
        x, y = symbols.get_offsets().T
        np.testing.assert_allclose((x - longitude + 180) % 360, 180)
        np.testing.assert_allclose(y, np.linspace(-20, 30, 5))
        assert np.ptp(x) < 60
        assert axes.get_xlim()[0] < x.min() < x.max() < axes.get_xlim()[1]
    np.testing.assert_allclose(sites_figure(data).axes[0].collections[1].get_array(), data.spread)
    headings = [axes.get_xlabel() for axes in samples_figure(data).axes]
    assert headings.count("truth") == headings.count("reconstruction") == 3


@pytest.mark.parametrize("fill", [np.nan, 0.0])
@pytest.mark.parametrize("east", [0.0, 205.0])
def test_land_without_a_position_does_not_move_the_cells_beside_it(fill, east):
    """Missing, or 0 degrees north and east, as NEMO writes where it leaves out land."""
    whole, source = curvilinear(east), curvilinear(east)
    for name in ("nav_lat", "nav_lon"):
        source[name].values[1:3, 2:4] = fill
    expected, found = (mesh_of(sites_figure(drawn(one)).axes[0]) for one in (whole, source))
    np.testing.assert_allclose(found.get_coordinates(), expected.get_coordinates())
    np.testing.assert_array_equal(found.get_array().mask, expected.get_array().mask)


def test_a_page_on_stations_shows_maps_and_their_coordinates(tmp_path):
    from keyhole.report import write_report

    comparison = compare(stations(np.array([10.0, 20, 40, 35, 12])), 3, ["variance"])
    write_report(comparison, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<th class="n">lat</th><th class="n">lon</th><th class="n">alt</th>' in text
    assert text.count("<img") == 5
