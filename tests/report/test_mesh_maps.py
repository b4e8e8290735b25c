"""Maps of meshes: each face where it is, also over the date line and at the poles, and triangles between nodes."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.path import Path as Outline
from mesh_examples import centres_of, degrees, icon, sphere_mesh, ugrid
from scipy.spatial.transform import Rotation

import keyhole as kh
from keyhole.data.coordinates import Auxiliary
from keyhole.data.sites import Sites
from keyhole.report.geometry import SymbolFrame
from keyhole.report.layout import frame_of
from keyhole.report.meshes import PolygonFrame
from keyhole.report.rings import cut, flat_rings, refined
from keyhole.report.style import LAND
from keyhole.report.triangles import are_even, triangles_between

TURNS = {"poles at nodes": None, "poles in faces": Rotation.from_rotvec([0.3, 0.5, 0.2]),
         "poles on edges": Rotation.from_rotvec([np.pi / 8, 0, 0])}  # fmt: skip


def plan_of(dataset: xr.Dataset, name: str):
    return kh.select(kh.read(dataset, variable=name), 3, method="variance", reconstructor="ridge", intervals=False)


def polygons_of(axes) -> list[tuple[np.ndarray, float]]:
    """Corners and value of each polygon on axes; NaN where it is grey."""
    found = []
    for one in axes.collections:
        if isinstance(one, PolyCollection):
            values = one.get_array()
            values = np.full(len(one.get_paths()), np.nan) if values is None else np.asarray(values)
            found += [(path.vertices, value) for path, value in zip(one.get_paths(), values, strict=True)]
    return found


def value_at(polygons, x: float, y: float) -> list[float]:
    """Values of the polygons that are drawn at a place."""
    near = [
        one for one in polygons if (one[0].min(axis=0) <= (x, y)).all() and (one[0].max(axis=0) >= (x, y)).all()
    ]  # fmt: skip
    return [value for corners, value in near if Outline(corners).contains_point((x, y))]


def area_of(corners: np.ndarray) -> np.ndarray:
    """Areas of polygons ``(n, corners, 2)``, positive counterclockwise."""
    x, y = corners[..., 0], corners[..., 1]
    return (x * np.roll(y, -1, axis=-1) - np.roll(x, -1, axis=-1) * y).sum(axis=-1) / 2


@pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS)
@pytest.mark.parametrize("divisions", [0, 1, 3])
def test_the_faces_of_a_mesh_cover_the_map_once(turn, divisions):
    """Over the date line and at the poles nothing is left out and nothing is covered twice."""
    points, faces = sphere_mesh(divisions, turn)
    longitude, latitude = degrees(points)
    middle, _ = degrees(centres_of(points, faces))
    rings = flat_rings(longitude[faces], latitude[faces], middle)
    assert sorted(np.concatenate([one.number for one in rings])) == list(range(len(faces)))
    assert sum(np.abs(area_of(one.corners)).sum() for one in rings) == pytest.approx(360 * 180)


@pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS)
def test_cutting_and_refining_polygons_changes_no_areas(turn):
    """What lies between two meridians and what lies beyond are the whole."""
    points, faces = sphere_mesh(2, turn)
    longitude, latitude = degrees(points)
    for rings in flat_rings(longitude[faces], latitude[faces], degrees(centres_of(points, faces))[0]):
        for ring, area in zip(rings.corners, np.abs(area_of(rings.corners)), strict=True):
            parts = [cut(ring, *between) for between in ((-999, -30), (-30, 50), (50, 999))]
            areas = [abs(area_of(refined(part, 1.0))) for part in parts if len(part)]
            assert sum(areas) == pytest.approx(area)
            assert max(np.abs(np.diff(refined(ring, 1.0), axis=0)).max(axis=1)) <= 1.0 + 1e-9


@pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS)
def test_each_face_has_its_colour_where_it_is(turn):
    """One polygon lies at its centre, with its value, grey on land; none is smeared across the map."""
    dataset = ugrid("face", turn=turn)
    plan = plan_of(dataset, "sst")
    axes = plan.plot().axes[0]
    polygons = polygons_of(axes)
    points, faces = sphere_mesh(2, turn)
    low, high = axes.get_xlim()
    assert high - low == 360
    mean = plan.domain.to_grid(plan.scaling.baseline.mean(axis=(0, 1)))
    for x, y, expected in zip(*degrees(centres_of(points, faces)), mean, strict=True):
        if abs(y) < 60:  # edges on the sphere and on the map are far apart near the poles
            (found,) = value_at(polygons, (x - low) % 360 + low, y)
            assert found == pytest.approx(expected, nan_ok=True)
    wide = [np.ptp(corners[:, 0]) for corners, _ in polygons if np.abs(corners[:, 1]).max() < 65]
    assert max(wide) < 90


def test_faces_that_are_not_valid_are_grey():
    axes = plan_of(ugrid("face"), "sst").plot().axes[0]
    grey, coloured = [one for one in axes.collections if isinstance(one, PolyCollection)][:2]
    assert np.allclose(grey.get_facecolor(), to_rgba(LAND))
    assert coloured.get_array().count() > len(grey.get_paths()) > 0


def test_cells_of_icon_at_the_date_line_stay_together():
    """A region of 100 degrees is a map of 100 degrees; the selected sites are in their cells."""
    plan = plan_of(icon(), "to")
    axes = plan.plot().axes[0]
    assert np.diff(axes.get_xlim()) < 120
    polygons = polygons_of(axes)
    assert len(polygons) == len(plan.domain)
    mean = plan.scaling.baseline.mean(axis=(0, 1))
    for text, number in zip(axes.texts, plan.numbers, strict=True):
        assert value_at(polygons, *text.get_position()) == [pytest.approx(mean[number])]


def test_a_cell_without_vertices_is_a_dot():
    """And where none has any, the few cells are symbols."""
    dataset = icon()
    dataset.clat_vertices[5] = np.nan
    plan = plan_of(dataset, "to")
    axes = plan.plot().axes[0]
    assert len(polygons_of(axes)) == len(plan.domain) - 1
    (dot,) = (
        one.get_offsets() for one in axes.collections if isinstance(one, PathCollection) and len(one.get_offsets())
    )
    x, y = plan.domain.role("longitude")[5] % 360, plan.domain.role("latitude")[5]
    np.testing.assert_allclose(dot, [[x, y]])
    dataset.clat_vertices[:] = np.nan
    assert polygons_of(plan_of(dataset, "to").plot().axes[0]) == []


@pytest.mark.parametrize("connected", [True, False])
def test_values_on_nodes_are_triangles_between_them(connected):
    """Each has the mean of its corners; those of the mesh where they are known, else Delaunay's, with land empty."""
    plan = plan_of(ugrid("node", 2 if connected else 3, connected=connected, turn=TURNS["poles in faces"]), "sst")
    axes = plan.plot().axes[0]
    polygons, (low, _) = polygons_of(axes), axes.get_xlim()
    mean = plan.domain.to_grid(plan.scaling.baseline.mean(axis=(0, 1)))
    points, faces = sphere_mesh(2 if connected else 3, TURNS["poles in faces"])
    shown = 0
    for x, y, expected in zip(*degrees(centres_of(points, faces)), mean[faces].mean(axis=1), strict=True):
        found = value_at(polygons, (x - low) % 360 + low, y)
        if abs(y) < 60 and np.isfinite(expected):
            assert found[0] == pytest.approx(expected)
            shown += 1
        elif abs(y) < 60 and points[:, 0].max() - 0.05 < np.cos(np.deg2rad(x)) * np.cos(np.deg2rad(y)):
            assert np.isnan(found).all()
    assert shown > len(faces) / 3


@pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS)
def test_delaunay_on_the_sphere_closes_it(turn):
    """As many triangles as Euler's formula says, whose normals point outwards or inwards but never along the sphere."""
    points, faces = sphere_mesh(3, turn)
    found = triangles_between(points)
    assert len(found) == 2 * len(points) - 4 == len(faces)
    assert len(np.unique(np.sort(found, axis=1), axis=0)) == len(found)
    part = points[points @ np.array([0.6, 0.0, 0.8]) > 0]
    assert (part[triangles_between(part)].mean(axis=1) @ np.array([0.6, 0.0, 0.8]) > 0).all()


def test_holes_and_bays_stay_empty():
    """No triangle spans a gap of several cells of a lattice, and no cell between its points is missing."""
    x, y = (one.ravel() for one in np.meshgrid(np.arange(20.0), np.arange(15.0)))
    hole = (np.abs(x - 6) <= 2) & (np.abs(y - 6) <= 2) | (x > 15) & (y > 8)
    points = np.stack([x, y], axis=1)[~hole]
    corners = points[triangles_between(points)]
    middle = corners.mean(axis=1)
    assert not ((np.abs(middle - [6, 6]) < 2.5).all(axis=1)).any()
    assert not ((middle[:, 0] > 16.5) & (middle[:, 1] > 9.5)).any()
    cells = {(int(i), int(j)) for i, j in middle}
    there = {(int(i), int(j)) for i, j in points}
    whole = {(i, j) for i, j in there if {(i + 1, j), (i, j + 1), (i + 1, j + 1)} <= there}
    assert whole <= cells


