"""Labelled values in any order, on any geometry, come to the same sites."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import assume, given
from hypothesis import strategies as st

from keyhole.core.errors import SettingsError
from keyhole.data.alignment import align
from keyhole.data.coordinates import Auxiliary
from keyhole.data.sites import Sites

FORMS = ("regular", "curvilinear", "cells")


@st.composite
def maps(draw):
    """Latitudes, longitudes and values of a map, each with which positions are valid."""
    rows, columns = draw(st.integers(2, 5)), draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    latitude = np.sort(rng.choice(np.arange(-88.0, 89.0, 4.0), rows, replace=False))[:: draw(st.sampled_from([1, -1]))]
    start = draw(st.sampled_from([-180.0, 0.0, 170.0]))
    longitude = start + np.sort(rng.choice(np.arange(0.0, 360.0, 5.0), columns, replace=False))
    valid = rng.random((rows, columns)) < 0.8
    assume(valid.any())
    return latitude, longitude, rng.permutation(rows * columns).reshape(rows, columns).astype(float), valid, rng


def sites_of(form, latitude, longitude, valid, rng) -> tuple[Sites, np.ndarray]:
    """The sites of a map in some form, and where each stands in the map."""
    up, around = np.meshgrid(latitude, longitude, indexing="ij")
    if form == "regular":
        axes = {"lat": latitude, "lon": longitude}
        return Sites.build(valid.shape, ("lat", "lon"), axes, valid=valid), np.flatnonzero(valid)
    if form == "curvilinear":
        auxiliary = {"nav_lat": Auxiliary(("y", "x"), up), "nav_lon": Auxiliary(("y", "x"), around)}
        axes = {"y": np.arange(valid.shape[0]), "x": np.arange(valid.shape[1])}
        return Sites.build(valid.shape, ("y", "x"), axes, valid=valid, auxiliary=auxiliary), np.flatnonzero(valid)
    order = rng.permutation(valid.size)
    auxiliary = {
        "lat": Auxiliary(("cell",), up.ravel()[order]), "lon": Auxiliary(("cell",), around.ravel()[order])
    }  # fmt: skip
    axes, flat = {"cell": np.arange(valid.size)}, valid.ravel()[order]
    return Sites.build((valid.size,), ("cell",), axes, valid=flat, auxiliary=auxiliary), order[flat]


def rearranged(array: xr.DataArray, how: str, rng: np.random.Generator) -> xr.DataArray:
    """The same labelled values otherwise."""
    rows, columns = (rng.permutation(size) for size in array.shape)
    if how == "permuted":
        return array[rows][:, columns]
    if how == "transposed":
        return array.T
    if how == "other convention":
        return array.assign_coords(lon=(array.lon + 180) % 360 - 180)[:, columns]
    flat = array.stack(place=("lat", "lon")).reset_index("place").isel(place=rng.permutation(array.size))
    if how == "flattened":
        return flat
    if how == "single precision":
        return flat.assign_coords(lat=flat.lat.astype("f4"), lon=flat.lon.astype("f4"))
    up, around = np.meshgrid(array.lat, array.lon, indexing="ij")
    return xr.DataArray(array.values, {"lat": (("j", "i"), up), "lon": (("j", "i"), around)}, ("j", "i"))[rows][
        :, columns
    ]


HOWS = ("permuted", "transposed", "other convention", "flattened", "single precision", "curvilinear")


@given(given=maps(), form=st.sampled_from(FORMS), how=st.sampled_from(HOWS))
def test_labelled_values_come_to_their_sites(given, form, how):
    latitude, longitude, values, valid, rng = given
    sites, places = sites_of(form, latitude, longitude, valid, rng)
    array = xr.DataArray(values, {"lat": latitude, "lon": longitude}, ("lat", "lon"))
    found = align(rearranged(array, how, rng), sites, "costs")
    np.testing.assert_array_equal(found, values.ravel()[places])


@given(given=maps(), form=st.sampled_from(FORMS), how=st.sampled_from(("permuted", "transposed", "flattened")))
def test_a_position_that_is_missing_is_named(given, form, how):
    """A row that holds a valid site is left out."""
    latitude, longitude, values, valid, rng = given
    sites, _ = sites_of(form, latitude, longitude, valid, rng)
    row = int(np.flatnonzero(valid.any(axis=1))[0])
    array = xr.DataArray(values, {"lat": latitude, "lon": longitude}, ("lat", "lon"))
    assume(len(latitude) > 2)
    rest = array.isel(lat=np.delete(np.arange(len(latitude)), row))
    with pytest.raises(SettingsError, match="costs: no value at"):
        align(rearranged(rest, how, rng), sites, "costs")


@given(given=maps(), form=st.sampled_from(FORMS))
def test_positions_twice_are_refused(given, form):
    latitude, longitude, values, valid, rng = given
    sites, _ = sites_of(form, latitude, longitude, valid, rng)
    column = int(np.flatnonzero(valid.any(axis=0))[0])
    array = xr.DataArray(values, {"lat": latitude, "lon": longitude}, ("lat", "lon"))
    twice = array.isel(lon=[column, *range(len(longitude))])
    for one in (twice, rearranged(twice, "flattened", rng)):
        with pytest.raises(SettingsError, match=r"costs: (more than one value|no value)"):
            align(one, sites, "costs")


def test_positions_that_are_not_known_do_no_harm(rng):
    """As on land of an ocean model, whose latitude and longitude are missing there."""
    up, around = np.meshgrid(np.linspace(-20, 20, 4), np.linspace(0, 60, 5), indexing="ij")
    valid = np.ones((4, 5), bool)
    valid[1:3, 2] = False
    up[~valid] = around[~valid] = np.nan
    auxiliary = {"nav_lat": Auxiliary(("y", "x"), up), "nav_lon": Auxiliary(("y", "x"), around)}
    sites = Sites.build((4, 5), ("y", "x"), {"y": np.arange(4), "x": np.arange(5)}, valid=valid, auxiliary=auxiliary)
    values = rng.normal(size=(4, 5))
    array = xr.DataArray(values, {"nav_lat": (("y", "x"), up), "nav_lon": (("y", "x"), around)}, ("y", "x"))
    np.testing.assert_array_equal(align(array[::-1, [3, 1, 0, 2, 4]], sites, "costs"), values[valid])
    with pytest.raises(SettingsError, match="no value at"):
        align(array[1:], sites, "costs")
