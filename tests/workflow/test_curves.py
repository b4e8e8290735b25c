"""Error against K: nested rankings, the fewest sites, and the command."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import keyhole as kh
from example_data import smooth
from keyhole.core.errors import InfeasibleError, SettingsError
from keyhole.core.interrupts import Interrupted
from keyhole.core.run import Event, Run
from keyhole.data.preparation import prepare
from keyhole.data.target import Target
from keyhole.placement import SELECTORS
from keyhole.report import Line, error_by_k_figure
from keyhole.report.style import NARROW
from keyhole.workflow import curves
from keyhole.workflow.comparison import compare
from keyhole.workflow.selection import choose_sites

NESTED = [name for name, make in SELECTORS.items() if make().nested]


def many_modes(samples: int = 120, cells: int = 30) -> np.ndarray:
    """A table that every further site tells a little more of."""
    rng = np.random.default_rng(3)
    spread = np.linspace(2, 0.3, 12)
    return rng.normal(size=(samples, 12)) * spread @ rng.normal(size=(12, cells)) + 0.1 * rng.normal(
        size=(samples, cells)
    )


def with_land(channels: int) -> np.ndarray:
    values = smooth(60, channels, 4, 5)
    values[..., 0] = np.nan
    return values


# Nested rankings ----------------------------------------------------------------------------------------------------


def test_those_that_rank_site_by_site_are_nested_and_qr_is_not():
    """QR's basis depends on K, so cutting its ranking would be another method."""
    assert {"greedy", "variance", "laplacian", "random"} <= set(NESTED)
    assert not {"qr", "lasso", "learned", "auto", "cae"} & set(NESTED)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("name", NESTED)
def test_a_nested_ranking_cut_is_the_choice_for_fewer(name, channels):
    """By contract: exactly K distinct observable sites, and those that it would choose for K itself."""
    signals = kh.read(with_land(channels), channels=1)
    if SELECTORS.make(name, {}).incompatibility(signals):  # it tells a target
        signals = signals.with_target(Target.of(np.nanmean(signals.values, axis=(1, 2)), kind="number"))
    parts = prepare(signals, None, seed=0)
    longest = choose_sites(SELECTORS.make(name, {}), parts, 12, Run()).sites
    for k in (1, 3, 8, 12):
        cut = longest[:k]
        assert len(set(cut.tolist())) == k
        assert parts.samples.observable[cut].all()
        assert cut.tolist() == choose_sites(SELECTORS.make(name, {}), parts, k, Run()).sites.tolist()


def test_the_ranking_of_qr_is_not_nested():
    """What its class says: with more components it picks others."""
    parts = prepare(kh.datasets.digits(), None, seed=0)
    few, many = (choose_sites(SELECTORS.make("qr", {}), parts, k, Run()).sites for k in (5, 40))
    assert few.tolist() != many[:5].tolist()


def test_a_nested_method_chooses_once_and_others_for_each_k(monkeypatch):
    """Greedy at the largest K alone; QR at every one."""
    asked = []

    def counted(selector, prepared, k, run):
        asked.append((selector.name, k))
        return choose_sites(selector, prepared, k, run)

    monkeypatch.setattr(curves, "choose_sites", counted)
    found = kh.curve(many_modes(), (6, 2, 4, 4), ("greedy", "qr"))
    assert asked == [("greedy", 6), ("qr", 2), ("qr", 4), ("qr", 6)]
    sites = [row.sites.tolist() for row in found.of("greedy")]
    assert [len(one) for one in sites] == [2, 4, 6]
    assert sites[0] == sites[2][:2]


# What a curve tells -------------------------------------------------------------------------------------------------


def test_each_row_is_what_compare_gives_at_that_k():
    """Same sites, same errors, but for the rounding of a product that serves several K."""
    found = kh.curve(many_modes(), (3, 7), ("greedy", "qr"))
    assert [(row.method, row.k) for row in found.rows] == [("greedy", 3), ("greedy", 7), ("qr", 3), ("qr", 7)]
    for k in (3, 7):
        for entry in compare(many_modes(), k, ["greedy", "qr"]).entries:
            row = next(row for row in found.of(entry.method) if row.k == k)
            assert row.sites.tolist() == entry.plan.indices.tolist()
            for part, errors in (("validation", row.validation), ("test", row.test)):
                known = entry.plan.metrics[part]
                assert errors == pytest.approx({name: known[name] for name in errors}, rel=1e-6)
                assert all(name.startswith("rmse_noise") for name in known.keys() - errors.keys())


