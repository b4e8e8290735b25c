"""Climatologies: what the calendar knows, fitted by least squares and chosen by cross-validation."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from example_data import left_in_file
from keyhole.data.climatology import Climatology, cycles_in, harmonics_of
from keyhole.data.climatology_choice import choose_climatology
from keyhole.data.preparation import prepare
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.sites import Sites
from keyhole.errors import DataError, PlanError, SettingsError

START = np.datetime64("2000-01-01", "h")
EVERY = {"day": 24, "six hours": 6, "hour": 1}


def times(n: int, step: str) -> np.ndarray:
    """Times of so many samples, one every step."""
    if step == "month":
        return (np.datetime64("2000-01", "M") + np.arange(n)).astype("datetime64[ns]")
    return (START + EVERY[step] * np.arange(n)).astype("datetime64[ns]")


def noise(n: int, m: int = 12, seed: int = 0) -> np.ndarray:
    """Noise that is correlated between sites, and forgets its state slowly."""
    rng = np.random.default_rng(seed)
    draws, found = rng.normal(size=(n, 3)), np.zeros((n, 3))
    for i in range(1, n):
        found[i] = 0.6 * found[i - 1] + draws[i]
    return found @ rng.normal(size=(3, m))


def waves(time: np.ndarray, period: str) -> np.ndarray:
    """Cosine of the phase of each time in the year or in the day."""
    hours = time.astype("datetime64[h]").astype(float)
    return np.cos(2 * np.pi * hours / {"year": 8765.8, "day": 24.0}[period])


def build(values: np.ndarray, time: np.ndarray, kind: str = "auto") -> Samples:
    return Samples.build(values[:, np.newaxis], Sites.plain(values.shape[1:]), time=time, anomalies=kind)


def chosen(values: np.ndarray, time: np.ndarray) -> Climatology:
    """The climatology of the training part of the default split."""
    return prepare(build(values, time), None, 0).samples.climatology


# Designs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "step", "most", "columns"),
    [
        (120, "month", 8, 12),  # the constant, and six harmonics of which the last has no sine
        (1000, "day", 2, 5),  # none of the day
        (2920, "six hours", 4, 1 + 8 + 3 + 8),  # two of the day, the second without a sine; products of 2 and 1
        (96, "hour", 2, 5),  # none of the year
        (30, "hour", 2, 1),
        (15, "month", 2, 1),
    ],
)
def test_harmonics_are_those_that_the_times_resolve(n, step, most, columns):
    found = harmonics_of(times(n, step), most)
    assert (1 if found is None else found.n_columns) == columns


def test_fewer_harmonics_are_the_first_columns_of_more():
    time = times(2920, "six hours")
    few, more = (harmonics_of(time, most) for most in (1, 4))
    assert few.terms == more.terms[: few.n_columns]
    np.testing.assert_array_equal(few.design(time), more.design(time)[:, : few.n_columns])


def test_a_design_is_products_of_cosines_and_sines():
    time = np.array(["2001-03-04T06", "2004-12-31T23"], "datetime64[h]")
    day_of_year, days = np.array([62.25, 365 + 23 / 24]), np.array([365, 366])
    year, day = 2 * np.pi * day_of_year / days, 2 * np.pi * np.array([6, 23]) / 24
    found = Climatology("harmonics", ((0, 0), (2, 0), (0, -1), (-1, 1))).design(time)
    expected = [np.ones(2), np.cos(2 * year), np.sin(day), np.sin(year) * np.cos(day)]
    np.testing.assert_allclose(found, np.transpose(expected), atol=1e-12)


def test_months_and_the_mean_are_designs_too():
    time = np.array(["1948-03-01", "1969-12-31"], "datetime64[ns]")
    np.testing.assert_array_equal(Climatology("month").design(time), np.eye(12)[[2, 11]])
    np.testing.assert_array_equal(Climatology("none").design(None, 2), np.ones((2, 1)))


def test_the_expected_value_is_the_design_times_the_coefficients(rng):
    time, rows = times(40, "month"), rng.normal(size=(12, 2, 3))
    for climatology in (harmonics_of(time, 1), Climatology("month"), Climatology("none")):
        coefficients = rows[: climatology.n_columns]
        found = climatology.expected(coefficients, climatology.lookup(time, 40))
        expected = np.tensordot(climatology.design(time), coefficients, axes=1)
        np.testing.assert_allclose(np.broadcast_to(found, expected.shape), expected)
        np.testing.assert_allclose(climatology.design(time) @ climatology.constant, 1)


def test_cycles_are_counted_to_the_end_of_the_last_sample():
    assert cycles_in(times(24, "month"), "year") == pytest.approx(2, abs=0.01)
    assert cycles_in(times(36, "hour"), "day") == pytest.approx(1.5)
    assert cycles_in(times(1, "hour"), "day") == 0


# Fits -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["month", "six hours"])
def test_coefficients_are_those_of_least_squares(step):
    time = times(300 if step == "month" else 2920, step)
    values = 280 + noise(len(time), 5) + 3 * waves(time, "year")[:, None]
    scaler = Scaler.fit(build(values, time, "harmonics"))
    explicit = np.linalg.lstsq(scaler.climatology.design(time), values, rcond=None)[0]
    np.testing.assert_allclose(scaler.baseline[:, 0], explicit, atol=1e-9)
    left = values - scaler.climatology.design(time) @ explicit
    np.testing.assert_allclose(scaler.scale, np.sqrt(np.square(left).mean()))
    np.testing.assert_allclose(scaler.mean[0], explicit[0])


def test_sums_of_parts_give_the_fit_of_both():
    """The plan's scaler is fitted to training and validation samples, from sums over each."""
    time = times(240, "month")
    samples = build(noise(240, 5) + 5 * waves(time, "year")[:, None], time, "harmonics")
    prepared = prepare(samples, None, 0)
    again = Scaler.fit(prepared.samples.take(prepared.split.development))
    np.testing.assert_allclose(prepared.scaling.baseline, again.baseline, atol=1e-9)
    np.testing.assert_allclose(prepared.scaling.scale, again.scale)


