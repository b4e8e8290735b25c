"""The benchmarks' records, protocols, runs and page, on data that ship."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from keyhole.core.errors import SettingsError
from keyhole.masks import MASK_DISTRIBUTIONS
from keyhole_benchmarks import steps, table1
from keyhole_benchmarks.data import load
from keyhole_benchmarks.ill_posed import halve
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.page import write_page
from keyhole_benchmarks.protocols import PROTOCOLS, Protocol, protocol_of
from keyhole_benchmarks.published import METHODS as PAPER
from keyhole_benchmarks.published import RECONSTRUCTION, published_mse
from keyhole_benchmarks.records import Case, Store, record
from keyhole_benchmarks.runner import Job, Outcome, run_jobs
from keyhole_benchmarks.sections import answers, others

TINY = Protocol(
    "tiny", 120, 16, 2e-3, dict.fromkeys(MASK_DISTRIBUTIONS, 5e-2),
    cycle=True, cae_rate=1e-3, row_rate=0.1, steps=6, cae_steps=6, precision="32-true", weights=(0.01, 1.0),
)  # fmt: skip


def case(**words):
    return replace(Case("table1", "digits", "tiny", "vln", "own", 5, 0, {}), **words)


def line(error=0.5, **words):
    costs = {"seconds": 1.0, "cpu_seconds": 1.0, "peak_mib": 1}
    metrics = {"mse": error, "rmse": error**0.5, "fvu": error}
    return record(case(**words), metrics=metrics, costs=costs, k_distinct=5, split={}, notes={}, published=None)


@pytest.fixture
def tiny(monkeypatch):
    """A protocol of six steps."""
    monkeypatch.setitem(PROTOCOLS, "tiny", {"": TINY})


def test_lines_survive_a_torn_end(tmp_path):
    """What a crash left half-written is skipped, and does not spoil the line that follows it."""
    store = Store(tmp_path, "table1")
    store.append([line()])
    with store.path.open("a") as file:
        file.write('{"case_id": "to')
    assert len(store.lines()) == 1
    store.append([line(seed=1)])
    assert [one["seed"] for one in store.lines()] == [0, 1]


def test_the_last_line_of_a_case_counts(tmp_path):
    """A case that was run again is there once, as it came out last."""
    store = Store(tmp_path, "table1")
    store.append([line(0.5), line(0.25)])
    assert [one["metrics"]["mse"] for one in store.lines()] == [0.25]


def test_lines_are_json_that_every_reader_takes(tmp_path):
    """Numbers that are not finite become null, numpy's become plain."""
    store = Store(tmp_path, "table1")
    store.append([line(float("nan")) | {"k_distinct": np.int64(3)}])

    def refuse(constant):
        raise AssertionError(constant)

    found = json.loads(store.path.read_text(), parse_constant=refuse)
    assert found["metrics"]["mse"] is None
    assert found["k_distinct"] == 3


def test_a_job_that_has_its_lines_is_skipped(tmp_path):
    """Work that is done is not done again; work that failed is."""
    store, calls = Store(tmp_path, "table1"), []

    def work(run):
        calls.append(run.seed)
        yield Outcome({"mse": 0.5}, 5)

    job = Job([case()], {}, "32-true", work)
    assert run_jobs([job], store, device="cpu", say=str) == 1
    assert run_jobs([job], store, device="cpu", say=str) == 0
    failed = store.lines()[0] | {"status": "failed"}
    store.append([failed])
    assert run_jobs([job], store, device="cpu", say=str) == 1
    assert calls == [0, 0]


def test_a_job_without_its_arrays_is_run_again_to_draw(tmp_path):
    """Lines come with a clone, arrays do not: what is to be drawn is trained again."""
    store = Store(tmp_path, "table1")
    job = Job([case()], {}, "32-true", lambda run: [Outcome({"mse": 0.5}, 5, arrays={"sites": np.arange(3)})])
    run_jobs([job], store, device="cpu", say=str)
    kept = store.arrays(case().case_id)
    assert kept is not None
    assert kept["sites"].tolist() == [0, 1, 2]
    (tmp_path / "arrays" / f"{case().case_id}.npz").unlink()
    assert run_jobs([job], store, device="cpu", say=str) == 0
    assert run_jobs([job], store, device="cpu", say=str, to_draw=True) == 1


