"""Reductions add up panels in the order of their groups, in this process and on dask workers, with the same bits."""

from __future__ import annotations

import os
import platform
import resource
import signal
import subprocess
import sys
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from keyhole.core.errors import DataError, KeyholeError, MissingExtraError, OutOfMemoryError, SettingsError
from keyhole.core.executors import Dask, active_executor, connected, is_worker_task
from keyhole.core.reduction import Serial, reduce

distributed = pytest.importorskip("distributed")


@dataclass
class Blocks:
    """Random panels whose sum depends on their order; ``event`` happens before the third group."""

    n_groups: int = 7
    size: int = 3
    seed: int = 0

    def group(self, number):
        if number == 2:
            self.event()
        for part in range(3):
            rng = np.random.default_rng([self.seed, number, part])
            yield rng.normal(size=self.size) * 10.0 ** rng.integers(-8, 8, size=self.size)

    def event(self):
        pass


@dataclass
class Dying(Blocks):
    """The worker dies, as often as there are no more files ``attempt`` than ``deaths``."""

    folder: Path = Path()
    deaths: int = 1

    def event(self):
        attempts = len(list(self.folder.iterdir()))
        (self.folder / str(attempts)).touch()
        if attempts < self.deaths:
            os._exit(1)


class Damaged(Blocks):
    def event(self):
        raise DataError("field.nc: samples 2 to 3 cannot be read")


@dataclass
class Sums:
    """Sum and order of the panels, in arrays that are changed in place."""

    size: int = 3
    weight: float = 1.0

    def start(self):
        return {"sum": np.zeros(self.size), "first": []}

    def update(self, state, panel):
        state["sum"] += self.weight * panel
        state["first"].append(float(panel[0]))
        return state

    def merge(self, one, other):
        one["sum"] += other["sum"]
        one["first"] += other["first"]
        return one


class Adopting(Sums):
    """Takes the first state that comes back for its own, and changes it in place."""

    def start(self):
        return None

    def update(self, state, panel):
        return super().update(super().start() if state is None else state, panel)

    def merge(self, one, other):
        return other if one is None else super().merge(one, other)


class State:
    """A state that can be referred to weakly."""


@dataclass
class Counted:
    """The largest number of states that are alive at once."""

    alive: weakref.WeakSet = field(default_factory=weakref.WeakSet)
    most: int = 0

    def start(self):
        state = State()
        self.alive.add(state)
        self.most = max(self.most, len(self.alive))
        return state

    def update(self, state, panel):
        return state

    def merge(self, one, other):
        return one


class Environment(Sums):
    """What a task sees: its process, whether it knows that it is a task, its executor, threads of BLAS."""

    def start(self):
        return []

    def update(self, state, panel):
        threads = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
        return [*state, (os.getpid(), is_worker_task(), type(active_executor()).__name__, max(threads))]

    def merge(self, one, other):
        return one + other


class Faults(Environment):
    """Page faults while a hundred arrays of 1 MiB are made, one after the other."""

    def update(self, state, panel):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(100):
            np.ones(2**17)
        return [*state, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before]


@pytest.fixture(scope="module")
def cluster():
    """Two workers, each a process with one thread."""
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made:
        yield made


@pytest.fixture
def client(cluster):
    """The active client, once workers that died in another test are there again."""
    with distributed.Client(cluster) as made:
        made.wait_for_workers(2)
        yield made


def nothing_is_held(client):
    """Whether the client has released all futures; it does so in its event loop."""

    async def caught_up():
        pass

    client.sync(caught_up)
    return not client.futures


def same(one, other):
    return one["sum"].tobytes() == other["sum"].tobytes() and one["first"] == other["first"]


def test_groups_are_added_up_one_by_one_and_merged_in_order():
    """By hand: the sum of the sums of the groups, to the last bit."""
    blocks = Blocks()
    sums = [sum(blocks.group(number), np.zeros(3)) for number in range(7)]
    expected = {"sum": sum(sums, np.zeros(3)), "first": [p[0] for n in range(7) for p in blocks.group(n)]}
    assert same(reduce(blocks, Sums()), expected)


