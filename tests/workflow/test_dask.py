"""Selection on dask workers gives what one process gives."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import keyhole as kh
from keyhole.core.executors import Dask
from keyhole.data import values

distributed = pytest.importorskip("distributed")

OPTIONS = {"method": "greedy", "reconstructor": "ridge", "memory": "700KiB"}


def small_panels():
    """Cut even small data into panels of 32 samples, here or on a worker."""
    values.PANEL_VALUES = 1


@pytest.fixture(scope="module")
def cluster():
    """Two workers, each a process of its own, as users have them: importing what they need takes them seconds."""
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made:
        with distributed.Client(made) as client:
            client.run(small_panels)
        yield made


@pytest.fixture
def counted(monkeypatch):
    """Small panels here too; the number of groups of each pass that ran on the workers."""
    monkeypatch.setattr(values, "PANEL_VALUES", 1)
    groups, run = [], Dask.map_reduce

    def count(self, panels, reduction, *, report=None):
        groups.append(panels.n_groups)
        return run(self, panels, reduction, report=report)

    monkeypatch.setattr(Dask, "map_reduce", count)
    return groups


@pytest.fixture
def field(rng):
    """Smooth fields with land, in a store of chunks of 16 samples."""
    waves = np.cos(np.outer(np.arange(12), np.linspace(0, 3, 300)) + rng.uniform(0, 6, (12, 1)))
    made = (rng.normal(size=(400, 12)) / np.arange(1, 13) @ waves + 0.05 * rng.normal(size=(400, 300))).astype("f4")
    made[:, :20] = np.nan
    time = np.datetime64("2000-01-01", "ns") + np.arange(400) * np.timedelta64(1, "D")
    axes = {"time": time, "lat": np.linspace(-40, 40, 15), "lon": np.linspace(0, 190, 20)}
    return xr.DataArray(made.reshape(400, 15, 20), axes, tuple(axes), name="sst")


def same(one, other):
    """To the last bit."""
    np.testing.assert_array_equal(one.indices, other.indices)
    np.testing.assert_array_equal(one.gain, other.gain)
    assert one.metrics == other.metrics
    readings = np.ones((1, len(one.indices)))
    np.testing.assert_array_equal(one.reconstruct(readings).values, other.reconstruct(readings).values)


@pytest.mark.parametrize("source", ["store", "dask array"])
def test_workers_give_the_plan_of_one_process(cluster, counted, field, tmp_path, source):
    """The client that is active is used, for passes in more than one group."""
    path = tmp_path / "field.zarr"
    field.to_dataset().to_zarr(path, consolidated=False, encoding={"sst": {"chunks": (16, 15, 20)}})
    data = path if source == "store" else xr.open_zarr(path, consolidated=False)["sst"] * 2 - 1
    serial = kh.select(data, 5, **OPTIONS)
    assert not counted
    with distributed.Client(cluster):
        plan = kh.select(data, 5, **OPTIONS)
    assert max(counted) > 5
    same(plan, serial)


def test_the_command_line_gives_the_plan_of_one_process(command, cluster, counted, field, tmp_path):
    """With the scheduler's address."""
    field.to_netcdf(tmp_path / "field.nc")
    common = ("select", tmp_path / "field.nc", "-k", 5, "--method", "greedy", "--reconstructor", "ridge")
    for name, options in {"serial": (), "dask": ("--scheduler", cluster.scheduler_address)}.items():
        done = command(*common, "--memory", "700KiB", "--out", tmp_path / f"{name}.keyhole", *options)
        assert done.code == 0, done.err
    assert max(counted) > 5
    same(*(kh.load(tmp_path / f"{name}.keyhole") for name in ("serial", "dask")))


def test_data_in_memory_stay_in_this_process(cluster, counted, field):
    """To send them would take longer than the work on them."""
    with distributed.Client(cluster):
        kh.select(field, 5, method="greedy", reconstructor="ridge")
    assert not counted
