"""Which method of a comparison is chosen: by the same rule as the stages of auto, and said wherever it is shown."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import keyhole as kh
from example_data import smooth
from keyhole.metrics import Ratio, choose
from keyhole.placement import Selection, Selector
from keyhole.placement.base import complete
from keyhole.report import write_report
from keyhole.report.tables import comparison_table


class Site(Selector):
    """One site, whatever the samples; as fast as a closed form."""

    name = "site"
    quick = True

    def __init__(self, site: int) -> None:
        super().__init__()
        self.site = site

    def select(self, train, k, *, validation, run):
        return Selection(complete(np.array([self.site]), k, train))


class SlowSite(Site):
    """The same, where it takes long."""

    name = "slow_site"
    quick = False


def misleading(n: int = 300) -> np.ndarray:
    """Site 0 tells of the others throughout, except in the validation block, where site 1 does."""
    rng = np.random.default_rng(0)
    state, values = rng.normal(size=n), rng.normal(size=(n, 6))
    values[:, 2:] += 3 * state[:, np.newaxis]
    odd = slice(int(0.64 * n), int(0.8 * n))
    values[:, 0], values[:, 1] = state, 0.6 * state + 0.8 * rng.normal(size=n)
    values[odd, 1], values[odd, 0] = values[odd, 0], values[odd, 1].copy()
    return values


def compared(values: object, methods: object, **options: object) -> kh.workflow.Comparison:
    return kh.compare(values, 1, methods, split="blocks", **options)


def shown(renderable: object) -> str:
    text = io.StringIO()
    Console(file=text, width=240).print(renderable)
    return text.getvalue()


BOTH = {"one": Site(1), "zero": Site(0)}


def test_a_short_series_is_judged_by_all_of_its_blocks():
    """One block of a short series is one spell of weather, in which another site may be the better one."""
    found = compared(misleading(), BOTH)
    validation = {entry.method: entry.plan.metrics["validation"]["fvu"] for entry in found.entries}
    assert validation["one"] < 0.7 * validation["zero"]
    assert found.choice.method == "zero"
    assert found.chosen_by == "blocks left out in turn"
    assert found.in_turn["zero"].value < found.in_turn["one"].value
    assert len(found.in_turn["zero"].part) == len(found.prepared.train) + len(found.prepared.validation)


@pytest.mark.parametrize(
    ("data", "methods", "options"),
    [
        (misleading(1500), BOTH, {}),
        (misleading(), {"one": SlowSite(1), "zero": SlowSite(0)}, {}),
        (misleading(), {"one": Site(1), "zero": SlowSite(0)}, {}),
        (misleading(), BOTH, {"reconstructor": "dense", "settings": {"reconstructor.train": {"steps": 5}}}),
    ],
    ids=["long", "slow", "one is slow", "network"],
)
def test_others_are_judged_by_validation(data, methods, options):
    found = compared(data, methods, **options)
    assert found.chosen_by == "the validation part"
    assert not found.in_turn
    if not options:
        assert found.choice.method == "one"


def test_a_target_is_judged_by_validation():
    frame = pd.DataFrame(misleading(), columns=list("abcdef"))
    found = kh.compare(frame, 1, BOTH, target="f", split="blocks", predictor="linear")
    assert found.chosen_by == "the validation part"


def test_slow_methods_are_judged_against_the_winner_of_the_others():
    found = compared(misleading(), {**BOTH, "slow": SlowSite(2)})
    assert found.chosen_by == "blocks left out in turn (one, zero), then the validation part"
    assert found.choice.method != "one"


@pytest.mark.parametrize("constraints", [None, {"existing": [2, 9]}, {"groups": np.arange(20) // 2}])
def test_methods_are_compared_as_the_stages_of_auto_are(constraints):
    """Same blocks, same models, same errors, same rule."""
    values = smooth(120, 4, 5).reshape(120, 20) + 0.3 * np.random.default_rng(0).normal(size=(120, 20))
    samples = kh.read(values).with_constraints(constraints) if constraints else kh.read(values)
    stages = ["greedy", "qr", "exchange"]
    auto = kh.select(samples, 3, settings={"stages": stages}, refit=False, split="blocks").metadata["notes"]
    found = kh.compare(samples, 3, stages, reconstructor="auto", split="blocks")
    assert {name: error.value for name, error in found.in_turn.items()} == pytest.approx(auto["blocks_in_turn"])
    assert found.choice.method == auto["chosen"]


def test_the_reconstructor_of_the_comparison_is_scored():
    values = misleading()
    ridge, kernel = (compared(values, BOTH, reconstructor=name).in_turn for name in ("ridge", "kernel"))
    assert ridge["zero"].value != kernel["zero"].value


def test_a_comparison_says_what_it_chose_and_by_what(tmp_path, command):
    values = misleading()
    found = compared(values, ["variance", "greedy"])
    sentence = (
        f"chosen: {found.choice.method}, the simplest within one standard error of the best by blocks left out in turn"
    )
    assert sentence in shown(comparison_table(found))
    rows = {row["method"]: row for row in json.loads(json.dumps(found.rows()))}
    assert [name for name, row in rows.items() if row["chosen"]] == [found.choice.method]
    assert {row["chosen_by"] for row in rows.values()} == {"blocks left out in turn"}
    assert rows["greedy"]["in_turn_fvu"] == found.in_turn["greedy"].value
    write_report(found, tmp_path / "report.html")
    assert "within one standard error of the best by blocks left out in turn;" in (tmp_path / "report.html").read_text()
    np.save(tmp_path / "values.npy", values)
    done = command("compare", tmp_path / "values.npy", "-k", 1, "--methods", "variance,greedy", "--split", "blocks")
    assert done.code == 0, done.err
    assert sentence in " ".join(done.out.split())
    single = compared(values, ["greedy"])
    assert single.chosen_by == ""
    assert "chosen" not in shown(comparison_table(single))


def test_the_rule():
    """Those scored in turn first, then the winner with the others; the simplest of what chance explains."""
    rng = np.random.default_rng(0)
    hard = rng.exponential(size=200)

    def error(factor: float) -> Ratio:
        return Ratio(hard * factor, np.ones(200))

    validation = [error(one) for one in (0.9, 1.0, 0.95, 2.0)]
    in_turn = {0: error(1.1), 1: error(1.0)}
    assert choose(validation, {}, is_series=False) == 0
    assert choose(validation, in_turn, is_series=False) == 2
    assert choose(validation[:2], in_turn, is_series=False) == 1
    assert choose(validation[:2], {0: error(1.1)}, is_series=False) == 0
    assert choose([error(1.0)] * 3, {0: error(1.0), 1: error(1.0)}, is_series=False, simplicity=[2, 1, 3]) == 1
