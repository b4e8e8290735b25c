"""Where sites lie is read as the CF and UGRID conventions say it."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from keyhole.data.readers.geometry import sites_of_field

NORTH = {"standard_name": "latitude", "units": "degrees_north"}
EAST = {"standard_name": "longitude", "units": "degrees_east"}


def values(*shape):
    return np.zeros((2, *shape))


def test_a_regular_grid_with_bounds_knows_its_areas():
    latitude, longitude = np.array([-80.0, 0.0, 70.0]), np.array([45.0, 180.0, 315.0])
    dataset = xr.Dataset(
        {
            "t": (("time", "y", "x"), values(3, 3)),
            "y_bnds": (("y", "v"), [[-90.0, -70.0], [-70.0, 50.0], [50.0, 90.0]]),
            "x_bnds": (("x", "v"), [[0.0, 90.0], [90.0, 270.0], [270.0, 360.0]]),
        },
        {"y": ("y", latitude, {**NORTH, "bounds": "y_bnds"}), "x": ("x", longitude, {**EAST, "bounds": "x_bnds"})},
    )
    sites = sites_of_field(dataset.t, ("y", "x"), dataset)
    assert sites.roles == {"latitude": "y", "longitude": "x"}
    height = np.array([np.sin(np.deg2rad(b)) - np.sin(np.deg2rad(a)) for a, b in ((-90, -70), (-70, 50), (50, 90))])
    np.testing.assert_allclose(sites.area.reshape(3, 3), np.outer(height, [90, 180, 90]))


def test_a_curvilinear_grid_is_found_by_standard_names():
    up, around = np.meshgrid(np.linspace(-40, 40, 4), np.linspace(0, 50, 5), indexing="ij")
    array = xr.DataArray(
        values(4, 5), {"nav_lat": (("j", "i"), up + 0.1 * around, NORTH), "nav_lon": (("j", "i"), around, EAST)},
        ("time", "j", "i"),
    )  # fmt: skip
    sites = sites_of_field(array, ("j", "i"))
    assert sites.location == ("nav_lat", "nav_lon")
    assert sites.name(7) == f"nav_lat={(up + 0.1 * around).ravel()[7]:.6g} nav_lon=25"
    assert sites.metric.unit == "km"


def test_cells_in_radians_with_measured_areas():
    dataset = xr.Dataset(
        {"t": (("time", "cell"), values(3), {"cell_measures": "area: size"}), "size": ("cell", [1.0, 2.0, 3.0])},
        {
            "clat": ("cell", np.deg2rad([-10.0, 0.0, 45.0]), {"standard_name": "latitude", "units": "radian"}),
            "clon": ("cell", np.deg2rad([0.0, 90.0, 120.0]), {"standard_name": "longitude", "units": "radian"}),
        },
    )
    sites = sites_of_field(dataset.t, ("cell",), dataset)
    np.testing.assert_allclose(sites.role("latitude"), [-10, 0, 45])
    np.testing.assert_array_equal(sites.area, [1, 2, 3])
    assert sites.metric.distances(0, 1)[0, 0] == pytest.approx(10007.5, rel=1e-3)


def test_cells_with_vertices_know_their_areas():
    corners = np.array([[0.0, 0.0, 90.0], [0.0, 0.0, -90.0]]), np.array([[0.0, 90.0, 0.0], [0.0, 45.0, 0.0]])
    dataset = xr.Dataset(
        {"t": (("time", "cell"), values(2)), "blat": (("cell", "v"), corners[0]), "blon": (("cell", "v"), corners[1])},
        {
            "lat": ("cell", [30.0, -30.0], {**NORTH, "bounds": "blat"}),
            "lon": ("cell", [45.0, 20.0], {**EAST, "bounds": "blon"}),
        },
    )
    np.testing.assert_allclose(sites_of_field(dataset.t, ("cell",), dataset).area, [np.pi / 2, np.pi / 4])


@pytest.mark.parametrize("location", ["face", "node"])
def test_a_mesh_by_ugrid(location):
    """An octahedron: eight faces of an eighth of the sphere each, or six nodes with a third of four faces each."""
    dataset = xr.Dataset(
        {
            "mesh": (
                (), 0, {"cf_role": "mesh_topology", "topology_dimension": 2, "node_coordinates": "mlon mlat",
                        "face_node_connectivity": "faces"},
            ),
            "mlat": ("node", [0.0, 0.0, 0.0, 0.0, 90.0, -90.0], NORTH),
            "mlon": ("node", [0.0, 90.0, 180.0, 270.0, 0.0, 0.0], EAST),
            "faces": (("face", "three"), [[i + 1, i % 4 + 1 + (0 if i == 3 else 1) if i < 3 else 1, p] for p in (5, 6)
                                          for i in range(4)], {"start_index": 1}),
        }
    )  # fmt: skip
    count = dataset.sizes[location]
    dataset["t"] = (("time", location), values(count), {"mesh": "mesh", "location": location})
    sites = sites_of_field(dataset.t, (location,), dataset)
    np.testing.assert_allclose(sites.area, 4 * np.pi / count)
    assert sites.is_geographic
    if location == "face":
        np.testing.assert_allclose(np.abs(sites.role("latitude")), np.rad2deg(np.arctan(np.sqrt(0.5))))


def test_stations_go_by_their_identifiers():
    dataset = xr.Dataset(
        {
            "t": (("station", "time"), values(3).T),
            "code": ("station", [b"KSEA", b"KSFO", b"KLAX"], {"cf_role": "timeseries_id"}),
        },
        {
            "lat": ("station", [47.4, 37.6, 33.9], NORTH), "lon": ("station", [-122.3, -122.4, -118.4], EAST),
            "alt": ("station", [130.0, 4.0, 38.0], {"axis": "Z", "positive": "up", "units": "m"}),
        },
        {"featureType": "timeSeries"},
    )  # fmt: skip
    sites = sites_of_field(dataset.t, ("station",), dataset)
    assert sites.names == ("KSEA", "KSFO", "KLAX")
    assert sites.location == ("lat", "lon", "alt")
    assert sites.metric.distances(0, 1)[0, 0] == pytest.approx(1090, abs=10)
    assert sites.area is None


def test_stations_whose_axis_holds_texts_go_by_these():
    """With a position of each; without one they are labels along an axis, as before."""
    array = xr.DataArray(values(2), {"station": ["Ona", "Vigra"]}, ("time", "station"))
    assert sites_of_field(array, ("station",)).name(1) == "station=Vigra"
    array = array.assign_coords(lat=("station", [62.9, 62.6], NORTH), lon=("station", [6.5, 6.1], EAST))
    sites = sites_of_field(array, ("station",))
    assert [sites.name(site) for site in range(2)] == ["Ona", "Vigra"]
    assert sites.metric.unit == "km"


def test_depth_is_vertical_and_a_projection_is_a_plane():
    axes = {"depth": ("depth", [5.0, 50.0], {"positive": "down"}), "lat": ("lat", [0.0, 1.0]), "lon": ("lon", [0.0])}
    sites = sites_of_field(
        xr.DataArray(values(2, 2, 1), axes, ("time", "depth", "lat", "lon")), ("depth", "lat", "lon")
    )
    assert sites.roles == {"latitude": "lat", "longitude": "lon", "vertical": "depth"}
    assert sites.metric.distances(0, 2)[0, 0] == 0  # nobody said how much a metre of depth counts
    plane = {
        "y": ("y", [0.0, 3000.0], {"standard_name": "projection_y_coordinate", "units": "m", "axis": "Y"}),
        "x": ("x", [0.0, 4000.0], {"standard_name": "projection_x_coordinate", "units": "m", "axis": "X"}),
    }
    sites = sites_of_field(xr.DataArray(values(2, 2), plane, ("time", "y", "x")), ("y", "x"))
    assert sites.metric.distances(0, 3)[0, 0] == 5000
