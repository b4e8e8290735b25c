"""What auto reaches and what its stages are worth, on data that ship."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from keyhole.data import datasets
from keyhole.data.preparation import prepare
from keyhole.placement import SELECTORS
from keyhole.placement.auto import STAGES
from keyhole_benchmarks import ablation, quality
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.quality import GOALS, MaskObjective
from keyhole_benchmarks.records import Store
from keyhole_benchmarks.runner import run_jobs
from keyhole_benchmarks.sections import ablation as ablation_section
from keyhole_benchmarks.sections import by_time, short_table
from keyhole_benchmarks.sections import quality as quality_section


@pytest.fixture(scope="module")
def few_digits():
    """Some of the digits, split and scaled as the benchmark does it."""
    digits = datasets.load("digits")
    return prepare(replace(digits.take(np.arange(360)), split=None).with_weights(None), None, seed=0)


@pytest.fixture(autouse=True)
def _few(few_digits, monkeypatch):
    """Let both benchmarks load these in place of all."""
    for module in (quality, ablation):
        monkeypatch.setattr(module, "load_prepared", lambda name: few_digits)


@pytest.fixture
def run(tmp_path):
    """Run jobs and give their lines."""

    def go(bench, jobs):
        store = Store(tmp_path, bench)
        run_jobs(jobs, store, device="cpu", say=str)
        return Lines(store.lines())

    return go


def cells(lines):
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("| ")]


def test_quality_has_a_line_for_each_method_and_reconstructor(run, monkeypatch):
    """In a second: auto is cut short, and still has K sites and a row for each stage that it began."""
    monkeypatch.setitem(GOALS, "digits", MaskObjective((4,), 0.9))
    lines = run("quality", quality.jobs(["digits"], quality.METHODS, quality.RECONSTRUCTORS, (), (0,), 1.0))
    assert {(one["method"], one["reconstructor"]) for one in lines} == {
        (method, reconstructor) for method in ("auto", "greedy", "qr") for reconstructor in ("auto", "ridge")
    }
    assert {one["protocol"] for one in lines} == {"1 s"}
    assert {one["k_distinct"] for one in lines} == {4}
    ours = lines.where(method="auto", reconstructor="auto").records[0]
    begun = [row["by"] for row in ours["notes"]["stages"]]
    assert begun == [stage for stage in STAGES if stage in begun]
    assert begun[:2] == ["greedy", "qr"]
    assert {row["by"] for row in ours["notes"]["fits"]} >= {"ridge", "kernel"}
    assert ours["metrics"]["validation_fvu"] > 0
    row = cells(quality_section(lines))[1]
    ridge = min(lines.where(method=method, reconstructor="ridge").metric("fvu")[0] for method in quality.CLASSICAL)
    same = min(lines.where(method=method, reconstructor="auto").metric("fvu")[0] for method in quality.CLASSICAL)
    ours_left = ours["metrics"]["fvu"]
    assert [float(cell) for cell in row[3:9]] == pytest.approx(
        [0.9 * ridge, ours_left, ours_left / (0.9 * ridge), ridge, ours_left / ridge, ours_left / same], abs=1e-3
    )


def test_a_row_waits_for_its_neighbours(run, monkeypatch):
    monkeypatch.setitem(GOALS, "digits", MaskObjective((3,), 0.9))
    lines = run("quality", quality.jobs(["digits"], ["greedy"], quality.RECONSTRUCTORS, (), (0, 1), 1.0))
    assert len(lines) == 2  # greedy has no seed
    assert len(cells(quality_section(lines))) == 1  # the header


def test_ablation_leaves_stages_out_and_shows_ratios(run, monkeypatch):
    monkeypatch.setitem(ablation.N_SITES, "digits", 4)
    variants = ["all stages", "classical sites", "sct alone"]
    lines = run("ablation", ablation.jobs(["digits"], variants, (0,), 1.0))
    stages = {one["method"]: [row["by"] for row in one["notes"]["stages"]] for one in lines}
    asked = {"all stages": STAGES, "classical sites": ("greedy", "qr"), "sct alone": ("greedy", "learned")}
    assert stages.keys() == asked.keys()
    for variant, begun in stages.items():  # those that a second has time for
        assert begun[0] == "greedy"
        assert tuple(begun) == asked[variant][: len(begun)]
    rows = cells(ablation_section(lines))[1:]
    assert [row[0] for row in rows] == variants
    assert rows[0][2] == "1.000"


def test_ratios_of_an_ablation_go_by_the_same_seeds():
    """A variant with one seed is not compared with the mean over several."""
    errors = {("all stages", 0): 0.4, ("all stages", 1): 0.2, ("sct alone", 1): 0.3}
    words = {"data": "ipsl", "k": 50, "seconds": 60.0}
    lines = Lines([words | {"method": name, "seed": seed, "metrics": {"fvu": e}} for (name, seed), e in errors.items()])
    assert [row[2] for row in cells(ablation_section(lines))[1:]] == ["1.000", "1.500"]


@pytest.mark.parametrize("variant", ablation.VARIANTS)
def test_every_variant_has_settings_that_auto_takes(variant):
    from keyhole.models.reconstructors import RECONSTRUCTORS

    settings, reconstructor = ablation.VARIANTS[variant]
    assert SELECTORS.make("auto", settings).settings()["stages"] == settings.get("stages")
    assert reconstructor in ("auto", *RECONSTRUCTORS)


def made(error, limit, method="auto", reconstructor="auto", minutes=1.0):
    return {
        "data": "digits", "k": 4, "protocol": f"{limit} s", "method": method, "reconstructor": reconstructor,
        "seconds": 60 * minutes, "metrics": {"fvu": error}, "notes": {"reconstructor": "ridge"},
    }  # fmt: skip


def test_error_against_time_has_a_column_for_each_limit(monkeypatch):
    """Shares of the best classical sites with ridge, whatever limit those had; the main table has the longest."""
    monkeypatch.setitem(GOALS, "digits", MaskObjective((4,), 0.9))
    lines = Lines([
        made(0.9, 1200, minutes=20), made(0.95, 60), made(1.0, 1200, "qr", "ridge"), made(2.0, 1200, "greedy", "ridge"),
    ])  # fmt: skip
    header, row = cells(by_time(lines))
    assert header == ["data", "K", "60 s", "1200 s"]
    assert row == ["digits", "4", "0.950 (1.0)", "0.900 (20.0)"]
    assert cells(quality_section(lines))[1][4:9] == ["0.900", "1.000", "1.000", "0.900", ""]
    assert cells(short_table(lines))[1] == [
        "digits",
        "4",
        "unexplained variance",
        "1.000",
        "0.900",
        "0.90",
        "20.0",
    ]