@pytest.mark.parametrize("executor", [Serial(), None])
def test_no_groups_give_the_first_state(executor):
    assert reduce(Blocks(n_groups=0), Sums(), executor=executor)["first"] == []


def test_two_states_are_alive_at_most():
    counted = Counted()
    reduce(Blocks(), counted, executor=Serial())
    assert counted.most == 2


def test_each_group_is_reported():
    told = []
    reduce(Blocks(), Sums(), report=lambda done, total: told.append((done, total)))
    assert told == [(done, 7) for done in range(1, 8)]


def test_dask_is_not_imported():
    """Where nobody has imported it."""
    code = "import sys; from keyhole.core.executors import *; active_executor(); is_worker_task()\n"
    code += "sys.exit('dask' in sys.modules or 'distributed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_a_client_reductions_run_here():
    assert isinstance(active_executor(), Serial)
    assert reduce(Blocks(n_groups=1), Environment())[0][:2] == (os.getpid(), False)


@pytest.mark.parametrize("reduction", [Sums(weight=0.1), Adopting(weight=0.1)])
def test_workers_give_the_bits_of_one_process(client, reduction):
    """On the active client; what comes back can be changed in place."""
    serial = reduce(Blocks(n_groups=23), reduction, executor=Serial())
    assert isinstance(active_executor(), Dask)
    told = []
    found = reduce(Blocks(n_groups=23), reduction, report=lambda done, total: told.append((done, total)))
    assert same(found, serial)
    assert told == [(done, 23) for done in range(1, 24)]
    assert nothing_is_held(client)
    assert reduce(Blocks(n_groups=0), Sums())["first"] == []


def test_panels_in_memory_stay_here(client):
    """To send them would take longer than to go through them."""
    blocks = Blocks()
    blocks.is_lazy = False
    assert reduce(blocks, Environment())[0][:2] == (os.getpid(), False)
    assert reduce(blocks, Environment(), executor=Dask(client))[0][1]


def test_a_task_knows_its_worker(client):
    """It computes in another process, with no more threads of BLAS than the worker has, and submits nothing itself."""
    found = set(reduce(Blocks(), Environment()))
    assert os.getpid() not in {one[0] for one in found}
    assert {one[1:] for one in found} == {(True, "Serial", 1)}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library decides otherwise")
def test_a_task_reuses_memory(client):
    """It takes the pages of an array once, not for each array; dask sets its workers to return them at once."""
    assert set(client.run(os.getenv, "MALLOC_TRIM_THRESHOLD_").values()) == {"65536"}
    each = 2**20 // resource.getpagesize()
    assert all(faults < 10 * each for faults in reduce(Blocks(n_groups=4), Faults()))


def test_large_panels_and_reductions_are_sent_once_without_a_warning(client):
    """Those above dask's threshold, 10 MB."""
    blocks, sums = Blocks(n_groups=2, size=2), Sums(size=2)
    blocks.ballast = np.zeros(3_000_000)
    assert same(reduce(blocks, sums), reduce(blocks, sums, executor=Serial()))


def test_a_worker_that_dies_costs_time_only(client, tmp_path):
    serial = reduce(Blocks(), Sums(), executor=Serial())
    assert same(reduce(Dying(folder=tmp_path), Sums()), serial)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.filterwarnings("ignore:.*has no workers at present")
def test_a_group_that_kills_every_worker_is_an_error(client, tmp_path):
    """After dask's number of attempts."""
    with pytest.raises(OutOfMemoryError, match="workers died at the same part"):
        reduce(Dying(folder=tmp_path, deaths=100), Sums())
    assert len(list(tmp_path.iterdir())) == 4
    assert nothing_is_held(client)


