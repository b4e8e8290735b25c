"""Fields whose values are read when needed: in other processes, some samples at a time, without keeping them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from zarr.storage import ZipStore

from keyhole.core.errors import DataError
from keyhole.core.reduction import reduce
from keyhole.data.readers.field_files import open_fields
from keyhole.data.readers.fields import Field

distributed = pytest.importorskip("distributed")


def field(start="2000-01-01", seed=0, n=7):
    values = np.random.default_rng(seed).normal(size=(n, 3, 4)).astype(np.float32)
    axes = {"time": pd.date_range(start, periods=n), "lat": [10.0, 20.0, 30.0], "lon": [0.0, 5.0, 10.0, 15.0]}
    return xr.DataArray(values, axes, tuple(axes), name="t", attrs={"units": "K"})


def members():
    """Time last, a coordinate that is no axis."""
    both = xr.concat([field(), field(seed=1)], pd.Index([1, 2], name="member"))
    return both.transpose("member", "lat", "lon", "time").assign_coords(area=(("lat", "lon"), np.ones((3, 4))))


def of(source, *names, samples=None):
    return Field.from_dataset(source, names or ["t"], samples, None)


@contextmanager
def netcdf(kind):
    field().to_netcdf("field.nc", format=kind, engine="netcdf4")
    with open_fields("field.nc") as one:
        yield one


@contextmanager
def with_engine(engine, kind):
    field().to_netcdf("field.nc", format=kind, engine="netcdf4")
    with xr.open_dataset("field.nc", engine=engine) as dataset:
        yield of(dataset)


@contextmanager
def store(**encoding):
    field().to_dataset().to_zarr("field.zarr", consolidated=False, encoding={"t": encoding})
    with open_fields("field.zarr") as one:
        yield one


@contextmanager
def zipped():
    with ZipStore("field.zarr.zip", mode="w") as target, pytest.warns(UserWarning, match="Duplicate name"):
        field().to_dataset().to_zarr(target, consolidated=False)
    with open_fields("field.zarr.zip") as one:
        yield one


@contextmanager
def joined(**options):
    field("2001-01-01", seed=1).to_netcdf("a.nc")
    field().to_netcdf("b.nc")
    with open_fields(["a.nc", "b.nc"], **options) as one:
        yield one


@contextmanager
def snapshots():
    for number in range(7):
        field().isel(time=number).to_netcdf(f"{number}.nc")
    with open_fields([f"{number}.nc" for number in range(7)]) as one:
        yield one


@contextmanager
def stacked(**chunks):
    members().to_netcdf("members.nc")
    with xr.open_dataset("members.nc", chunks=chunks or None) as dataset:
        yield of(dataset, samples=("member", "time"))


@contextmanager
def several_members():
    members().to_netcdf("a.nc")
    members().assign_coords(time=field("2001-01-01").time).to_netcdf("b.nc")
    with open_fields(["a.nc", "b.nc"], samples=("time", "member")) as one:
        yield one


@contextmanager
def channels():
    """Of different types."""
    xr.Dataset({"t": field(), "u": field(seed=1).astype(float)}).to_netcdf("field.nc")
    with open_fields("field.nc", variable=["t", "u"]) as one:
        yield one


@contextmanager
def grouped():
    field().to_netcdf("field.nc", group="ocean")
    with open_fields("field.nc", group="ocean") as one:
        yield one


@contextmanager
def packed():
    field().to_netcdf("field.nc", encoding={"t": {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -1}})
    with open_fields("field.nc") as one:
        yield one


@contextmanager
def remote(name):
    """Through fsspec, as `read_remote` opens it."""
    with ExitStack() as stack:
        if name.endswith(".zarr"):
            field().to_dataset().to_zarr(name, consolidated=True, zarr_format=2)
            yield of(stack.enter_context(xr.open_dataset(Path(name).absolute().as_uri(), engine="zarr")))
        else:
            field().to_netcdf(name)
            file = stack.enter_context(fsspec.open(Path(name).absolute().as_uri(), "rb"))
            yield of(stack.enter_context(xr.open_dataset(file, engine="h5netcdf")))


@contextmanager
def of_dask():
    """Channels that are computed from one file."""
    field().to_netcdf("field.nc")
    with xr.open_dataset("field.nc", chunks={"time": 3}) as dataset:
        yield of(dataset.assign(u=dataset.t * 2 - dataset.t.mean("time")), "t", "u")


LAZY = {
    "netcdf": lambda: netcdf("NETCDF4"),
    "cdf1": lambda: netcdf("NETCDF3_CLASSIC"),
    "cdf2": lambda: netcdf("NETCDF3_64BIT"),
    "cdf5": lambda: netcdf("NETCDF3_64BIT_DATA"),
    "h5netcdf": lambda: with_engine("h5netcdf", "NETCDF4"),
    "scipy": lambda: with_engine("scipy", "NETCDF3_CLASSIC"),
    "group": grouped,
    "packed": packed,
    "channels": channels,
    "zarr": store,
    "zarr in a zip": zipped,
    "joined": joined,
    "joined, a part": lambda: joined(at={"lat": 20}),
    "snapshots": snapshots,
    "members": stacked,
    "members joined": several_members,
    "remote netcdf": lambda: remote("field.nc"),
    "remote zarr": lambda: remote("field.zarr"),
    "dask": of_dask,
    "dask members": lambda: stacked(time=3),
}
IN_MEMORY = {
    "array": lambda: of(field().to_dataset()),
    "members": lambda: of(members().to_dataset(), samples=("member", "time")),
}


@pytest.fixture(scope="module")
def other():
    """A process of its own, spawned, in another folder."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), os.chdir, ("/",)) as pool:
        yield pool


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which paths are relative."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(pickled, rows):
    return pickle.loads(pickled).values(rows)


