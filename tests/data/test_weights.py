"""Loss weights and measurement noise."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from example_data import gridded, monthly_field, quick, smooth
from keyhole.core.errors import SettingsError
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.workflow.selection import choose_sites
from quick_selectors import selector


def two_halves(n=200, seed=0):
    """Two rows of cells that have nothing to do with each other; the second varies ten times as much."""
    rng = np.random.default_rng(seed)
    first, second = (rng.normal(size=(n, 4)) @ rng.normal(size=(4, 8)) for _ in range(2))
    return np.stack([first, 10 * second], axis=1)


@pytest.mark.parametrize("name", ["greedy", "qr", "exchange", "kernel_exchange", "learned", "lasso"])
def test_sites_go_where_errors_count(name):
    """All of them to the row of interest, though the other varies more."""
    signals = kh.read(two_halves())
    plain, weighted = (
        choose_sites(selector(name), prepare(one, None, seed=0), 3, Run()).sites
        for one in (signals, signals.with_weights({"row": (0, 0)}))
    )
    assert (plain >= 8).any()
    assert (weighted < 8).all()


def test_weights_are_area_where_there_is_latitude_and_longitude():
    """By default; and none or others where asked for."""
    field = kh.read(monthly_field())
    np.testing.assert_allclose(field.weights, np.cos(np.deg2rad(field.sites.coordinate("lat"))), rtol=1e-6)
    assert field.with_weights("none").weights is None
    assert kh.read(smooth(9, 3, 4)).weights is None
    own = np.arange(20.0).reshape(4, 5)
    np.testing.assert_array_equal(field.with_weights(own).weights, field.sites.from_grid(own))


def test_a_weighted_plan_reconstructs_in_the_users_units(tmp_path):
    """Weights change what is minimised, not what comes out; they are kept in the file."""
    field = monthly_field()
    plans = [quick(kh.read(field).with_weights(one), k=6) for one in ("none", "area")]
    for plan in plans:
        truth = kh.read(field)
        reconstructed = plan.reconstruct(truth.readings(plan.indices), time=truth.time)
        assert np.nanmax(np.abs(reconstructed.values - field.values)) < 1.5
        plan.save(tmp_path / "plan.keyhole")
        again = kh.load(tmp_path / "plan.keyhole").reconstruct(truth.readings(plan.indices), time=truth.time)
        np.testing.assert_array_equal(again.values, reconstructed.values)


def test_errors_by_weight_are_reported():
    """Beside those of all cells."""
    plan = quick(two_halves(), weights={"row": (0, 0)}, k=4)
    assert plan.metrics["test"]["fvu_weighted"] < 0.01
    assert plan.metrics["test"]["fvu"] > 0.5


@pytest.mark.parametrize(
    ("given", "said"),
    [("areas", "geojson"), (np.ones((2, 2)), "shape"), (-np.ones((2, 8)), "non-negative"),
     (np.zeros((2, 8)), "no valid site"), ({"row": (5, 6)}, "no valid site"),
     ("area", "areas of the sites are not known")],
)  # fmt: skip
def test_weights_that_make_no_sense_are_refused(given, said):
    """An error that names the argument."""
    with pytest.raises(SettingsError, match=said):
        kh.read(two_halves()).with_weights(given)


def test_noise_moves_sites_away_from_bad_sensors():
    """A row, and one with less fluctuations of its own, which is taken unless its sensors are bad."""
    rng = np.random.default_rng(0)
    row = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 6))
    signals = kh.read(np.stack([row + 0.1 * rng.normal(size=row.shape), row], axis=1))
    bad = np.zeros((2, 6))
    bad[1] = 2.0
    for name in ("greedy", "exchange", "kernel_exchange"):
        clean, noisy = (
            choose_sites(selector(name), prepare(one, None, seed=0), 3, Run()).sites
            for one in (signals, signals.with_noise(bad))
        )
        assert (noisy < 6).all()
        assert (clean >= 6).any()


def test_noise_is_in_the_error_and_the_reconstructor_is_ready_for_it():
    """With noise the error is larger; a plan made for it does better on noisy readings than one that was not."""
    values = smooth(400, 6, 6) * 2
    quiet, made_for_noise = quick(values, k=5), quick(values, k=5, noise=1.0)
    assert made_for_noise.metrics["test"]["mse"] > 2 * quiet.metrics["test"]["mse"]
    truth = kh.read(values).with_noise(1.0).take(np.arange(300, 400))
    unprepared = quick(values, k=5)
    errors = [
        float(np.square(plan.reconstruct(truth.noisy_readings(plan.indices)) - gridded(truth)[:, 0]).mean())
        for plan in (unprepared, made_for_noise)
    ]
    assert errors[1] < errors[0]


def test_noise_of_greedy_is_the_gaussian_formula():
    """The first pick takes most of the trace, `|C_j|^2 / (C_jj + n_j)`."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(500, 6)) @ rng.normal(size=(6, 12))
    noise = rng.uniform(0, 3, 12)
    parts = prepare(kh.read(values).with_noise(noise), None, seed=0)
    x = parts.development.values[:, 0]
    covariance = np.cov(x.T, bias=True)
    gain = np.square(covariance).sum(axis=0) / (np.diag(covariance) + np.square(parts.development.noise[0]))
    assert choose_sites(selector("greedy"), parts, 1, Run()).sites[0] == gain.argmax()


@pytest.mark.parametrize("given", [-1.0, "loud", np.ones(3), float("nan"), np.ones((3, 3))])
def test_noise_that_makes_no_sense_is_refused(given):
    """An error that names the argument."""
    with pytest.raises(SettingsError, match="noise"):
        kh.read(two_halves()).with_noise(given)


def test_noise_by_channel():
    """One number for each."""
    signals = kh.read(np.random.default_rng(0).normal(size=(20, 3, 4, 2)), channels=3).with_noise([0.1, 2.0])
    np.testing.assert_array_equal(signals.noise, np.repeat([[0.1], [2.0]], 12, axis=1))