def test_the_error_of_a_task_arrives_as_it_is(client):
    with pytest.raises(DataError, match=r"^field.nc: samples 2 to 3 cannot be read$"):
        reduce(Damaged(n_groups=40), Sums())
    assert nothing_is_held(client)


def test_ctrl_c_cancels_what_is_in_flight(client):
    """The interrupt arrives while the second group is reported."""

    def interrupt(done, total):
        if done == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        reduce(Blocks(n_groups=40), Sums(), report=interrupt)
    assert nothing_is_held(client)
    assert same(reduce(Blocks(), Sums()), reduce(Blocks(), Sums(), executor=Serial()))


def test_two_groups_a_worker_are_in_flight(client, monkeypatch):
    """The caller does not run ahead of the merging."""
    submitted, executor = [], Dask(client)
    submit = executor._submitted
    monkeypatch.setattr(executor, "_submitted", lambda pass_, number: submitted.append(number) or submit(pass_, number))
    ahead = []
    reduce(Blocks(n_groups=20), Sums(), executor=executor, report=lambda done, _: ahead.append(len(submitted) - done))
    assert max(ahead) == 3  # four before the first is done
    assert submitted == list(range(20))


@pytest.mark.parametrize("reachable", [True, False])
def test_states_come_from_the_workers_or_by_way_of_the_scheduler(client, monkeypatch, reachable):
    """If a firewall lies between this process and the workers."""

    async def connect(address, **_):
        raise OSError(f"{address}: timed out")

    if not reachable:
        monkeypatch.setattr("distributed.comm.core.connect", connect)
    gather, asked = client.gather, []
    monkeypatch.setattr(client, "gather", lambda future, direct: asked.append(direct) or gather(future, direct=direct))
    assert same(reduce(Blocks(), Sums()), reduce(Blocks(), Sums(), executor=Serial()))
    assert asked == [reachable] * 7


def test_threads_of_one_worker_share_the_limit_of_blas():
    """Workers in this process, whose own number of threads is as before afterwards."""
    before = threadpool_info()
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster),
    ):
        assert isinstance(active_executor(), Dask)  # this thread is no task
        found = reduce(Blocks(n_groups=8), Environment())
        assert {one[:3] for one in found} == {(os.getpid(), True, "Serial")}
    assert threadpool_info() == before


def test_other_threads_find_the_client(client):
    """Which `contextvars` alone would not give them."""
    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool.submit(active_executor).result(), Dask)


def test_a_scheduler_is_connected_by_its_address(cluster):
    """And left again; other executors are not touched."""
    with connected(cluster.scheduler_address):
        assert {one[2] for one in reduce(Blocks(), Environment())} == {"Serial"}
        assert isinstance(active_executor(), Dask)
    assert isinstance(active_executor(), Serial)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense", "abc://x:1", ""])
def test_an_address_without_a_scheduler_is_refused(address):
    import dask

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(SettingsError, match=f"scheduler='{address}': no dask scheduler answers"),
        connected(address),
    ):
        pass
    assert isinstance(active_executor(), Serial)


def test_a_cluster_without_workers_says_so(monkeypatch):
    """Which may be about to start them; here one is started by the warning."""
    with (
        distributed.LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster),
    ):
        monkeypatch.setattr(warnings, "warn", lambda message, category, **_: told.append(message) or cluster.scale(1))
        told = []
        assert same(reduce(Blocks(), Sums()), reduce(Blocks(), Sums(), executor=Serial()))
    assert told[0] == f"{cluster.scheduler_address} has no workers at present; waiting for one"


def test_a_scheduler_that_is_lost_is_an_error():
    """And not a wait without end."""
    cluster = distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    with distributed.Client(cluster), pytest.raises(KeyholeError, match="connection to the dask scheduler was lost"):
        reduce(Blocks(), Sums(), report=lambda *_: cluster.close())


def test_a_missing_dask_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(MissingExtraError, match=r"keyhole\[dask\]"), connected("tcp://127.0.0.1:1"):
        pass
