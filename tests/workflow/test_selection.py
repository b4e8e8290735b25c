"""`kh.select`: validation of arguments, the pipeline, checkpoints and metadata."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import keyhole as kh
from example_data import left_in_file, monthly_field, quick, smooth
from keyhole.core.errors import DataError, SettingsError, StorageError, TrainingError
from keyhole.core.interrupts import Interrupted
from keyhole.core.run import Run
from keyhole.data.splits import Split
from keyhole.data.target import Target
from keyhole.models.reconstructors import RECONSTRUCTORS
from keyhole.training.checkpoint import StateError
from keyhole.workflow import selection as pipeline
from keyhole.workflow.comparison import compare

QUICK = {"train": {"steps": 10, "batch_size": 8, "ema_decay": 0.0}, "n_masks": 2}


def test_resume_never_takes_the_weights_of_another_reconstructor(tmp_path):
    """A dense network's state is no start for ridge + dense: the resumed plan is that of a clean run."""
    data = smooth(60, 4, 5)
    options = {"method": "qr", "reconstructor": "residual"}
    kh.select(data, 3, method="qr", reconstructor="dense", checkpoint=tmp_path / "c")
    clean = kh.select(data, 3, **options)
    resumed = kh.select(data, 3, **options, checkpoint=tmp_path / "c", resume=True)
    assert resumed.metrics == clean.metrics


def test_without_resume_states_of_another_run_are_cleared(tmp_path):
    """So that a later resume meets only its own; other files in the folder stay."""
    folder = tmp_path / "c"
    kh.select(smooth(60, 6), 3, method="qr", reconstructor="dense", checkpoint=folder)
    (folder / "mine.txt").write_text("")
    kh.select(smooth(60, 6), 2, method="qr", reconstructor="ridge", checkpoint=folder)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_an_unfinished_run_is_not_lost_by_a_mistake(command, tmp_path):
    """Neither a wrong K nor a forgotten --resume removes it."""
    np.save(tmp_path / "x.npy", smooth(60, 6))
    out, folder = tmp_path / "p.keyhole", tmp_path / "p.keyhole.checkpoint"
    folder.mkdir()
    (folder / "learn-vln.state").write_bytes(b"hours of work")
    for options in (("-k", 0, "--anew"), ("-k", 3), ("-k", 3, "--method", "magic", "--anew")):
        assert command("select", tmp_path / "x.npy", *options, "--out", out).code != 0
        assert (folder / "learn-vln.state").read_bytes() == b"hours of work"
    quick = ("--method", "qr", "--reconstructor", "ridge", "--anew")
    assert command("select", tmp_path / "x.npy", "-k", 3, *quick, "--out", out).code == 0
    assert not folder.exists()


@pytest.fixture
def nothing_is_chosen(monkeypatch):
    """Any selector that is let to work fails the test."""

    def choose(*words):
        raise AssertionError("it should have been refused")

    monkeypatch.setattr(pipeline, "choose_sites", choose)
    monkeypatch.setattr("keyhole.workflow.comparison.choose_sites", choose)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"reconstructor": "mlp"}, "'mlp' is not known"),
        ({"reconstructor": "resnet"}, "the resnet reconstructor needs a grid of two axes"),
        ({"reconstructor": "dcgan"}, "the dcgan reconstructor needs a grid of two axes"),
        ({"predictor": "linear"}, "requires a target"),
        ({"method": "cgan"}, "method 'cgan': convolutions need a grid of two axes"),
    ],
)
def test_what_cannot_end_well_is_refused_before_the_work(nothing_is_chosen, options, says):
    """By select and by compare, where the method that cannot comes last."""
    method, more = options.get("method", "qr"), {k: v for k, v in options.items() if k != "method"}
    with pytest.raises(SettingsError, match=says):
        kh.select(smooth(30, 6), 2, method=method, **more)
    with pytest.raises(SettingsError, match=says):
        compare(smooth(30, 6), 2, ["qr", method], **more)


def test_a_method_that_predicts_no_target_is_refused_before_the_work(nothing_is_chosen):
    """The law behind a discriminator rebuilds."""
    signals = kh.read(smooth(30, 4, 4)).with_target(Target.of(np.arange(30) % 2 == 0))
    with pytest.raises(SettingsError, match=r"method 'cgan': .*no target"):
        kh.select(signals, 2, method="cgan")


@pytest.mark.parametrize("name", RECONSTRUCTORS)
def test_every_reconstructor_is_refused_at_the_door_or_can_be_fitted(name):
    """On a table: none is let in to fail when the sites are chosen."""
    prepared = pipeline.prepare(kh.read(smooth(30, 6)), None, 0)
    run = Run(deadline=0.0)
    try:
        pipeline.check_reconstructor(RECONSTRUCTORS.make(name, {}), prepared.samples.sites)
    except SettingsError:
        assert name in ("resnet", "dcgan", "dense_conv", "graph_ridge")
    else:
        assert pipeline.fit_reconstructor(name, prepared, np.array([1, 3]), run).name == name


