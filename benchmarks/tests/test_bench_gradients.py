"""The benchmark of gradients: the gradient by enumeration, and what is measured against it."""

from __future__ import annotations

import pytest
import torch

from keyhole.masks import ExactK
from keyhole_benchmarks.gradients import (
    DISTRIBUTIONS,
    ESTIMATORS,
    STATES,
    K,
    Toy,
    expected_error,
    jobs,
    make_distribution,
)
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.records import Store
from keyhole_benchmarks.runner import run_jobs
from keyhole_benchmarks.sections import gradients


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("state", STATES)
def test_the_enumeration_is_the_mean_over_draws(name, state):
    """For both objectives, within 4.5 standard errors of 100000 draws."""
    toy, distribution = Toy.random(3), make_distribution(name, state, 3)
    with torch.no_grad():
        sample = distribution.draw(100_000, torch.Generator().manual_seed(0))
        drawn = {"exact": ExactK(K).masks(distribution, sample), "count": sample.opened.double()}
        for objective, masks in drawn.items():
            errors, expected = toy.errors(masks), expected_error(distribution, toy, objective)
            assert abs(float(errors.mean() - expected)) < 4.5 * float(errors.std()) / len(errors) ** 0.5


def test_the_gradient_of_the_enumeration_is_that_of_central_differences():
    toy, distribution = Toy.random(0), make_distribution("vln", "initial", 0)
    (gradient,) = torch.autograd.grad(expected_error(distribution, toy, "exact"), distribution.bias)
    for site in range(len(gradient)):
        ends = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                distribution.bias[site] += step
                ends.append(float(expected_error(distribution, toy, "exact")))
                distribution.bias[site] -= step
        assert float(gradient[site]) == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)


def test_estimators_are_run_and_shown(tmp_path):
    """The unbiased one is; a table for each objective."""
    store = Store(tmp_path, "gradients")
    asked = ("reinforce", "exact_0.3", "soft_0.3", "hard_0.3")
    assert run_jobs(jobs(asked, 200, [0]), store, device="cpu", say=lambda _: None) == 16
    lines = Lines(store.lines())
    for one in lines.where(method="reinforce"):
        assert one["metrics"]["bias"] < 2 * one["metrics"]["bias_of_chance"]
    for one in lines.where(method="exact_0.3"):
        assert one["metrics"]["bias"] > 2 * one["metrics"]["bias_of_chance"]
        assert one["metrics"]["deviation"] < 3
    page = "\n".join(gradients(lines.latest()))
    assert page.count("| estimator | ILN, initial |") == 2
    assert all(f"| {ESTIMATORS[name].words} | " in page for name in asked)
