"""NetCDF files of every geometry that CF and UGRID describe, read as users read them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import keyhole as kh
from example_data import gridded, smooth
from keyhole.core.errors import DataError, KeyholeWarning
from keyhole.data.mesh import Mesh
from keyhole.data.metric import Euclidean, GreatCircle

TIME = ("time", pd.date_range("2001-01-01", periods=30, freq="MS"))
NORTH = {"standard_name": "latitude", "units": "degrees_north"}
EAST = {"standard_name": "longitude", "units": "degrees_east"}


def written(dataset: xr.Dataset, folder):
    dataset.to_netcdf(folder / "data.nc")
    return kh.read(folder / "data.nc")


def plan_of(samples, **options):
    return kh.select(samples, 3, method="greedy", reconstructor="ridge", intervals=False, **options)


def test_a_regular_grid_with_bounds(tmp_path):
    """Rows of unequal height weigh by their true areas, and bounds are no fields; land leaves no trace."""
    latitude, edges = np.array([-75.0, -20.0, 40.0, 80.0]), np.array([-90.0, -60.0, 20.0, 70.0, 90.0])
    values = smooth(30, 4, 6)
    values[:, 1, 2] = np.nan
    dataset = xr.Dataset(
        {
            "t": (("time", "lat", "lon"), values),
            "lat_edges": (("lat", "two"), np.stack([edges[:-1], edges[1:]], axis=1)),
            "lon_edges": (("lon", "two"), np.stack([np.arange(0.0, 360, 60), np.arange(60.0, 361, 60)], axis=1)),
        },
        {
            "time": TIME, "lat": ("lat", latitude, {**NORTH, "bounds": "lat_edges"}),
            "lon": ("lon", np.arange(30.0, 360, 60), {**EAST, "bounds": "lon_edges"}),
        },
    )  # fmt: skip
    samples = written(dataset, tmp_path)
    assert (samples.origin.name, samples.sites.shape, len(samples.sites)) == ("t", (4, 6), 23)
    height = np.diff(np.sin(np.deg2rad(edges)))
    expected = samples.sites.from_grid(np.repeat(height[:, np.newaxis], 6, axis=1))
    np.testing.assert_allclose(samples.weights / samples.weights.sum(), expected / expected.sum())
    np.testing.assert_array_equal(gridded(samples)[:, 0], values)
    assert isinstance(samples.sites.metric, GreatCircle)


def test_a_curvilinear_grid_named_by_the_coordinates_attribute(tmp_path):
    """As NEMO writes it; the site table and what is reconstructed have latitude and longitude."""
    j, i = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 6), indexing="ij")
    dataset = xr.Dataset(
        {"sst": (("time", "y", "x"), smooth(30, 5, 6))},
        {
            "time": TIME,
            "nav_lat": (("y", "x"), 60 + 9 * j + 2 * i, NORTH),
            "nav_lon": (("y", "x"), 20 * i - 3 * j, EAST),
        },
    )
    samples = written(dataset, tmp_path)
    assert samples.sites.location == ("nav_lat", "nav_lon")
    assert samples.weights is None  # its areas are not known
    plan = plan_of(samples, constraints={"min_distance": 900, "allowed": {"lat": (55, None)}})
    assert (plan.sites["nav_lat"] > 55).all()
    apart = samples.sites.metric.distances(plan.numbers, plan.numbers) + 1e9 * np.eye(3)
    assert apart.min() >= 900
    again = plan.reconstruct(samples.readings(plan.indices)[:2], time=samples.time[:2])
    xr.testing.assert_allclose(again.nav_lat, dataset.nav_lat)


def test_cells_of_icon_in_radians_with_vertices(tmp_path):
    """Latitude, longitude and the vertices of the cells in radians: areas are those of the triangles."""
    rng = np.random.default_rng(0)
    up, around = np.rad2deg(np.arcsin(rng.uniform(-0.9, 0.9, 20))), rng.uniform(-180, 180, 20)
    corners_up = up[:, np.newaxis] + np.array([2.0, -1.0, -1.0])
    corners_around = around[:, np.newaxis] + np.array([0.0, 2.0, -2.0])
    coordinates = {
        "time": TIME,
        "clat": ("ncells", np.deg2rad(up), {"standard_name": "latitude", "units": "radian", "bounds": "clat_vertices"}),
        "clon": (
            "ncells",
            np.deg2rad(around),
            {"standard_name": "longitude", "units": "radian", "bounds": "clon_vertices"},
        ),
    }
    dataset = xr.Dataset(
        {
            "to": (("time", "ncells"), smooth(30, 20)),
            "clat_vertices": (("ncells", "vertices"), np.deg2rad(corners_up)),
            "clon_vertices": (("ncells", "vertices"), np.deg2rad(corners_around)),
        },
        coordinates,
    )
    samples = written(dataset, tmp_path)
    assert samples.origin.name == "to"
    np.testing.assert_allclose(samples.sites.role("latitude"), up)
    np.testing.assert_allclose(samples.sites.role("longitude"), around)
    for found, expected in zip(samples.sites.mesh.corners(), (corners_around, corners_up), strict=True):
        np.testing.assert_allclose(found, expected)
    flat = 3 * 2 * np.cos(np.deg2rad(up - 1))  # half of three degrees high times four degrees wide, nearly plane
    np.testing.assert_allclose(samples.weights, flat * np.deg2rad(1) ** 2, rtol=0.02)
    plan = plan_of(samples, constraints={"existing": [{"lat": up[4], "lon": around[4] + 360}]})
    assert plan.indices[0] == 4
    assert plan.names[1].startswith("clat=")
    north = dataset.clat > 0  # labelled as the data are, in radians
    assert (plan_of(samples, constraints={"allowed": north[::-1]}).sites["clat"] > 0).all()
    readings = dataset.to.isel(ncells=plan.indices[::-1])[:2]
    np.testing.assert_array_equal(plan.reconstruct(readings), plan.reconstruct(readings.values[:, ::-1]))


def octahedron(location: str) -> xr.Dataset:
    """Values on the eight faces or the six nodes of an octahedron, as UGRID describes them."""
    faces = [[i, (i + 1) % 4, pole] for pole in (4, 5) for i in range(4)]
    dataset = xr.Dataset(
        {
            "mesh": ((), 0, {"cf_role": "mesh_topology", "topology_dimension": 2, "node_coordinates": "mesh_x mesh_y",
                             "face_node_connectivity": "mesh_faces"}),
            "mesh_y": ("node", [0.0, 0.0, 0.0, 0.0, 90.0, -90.0], NORTH),
            "mesh_x": ("node", [0.0, 90.0, 180.0, 270.0, 0.0, 0.0], EAST),
            "mesh_faces": (("face", "three"), np.array(faces, np.int32), {"start_index": 0}),
        },
        {"time": TIME},
    )  # fmt: skip
    values = smooth(30, dataset.sizes[location])
    dataset["depth_of_water"] = (("time", location), values, {"mesh": "mesh", "location": location})
    return dataset


@pytest.mark.parametrize(("location", "count"), [("face", 8), ("node", 6)])
def test_a_mesh_by_ugrid(tmp_path, location, count):
    """The connectivity is no field; positions of faces are computed; each has its share of the sphere."""
    samples = written(octahedron(location), tmp_path)
    assert (samples.origin.name, len(samples.sites)) == ("depth_of_water", count)
    np.testing.assert_allclose(samples.sites.area, 4 * np.pi / count)
    mesh = samples.sites.mesh
    assert (mesh.dim, mesh.location, mesh.faces.shape) == (location, location, (8, 3))
    np.testing.assert_array_equal(mesh.y[mesh.faces[:, 2]], np.repeat([90.0, -90.0], 4))
    quarter = np.pi / 2 * 6371
    if location == "node":
        np.testing.assert_allclose(samples.sites.metric.distances(0, [1, 2, 4])[0], [quarter, 2 * quarter, quarter])
    else:
        nearest = np.sort(samples.sites.metric.distances(0, range(8))[0])[1:4]
        np.testing.assert_allclose(nearest, np.arccos(1 / 3) * 6371, rtol=1e-6)
    assert {"lat", "lon"} <= {name.replace("mesh_y", "lat").replace("mesh_x", "lon") for name in plan_of(samples).sites}


@pytest.mark.parametrize("location", ["face", "node"])
def test_a_plan_of_a_mesh_keeps_its_faces(tmp_path, location):
    """So that a map can be drawn without the data."""
    plan = plan_of(written(octahedron(location), tmp_path))
    plan.save(tmp_path / "plan.keyhole")
    again = kh.load(tmp_path / "plan.keyhole").domain.mesh
    assert (again.dim, again.location) == (location, location)
    for name in ("faces", "x", "y"):
        np.testing.assert_array_equal(getattr(again, name), getattr(plan.domain.mesh, name))


def test_edges_of_a_mesh_lie_between_their_nodes(tmp_path):
    dataset = octahedron("node")
    dataset.mesh.attrs["edge_node_connectivity"] = "mesh_edges"
    dataset["mesh_edges"] = ("edge", "two"), np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 4]], np.int32)
    flow = ("time", "edge"), smooth(30, 5), {"mesh": "mesh", "location": "edge"}
    sites = written(dataset.drop_vars("depth_of_water").assign(flow=flow), tmp_path).sites
    np.testing.assert_allclose(sites.role("latitude"), [0, 0, 0, 0, 45], atol=1e-9)
    np.testing.assert_allclose(sites.role("longitude")[:4] % 360, [45, 135, 225, 315])


def test_faces_of_three_and_four_corners():
    """A face with fewer corners repeats one of them; values on nodes divide the faces into triangles."""
    faces = np.array([[0, 1, 2, 3], [1, 4, 2, -1], [-1, -1, -1, -1]])
    mesh = Mesh("node", "node", faces, np.array([0.0, 1, 1, 0, 2]), np.array([0.0, 0, 1, 1, 0.5]))
    x, y = mesh.corners()
    np.testing.assert_array_equal(x[:2], [[0, 1, 1, 0], [1, 2, 1, 1]])
    np.testing.assert_array_equal(y[:2], [[0, 0, 1, 1], [0, 0.5, 1, 0]])
    assert np.isnan(x[2]).all()
    assert mesh.triangles().tolist() == [[0, 1, 2], [0, 2, 3], [1, 4, 2]]


def test_stations_with_a_feature_type(tmp_path):
    """Stations go by their identifiers, also in a region, as existing sites and in readings; time stands last."""
    names = ["Bergen", "Bodo", "Oslo", "Roros", "Tromso"]
    dataset = xr.Dataset(
        {
            "temperature": (("station", "time"), smooth(30, 5).T, {"coordinates": "latitude longitude altitude"}),
            "station_name": ("station", np.array(names, "S8"), {"cf_role": "timeseries_id"}),
        },
        {
            "time": TIME, "latitude": ("station", [60.4, 67.3, 59.9, 62.6, 69.7], NORTH),
            "longitude": ("station", [5.3, 14.4, 10.7, 11.4, 18.9], EAST),
            "altitude": ("station", [12.0, 11.0, 94.0, 628.0, 100.0],
                         {"standard_name": "height", "units": "m", "positive": "up", "axis": "Z"}),
        },
        {"featureType": "timeSeries", "Conventions": "CF-1.8"},
    )  # fmt: skip
    samples = written(dataset, tmp_path)
    assert samples.sites.names == tuple(names)
    assert len(samples) == 30
    assert samples.sites.metric.distances(0, 2)[0, 0] == pytest.approx(305, abs=10)
    plan = plan_of(samples, constraints={"existing": ["Roros"], "allowed": {"lat": (60, 90)}})
    assert plan.names[0] == "Roros"
    assert "Oslo" not in plan.names
    assert {"latitude", "longitude", "altitude"} <= set(plan.sites)
    readings = {name: dataset.temperature.values[names.index(name), 3] for name in reversed(plan.names)}
    found = plan.reconstruct(pd.Series(readings), time=samples.time[3])
    assert found.dims == ("time", "station")
    np.testing.assert_allclose(found.latitude, dataset.latitude)


def test_depth_counts_as_vertical(tmp_path):
    """Distances are horizontal while nobody says how much a metre of depth counts."""
    dataset = xr.Dataset(
        {"salinity": (("time", "depth", "lat", "lon"), smooth(30, 2, 3, 4))},
        {"time": TIME, "depth": ("depth", [5.0, 500.0], {"units": "m", "positive": "down", "axis": "Z"}),
         "lat": ("lat", [0.0, 1.0, 2.0], NORTH), "lon": ("lon", [0.0, 1.0, 2.0, 3.0], EAST)},
    )  # fmt: skip
    samples = written(dataset, tmp_path)
    assert samples.sites.roles == {"latitude": "lat", "longitude": "lon", "vertical": "depth"}
    assert samples.sites.metric.distances(0, 12)[0, 0] == 0
    assert samples.sites.metric.distances(0, 1)[0, 0] == pytest.approx(111.2, abs=0.1)
    moorings = plan_of(samples, constraints={"groups": "depth"})
    assert len(moorings.indices) == 6
    assert moorings.sites.groupby("group")["lat"].nunique().tolist() == [1, 1, 1]


def test_a_projection_is_a_plane(tmp_path):
    """Distances are in the units of x and y, and polygons in their coordinates."""
    axes = {
        "y": ("y", np.arange(4) * 3000.0, {"standard_name": "projection_y_coordinate", "units": "m", "axis": "Y"}),
        "x": ("x", np.arange(5) * 4000.0, {"standard_name": "projection_x_coordinate", "units": "m", "axis": "X"}),
    }
    dataset = xr.Dataset({"snow": (("time", "y", "x"), smooth(30, 4, 5))}, {"time": TIME, **axes})
    samples = written(dataset, tmp_path)
    assert isinstance(samples.sites.metric, Euclidean)
    assert samples.sites.metric.distances(0, 6)[0, 0] == 5000
    corner = {"type": "Polygon", "coordinates": [[[-1, -1], [9000, -1], [9000, 4000], [-1, 4000]]]}
    plan = plan_of(samples, constraints={"allowed": corner})
    assert set(plan.sites["x"]) <= {0.0, 4000.0, 8000.0}
    assert set(plan.sites["y"]) <= {0.0, 3000.0}


def test_a_projection_with_latitude_and_longitude_has_distances_on_the_sphere(tmp_path):
    """As regional climate models write it: x and y along the axes, latitude and longitude of each cell."""
    y, x = np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij")
    dataset = xr.Dataset(
        {"t": (("time", "rlat", "rlon"), smooth(30, 4, 5))},
        {
            "time": TIME,
            "rlat": ("rlat", np.arange(4.0), {"standard_name": "grid_latitude", "units": "degrees", "axis": "Y"}),
            "rlon": ("rlon", np.arange(5.0), {"standard_name": "grid_longitude", "units": "degrees", "axis": "X"}),
            "lat": (("rlat", "rlon"), 50 + y + 0.1 * x, NORTH), "lon": (("rlat", "rlon"), 10 + 1.5 * x, EAST),
        },
    )  # fmt: skip
    samples = written(dataset, tmp_path)
    assert samples.sites.roles == {"latitude": "lat", "longitude": "lon"}
    assert samples.sites.metric.distances(0, 5)[0, 0] == pytest.approx(111.2, abs=0.1)


def test_a_valid_site_without_a_position_is_refused(tmp_path):
    """The error names the coordinate; where there are no values it may be missing."""
    up, around = np.meshgrid(np.linspace(40, 60, 4), np.linspace(0, 20, 5), indexing="ij")
    up[1, 1] = around[1, 1] = np.nan
    values = smooth(30, 4, 5)
    coordinates = {"time": TIME, "lat": (("y", "x"), up, NORTH), "lon": (("y", "x"), around, EAST)}
    dataset = xr.Dataset({"t": (("time", "y", "x"), values)}, coordinates)
    with pytest.raises(DataError, match=r"'lat' is missing at 1 of 20"):
        written(dataset, tmp_path)
    values[:, 1, 1] = np.nan
    samples = kh.read(xr.Dataset({"t": (("time", "y", "x"), values)}, coordinates))
    assert len(samples.sites) == 19
    assert plan_of(samples, constraints={"min_distance": 200}).k == 3


@pytest.mark.parametrize("columns", [["x", "y"], ["x", "y", "z"]])
def test_stations_of_a_table_in_a_plane_or_in_space_have_straight_distances(columns):
    """Between their positions, not between their numbers."""
    points = np.random.default_rng(0).uniform(0, 10, (6, len(columns)))
    names = [f"s{i}" for i in range(6)]
    table = pd.DataFrame(points, columns=columns).assign(name=names)
    sites = kh.read(pd.DataFrame(smooth(30, 6), columns=names), coordinates=table).sites
    assert sites.location == tuple(columns)
    expected = np.linalg.norm(points[:, np.newaxis] - points, axis=2)
    np.testing.assert_allclose(sites.metric.distances(range(6), range(6)), expected)


def test_points_of_a_file_in_space_have_straight_distances(tmp_path):
    """Nodes of a mesh whose coordinates have no attributes."""
    points = np.random.default_rng(0).uniform(0, 10, (6, 3))
    coordinates = {name: ("node", column) for name, column in zip("xyz", points.T, strict=True)}
    sites = written(xr.Dataset({"p": (("time", "node"), smooth(30, 6))}, coordinates), tmp_path).sites
    assert sites.location == ("x", "y", "z")
    expected = np.linalg.norm(points[:, np.newaxis] - points, axis=2)
    np.testing.assert_allclose(sites.metric.distances(range(6), range(6)), expected)


def test_names_have_as_many_digits_as_tell_the_sites_apart(tmp_path):
    """Positions that differ by rounding alone, -2.4 and -2.4000000000000004, are one longitude."""
    j, i = np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij")
    coordinates = {"time": TIME, "lat": (("y", "x"), 20 + j, NORTH), "lon": (("y", "x"), -4 + i + 0.4 * j, EAST)}
    sites = kh.read(xr.Dataset({"t": (("time", "y", "x"), smooth(30, 20).reshape(30, 4, 5))}, coordinates)).sites
    assert max(len(sites.name(site)) for site in range(20)) <= len("lat=20 lon=-2.4")


def test_names_are_as_short_where_positions_repeat_at_each_level():
    """As those of a curvilinear grid with levels do, and of variables that are sites of their own."""
    j, i = np.meshgrid(np.arange(3.0), np.arange(2.0), indexing="ij")
    coordinates = {
        "depth": [0.5, 10.0], "nav_lat": (("y", "x"), (50.1 + j).astype("f4"), NORTH),
        "nav_lon": (("y", "x"), (0.1 + i).astype("f4"), EAST),
    }  # fmt: skip
    ocean = xr.DataArray(smooth(30, 12).reshape(30, 2, 3, 2), coordinates, ("time", "depth", "y", "x"), "t")
    assert kh.read(ocean).sites.name(7) == "depth=10 nav_lat=50.1 nav_lon=1.1"
    both = kh.read(xr.Dataset({"t": ocean[:, 0], "s": 2 * ocean[:, 0]}).drop_vars("depth")).channels_apart()
    assert both.sites.name(7) == "variable=s nav_lat=50.1 nav_lon=1.1"


@pytest.mark.parametrize("attributes", [(NORTH, EAST), ({}, {})])
def test_positions_that_are_variables_beside_the_field(attributes, tmp_path):
    """As files have them whose field lost its ``coordinates`` attribute; they are no fields of their own."""
    j, i = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 6), indexing="ij")
    dataset = xr.Dataset({"sst": (("time_counter", "y", "x"), smooth(30, 5, 6))}, {"time_counter": TIME[1]})
    dataset["nav_lat"] = ("y", "x"), 60 + 9 * j + 2 * i, attributes[0]
    dataset["nav_lon"] = ("y", "x"), 20 * i - 3 * j, attributes[1]
    samples = written(dataset, tmp_path)
    assert samples.origin.name == "sst"
    assert isinstance(samples.sites.metric, GreatCircle)
    again = plan_of(samples).reconstruct(samples.readings([1, 2, 3])[:2], time=samples.time[:2])
    np.testing.assert_allclose(again.nav_lat, dataset.nav_lat)
    assert again.nav_lat.attrs == attributes[0]


def test_positions_that_are_repeated_for_each_time():
    """As WRF writes them; where they move, no position is invented."""
    j, i = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 6), indexing="ij")
    still = np.ones((30, 1, 1))
    field = xr.DataArray(
        smooth(30, 5, 6), dims=("Time", "south_north", "west_east"), name="T2",
        coords={
            "XLAT": (("Time", "south_north", "west_east"), still * (60 + 9 * j + 2 * i), {"units": "degree_north"}),
            "XLONG": (("Time", "south_north", "west_east"), still * (20 * i - 3 * j), {"units": "degree_east"}),
        },
    )  # fmt: skip
    sites = kh.read(field).sites
    assert isinstance(sites.metric, GreatCircle)
    np.testing.assert_array_equal(sites.coordinate("XLAT"), (60 + 9 * j + 2 * i).ravel())
    moving = field.assign_coords(XLONG=field.XLONG + xr.DataArray(np.arange(30.0), dims="Time"))
    with pytest.warns(KeyholeWarning, match="XLONG changes along Time"):
        assert not kh.read(moving).sites.is_geographic


def test_what_is_reconstructed_for_stations_has_their_names(tmp_path):
    names = ["Bergen", "Bodo", "Oslo", "Roros", "Tromso"]
    dataset = xr.Dataset(
        {"temperature": (("time", "station"), smooth(30, 5))},
        {
            "time": TIME, "lat": ("station", [60.4, 67.3, 59.9, 62.6, 69.7], NORTH),
            "lon": ("station", [5.3, 14.4, 10.7, 11.4, 18.9], EAST),
            "station_name": ("station", np.array(names, "S8"), {"cf_role": "timeseries_id"}),
        },
    )  # fmt: skip
    plan = plan_of(written(dataset, tmp_path))
    plan.save(tmp_path / "plan.keyhole")
    found = kh.load(tmp_path / "plan.keyhole").reconstruct(np.ones((1, 3)), time=TIME[1][:1])
    assert found.station_name.values.tolist() == names