def test_a_frame_has_a_line_for_each_row():
    """With the errors of both parts and the sites."""
    frame = kh.curve(many_modes(), (3, 7), ("variance", "random")).frame()
    assert frame["method"].tolist() == ["variance", "variance", "random", "random"]
    assert frame["k"].tolist() == [3, 7, 3, 7]
    assert {"validation_fvu", "test_fvu", "validation_rmse", "test_mse", "seconds"} <= set(frame)
    assert [len(sites) for sites in frame["sites"]] == [3, 7, 3, 7]


def test_a_target_is_what_counts_where_there_is_one():
    """Its error is the default, and may be named; that of the signals too."""
    labels = kh.datasets.labels("digits")
    signals = kh.datasets.digits().with_target(labels)
    found = kh.curve(signals, (2, 8), ("greedy",), predictor="linear", target_error=0.9)
    assert found.metric == "target_error"
    assert found.smallest_k("greedy") in (1, 2)
    assert "misclassification rate" in found.title
    with pytest.raises(SettingsError, match="target_error, target_log_loss, fvu"):
        kh.curve(signals, (2,), ("greedy",), metric="target_rmse")


def test_progress_is_reported_by_method():
    """A bar for each method, from none to all of its K."""
    events: list[Event] = []
    kh.curve(many_modes(), (2, 4), ("greedy", "qr"), callbacks=[events.append])
    for method in ("greedy", "qr"):
        assert [event.step for event in events if event.stage == f"curve of {method}"] == [0, 1, 2]


# The fewest sites ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "metric"), [("greedy", "fvu"), ("greedy", "mse"), ("qr", "fvu"), ("qr", "rmse")])
def test_bisection_finds_what_trying_every_k_finds(method, metric):
    """Nested or not, for every error that the curve crosses once: reached exactly, or between two K."""
    errors = [row.validation[metric] for row in kh.curve(many_modes(), range(1, 21), (method,), metric=metric).rows]
    once = [k for k in range(2, 21) if min(errors[: k - 1]) > max(errors[k - 1 :])]
    assert len(once) > 8
    for k in once[::2]:
        for error in (max(errors[k - 1 :]), 0.5 * (min(errors[: k - 1]) + max(errors[k - 1 :]))):
            found = kh.curve(many_modes(), (4, 12, 20), (method,), metric=metric, target_error=error)
            assert found.smallest_k(method) == k


def test_one_site_can_be_enough():
    """The search goes down to it."""
    assert kh.curve(many_modes(), (8,), ("greedy",), target_error=2.0).smallest_k("greedy") == 1


def test_one_site_fewer_is_tried_and_not_enough():
    """On real data, whatever the shape of the curve."""
    found = kh.curve(kh.datasets.sst(), (5, 30), ("greedy",), target_error=0.75)
    fewest = found.smallest("greedy")
    assert fewest is not None
    assert fewest.validation["fvu"] <= 0.75
    before = next(row for row in found.of("greedy") if row.k == fewest.k - 1)
    assert before.validation["fvu"] > 0.75


def test_the_search_reports_what_a_trial_costs(monkeypatch):
    """One more choice of sites for a method that is not nested; none for one that is."""
    events: list[Event] = []
    asked = []
    monkeypatch.setattr(curves, "choose_sites", lambda *args: asked.append(args[0].name) or choose_sites(*args))
    kh.curve(many_modes(), (16,), ("greedy", "qr"), target_error=0.3, callbacks=[events.append])
    assert asked == ["greedy", *["qr"] * 5]
    assert {e.total for e in events if e.stage == "smallest K of greedy"} == {4}
    assert {e.total for e in events if e.stage == "smallest K of qr, selected again for each K"} == {4}


