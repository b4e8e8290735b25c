"""What small cases of every part gave when they were recorded, and plan files that must load for ever."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import keyhole as kh
from keyhole.models.reconstructors import RECONSTRUCTORS
from keyhole.placement import SELECTORS


def script() -> ModuleType:
    """The script that makes the record."""
    path = Path(__file__).parents[1] / "scripts" / "golden.py"
    found = importlib.util.spec_from_file_location("golden", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


golden = script()
RECORD = json.loads(golden.RECORD.read_text())
PLANS = sorted(path for version in (1, 2, 3, 4) for path in (golden.FOLDER / f"format{version}").glob("*.keyhole"))


@pytest.mark.parametrize("name", golden.CASES)
def test_a_case_is_as_recorded(name):
    assert golden.differences(RECORD[name], golden.run_case(name)) == []


def test_every_part_has_a_case():
    """A newcomer needs one, and none may go unseen."""
    assert RECORD.keys() == golden.CASES.keys()
    options = [case["options"] for case in golden.CASES.values()]
    assert {one.get("method") for one in options} >= set(SELECTORS)
    used = {one.get("reconstructor") for one in options} | {one.get("network", {}).get("name") for one in options}
    assert used >= set(RECONSTRUCTORS)


def test_differences_are_found():
    """Other sites and other errors of a closed form; of a search, an error that is clearly another."""
    closed, search = RECORD["greedy"], RECORD["vln"]
    assert golden.differences(closed, closed) == golden.differences(search, search) == []
    assert golden.differences(closed, changed(closed, 1 + 1e-5))
    assert golden.differences(closed, changed(closed, 1.0, sites=[0, 1, 2, 3, 4]))
    assert golden.differences(search, changed(search, 1.001, sites=[0, 1, 2, 3, 4])) == []
    assert golden.differences(search, changed(search, 1.01))
    assert golden.differences(search, changed(search, 1.0, sites=[0, 0, 2, 3, 4]))
    assert golden.differences(search, changed(search, 1.0, reconstructor="kernel"))


def changed(case: dict[str, Any], factor: float, **parts: Any) -> dict[str, Any]:
    """Give the record of a case with other errors and other parts."""
    (one,) = case["results"]
    errors = {part: {name: factor * value for name, value in one[part].items()} for part in ("validation", "test")}
    return {**case, "results": [{**one, **errors, **parts}]}


def test_there_are_plans_of_every_kind():
    found = [kh.load(path) for path in PLANS]
    assert {plan.reconstructor.name for plan in found} >= set(RECONSTRUCTORS)
    assert {plan.predictor.name for plan in found if plan.predictor} == {"linear", "network"}
    assert any(plan.scaling.climatology.kind == "month" for plan in found)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: f"{path.parent.name} {path.stem}")
def test_a_plan_file_gives_what_it_gave(path):
    """Sites, reconstructions, intervals and predictions, from the file alone."""
    assert path.read_bytes()[:12] == b"KEYHOLE\0" + int(path.parent.name[-1]).to_bytes(4, "little")
    kept = json.loads(path.with_suffix(".json").read_text())
    found, expected = golden.answers_of(kh.load(path), kept), kept["expected"]
    assert found.keys() == expected.keys()
    for name in ("sites", "names"):
        assert found[name] == expected[name]
    for name in ("reconstruction", "low", "high"):
        if name in expected:
            then, now = np.array(expected[name], float), np.array(found[name], float)
            np.testing.assert_allclose(now, then, rtol=1e-5, atol=1e-6 * np.nanmax(np.abs(then)))
    if expected.get("prediction") and isinstance(expected["prediction"][0], str):
        assert found["prediction"] == expected["prediction"]
    elif "prediction" in expected:
        np.testing.assert_allclose(found["prediction"], expected["prediction"], rtol=1e-5)
