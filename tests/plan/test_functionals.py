"""Intervals of regional means and other weighted sums, whose errors are correlated between sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import keyhole as kh
from example_data import monthly_field, quick, smooth
from keyhole.core.errors import PlanError, SettingsError


def field(n, seed=0):
    """Two modes that the sites tell, and errors that are the same along each row of the grid."""
    rng = np.random.default_rng(7)
    modes = rng.normal(size=(2, 6, 8))
    rng = np.random.default_rng(seed)
    return (
        np.tensordot(3 * rng.normal(size=(n, 2)), modes, axes=1)
        + rng.normal(size=(n, 6, 1))
        + 0.2 * rng.normal(size=(n, 6, 8))
    )


@pytest.fixture(scope="module")
def plan():
    return quick(field(500), k=4)


@pytest.fixture(scope="module")
def later():
    """Samples that nothing was fitted to."""
    return kh.read(field(1500, seed=1))


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize(
    "weights",
    [
        np.full((6, 8), 1 / 48),
        np.eye(6)[:, [2]] * np.ones(8) / 8,
        np.outer([1, 1, 1, -1, -1, -1], np.ones(8)) / 24,
        np.outer(np.eye(6)[1], np.eye(8)[3]),
    ],
    ids=["whole", "row", "difference", "site"],
)
def test_the_share_asked_for_lies_within(plan, later, weights, level):
    """By Monte Carlo, for means, a difference and one site."""
    found = plan.interval(weights, plan.readings_of(later), level=level)
    truth = later.values[:, 0] @ weights.ravel()
    np.testing.assert_allclose(found["estimate"], plan.reconstruct_samples(later)[:, 0] @ weights.ravel(), rtol=1e-4)
    within = (truth >= found["lower"]) & (truth <= found["upper"])
    assert within.mean() == pytest.approx(level, abs=0.06)


def test_correlated_errors_do_not_average_out(plan, later):
    """The interval of a row is nearly as wide as that of a site; independent errors would leave a third."""
    readings = plan.readings_of(later)[:50]
    _, lower, upper = plan.reconstruct(readings, interval=0.9)
    row = plan.interval({"row": (2, 2)}, readings)
    site_width = (upper - lower)[:, 2].mean()
    assert (row["upper"] - row["lower"]).mean() > 0.7 * site_width


def test_missing_readings_make_a_wider_interval(plan, later):
    readings = np.array(plan.readings_of(later)[:50])
    whole = plan.interval({"row": (0, 2)}, readings)
    readings[:, 1] = np.nan
    torn = plan.interval({"row": (0, 2)}, readings)
    assert (torn["upper"] - torn["lower"]).mean() > (whole["upper"] - whole["lower"]).mean()


def test_regions_are_means_by_area_and_numbers_are_weights():
    samples = monthly_field(120)
    plan = quick(samples)
    readings, time = kh.read(samples).readings(plan.indices)[:3], samples.time.values[:3]
    reconstructed = plan.reconstruct(readings, time=time)
    area = xr.zeros_like(samples[0]) + np.cos(np.deg2rad(samples.lat))
    north = samples.lat > 0
    expected = reconstructed.where(north).weighted(area.fillna(0)).mean(("lat", "lon"))
    mask = xr.zeros_like(samples[0], dtype=bool) | north
    polygon = {"type": "Polygon", "coordinates": [[[-10, 0], [350, 0], [350, 90], [-10, 90]]]}
    for region in ({"lat": (0, 90)}, mask, [{"lat": (0, 40)}, {"lat": (40, 90)}], polygon):
        found = plan.interval(region, readings, time=time)
        np.testing.assert_allclose(found["estimate"], expected, rtol=1e-5)
    weights = area.where(north, 0.0)
    found = plan.interval(weights, readings, time=time)
    np.testing.assert_allclose(found["estimate"], (reconstructed * weights).sum(("lat", "lon")), rtol=1e-4)
    assert found.index.equals(pd.DatetimeIndex(time, name="time"))


def test_intervals_of_several_variables(tmp_path):
    one = monthly_field(120)
    plan = quick(kh.read(xr.Dataset({"sst": one, "level": 10 * one.drop_attrs()})), k=2)
    samples = kh.read(xr.Dataset({"sst": one, "level": 10 * one.drop_attrs()}))
    readings = plan.readings_of(samples)[:2]
    plan.save(tmp_path / "plan.keyhole")
    found, again = (each.interval({"lat": (-90, 90)}, readings) for each in (plan, kh.load(tmp_path / "plan.keyhole")))
    pd.testing.assert_frame_equal(found, again)
    assert found.index.tolist() == [(0, "sst"), (0, "level"), (1, "sst"), (1, "level")]
    width = found["upper"] - found["lower"]
    assert width[0, "level"] == pytest.approx(10 * width[0, "sst"], rel=0.05)


def test_what_is_no_region_is_refused(plan):
    readings = np.zeros((1, 4))
    with pytest.raises(SettingsError, match="region: none of the plan's valid sites"):
        plan.interval({"row": (100, 200)}, readings)
    with pytest.raises(SettingsError, match="region: finite weights"):
        plan.interval(np.full((6, 8), np.nan), readings)
    with pytest.raises(PlanError, match=r"level=1\.5"):
        plan.interval({"row": (0, 2)}, readings, level=1.5)
    with pytest.raises(PlanError, match="no prediction intervals"):
        quick(smooth(40, 3, 4), intervals=False).interval({"row": (0, 1)}, np.zeros(3))


def test_a_plan_of_an_early_version_has_none_of_means():
    """Its file holds squared errors, which do not tell how errors of different sites go together."""
    old = kh.load(Path(__file__).parents[1] / "golden" / "format3" / "intervals.keyhole")
    assert len(old.reconstruct(np.zeros(3), interval=0.9)) == 3
    with pytest.raises(PlanError, match="make it again"):
        old.interval(np.ones(12), np.zeros(3))
