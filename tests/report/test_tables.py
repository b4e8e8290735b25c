"""Plans and comparisons for people and for machines, and the progress bar."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import keyhole as kh
from example_data import quick, smooth
from keyhole.core.progress import progress
from keyhole.core.run import Event
from keyhole.placement import Selection, Selector
from keyhole.report.formatting import share
from keyhole.report.tables import comparison_table, plan_summary, plan_table
from keyhole.workflow.comparison import compare


class FixedSite(Selector):
    """Always the last site."""

    name = "fixed"

    def select(self, train, k, *, validation, run):
        return Selection(np.array([len(train.sites) - 1]))


def shown(renderable) -> str:
    text = io.StringIO()
    Console(file=text, width=120).print(renderable)
    return text.getvalue()


def test_a_plan_names_the_axes_that_are_space(field_plan):
    """On the screen and for machines."""
    assert "space: lat 4 x lon 5" in shown(plan_table(field_plan))
    assert plan_summary(field_plan)["space"] == {"lat": 4, "lon": 5}


def test_a_plan_prints_as_its_summary(field_plan):
    """At a prompt, in a log, in an error: one screen, not the arrays of its models."""
    assert repr(field_plan) == str(field_plan)
    for line in shown(plan_table(field_plan)).splitlines():
        assert line.rstrip() in repr(field_plan)
    assert "array(" not in repr(field_plan)


def test_a_notebook_shows_sites_and_summary_of_a_plan(field_plan):
    page = field_plan._repr_html_()
    assert page.count("<tr") == 1 + field_plan.k
    assert "made by qr + ridge, seed 0" in page


def test_names_are_text_in_a_notebook():
    import pandas as pd

    values = np.random.default_rng(0).normal(size=(40, 3))
    page = quick(pd.DataFrame(values, columns=["<img>", "c", "d"]), k=3)._repr_html_()
    assert "&lt;img&gt;" in page
    assert "<img>" not in page


def test_comparisons_and_curves_print_as_their_tables():
    compared = compare(smooth(60, 4, 4), 2, ["qr", "variance"])
    drawn = kh.curve(smooth(60, 4, 4), ks=(1, 2), methods=["qr"])
    assert "variance" in repr(compared)
    assert "without sensors: mean" in repr(compared)
    assert drawn.title in repr(drawn)
    assert "array(" not in repr(compared) + repr(drawn)


def test_small_shares_are_not_zero():
    """An error that rounds to 0.0 % is shown by its size; a field without error has none."""
    waves = np.random.default_rng(0).normal(size=(80, 2)) @ np.random.default_rng(1).normal(size=(2, 12))
    plan = quick(waves + 1e-4 * np.random.default_rng(2).normal(size=(80, 12)), k=2)
    unexplained = plan.metrics["test"]["fvu"]
    assert 0 < unexplained < 1e-5
    assert f"unexplained variance {100 * unexplained:.1g}% +- " in shown(plan_table(plan))
    assert "0.0%" not in shown(plan_table(plan)).partition("without sensors")[0].partition("validation")[2]


def test_a_plan_shows_sites_in_rank_order_then_errors(field_plan):
    text = shown(plan_table(field_plan))
    places = [text.index(name) for name in field_plan.names]
    assert places == sorted(places)
    assert "validation: RMSE" in text
    assert "degC" in text
    assert "made by qr + ridge, seed 0" in text


def test_a_long_plan_is_cut_and_says_so():
    text = shown(plan_table(quick(smooth(40, 6, 6), k=34)))
    assert "and 4 more" in text
    assert len([line for line in text.splitlines() if "row=" in line]) == 30


def test_names_that_look_like_markup_are_shown_as_they_are():
    import pandas as pd

    names = ["[red]", "[/b]", "a[0]"]
    text = shown(plan_table(quick(pd.DataFrame(smooth(30, 3), columns=names))))
    for name in names:
        assert name in text


@pytest.mark.parametrize("kind", ["array_plan", "channel_plan", "field_plan", "table_plan"])
def test_a_summary_is_plain_json(kind, request):
    plan = request.getfixturevalue(kind)
    summary = json.loads(json.dumps(plan_summary(plan)))
    assert summary["k"] == 3
    assert [site["index"] for site in summary["sites"]] == plan.indices.tolist()
    assert summary["metrics"] == plan.metrics


def test_a_comparison_shows_a_row_for_each_method_best_first():
    comparison = compare(smooth(40, 4, 5), 3, ["random", "qr"])
    lines = shown(comparison_table(comparison)).splitlines()
    rows = [line for line in lines if line.startswith(("│ qr", "│ random"))]
    assert len(rows) == 2
    assert comparison.entries[0].method in rows[0]
    assert "errors on 8 test samples" in lines[0]


def test_methods_that_are_as_good_as_the_best_are_named(rng):
    """The same sites by two names; and one that is clearly worse, as its column tells nothing."""
    values = np.column_stack([rng.normal(size=(60, 1)) + 0.1 * rng.normal(size=(60, 4)), 3 * rng.normal(size=(60, 1))])
    comparison = compare(values / [1, 1, 1, 1, 3], 1, {"one": "greedy", "two": "greedy", "bad": FixedSite()})
    text = shown(comparison_table(comparison))
    assert "as good as one (within one standard error): two" in text
    row = next(row for row in comparison.rows() if row["method"] == "bad")
    assert row["difference_of"] == "fvu"
    assert row["difference"] > row["difference_se"] > 0
    assert f"{row['difference']:.1%} +- {row['difference_se']:.1%}" in text
    assert comparison.choice.method == "one"


def test_errors_are_shown_with_their_standard_errors(field_plan):
    scores = field_plan.metrics["test"]
    assert f"unexplained variance {share(scores['fvu'])} +- {share(scores['fvu_se'])}" in shown(plan_table(field_plan))


def test_a_comparison_without_any_error_is_shown_too():
    """All the sites observed leaves nothing; the best error is then no measure for the others."""
    comparison = compare(smooth(40, 4, 5), 3, ["qr", "random"])
    perfect = [
        replace(entry, plan=replace(entry.plan, metrics={"test": {"mse": error, "rmse": error, "fvu": error}}))
        for entry, error in zip(comparison.entries, (0.0, 0.5), strict=True)
    ]
    rows = shown(comparison_table(replace(comparison, entries=perfect))).splitlines()
    assert any("0.5" in row for row in rows)


def test_progress_is_silent_where_there_is_no_terminal(capsys):
    with progress() as tell:
        for step in range(3):
            tell(Event("refit", step, 3, {"loss": 0.5, "unknown": 1.0}))
        tell(Event("refit", 0, 5))
    assert capsys.readouterr() == ("", "")


def test_progress_shows_stage_steps_and_figures_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress() as tell:
        tell(Event("choose sites", 2, 4, {"loss": 0.125, "validation": np.float64(0.5)}))
    text = capsys.readouterr().err
    for part in ("choose sites", "2/4", "loss 0.125", "validation 0.5"):
        assert part in text


def test_the_name_of_a_stage_does_not_steer_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress() as tell:
        tell(Event("\x1b[2J [red]sea", 2, 4))
    text = capsys.readouterr().err
    assert "\x1b[2J" not in text
    assert r"\x1b[2J [red]sea" in text