def test_the_small_protocol_keeps_its_promises():
    """At most 10000 samples, larger steps for the laws; the paper's has the paper's numbers."""
    for data in ("mnist", "ipsl", "ncep", "celeba"):
        small, paper = protocol_of("small", data), protocol_of("paper", data)
        assert small.samples == 10_000
        assert all(small.mask_rates[distribution] > paper.mask_rates[distribution] for distribution in PAPER[1:])
        assert paper.samples is None
        assert paper.rate == 2e-4
        assert paper.mask_rates == dict.fromkeys(PAPER[1:], 2e-4)
    assert protocol_of("paper", "mnist").distribution("sct", 60000)["temperature"] == [2 / 3, 2 / 3]
    assert protocol_of("paper", "mnist").distribution("vln", 60000)["train"]["steps"] == 550 * 60000 // 256
    with pytest.raises(SettingsError, match="small"):
        protocol_of("smal", "mnist")


def test_published_values_are_those_of_the_paper():
    """Spot checks of the transcription, in units of the data."""
    assert published_mse("mnist", 20, "hnet") == pytest.approx(0.0215)
    assert published_mse("ncep", 300, "vln") == pytest.approx(0.0079)
    assert published_mse("mnist", 20, "qr") is None
    assert published_mse("mnist", 25, "vln") is None
    assert all(len(row) == 5 for rows in RECONSTRUCTION.values() for row in rows.values())


@pytest.mark.parametrize("method", table1.METHODS)
def test_every_method_of_table_1_runs(tiny, tmp_path, method):
    """Each gives its own network's error and the refit's, with K sites and honest notes."""
    store = Store(tmp_path, "table1")
    jobs = list(table1.jobs("tiny", ["digits"], [method], [5], [0]))
    assert run_jobs(jobs, store, device="cpu", say=str) == 2
    first, refit = store.lines()
    assert refit["reconstructor"] == "residual"
    assert len(set(first["notes"]["sites"])) == 5
    assert np.isfinite(first["metrics"]["mse"])
    assert refit["metrics"]["fvu"] < 1
    assert {"commit", "dirty", "versions", "peak_mib", "cpu_seconds", "threads", "processor"} <= set(first)


def test_plain_images_are_as_they_are(tiny):
    """The paper's networks get pixels in [0, 1]; what they rebuild is judged like all else."""
    data = load("digits", 200)
    assert data.plain.development.values.min() == 0
    assert data.plain.development.values.max() == 1
    assert data.samples == 200
    exact = data.score(data.plain, data.test(data.plain).values)
    assert exact["mse"] == 0
    mean = data.score(data.scaled, np.zeros_like(data.scaled.test.values, dtype=np.float32))
    assert mean["fvu"] == pytest.approx(1)


def test_answers_compare_equal_places():
    """A ratio is of the same data, K, seed and network, where all methods are; classical sites have one seed."""
    errors = {"cae": 0.4, "iln": 0.4, "sct": 0.4, "vln": 0.2, "hnet": 0.2}
    lines = [line(error, method=method, seed=s) for method, error in errors.items() for s in (0, 1)]
    lines += [line(0.1, method="qr", reconstructor="resnet"), line(0.3, method="greedy", reconstructor="resnet")]
    lines += [line(9.0, method="iln", seed=0, k=7), line(1.0, method="vln", seed=0, k=7)]
    text = "\n".join(answers(Lines(lines)))
    assert "VLN / ILN | as in the paper | 0.50 (0.50 to 0.50), lower in 2 of 2 | better" in text
    assert "VLN / QR | as in the paper | 2.00 (2.00 to 2.00), lower in 0 of 2 | worse" in text
    assert "HNet-LN / VLN | as in the paper | 1.00 (1.00 to 1.00), lower in 0 of 2 | no difference" in text
    assert "our refit" not in text


def test_answers_leave_out_mask_distributions_that_did_not_converge():
    """A law that never chose is no rival; the data set's cell is empty where nothing is left."""
    methods = ("cae", "iln", "sct", "vln", "hnet")
    lines = [line(0.4, method=method, data=data) for method in methods for data in ("digits", "sst")]
    for one in lines:
        if one["method"] == "iln" and one["data"] == "sst":
            one["notes"] = {"concentration": 0.5}
    text = "\n".join(answers(Lines(lines)))
    assert "VLN / ILN | as in the paper | 1.00 (1.00 to 1.00), lower in 0 of 1 |  | no difference" in text


def test_answers_are_by_data_set():
    """Better on one data set and worse on another is neither; one pair says nothing beside three of another."""
    places = [("mnist", {"vln": 0.2, "iln": 0.4}), ("ipsl", {"vln": 0.4, "iln": 0.2})]
    others = dict.fromkeys(("cae", "sct", "hnet"), 0.3)
    lines = [line(error, data=data, method=name) for data, own in places for name, error in (own | others).items()]
    assert "| 2.00 (2.00 to 2.00), lower in 0 of 1 | depends on the data |" in "\n".join(answers(Lines(lines)))
    more = [
        line(error, data="mnist", method=name, seed=s)
        for s in (1, 2)
        for name, error in (places[0][1] | others).items()
    ]
    assert "| 2.00 (2.00 to 2.00), lower in 0 of 1 | better |" in "\n".join(answers(Lines(lines + more)))


