"""Projections and coastlines: with cartopy where it is installed, and what is said where it is not."""

from __future__ import annotations

import sys
import urllib.request

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.collections import LineCollection, PolyCollection
from mesh_examples import centres_of, degrees, icon, sphere_mesh, ugrid
from report_examples import field
from scipy.spatial.transform import Rotation

import keyhole as kh
from keyhole.core.errors import MissingExtraError, SettingsError
from keyhole.report import ReportData, samples_figure, save_figure, sites_figure
from keyhole.report.layout import frame_of
from keyhole.report.projections import Projection, coastlines
from keyhole.workflow.comparison import compare


def plan_of(data, k: int = 3, **options):
    return kh.select(data, k, method="variance", reconstructor="ridge", intervals=False, **options)


def polygons_of(axes) -> list[np.ndarray]:
    return [path.vertices for one in axes.collections if isinstance(one, PolyCollection) for path in one.get_paths()]


def area_of(corners: np.ndarray) -> float:
    x, y = corners.T
    return abs(float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum())) / 2


# Without cartopy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["image", "table"])
def test_sites_without_latitude_and_longitude_have_no_projection(kind):
    values = np.random.default_rng(0).normal(size=(40, 4))
    data = values.reshape(40, 2, 2) if kind == "image" else pd.DataFrame(values, columns=list("abcd"))
    with pytest.raises(SettingsError, match="projection='Robinson': the sites have no latitude and longitude"):
        plan_of(data).plot(projection="Robinson")


def test_a_projection_names_its_extra(monkeypatch):
    """And a map without a projection is drawn as ever, true to scale."""
    monkeypatch.setitem(sys.modules, "cartopy", None)
    plan = plan_of(field())
    with pytest.raises(MissingExtraError, match=r"cartopy, which is not installed: pip install 'keyhole\[maps\]'"):
        plan.plot(projection="Robinson")
    axes = plan.plot().axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("lon", "lat")
    assert axes.get_box_aspect() == pytest.approx(120 / 360)


def test_a_plan_draws_the_mean_of_its_field():
    """In the units of the data; of variables with different units the first one is drawn."""
    samples = field()
    plan = plan_of(samples)
    axes, bar = plan.plot().axes
    assert bar.get_ylabel() == "mean (m)"
    np.testing.assert_allclose(axes.collections[0].get_array().compressed(), plan.scaling.baseline.mean(axis=(0, 1)))
    values = np.random.default_rng(0).normal(size=(40, 4, 5))
    both = {name: xr.DataArray(scale * values + 3, dims=("time", "y", "x"), attrs={"units": units})
            for name, scale, units in (("t", 1, "K"), ("p", 100, "hPa"))}  # fmt: skip
    assert plan_of(xr.Dataset(both)).plot().axes[-1].get_ylabel() == "mean of t (K)"


def test_a_plan_of_a_table_is_a_line_that_may_be_negative():
    values = np.random.default_rng(0).normal(size=(40, 6)) - 5
    axes = plan_of(pd.DataFrame(values, columns=list("abcdef"))).plot().axes[0]
    assert axes.get_ylabel() == "mean"
    assert axes.get_ylim()[1] < 0


# With cartopy ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def crs():
    """Its projections, without any way to download."""
    return pytest.importorskip("cartopy.crs")


@pytest.fixture(autouse=True)
def _no_downloads(monkeypatch):
    """Cartopy downloads coastlines that it does not find."""

    def refused(*_, **__):
        raise OSError("a test may not download")

    monkeypatch.setattr(urllib.request, "urlopen", refused)
    if "cartopy.io" in sys.modules:
        monkeypatch.setattr(sys.modules["cartopy.io"], "urlopen", refused)


@pytest.mark.parametrize("wrong", ["Robinsen", "Projection", 3, "PLATECARREE"])
def test_an_unknown_projection_is_refused(crs, wrong):
    with pytest.raises(SettingsError, match="a projection of cartopy or its name is needed, such as"):
        plan_of(field()).plot(projection=wrong)
    with pytest.raises(SettingsError, match="Robinson"):
        plan_of(field()).plot(projection="Robinsen")


