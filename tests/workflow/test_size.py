"""Fields that stay in their file: the same sites and errors as in memory, within what is allowed."""

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
from keyhole.data.batches import StoredBatches
from keyhole.data.preparation import prepare
from keyhole.models.principal_components import principal_components
from keyhole.placement.sketch import sketch

SMALL = "700KiB"  # a little less than three times the field below


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


@pytest.mark.parametrize("method", ["greedy", "qr", "exchange"])
@pytest.mark.parametrize("anomalies", ["month", "none"])
def test_sites_and_errors_are_those_of_memory(path, method, anomalies):
    options = {"method": method, "reconstructor": "ridge", "anomalies": anomalies, "refit": False}
    whole = kh.select(path, 6, **options)
    plan = kh.select(path, 6, memory=SMALL, **options)
    assert "memory" not in whole.metadata
    assert plan.metadata["memory"] == parse_size(SMALL)
    assert plan.metadata["data"]["fingerprint"] == whole.metadata["data"]["fingerprint"]
    if method == "exchange":  # the search goes by fewer components there, and may end in another optimum
        assert plan.metrics["validation"]["fvu"] == pytest.approx(whole.metrics["validation"]["fvu"], rel=0.05)
        return
    np.testing.assert_array_equal(plan.indices, whole.indices)
    for part in ("validation", "test"):
        for name in ("rmse", "fvu", "rmse_area", "fvu_area"):
            assert plan.metrics[part][name] == pytest.approx(whole.metrics[part][name], rel=1e-5)
    assert plan.metrics["test"]["coverage_90"] == pytest.approx(whole.metrics["test"]["coverage_90"], abs=0.1)
    np.testing.assert_allclose(plan.gain, whole.gain, atol=1e-5)
    np.testing.assert_allclose(plan.ranges, whole.ranges, rtol=1e-6)


@pytest.mark.parametrize("reconstructor", ["ridge", "optimal_interpolation"])
def test_a_reconstructor_is_that_of_memory(path, reconstructor):
    options = {"method": "greedy", "reconstructor": reconstructor, "noise": 0.3, "weights": {"lat": (-30, 30)}}
    options["refit"] = False
    whole, plan = kh.select(path, 5, **options), kh.select(path, 5, memory=SMALL, **options)
    np.testing.assert_array_equal(plan.indices, whole.indices)
    readings = np.random.default_rng(0).normal(280, 3, size=(4, 5))
    times = np.datetime64("2021-03-01") + np.arange(4) * np.timedelta64(40, "D")
    expected, found = (one.reconstruct(readings, time=times).values for one in (whole, plan))
    np.testing.assert_allclose(found, expected, atol=2e-3, equal_nan=True)


def test_a_dask_array_is_gone_through_in_the_same_way(tmp_path):
    dask = pytest.importorskip("dask.array")
    made = field()["v0"]
    loaded = []
    chunked = made.chunk({"time": 16})
    chunked = chunked.copy(data=dask.map_blocks(lambda block: loaded.append(block.nbytes) or block, chunked.data))
    plan = kh.select(chunked, 4, method="greedy", reconstructor="ridge", memory=SMALL)
    whole = kh.select(made, 4, method="greedy", reconstructor="ridge", refit=False)
    np.testing.assert_array_equal(plan.indices, whole.indices)
    assert max(loaded) < made.nbytes / 10


def test_auto_takes_a_linear_method_that_is_better_than_any_simpler_one(path):
    plan = kh.select(path, 5, memory=SMALL, reconstructor="ridge")
    scores, chosen = plan.metadata["notes"]["scores"], plan.metadata["notes"]["chosen"]
    assert list(scores) == ["greedy", "qr", "exchange"]
    simpler = list(scores)[: list(scores).index(chosen)]
    assert all(scores[chosen] < scores[one] for one in simpler)


def test_what_few_components_do_not_hold_is_that_of_all_samples(path):
    options = {"method": "greedy", "reconstructor": "ridge", "settings": {"n_components": 3}, "refit": False}
    whole, plan = kh.select(path, 5, **options), kh.select(path, 5, memory=SMALL, **options)
    np.testing.assert_array_equal(plan.indices, whole.indices)


def test_a_mask_distribution_learns_from_chunks_and_is_the_same_once_more(path):
    settings = {"train": {"steps": 40, "batch_size": 32}, "decoder": "dense"}
    plans = [kh.select(path, 4, method="vln", memory=SMALL, settings=settings) for _ in range(2)]
    assert len(set(plans[0].indices.tolist())) == 4
    np.testing.assert_array_equal(plans[0].indices, plans[1].indices)


