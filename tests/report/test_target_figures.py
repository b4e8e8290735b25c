"""Figures of a target: what was predicted for which class, and how far numbers are off."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from keyhole import metrics
from keyhole.core.errors import SettingsError
from keyhole.data.target import Target
from keyhole.errors import DataError
from keyhole.report import NARROW, ReportData, target_figure, write_report
from keyhole.workflow.comparison import Comparison, compare

QUICK = {"k": 2, "methods": ["relevance"], "target": "y", "predictor": "linear", "split": "random"}


def classes(count: int) -> Comparison:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(40 * count, 4))
    names = np.array([f"class {one} in $" for one in range(count)])
    y = names[np.clip(((values[:, 1] + 2) / 4 * count).astype(int), 0, count - 1)]
    return compare(pd.DataFrame(values, columns=list("abcd")).assign(y=y), **QUICK)


def test_a_confusion_matrix_counts_the_test_samples():
    """Rows are true classes, from the top; each count stands in its cell."""
    data = ReportData.of(classes(3))
    figure = target_figure(data)
    axes, target = figure.axes[0], data.prepared.test.target
    counts = metrics.confusion_matrix(target, data.predicted)
    assert counts.sum() == len(data.prepared.test)
    np.testing.assert_array_equal(counts.sum(axis=1), np.bincount(target.values, minlength=3))
    written = {text.get_position(): text.get_text() for text in axes.texts}
    assert written == {(column, row): str(n) for (row, column), n in np.ndenumerate(counts) if n}
    shares = axes.images[0].get_array()
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"class {one} in \\$" for one in range(3)]


def test_many_classes_are_colours_alone():
    assert not target_figure(ReportData.of(classes(25)), width=NARROW).axes[0].texts


def test_predicted_numbers_are_drawn_against_true_ones():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(100, 4))
    data = ReportData.of(compare(pd.DataFrame(values, columns=list("abcd")).assign(y=3 * values[:, 2]), **QUICK))
    axes = target_figure(data).axes[0]
    points = axes.collections[0].get_offsets()
    np.testing.assert_allclose(points[:, 0], data.prepared.test.target.values)
    np.testing.assert_allclose(points[:, 1], data.predicted)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("true y", "predicted y")


def test_the_page_shows_them(tmp_path):
    write_report(classes(2), tmp_path / "report.html")
    assert "Confusion matrix of y on test" in (tmp_path / "report.html").read_text()


def test_without_a_target_there_is_no_such_figure(table_comparison, tmp_path):
    with pytest.raises(SettingsError, match="no target to predict"):
        target_figure(ReportData.of(table_comparison))
    write_report(table_comparison, tmp_path / "report.html")
    assert "Predicted against true" not in (tmp_path / "report.html").read_text()


def test_numbers_have_no_confusion_matrix():
    with pytest.raises(DataError, match="predictions have shape"):
        metrics.confusion_matrix(Target.of([0.5, 1.5, 2.5]), np.zeros(3))
