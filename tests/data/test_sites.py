"""Sites on every kind of geometry: the same positions give the same names, distances, areas and alignment."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from keyhole.core.errors import SettingsError
from keyhole.data.alignment import align
from keyhole.data.areas import area_of_polygons
from keyhole.data.coordinates import Auxiliary
from keyhole.data.graph_metric import GraphMetric
from keyhole.data.metric import Euclidean, GreatCircle, NoMetric
from keyhole.data.sites import Sites

LATITUDE, LONGITUDE = np.array([90.0, 30.0, -30.0, -90.0]), np.array([0.0, 90.0, 180.0, 270.0, 330.0])


def regular(valid=None):
    """A map of four latitudes and five longitudes."""
    return Sites.build((4, 5), ("lat", "lon"), {"lat": LATITUDE, "lon": LONGITUDE}, valid=valid)


def curvilinear(valid=None):
    """The same map with latitude and longitude as arrays of two axes."""
    up, around = np.meshgrid(LATITUDE, LONGITUDE, indexing="ij")
    auxiliary = {"nav_lat": Auxiliary(("y", "x"), up), "nav_lon": Auxiliary(("y", "x"), around)}
    return Sites.build((4, 5), ("y", "x"), {"y": np.arange(4), "x": np.arange(5)}, auxiliary=auxiliary, valid=valid)


def cells(order, valid=None):
    """The same map as a list of cells in some order."""
    up, around = (one.ravel()[order] for one in np.meshgrid(LATITUDE, LONGITUDE, indexing="ij"))
    auxiliary = {"lat": Auxiliary(("cell",), up), "lon": Auxiliary(("cell",), around)}
    return Sites.build((20,), ("cell",), {"cell": np.arange(20)}, auxiliary=auxiliary, valid=valid)


@pytest.fixture
def order(rng):
    return rng.permutation(20)


def test_values_go_to_the_data_and_back(rng):
    valid = rng.random((4, 5)) < 0.6
    sites, values = regular(valid), rng.normal(size=(3, 2, 4, 5))
    packed = sites.from_grid(values)
    assert packed.shape == (3, 2, valid.sum())
    np.testing.assert_array_equal(sites.to_grid(packed), np.where(valid, values, np.nan))
    np.testing.assert_array_equal(sites.number(sites.index), np.arange(len(sites)))
    assert (sites.number(np.flatnonzero(~valid)) == -1).all()


def test_names_distances_and_areas_are_those_of_the_map_whatever_holds_it(order):
    one = regular()
    for other, at in ((curvilinear(), np.arange(20)), (cells(order), order)):
        assert [other.name(site).replace("nav_", "") for site in range(20)] == [one.name(site) for site in at]
        np.testing.assert_allclose(other.area, one.area[at])
        pairs = other.metric.distances(range(20), range(20))
        np.testing.assert_allclose(pairs, one.metric.distances(at, at), atol=1e-6)
        near = [set(at[other.metric.within(site, 4000.0)]) for site in range(20)]
        assert near == [set(one.metric.within(site, 4000.0)) for site in at]


def test_area_of_a_row_at_the_pole_is_that_of_its_polygons():
    """The row at a pole reaches half a step from it; a row between reaches half a step both ways."""
    step = 30.0
    latitude = np.arange(-90.0, 91.0, step)
    sites = Sites.build((7, 4), ("lat", "lon"), {"lat": latitude, "lon": np.arange(0.0, 360.0, 90.0)})
    rows = sites.area.reshape(7, 4)[:, 0]
    edges = np.deg2rad(np.clip(np.stack([latitude - step / 2, latitude + step / 2]), -90, 90))
    exact = np.sin(edges[1]) - np.sin(edges[0])
    np.testing.assert_allclose(rows[[0, -1]] / rows[[0, -1]].sum(), exact[[0, -1]] / exact[[0, -1]].sum())
    np.testing.assert_allclose(rows[1:-1] / rows[1:-1].sum(), exact[1:-1] / exact[1:-1].sum())


@pytest.mark.parametrize("valid", [[0], [0, 6, 12], [3, 4, 9, 16]])
def test_few_sites_of_a_map_keep_its_areas(valid):
    """However little of it is sea: its axes say how large a cell is."""
    sea = np.isin(np.arange(20), valid).reshape(4, 5)
    np.testing.assert_allclose(regular(sea).area, regular().area[valid])


def test_scattered_positions_have_no_known_area(rng):
    up, around = np.rad2deg(np.arcsin(rng.uniform(-1, 1, 50))), rng.uniform(0, 360, 50)
    auxiliary = {"lat": Auxiliary(("station",), up), "lon": Auxiliary(("station",), around)}
    sites = Sites.build((50,), ("station",), {"station": np.arange(50)}, auxiliary=auxiliary)
    assert sites.area is None


def test_polygons_cover_the_sphere():
    """The twenty triangles of an icosahedron, each a twentieth; cut in other ways, the same."""
    up, around = np.meshgrid([-90.0, 0.0, 90.0], np.arange(0.0, 361.0, 60.0), indexing="ij")
    corners = lambda one: np.stack([one[:-1, :-1], one[:-1, 1:], one[1:, 1:], one[1:, :-1]], axis=-1)  # noqa: E731
    np.testing.assert_allclose(area_of_polygons(corners(up), corners(around)).sum(), 4 * np.pi)
    padded = area_of_polygons(np.array([0.0, 0.0, 90.0, np.nan]), np.array([0.0, 90.0, 0.0, np.nan]))
    np.testing.assert_allclose(padded, np.pi / 2)


@pytest.mark.parametrize("make", [regular, curvilinear])
def test_labelled_values_are_aligned_by_coordinate(make, rng):
    """On the map, upside down, in the other convention of longitude, and as a list of cells."""
    valid = rng.random((4, 5)) < 0.7
    sites, values = make(valid), rng.normal(size=(4, 5))
    array = xr.DataArray(values, {"lat": LATITUDE, "lon": LONGITUDE}, ("lat", "lon"))
    expected = values[valid]
    for one in (array, array[::-1], array.T, array.assign_coords(lon=(array.lon + 180) % 360 - 180).sortby("lon")):
        np.testing.assert_array_equal(align(one, sites, "costs"), expected)
    flat = array.stack(cell=("lat", "lon")).reset_index("cell").isel(cell=rng.permutation(20))
    np.testing.assert_array_equal(align(flat, sites, "costs"), expected)
    table = array.to_series().sample(frac=1, random_state=0)
    np.testing.assert_array_equal(align(table, sites, "costs"), expected)


def test_a_map_is_aligned_to_a_list_of_cells(order, rng):
    values = rng.normal(size=(4, 5))
    shifted = xr.DataArray(values, {"latitude": LATITUDE, "longitude": LONGITUDE - 360}, ("latitude", "longitude"))
    np.testing.assert_array_equal(align(shifted, cells(order), "weights"), values.ravel()[order])
    with pytest.raises(SettingsError, match="no value at lon"):
        align(shifted.assign_coords(longitude=LONGITUDE + 7), cells(order), "weights")


def test_another_curvilinear_order_is_aligned(rng):
    sites, values = curvilinear(), rng.normal(size=(4, 5))
    up, around = np.meshgrid(LATITUDE, LONGITUDE, indexing="ij")
    coordinates = {"nav_lat": (("y", "x"), up), "nav_lon": (("y", "x"), around)}
    array = xr.DataArray(values, coordinates, ("y", "x"))
    pole = np.abs(up.ravel()) < 90  # at a pole all longitudes are one position on the sphere, not in the table
    np.testing.assert_array_equal(align(array[::-1, ::-1], sites, "mask")[pole], values.ravel()[pole])


AXES = {
    "close floats": np.array([500010.0, 500010.5, 500011.0]),
    "big integers": np.array([1234567, 1234568, 1234569]),
    "single precision": np.array([0.1, 0.2, 0.3], np.float32),
    "big endian": np.array([1.5, 2.5, 3.5], ">f8"),
    "dates": np.array(["2000-01-01", "2000-01-02"], "datetime64[ns]"),
    "texts": np.array(["north", "south"]),
    "objects": np.array(["north", "south"], object),
    "booleans": np.array([False, True]),
    "repeated": np.array([1.0, 1.0, 2.0]),
    "not a number": np.array([np.nan, np.nan, 2.0]),
}


def line(values: np.ndarray, dim: str = "x") -> Sites:
    """Sites along one axis with these coordinates."""
    return Sites.build((len(values),), (dim,), {dim: values})


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_every_site_has_a_name_of_its_own(axis):
    names = [line(axis).name(i) for i in range(len(axis))]
    assert len(set(names)) == len(names)
    assert all(name.startswith("x") for name in names)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=6, unique=True))
def test_names_differ_wherever_coordinates_do(values):
    sites = line(np.array(values))
    assert len({sites.name(i) for i in range(len(sites))}) == len(sites)


def test_names_are_short_where_short_is_enough():
    thirds = line(np.array([0, 1 / 3, 2 / 3]))
    assert [thirds.name(i) for i in range(3)] == ["x=0", "x=0.333333", "x=0.666667"]


def test_a_text_is_named_as_it_is():
    assert line(np.array(["north", "south"], object), "station").name(1) == "station=south"


def test_own_names_outrank_coordinates():
    sites = Sites.build((3,), ("column",), {"column": np.arange(3)}, names=("pulse", "age", "size"),
                        valid=np.array([True, False, True]))  # fmt: skip
    assert [sites.name(site) for site in range(2)] == ["pulse", "size"]


@pytest.mark.parametrize(
    ("shape", "dims"),
    [((4,), ("column",)), ((2, 3), ("row", "column")), ((2, 3, 4), ("axis0", "axis1", "axis2"))],
)
def test_plain_data_count_their_axes(shape, dims):
    sites = Sites.plain(shape)
    assert sites.dims == dims
    assert sites.size == len(sites) == np.prod(shape)
    for dim, n in zip(dims, shape, strict=True):
        np.testing.assert_array_equal(sites.axes[dim], np.arange(n))


def test_sites_are_numbered_in_c_order_among_the_valid():
    axes = {"lat": np.array([10.0, -2.5]), "lon": np.array([0, 5, 10])}
    sites = Sites.build((2, 3), tuple(axes), axes, valid=np.array([[True, False, True], [False, True, True]]))
    np.testing.assert_array_equal(sites.index, [0, 2, 4, 5])
    assert sites.position(2) == {"lat": -2.5, "lon": 5}
    assert sites.name(2) == "lat=-2.5 lon=5"


@pytest.mark.parametrize("dim", ["lat", "latitude", "Latitude", "nav_lat"])
def test_area_follows_the_cosine_of_latitude(dim):
    sites = Sites.build((2, 3), ("lon", dim), {"lon": np.arange(2), dim: np.array([0.0, 60.0, 90.0])})
    cap = (1 - np.sin(np.deg2rad(75))) / np.deg2rad(30)
    np.testing.assert_allclose(sites.area.reshape(2, 3), [[1.0, 0.5, cap]] * 2, atol=1e-12)


def test_without_latitude_there_is_no_area():
    assert Sites.plain((2, 3)).area is None


def test_an_axis_that_is_not_complete_is_counted():
    """Distances are then between positions along it, as along an axis of texts."""
    for axis in (AXES["not a number"], np.array(["a", "c", "b"])):
        np.testing.assert_array_equal(line(axis).metric.distances(0, [1, 2]), [[1, 2]])


def test_what_does_not_fit_is_refused(rng):
    sites = regular()
    with pytest.raises(SettingsError, match="no coordinate of the sites"):
        align(xr.DataArray(np.zeros((4, 3)), dims=("lat", "depth")), sites, "costs")
    with pytest.raises(SettingsError, match="shape"):
        align(np.zeros((5, 4)), sites, "costs")
    with pytest.raises(SettingsError, match="no value for site"):
        align({"lat=30 lon=0": 1.0}, sites, "costs")
    with pytest.raises(SettingsError, match="no value at lat=90"):
        align(pd.DataFrame(np.zeros((3, 5)), LATITUDE[1:], LONGITUDE), sites, "costs")


def test_metrics_follow_from_the_coordinates():
    table = Sites.build((3,), ("column",), {"column": np.arange(3)}, names=("a", "b", "c"))
    assert isinstance(table.metric, NoMetric)
    assert isinstance(Sites.plain((3, 4)).metric, Euclidean)
    assert isinstance(regular().metric, GreatCircle)
    with pytest.raises(SettingsError, match="no positions"):
        table.metric.distances(0, 1)


def test_vertical_distances_count_where_their_scale_is_stated():
    axes = {"depth": np.array([0.0, 100.0]), "lat": np.array([0.0]), "lon": np.array([0.0, 1.0])}
    for scale, expected in ((None, 0.0), (0.5, 50.0)):
        sites = Sites.build((2, 1, 2), tuple(axes), axes, roles={"latitude": "lat", "longitude": "lon",
                            "vertical": "depth"}, vertical_scale=scale)  # fmt: skip
        np.testing.assert_allclose(sites.metric.distances(0, 2), expected, atol=1e-6)
    assert set(sites.metric.within(0, 60.0)) == {0, 2}


def test_tapers_are_positive_definite(rng):
    """On the sphere, in the plane and on a graph, also between sites that are far apart."""
    from scipy.sparse import random_array

    graph = random_array((30, 30), density=0.1, rng=rng)
    metrics = [
        GreatCircle(rng.uniform(-90, 90, 30), rng.uniform(0, 360, 30)), Euclidean(rng.normal(size=(30, 2))),
        GraphMetric(graph + graph.T),
    ]  # fmt: skip
    for metric in metrics:
        for length in (4.0, 0.5, 0.125):
            matrix = metric.taper(range(30), range(30), length).astype(float)
            np.testing.assert_allclose(np.diag(matrix), 1, atol=1e-5)
            assert np.linalg.eigvalsh(matrix).min() > -1e-5
        assert (metric.taper([0], range(30), np.inf) == 1).all()


def test_distances_on_a_graph_are_shortest_paths(rng):
    """Against Floyd and Warshall's algorithm by hand."""
    lengths = np.where(rng.random((12, 12)) < 0.3, rng.uniform(1, 5, (12, 12)), 0)
    lengths = np.maximum(lengths, lengths.T)
    np.fill_diagonal(lengths, 0)
    expected = np.where(lengths > 0, lengths, np.inf)
    np.fill_diagonal(expected, 0)
    for middle in range(12):
        expected = np.minimum(expected, expected[:, [middle]] + expected[[middle]])
    metric = GraphMetric(lengths)
    np.testing.assert_allclose(metric.distances(range(12), range(12)), expected)
    for radius in (2.0, 6.0):
        assert set(metric.within(3, radius)) == set(np.flatnonzero(expected[3] < radius))
