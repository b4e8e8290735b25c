"""Errors with measurement noise beyond that of the data, which noise-free errors are to be read beside."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from example_data import monthly_field, smooth
from keyhole.data import Sensors
from keyhole.data.preparation import prepare
from keyhole.models.reconstructors import Kernel
from keyhole.report.tables import plan_summary, plan_table
from keyhole.workflow.scoring import scores_of

LEVELS = {"rmse_noise[1%]": 0.01, "rmse_noise[5%]": 0.05, "rmse_noise[10%]": 0.1}


def by_draws(plan, test, scale, draws=300):
    """Error with noise of each level, by the definition: reconstruct from noisy readings."""
    rng, readings = np.random.default_rng(0), plan.readings_of(test)
    found = {}
    for name, level in LEVELS.items():
        squares = []
        for _ in range(draws):
            noisy = readings + level * scale * rng.normal(size=readings.shape)
            errors = plan.reconstruct_array(noisy, test.time, test.covariates) - test.values
            squares.append(np.nanmean(np.square(errors / plan.error_scale)))
        found[name] = np.mean(squares) ** 0.5
    return found


def two_units():
    """Return samples of two variables on one grid, in different units."""
    import xarray as xr

    first, second = smooth(80, 3, 4), 30 * smooth(80, 3, 4, seed=1)
    made = {"t": ("sample", "y", "x"), "p": ("sample", "y", "x")}
    units = {"t": "K", "p": "Pa"}
    fields = {"t": first, "p": second}
    return kh.read(
        xr.Dataset({name: (dims, fields[name], {"units": units[name]}) for name, dims in made.items()}),
        variable=["t", "p"],
    )


CASES = {
    "array": (lambda: kh.read(smooth(80, 3, 4)), "ridge"),
    "two units": (two_units, "ridge"),
    "covariates": (lambda: kh.read(monthly_field()).anomalies("month"), "optimal_interpolation"),
    "sensors": (
        lambda: kh.read(smooth(80, 3, 4)).with_sensors(Sensors.at({"row": [0.5, 1.5], "column": [1.0, 2.2]})),
        "ridge",
    ),
    "kernel": (lambda: kh.read(smooth(80, 3, 4)), Kernel()),
}


@pytest.mark.parametrize("name", CASES)
def test_errors_with_noise_are_those_of_noisy_readings(name):
    make, reconstructor = CASES[name]
    samples = make()
    plan = kh.select(samples, k=2, method="greedy", reconstructor=reconstructor, refit=False)
    prepared = prepare(samples, None, 0)
    rmse = scores_of(prepared, {"test": plan})["test"].metrics["rmse"]
    assert rmse == pytest.approx(plan.metrics["test"]["rmse"], rel=1e-4)
    for level, error in by_draws(plan, prepared.test, plan.reading_scale, 100).items():
        assert plan.metrics["test"][level] == pytest.approx(error, rel=0.1 if name == "kernel" else 0.02)


def test_noise_adds_to_that_of_the_data():
    """The readings of a noisy sensor have more noise, and the draws are others than its own."""
    samples = kh.read(smooth(80, 3, 4)).with_noise(0.2)
    plan = kh.select(samples, k=2, method="greedy", reconstructor=Kernel(), refit=False)
    errors = plan.metrics["test"]
    assert errors["rmse"] < errors["rmse_noise[1%]"] * 1.05 < errors["rmse_noise[10%]"] * 1.1


def test_the_summary_warns_where_little_noise_doubles_the_error():
    """A site where nearly nothing moves: its noise-free reading determines the field, and a real one does not."""
    values = np.random.default_rng(0).normal(size=(80, 1)) @ [[1.0, 2.0, 1e-3]]
    constraints = {"allowed": np.array([False, False, True])}
    plan = kh.select(values, k=1, method="greedy", reconstructor="ridge", constraints=constraints, refit=False)
    text = str(plan_table(plan).renderables[-1])
    assert "warning: with a measurement noise of 1 % of the spread the error is" in text
    assert "select again" in text
    assert "the search assumed 1% of the spread" in text
    assert plan_summary(plan)["metadata"]["assumed_noise"] == 0.01
    fine = kh.select(smooth(80, 3, 4), k=3, method="greedy", reconstructor="ridge", noise=0.1, refit=False)
    text = str(plan_table(fine).renderables[-1])
    assert "further noise of 0 %" in text
    assert "warning" not in text
    assert "assumed" not in text


def test_errors_with_noise_are_kept_in_the_file(tmp_path):
    plan = kh.select(smooth(60, 3, 4), k=2, method="greedy", reconstructor="ridge", refit=False)
    plan.save(tmp_path / "plan.keyhole")
    again = kh.load(tmp_path / "plan.keyhole")
    assert again.metrics == plan.metrics
    assert again.metadata["assumed_noise"] == 0.01