def test_missing_values_are_left_out_of_the_fit(rng):
    """Site by site, with the waves shrunk by as much as one more sample without any would do."""
    time = times(300, "month")
    values = 280 + noise(300, 5) + 3 * waves(time, "year")[:, None]
    known = rng.uniform(size=values.shape) < np.array([1, 0.9, 0.5, 0.2, 0.05])
    samples = build(np.where(known, values, np.nan), time, "harmonics")
    scaler = Scaler.fit(samples)
    design, shrunk = scaler.climatology.design(time), np.eye(scaler.climatology.n_columns)
    shrunk[0, 0] = 0
    for site in range(5):
        rows, here = design[known[:, site]], values[known[:, site], site]
        right = rows.T @ (here - here.mean())
        explicit = np.linalg.solve(rows.T @ rows + shrunk, right)
        explicit[0] += here.mean()
        np.testing.assert_allclose(scaler.baseline[:, 0, site], explicit, atol=1e-8)
    left = np.where(known, values - design @ scaler.baseline[:, 0], np.nan)
    np.testing.assert_allclose(scaler.scale, np.sqrt(np.nanmean(np.square(left))))


# Choices --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "step", "kinds"),
    [
        (12, "month", {"none"}),
        (24, "month", {"harmonics"}),
        (120, "month", {"harmonics"}),
        (500, "six hours", {"none"}),  # a part of a year, and no daily cycle
        (1000, "day", {"harmonics"}),
    ],
)
def test_a_season_counts_once_there_is_enough_of_it(n, step, kinds):
    time = times(n, step)
    season = waves(time, "year") if step != "six hours" else np.zeros(n)
    assert chosen(noise(n) + 6 * season[:, None], time).kind in kinds


