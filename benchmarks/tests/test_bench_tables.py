"""The benchmark of tables: selectors of features at equal K."""

from __future__ import annotations

import json

import numpy as np
import pytest

from keyhole_benchmarks.drawing import draw_features
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.peers import PEERS, Table
from keyhole_benchmarks.records import Store
from keyhole_benchmarks.runner import run_jobs
from keyhole_benchmarks.sections import tables as section
from keyhole_benchmarks.tables import jobs

pytestmark = pytest.mark.filterwarnings("ignore")  # of peers


def two_that_matter() -> Table:
    """Thirty columns, of which the sum of two tells the class."""
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((300, 30))
    return Table(samples, (samples[:, 3] + samples[:, 17] > 0).astype(np.int64), 2, 0, 5.0)


@pytest.mark.parametrize("name", [name for name in PEERS if name != "keyhole_reconstruction"])
def test_every_selector_finds_what_predicts_the_class(name):
    if not PEERS[name].is_there():
        pytest.skip(f"{PEERS[name].package} is not installed")
    assert PEERS[name].choose(two_that_matter()).tolist() == [3, 17]


def test_lines_become_a_table_and_a_picture(tmp_path):
    store = Store(tmp_path, "tables")
    chosen = ("f_test", "keyhole_reconstruction", "keyhole")
    run_jobs(jobs(("breast_cancer",), chosen, (0, 1), 1.0), store, device="cpu", say=str)
    lines = Lines(store.lines())
    assert len(lines) == 6
    for one in lines:
        assert one["k_distinct"] == len(one["notes"]["features"]) == 5
        assert 0.8 < one["metrics"]["accuracy"] < 1
    left = [np.mean(lines.where(method=name).metric("fvu")) for name in ("keyhole_reconstruction", "f_test")]
    assert left[0] < 0.8 * left[1]
    page = list(section(lines))
    assert page[0].startswith("`KeyholeClassifierSelector` is the first, or within one standard error of it, on ")
    assert page[2] == "### breast cancer, K = 5, 2 splits"
    assert sum("**`Keyhole" in row for row in page) == 2
    paths = draw_features(lines, tmp_path)
    assert [path.name for path in paths] == ["breast_cancer.png", "breast_cancer.svg"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_the_latest_line_of_each_split_counts_and_differences_are_paired():
    """Whatever the time limit of a line; two splits of which one is hard for both."""

    def line(method, seed, accuracy, protocol="24 s"):
        about = {"data": "digits", "k": 16, "reconstructor": "trees", "notes": {"choosing_seconds": 2.0}}
        metrics = {"accuracy": accuracy, "fvu": 0.5}
        return about | {"method": method, "seed": seed, "protocol": protocol, "metrics": metrics}

    old = [line("keyhole", seed, 0.2, "30 s") for seed in (0, 1)]
    own = [line("keyhole", seed, accuracy) for seed, accuracy in ((0, 0.89), (1, 0.59))]
    page = list(section(Lines([*old, *own, line("f_test", 0, 0.9), line("f_test", 1, 0.6)])))
    assert "on 0 of 1 tables (none)" in page[0]
    assert "0.740 (0.150) | 0.010 (0.000) |" in next(row for row in page if "**`Keyhole" in row)


def test_splits_differ_and_are_kept(tmp_path):
    store = Store(tmp_path, "tables")
    for _ in range(2):
        run_jobs(jobs(("digits",), ("f_test",), (0, 1), 1.0), store, device="cpu", say=str)
    lines = [json.loads(text) for text in store.path.read_text().splitlines()]
    assert len(lines) == 2
    assert lines[0]["metrics"] != lines[1]["metrics"]