def test_a_line_of_other_settings_replaces_the_old_one():
    """What was run again counts, protocols stay apart, and what a bench sweeps makes lines of different kinds."""
    old, new = line(0.5), line(0.4, settings={"selector": {"l0_weight": 1}})
    lines = Lines([old, new, line(0.3, protocol="paper"), new | {"status": "failed"}])
    assert lines.latest().metric("mse") == [0.4, 0.3]
    assert lines.latest("l0_weight").metric("mse") == [0.5, 0.4, 0.3]


def test_the_page_is_made_from_the_lines_alone(tmp_path):
    """Published values, means, ranges and ratios stand in it, and the README's table between its markers."""
    store = Store(tmp_path / "results", "table1")
    published = [
        line(error, data="mnist", k=20, seed=seed) | {"published": 0.0322, "comparable": True}
        for seed, error in enumerate((0.03, 0.04, 0.05))
    ]
    store.append([*published, *(line(0.02, data="mnist", k=20, seed=s, reconstructor="residual") for s in range(3))])
    readme = tmp_path / "README.md"
    readme.write_text("before <!-- results -->old<!-- /results --> after")
    words = {"bench": "quality", "data": "mnist", "k": 20, "protocol": "60 s"}
    Store(tmp_path / "results", "quality").append(
        [
            line(0.04, method="qr", reconstructor="ridge", **words),
            line(0.01, method="auto", reconstructor="auto", **words) | {"notes": {"reconstructor": "ridge"}},
        ]
    )
    drawn = tmp_path / "docs" / "images" / "paper" / "samples-mnist-20.png"
    drawn.parent.mkdir(parents=True)
    drawn.touch()
    write_page(tmp_path / "results", tmp_path / "docs" / "results.md", readme)
    page = (tmp_path / "docs" / "results.md").read_text()
    assert re.findall(r"\]\((.*?)\)", page) == ["images/paper/table1.png", "images/paper/samples-mnist-20.png"]
    assert "| VLN | 3.22 | 4.000 (3.000 to 5.000) | 1.24 | 2.000 (2.000 to 2.000) |" in page
    assert "old" not in readme.read_text()
    assert "| MNIST | 20 | MSE × 10⁻² | 4.000 | 1.000 | 0.25 |" in readme.read_text()


def test_halving_the_mask_lowers_l1_and_not_the_sites_that_show():
    """The supplement's remark: same reconstruction, l1 halved each time, as many sites."""
    rows = halve(3)
    for first, second in pairwise(rows):
        assert second.error == pytest.approx(first.error, rel=1e-5)
        assert second.l1 == pytest.approx(first.l1 / 2, rel=1e-6)
        assert second.shown == first.shown


def test_table_2_scores_the_masks_of_table_1(tiny, bench_command, tmp_path):
    """Five trainings on the sites of seed 0, which are found first where they are not there."""
    words = ["--data", "digits", "--methods", "qr", "--k", "5", "--protocol", "tiny", "--results", tmp_path]
    assert bench_command("table2", *words).code == 0
    (one,) = Store(tmp_path, "table2").lines()
    assert len(one["notes"]["errors"]) == 5
    assert one["metrics"]["least_error"] == min(one["notes"]["errors"])
    assert one["settings"]["sites"] == sorted(Store(tmp_path, "table1").lines()[0]["notes"]["sites"])
    assert len(set(one["notes"]["errors"])) > 1


def test_table_2_joins_the_masks_of_a_method():
    """The least of all trainings, and the mean over masks with its range."""
    lines = [
        line(seed=seed) | {"metrics": {"least_error": least, "mean_error": mean}, "published": None}
        for seed, (least, mean) in enumerate([(0.11, 0.13), (0.1, 0.14), (0.12, 0.12)])
    ]
    (row,) = [text for text in others.table2(Lines(lines)) if "VLN" in text]
    assert row == "| VLN | 3 |  | 10.00 | 13.00 (12.00 to 14.00) | 1 |"


def test_the_gan_is_compared_with_squared_error(tiny, bench_command, tmp_path):
    """Both objectives, with errors, sharpness and pictures to draw."""
    words = ["--data", "digits", "--k", "5", "--protocol", "tiny", "--results", tmp_path]
    outcome = bench_command("cgan", *words)
    assert outcome.code == 0, outcome.err
    store = Store(tmp_path, "cgan")
    assert [one["method"] for one in store.lines()] == ["cgan", "vln"]
    assert all(one["metrics"]["sharpness"] >= 0 for one in store.lines())
    assert {"truth", "reconstructed", "sites", "masks"} <= set(store.arrays(store.lines()[0]["case_id"]))