@pytest.mark.parametrize(("n", "step"), [(24, "month"), (120, "month"), (96, "hour"), (2000, "six hours")])
def test_the_calendar_of_noise_is_not_taken(n, step):
    for seed in range(5):
        assert chosen(np.random.default_rng(seed).normal(size=(n, 8)), times(n, step)) == Climatology("none")


def test_a_daily_cycle_of_a_few_days_counts():
    time = times(96, "hour")
    found = chosen(noise(96) + 6 * waves(time, "day")[:, None], time)
    assert found.kind == "harmonics"
    assert found.periods == ("day",)


def test_the_change_of_the_daily_cycle_over_the_year_counts():
    time = times(2920, "six hours")
    year, day = waves(time, "year")[:, None], waves(time, "day")[:, None]
    found = chosen(0.5 * noise(2920) + 4 * year + 4 * day + 3 * year * day, time)
    assert (1, 1) in found.terms
    assert found.text == "harmonics of the year and of the day"


def test_months_that_no_few_harmonics_hold_are_taken_by_month():
    jagged = 5 * np.random.default_rng(1).normal(size=(12, 12))
    assert chosen(noise(360) + jagged[np.arange(360) % 12], times(360, "month")) == Climatology("month")


def test_missing_values_do_not_change_the_choice(rng):
    time = times(120, "month")
    values = noise(120) + 6 * waves(time, "year")[:, None]
    values[rng.uniform(size=values.shape) < 0.2] = np.nan
    assert choose_climatology(build(values, time), np.arange(77)).climatology.kind == "harmonics"


def test_the_choice_sees_training_samples_alone():
    time = times(120, "month")
    values, other = noise(120), noise(120)
    other[80:] += 50 * waves(time[80:], "year")[:, None]
    assert chosen(values, time) == chosen(other, time)


def test_without_dates_or_with_a_target_it_is_the_mean():
    assert chosen(noise(60), np.arange(60.0)) == Climatology("none")
    time = times(120, "month")
    samples = build(noise(120) + 6 * waves(time, "year")[:, None], time)
    target = kh.data.Target.of(np.random.default_rng(0).normal(size=120))
    assert choose_climatology(samples.with_target(target), np.arange(80)).climatology == Climatology("none")


def test_what_is_named_is_respected():
    time = times(120, "month")
    for kind in ("none", "month", "harmonics"):
        samples = build(noise(120), time, kind)
        found = choose_climatology(samples, np.arange(77))
        assert (found.climatology.kind, found.reason) == (kind, "as asked")
        assert samples.anomalies_as_asked("auto").climatology.kind == kind
        assert samples.anomalies_as_asked("none").climatology.kind == "none"


def test_anomalies_that_there_are_not_are_refused():
    with pytest.raises(SettingsError, match="anomalies='day': one of 'auto', 'none', 'month', 'harmonics' is needed"):
        build(noise(60), times(60, "month"), "day")
    with pytest.raises(DataError, match=r"harmonics need dates.*numbers"):
        build(noise(60), np.arange(60.0), "harmonics")
    with pytest.raises(DataError, match=r"one and a half years.*these cover 1 years and 3.7e\+02 days"):
        prepare(build(noise(12), times(12, "month"), "harmonics"), None, 0)


# Plans ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hourly():
    """A DataArray of two years of six-hourly temperatures, with a strong year and day."""
    import xarray as xr

    time = times(2920, "six hours")
    values = 280 + noise(2920, 12) + 9 * waves(time, "year")[:, None] + 4 * waves(time, "day")[:, None]
    axes = {"time": time, "lat": np.linspace(40.0, 60.0, 3), "lon": np.arange(4.0)}
    attributes = {"units": "K"}
    return xr.DataArray(values.reshape(-1, 3, 4).astype(np.float32), axes, ("time", "lat", "lon"), "t2m", attributes)