def test_an_error_that_is_never_reached_is_none_and_the_best_is_there():
    """No search, and nothing pretended."""
    found = kh.curve(many_modes(), (2, 5), ("variance",), target_error=1e-9)
    assert [row.k for row in found.rows] == [2, 5]
    assert found.smallest_k("variance") is None
    assert found.best("variance").k == 5


def test_what_was_not_asked_for_is_reported():
    """A curve without an error to reach, and a method that it does not hold."""
    found = kh.curve(many_modes(), (2,), ("variance",))
    with pytest.raises(SettingsError, match="target_error"):
        found.smallest_k("variance")
    with pytest.raises(SettingsError, match="'qr' is not on this curve; expected one of variance"):
        found.of("qr")


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"ks": ()}, InfeasibleError, "ks is empty"),
        ({"ks": (2, 31)}, InfeasibleError, "k=31"),
        ({"ks": (2.5,)}, InfeasibleError, "whole number"),
        ({"methods": ()}, SettingsError, "methods is empty"),
        ({"methods": ("magic",)}, SettingsError, "'magic' is not known"),
        ({"metric": "mae"}, SettingsError, "'mae' is unknown; expected one of fvu, rmse, mse"),
        ({"target_error": 0}, SettingsError, "target_error=0"),
        ({"target_error": float("nan")}, SettingsError, "target_error=nan"),
        ({"device": "abacus"}, SettingsError, "'abacus'"),
        ({"precision": "8"}, SettingsError, "'8'"),
        ({"time_limit": 0}, SettingsError, "time_limit=0"),
        ({"reconstructor": "magic"}, SettingsError, "'magic' is not known"),
    ],
)
def test_bad_arguments_are_named(options, kind, says):
    """Before anything is chosen."""
    with pytest.raises(kind, match=says):
        kh.curve(many_modes(), **({"ks": (2,), "methods": ("variance",)} | options))


# The picture --------------------------------------------------------------------------------------------------------


def test_the_picture_marks_the_fewest_sites():
    """The error to reach, a ring at its K on the validation error, and the K in the legend."""
    found = kh.curve(many_modes(), (2, 16), ("greedy", "random"), target_error=0.2)
    figure = found.plot()
    axes = figure.axes[0]
    fewest = found.smallest("greedy")
    rings = [tuple(np.ravel(line.get_data())) for line in axes.get_lines() if line.get_markerfacecolor() == "white"]
    assert (fewest.k, fewest.validation["fvu"]) in rings
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert f"greedy: {fewest.k} sites" in names
    assert "target error: 0.2" in names
    assert axes.get_ylabel() == "unexplained variance"


def test_without_an_error_to_reach_there_is_one_line_for_each_method():
    """The errors on test."""
    found = kh.curve(many_modes(), (2, 4, 8), ("greedy", "random"))
    figure = found.plot()
    drawn = {line.get_label(): line.get_ydata() for line in figure.axes[0].get_lines()}
    assert {name: list(errors) for name, errors in drawn.items()} == {
        method: [row.test["fvu"] for row in found.of(method)] for method in ("greedy", "random")
    }
    assert figure.legends[0].get_texts()[0].get_text() == "greedy", "the best comes first"


@pytest.mark.parametrize(("errors", "scale"), [((0.9, 0.5), "linear"), ((0.9, 0.01), "log"), ((0.9, 0.0), "linear")])
def test_errors_that_span_much_are_on_a_logarithmic_axis(errors, scale):
    """Unless one is zero, which has no logarithm."""
    figure = error_by_k_figure([Line("qr", [2, 4], errors, errors)], "title", "error", width=NARROW)
    assert figure.axes[0].get_yscale() == scale
    assert figure.axes[0].get_xscale() == "linear"


# Stopped ------------------------------------------------------------------------------------------------------------


def stopping(monkeypatch, *numbers: signal.Signals) -> None:
    """Signals arrive while the second method chooses."""

    def choose(selector, *rest):
        if selector.name == "qr":
            for number in numbers:
                signal.raise_signal(number)
        return choose_sites(selector, *rest)

    monkeypatch.setattr(curves, "choose_sites", choose)


