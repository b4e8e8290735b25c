"""The grid: cells, positions, names and areas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhole.data.grid import Grid


def line(values: np.ndarray, dim: str = "x") -> Grid:
    """A grid of one axis with these coordinates."""
    return Grid((len(values),), (dim,), {dim: values}, np.ones(len(values), bool))


@pytest.mark.parametrize(
    ("shape", "dims"),
    [((4,), ("column",)), ((2, 3), ("row", "column")), ((2, 3, 4), ("axis0", "axis1", "axis2"))],
)
def test_a_plain_grid_counts_its_axes(shape, dims):
    grid = Grid.plain(shape)
    assert grid.dims == dims
    assert grid.size == np.prod(shape)
    assert grid.inside.all()
    for dim, n in zip(dims, shape, strict=True):
        np.testing.assert_array_equal(grid.coordinates[dim], np.arange(n))


def test_cells_are_the_flat_indices_inside():
    inside = np.array([[True, False, True], [False, False, True]])
    np.testing.assert_array_equal(Grid.plain((2, 3), inside).cells, [0, 2, 5])


def test_position_and_name_agree_with_c_order():
    grid = Grid((2, 3), ("lat", "lon"), {"lat": np.array([10.0, -2.5]), "lon": np.array([0, 5, 10])}, np.ones((2, 3)))
    assert grid.position(4) == {"lat": -2.5, "lon": 5}
    assert grid.name(4) == "lat=-2.5 lon=5"


def test_own_names_outrank_coordinates():
    grid = Grid((2,), ("column",), {"column": np.arange(2)}, np.ones(2, bool), ("pulse", "age"))
    assert [grid.name(i) for i in range(2)] == ["pulse", "age"]


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


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_every_site_has_a_name_of_its_own(axis):
    names = [line(axis).name(i) for i in range(len(axis))]
    assert len(set(names)) == len(names)
    assert all(name.startswith("x") for name in names)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=6, unique=True))
def test_names_differ_wherever_coordinates_do(values):
    grid = line(np.array(values))
    assert len({grid.name(i) for i in range(grid.size)}) == grid.size


def test_names_are_short_where_short_is_enough():
    thirds = line(np.array([0, 1 / 3, 2 / 3]))
    assert [thirds.name(i) for i in range(3)] == ["x=0", "x=0.333333", "x=0.666667"]


def test_a_text_is_named_as_it_is():
    assert line(np.array(["north", "south"], object), "station").name(1) == "station=south"


@pytest.mark.parametrize("dim", ["lat", "latitude", "Latitude", "nav_lat"])
def test_area_follows_the_cosine_of_latitude(dim):
    latitude = np.array([0.0, 60.0, 90.0])
    grid = Grid((2, 3), ("lon", dim), {"lon": np.arange(2), dim: latitude}, np.ones((2, 3), bool))
    assert grid.axis_of_latitude() == 1
    cap = (1 - np.sin(np.deg2rad(75))) / np.deg2rad(30)
    np.testing.assert_allclose(grid.area(), [[1.0, 0.5, cap]] * 2, atol=1e-12)


def test_without_latitude_there_is_no_area():
    assert Grid.plain((2, 3)).axis_of_latitude() is None
    assert Grid.plain((2, 3)).area() is None


def test_a_row_at_the_pole_is_a_cap():
    """The areas of all rows, poles among them, add up to the sphere's."""
    latitude = np.linspace(-90, 90, 73)
    axes = {"lat": latitude, "lon": np.arange(0.0, 360.0, 90.0)}
    area = Grid((73, 4), ("lat", "lon"), axes, np.ones((73, 4), bool)).area()
    assert area[0, 0] == pytest.approx((1 - np.cos(np.deg2rad(1.25))) / np.deg2rad(2.5))
    assert area[:, 0].sum() * np.deg2rad(2.5) == pytest.approx(2.0, rel=1e-3)
    np.testing.assert_allclose(area[1:-1, 0], np.cos(np.deg2rad(latitude[1:-1])))