@pytest.mark.parametrize("reconstructor", ["ridge", "optimal_interpolation"])
def test_a_plan_on_harmonics_comes_back_from_its_file(hourly, tmp_path, reconstructor):
    plan = kh.select(hourly, 3, method="qr", reconstructor=reconstructor)
    assert plan.metadata["anomalies"]["kind"] == "harmonics"
    assert "chosen by cross-validation" in plan.metadata["anomalies"]["reason"]
    plan.save(tmp_path / "plan.keyhole")
    again = kh.load(tmp_path / "plan.keyhole")
    assert again.scaling.climatology == plan.scaling.climatology
    readings, when = hourly.values.reshape(2920, -1)[-5:, plan.indices], hourly.time.values[-5:]
    expected = plan.reconstruct(readings, time=when)
    np.testing.assert_array_equal(again.reconstruct(readings, time=when), expected)
    np.testing.assert_allclose(expected.values[:, :, :].reshape(5, -1)[:, plan.indices], readings, atol=0.5)
    with pytest.raises(PlanError, match=r"anomalies from harmonics of the year and of the day: give the time"):
        plan.reconstruct(readings)


def test_one_product_gives_what_the_steps_give(hourly):
    samples = kh.read(hourly)
    plan = kh.select(samples, 3, method="qr", reconstructor="ridge")
    readings, when = samples.noisy_readings(plan.indices)[:7], samples.time[:7]
    steps = plan.scaling.undo(plan.reconstructor.reconstruct(plan.scaled(readings, when), np.zeros((7, 0))), when)
    np.testing.assert_allclose(plan.reconstruct_array(readings, when), steps, atol=1e-3)


def test_sensors_between_cells_read_anomalies_from_harmonics(hourly):
    between = kh.data.Sensors.at({"lat": [45.0, 52.0, 57.0], "lon": [0.5, 2.0, 2.5]})
    plan = kh.select(hourly, 2, sensors=between, method="greedy", reconstructor="ridge")
    assert plan.scaling.climatology.kind == "harmonics"
    assert plan.metrics["test"]["fvu"] < 0.5


def test_the_sums_of_a_field_in_its_file_are_those_of_memory(hourly, tmp_path):
    """One pass for sums and choice; candidates are the mean and one or two harmonics."""
    hourly.to_netcdf(tmp_path / "field.nc")
    stored = prepare(left_in_file(tmp_path / "field.nc"), None, 0)
    whole = prepare(kh.read(tmp_path / "field.nc"), None, 0)
    assert stored.samples.climatology == whole.samples.climatology
    for scaler in ("choosing", "scaling"):
        np.testing.assert_allclose(getattr(stored, scaler).baseline, getattr(whole, scaler).baseline, atol=1e-4)
        np.testing.assert_allclose(getattr(stored, scaler).scale, getattr(whole, scaler).scale, rtol=1e-5)


def test_noise_in_its_file_has_the_mean_of_memory(tmp_path):
    import xarray as xr

    values = np.random.default_rng(0).normal(size=(240, 5, 4)).astype(np.float32)
    xr.DataArray(values, {"time": times(240, "month")}, ("time", "y", "x"), "v").to_netcdf(tmp_path / "field.nc")
    stored = prepare(left_in_file(tmp_path / "field.nc"), None, 0)
    whole = prepare(kh.read(tmp_path / "field.nc").anomalies("none"), None, 0)
    assert stored.samples.climatology == Climatology("none")
    np.testing.assert_array_equal(stored.choosing.baseline, whole.choosing.baseline)


def test_changes_of_a_plan_work_on_its_anomalies(hourly):
    plan = kh.select(hourly, 3, method="qr", reconstructor="ridge")
    assert kh.drop(plan, hourly, 1).scaling.climatology == plan.scaling.climatology
    more = kh.extend(plan, hourly, 1, method="qr")
    assert more.scaling.climatology == plan.scaling.climatology