@pytest.mark.parametrize(
    ("numbers", "finished"), [([signal.SIGTERM], 3), ([signal.SIGINT], 3), ([signal.SIGINT] * 2, 2)]
)
def test_what_is_finished_is_kept_when_it_is_stopped(monkeypatch, numbers, finished):
    """One signal waits for the K at hand, the second does not."""
    stopping(monkeypatch, *numbers)
    with pytest.raises(curves.CurveInterrupted) as stop:
        kh.curve(many_modes(), (2, 4), ("greedy", "qr"))
    assert stop.value.signum == numbers[0]
    assert len(stop.value.curve.rows) == finished
    assert stop.value.curve.of("greedy")[1].k == 4


def test_training_that_is_stopped_ends_the_curve_too(monkeypatch):
    """It catches signals itself, and tells by an error."""

    def choose(selector, prepared, k, run):
        if k == 4:
            raise Interrupted("learn: stopped at step 3 of 9; nothing was kept", signal.SIGTERM)
        return choose_sites(selector, prepared, k, run)

    monkeypatch.setattr(curves, "choose_sites", choose)
    with pytest.raises(curves.CurveInterrupted, match="finished points of the curve: 1") as stop:
        kh.curve(many_modes(), (2, 4), ("qr",))
    assert stop.value.signum == signal.SIGTERM


# The command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a table of many modes."""
    monkeypatch.chdir(tmp_path)
    np.save("plain.npy", many_modes())
    return tmp_path


def test_the_command_shows_a_table_and_the_fewest_sites(folder, command):
    """One row for each K asked for; what was tried between them is in the files."""
    done = command("curve", "plain.npy", "-k", "2,16", "--methods", "greedy, random", "--target-error", "0.2")
    assert done.code == 0, done.err
    assert "plain, reconstructed by ridge: unexplained variance on test" in done.out
    assert "at most 0.2" in done.out
    assert "greedy: " in done.out
    assert len([line for line in done.out.splitlines() if line.startswith("│")]) == 2
    never = command("curve", "plain.npy", "-k", "2", "--methods", "random", "--target-error", "1e-6")
    assert never.code == 0
    assert "random: not reached; the smallest error is" in never.out