def test_sites_are_where_the_projection_puts_them(crs):
    """By name or as an object, with a colour bar and labels as without."""
    plan = plan_of(field())
    for given in ("Robinson", crs.Robinson()):
        axes, bar = plan.plot(projection=given).axes
        assert isinstance(axes.projection, crs.Robinson)
        assert bar.get_ylabel() == "mean (m)"
        for text, row in zip(axes.texts, plan.sites.itertuples(), strict=False):
            assert text.get_text() == str(row.rank)
            np.testing.assert_allclose(
                text.get_position(), crs.Robinson().transform_point(row.lon, row.lat, crs.PlateCarree())
            )


@pytest.mark.parametrize("centre", [0, 75])
@pytest.mark.parametrize(
    "turn", [None, Rotation.from_rotvec([0.3, 0.5, 0.2])], ids=["poles at nodes", "poles in faces"]
)
def test_faces_cover_an_equal_area_map_once(crs, turn, centre):
    """Those that the edge of the map cuts are cut; together they are as large as the globe."""
    equal = crs.EqualEarth(central_longitude=centre)
    axes = plan_of(kh.read(ugrid("face", 3, turn=turn), variable="sst")).plot(projection=equal).axes[0]
    globe = 4 * np.pi * 6371e3**2
    assert sum(area_of(corners) for corners in polygons_of(axes)) == pytest.approx(globe, rel=0.01)
    away = [corners for corners in polygons_of(axes) if np.abs(corners[:, 1]).max() < 0.9 * equal.y_limits[1]]
    assert max(np.ptp(corners[:, 0]) for corners in away) < 0.1 * np.ptp(equal.x_limits)


def test_a_regular_grid_covers_an_equal_area_map_once(crs):
    """Cells at the poles and at the edge of the map too."""
    axes = plan_of(kh.datasets.sst()).plot(projection="Mollweide").axes[0]
    assert sum(area_of(corners) for corners in polygons_of(axes)) == pytest.approx(4 * np.pi * 6371e3**2, rel=0.01)


def test_a_polar_map_shows_its_hemisphere_and_says_what_it_hides(crs):
    plan = plan_of(kh.datasets.sst(), 8, constraints={"allowed": {"lat": (-60, 60)}})
    figure = plan.plot(projection="NorthPolarStereo")
    south = int((plan.sites["lat"] < 0).sum())
    assert figure.get_suptitle() == f"{south} of 8 sites are not visible in this projection"
    shown = {text.get_text() for text in figure.axes[0].texts}
    assert shown >= {str(row.rank) for row in plan.sites.itertuples() if row.lat > 0}
    assert not shown & {str(row.rank) for row in plan.sites.itertuples() if row.lat < 0}
    corners = np.concatenate(polygons_of(figure.axes[0]))
    equator, _ = crs.NorthPolarStereo().transform_point(90, -6, crs.PlateCarree())
    assert np.hypot(*corners.T).max() < equator


def test_a_polar_map_of_the_other_hemisphere_is_refused(crs):
    """Of cells and of stations."""
    values = np.random.default_rng(0).normal(size=(30, 12))
    places = {"lat": np.linspace(-80.0, -50, 12), "lon": np.linspace(0.0, 90, 12)}
    names = [f"s{i}" for i in range(12)]
    stations = kh.read(pd.DataFrame(values, columns=names), coordinates=pd.DataFrame({"name": names, **places}))
    grid = xr.DataArray(
        values.reshape(30, 3, 4), {"lat": places["lat"][:3], "lon": places["lon"][:4]}, ("time", "lat", "lon")
    )
    for data in (stations, grid):
        with pytest.raises(SettingsError, match="NorthPolarStereo: it shows none of the sites"):
            plan_of(data).plot(projection="NorthPolarStereo")
        assert plan_of(data).plot(projection="SouthPolarStereo").get_suptitle() == ""


