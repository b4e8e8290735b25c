"""Plans are measured on samples that they have not seen, and then selected and fitted on all samples."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import keyhole as kh
from example_data import monthly_field, smooth
from keyhole.cli import app
from keyhole.core.run import Run
from keyhole.data import Sensors
from keyhole.data.preparation import prepare, prepare_all
from keyhole.data.splits import Split
from keyhole.models.reconstructors import Dense, Reconstructor, Ridge
from keyhole.placement import Greedy
from keyhole.report.tables import plan_summary

QUICK = {"method": "greedy", "reconstructor": "ridge", "split": "blocks"}


def drifting(n: int = 120) -> np.ndarray:
    """Fields whose patterns change, so that later samples ask for other sites."""
    early, late = smooth(n, 40, seed=1), smooth(n, 40, seed=2)
    share = np.linspace(0, 1, n)[:, np.newaxis]
    return (1 - share) * early + share * late


def everything(values: np.ndarray):
    return prepare_all(prepare(kh.read(values), "blocks", 0))


def test_what_is_used_is_fitted_to_all_samples():
    values = drifting()
    plan, whole = kh.select(values, 4, **QUICK), everything(values)
    assert len(whole.development) == len(values)
    sites = Greedy().select(whole.development, 4, validation=None, run=Run()).sites
    np.testing.assert_array_equal(plan.indices, sites)
    ridge = Ridge().fit(whole.development, sites, validation=whole.validation, run=Run())
    np.testing.assert_array_equal(plan.reconstructor.weights, ridge.weights)
    np.testing.assert_allclose(plan.scaling.baseline[0, 0], values.mean(axis=0), rtol=1e-6)


def test_errors_are_those_of_the_plan_that_was_measured():
    values = drifting()
    plan, measured = kh.select(values, 4, **QUICK), kh.select(values, 4, refit=False, **QUICK)
    assert plan.metrics == measured.metrics
    assert plan.measured.metrics == measured.metrics
    np.testing.assert_array_equal(plan.measured.indices, measured.indices)
    assert "refit" not in measured.metadata
    assert measured.measured is None


def test_the_record_says_how_many_samples_and_sites_are_the_same():
    values = drifting()
    plan = kh.select(values, 4, **QUICK)
    same = int(np.isin(plan.indices, plan.measured.indices).sum())
    assert same < 4
    assert plan.metadata["refit"] == {"samples": 120, "same_sites": same}
    assert plan_summary(plan)["metadata"]["refit"]["samples"] == 120


def test_unseen_later_samples_are_reconstructed_better():
    values = drifting(200)
    seen, later = values[:180], values[180:]
    errors = []
    for refit in (True, False):
        plan = kh.select(seen, 4, refit=refit, **QUICK)
        errors.append(np.square(plan.reconstruct(later[:, plan.indices]) - later).mean())
    assert errors[0] < errors[1]


def test_samples_of_no_part_are_fitted_to_as_well():
    values, split = smooth(50, 9), Split.given(range(20), range(40, 45), range(25, 30))
    plan = kh.select(values, 2, method="qr", reconstructor="ridge", split=split)
    assert plan.metadata["refit"]["samples"] == 50
    np.testing.assert_allclose(plan.scaling.baseline[0, 0], values.mean(axis=0), rtol=1e-6)


def test_a_network_is_trained_for_the_steps_that_were_best():
    values = smooth(90, 12)
    dense = Dense(width=16, train={"steps": 40, "batch_size": 16, "validation_steps": 10})
    plan = kh.select(values, 3, method="qr", reconstructor=dense, split="random")
    rows = [row for row in plan.history if row["stage"] == "refit" and "validation" in row]
    best = min(rows, key=lambda row: row["validation"])["step"]
    assert plan.reconstructor.history[-1]["step"] == max(1, best)
    assert plan.metadata["refit"]["samples"] == 90
    assert plan.metrics == kh.select(values, 3, method="qr", reconstructor=dense, split="random", refit=False).metrics


@pytest.mark.parametrize("reconstructor", ["residual", "ensemble"])
def test_combined_networks_are_fitted_to_all_samples(reconstructor):
    settings = {"reconstructor.width": 8, "reconstructor.train.steps": 6, "reconstructor.train.batch_size": 16}
    settings |= {"reconstructor.members": 2} if reconstructor == "ensemble" else {}
    values = smooth(60, 6, 6)
    plan = kh.select(values, 2, method="qr", reconstructor=reconstructor, settings=settings, split="random")
    assert plan.metadata["refit"]["samples"] == 60
    assert np.isfinite(plan.reconstruct(values.reshape(60, -1)[:, plan.indices])).all()


def test_masks_keep_their_sites():
    settings = {"train.steps": 5, "train.batch_size": 16}
    plan = kh.select(smooth(60, 12), 3, method="vln", reconstructor="ridge", settings=settings)
    np.testing.assert_array_equal(plan.indices, plan.measured.indices)
    assert plan.metadata["refit"] == {"samples": 60, "same_sites": 3}


class Unrepeatable(Ridge):
    """A model that needs validation samples."""

    name = "ridge"
    closed_form = False


def test_a_model_that_cannot_be_refitted_is_kept_with_its_sites():
    plan = kh.select(drifting(), 4, method="greedy", reconstructor=Unrepeatable(), split="blocks")
    assert plan.metadata["refit"] == {"samples": 0, "kept": "ridge needs samples for validation"}
    assert isinstance(plan.reconstructor, Reconstructor)


@pytest.mark.parametrize(
    "options",
    [
        {"constraints": {"existing": [3, 7]}},
        {"constraints": {"groups": np.arange(40) // 4}},
        {"constraints": {"costs": np.linspace(1, 2, 40), "cost_limit": 5}, "k": None},
        {"failures": 1},
        {"noise": 0.1},
        {"sensors": Sensors.of_rows(np.eye(40)[::2], names=[f"s{i}" for i in range(20)])},
    ],
    ids=["existing", "groups", "costs", "failures", "noise", "sensors"],
)
def test_constraints_hold_for_the_sites_to_use(options):
    k = options.get("k", 4)
    plan = kh.select(drifting(), **{"k": k, **QUICK, **options})
    existing = options.get("constraints", {}).get("existing", [])
    assert plan.metadata["refit"]["samples"] == 120
    assert plan.indices[: len(existing)].tolist() == existing
    assert len(set(plan.indices.tolist())) == plan.k
    assert plan.k == plan.measured.k or k is None
    if k is None:
        assert options["constraints"]["costs"][plan.indices].sum() <= 5


def test_data_that_stay_in_their_file_are_not_gone_through_again_unless_asked(tmp_path):
    monthly_field(120).to_netcdf(tmp_path / "field.nc")
    options = {"memory": "20KiB", "method": "greedy", "reconstructor": "ridge"}
    assert "refit" not in kh.select(tmp_path / "field.nc", 3, **options).metadata
    asked = kh.select(tmp_path / "field.nc", 3, refit=True, **options)
    assert asked.metadata["refit"]["samples"] == 120


def test_a_plan_is_fitted_to_new_data_at_its_sites(tmp_path):
    values = drifting()
    plan = kh.select(values[:80], 4, **QUICK)
    again = plan.refit(values, split="blocks")
    np.testing.assert_array_equal(again.indices, plan.indices)
    whole = everything(values)
    ridge = Ridge().fit(whole.development, plan.indices, validation=whole.validation, run=Run())
    np.testing.assert_array_equal(again.reconstructor.weights, ridge.weights)
    assert again.metadata["method"] == "greedy"
    again.save(tmp_path / "again.keyhole")
    assert kh.load(tmp_path / "again.keyhole").metadata["refit"] == {"samples": 120, "same_sites": 4}


def test_drop_and_extend_are_fitted_to_all_samples():
    values = drifting()
    plan = kh.select(values, 4, **QUICK)
    assert kh.drop(plan, values, 1).metadata["refit"] == {"samples": 120, "same_sites": 3}
    assert kh.extend(plan, values, 1, method="greedy").metadata["refit"]["samples"] == 120
    assert "refit" not in kh.extend(plan, values, 1, method="greedy", refit=False).metadata


def test_comparisons_are_of_what_was_measured():
    plan = kh.compare(drifting(), 3, ["greedy", "qr"], split="blocks").choice.plan
    assert "refit" not in plan.metadata


def test_the_command_line_says_what_it_was_fitted_to(tmp_path):
    frame = pd.DataFrame(drifting(), columns=[f"c{i}" for i in range(40)])
    frame.to_csv(tmp_path / "a.csv", index=False)
    base = ["select", str(tmp_path / "a.csv"), "-k", "3", "--method", "greedy", "--reconstructor", "ridge"]
    options = ["--split", "blocks", "--out", str(tmp_path / "p.keyhole"), "--report", str(tmp_path / "p.html")]
    shown = CliRunner().invoke(app, [*base, *options])
    assert shown.exit_code == 0, shown.output
    assert "fitted to all 120 samples" in shown.output
    assert "had not seen the test part" in (tmp_path / "p.html").read_text(encoding="utf-8")
    kept = CliRunner().invoke(app, [*base, "--no-refit", "--out", str(tmp_path / "q.keyhole")])
    assert "fitted to" not in kept.output
    made = ["refit", str(tmp_path / "q.keyhole"), str(tmp_path / "a.csv"), "--out", str(tmp_path / "r.keyhole")]
    assert CliRunner().invoke(app, made).exit_code == 0
    assert kh.load(tmp_path / "r.keyhole").metadata["refit"]["samples"] == 120


def test_a_column_of_words_counts_once_beside_the_sites_that_were_measured():
    """It has a site for each of its words; the summary shows the columns."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(90, 3)), columns=list("abc")).assign(d=rng.choice(["s", "m", "l"], 90))
    plan = kh.select(table, 4, **QUICK)
    assert (len(plan.names), plan.k) == (4, 6)
    assert plan.metadata["refit"] == {"samples": 90, "same_sites": 4}
    assert "fitted to all 90 samples, at the same sites" in " ".join(repr(plan).split())
