"""Several sample dimensions, stations with a table of coordinates, and graphs with nodes that are not valid."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import keyhole as kh
from keyhole.errors import DataError, SettingsError


@pytest.fixture
def ensemble(rng):
    """Three members of a monthly field."""
    axes = {
        "member": [1, 2, 3], "time": pd.date_range("2001-01", periods=24, freq="MS"), "lat": [10.0, 20.0],
        "lon": [0.0, 90.0, 180.0],
    }  # fmt: skip
    values = rng.normal(size=(3, 2, 24, 3))
    return xr.DataArray(values, axes, ("member", "lat", "time", "lon"), name="t", attrs={"units": "K"})


def test_members_and_times_are_samples(ensemble, tmp_path):
    samples = kh.read(ensemble, samples=("member", "time"))
    assert samples.values.shape == (72, 1, 6)
    expected = ensemble.transpose("member", "time", "lat", "lon").values.reshape(72, 6)
    np.testing.assert_array_equal(samples.values[:, 0], expected)
    np.testing.assert_array_equal(samples.time, np.tile(ensemble.time.values, 3))
    ensemble.to_netcdf(tmp_path / "members.nc")
    again = kh.read(tmp_path / "members.nc", samples=["member", "time"])
    np.testing.assert_array_equal(again.values, samples.values)
    plan = kh.select(samples.anomalies("month"), 2, method="greedy", reconstructor="ridge")
    readings = plan.reconstruct(np.ones((2, 2)), time=ensemble.time.values[:2])
    assert readings.dims == ("sample", "lat", "lon")
    assert plan.metadata["split"]["kind"] == "blocks"


def test_times_of_all_members_are_cut_alike(ensemble):
    """A month of one member is as much test as that of another."""
    plan = kh.select(ensemble.pipe(kh.read, samples=("member", "time")), 2, method="greedy", reconstructor="ridge")
    assert plan.metadata["split"]["test"] % 3 == 0


def test_dimensions_that_do_not_exist_are_refused(ensemble):
    with pytest.raises(DataError, match="its dimensions are member, lat, time, lon"):
        kh.read(ensemble, samples=("run", "time"))


def test_stations_take_their_positions_from_a_table(rng, tmp_path):
    names = [f"S{number}" for number in range(8)]
    readings = pd.DataFrame(rng.normal(size=(60, 3)) @ rng.normal(size=(3, 8)), columns=names)
    places = pd.DataFrame({"station": names[::-1], "lat": np.linspace(60, 40, 8), "lon": np.linspace(0, 30, 8)})
    readings.to_csv(tmp_path / "readings.csv", index=False)
    places.to_csv(tmp_path / "stations.csv", index=False)
    for samples in (
        kh.read(readings, coordinates=places),
        kh.read(tmp_path / "readings.csv", coordinates=tmp_path / "stations.csv"),
    ):
        np.testing.assert_allclose(samples.sites.role("latitude"), np.linspace(40, 60, 8))
        assert samples.sites.names == tuple(names)
        assert samples.weights is None
    plan = kh.select(samples, 3, method="greedy", reconstructor="ridge", constraints={"min_distance": 700})
    assert plan.sites[["lat", "lon"]].shape == (3, 2)
    gaps = samples.sites.metric.distances(plan.numbers, plan.numbers)[np.triu_indices(3, 1)]
    assert gaps.min() >= 700
    assert plan.reconstruct(readings[plan.names]).columns.tolist() == names


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": ["a"], "lat": [1.0], "lon": [2.0]}, "no row for site 'b'"),
        ({"name": ["a", "b"], "lat": [1.0, 2.0]}, "columns lat and lon"),
        ({"name": ["a", "b", "b"], "lat": [1.0, 2, 3], "lon": [1.0, 2, 3]}, "more than one row"),
    ],
)
def test_tables_of_coordinates_that_do_not_fit_are_refused(table, message, rng):
    frame = pd.DataFrame(rng.normal(size=(9, 2)), columns=["a", "b"])
    with pytest.raises(SettingsError, match=message):
        kh.read(frame, coordinates=table)


def test_nodes_without_values_still_lie_on_paths(rng):
    values = np.cumsum(rng.normal(size=(40, 6)), axis=1)
    values[:, 2] = np.nan
    path = np.diag(np.ones(5), 1)
    samples = kh.read(values, graph=path + path.T)
    assert samples.sites.metric.distances(1, 2)[0, 0] == 2  # nodes 1 and 3, over node 2
    plan = kh.select(samples, 2, method="greedy", reconstructor="graph_ridge", split="random", intervals=False)
    assert np.isnan(plan.reconstruct(np.ones(2))[0, 2])


def test_the_command_line_takes_coordinates_and_graphs(command, rng, tmp_path):
    names = [f"S{number}" for number in range(6)]
    pd.DataFrame(np.cumsum(rng.normal(size=(60, 6)), axis=1), columns=names).to_csv(tmp_path / "r.csv", index=False)
    table = pd.DataFrame({"name": names, "lat": np.arange(6.0), "lon": np.zeros(6)})
    table.to_csv(tmp_path / "stations.csv", index=False)
    pd.DataFrame({"source": names[:-1], "target": names[1:]}).to_csv(tmp_path / "edges.csv", index=False)
    common = ("select", tmp_path / "r.csv", "-k", 2, "--method", "greedy", "--reconstructor", "ridge", "--out")
    placed = command(*common, tmp_path / "a.keyhole", "--coordinates", tmp_path / "stations.csv", "--min-distance", 300)
    assert placed.code == 0, placed.error
    assert {"lat", "lon"} <= set(kh.load(tmp_path / "a.keyhole").sites)
    linked = command(*common, tmp_path / "b.keyhole", "--graph", tmp_path / "edges.csv", "--min-distance", 3)
    assert linked.code == 0, linked.error
    first, second = sorted(kh.load(tmp_path / "b.keyhole").indices)
    assert second - first >= 3


def stations(**columns):
    """Two stations with some coordinates."""
    return {"name": ["a", "b"], "lat": [1.0, 2.0], "lon": [3.0, 4.0], **columns}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"lat": [1.0, 200.0]}, "latitude.*200.*-90 to 90"),
        ({"lat": [1.0, np.nan]}, "'lat' is missing"),
        ({"lon": [np.inf, 1.0]}, "'lon' is missing"),
    ],
)
def test_stations_without_a_place_on_earth_are_refused(columns, message, rng):
    frame = pd.DataFrame(rng.normal(size=(9, 2)), columns=["a", "b"])
    with pytest.raises((DataError, SettingsError), match=message):
        kh.read(frame, coordinates=stations(**columns))


@pytest.mark.parametrize("where", ["axis", "cells"])
def test_latitudes_beyond_the_poles_are_refused(where, rng):
    """They are another coordinate, or in other units than they say."""
    latitude, east = [0.0, 10.0, 300.0], np.array([0.0, 10.0, 20.0])
    if where == "axis":
        array = xr.DataArray(rng.normal(size=(9, 3, 3)), {"lat": latitude, "lon": east}, ("time", "lat", "lon"))
    else:
        places = {"lat": ("cell", latitude), "lon": ("cell", east)}
        array = xr.DataArray(rng.normal(size=(9, 3)), places, ("time", "cell"))
    with pytest.raises(DataError, match=r"latitude.*300.*-90 to 90"):
        kh.read(array)


@pytest.mark.parametrize("scale", ["a", True, np.nan, 0, -1])
def test_a_vertical_scale_is_a_number_above_zero(scale, rng):
    with pytest.raises(SettingsError, match="a number above zero"):
        kh.read(rng.normal(size=(9, 4)), vertical_scale=scale)


@pytest.mark.parametrize(
    ("dim", "times", "attributes"),
    [
        ("time_counter", pd.date_range("2001-01", periods=24, freq="MS"), {}),
        ("Time", np.arange(24), {}),
        ("t", np.arange(24.0), {"axis": "T"}),
        ("date", xr.date_range("2001-01", periods=24, freq="MS", calendar="noleap", use_cftime=True), {}),
    ],
)
def test_samples_run_along_time_by_whatever_name_and_wherever_it_stands(dim, times, attributes, rng):
    values = xr.DataArray(rng.normal(size=(5, 24)), {dim: (dim, times, attributes)}, ("station", dim), name="q")
    samples = kh.read(values)
    assert samples.sites.dims == ("station",)
    np.testing.assert_array_equal(samples.values[:, 0], values.T)
    assert samples.time is not None


def test_a_file_for_each_time_whose_name_is_another(rng, tmp_path):
    days = pd.date_range("2001-01-01", periods=6)
    values = rng.normal(size=(6, 4, 3))
    for day, one in zip(days[::-1], values[::-1], strict=True):
        field = xr.DataArray(one, {"time_counter": day}, ("y", "x"), name="t")
        field.to_netcdf(tmp_path / f"{day:%d}.nc")
    samples = kh.read(tmp_path)
    np.testing.assert_array_equal(samples.time, days.to_numpy())
    np.testing.assert_array_equal(samples.values[:, 0], values.reshape(6, 12))
