"""Data larger than memory: the same sites and errors as in memory, within what is allowed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr
from typer.testing import CliRunner

import keyhole as kh
from keyhole.cli import app
from keyhole.core.errors import DataError, SettingsError
from keyhole.core.memory import parse_size
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.data.scaler import Scaler
from keyhole.models.principal_components import principal_components
from keyhole.workflow.stored import open_store, select_stored
from keyhole.workflow.stored.components import leading_components, sketch

SMALL = "2MiB"


def field(samples: int = 240, seed: int = 0, channels: int = 1) -> xr.Dataset:
    """Smooth fields with land and a seasonal cycle, on latitude and longitude."""
    rng = np.random.default_rng(seed)
    lat, lon = np.linspace(-60, 60, 13), np.linspace(0, 342, 20)
    time = np.datetime64("2000-01", "M") + np.arange(samples)
    far = np.square(lat[:, None, None, None] - lat[:, None]) / 900 + np.square(lon[:, None, None] - lon) / 8000
    modes = np.linalg.cholesky(np.exp(-far.transpose(0, 1, 2, 3).reshape(260, 260) / 2) + 1e-6 * np.eye(260))
    names = [f"v{i}" for i in range(channels)]
    made = {}
    for name in names:
        values = (rng.standard_normal((samples, 260)) @ modes.T).reshape(samples, 13, 20)
        values += 5 * np.cos(2 * np.pi * np.arange(samples) / 12)[:, None, None] + 280
        values[:, :2, :5] = np.nan
        made[name] = (("time", "lat", "lon"), values.astype(np.float32))
    axes = {"time": time.astype("datetime64[ns]"), "lat": lat, "lon": lon}
    return xr.Dataset(made, axes)


@pytest.fixture(params=["zarr", "netcdf"])
def path(request, tmp_path):
    made = field()
    if request.param == "zarr":
        target = tmp_path / "field.zarr"
        made.to_zarr(target, consolidated=False, encoding={"v0": {"chunks": (16, 13, 20)}})
    else:
        target = tmp_path / "field.nc"
        made.to_netcdf(target, encoding={"v0": {"chunksizes": (16, 13, 20)}})
    return target


@pytest.mark.parametrize("method", ["greedy", "qr"])
def test_sites_and_errors_are_those_of_memory(path, method):
    whole = kh.select(kh.read(path).anomalies(), 6, method=method, reconstructor="ridge")
    with open_store(path, SMALL) as store:
        assert store.step < len(store)
        plan = select_stored(store.anomalies(), 6, method=method)
    np.testing.assert_array_equal(plan.indices, whole.indices)
    assert plan.metadata["data"]["fingerprint"] == whole.metadata["data"]["fingerprint"]
    for part in ("validation", "test"):
        for name in ("rmse", "fvu", "rmse_area"):
            assert plan.metrics[part][name] == pytest.approx(whole.metrics[part][name], rel=1e-4)
    assert plan.metrics["test"]["coverage_90"] == pytest.approx(whole.metrics["test"]["coverage_90"], abs=0.02)


def test_what_few_components_do_not_hold_is_that_of_all_samples(path):
    settings = {"n_components": 3}
    whole = kh.select(kh.read(path), 5, method="greedy", reconstructor="ridge", settings=settings)
    with open_store(path, SMALL) as store:
        plan = select_stored(store, 5, method="greedy", settings=settings)
    np.testing.assert_array_equal(plan.indices, whole.indices)


def test_auto_takes_the_better_of_two_on_validation(path):
    with open_store(path, SMALL) as store:
        plan = select_stored(store, 5)
        alone = {method: select_stored(store, 5, method=method) for method in ("greedy", "qr")}
    best = min(alone, key=lambda method: alone[method].metrics["validation"]["fvu_area"])
    np.testing.assert_array_equal(plan.indices, alone[best].indices)


def test_a_mask_distribution_learns_from_chunks_and_is_the_same_once_more(path):
    settings = {"train": {"steps": 40, "batch_size": 32}, "decoder": "dense"}
    with open_store(path, SMALL) as store:
        plans = [select_stored(store, 4, method="vln", settings=settings) for _ in range(2)]
    assert len(set(plans[0].indices.tolist())) == 4
    np.testing.assert_array_equal(plans[0].indices, plans[1].indices)


def test_orders_hold_every_sample_once_and_few_chunks_at_a_time(path):
    with open_store(path, "1MiB") as store:
        scaler = Scaler.fit(store.read(0, 240))
        part = store.part(np.arange(0, 200), scaler)
        order = part.order(torch.Generator().manual_seed(1))
        np.testing.assert_array_equal(np.sort(order.numpy()), np.arange(200))
        expected = scaler.apply(store.read(0, 240)).targets[[130, 3]]
        np.testing.assert_array_equal(part.fetch(np.array([130, 3])), expected)
        together = int(0.25 * store.memory / store.sample_bytes)
        first = order[: min(together, 16)].numpy() // 16
        assert len(set(first.tolist())) <= max(1, together // 16)


@pytest.mark.parametrize(("samples", "memory"), [(480, SMALL), (240, "300KiB")])
def test_components_are_those_of_all_samples(tmp_path, samples, memory):
    """By subspace iteration where samples outnumber the sites, else by inner products of samples."""
    path = tmp_path / "field.zarr"
    field(samples).to_zarr(path, consolidated=False, encoding={"v0": {"chunks": (16, 13, 20)}})
    parts = prepare(kh.read(path), None, 0)
    expected = principal_components(parts.development, 8)
    with open_store(path, memory) as store:
        part = store.part(parts.split.development, parts.scaling)
        assert len(part.groups(0.25)) > 1 or len(part) > 250
        found = leading_components(part, 8, Run())
        stand_in = sketch(part, found)
    np.testing.assert_allclose(found[0], expected.variances, rtol=1e-3)
    again = principal_components(stand_in, 8)
    np.testing.assert_allclose(again.variances, found[0], rtol=1e-4)
    inner = again.basis.reshape(-1, 8).T @ expected.basis.reshape(-1, 8)
    np.testing.assert_allclose(np.abs(np.diag(inner))[:4], 1, atol=1e-2)
    assert stand_in.n_training == len(parts.development)


def test_several_variables_are_channels(tmp_path):
    chunks = {name: {"chunks": (24, 13, 20)} for name in ("v0", "v1")}
    field(channels=2).to_zarr(tmp_path / "two.zarr", consolidated=False, encoding=chunks)
    whole = kh.select(kh.read(tmp_path / "two.zarr", variable=["v0", "v1"]), 4, method="greedy", reconstructor="ridge")
    with open_store(tmp_path / "two.zarr", SMALL, variable=["v0", "v1"]) as store:
        plan = select_stored(store, 4, method="greedy")
    np.testing.assert_array_equal(plan.indices, whole.indices)


def test_missing_values_are_refused_and_said(tmp_path):
    made = field()
    made["v0"][3, 6, 6] = np.nan
    made.to_zarr(tmp_path / "gaps.zarr", consolidated=False)
    with pytest.raises(DataError, match="1 of 250 sites"), open_store(tmp_path / "gaps.zarr", SMALL):
        pass


def test_too_little_memory_is_said_before_anything_is_read(path):
    with pytest.raises(DataError, match="lie together"), open_store(path, "64KiB"):
        pass
    with open_store(path, "600KiB") as store, pytest.raises(SettingsError, match=r"need .* KiB of memory"):
        select_stored(store, 5, method="greedy")


@pytest.mark.parametrize("method", ["exchange", "kernel_exchange", "cae", "cgan"])
def test_what_needs_memory_is_refused(path, method):
    with open_store(path, SMALL) as store, pytest.raises(SettingsError, match="needs the data in memory"):
        select_stored(store, 5, method=method)


@pytest.mark.parametrize("text", ["", "2 bananas", "-1GiB", "0", "GiB"])
def test_a_size_must_be_one(text):
    with pytest.raises(SettingsError, match="a size is needed"):
        parse_size(text)


@pytest.mark.parametrize("path", ["zarr"], indirect=True)
def test_the_command_line_writes_plan_and_report(path, tmp_path):
    out, report = tmp_path / "p.keyhole", tmp_path / "r.html"
    given = ["select", str(path), "-k", "5", "--memory", SMALL, "--anomalies", "month", "--method", "greedy"]
    done = CliRunner().invoke(app, [*given, "--out", str(out), "--report", str(report)])
    assert done.exit_code == 0, done.output
    assert kh.load(out).k == 5
    assert "<html" in report.read_text()[:200].lower()
    refused = CliRunner().invoke(app, [*given, "--failures", "1"])
    assert refused.exit_code == 2
    assert "--memory" in refused.output


def test_a_chunk_that_cannot_be_read_is_named(path, monkeypatch):
    with open_store(path, SMALL) as store:
        broken = next(file for file in sorted(path.rglob("c/*/*/*")) if file.is_file()) if path.is_dir() else None
        if broken is None:
            pytest.skip("NetCDF's library reads by itself")
        broken.write_bytes(b"nothing of the kind")
        with pytest.raises(DataError, match=r"v0: samples .* cannot be read"):
            select_stored(store, 5, method="greedy")


def test_several_files_are_gone_through_as_one(tmp_path):
    """The same sites and errors as those of one file, from the command line too."""
    made = field()
    made.to_netcdf(tmp_path / "whole.nc")
    parts = tmp_path / "parts"
    parts.mkdir()
    for n, start in enumerate(range(0, 240, 50)):
        made.isel(time=slice(start, start + 50)).to_netcdf(
            parts / f"{9 - n}.nc", encoding={"v0": {"chunksizes": (16, 13, 20)}}
        )
    with open_store(tmp_path / "whole.nc", SMALL) as store:
        whole = select_stored(store, 4, method="qr")
    with open_store(sorted(parts.iterdir()), SMALL) as store:
        assert store.step < len(store)
        plan = select_stored(store, 4, method="qr")
    np.testing.assert_array_equal(plan.indices, whole.indices)
    assert plan.metrics["test"]["rmse"] == pytest.approx(whole.metrics["test"]["rmse"], rel=1e-5)
    for source in ([str(parts)], map(str, parts.iterdir())):
        out = tmp_path / "plan.keyhole"
        done = CliRunner().invoke(
            app, ["select", *source, "-k", "4", "--method", "qr", "--memory", SMALL, "--out", str(out)]
        )
        assert done.exit_code == 0, done.output
        np.testing.assert_array_equal(kh.load(out).indices, whole.indices)
