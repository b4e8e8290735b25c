"""Batches that are read in the background: the same ones, in order, by one thread, and errors where they belong."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import keyhole as kh
from example_data import smooth
from keyhole.core.interrupts import Interrupted
from keyhole.core.run import Run
from keyhole.data.batches import Prefetched
from keyhole.data.values import DeferredValues
from keyhole.placement import learned as learned_masks
from keyhole.placement.learned import Learned

BATCHES = [np.arange(start, start + 4) for start in range(0, 40, 4)]


class Shelf:
    """A source that keeps who read what, and can be held up or fail."""

    def __init__(self, values=None, *, broken_at=None, stop_at=None):
        self.values = np.arange(40, dtype=np.float32) if values is None else values
        self.spread = self.values.reshape(len(self.values), -1).var(axis=0, dtype=np.float64)
        self.broken_at, self.stop_at, self.read, self.readers = broken_at, stop_at, [], set()
        self.free, self.busy, self.done = threading.Event(), threading.Event(), threading.Semaphore(0)
        self.free.set()

    def __len__(self):
        return len(self.values)

    def order(self, generator):
        return torch.randperm(len(self), generator=generator)

    def fetch(self, places):
        self.busy.set()
        self.free.wait()
        self.read.append(places.tolist())
        self.readers.add(threading.get_ident())
        if self.broken_at is not None and self.broken_at in places:
            raise OSError(f"sample {self.broken_at} cannot be read")
        if len(self.read) == self.stop_at:
            os.kill(os.getpid(), signal.SIGINT)
        self.done.release()
        return self.values[places]


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("keyhole-batches")]


@pytest.mark.parametrize("ahead", [0, 1, 2, 5])
def test_batches_are_those_of_the_source_each_read_once_by_one_thread(ahead):
    shelf = Shelf()
    prefetched = Prefetched(shelf)
    for i, batch in enumerate(BATCHES):
        prefetched.announce(BATCHES[i : i + 1 + ahead])
        np.testing.assert_array_equal(prefetched.fetch(batch), shelf.values[batch])
    prefetched.close()
    assert shelf.read == [batch.tolist() for batch in BATCHES]
    assert len(shelf.readers) == 1
    assert threading.get_ident() not in shelf.readers
    assert not reading_threads()


def test_the_next_batch_is_read_while_the_current_one_is_used():
    shelf = Shelf()
    prefetched = Prefetched(shelf)
    prefetched.announce(BATCHES[:2])
    prefetched.fetch(BATCHES[0])
    prefetched.announce(BATCHES[1:2])
    assert all(shelf.done.acquire(timeout=60) for _ in range(2))  # nobody fetches the second
    prefetched.close()
    assert shelf.read == [BATCHES[0].tolist(), BATCHES[1].tolist()]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(1, 4)), max_size=12))
def test_whatever_is_announced_what_is_fetched_is_right(calls):
    """Announcements are hints: dropped where they were wrong, never taken for what is asked for."""
    shelf = Shelf()
    prefetched = Prefetched(shelf)
    for announces, first, count in calls:
        if announces:
            prefetched.announce(BATCHES[first : first + count])
        else:
            np.testing.assert_array_equal(prefetched.fetch(BATCHES[first]), shelf.values[BATCHES[first]])
    prefetched.close()
    assert not reading_threads()


def test_an_error_is_raised_by_the_fetch_of_its_batch():
    """Not before, and the batches ahead of it are had; after it reading goes on."""
    prefetched = Prefetched(Shelf(broken_at=6))
    prefetched.announce(BATCHES[:3])
    assert prefetched.fetch(BATCHES[0])[0] == 0
    with pytest.raises(OSError, match="sample 6 cannot be read"):
        prefetched.fetch(BATCHES[1])
    assert prefetched.fetch(BATCHES[2])[0] == 8
    prefetched.close()


def test_announcements_that_were_wrong_are_dropped_before_they_are_read():
    shelf = Shelf()
    shelf.free.clear()
    prefetched = Prefetched(shelf)
    prefetched.announce(BATCHES[:5])
    shelf.busy.wait()  # in the first one
    prefetched.announce(BATCHES[7:8])
    shelf.free.set()
    np.testing.assert_array_equal(prefetched.fetch(BATCHES[7]), shelf.values[BATCHES[7]])
    assert shelf.read == [BATCHES[0].tolist(), BATCHES[7].tolist()]
    prefetched.close()


def test_what_was_closed_can_be_closed_again_and_read_from():
    prefetched = Prefetched(shelf := Shelf())
    prefetched.announce(BATCHES[:3])
    prefetched.close()
    prefetched.close()
    np.testing.assert_array_equal(prefetched.fetch(BATCHES[3]), shelf.values[BATCHES[3]])
    assert not reading_threads()


TRAIN = {"steps": 12, "batch_size": 8, "validation_steps": 3, "ema_decay": 0.0}


class Stored(DeferredValues):
    """Values that say that they stay in a file."""

    memory = 2**30

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def read(self, rows):
        return self.values[rows]

    def columns(self, sites):
        return self.values[:, :, sites]


@pytest.fixture
def learned(monkeypatch):
    """Weights and history of masks trained from a shelf, and what was read."""

    def run_learned(run, **source):
        samples = kh.read(smooth(40, 4, 4).astype(np.float32).reshape(40, 16)).as_scaled()
        shelf = Shelf(samples.targets, **source)
        monkeypatch.setattr(learned_masks, "StoredBatches", lambda *_: shelf)
        stored = replace(samples, data=Stored(samples.targets))
        try:
            task, history = Learned(decoder="dense", warm_start="none", train=TRAIN).learn(stored, 3, run)
        finally:
            assert not reading_threads()
        return {name: tensor.numpy() for name, tensor in task.state_dict().items()}, history, shelf

    return run_learned


def test_training_from_a_source_is_training_in_memory(learned):
    """Bit for bit: reading ahead draws nothing. Three epochs of five batches, whose last two are not used."""
    samples = kh.read(smooth(40, 4, 4).astype(np.float32).reshape(40, 16)).as_scaled()
    task, history = Learned(decoder="dense", warm_start="none", train=TRAIN).learn(samples, 3, Run(seed=2))
    weights, found, shelf = learned(Run(seed=2))
    assert found == history
    for name, tensor in task.state_dict().items():
        np.testing.assert_array_equal(weights[name], tensor.numpy(), err_msg=name)
    assert len(shelf.readers) == 1
    read = [set(places) for places in shelf.read]
    assert all(len(set().union(*read[start : start + 5])) == 40 for start in (0, 5))
    assert len(read) <= 12 + 2


def test_an_interrupted_training_ends_the_thread_and_goes_on_bit_for_bit(learned, tmp_path):
    expected, history, _ = learned(Run(seed=2))
    run = Run(seed=2, folder=tmp_path)
    with pytest.raises(Interrupted):
        learned(run, stop_at=7)
    weights, found, _ = learned(replace(run, resume=True))
    assert found == history
    for name, array in expected.items():
        np.testing.assert_array_equal(weights[name], array, err_msg=name)


def test_an_unreadable_batch_ends_the_training_with_its_error(learned):
    with pytest.raises(OSError, match="sample 6 cannot be read"):
        learned(Run(seed=2), broken_at=6)