def test_figures_train_what_they_show(tiny, bench_command, tmp_path):
    """From nothing to pictures in one command; a second time nothing is trained."""
    words = ["--data", "digits", "--k", "5", "--methods", "vln", "--protocol", "tiny", "--results", tmp_path]
    folders = ["--out", tmp_path / "out", "--private", tmp_path / "private"]
    first = bench_command("figures", *words, *folders)
    assert first.code == 0, first.err
    assert {"densities.svg", "samples-digits-5.png"} <= {path.name for path in (tmp_path / "out").iterdir()}
    again = bench_command("figures", *words, *folders)
    assert "lines added" not in again.out


def test_weights_give_a_number_of_sites(tiny, bench_command, tmp_path):
    """No K goes in: the count comes out, rounded down and up to tens; with safeguards and without."""
    words = ["--data", "digits", "--protocol", "tiny", "--results", tmp_path]
    assert bench_command("weights", *words, "--methods", "vln").code == 0
    outcome = bench_command("weights", *words, "--methods", "iln,sct", "--weights", "0.1", "--no-polarise")
    assert outcome.code == 0, outcome.err
    lines = Store(tmp_path, "weights").lines()
    found = [(one["method"], one["settings"]["selector"]["polarise"]) for one in lines]
    assert found == [("vln", True)] * 4 + [("iln", False)] * 2 + [("sct", False)] * 2
    assert all(one["k_distinct"] % 10 == 0 for one in lines)
    shown = bench_command("show", "--results", tmp_path, "--out", tmp_path / "results.md")
    assert shown.code == 0, shown.err


def test_steps_are_scored_on_validation_alone(tiny, bench_command, tmp_path, monkeypatch):
    """One line for each step, without any figure of test; the page has the least in bold."""
    monkeypatch.setattr(steps, "STEPS", {"vln": (0.01, 0.1), "cae": (0.01, 0.1)})
    words = ["--data", "digits", "--methods", "vln,cae", "--k", "5", "--protocol", "tiny", "--results", tmp_path]
    outcome = bench_command("steps", *words)
    assert outcome.code == 0, outcome.err
    lines = Store(tmp_path, "steps").lines()
    assert [one["metrics"].keys() for one in lines] == [{"validation_mse"}] * 4
    assert bench_command("show", "--results", tmp_path, "--out", tmp_path / "results.md").code == 0
    page = (tmp_path / "results.md").read_text()
    assert "| digits | 5 | VLN |" in page
    assert page.count("**") == 4


def test_bench_commands_refuse_what_they_do_not_know(bench_command, tmp_path):
    """A method, data set, protocol or number that is not there: exit 2 and the choices."""
    for wrong in ("--methods vnl", "--data minst", "--k many", "--protocol huge --data digits", "--data digits"):
        outcome = bench_command("table1", *wrong.split(), "--results", tmp_path)
        assert outcome.code == 2, outcome
        assert outcome.err


def test_the_bench_runs_from_the_command_line(tiny, bench_command, tmp_path):
    """Lines come from one command, and the page from another."""
    words = ["--data", "digits", "--methods", "qr", "--k", "5", "--seeds", "0", "--protocol", "tiny"]
    first = bench_command("table1", *words, "--results", tmp_path)
    assert first.code == 0, first.err
    again = bench_command("table1", *words, "--results", tmp_path)
    assert "holds every case already" in again.out
    shown = bench_command("show", "--results", tmp_path, "--out", tmp_path / "results.md")
    assert shown.code == 0, shown.err
    assert Path(tmp_path / "results.md").exists()
    assert bench_command("l1").out.count("\n") == 7


def test_the_cost_of_a_large_field_is_estimated(bench_command):
    """Twice the samples are more to read, and need no more memory."""
    one, two = (bench_command("cost", "--samples", str(n)).out.splitlines() for n in (100_000, 200_000))
    assert float(two[2].split()[-2]) > 1.9 * float(one[2].split()[-2])
    assert one[3:7] == two[3:7]


def test_of_steps_with_the_most_seeds_the_least_error_is_bold():
    """A step that one seed likes does not win over those that three were tried with."""

    def at(step, seed, error):
        return {
            "data": "mnist", "k": 20, "method": "iln", "seed": seed,
            "settings": {"selector": {"mask_learning_rate": step}}, "metrics": {"validation_mse": error},
        }  # fmt: skip

    lines = [at(0.1, 0, 0.02), at(0.2, 0, 0.03), at(0.2, 1, 0.05), at(0.5, 0, 0.025), at(0.5, 1, 0.095)]
    row = [text for text in others.steps(Lines(lines)) if text][-1]
    assert [cell.strip() for cell in row.strip("| ").split("|")[3:]] == ["0.0200", "**0.0400** (2)", "0.0600 (2)"]
