"""What is known without sensors, in summaries, tables and reports."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

import keyhole as kh
from example_data import monthly_field, quick, smooth
from keyhole.report import write_report
from keyhole.report.formatting import share
from keyhole.report.tables import comparison_table, curve_table, plan_table
from keyhole.report.without_sensors import baseline_text, baseline_warnings
from keyhole.workflow.comparison import compare


def shown(renderable) -> str:
    text = io.StringIO()
    Console(file=text, width=200).print(renderable)
    return text.getvalue()


@pytest.fixture(scope="module")
def plan():
    return quick(monthly_field(120), anomalies="auto")


def test_a_summary_names_both_errors_the_anomalies_and_the_baselines(plan):
    text, scores = shown(plan_table(plan)), plan.metrics["test"]
    assert f"unexplained variance {share(scores['fvu'])}" in text
    assert f" of the anomalies, {share(scores['fvu_field'])} of the field" in text
    assert f"relative L2 error {share(scores['relative_l2'], digits=2)}" in text
    assert "anomalies from harmonics of the year, chosen by cross-validation" in text
    mean, persistence = (scores[f"baseline_rmse[{name}]"] for name in ("mean", "persistence"))
    assert f"without sensors: mean {mean:.3g} degC, harmonics of the year " in text
    assert f"persistence {persistence:.3g} degC, interpolation in time" in text
    assert f"; 3 principal components {scores['baseline_rmse[components]']:.3g} degC" in text
    assert "warning" not in text


def test_deviations_from_the_mean_have_one_error_and_a_calendar():
    text = shown(plan_table(quick(monthly_field(120))))
    assert "of the anomalies" not in text
    assert ", calendar " in text


def test_a_calendar_that_predicts_nothing_is_named():
    noise = np.random.default_rng(0).normal(size=(120, 4, 5))
    text = shown(plan_table(quick(monthly_field(120).copy(data=noise), anomalies="auto")))
    assert "deviations from the mean: the calendar does not predict blocks of training samples" in text


def test_a_plan_without_time_has_mean_and_components_alone():
    text = shown(plan_table(quick(smooth(40, 4, 5))))
    assert "without sensors: mean " in text
    for absent in ("calendar", "persistence", "deviations"):
        assert absent not in text


def test_sensors_that_add_nothing_are_pointed_out():
    """A season that all sites share, and noise that no site tells of another."""
    field = monthly_field(120)
    noise = np.random.default_rng(0).normal(size=field.shape)
    year = 10 * np.cos(2 * np.pi * np.arange(120) / 12)[:, None, None]
    text = shown(plan_table(quick(field.copy(data=year + 5 * noise), k=1)))
    assert "warning: the calendar alone is as good as the sensors: RMSE" in text


def test_comparisons_curves_and_reports_name_them(tmp_path):
    field = monthly_field(120)
    comparison = compare(field, 3, ["qr", "random"], anomalies="month")
    known = "without sensors: mean "
    assert known in shown(comparison_table(comparison))
    curve = kh.curve(field, [2, 4], ["qr"], anomalies="month")
    text = shown(curve_table(curve))
    assert "principal components" in text
    assert "without sensors: mean " in text
    assert "monthly climatology 100.0%, calendar " in text
    write_report(comparison, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "RMSE without sensors: mean " in page
    assert "of the variance of the anomalies is unexplained" in page


def test_metrics_of_older_plans_have_no_baselines(plan):
    scores = {"rmse": 1.0, "fvu": 0.5}
    assert baseline_text(scores, plan.scaling.climatology, components=3) == ""
    assert baseline_warnings(scores) == []


def labelled(kind: str):
    """Rows with a target, of which the mean or the most frequent class is known without sensors."""
    import pandas as pd

    values = np.random.default_rng(0).normal(size=(120, 4))
    target = values[:, 0] + 0.5 * values[:, 1]
    named = np.where(target > 0.8, "rain", np.where(target < -1.2, "snow", "sun")) if kind == "class" else target + 7
    return pd.DataFrame(values, columns=list("abcd")).assign(weather=named)


def test_the_most_frequent_class_stands_beside_the_error_of_a_class(tmp_path):
    table = labelled("class")
    compared = compare(table, 2, ["relevance"], target="weather", predictor="linear")
    plan, split = compared.choice.plan, compared.prepared.split
    truth = table["weather"].to_numpy()
    for part, fitted, scored in (
        ("validation", split.train, split.validation),
        ("test", split.development, split.test),
    ):
        shares = {name: (truth[fitted] == name).mean() for name in ("rain", "snow", "sun")}
        most, scores = max(shares, key=shares.__getitem__), plan.metrics[part]
        assert scores["baseline_target_error"] == pytest.approx((truth[scored] != most).mean())
        log_loss = -np.mean([np.log(shares[name]) for name in truth[scored]])
        assert scores["baseline_target_log_loss"] == pytest.approx(log_loss)
    known = f"most frequent class, error rate {plan.metrics['test']['baseline_target_error']:.1%}, log loss "
    assert f"without sensors: weather: {known}" in shown(plan_table(plan))
    assert f"without sensors: weather: {known}" in shown(comparison_table(compared))
    write_report(compared, tmp_path / "report.html")
    assert known in (tmp_path / "report.html").read_text()


def test_the_mean_stands_beside_the_error_of_a_number():
    table = labelled("number")
    compared = compare(table, 2, ["relevance"], target="weather", predictor="linear")
    plan, split = compared.choice.plan, compared.prepared.split
    truth = table["weather"].to_numpy()
    rmse = np.sqrt(np.mean((truth[split.test] - truth[split.development].mean()) ** 2))
    assert plan.metrics["test"]["baseline_target_rmse"] == pytest.approx(rmse)
    assert f"without sensors: weather: mean {rmse:.3g}; field: mean " in shown(plan_table(plan))


def test_a_class_that_readings_do_not_predict_is_a_warning():
    scores = {"rmse": 1.0, "target_error": 0.4, "baseline_target_error": 0.3}
    assert baseline_warnings(scores) == [
        "warning: the most frequent class alone is as good as the sensors: error rate 30.0%, with sensors 40.0%"
    ]
    scores = {"rmse": 1.0, "target_rmse": 4.0, "baseline_target_rmse": 3.0}
    assert baseline_warnings(scores) == [
        "warning: the mean of the target alone is as good as the sensors: RMSE 3, with sensors 4"
    ]


def test_a_report_of_a_target_begins_with_its_error(tmp_path):
    compared = compare(labelled("class"), 2, ["relevance"], target="weather", predictor="linear")
    write_report(compared, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    lead = page.partition('<p class="lead">')[2].partition("</p>")[0]
    assert lead.startswith("The misclassification rate of weather on test is ")
    assert "% ± " in lead.partition(". ")[0]
    heads = page.partition("<thead>")[2].partition("</thead>")[0]
    assert "weather: error rate" in heads
