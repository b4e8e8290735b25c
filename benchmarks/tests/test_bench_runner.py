"""Running cases: unfinished ones that go on or start anew, what all their parts cost, and the code that ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from keyhole.core.errors import TrainingError
from keyhole.core.interrupts import Interrupted
from keyhole.core.run import Event
from keyhole.training.checkpoint import StateError
from keyhole_benchmarks import records, runner
from keyhole_benchmarks.records import Case, Store
from keyhole_benchmarks.runner import Job, Outcome, run_jobs

COST = {"seconds": 0.0, "cpu_seconds": 0.0, "peak_mib": 1}


def case(reconstructor: str = "own") -> Case:
    return Case("table1", "digits", "tiny", "vln", reconstructor, 5, 0)


def job(work, *cases: Case) -> Job:
    return Job(cases or [case()], {}, "32-true", work)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path, "table1")


@pytest.fixture
def kept(tmp_path):
    """The folder of an unfinished case, with a state in it."""
    folder = tmp_path / ".unfinished" / case().case_id
    folder.mkdir(parents=True)
    (folder / "learn-vln.state").write_bytes(b"")
    return folder


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """Time that passes when a test says so; the processor works half of it."""
    now = SimpleNamespace(seconds=0.0)
    time = SimpleNamespace(monotonic=lambda: now.seconds, process_time=lambda: now.seconds / 2)
    monkeypatch.setattr(records, "time", time)
    monkeypatch.setattr(runner, "time", time)
    return now


@pytest.fixture
def commit(monkeypatch) -> Iterator[SimpleNamespace]:
    """What git says, which a test may change."""
    now = SimpleNamespace(name="first")
    monkeypatch.setattr(records, "_git", lambda root, *arguments: now.name)
    records.code_in_use.cache_clear()
    yield now
    records.code_in_use.cache_clear()


def test_an_unfinished_case_whose_state_is_refused_starts_anew(store, kept):
    """Once, and it says so; the folder is gone before the second start and after it."""
    said, calls = [], []

    def work(run):
        calls.append(run.folder.exists())
        if run.folder.exists():
            raise StateError("learn-vln.state: belongs to another run")
        yield Outcome({"mse": 0.5}, 5)

    assert run_jobs([job(work)], store, device="cpu", say=said.append) == 1
    assert calls == [True, False]
    assert "anew" in said[0]
    assert "belongs to another run" in said[0]
    assert store.lines()[0]["resumed"] is False
    assert not kept.exists()


def test_other_failures_keep_what_is_unfinished(store, kept):
    """A loss that is not finite is no reason to start anew."""

    def work(run):
        raise TrainingError("the loss is not finite")

    with pytest.raises(TrainingError, match="not finite"):
        run_jobs([job(work)], store, device="cpu", say=str)
    assert (kept / "learn-vln.state").exists()


def test_the_costs_of_a_resumed_case_are_those_of_all_its_parts(store, kept, clock):
    """Stopped in its second case, then in its first, then finished: time adds up case by case, memory does not."""
    both = (case(), case("residual"))

    def working(first: float, second: float, stop_at: str = ""):
        def work(run):
            for name, seconds in (("first", first), ("second", second)):
                clock.seconds += seconds
                if name == stop_at:
                    raise Interrupted("stopped", 2)
                yield Outcome({"mse": 0.5}, 5)

        return work

    for stop_at, first, second in (("second", 100, 10), ("first", 3, 0)):
        with pytest.raises(Interrupted):
            run_jobs([job(working(first, second, stop_at), *both)], store, device="cpu", say=str)
    assert run_jobs([job(working(1, 20), *both)], store, device="cpu", say=str) == 2
    assert [one["seconds"] for one in store.lines()] == [104, 30]
    assert [one["cpu_seconds"] for one in store.lines()] == [52, 15]
    assert all(one["resumed"] for one in store.lines())


def test_the_peak_of_a_resumed_case_is_the_highest_of_its_parts(store, kept):
    (kept / "costs.json").write_text(json.dumps([COST | {"peak_mib": 10**9}]))
    run_jobs([job(lambda run: [Outcome({"mse": 0.5}, 5)])], store, device="cpu", say=str)
    assert store.lines()[0]["peak_mib"] == 10**9


def test_costs_are_kept_while_a_case_runs(store, kept, clock):
    """So that a kill loses only those since; as rarely as its state is saved."""
    seen = []

    def work(run):
        for seconds in (10, 10, 20, 10):
            clock.seconds += seconds
            run.tell(Event("learn vln", 1, 2))
            path = run.folder / "costs.json"
            seen.append(json.loads(path.read_text())[0]["seconds"] if path.exists() else None)
        yield Outcome({"mse": 0.5}, 5)

    run_jobs([job(work)], store, device="cpu", say=str)
    assert seen == [None, None, 40, 40]


def test_costs_are_not_kept_where_no_training_is(store, tmp_path, clock):
    """A case that leaves nothing to go on from starts from nothing."""

    def work(run):
        clock.seconds += 100
        run.tell(Event("qr", 1, 2))
        raise Interrupted("stopped", 2)

    with pytest.raises(Interrupted):
        run_jobs([job(work)], store, device="cpu", say=str)
    assert not (tmp_path / ".unfinished").exists()


def test_a_case_that_starts_anew_forgets_what_it_cost(store, kept, clock):
    (kept / "costs.json").write_text(json.dumps([COST | {"seconds": 1000.0}]))

    def work(run):
        clock.seconds += 5
        if run.folder.exists():
            raise StateError("another version")
        yield Outcome({"mse": 0.5}, 5)

    run_jobs([job(work)], store, device="cpu", say=str)
    assert store.lines()[0]["seconds"] == 5


def test_a_record_names_the_code_that_was_imported(store, commit):
    """A commit made while cases run, even the first, changes nothing: what runs was read before it."""

    def work(run):
        commit.name = "second"
        yield Outcome({"mse": 0.5}, 5)

    run_jobs([job(work, case()), job(work, case("residual"))], store, device="cpu", say=str)
    assert [one["commit"] for one in store.lines()] == ["first", "first"]