@pytest.mark.parametrize(
    "name", ["Orthographic", "LambertConformal", "Mercator", "PlateCarree", "InterruptedGoodeHomolosine"]
)
def test_a_region_at_the_date_line_is_in_one_piece(crs, name, tmp_path):
    """A projection that is given by its name is centred on it; every cell is drawn once."""
    plan = plan_of(kh.read(icon(), variable="to"))
    figure = plan.plot(projection=name)
    frame = frame_of(plan.domain, Projection.of(name, plan.domain))
    assert np.isfinite(frame.x).all()
    if name != "InterruptedGoodeHomolosine":
        assert sorted(np.concatenate([one.number for one in frame.rings])) == list(range(len(plan.domain)))
    save_figure(figure, tmp_path / "map.png")


def test_every_kind_of_figure_takes_a_projection(crs, tmp_path):
    """Samples and errors of grids, stations and slices."""
    findings = ReportData.of(compare(field(), 3, ["variance"]))
    for draw in (sites_figure, samples_figure):
        save_figure(draw(findings, projection="EqualEarth"), tmp_path / "map.png")
    points, faces = sphere_mesh(2)
    around, up = degrees(centres_of(points, faces))
    names = [f"s{i}" for i in range(len(up))]
    stations = kh.read(pd.DataFrame(np.random.default_rng(0).normal(size=(30, len(up))), columns=names),
                       coordinates=pd.DataFrame({"name": names, "lat": up, "lon": around}))  # fmt: skip
    save_figure(plan_of(stations).plot(projection="Robinson"), tmp_path / "map.png")
    deep = field().channels_apart()
    assert plan_of(deep).plot(projection="Robinson").axes[0].projection == crs.Robinson()


def test_coastlines_are_left_out_where_they_are_not_on_the_machine(crs, monkeypatch, tmp_path):
    """Nothing is downloaded, with and without a projection."""
    import cartopy

    for name in ("data_dir", "pre_existing_data_dir"):
        monkeypatch.setitem(cartopy.config, name, tmp_path)
    assert coastlines(360) == []
    plan = plan_of(field())
    for projection in (None, "Robinson"):
        save_figure(plan.plot(projection=projection), tmp_path / "map.png")
    assert [path.name for path in tmp_path.iterdir()] == ["map.png"]


def test_coastlines_on_the_machine_are_drawn(crs, monkeypatch, tmp_path):
    """Of Natural Earth, where cartopy keeps them: on plain maps in the convention of their longitudes too."""
    import cartopy

    shapefile = pytest.importorskip("shapefile")

    folder = tmp_path / "shapefiles" / "natural_earth" / "physical"
    folder.mkdir(parents=True)
    with shapefile.Writer(str(folder / "ne_110m_coastline"), shapeType=shapefile.POLYLINE) as writer:
        writer.field("name", "C")
        writer.line([[[-60.0, -30.0], [-50.0, 10.0], [-70.0, 30.0]], [[20.0, 0.0], [25.0, 5.0]]])
        writer.record("coast")
    monkeypatch.setitem(cartopy.config, "data_dir", tmp_path)
    plan = plan_of(field())  # longitudes from -20 to 340
    lines = [one.get_segments() for one in plan.plot().axes[0].collections if isinstance(one, LineCollection)]
    drawn = [np.round(segment).tolist() for segment in lines[-1]]
    assert sorted(drawn) == [[[20, 0], [25, 5]], [[300, -30], [310, 10], [290, 30]]]
    lines = [
        one.get_segments()
        for one in plan.plot(projection="Robinson").axes[0].collections
        if isinstance(one, LineCollection)
    ]
    ends = np.concatenate(list(lines[-1]))
    expected = crs.Robinson().transform_point(-60, -30, crs.PlateCarree())
    assert np.hypot(*(ends - expected).T).min() < 1.0
