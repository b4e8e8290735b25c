"""Plans of sensors apart from sites: readings, tables, files, and what extends or reduces them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from rich.console import Console

import keyhole as kh
from example_data import monthly_field, smooth
from keyhole import Plan
from keyhole.core.storage import read_container, write_container
from keyhole.data import Sensors
from keyhole.errors import PlanError, SettingsError
from keyhole.plan.files import sites_geojson, write_sites
from keyhole.report.tables import plan_table
from keyhole.workflow.comparison import single

POSITIONS = {"lat": [10.0, -30.0, 45.0, 20.0], "lon": [100.0, 200.0, 150.0, 80.0]}
MOORINGS = Sensors.at(POSITIONS, names=list("ABCD"), noise=[0.1, 0.5, 0.2, 0.3], cost=[1, 2, 3, 4], kind=list("xyxy"))
KINDS = {"cheap": Sensors.every_site(noise=1.0, cost=1.0), "dear": Sensors.every_site(noise=0.1, cost=3.0)}


@pytest.fixture(scope="module")
def samples() -> Any:
    return kh.read(monthly_field(80)).anomalies("month")


@pytest.fixture(scope="module")
def plan(samples) -> Plan:
    return kh.select(samples, 3, sensors=MOORINGS, method="exchange", reconstructor="ridge")


def test_the_table_says_where_the_sensors_are(plan):
    table = plan.sites
    assert table.columns.tolist() == [
        "rank", "index", "name", "lat", "lon", "kind", "noise", "cost", "gain", "stability", "existing"
    ]  # fmt: skip
    numbers = plan.indices
    assert table["name"].tolist() == [list("ABCD")[number] for number in numbers]
    for name, column in POSITIONS.items():
        assert table[name].tolist() == [column[number] for number in numbers]
    assert table["kind"].tolist() == [list("xyxy")[number] for number in numbers]


def test_the_summary_counts_the_kinds(plan):
    shown = io.StringIO()
    Console(file=shown, width=200).print(plan_table(plan))
    assert f"sensors: {plan.sensors.counted()}" in shown.getvalue()
    assert sorted(plan.sensors.counted().split(", ")) == sorted(
        f"{count} {kind}" for kind, count in plan.sites["kind"].value_counts().items()
    )


def test_readings_are_taken_in_rank_order_or_by_name(plan, samples):
    observed = samples.with_sensors(MOORINGS)
    readings, time = observed.noisy_readings(plan.indices)[:5, :, 0], samples.time[:5]
    first = plan.reconstruct(readings, time=time)
    assert isinstance(first, xr.DataArray)
    frame = pd.DataFrame(readings, columns=plan.names)[plan.names[::-1]]
    xr.testing.assert_allclose(plan.reconstruct(frame, time=time), first)
    table = plan.sites
    labelled = xr.DataArray(
        readings[:, ::-1], {"lat": ("at", table["lat"][::-1]), "lon": ("at", table["lon"][::-1])}, ["time", "at"]
    )
    xr.testing.assert_allclose(plan.reconstruct(labelled, time=time), first)
    with pytest.raises(PlanError, match="no column for site 'B'"):
        plan.reconstruct({**dict.fromkeys(set(plan.names) - {"B"}, 1.0), "Z": 1.0}, time=time[:1])


def test_a_missing_reading_is_imputed_by_the_others(plan, samples):
    readings = samples.with_sensors(MOORINGS).noisy_readings(plan.indices)[:5, :, 0]
    readings[0, 1] = np.nan
    assert np.isfinite(plan.reconstruct(readings, time=samples.time[:5]).values).any()


def test_the_mean_is_reconstructed_from_readings_of_the_mean(plan, samples):
    """Baselines of sensors are their rows of the climatology."""
    january = plan.scaling.baseline[0].astype(float)
    readings = (plan.sensors.operator @ january.ravel())[np.newaxis]
    found = samples.sites.from_grid(plan.reconstruct(readings, time=["2001-01-15"]).values)
    offset = np.abs(found[0] - january[0]).max()
    assert offset < 0.3 * plan.scaling.scale[0]  # what ridge has as its offset


@pytest.mark.parametrize("reconstructor", ["ridge", "optimal_interpolation", "kernel", "dense"])
def test_a_plan_comes_back_from_its_file(tmp_path, samples, reconstructor):
    settings = {"reconstructor.train.steps": 3, "reconstructor.width": 4} if reconstructor == "dense" else None
    made = kh.select(samples, 2, sensors=MOORINGS, method="greedy", reconstructor=reconstructor, settings=settings)
    made.save(tmp_path / "a.keyhole")
    again = kh.load(tmp_path / "a.keyhole")
    readings, time = samples.with_sensors(MOORINGS).noisy_readings(made.indices)[:4], samples.time[:4]
    xr.testing.assert_allclose(again.reconstruct(readings, time=time), made.reconstruct(readings, time=time))
    pd.testing.assert_frame_equal(again.sites, made.sites)
    again.save(tmp_path / "b.keyhole")
    assert (tmp_path / "a.keyhole").read_bytes() == (tmp_path / "b.keyhole").read_bytes()
    distance = again.sensors.sites.metric.distances([0], [1])
    np.testing.assert_allclose(distance, made.sensors.sites.metric.distances([0], [1]))
    np.testing.assert_array_equal(again.readings_of(samples), made.readings_of(samples))  # with the same noise


@pytest.mark.parametrize("kind", ["channels", "table", "graph", "rows"])
def test_plans_of_all_kinds_of_sensors_come_back(tmp_path, kind):
    sensors: Any = KINDS
    data: Any = kh.read(smooth(60, 12))
    if kind == "channels":
        data = kh.read(smooth(60, 4, 5, 2), channels=-1)
        sensors = Sensors.at({"row": [0.5, 2.0], "column": [1.5, 3.0]}, variable=[0, 1], noise=0.1)
    elif kind == "table":
        data = kh.read(pd.DataFrame(smooth(60, 5), columns=list("abcde")))
    elif kind == "graph":
        path = np.diag(np.ones(11), 1)
        data = data.with_graph(path + path.T)
    else:
        sensors = Sensors.of_rows(np.random.default_rng(0).random((3, 12)))
    made = kh.select(data, 2, sensors=sensors, method="greedy", reconstructor="optimal_interpolation")
    made.save(tmp_path / "plan.keyhole")
    again, readings = kh.load(tmp_path / "plan.keyhole"), np.ones((2, 2))
    np.testing.assert_array_equal(np.asarray(again.reconstruct(readings)), np.asarray(made.reconstruct(readings)))
    pd.testing.assert_frame_equal(again.sites, made.sites)


def test_plans_without_sensors_are_written_as_before(tmp_path):
    kh.select(smooth(40, 4, 5), 2, method="qr", reconstructor="ridge").save(tmp_path / "plain.keyhole")
    header, arrays = read_container(tmp_path / "plain.keyhole", "plan")
    assert "sensors" not in header
    assert not any(name.startswith("sensors") for name in arrays)


CHANGES: dict[str, Any] = {
    "names that are the same": (lambda h, a: h["sensors"].update(names=["A", "A", "A"]), "different names"),
    "kinds for others": (lambda h, a: h["sensors"].update(kinds=["x"]), "as many kinds"),
    "noise below zero": (lambda h, a: a.update({"sensors.noise": -a["sensors.noise"]}), "cannot be"),
    "weights beyond the data": (lambda h, a: a["sensors.indices"].__setitem__(0, 18), "none of the 18"),
    "a sensor without weights": (lambda h, a: a["sensors.indptr"].__setitem__(1, 0), "each sensor its weights"),
    "weights of zero": (lambda h, a: a["sensors.data"].__setitem__(slice(None), 0), "without a weight"),
    "other sensors": (lambda h, a: a.update({"sites.index": a["sites.index"] + 1}), "different sensors"),
    "the same sensor twice": (lambda h, a: a.update({"sensors.keys": a["sensors.keys"] * 0}), "more than once"),
    "a role of nothing": (lambda h, a: h["sensors"]["roles"].update(vertical="depth"), "not there"),
    "no rows": (lambda h, a: a.pop("sensors.indptr"), "sensors.indptr"),
    "one reading more": (lambda h, a: a.update({"sites.range": np.zeros((2, 4, 1))}), "sites.range"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_damaged_sensors_are_refused(tmp_path, plan, change):
    plan.save(tmp_path / "plan.keyhole")
    header, arrays = read_container(tmp_path / "plan.keyhole", "plan")
    arrays = {name: np.array(array) for name, array in arrays.items()}
    alter, said = CHANGES[change]
    alter(header, arrays)
    header.pop("format", None)
    write_container(tmp_path / "other.keyhole", header, arrays)
    with pytest.raises(PlanError, match=said):
        kh.load(tmp_path / "other.keyhole")


def test_sites_are_exported_where_the_sensors_are(tmp_path, plan):
    found = sites_geojson(plan)["features"][0]
    assert found["geometry"]["coordinates"] == pytest.approx([plan.sites["lon"][0], plan.sites["lat"][0]])
    write_sites(plan, tmp_path / "sites.nc")
    with xr.open_dataset(tmp_path / "sites.nc", engine="h5netcdf") as written:
        np.testing.assert_allclose(written["site_lat"], plan.sites["lat"])
        assert int(written["rank_on_grid"].max()) >= 1


def test_the_report_shows_them(tmp_path, samples):
    from keyhole.data.preparation import prepare
    from keyhole.report import write_report

    observed = samples.with_sensors(MOORINGS)
    made = kh.select(observed, 3, method="greedy", reconstructor="ridge")
    write_report(single(made, prepare(observed, None, 0)), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert all(f">{name}<" in page for name in made.names)


# Extending and reducing ---------------------------------------------------------------------------------------------


def test_a_plan_is_extended_by_sensors_of_the_same_list(samples):
    first = kh.select(samples, 2, sensors=KINDS, method="greedy", reconstructor="ridge")
    more = kh.extend(first, samples, 2, sensors=KINDS, method="greedy")
    assert more.names[:2] == first.names
    assert more.sites["existing"].tolist() == [True, True, False, False]
    assert len(set(more.indices.tolist())) == 4
    np.testing.assert_array_equal(more.readings_of(samples)[:, :2], first.readings_of(samples))


def test_a_plan_is_extended_by_other_sensors(tmp_path, plan, samples):
    plan.save(tmp_path / "plan.keyhole")
    others = Sensors.at({"lat": [0.0, 5.0], "lon": [20.0, 150.0]}, names=["E", "F"], noise=0.1)
    more = kh.extend(kh.load(tmp_path / "plan.keyhole"), samples, 1, sensors=others, method="greedy")
    assert more.names[:3] == plan.names
    assert more.names[3] in ("E", "F")
    assert len(set(more.indices.tolist())) == 4
    more.save(tmp_path / "more.keyhole")
    assert kh.load(tmp_path / "more.keyhole").names == more.names
    with pytest.raises(SettingsError, match="say which may be added"):
        kh.extend(plan, samples, 1, method="greedy")


def test_sensors_are_dropped(tmp_path, plan, samples):
    plan.save(tmp_path / "plan.keyhole")
    less = kh.drop(kh.load(tmp_path / "plan.keyhole"), samples, 1)
    (dropped,) = less.metadata["notes"]["dropped"]
    assert {*less.names, dropped["site"]} == set(plan.names)
    assert dropped["index"] in plan.indices
    assert set(less.indices) < set(plan.indices)


# The command line ---------------------------------------------------------------------------------------------------


def test_from_a_file_to_a_reconstruction(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(POSITIONS | {"name": list("ABCD"), "noise": 0.2, "cost": [1, 2, 3, 4], "kind": list("xyxy")})
    table.to_csv("moorings.csv", index=False)
    monthly_field(80).to_netcdf("field.nc")
    options = ("--method", "greedy", "--reconstructor", "ridge", "--sensors", "moorings.csv", "--anomalies", "none")
    made = command("select", "field.nc", "-k", 2, *options, "--out", "plan.keyhole", "--json")
    assert made.code == 0, made.err
    assert json.loads(made.out)["k"] == 2
    plan = kh.load("plan.keyhole")
    assert set(plan.names) < set("ABCD")
    Path("readings.csv").write_text(",".join(plan.names) + "\n20,21\n")
    done = command("reconstruct", "plan.keyhole", "readings.csv", "--out", "fields.npy")
    assert done.code == 0, done.err
    assert np.load("fields.npy").shape == (1, 4, 5)
    by_cost = command(
        "select", "field.nc", "--cost-limit", 3, *options, "--interpolation", "nearest", "--out", "b.keyhole"
    )
    assert by_cost.code == 0, by_cost.err
    assert kh.load("b.keyhole").sites["cost"].sum() <= 3


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("lat,lon\n95,0\n", (), "lat=95 is outside the data"),
        ("lat\n5\n", (), "'lon' is missing"),
        ("name,lat,lon\nA,0,0\nA,1,1\n", (), "called 'A'"),
        ("lat,lon,noise\n0,0,-1\n", (), "noise"),
        ("lat,lon\n0,0\n", ("--interpolation", "cubic"), "linear or nearest"),
        ("lat,lon\n0,0\n", ("--method", "learned"), "needs a sensor at each site"),
    ],
)
def test_bad_files_are_told_without_a_traceback(tmp_path, monkeypatch, command, content, options, said):
    monkeypatch.chdir(tmp_path)
    Path("moorings.csv").write_text(content)
    monthly_field().to_netcdf("field.nc")
    found = command("select", "field.nc", "-k", 1, "--sensors", "moorings.csv", *options)
    assert found.code in (1, 2)
    assert said in " ".join(found.err.replace("│", " ").split())
    assert "Traceback" not in found.err
