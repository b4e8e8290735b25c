"""Volumes are drawn as slices: which, with which sites on them, and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.collections import QuadMesh
from mesh_examples import EAST, NORTH, TIME, icon

import keyhole as kh
from keyhole.report import ReportData, samples_figure
from keyhole.report.layout import panels_of
from keyhole.workflow.comparison import compare

DEPTHS = np.array([0.0, 10.0, 50.0, 200.0, 1000.0])


def ocean(order=("depth", "lat", "lon")) -> xr.DataArray:
    """Five depths of 6 x 8 cells, the deeper the more land in the west."""
    values = np.random.default_rng(0).normal(size=(30, 5, 6, 8)) + DEPTHS[:, np.newaxis, np.newaxis] / 100
    for level in range(5):
        values[:, level, :, :level] = np.nan
    coordinates = {
        "time": TIME,
        "depth": ("depth", DEPTHS, {"units": "m", "positive": "down", "axis": "Z"}),
        "lat": ("lat", np.linspace(-10.0, 10, 6), NORTH),
        "lon": ("lon", np.linspace(160.0, 195, 8), EAST),
    }
    return xr.DataArray(values, coordinates, ("time", "depth", "lat", "lon"), "salt").transpose("time", *order)


def at(*places: tuple[float, float, float]) -> list[dict]:
    return [{"depth": depth, "lat": lat, "lon": lon} for depth, lat, lon in places]


def chosen_of(data, places) -> tuple:
    """The sites, and the numbers of some of them by rank."""
    sites = kh.read(data).sites
    columns = [sites.coordinate(name) for name in places[0]]
    matches = [
        np.flatnonzero(np.all([c == v for c, v in zip(columns, one.values(), strict=True)], axis=0)) for one in places
    ]
    return sites, np.concatenate(matches)


@pytest.mark.parametrize("order", [("depth", "lat", "lon"), ("lat", "lon", "depth"), ("lon", "depth", "lat")])
def test_a_grid_is_cut_at_the_levels_that_hold_sites(order):
    """Whatever the order of its axes: each slice has its values, its land, and its sites where they are."""
    data = ocean(order)
    places = at((50, -10, 195), (1000, 2, 185), (50, 10, 170))
    sites, chosen = chosen_of(data, places)
    found = panels_of(sites, chosen, units={"depth": "m"})
    assert [panel.label for panel in found.panels] == ["depth 50 m", "depth 1000 m"]
    assert found.title == "2 of 5 slices along depth: those that hold the sites"
    assert [panel.ranks.tolist() for panel in found.panels] == [[0, 2], [1]]
    for panel, depth in zip(found.panels, (50, 1000), strict=True):
        assert (sites.coordinate("depth")[panel.numbers] == depth).all()
        assert len(panel.numbers) == 6 * (8 - list(DEPTHS).index(depth))
        for name in ("lat", "lon"):
            np.testing.assert_array_equal(panel.frame.sites.coordinate(name), sites.coordinate(name)[panel.numbers])
            expected = [places[rank][name] for rank in panel.ranks]
            np.testing.assert_allclose(panel.x if name == "lon" else panel.y, expected)


def test_a_site_between_the_slices_is_drawn_on_the_nearest():
    """In metres, and also where that slice has land; the levels with most sites are shown."""
    places = at((0, -10, 160), (200, 10, 195), (1000, 10, 195), (1000, 2, 195), (0, 2, 160), (50, 6, 170))
    sites, chosen = chosen_of(ocean(), places)
    found = panels_of(sites, chosen, most=2)
    assert [panel.label for panel in found.panels] == ["depth 0", "depth 1000"]
    assert found.title == "2 of 5 slices along depth; sites of other slices are drawn on the nearest of these"
    assert [panel.ranks.tolist() for panel in found.panels] == [
        [0, 1, 4, 5],
        [2, 3],
    ]  # 200 m is nearer to 0 than to 1000
    np.testing.assert_allclose(found.panels[0].x, [160, 195, 160, 170])


def test_the_figure_has_a_panel_for_each_slice_and_says_so():
    """Ranks, headings, one colour bar, one scale."""
    places = at((0, -10, 160), (200, 10, 195))
    plan = kh.select(ocean(), 2, method="variance", reconstructor="ridge", intervals=False)
    sites, chosen = chosen_of(ocean(), places)
    plan = replace(plan, indices=sites.index[chosen])
    figure = plan.plot()
    panels = [axes for axes in figure.axes if axes.texts]
    assert [axes.texts[-1].get_text() for axes in panels] == ["depth 0 m", "depth 200 m"]
    assert [axes.texts[0].get_text() for axes in panels] == ["1", "2"]
    assert figure.get_suptitle() == "2 of 5 slices along depth: those that hold the sites"
    meshes = [one for axes in panels for one in axes.collections if isinstance(one, QuadMesh)]
    assert len({one.get_clim() for one in meshes}) == 1
    mean = plan.domain.to_grid(plan.scaling.baseline.mean(axis=(0, 1)))
    for mesh, level in zip(meshes, (0, 3), strict=True):
        np.testing.assert_allclose(mesh.get_array().filled(np.nan), mean[level])


def test_samples_of_a_volume_are_one_slice():
    """The one with the most sites, which is named below each picture."""
    data = ReportData.of(compare(ocean(), 4, ["variance"]))
    depths = data.plan.sites["depth"]
    labels = [axes.get_xlabel() for axes in samples_figure(data).axes[:3]]
    most = depths.value_counts()
    shown = float(labels[0].split("depth ")[1].split(" ")[0])
    assert most[shown] == most.max()
    assert labels == [f"{name} (depth {shown:g} m)" for name in ("truth", "reconstruction", "error")]


def test_an_array_of_three_axes_is_cut_along_the_first():
    plan = kh.select(np.random.default_rng(3).normal(size=(40, 3, 4, 5)), 3, method="variance", reconstructor="ridge")
    found = panels_of(plan.domain, plan.numbers)
    assert [panel.label for panel in found.panels] == [f"axis0 {level}" for level in sorted(set(plan.sites["axis0"]))]
    assert all(panel.frame.sites.shape == (4, 5) for panel in found.panels)


def test_variables_apart_are_slices():
    """A site measures one variable, and is drawn on its map."""
    field = ocean().isel(depth=0, drop=True)
    both = kh.read(xr.Dataset({"u": field, "v": 3 * field})).channels_apart()
    plan = kh.select(both, 3, method="variance", reconstructor="ridge", intervals=False)
    labels = [panel.label for panel in panels_of(plan.domain, plan.numbers).panels]
    assert labels == ["variable v"]


def test_levels_of_a_mesh_are_slices_of_faces():
    cells = icon()
    levels = xr.concat([cells.to, cells.to + 1], pd.Index([5.0, 500.0], name="depth")).transpose(
        "time", "depth", "ncells"
    )
    samples = kh.read(cells.drop_vars("to").assign(to=levels.assign_attrs(units="K")), variable="to")
    found = panels_of(samples.sites, np.array([3, len(cells.ncells) + 7]))
    assert [panel.label for panel in found.panels] == ["depth 5", "depth 500"]
    assert all(len(panel.frame.owners) == len(cells.ncells) for panel in found.panels)
    for panel, number in zip(found.panels, (3, 7), strict=True):
        x, y = panel.frame.places(np.array([number]))
        assert (panel.x - x) % 360 == pytest.approx(0)
        assert panel.y == pytest.approx(y)


def cloud(heights: np.ndarray, columns=("x", "y", "z")) -> kh.Samples:
    """Points in space, in a table."""
    rng = np.random.default_rng(1)
    names = [f"p{i}" for i in range(len(heights))]
    places = pd.DataFrame({columns[0]: rng.uniform(0, 10, len(heights)), columns[1]: rng.uniform(0, 10, len(heights)),
                           columns[2]: heights, "name": names})  # fmt: skip
    return kh.read(pd.DataFrame(rng.normal(size=(30, len(heights))), columns=names), coordinates=places)


def test_points_in_space_are_layers():
    """Each point and each site in the layer of its height, all layers in the same limits."""
    heights = np.random.default_rng(2).uniform(-4, 4, 60)
    sites = cloud(heights).sites
    chosen = np.arange(0, 60, 9)
    found = panels_of(sites, chosen, units={"z": "m"})
    assert len(found.panels) == 4
    assert found.title == "4 layers of z, each with its own points and sites"
    assert sorted(np.concatenate([panel.numbers for panel in found.panels])) == list(range(60))
    assert sorted(np.concatenate([panel.ranks for panel in found.panels])) == list(range(7))
    edges = np.linspace(heights.min(), heights.max(), 5)
    for panel, low, high in zip(found.panels, edges[:-1], edges[1:], strict=True):
        for numbers in (panel.numbers, chosen[panel.ranks]):
            assert ((heights[numbers] >= low) & (heights[numbers] <= high)).all()
        np.testing.assert_array_equal(panel.x, sites.coordinate("x")[chosen[panel.ranks]])
        assert panel.frame.across.limits() == found.panels[0].frame.across.limits()
    assert found.panels[1].label == f"z {edges[1]:.2f} to {edges[2]:.4f} m"


def test_few_heights_are_slices_of_their_own():
    sites = cloud(np.repeat([0.5, 2.0, 7.0], 10)).sites
    found = panels_of(sites, np.array([4, 25]))
    assert [panel.label for panel in found.panels] == ["z 0.5", "z 2", "z 7"]
    assert [panel.ranks.tolist() for panel in found.panels] == [[0], [], [1]]


@pytest.mark.parametrize("scale", [None, 0.1])
def test_stations_at_heights_are_one_map_unless_height_counts(scale):
    """Stations lie on the surface; where height counts in distances, they fill a volume."""
    samples = cloud(np.linspace(0, 3000, 30), ("lon", "lat", "altitude"))
    sites = samples.sites if scale is None else samples.sites.with_vertical_scale(scale)
    assert len(panels_of(sites, np.arange(3)).panels) == (1 if scale is None else 4)