def failure_sets(monkeypatch, error):
    """Let the reconstructor's fit end in an error, once the sites are chosen and their law's state is kept."""

    def fit(name, prepared, sites, run):
        assert list(run.folder.glob("*.state"))
        raise error

    monkeypatch.setattr(pipeline, "fit_reconstructor", fit)


@pytest.mark.parametrize("error", [TrainingError("not finite"), DataError("bad"), SettingsError("bad")])
def test_a_run_that_fails_for_what_it_was_given_leaves_nothing(monkeypatch, tmp_path, error):
    """Going on would fail again; other files in the folder stay."""
    failure_sets(monkeypatch, error)
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(type(error)):
        kh.select(smooth(30, 6), 2, method="learned", settings=QUICK, checkpoint=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("error", [StorageError("no space"), MemoryError()])
def test_a_run_that_fails_for_want_of_room_can_go_on(monkeypatch, tmp_path, error):
    """What it was given may be good: its state is kept."""
    failure_sets(monkeypatch, error)
    with pytest.raises(type(error)):
        kh.select(smooth(30, 6), 2, method="learned", settings=QUICK, checkpoint=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["learn-vln.state"]


def test_a_run_that_was_stopped_can_go_on(tmp_path):
    """Its state stays, a resume that is refused does not remove it, and the right one gives the plan of a clean run."""
    options = {"method": "learned", "reconstructor": "ridge", "settings": QUICK}

    def stop(event):
        if event.step == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        kh.select(smooth(30, 6), 2, **options, checkpoint=tmp_path, callbacks=[stop])
    with pytest.raises(StateError):
        kh.select(smooth(30, 6), 3, **options, checkpoint=tmp_path, resume=True)
    resumed = kh.select(smooth(30, 6), 2, **options, checkpoint=tmp_path, resume=True)
    clean = kh.select(smooth(30, 6), 2, **options)
    assert resumed.metrics == clean.metrics
    assert resumed.history == clean.history


@pytest.mark.parametrize("method", ["auto", "learned", "qr", "greedy"])
@pytest.mark.parametrize("reconstructor", ["auto", "ridge"])
def test_four_samples_are_enough_to_run(method, reconstructor):
    """Two to train, one each to validate and test: no use, but no crash."""
    settings = QUICK if method in ("auto", "learned") else {}
    assert kh.select(smooth(4, 6), 2, method=method, reconstructor=reconstructor, settings=settings).k == 2


def test_a_training_part_that_is_constant_is_refused_whatever_validation_does():
    """The check looks at train alone."""
    data = smooth(30, 6)
    data[:20] = data[0]
    split = Split.given(np.arange(20), np.arange(25, 30), np.arange(20, 25))
    with pytest.raises(DataError, match="training part is constant"):
        kh.select(data, 2, method="qr", reconstructor="ridge", split=split)


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_values_beyond_single_precision_have_their_own_error(factor):
    """Not that they are constant."""
    with np.errstate(all="ignore"), pytest.raises(DataError, match="unit"):
        kh.select(smooth(30, 6) * factor, 2, method="qr", reconstructor="ridge")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"settings": {"temperature": [1, 0]}}, "temperature"),
        ({"settings": {"temperature": [1, -1]}}, "temperature"),
        ({"precision": "64-true"}, "bf16-mixed"),
        ({"device": "foo"}, "cuda"),
        ({"save_every": float("nan")}, "save_every"),
        ({"method": "vln", "settings": {"distribution": "iln"}}, "'learned'"),
    ],
)
def test_settings_that_no_run_can_have(options, says):
    """Each is named before anything is trained."""
    with pytest.raises(SettingsError, match=says):
        kh.select(smooth(30, 6), 2, **({"method": "learned"} | options))


def test_mask_distributions_go_by_their_own_names():
    """In a comparison and in the plan; a name given twice counts once."""
    found = compare(smooth(40, 5), 2, ["qr", "iln", "qr"], time_limit=0.01)
    assert sorted(entry.method for entry in found.entries) == ["iln", "qr"]
    assert {entry.plan.metadata["method"] for entry in found.entries} == {"iln", "qr"}


def test_the_curve_ends_at_the_error_of_the_plan():
    """For channels of very different size too."""
    data = smooth(60, 2, 8) * np.array([1.0, 1000.0])[:, None]
    entry = compare(kh.read(data, channels=1), 3, ["qr"]).entries[0]
    assert entry.curve[-1] == pytest.approx(entry.plan.metrics["test"]["rmse"], rel=1e-3)
    assert len(entry.curve) == 4


def test_gains_add_up_to_what_the_sites_explain():
    """The sum of the gains is one less the validation error of ridge."""
    plan = kh.select(smooth(80, 12), 4, method="greedy", reconstructor="ridge")
    assert plan.gain.sum() == pytest.approx(1 - plan.metrics["validation"]["fvu"], abs=0.02)


