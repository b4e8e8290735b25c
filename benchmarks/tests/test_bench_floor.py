"""The default `select` is never worse than principal components, QR pivoting and ridge, and says how good it is."""

from __future__ import annotations

import numpy as np
import pytest

from keyhole_benchmarks.floor import jobs, score
from keyhole_benchmarks.floor_sets import SMALL_SETS
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.plain import PlainPlan
from keyhole_benchmarks.records import Store
from keyhole_benchmarks.runner import run_jobs
from keyhole_benchmarks.sections import floor

SLACK = 1.02  # of the floor's error


@pytest.mark.parametrize("name", SMALL_SETS)
def test_the_default_reaches_the_floor_and_reports_its_error(name):
    make, k = SMALL_SETS[name]
    found = score(make(), k)
    assert found.ratio <= SLACK, found
    assert found.is_honest, found


def test_the_floor_is_ridge_with_the_least_leave_one_out_error(rng):
    """By brute force: no other strength has a smaller error of samples left out one by one."""
    values = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 5)) + 0.3 * rng.normal(size=(12, 5))
    phase, weight = np.zeros(12, np.int64), np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    plan = PlainPlan(values, 2, phase, weight)
    anomalies = values - values.mean(axis=0)
    readings = anomalies[:, plan.sites]

    def left_out(strength: float) -> float:
        error = 0.0
        for row in range(12):
            keep = np.arange(12) != row
            centre, inputs = anomalies[keep].mean(axis=0), readings[keep] - readings[keep].mean(axis=0)
            gram = inputs.T @ inputs + strength * np.eye(2)
            fit = np.linalg.solve(gram, inputs.T @ (anomalies[keep] - centre))
            reading = readings[row] - readings[keep].mean(axis=0)
            error += float(weight @ np.square(anomalies[row] - centre - reading @ fit))
        return error

    def coefficients(strength: float) -> np.ndarray:
        return np.linalg.solve(readings.T @ readings + strength * np.eye(2), readings.T @ anomalies)

    strengths = np.linalg.norm(readings, 2) ** 2 * np.logspace(-12, 2, 29)
    best = min(strengths, key=left_out)
    np.testing.assert_allclose(plan.coefficients, coefficients(best), atol=1e-6)


def test_lines_become_a_table(tmp_path):
    store = Store(tmp_path, "floor")
    assert run_jobs(jobs(("breast_cancer",), (2,), (0,)), store, device="cpu", say=str) == 1
    lines = Lines(store.lines())
    (one,) = lines
    assert one["split"] == {"given": 456, "later": 113}
    assert one["metrics"]["ratio"] == pytest.approx(one["metrics"]["error"] / one["metrics"]["floor"])
    page = list(floor(lines.latest()))
    assert page[2].startswith("| breast cancer | 456 + 113 | 2 | 0.")