@pytest.mark.parametrize("points", [np.zeros((0, 2)), np.zeros((20, 2)), np.stack([np.arange(30.0)] * 2, axis=1)])
def test_points_in_a_line_have_no_triangles(points):
    assert triangles_between(points).shape == (0, 3)
    assert not are_even(points[:40])


def listed(longitude, latitude, names=None) -> Sites:
    auxiliary = {"lat": Auxiliary(("cell",), latitude), "lon": Auxiliary(("cell",), longitude)}
    count = len(longitude)
    return Sites.build((count,), ("cell",), {"cell": np.arange(count)}, auxiliary=auxiliary, names=names)


def test_stations_are_symbols_and_cells_are_triangles():
    """A list of evenly spaced sites is a mesh without its faces; with names, or at random, they are stations."""
    points, faces = sphere_mesh(3)
    around, up = degrees(centres_of(points, faces))
    assert isinstance(frame_of(listed(around, up)), PolygonFrame)
    assert isinstance(frame_of(listed(around, up, tuple(f"s{i}" for i in range(len(up))))), SymbolFrame)
    rng = np.random.default_rng(0)
    assert isinstance(frame_of(listed(rng.uniform(0, 20, 300), rng.uniform(40, 50, 300))), SymbolFrame)


def test_a_flattened_field_is_drawn_like_its_grid():
    """Shuffled cells of a global grid, with latitude and longitude of each, are triangles."""
    field = kh.datasets.sst()
    order = np.random.default_rng(0).permutation(len(field.sites))
    places = {name: ("ncells", field.sites.coordinate(name)[order]) for name in ("lat", "lon")}
    samples = kh.read(xr.DataArray(field.values[:, 0, order], places, ("time", "ncells"), "sst"))
    frame = frame_of(samples.sites)
    assert isinstance(frame, PolygonFrame)
    assert np.ptp(frame.across.limits()) <= 360
    assert len(np.unique(frame.owners)) > 0.95 * len(samples.sites)


def test_a_mesh_in_a_plane_is_drawn_in_its_coordinates():
    """Faces of three and four corners by x and y."""
    dataset = xr.Dataset(
        {
            "mesh": ((), 0, {"cf_role": "mesh_topology", "topology_dimension": 2, "node_coordinates": "nx ny",
                             "face_node_connectivity": "faces"}),
            "nx": ("node", [0.0, 1000, 1000, 0, 2000], {"units": "m"}),
            "ny": ("node", [0.0, 0, 1000, 1000, 500], {"units": "m"}),
            "faces": (("face", "four"), np.array([[0, 1, 2, 3], [1, 4, 2, -1]], np.int32),
                      {"start_index": 0, "_FillValue": -1}),
            "u": (("time", "face"), np.random.default_rng(0).normal(size=(30, 2)),
                  {"mesh": "mesh", "location": "face"}),
        }
    )  # fmt: skip
    plan = kh.select(kh.read(dataset, variable="u"), 1, method="variance", reconstructor="ridge", intervals=False)
    axes = plan.plot().axes[0]
    assert axes.get_xlim() == (0, 2000)
    mean = plan.scaling.baseline.mean(axis=(0, 1))
    polygons = polygons_of(axes)
    assert value_at(polygons, 500, 500) == [pytest.approx(mean[0])]
    assert value_at(polygons, 1300, 500) == [pytest.approx(mean[1])]
    assert value_at(polygons, 1900, 900) == []


def test_a_plan_of_a_mesh_is_drawn_alike_when_loaded(tmp_path):
    plan = plan_of(ugrid("face"), "sst")
    plan.save(tmp_path / "plan.keyhole")
    before, after = (polygons_of(one.plot().axes[0]) for one in (plan, kh.load(tmp_path / "plan.keyhole")))
    for (corners, value), (again, same) in zip(before, after, strict=True):
        np.testing.assert_array_equal(corners, again)
        np.testing.assert_array_equal(value, same)


def test_evenness_knows_meshes_from_scattered_points():
    rng = np.random.default_rng(1)
    points, faces = sphere_mesh(3)
    assert are_even(points)
    assert are_even(centres_of(points, faces))
    scattered = rng.normal(size=(400, 3))
    assert not are_even(scattered / np.linalg.norm(scattered, axis=1, keepdims=True))
    doubled = np.repeat(points, 2, axis=0)
    assert not are_even(doubled)