@pytest.mark.parametrize("kind", LAZY)
def test_a_lazy_field_is_read_in_another_process(kind, folder, other):
    """By paths, and reading keeps nothing."""
    with LAZY[kind]() as one:
        assert one.is_lazy
        expected = one.values(slice(None))
        assert one.nbytes == expected.nbytes
        assert one.is_lazy
        pickled = pickle.dumps(one)
        assert expected[3, 0, 0].tobytes() not in pickled
        for rows in (slice(2, 5), slice(0, 0)):
            found = other.submit(read, pickled, rows).result()
            np.testing.assert_array_equal(found, expected[rows])
            assert found.dtype == expected.dtype


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_a_field_in_memory_is_sent_with_its_values(kind, other):
    one = IN_MEMORY[kind]()
    assert not one.is_lazy
    assert one.nbytes == one.values(slice(None)).nbytes
    pickled = pickle.dumps(one)
    assert one.arrays[0].values.ravel()[:4].tobytes() in pickled
    np.testing.assert_array_equal(other.submit(read, pickled, slice(2, 5)).result(), one.values(slice(2, 5)))


@pytest.mark.parametrize("dims", [("member", "time"), ("time", "member"), ("member", "time", "lat")])
def test_several_sample_dimensions_are_stacked_as_xarray_does(dims, folder):
    """Without loading them, for any slice."""
    members().to_netcdf("members.nc")
    with open_fields("members.nc", samples=dims) as one:
        stacked = members().stack(sample=dims, create_index=False)
        expected = stacked.transpose("sample", *one.sites.dims).values[:, np.newaxis]
        assert len(one) == len(expected)
        for start in range(0, len(one) + 1, 3):
            for stop in range(start, len(one) + 1, 2):
                np.testing.assert_array_equal(one.values(slice(start, stop)), expected[start:stop])
        np.testing.assert_array_equal(one.time, stacked.time.values)
        assert one.is_lazy


def test_chunks_are_those_of_the_file_or_of_dask(folder):
    with store(chunks=(3, 3, 4)) as one:
        assert one.chunk == 3
    with xr.open_dataset("field.zarr", engine="zarr", consolidated=False, chunks={"time": 6}) as dataset:
        assert of(dataset).chunk == 6  # a chunk of dask is computed as a whole
        assert of(dataset.isel(time=slice(2))).chunk == 2
    assert of(field().to_dataset()).chunk == 1
    lazy = members().chunk(member=1, time=4).to_dataset()
    assert of(lazy, samples=("member", "time")).chunk == 4
    assert of(lazy, samples=("time", "member")).chunk == 1
    assert of(lazy.chunk(member=1, time=7), samples=("member", "time")).chunk == 7
    assert of(lazy.chunk(member=2, time=7), samples=("member", "time")).chunk == 14


class Rows:
    """Each sample of a field is a group."""

    def __init__(self, one):
        self.one, self.n_groups = one, len(one)

    def group(self, number):
        yield self.one.values(slice(number, number + 1))


class Concatenation:
    def start(self):
        return []

    def update(self, state, panel):
        return [*state, panel]

    def merge(self, one, other):
        return one + other


@pytest.fixture(scope="module")
def client():
    """Of a worker with one thread, which a task that waits for another one would block."""
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as made,
    ):
        yield made


@pytest.mark.parametrize("kind", ["netcdf", "zarr", "joined", "dask", "dask members"])
def test_workers_read_what_they_need(kind, folder, client):
    """Arrays of dask are computed within the task."""
    with LAZY[kind]() as one:
        np.testing.assert_array_equal(np.concatenate(reduce(Rows(one), Concatenation())), one.values(slice(None)))


def test_what_the_cluster_holds_is_fetched_from_it(folder, client):
    """A persisted array, alone and as part of another one."""
    held = client.persist(field().chunk(time=2).to_dataset())
    for dataset in (held, held + 1):
        found = reduce(Rows(of(dataset)), Concatenation())
        np.testing.assert_array_equal(np.concatenate(found)[:, 0], dataset.t.values)


def test_a_file_that_workers_do_not_find_is_named(folder, client):
    with netcdf("NETCDF4") as one:
        (folder / "field.nc").unlink()
        with pytest.raises(DataError, match="workers read files themselves and need them at the same path"):
            reduce(Rows(one), Concatenation())


def test_joined_files_share_their_sites(folder):
    """Coordinates of a thousand files would take a thousand times their memory."""
    with joined() as one:
        assert all(part.sites is one.sites for part in one.parts)
