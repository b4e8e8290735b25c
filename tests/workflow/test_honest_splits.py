"""Gaps between the parts of a series, groups of samples in every workflow, and warnings where errors flatter."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import keyhole as kh
from example_data import left_in_file, quick, smooth
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.models.blocks_in_turn import BlocksInTurn
from keyhole.report import comparison_figure, write_report
from keyhole.report.tables import comparison_table, curve_summary, curve_table, plan_table
from keyhole.workflow.comparison import single
from keyhole.workflow.cross_fitting import cross_fitted, refit_to

WARNS = "errors on later samples are larger"
TIME = pd.date_range("2001-01-01", periods=200, freq="D")


def series(n: int = 200, memory: float = 0.8, sites: int = 12, seed: int = 0) -> np.ndarray:
    """An autoregressive field, correlated along the sites."""
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=sites).cumsum()]
    for _ in range(n - 1):
        rows.append(memory * rows[-1] + np.sqrt(1 - memory**2) * rng.normal(size=sites).cumsum())
    return np.array(rows, np.float32)


def dated(values: np.ndarray) -> xr.DataArray:
    return xr.DataArray(values, {"time": TIME[: len(values)]}, ("time", "x"), name="level")


def shown(renderable: object) -> str:
    import io

    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=240).print(renderable)
    return text.getvalue()


# Gaps


@pytest.mark.parametrize("source", [dated(series()), series()], ids=["dates", "no dates"])
@pytest.mark.parametrize("split", [None, "blocks"])
def test_blocks_of_a_series_are_the_decorrelation_time_apart(source, split):
    plan = quick(source, split=split, intervals=False)
    made = plan.metadata["split"]
    assert made["kind"] == "blocks"
    assert made["gap"] == pytest.approx(-1 / np.log(0.8), abs=2)  # 0.8 ** 4.5 = 1 / e
    assert made["left_out"] == 2 * made["gap"]
    assert made["train"] + made["validation"] + made["test"] + made["left_out"] == 200
    said = f"{made['left_out']} left out between them (decorrelation time: {made['gap']} samples)"
    assert said in " ".join(shown(plan_table(plan)).split())


def test_a_long_memory_takes_no_more_than_a_twentieth():
    plan = quick(dated(series(memory=0.999)))
    assert plan.metadata["split"]["left_out"] == 10
    assert plan.metadata["split"]["gap"] > 5
    assert "5 % are left out at most" in " ".join(shown(plan_table(plan)).split())


def with_cycles(step: str, n: int, memory: float, *, hole: bool = False) -> xr.DataArray:
    """An autoregressive field under a year (and a day, if the samples show it) of ten times its amplitude."""
    time = np.datetime64("2001-01-01", step[-1]) + np.arange(n) * np.timedelta64(int(step[:-1] or 1), step[-1])
    hours = time.astype("datetime64[h]").astype(float)
    year, day = (2 * np.pi * hours / period for period in (365.2425 * 24, 24))
    cycle = np.cos(year) + 0.3 * np.sin(2 * year) + (np.cos(day) * (1 + np.sin(year)) if step == "6h" else 0)
    rng, values = np.random.default_rng(0), np.zeros((n, 6))
    for row in range(1, n):
        values[row] = memory * values[row - 1] + np.sqrt(1 - memory**2) * rng.normal(size=6)
    values += 10 * cycle[:, np.newaxis] * np.linspace(0.5, 1, 6)
    if hole:
        values[np.cos(year) > 0.9, :2] = np.nan  # ice in winter
    return xr.DataArray(values, {"time": time.astype("datetime64[ns]")}, ("time", "x"))


@pytest.mark.parametrize(
    ("step", "n", "memory", "options"),
    [
        ("1M", 480, 0.7, {}),
        ("1M", 480, 0.7, {"anomalies": "month"}),
        ("1D", 1500, 0.8, {"anomalies": "harmonics"}),
        ("1D", 1500, 0.8, {"split": "blocks"}),
        ("6h", 4000, 0.8, {}),
    ],
)
def test_gaps_go_by_what_the_calendar_does_not_know(step, n, memory, options):
    """A season recurs for ever, and would make every gap the longest that there is."""
    field, options = with_cycles(step, n, memory), {"anomalies": "auto", **options}
    made = quick(field, k=2, intervals=False, refit=False, **options).metadata["split"]
    assert made["gap"] == pytest.approx(-1 / np.log(memory), abs=1.5)
    assert made["left_out"] == 2 * made["gap"] < 0.05 * n
    backwards = quick(field[::-1], k=2, intervals=False, refit=False, **options).metadata["split"]
    assert {**backwards, "reason": ""} == {**made, "reason": ""}


def test_gaps_go_by_the_season_too_where_it_is_part_of_the_field():
    """With anomalies="none", beside a target, and without dates, where no calendar is known."""
    field = with_cycles("1D", 1500, 0.8)
    plain = quick(field, k=2, anomalies="none", intervals=False, refit=False)
    assert plain.metadata["split"]["gap"] > 40
    assert prepare(kh.read(field).anomalies("none"), None, 0).split.gap == plain.metadata["split"]["gap"]
    assert prepare(kh.read(field.to_numpy()), None, 0).split.gap > 40


def test_gaps_of_fields_with_missing_values_and_in_their_file(tmp_path):
    """Winters without values do not bend the season that is subtracted."""
    field = with_cycles("1D", 1500, 0.8, hole=True)
    gaps = [prepare(kh.read(one, missing="model"), None, 0).split.gap for one in (field, field.isel(x=slice(2, None)))]
    assert gaps == pytest.approx([4.5, 4.5], abs=1.5)
    with_cycles("1D", 1500, 0.8).to_dataset(name="level").to_netcdf(tmp_path / "level.nc")
    assert prepare(left_in_file(tmp_path / "level.nc"), None, 0).split.gap == pytest.approx(4.5, abs=1.5)


def test_blocks_that_intervals_are_calibrated_on_have_the_same_gaps():
    """Also where members of an ensemble have the same times."""
    field, taken = with_cycles("1D", 1500, 0.8), []
    for data in (field, xr.concat([field, field + 1], "member")):
        samples = kh.read(data, samples=("member", "time") if "member" in data.dims else None)
        plan, rows = quick(samples, k=2, intervals=False), np.arange(len(samples))

        def refit(fit, plan=plan, samples=samples):
            taken.append(len(fit))
            return refit_to(plan, samples, fit, Run())

        cross_fitted(plan, samples, rows, refit, Run())
        assert 0.8 * len(rows) - max(taken[-5:]) == pytest.approx(len(rows) / 1500 * 4.5, abs=3)


def test_samples_of_one_time_count_once():
    """Members of an ensemble: neighbours in the order of time are of different members."""
    members = np.stack([series(100, seed=seed) for seed in range(4)])
    ensemble = xr.DataArray(members, {"time": TIME[:100]}, ("member", "time", "x"))
    samples = kh.read(ensemble, samples=("member", "time"))
    found = prepare(samples, None, 0).split
    assert found.gap > 1
    days = [np.unique(samples.time[part]) for part in (found.validation, found.test)]
    assert len(found.left_out) <= 0.05 * len(samples)
    assert days[1].min() - days[0].max() > np.timedelta64(2, "D")
    shuffled = samples.take(np.random.default_rng(0).permutation(400))
    assert prepare(shuffled, None, 0).split.sizes() == found.sizes()


def test_fields_that_stay_in_their_file_have_the_same_gaps(tmp_path):
    dated(series()).to_netcdf(tmp_path / "field.nc")
    stored = left_in_file(tmp_path / "field.nc")
    assert quick(stored).metadata["split"] == quick(dated(series())).metadata["split"]
    assert "left_out" in quick(stored).metadata["split"]


# Warnings


@pytest.mark.parametrize(
    ("source", "split", "says"),
    [
        (dated(series()), "random", "a time series, split at random"),
        (series(), "random", "samples that look like a series"),
        (pd.DataFrame(series()), None, "samples that look like a series"),
        (dated(series()), kh.Split.random(200), "a time series, split at random"),
        (
            dated(series()),
            (np.arange(200) % 5 > 1, np.arange(200) % 5 == 0, np.arange(200) % 5 == 1),
            "a time series, with test samples among the training samples",
        ),
        (series(), (np.arange(200) % 5 > 0, np.arange(200) % 5 == 0), "with test samples among the training samples"),
        (dated(series()), "blocks", ""),
        (dated(series()), None, ""),
        (dated(series()), (range(150), range(150, 200)), ""),
        (dated(series()), ([*range(80), *range(140, 200)], range(80, 140)), ""),
        (smooth(200, 6), "random", ""),
        (smooth(200, 6), (np.arange(200) % 5 > 0, np.arange(200) % 5 == 0), ""),
    ],
)
def test_a_series_that_is_not_split_in_blocks_carries_a_warning(source, split, says):
    warning = quick(source, split=split).metadata["split"].get("warning", "")
    assert (says in warning and WARNS in warning) if says else warning == ""


def test_the_warning_is_right():
    """Days of the random test part are nearly known; those of another year are not."""
    whole = dated(series(200, memory=0.97, sites=30))
    first, later = whole[:150], whole[150:]
    errors = {}
    for split in ("random", "blocks"):
        plan = kh.select(first, 2, method="qr", reconstructor="kernel", split=split)
        truth = later.values
        errors[split] = np.sqrt(np.square(plan.reconstruct(truth[:, plan.indices]) - truth).mean())
        errors[f"{split} test"] = plan.metrics["test"]["rmse"]
    assert errors["random test"] < 0.8 * errors["random"]


def test_it_is_shown_wherever_the_numbers_are(tmp_path):
    samples = kh.read(dated(series()))
    plan = quick(samples, split="random")
    plan.save(tmp_path / "plan.keyhole")
    assert WARNS in " ".join(shown(plan_table(kh.load(tmp_path / "plan.keyhole"))).split())
    compared = kh.compare(samples, 2, ["qr", "variance"], split="random")
    assert WARNS in " ".join(shown(comparison_table(compared)).split())
    assert all(WARNS in row["warning"] for row in compared.rows())
    curve = kh.curve(samples, [1, 2], ["qr"], split="random")
    assert WARNS in " ".join(shown(curve_table(curve)).split())
    assert WARNS in curve_summary(curve)["warning"]
    assert WARNS in curve.frame()["warning"][0]
    for figure in (curve.plot(), comparison_figure(compared)):
        assert WARNS in " ".join(figure.get_supxlabel().split())
    write_report(single(plan, prepare(samples, "random", 0)), tmp_path / "report.html")
    assert f"{WARNS}; split=" in (tmp_path / "report.html").read_text()


def test_nothing_is_shown_where_blocks_are_used(tmp_path):
    samples = kh.read(dated(series()))
    compared = kh.compare(samples, 2, ["qr"])
    curve = kh.curve(samples, [1, 2], ["qr"])
    texts = (shown(comparison_table(compared)), shown(curve_table(curve)), json.dumps(curve_summary(curve)))
    assert not any("warning" in text for text in (*texts, json.dumps(compared.rows(), default=str)))
    assert curve.plot().get_supxlabel() == ""
    write_report(compared, tmp_path / "report.html")
    assert WARNS not in (tmp_path / "report.html").read_text()


# Groups


@pytest.fixture
def table() -> pd.DataFrame:
    return pd.DataFrame(smooth(60, 6), columns=list("abcdef")).assign(subject=np.repeat(list("uvwxyz"), 10))


def test_workflows_take_groups(table):
    plan = quick(table, groups="subject")
    expected = {"train": 40, "validation": 10, "test": 10, "kind": "groups", "reason": "6 groups (subject)"}
    assert plan.metadata["split"] == expected | {"groups": "subject"}
    labels, plain = table["subject"], table.drop(columns="subject")
    compared = kh.compare(table, 2, ["qr", "variance"], groups="subject")
    assert [entry.plan.metadata["split"]["kind"] for entry in compared.entries] == ["groups"] * 2
    alone = prepare(kh.read(table, groups="subject"), None, 0).split
    np.testing.assert_array_equal(compared.prepared.split.test, alone.test)
    assert kh.curve(plain, [1, 2], ["qr"], groups=labels).rows[0].test == kh.curve(
        table, [1, 2], ["qr"], groups="subject"
    ).rows[0].test  # fmt: skip
    field = xr.DataArray(smooth(60, 6), dims=("run", "x")).assign_coords(batch=("run", np.arange(60) // 10))
    plan = field.keyhole.select(k=2, method="qr", reconstructor="ridge", groups="batch")
    assert plan.metadata["split"]["groups"] == "batch"


def cruises() -> xr.DataArray:
    """Samples of six cruises, a coordinate along them."""
    labels = ("obs", np.repeat(np.arange(6), 10))
    return xr.DataArray(smooth(60, 8), {"cruise": labels}, ("obs", "station"), "temp")


@pytest.mark.parametrize("as_samples", [False, True])
def test_networks_of_grouped_samples_are_changed_by_the_same_coordinate(as_samples):
    """Without it, samples of one cruise would be in several parts, and the errors too small."""
    field = cruises()
    plan, data = quick(field, groups="cruise"), kh.read(field) if as_samples else field
    for changed in (kh.extend(plan, data, 1, method="qr"), kh.drop(plan, data, 1), plan.refit(data)):
        assert changed.metadata["split"]["kind"] == "groups"
        assert changed.metadata["split"]["groups"] == "cruise"


def test_a_network_of_grouped_samples_warns_of_data_without_groups():
    field = cruises()
    named, unnamed = quick(field, groups="cruise"), quick(field, groups=field.cruise.to_numpy())
    for plan in (named, unnamed):
        with pytest.warns(kh.KeyholeWarning, match="groups"):
            plan.refit(field.drop_vars("cruise"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unnamed.refit(field, groups="cruise")


def test_networks_of_grouped_samples_are_extended_and_reduced_by_the_same_column(table):
    plan = quick(table, groups="subject")
    for changed in (
        kh.extend(plan, table, 1, method="qr"),
        kh.drop(plan, table, 1),
        kh.extend(plan, table.drop(columns="subject"), 1, method="qr", groups=table["subject"].to_numpy()),
        kh.drop(plan, table.drop(columns="subject"), 1, groups=table["subject"].to_numpy()),
    ):
        assert changed.metadata["split"]["kind"] == "groups"


@pytest.mark.parametrize("name", ["select", "compare", "curve", "extend", "drop"])
def test_commands_take_groups(name, table, command, tmp_path):
    table.to_csv(tmp_path / "table.csv", index=False)
    np.save(tmp_path / "labels.npy", np.arange(60) // 10)
    table.drop(columns="subject").to_csv(tmp_path / "plain.csv", index=False)
    plan, made = tmp_path / "plan.keyhole", tmp_path / "made.keyhole"
    quick(table, groups="subject").save(plan)
    given = [plan] if name in ("extend", "drop") else []
    method = {"compare": ["--methods", "qr"], "curve": ["--methods", "qr"], "drop": []}.get(name, ["--method", "qr"])
    rest = ["-k", 2, "--reconstructor", "ridge", *method]
    rest += ["--out", made] if name in ("select", "extend", "drop") else []
    for source, groups in (("table.csv", "subject"), ("plain.csv", tmp_path / "labels.npy")):
        done = command(name, *given, tmp_path / source, *rest, "--group-by", groups)
        assert done.code == 0, done.err
        if made.exists():
            assert kh.load(made).metadata["split"]["kind"] == "groups"
            made.unlink()
    wrong = command(name, *given, tmp_path / "table.csv", *rest, "--group-by", "person")
    assert wrong.code == 1
    assert "'person'" in wrong.err or "not numbers: subject" in wrong.err


def test_a_built_in_data_set_has_no_groups(command, tmp_path):
    done = command("select", "sst", "-k", 2, "--group-by", "lat", "--out", tmp_path / "plan.keyhole")
    assert done.code == 2
    assert "--group-by" in done.err


def test_a_sweep_takes_groups_and_shows_the_warning(command, table, tmp_path):
    table.to_csv(tmp_path / "table.csv", index=False)
    np.save(tmp_path / "series.npy", series())
    study = 'source = "{}"\nk = [2]\nmethods = ["qr"]\ntrials = 1\n{}\n'
    grouped, drawn = tmp_path / "grouped.toml", tmp_path / "drawn.toml"
    grouped.write_text(study.format(tmp_path / "table.csv", 'group_by = "subject"'))
    drawn.write_text(study.format(tmp_path / "series.npy", 'split = "random"'))
    done = command("sweep", grouped, "--json")
    assert done.code == 0, done.err
    assert "warning" not in json.loads(done.out)
    done = command("sweep", drawn, "--json", "--figure", tmp_path / "fronts.png")
    assert WARNS in json.loads(done.out)["warning"]
    assert WARNS in " ".join(command("sweep", drawn).out.split())


def test_standard_errors_are_those_of_new_groups():
    """Samples of one subject are hard or easy together: their number says little."""
    rng = np.random.default_rng(0)
    subjects = np.repeat(np.arange(40), 25)
    size = np.where(np.arange(40) % 2, 3.0, 0.3)[subjects]
    values = rng.normal(size=(1000, 2)) @ rng.normal(size=(2, 8)) + size[:, None] * rng.normal(size=(1000, 8))
    split = kh.Split.groups(subjects)
    drawn, whole = (quick(values, groups=groups, split=split).metrics["test"] for groups in (None, subjects))
    assert whole["rmse"] == pytest.approx(drawn["rmse"])
    assert whole["rmse_se"] > 2 * drawn["rmse_se"]


def test_blocks_left_out_in_turn_hold_whole_groups(table):
    samples = prepare(kh.read(table, groups="subject"), None, 0)
    in_turn = BlocksInTurn.of(samples.train, samples.validation, Run())
    for fit, out in in_turn.parts:
        assert not set(fit.sample_groups) & set(out.sample_groups)