def test_time_of_bare_readings_on_the_command_line(command, tmp_path):
    """A .npy holds no time: --time gives it, once for each reading."""
    monthly_field().to_netcdf(tmp_path / "f.nc")
    quick = ("--method", "qr", "--reconstructor", "ridge", "--anomalies", "month")
    assert command("select", tmp_path / "f.nc", "-k", 3, *quick, "--out", tmp_path / "p.keyhole").code == 0
    np.save(tmp_path / "r.npy", np.full((2, 3), 15.0))
    arguments = ("reconstruct", tmp_path / "p.keyhole", tmp_path / "r.npy", "--out", tmp_path / "o.nc")
    outcome = command(*arguments)
    assert outcome.code == 1
    assert "--time" in outcome.err
    assert command(*arguments, "--time", "2020-01-01", "--time", "2020-07-01").code == 0


def test_a_figure_of_an_unknown_kind_is_refused_before_the_work(command, tmp_path):
    """Usage error, at once."""
    np.save(tmp_path / "x.npy", smooth(30, 6))
    outcome = command("compare", tmp_path / "x.npy", "-k", 2, "--methods", "qr", "--figure", tmp_path / "c.xyz")
    assert outcome.code == 2


def two_variables(units=("degC", "Pa")):
    """Temperature and a pressure of a hundred thousand times the size, which have nothing to do with each other."""
    import xarray as xr

    first, second = monthly_field(), monthly_field().copy(data=1e5 * smooth(60, 4, 5, seed=1))
    second = second.where(first.notnull())
    return xr.Dataset({"t": first.assign_attrs(units=units[0]), "p": second.assign_attrs(units=units[1])})


def test_errors_of_different_units_are_reported_by_channel_and_pooled_in_standard_deviations(tmp_path):
    """In memory and stored, on the screen, for machines and on the page; the plan's file keeps it."""
    import io

    from rich.console import Console

    from keyhole.report import write_report
    from keyhole.report.tables import comparison_table, plan_summary, plan_table

    data = two_variables()
    plan = quick(data, k=4)
    data.to_netcdf(tmp_path / "both.nc")
    stored = kh.select(left_in_file(tmp_path / "both.nc", variable=["t", "p"]), 4, method="qr")
    for one in (plan, stored):
        scores = one.metrics["test"]
        assert scores["rmse"] < 3
        assert scores["width_90"] < 20
        assert scores["rmse[p]"] > 100 * scores["rmse[t]"]
        assert {"fvu[t]", "fvu[p]"} <= set(scores)
        assert one.metadata["error_units"] == "standard deviations"
    plan.save(tmp_path / "plan.keyhole")
    comparison = compare(data, 4, ["qr", "random"])
    text = io.StringIO()
    for table in (plan_table(kh.load(tmp_path / "plan.keyhole")), comparison_table(comparison)):
        Console(file=text, width=240).print(table)
    for said in (f"RMSE {plan.metrics['test']['rmse']:.4g} standard deviations", " degC", " Pa", "test RMSE of p Pa"):
        assert said in text.getvalue()
    assert plan_summary(plan)["metadata"]["error_units"] == "standard deviations"
    assert comparison.entries[0].curve[0] < 3
    write_report(comparison, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "standard deviations" in page
    assert kh.curve(data, [2], methods=["qr"], metric="rmse").label == "RMSE (standard deviations)"


def test_errors_of_the_same_units_are_pooled_in_these():
    """As they were; each channel is told as well."""
    plan = quick(two_variables(("Pa", "Pa")), k=4)
    assert plan.metrics["test"]["rmse"] > 100
    assert plan.origin.units == "Pa"
    assert "rmse[t]" in plan.metrics["test"]
    assert "error_units" not in plan.metadata


def test_anomalies_are_an_option_of_all_that_choose_sites():
    field = monthly_field()
    by_month = quick(kh.read(field).anomalies("month"))
    plan = quick(field, anomalies="month")
    assert plan.metrics == by_month.metrics
    assert quick(kh.read(field).anomalies("month"), anomalies="none").metrics == quick(field).metrics
    compared = compare(field, 3, ["qr"], anomalies="month")
    assert compared.prepared.samples.climatology.kind == "month"
    curve = kh.curve(field, [3], ["qr"], anomalies="month")
    assert curve.rows[0].test["rmse"] == pytest.approx(compared.entries[0].plan.metrics["test"]["rmse"])
    assert field.keyhole.select(3, method="qr", reconstructor="ridge", anomalies="month").metrics == plan.metrics
    assert (
        kh.extend(plan, field, 1, method="qr", reconstructor="ridge", anomalies="month").scaling.climatology.kind
        == "month"
    )


@pytest.mark.parametrize("wrong", ["day", True, 12])
def test_anomalies_that_there_are_not_are_refused(wrong):
    field = monthly_field()
    for call in (quick, lambda data, **given: data.keyhole.select(3, method="qr", **given)):
        with pytest.raises(SettingsError, match="anomalies="):
            call(field, anomalies=wrong)
    with pytest.raises(DataError, match="monthly anomalies need a time"):
        quick(smooth(40, 6), anomalies="month")
