"""The benchmark of speed: ratios, not seconds."""

from __future__ import annotations

import pytest

from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.records import Store
from keyhole_benchmarks.runner import run_jobs
from keyhole_benchmarks.sections import speed as section
from keyhole_benchmarks.speed import SPEED_TESTS, SpeedTest, jobs
from keyhole_benchmarks.tasks import TaskPair, field_of


def test_a_timed_task_leaves_a_line_and_a_row(tmp_path, monkeypatch):
    turns = []
    pair = TaskPair(lambda: turns.append("ours"), lambda: turns.append("theirs"), 0.1, lambda: {"our_error": 0.25})
    monkeypatch.setitem(SPEED_TESTS, "toy", SpeedTest("a / b", 1.5, lambda: pair, rounds=3))
    store = Store(tmp_path, "speed")
    run_jobs(jobs(["toy"], (0,)), store, device="cpu", say=str)
    assert turns == ["ours", "theirs"] * 4  # one go each does not count
    lines = Lines(store.lines())
    metrics = lines.records[0]["metrics"]
    assert metrics["ratio"] == pytest.approx(0.1 * metrics["ours"] / metrics["theirs"])
    assert "our error 0.250" in "\n".join(section(lines))


@pytest.mark.parametrize("name", ["reconstruct", "curve"])
def test_what_needs_nothing_else_can_be_timed(name):
    pair = SPEED_TESTS[name].prepare()
    pair.ours()
    pair.theirs()


def test_a_made_up_field_has_the_size_and_spread_asked_for():
    values = field_of(40, 12_345, 0)
    assert values.shape == (40, 12_345)
    assert 0.5 < values.std() < 10
