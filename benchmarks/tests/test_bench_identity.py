"""The identity of cases: settings with default values do not count, so that records stay found when settings change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from keyhole.placement import SELECTORS
from keyhole_benchmarks import (
    ablation,
    cgan,
    examples,
    floor,
    gradients,
    graphs,
    networks,
    quality,
    speed,
    steps,
    table1,
    table2,
    tables,
    weights,
)
from keyhole_benchmarks.identity import without_defaults
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.page import SWEPT
from keyhole_benchmarks.records import Case, Store

RESULTS = Path(__file__).parents[1] / "results"
PICTURES = ("mnist", "celeba")
CASE = Case("table1", "digits", "tiny", "vln", "residual", 5, 0, {})


def test_every_word_and_every_other_setting_counts():
    """And the identity is the same in another process."""
    others = [
        replace(CASE, k=6), replace(CASE, seed=1), replace(CASE, method="iln"), replace(CASE, data="sst"),
        replace(CASE, settings={"selector": {"rank": 8}}), replace(CASE, settings={"reconstructor": {"blocks": 3}}),
        replace(CASE, settings={"selector": {"train": {}}}), replace(CASE, settings={"samples": 100}),
        replace(CASE, settings={"selector": {"train": {"steps": 5}}}),
    ]  # fmt: skip
    assert len({one.case_id for one in (CASE, *others)}) == 1 + len(others)
    assert CASE.case_id == "60258b7c0097e86d"


def test_defaults_do_not_count():
    """Of the selector, the reconstructor or the training, in whatever form they are written."""
    defaults = SELECTORS.make("vln", {}).settings()
    reconstructor = {"inner": "dense", "linear": "ridge", "n_frequencies": 0, "blocks": 2.0, "train": None}
    named = replace(CASE, settings={"selector": defaults, "reconstructor": reconstructor})
    assert named.case_id == CASE.case_id
    assert replace(named, settings=json.loads(json.dumps(named.settings))).case_id == CASE.case_id
    short = replace(CASE, settings={"selector": {"train": {"steps": 5}}})
    long = replace(CASE, settings={"selector": {"train": {"steps": 5.0, "warmup": 0.1, "patience": 8}}})
    assert short.case_id == long.case_id


def test_a_variant_has_the_defaults_of_its_selector():
    """Methods of the ablation are variants of ``auto``, those of the GAN benchmark of VLN."""
    auto = SELECTORS.make("auto", {"distribution": "iln"}).settings()
    assert without_defaults("ablation", "iln alone", "auto", {"selector": auto}) == {
        "selector": {"distribution": "iln"}
    }
    gan = {"selector": {"distribution": "vln", "objective": "gan"}}
    assert without_defaults("cgan", "cgan", "own", gan) == {"selector": {"objective": "gan"}}


def test_a_default_that_changes_makes_another_case(tmp_path):
    """What a record names and is no longer the default still counts; names that no class has are kept."""
    settings = {"selector": {"n_components": 7, "gone": 1}, "reconstructor": {}}
    assert without_defaults("quality", "greedy", "ridge", settings) == {"selector": {"n_components": 7, "gone": 1}}


def test_arrays_are_found_under_the_identity_that_was_written(tmp_path):
    """Arrays that were kept before names changed stay with their record."""
    store = Store(tmp_path, "table1")
    old = replace(CASE, settings={"selector": {"latent": 8}})
    store.path.write_text(json.dumps({"case_id": "old", **old.words(), "status": "ok", "notes": {}}) + "\n")
    (tmp_path / "arrays").mkdir()
    np.savez(tmp_path / "arrays" / "old.npz", sites=np.arange(3))
    today = replace(CASE, settings={"selector": {"rank": 8}}).case_id
    assert store.done() == {today}
    assert store.arrays(today)["sites"].tolist() == [0, 1, 2]
    assert store.arrays("another") is None


class Sizes:
    """Stands in for data: the sizes of its parts, as a record holds them."""

    def __init__(self, name: str, sizes: dict[str, int]) -> None:
        self.name, self.sizes = name, sizes
        self.plain = self.scaled = SimpleNamespace(train=range(sizes["train"]))
        self.samples = sizes["train"] + sizes["validation"]
        self.cae_decoder = "dense" if name == "mnist" else "dcgan"

    def split(self) -> dict[str, int]:
        return self.sizes


@pytest.fixture
def without_data(monkeypatch):
    """Let benchmarks list their jobs from the sizes that their records hold."""

    def on_grid(name: str) -> SimpleNamespace:
        roles = {} if name in PICTURES else {"latitude": "lat"}
        return SimpleNamespace(sites=SimpleNamespace(roles=roles))

    def prepare(lines: Lines) -> None:
        sizes = {one["data"]: one["split"] for one in lines}
        prepared = SimpleNamespace(split=SimpleNamespace(sizes=dict))
        for module in (table1, table2, cgan, steps, weights):
            monkeypatch.setattr(module, "load", lambda name, samples: Sizes(name, sizes[name]))
        for module in (quality, ablation):
            monkeypatch.setattr(module, "load_prepared", lambda name: prepared)
        monkeypatch.setattr(networks, "_loaded", on_grid)
        monkeypatch.setattr(examples, "_prepared", lambda name, seed: prepared)
        monkeypatch.setattr(networks, "_prepared", lambda name, variant: prepared)
        monkeypatch.setattr(tables, "_rows", lambda name, split: ((), ()))
        for name, parts in sizes.items():
            rows = SimpleNamespace(given=range(parts.get("given", 0)), later=range(parts.get("later", 0)))
            monkeypatch.setitem(floor.FLOOR_SETS, name, (lambda rows=rows: rows, ()))

    return prepare


def jobs_of(bench: str, line: dict, sites: Store):
    """Jobs that a benchmark lists when it is asked for the case of one record."""
    data, method, k, seed, protocol = (line[name] for name in ("data", "method", "k", "seed", "protocol"))
    seconds = float(protocol.removesuffix(" s")) if protocol.endswith(" s") else 0.0
    selector = line["settings"].get("selector", {})
    rate = selector.get("selector_learning_rate" if method == "cae" else "mask_learning_rate")
    return {
        "table1": lambda: table1.jobs(protocol, [data], [method], [k], [seed]),
        "table2": lambda: table2.jobs(protocol, data, [method], [k], [seed], sites),
        "cgan": lambda: cgan.jobs(protocol, [data], [method], [k], [seed]),
        "weights": lambda: weights.jobs(protocol, data, [method], (), [seed]),
        "steps": lambda: steps.jobs(protocol, data, [method], [k], [seed], [rate]),
        "quality": lambda: quality.jobs([data], [method], [line["reconstructor"]], [k], [seed], seconds),
        "ablation": lambda: ablation.jobs([data], [method], [seed], seconds),
        "networks": lambda: networks.jobs([data], [method], [seed]),
        "tables": lambda: tables.jobs([data], [method], [seed], seconds),
        "graphs": lambda: graphs.jobs(
            [int(protocol.removesuffix(" h"))], [method], [line["reconstructor"]], [k], [seed]
        ),
        "examples": lambda: examples.jobs([protocol], {"warm", method}, [seed]),
        "gradients": lambda: gradients.jobs([method], line["settings"]["repetitions"], [seed]),
        "floor": lambda: floor.jobs([data], [k], [seed]),
        "speed": lambda: speed.jobs([method], [seed]),
    }[bench]()


# Records that stay in the files although no benchmark lists their case any more, with the reason.
SUPERSEDED = {
    "the latent weights of VLN had the full learning rate; the page shows both": lambda line: (
        line["bench"] == "steps" and line["method"] == "vln"
        and "latent_learning_rate" not in line["settings"]["selector"]
    ),
    "auto had learned masks among its stages for fields; sites and errors are of that version": lambda line: (
        line["bench"] in ("quality", "ablation") and line["date"] < "2026-11-19"
        and (line["method"] == "auto" or line["bench"] == "ablation")
    ),
    "HNet-LN on MNIST had a learning rate of the masks that did not converge with every seed": lambda line: (
        line["bench"] == "table1" and line["method"] == "hnet" and line["data"] == "mnist"
        and line["settings"]["selector"]["mask_learning_rate"] == 0.002
    ),
}  # fmt: skip


@pytest.mark.parametrize("bench", SWEPT)
def test_shipped_records_are_found_as_done(bench, without_data):
    """Every record in benchmarks/results is that of a case which its benchmark lists, and skips, or is superseded."""
    store, sites = Store(RESULTS, bench), Store(RESULTS, "table1")
    lines = store.lines()
    without_data(Lines(lines))
    done, orphans = store.done(), []
    for line in lines:
        listed = {case.case_id for job in jobs_of(bench, line, sites) for case in job.cases}
        if line["case_id"] not in listed & done and not any(is_old(line) for is_old in SUPERSEDED.values()):
            orphans.append({name: line[name] for name in (*CASE.words(), "date")})
    assert orphans == []


def test_every_refit_of_table_1_is_found(without_data):
    """Ridge with a dense network on fixed sites: one line for each of those of the paper's networks."""
    lines = [one for one in Store(RESULTS, "table1").lines() if one["method"] != table1.REFERENCE]
    cases = [[one[name] for name in ("data", "method", "k", "seed", "settings")] for one in lines]
    refits = [one for one in lines if one["reconstructor"] == table1.REFIT]
    assert len(cases) == 2 * len(refits)


def test_no_reason_is_without_its_records():
    lines = [line for bench in SWEPT for line in Store(RESULTS, bench).lines()]
    assert all(any(is_old(line) for line in lines) for is_old in SUPERSEDED.values())