def test_batches_hold_every_sample_once_and_few_chunks_at_a_time(path):
    whole, stored = (prepare(kh.read(path, memory=memory), None, 0).train for memory in (None, SMALL))
    batches = StoredBatches(stored, 100 * stored.channels * len(stored.sites) * 4)
    order = batches.order(torch.Generator().manual_seed(1))
    np.testing.assert_array_equal(np.sort(order.numpy()), np.arange(len(stored)))
    np.testing.assert_allclose(batches.fetch(np.array([130, 3])), whole.targets[[130, 3]], atol=1e-5)
    assert len(set((order[:25].numpy() // 3).tolist())) <= 9  # 25 samples are kept, in chunks of three


@pytest.mark.parametrize("samples", [480, 240])
def test_components_are_those_of_all_samples(tmp_path, samples):
    """By subspace iteration where sites outnumber the samples, else by the covariance of the sites."""
    path = tmp_path / "field.zarr"
    field(samples).to_zarr(path, consolidated=False, encoding={"v0": {"chunks": (16, 13, 20)}})
    whole, stored = (prepare(kh.read(path, memory=memory), None, 0).development for memory in (None, SMALL))
    assert stored.memory is not None
    expected, found = (principal_components(one, 8) for one in (whole, stored))
    np.testing.assert_allclose(found.variances, expected.variances, rtol=1e-4)
    inner = np.abs(np.diag(found.basis.reshape(-1, 8).T @ expected.basis.reshape(-1, 8)))
    np.testing.assert_allclose(inner[:6], 1, atol=1e-3)
    stand_in = principal_components(sketch(stored, 8), 8)
    np.testing.assert_allclose(stand_in.variances, found.variances, rtol=1e-4)


def test_several_variables_are_channels(tmp_path):
    chunks = {name: {"chunks": (24, 13, 20)} for name in ("v0", "v1")}
    field(channels=2).to_zarr(tmp_path / "two.zarr", consolidated=False, encoding=chunks)
    whole, stored = (
        kh.read(tmp_path / "two.zarr", variable=["v0", "v1"], memory=memory) for memory in (None, "1400KiB")
    )
    plans = [kh.select(data, 4, method="greedy", reconstructor="ridge", refit=False) for data in (whole, stored)]
    np.testing.assert_array_equal(plans[0].indices, plans[1].indices)
    assert plans[1].metrics["test"]["rmse[v0]"] == pytest.approx(plans[0].metrics["test"]["rmse[v0]"], rel=1e-5)


def test_missing_values_are_refused_and_said(tmp_path):
    made = field()
    made["v0"][3, 6, 6] = np.nan
    made.to_zarr(tmp_path / "gaps.zarr", consolidated=False, encoding={"v0": {"chunks": (16, 13, 20)}})
    with pytest.raises(DataError, match="1 of 250 sites"):
        kh.read(tmp_path / "gaps.zarr", memory=SMALL)


def test_land_that_the_first_sample_hides_is_found(tmp_path):
    made = field()
    made["v0"][:, 7, 3] = np.nan
    made["v0"][0, 8, 8] = 280
    made["v0"][1:, 8, 8] = 280
    first = made.copy(deep=True)
    first["v0"][0] = first["v0"][0].where(True)
    first.to_netcdf(tmp_path / "field.nc", encoding={"v0": {"chunksizes": (16, 13, 20)}})
    whole, stored = (kh.read(tmp_path / "field.nc", memory=memory) for memory in (None, SMALL))
    np.testing.assert_array_equal(whole.sites.index, stored.sites.index)
    assert whole.fingerprint() == stored.fingerprint()


def test_too_little_memory_is_said(path):
    with pytest.raises(DataError, match="lie together"):
        kh.read(path, memory="64KiB")
    with pytest.raises(SettingsError, match=r"need .* of memory"):
        kh.select(path, 5, method="greedy", memory="150KiB")


@pytest.mark.parametrize("method", ["kernel_exchange", "cae", "cgan", "lasso"])
def test_a_method_that_needs_memory_says_so(path, method):
    with pytest.raises(SettingsError, match="needs the data in memory"):
        kh.select(path, 5, method=method, memory=SMALL)


def test_a_reconstructor_that_needs_memory_says_so(path):
    with pytest.raises(SettingsError, match="'dense' needs the data in memory"):
        kh.select(path, 5, method="qr", reconstructor="dense", memory=SMALL)
    with pytest.raises(SettingsError, match="failures"):
        kh.select(path, 5, method="qr", failures=1, memory=SMALL)


@pytest.mark.parametrize("text", ["", "2 bananas", "-1GiB", "0", "GiB"])
def test_a_size_must_be_one(text):
    with pytest.raises(SettingsError, match="a size is needed"):
        parse_size(text)


@pytest.mark.parametrize("path", ["zarr"], indirect=True)
def test_the_command_line_writes_plan_and_report_and_says_its_route(path, tmp_path):
    out, report = tmp_path / "p.keyhole", tmp_path / "r.html"
    given = ["select", str(path), "-k", "5", "--memory", SMALL, "--anomalies", "month", "--method", "greedy"]
    done = CliRunner().invoke(app, [*given, "--out", str(out), "--report", str(report)])
    assert done.exit_code == 0, done.output
    assert "read in passes within 700 KiB of memory" in done.output
    assert kh.load(out).k == 5
    assert "<html" in report.read_text()[:200].lower()
    refused = CliRunner().invoke(app, [*given, "--failures", "1", "--out", str(tmp_path / "q.keyhole")])
    assert refused.exit_code == 1
    assert "memory" in refused.output


def test_a_chunk_that_cannot_be_read_is_named(path):
    stored = kh.read(path, memory=SMALL)
    broken = next(file for file in sorted(path.rglob("c/*/*/*")) if file.is_file()) if path.is_dir() else None
    if broken is None:
        pytest.skip("NetCDF's library reads by itself")
    broken.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"v0: samples .* cannot be read"):
        kh.select(stored, 5, method="greedy")


def test_several_files_are_gone_through_as_one(tmp_path):
    """The same sites and errors as those of one file."""
    made = field()
    made.to_netcdf(tmp_path / "whole.nc")
    parts = tmp_path / "parts"
    parts.mkdir()
    for n, start in enumerate(range(0, 240, 50)):
        made.isel(time=slice(start, start + 50)).to_netcdf(
            parts / f"{9 - n}.nc", encoding={"v0": {"chunksizes": (16, 13, 20)}}
        )
    whole = kh.select(tmp_path / "whole.nc", 4, method="qr", reconstructor="ridge", refit=False)
    plan = kh.select(sorted(parts.iterdir()), 4, method="qr", reconstructor="ridge", memory=SMALL)
    np.testing.assert_array_equal(plan.indices, whole.indices)
    assert plan.metrics["test"]["fvu"] == pytest.approx(whole.metrics["test"]["fvu"], rel=1e-5)


def test_every_workflow_keeps_within_the_memory(path):
    options = {"method": "greedy", "reconstructor": "ridge"}
    first = kh.select(path, 4, **options)
    plans = [
        kh.extend(first, path, k=1, memory=SMALL, **options),
        kh.drop(first, path, k=1, memory=SMALL),
        kh.compare(path, 4, ["greedy"], memory=SMALL).choice.plan,
    ]
    assert [plan.metadata["memory"] for plan in plans] == [parse_size(SMALL)] * 3
    whole, found = (kh.curve(path, [2, 4], ["greedy"], memory=memory) for memory in (None, SMALL))
    np.testing.assert_allclose(found.frame()["test_fvu"], whole.frame()["test_fvu"], rtol=1e-5)


def test_samples_that_were_read_take_no_memory_limit(path):
    with pytest.raises(DataError, match="memory does not apply to samples that were already read"):
        kh.select(kh.read(path), 4, memory=SMALL)


@pytest.mark.parametrize("kind", ["int8", "int16", "float16"])
def test_values_count_by_the_size_they_have_once_they_are_read(kind):
    whole = xr.DataArray(np.zeros((100, 4, 5)), dims=("time", "y", "x")) + np.arange(100)[:, None, None]
    chunked = whole.astype(kind).chunk({"time": 10})
    assert kh.read(chunked, memory=2 * whole.astype(np.float32).nbytes).memory is not None


def test_every_pass_reports_its_progress(path):
    seen = set()
    samples = kh.read(path, memory=SMALL)
    kh.compare(samples, 4, ["greedy"], callbacks=[lambda event: seen.add(event.stage)])
    assert "read sites" in seen


def test_an_infinity_is_found_in_its_sample(tmp_path):
    made = field()
    made["v0"][130, 6, 6] = np.inf
    made.to_netcdf(tmp_path / "field.nc", encoding={"v0": {"chunksizes": (16, 13, 20)}})
    with pytest.raises(DataError, match="infinite values, in sample 130 for the first time"):
        kh.read(tmp_path / "field.nc", memory=SMALL)


def test_a_dask_array_without_names_is_refused_with_the_remedy():
    dask = pytest.importorskip("dask.array")
    with pytest.raises(DataError, match=r"give xarray.DataArray\(array, dims="):
        kh.read(dask.zeros((20, 4, 5)))


def test_commands_take_a_memory_limit_and_say_how_they_read(command, path):
    plan, first = path.with_name("first.keyhole"), ("--method", "greedy", "--reconstructor", "ridge")
    commands = [
        ("select", path, "-k", 3, *first, "--out", plan),
        ("extend", plan, path, "-k", 1, *first, "--out", path.with_name("extended.keyhole")),
        ("drop", plan, path, "-k", 1, "--out", path.with_name("reduced.keyhole")),
        ("compare", path, "-k", 2, "--methods", "greedy"),
        ("curve", path, "-k", "2,3", "--methods", "greedy"),
    ]
    for words in commands:
        done = command(*words, "--memory", SMALL)
        assert done.code == 0, done.err
        assert "stay where they are stored" in done.err


def test_a_limit_that_does_not_hold_is_said(tmp_path):
    made = field()["v0"].fillna(0)
    np.save(tmp_path / "field.npy", made.values)
    for source in (made, made.values, tmp_path / "field.npy"):
        with pytest.warns(kh.errors.KeyholeWarning, match=r"are in memory, .* more than the 700 KiB"):
            assert kh.read(source, memory=SMALL).memory is None
    kh.read(made, memory="700MiB")


def test_what_needs_all_values_says_so(path):
    with pytest.raises(DataError, match="needs all values in memory at once"):
        kh.read(path, memory=SMALL).channels_apart()
