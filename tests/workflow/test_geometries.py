"""One field in four geometries: a regular grid, a curvilinear one, shuffled cells, stations. All must give the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import keyhole as kh
from keyhole import Plan
from keyhole.data.coordinates import Auxiliary
from keyhole.data.graph_metric import GraphMetric
from keyhole.data.origin import SourceInfo
from keyhole.data.samples import Samples
from keyhole.data.sites import Sites
from keyhole.errors import PlanError, SettingsError
from keyhole.plan.files import write_reconstruction, write_sites

FIELDS = ("curvilinear", "cells", "stations")
FORMS = (*FIELDS, "table")
CORNERS = [[100, -40], [200, -40], [290, -40], [290, 20], [200, 45], [100, 20], [100, -40]]
POLYGON = {"type": "Polygon", "coordinates": [CORNERS]}


@cache
def regular() -> xr.DataArray:
    """Sea-surface temperature on every second parallel and meridian, with land."""
    sst = kh.datasets.sst()
    axes = {"time": sst.time, **{dim: sst.sites.axes[dim] for dim in ("lat", "lon")}}
    about = {"units": "degC", "standard_name": "sea_surface_temperature"}
    return xr.DataArray(sst.sites.to_grid(sst.values[:, 0]), axes, tuple(axes), "sst", about)[::2, ::2, ::2]


def curvilinear() -> xr.DataArray:
    """The same on an array whose axes say nothing, the columns first."""
    latitude, longitude = np.meshgrid(regular().lat, regular().lon, indexing="ij")
    bare = regular().rename(lat="y", lon="x").drop_vars(["y", "x"]).transpose("time", "x", "y")
    return bare.assign_coords(nav_lat=(("y", "x"), latitude), nav_lon=(("y", "x"), longitude))


def cells() -> xr.DataArray:
    """The same as a list of cells in no order, land included."""
    flat = regular().stack(ncells=("lat", "lon")).reset_index("ncells")
    flat["lat"].attrs, flat["lon"].attrs = {"units": "degrees_north"}, {"units": "degrees_east"}
    return flat.isel(ncells=np.random.default_rng(0).permutation(flat.sizes["ncells"]))


def stations() -> xr.Dataset:
    """The same as time series of stations that have identifiers, without land; longitudes from -180."""
    sea = cells().isel(ncells=cells().notnull().any("time").values)
    sea = sea.assign_coords(lon=(sea.lon + 180) % 360 - 180).rename(ncells="station", lat="latitude", lon="longitude")
    identifiers = [f"S{number:03d}" for number in range(sea.sizes["station"])]
    found = sea.to_dataset().assign_attrs(featureType="timeSeries")
    return found.assign(station_id=("station", identifiers, {"cf_role": "timeseries_id"}))


def table() -> Samples:
    """The same as a frame of readings, a column for each site, and a frame of their positions."""
    sea = cells().isel(ncells=cells().notnull().any("time").values)
    readings = pd.DataFrame(sea.values, sea.time.values, [f"T{number:03d}" for number in range(sea.sizes["ncells"])])
    places = pd.DataFrame({"lat": sea.lat.values, "lon": sea.lon.values}, readings.columns)
    sites = Sites.build(
        (len(places),), ("column",), {"column": np.arange(len(places))}, names=tuple(places.index),
        auxiliary={name: Auxiliary(("column",), places[name].to_numpy()) for name in places},
    )  # fmt: skip
    return Samples.build(
        readings.to_numpy()[:, np.newaxis],
        sites,
        time=readings.index.to_numpy(),
        origin=SourceInfo("table", name="sst"),
    )


DATA: dict[str, Callable[[], Any]] = {
    "regular": regular, "curvilinear": curvilinear, "cells": cells, "stations": stations, "table": table,
}  # fmt: skip


@cache
def plan_of(form: str, method: str = "greedy", reconstructor: str = "ridge") -> Plan:
    samples = kh.read(DATA[form]())
    # A fixed gap, with which the restarts of exchange, which go by the numbers of the sites, end in the same optimum.
    split = kh.Split.blocks(len(samples), time=samples.time, gap=2)
    return kh.select(samples, 6, method=method, reconstructor=reconstructor, split=split)


def positions(plan: Plan) -> list[tuple[float, float]]:
    """Latitude and longitude of the sites by rank."""
    latitude, longitude = (plan.sites[plan.domain.roles[role]] for role in ("latitude", "longitude"))
    return list(zip(latitude.round(6), (longitude % 360).round(6), strict=True))


def by_position(plan: Plan, values: np.ndarray) -> np.ndarray:
    """Values of the valid sites ``(..., m)``, sorted by their position."""
    latitude, longitude = plan.domain.role("latitude"), plan.domain.role("longitude")
    return values[..., np.lexsort((longitude % 360, latitude))]


def typical(plan: Plan) -> np.ndarray:
    """The lowest and the highest reading of each site, as two samples."""
    return plan.ranges[:, :, 0]


def quick(data: Any, k: int = 4, **options: Any) -> Plan:
    return kh.select(data, k, method="greedy", reconstructor="ridge", **options)


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=FIELDS)
def field(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("reconstructor", ["ridge", "optimal_interpolation"])
@pytest.mark.parametrize("method", ["greedy", "exchange"])
def test_every_geometry_gives_the_same_sites_and_errors(form, method, reconstructor):
    plan, expected = plan_of(form, method, reconstructor), plan_of("regular", method, reconstructor)
    assert positions(plan) == positions(expected)
    np.testing.assert_allclose(plan.gain, expected.gain, rtol=1e-3, atol=1e-6)
    for part, scores in expected.metrics.items():
        assert plan.metrics[part].keys() == scores.keys()
        np.testing.assert_allclose(list(plan.metrics[part].values()), list(scores.values()), rtol=1e-5)


def test_weights_and_distances_are_the_same(form):
    """By area of the cells, and along the great circle."""
    plan, expected = plan_of(form), plan_of("regular")
    for one in (plan, expected):
        assert "rmse_area" in one.metrics["test"]
    roots = [by_position(one, one.scaling.root) for one in (plan, expected)]
    np.testing.assert_allclose(*roots, rtol=1e-6)
    first, second = (one.domain.metric.distances(one.numbers, one.numbers) for one in (plan, expected))
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_the_table_of_sites_has_their_latitude_and_longitude(form):
    table, roles = plan_of(form).sites, plan_of(form).domain.roles
    assert list(table.columns[:3]) == ["rank", "index", "name"]
    assert table.columns[3:5].tolist() == [roles["latitude"], roles["longitude"]]
    assert table["name"].is_unique
    if form in ("stations", "table"):
        assert table["name"].str.fullmatch(r"[ST]\d{3}").all()


def test_what_is_reconstructed_is_like_the_data(field):
    """Dimensions and coordinates, auxiliary ones included, are those of the data; land is missing."""
    plan, data = plan_of(field), DATA[field]()
    data = data["sst"] if isinstance(data, xr.Dataset) else data
    readings = kh.read(DATA[field]()).readings(plan.indices)[:3, :, 0]
    found = plan.reconstruct(readings, time=data.time.values[:3])
    assert found.dims == data.dims
    assert found.attrs == data.attrs
    assert set(found.coords) == set(data.coords)
    for name in data.coords:
        xr.testing.assert_identical(found.coords[name].drop_vars(data.dims, errors="ignore"),
                                    data[:3].coords[name].drop_vars(data.dims, errors="ignore"))  # fmt: skip
    assert found.isnull().equals(data[:3].isnull())
    expected = plan_of("regular").reconstruct(readings, time=data.time.values[:3])
    found, expected = (by_position(one, one.domain.from_grid(array.values)) for one, array in
                       ((plan, found), (plan_of("regular"), expected)))  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_a_file_holds_the_geometry(form, tmp_path):
    plan = plan_of(form)
    plan.save(tmp_path / "plan.keyhole")
    again = kh.load(tmp_path / "plan.keyhole")
    assert (again.domain.dims, again.domain.shape) == (plan.domain.dims, plan.domain.shape)
    assert (again.domain.roles, again.domain.names) == (plan.domain.roles, plan.domain.names)
    assert again.domain.auxiliary.keys() == plan.domain.auxiliary.keys()
    for name, (dims, values) in plan.domain.auxiliary.items():
        assert again.domain.auxiliary[name].dims == dims
        np.testing.assert_array_equal(again.domain.auxiliary[name].values, values)
    pd.testing.assert_frame_equal(again.sites, plan.sites)
    sites = np.arange(0, len(plan.domain), 50)
    np.testing.assert_array_equal(
        again.domain.metric.distances(sites, sites), plan.domain.metric.distances(sites, sites)
    )
    found, expected = (one.reconstruct(typical(plan), time=["2001-01-15", "2001-07-15"]) for one in (again, plan))
    assert found.equals(expected)


def test_readings_are_found_by_coordinate(field):
    """As they come from `sel` or from a table, in any order."""
    plan, table = plan_of(field), plan_of(field).sites.sample(frac=1, random_state=0)
    roles = plan.domain.roles
    values = typical(plan)[0][table["rank"] - 1]
    labels = {name: ("buoy", table[name].to_numpy()) for name in (roles["latitude"], roles["longitude"])}
    given = xr.DataArray([values], {"time": pd.to_datetime(["2001-01-15"]), **labels}, ("time", "buoy"))
    expected = plan.reconstruct(typical(plan)[0], time="2001-01-15")
    xr.testing.assert_identical(plan.reconstruct(given), expected)
    elsewhere = given.assign_coords({roles["latitude"]: given[roles["latitude"]] + 0.4})
    with pytest.raises(PlanError, match="is no site of the plan's data; take the nearest one"):
        plan.reconstruct(elsewhere)


def test_existing_sites_are_found_by_coordinate(form):
    existing = [{"lat": 7.5, "lon": 182.5}, {"lat": -42.5, "lon": -37.5}]
    plan = quick(DATA[form](), constraints={"existing": existing})
    assert positions(plan)[:2] == [(7.5, 182.5), (-42.5, 322.5)]
    assert positions(plan) == positions(quick(regular(), constraints={"existing": existing}))
    assert plan.sites["existing"].tolist() == [True, True, *[False] * 4]


def test_the_sites_of_a_plan_are_existing_sites_of_another(form):
    """A table of sites names the same places, in memory and in whatever geometry."""
    table = plan_of("regular").sites
    for given in (table, plan_of(form).sites):
        plan = quick(DATA[form](), 2, constraints={"existing": given})
        assert positions(plan)[:6] == positions(plan_of("regular"))


@pytest.mark.parametrize(
    "constraints",
    [
        {"allowed": {"lat": (-30, 30)}},
        {"allowed": POLYGON},
        {"forbidden": POLYGON, "min_distance": 3000},
        {"min_distance": 4000},
    ],
    ids=["box", "polygon", "outside a polygon", "distance"],
)
def test_regions_and_distances_hold(form, constraints):
    plan, expected = (quick(DATA[name](), constraints=constraints) for name in (form, "regular"))
    assert positions(plan) == positions(expected)
    distances = plan.domain.metric.distances(plan.numbers, plan.numbers)[np.triu_indices(plan.k, 1)]
    assert distances.min() >= constraints.get("min_distance", 0)


def test_costs_are_aligned_by_coordinate(form):
    """Given on the regular grid, for data in another form."""
    costs = xr.zeros_like(regular()[0].drop_vars("time")) + 1 + np.abs(regular().lat) / 30
    costs = costs.fillna(1.0) if form == "regular" else costs.stack(p=("lat", "lon")).dropna("p").reset_index("p")
    found = quick(DATA[form](), None, constraints={"costs": costs, "cost_limit": 9})
    expected = quick(regular(), None, constraints={"costs": costs.fillna(1.0), "cost_limit": 9})
    assert positions(found) == positions(expected)


@pytest.mark.parametrize("suffix", [".geojson", ".csv", ".nc"])
def test_sites_are_written(form, tmp_path, suffix):
    plan, path = plan_of(form), tmp_path / f"sites{suffix}"
    write_sites(plan, path)
    latitude, longitude = plan.domain.roles["latitude"], plan.domain.roles["longitude"]
    if suffix == ".geojson":
        points = [one["geometry"]["coordinates"] for one in json.loads(path.read_text())["features"]]
        found = [(north, east % 360) for east, north in points]
    elif suffix == ".csv":
        table = pd.read_csv(path)
        found = list(zip(table[latitude], table[longitude] % 360, strict=True))
    else:
        with xr.open_dataset(path) as data:
            found = list(zip(data[f"site_{latitude}"].values, data[f"site_{longitude}"].values % 360, strict=True))
            assert data["rank_on_grid"].values.ravel()[plan.indices].tolist() == list(range(1, 7))
    np.testing.assert_allclose(found, positions(plan))


def test_reconstructions_are_written_with_their_coordinates(field, tmp_path):
    plan, time = plan_of(field), ["2001-01-15", "2001-07-15"]
    write_reconstruction(plan, typical(plan), tmp_path / "field.nc", time)
    with xr.open_dataset(tmp_path / "field.nc") as written:
        expected = plan.reconstruct(typical(plan), time=time)
        xr.testing.assert_allclose(written["sst"].load(), expected)
        again = kh.read(written.load())
    assert again.sites.roles == plan.domain.roles
    np.testing.assert_allclose(again.sites.role("latitude"), plan.domain.role("latitude"))


def test_networks_are_extended_and_reduced_in_another_geometry(form):
    """Sites are found again by name or by coordinate, however the data are ordered."""
    first = plan_of(form if form in ("stations", "table") else "cells")
    more = kh.extend(first, DATA[form](), 2, method="greedy")
    assert positions(more)[:6] == positions(first)
    fewer = kh.drop(more, DATA[form](), 3)
    assert set(positions(fewer)) <= set(positions(more))
    assert fewer.k == 5


def test_a_table_of_stations_is_reconstructed_as_a_table():
    """With a column for each station; readings may be labelled by name."""
    plan = plan_of("table")
    given = pd.DataFrame(typical(plan), pd.to_datetime(["2001-01-15", "2001-07-15"]), plan.names).iloc[:, ::-1]
    found = plan.reconstruct(given)
    assert tuple(found.columns) == plan.domain.names
    expected = plan.reconstruct_array(typical(plan)[:, :, np.newaxis], given.index.to_numpy())
    np.testing.assert_allclose(found.to_numpy(), expected[:, 0])


def test_sites_with_further_coordinates_are_found_again():
    """Elevations and names of basins stand in the table of sites, and do not keep it from saying where they are."""
    count = stations().sizes["station"]
    more = {"elevation": ("station", np.arange(count) * 10.0), "basin": ("station", ["north", "south"] * (count // 2))}
    plan = quick(stations().assign_coords(more), 3)
    assert plan.sites.columns.tolist()[3:7] == ["latitude", "longitude", "elevation", "basin"]
    again = quick(stations().assign_coords(more), 2, constraints={"existing": plan.sites})
    assert positions(again)[:3] == positions(plan)


def test_positions_in_radians_come_out_in_degrees():
    """With units that say so."""
    about = {"standard_name": "latitude", "units": "radian"}
    radians = cells().assign_coords(
        clat=("ncells", np.deg2rad(cells().lat.values), about),
        clon=("ncells", np.deg2rad(cells().lon.values), {"standard_name": "longitude", "units": "radian"}),
    ).drop_vars(["lat", "lon"])  # fmt: skip
    plan = quick(radians, 2)
    found = plan.reconstruct(typical(plan), time=["2001-01-15", "2001-07-15"])
    np.testing.assert_allclose(found["clat"], cells().lat, rtol=1e-6)
    assert found["clat"].attrs["units"] == "degrees_north"
    assert found["clon"].attrs["units"] == "degrees_east"


def test_curves_and_comparisons_are_the_same(form):
    """Rows name positions in the data."""
    found, expected = (kh.curve(DATA[name](), (2, 4), ("greedy",)) for name in (form, "regular"))
    for one, other in zip(found.rows, expected.rows, strict=True):
        np.testing.assert_allclose(list(one.test.values()), list(other.test.values()), rtol=1e-5)
    assert found.rows[1].sites.tolist() == quick(DATA[form](), 4, refit=False).indices.tolist()
    compared, expected = (kh.compare(DATA[name](), 4, ["greedy", "qr"]) for name in (form, "regular"))
    assert [entry.method for entry in compared.entries] == [entry.method for entry in expected.entries]
    np.testing.assert_allclose(compared.choice.curve, expected.choice.curve, rtol=1e-4)


def test_commands_take_every_geometry(field, tmp_path, monkeypatch, command):
    """From a file to sites in GeoJSON, and to one more site in another geometry."""
    monkeypatch.chdir(tmp_path)
    DATA[field]().to_netcdf("data.nc")
    cells().to_netcdf("cells.nc")
    Path("there.csv").write_text("lat,lon\n7.5,182.5\n")
    quickly = ("--method", "greedy", "--reconstructor", "ridge")
    where = ("--existing", "there.csv", "--min-distance", 2000, "--allow", "lat=-40..40")
    assert command("select", "data.nc", "-k", 2, *quickly, *where, "--out", "plan.keyhole").code == 0
    assert command("sites", "plan.keyhole", "--out", "sites.geojson").code == 0
    first, *others = json.loads(Path("sites.geojson").read_text())["features"]
    assert first["geometry"]["coordinates"] == [-177.5, 7.5]
    assert len(others) == 2
    assert command("extend", "plan.keyhole", "cells.nc", "-k", 1, *quickly, "--out", "more.keyhole").code == 0
    assert positions(kh.load("more.keyhole"))[:3] == positions(kh.load("plan.keyhole"))


def test_convolutions_need_a_regular_grid():
    with pytest.raises(SettingsError, match="two"):
        kh.select(cells(), 3, method="greedy", reconstructor="resnet")


def test_depth_beside_cells_makes_sites_of_their_own():
    """Depth is an axis, latitude and longitude come with the cells; groups are moorings."""
    deep = xr.concat([cells(), 0.8 * cells() + 2], pd.Index([0.0, 100.0], name="depth")).transpose("time", ...)
    plan = quick(deep, 2, constraints={"groups": "depth"})
    assert plan.sites["depth"].tolist() == [0.0, 100.0] * 2
    assert plan.sites["lat"].nunique() <= 2
    again = quick(deep, 1, constraints={"existing": [{"lat": 7.5, "lon": 182.5, "depth": 100}]})
    assert again.sites.loc[0, ["lat", "lon", "depth"]].tolist() == [7.5, 182.5, 100.0]


def test_a_vertical_scale_is_saved(tmp_path):
    """A metre of depth counts like ten kilometres along the surface, also once the plan is loaded."""
    deep = xr.concat([cells(), 0.8 * cells() + 2], pd.Index([0.0, 100.0], name="depth")).transpose("time", ...)
    deep["depth"].attrs = {"axis": "Z", "units": "m", "positive": "down"}
    plan = quick(kh.read(deep, vertical_scale=10.0), 2)
    plan.save(tmp_path / "plan.keyhole")
    first, again = plan.domain, kh.load(tmp_path / "plan.keyhole").domain
    upper, lower = first.number([first.index[0], first.index[0] + 648])
    assert first.metric.distances([upper], [lower]) == pytest.approx(1000)
    np.testing.assert_array_equal(again.metric.points, first.metric.points)
    assert again.vertical_scale == 10


def test_a_graph_is_saved_with_its_plan(tmp_path):
    """Distances along the edges, also over nodes that are no valid sites."""
    lengths = np.diag(np.arange(1.0, 12.0), 1)
    metric = GraphMetric(lengths + lengths.T, unit="m").take(np.arange(1, 12))
    values = np.random.default_rng(0).normal(size=(60, 11)).cumsum(axis=1)
    samples = kh.read(values)
    plan = quick(replace(samples, sites=replace(samples.sites, metric=metric)), 3, constraints={"min_distance": 5.0})
    plan.save(tmp_path / "plan.keyhole")
    again = kh.load(tmp_path / "plan.keyhole").domain.metric
    assert again.unit == "m"
    np.testing.assert_array_equal(again.distances(range(11), range(11)), metric.distances(range(11), range(11)))