@pytest.mark.parametrize("picture", ["curve.png", "curve.svg", "curve.pdf"])
def test_the_command_writes_json_csv_and_a_picture(folder, command, picture):
    """All tell the same."""
    done = command(
        "curve", "plain.npy", "-k", "2,16", "--methods", "greedy,qr", "--target-error", "0.2", "--metric", "fvu",
        "--out", "curve.csv", "--plot", picture, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["metric"] == "fvu"
    assert told["target_error"] == 0.2
    frame = pd.read_csv("curve.csv")
    assert frame["k"].tolist() == [row["k"] for row in told["rows"]]
    assert [json.loads(sites) for sites in frame["sites"]] == [row["sites"] for row in told["rows"]]
    for method, fewest in told["smallest_k"].items():
        reached = frame[(frame["method"] == method) & (frame["validation_fvu"] <= 0.2)]
        assert fewest == reached["k"].min()
    marks = {"curve.png": b"\x89PNG", "curve.svg": b"<?xml", "curve.pdf": b"%PDF"}
    assert Path(picture).read_bytes().startswith(marks[picture])
    assert picture in done.err


def test_the_command_takes_a_target(folder, command):
    """And judges by it."""
    frame = pd.DataFrame(smooth(80, 6), columns=list("abcdef"))
    frame.assign(level=50 + frame["e"]).to_csv("numbers.csv", index=False)
    done = command("curve", "numbers.csv", "--target", "level", "--predictor", "linear", "-k", "1,3",
                   "--methods", "variance", "--json")  # fmt: skip
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["metric"] == "target_fvu"
    assert "smallest_k" not in told


WRONG = {
    "K in words": (("-k", "few"), 2, "-k"),
    "K of a fraction": (("-k", "2.5"), 2, "-k"),
    "no K": (("-k", ""), 2, "-k"),
    "K of too many": (("-k", "2,31"), 1, "k=31 is infeasible: between 1 and 30 observable sites"),
    "K of 0": (("-k", "0,2"), 1, "k=0 is infeasible: between 1"),
    "unknown method": (("-k", "2", "--methods", "qr,magic"), 2, "'magic' is not known"),
    "no method": (("-k", "2", "--methods", ""), 2, "method"),
    "unknown metric": (("-k", "2", "--metric", "mae"), 2, "'mae' is unknown; expected one of fvu, rmse, mse"),
    "error of 0": (("-k", "2", "--target-error", "0"), 2, "expected a positive number"),
    "negative error": (("-k", "2", "--target-error", "-0.1"), 2, "expected a positive number"),
    "error in words": (("-k", "2", "--target-error", "small"), 2, "--target-error"),
    "unknown reconstructor": (("-k", "2", "--reconstructor", "magic"), 2, "'magic' is not known"),
    "table in a missing folder": (("-k", "2", "--out", "no/c.csv"), 1, "no: no such folder"),
    "table of a wrong type": (("-k", "2", "--out", "c.xlsx"), 2, "expected .csv"),
    "picture in a missing folder": (("-k", "2", "--plot", "no/c.png"), 1, "no: no such folder"),
    "picture of a wrong type": (("-k", "2", "--plot", "c.bmp"), 2, ".png"),
}


@pytest.mark.parametrize(("options", "code", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_call_is_reported_before_the_work(folder, command, monkeypatch, options, code, says):
    """Nothing is chosen, nothing is written."""
    monkeypatch.setattr(curves, "choose_sites", lambda *_: pytest.fail("work was begun"))
    before = sorted(folder.iterdir())
    done = command("curve", "plain.npy", *options)
    assert done.code == code, done
    assert says in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert sorted(folder.iterdir()) == before


def test_a_missing_file_is_reported(folder, command):
    """As by every command."""
    done = command("curve", "none.npy", "-k", "2")
    assert done.code == 1
    assert "none.npy: no such file" in done.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_stopped_gives_what_is_finished(folder, command, monkeypatch, number, code):
    """Printed and written, and the exit code tells."""
    stopping(monkeypatch, number)
    done = command("curve", "plain.npy", "-k", "2,4", "--methods", "greedy,qr", "--out", "c.csv", "--json")
    assert done.code == code
    assert [(row["method"], row["k"]) for row in json.loads(done.out)["rows"]] == [
        ("greedy", 2), ("greedy", 4), ("qr", 2)
    ]  # fmt: skip
    assert len(pd.read_csv("c.csv")) == 3
    assert "finished points of the curve: 3" in done.err


def test_a_command_that_is_stopped_at_once_leaves_the_last_table(folder, command, monkeypatch):
    """There is nothing to put in its place."""
    Path("c.csv").write_text("k\n1\n")
    stopping(monkeypatch, signal.SIGINT, signal.SIGINT)
    done = command("curve", "plain.npy", "-k", "2,4", "--methods", "qr", "--out", "c.csv")
    assert done.code == 130
    assert done.out == ""
    assert Path("c.csv").read_text() == "k\n1\n"


def test_the_help_is_there(command):
    """And names what there is to say."""
    shown = command("curve", "--help")
    assert shown.code == 0
    for option in ("--target-error", "--metric", "--plot", "--out"):
        assert option in shown.out


@pytest.mark.parametrize("method", ["greedy", "qr"])
def test_sites_that_are_there_and_groups_are_cut_as_they_count(method):
    """A nested ranking, cut, has what a new choice would have: all that is there, whole groups."""
    field = kh.datasets.sst()
    there = field.with_constraints({"existing": field.sites.index[[5, 500]].tolist()})
    assert [len(row.sites) for row in kh.curve(there, ks=(3, 5), methods=(method,)).rows] == [5, 7]
    for row in kh.curve(field.with_constraints({"groups": "lat"}), ks=(2, 3), methods=(method,)).rows:
        lines = np.unique(row.sites % 72)
        assert len(lines) == row.k
        assert len(row.sites) == np.isin(field.sites.places[1], lines).sum()


def test_a_curve_works_around_missing_values():
    """Readings that are missing are filled, as a plan fills them."""
    values = smooth(80, 4, 5)
    values[np.random.default_rng(0).uniform(size=values.shape) < 0.1] = np.nan
    found = kh.curve(kh.read(values, missing="model"), ks=(2, 6), methods=("greedy",))
    assert found.rows[1].test["fvu"] < found.rows[0].test["fvu"] < 1
