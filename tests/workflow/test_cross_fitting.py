"""Prediction intervals by cross-fitting: honest, without a sample set aside, and said where they do not hold."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import keyhole as kh
from example_data import monthly_field, quick, smooth
from keyhole.core.run import Run
from keyhole.models.reconstructors import Dense
from keyhole.report.tables import plan_summary, plan_table
from keyhole.workflow.calibration import coverage
from keyhole.workflow.cross_fitting import cross_fitted, refit_to


def rough(n, *grid, seed=0, noise=0.5):
    """A field of three modes with noise that no site tells of another."""
    values = smooth(n, *grid, seed=seed)
    return values + noise * np.random.default_rng(seed + 1).normal(size=values.shape)


def test_no_sample_is_set_aside():
    """The models are those of a plan without intervals."""
    values = rough(200, 4, 5)
    plan, without = quick(values), quick(values, intervals=False)
    assert plan.metadata["split"] == without.metadata["split"]
    assert plan.metrics["test"]["rmse"] == without.metrics["test"]["rmse"]
    assert "coverage_90" not in without.metrics["test"]


def test_the_errors_are_those_of_models_that_have_not_seen_them():
    """With nearly as many readings as samples, errors of the fit itself would be far too small."""
    values = rough(60, 6, 8)
    plan = quick(
        values, k=30, split={"train": np.arange(40), "validation": np.arange(40, 48), "test": np.arange(48, 60)}
    )
    truth = rough(2060, 6, 8)[60:]
    found = coverage(plan, kh.read(truth), plan.reconstruct_samples(kh.read(truth)))
    assert found["coverage_90"] > 0.85


def test_all_samples_may_be_cross_fitted():
    """As a plan that is refitted to all samples needs it; the intervals are then for samples still to come."""
    samples = kh.read(rough(150, 4, 5))
    plan = quick(samples)
    rows = np.arange(150)
    refit = partial(refit_to, plan, samples, run=Run())
    intervals = cross_fitted(refit(rows), samples, rows, refit, Run())
    assert len(intervals.components) == 150
    assert intervals.factor(0.9, 0) == pytest.approx(plan.intervals.factor(0.9, 0), rel=0.1)
    assert cross_fitted(plan, samples, rows[:10], refit, Run()) is None


@pytest.mark.parametrize("reconstructor", ["ridge", "optimal_interpolation", "kernel"])
def test_a_refit_to_the_same_samples_is_the_same_model(reconstructor):
    samples = kh.read(monthly_field(90)).anomalies("month")
    plan = kh.select(samples, 3, method="qr", reconstructor=reconstructor)
    again = refit_to(plan, samples, np.arange(90), Run())
    readings = plan.readings_of(samples)
    np.testing.assert_allclose(
        again.reconstruct_array(readings, samples.time), plan.reconstruct_array(readings, samples.time), atol=2e-3
    )


def test_networks_are_calibrated_on_samples_held_out_anyway():
    values = rough(300, 4, 5)
    plan = quick(values, k=3)
    network = kh.select(
        values, 3, method="qr", reconstructor=Dense(width=16, blocks=1, train={"steps": 100, "batch_size": 32})
    )
    sizes = network.metadata["split"]
    assert len(network.measured.intervals.components) == sizes["validation"]
    assert len(network.intervals.components) == sizes["validation"] + sizes["test"]  # fitted to all in the end
    assert len(plan.measured.intervals.components) == sizes["train"] + sizes["validation"]
    assert len(plan.intervals.components) == 300
    assert network.metrics["test"]["coverage_90"] == pytest.approx(0.9, abs=0.1)


def test_missing_values_are_no_errors():
    values = rough(200, 4, 5)
    gappy = values.copy()
    gappy[np.random.default_rng(5).random(values.shape) < 0.1] = np.nan
    plan, whole = quick(gappy, missing="model"), quick(values)
    assert plan.metrics["test"]["coverage_90"] == pytest.approx(0.9, abs=0.07)
    assert plan.metrics["test"]["width_90"] == pytest.approx(whole.metrics["test"]["width_90"], rel=0.25)


def test_the_summary_says_where_later_data_are_not_covered():
    """Noise that grows fivefold in the test part."""
    values = rough(200, 4, 5)
    values[160:] += 2.5 * np.random.default_rng(9).normal(size=(40, 4, 5))
    plan, calm = quick(values, split="blocks"), quick(rough(200, 4, 5), split="blocks")
    assert plan.metrics["test"]["coverage_90"] < 0.6
    (sentence,) = plan.metadata["warnings"]
    assert "covers only" in sentence
    assert sentence in plan_table(plan).renderables[1].plain
    assert plan_summary(plan)["metadata"]["warnings"] == [sentence]
    assert "warnings" not in calm.metadata


def test_a_drift_that_each_site_hides_is_found_in_the_mean():
    """Half a standard deviation of each site, but two of the mean over all of them."""
    field = monthly_field(300)
    noise = np.random.default_rng(0).normal(size=field.shape)
    noise[240:] += 0.5
    plan = quick(field.copy(data=np.where(np.isnan(field), np.nan, noise)), k=2)
    assert plan.metrics["test"]["coverage_90"] > 0.8
    assert plan.metrics["test"]["coverage_90_mean"] < 0.7
    assert "of the mean over all sites" in plan.metadata["warnings"][-1]
