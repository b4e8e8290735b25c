"""What is known without sensors, by brute force."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from example_data import left_in_file, smooth
from keyhole.data.preparation import prepare
from keyhole.report.without_sensors import known_without_sensors

OPTIONS = {"method": "qr", "reconstructor": "ridge", "split": "blocks", "intervals": False}


def monthly(n: int = 120, seed: int = 0, *, hole: bool = False):
    """A DataArray of fields with a year that does not last, on a plane; without some months if there is a hole."""
    import xarray as xr

    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(n, 3))
    for i in range(1, n):
        steps[i] = 0.8 * steps[i - 1] + steps[i]
    year = np.cos(2 * np.pi * np.arange(n) / 12)[:, None]
    values = 280 + steps @ rng.normal(size=(3, 12)) + 6 * year + 0.1 * rng.normal(size=(n, 12))
    time = (np.datetime64("2000-01", "M") + np.arange(n)).astype("datetime64[ns]")
    field = xr.DataArray(values.reshape(n, 3, 4), {"time": time}, ("time", "y", "x"), "t")
    return field.isel(time=np.delete(np.arange(n), [90, 97, 104])) if hole else field


def parts(field, **options):
    """All values, and the rows of training (for validation and for test), validation and test."""
    prepared = prepare(kh.read(field), "blocks", 0)
    split = prepared.split
    fits = {"validation": split.train, "test": split.development}
    return prepared.samples.values[:, 0].astype(float), fits, {"validation": split.validation, "test": split.test}


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.nanmean(np.square(values))))


@pytest.mark.parametrize("anomalies", ["none", "month", "harmonics"])
def test_mean_climatology_and_calendar_are_fitted_to_training_samples(anomalies):
    field = monthly()
    plan = kh.select(field, 3, anomalies=anomalies, **OPTIONS)
    values, fits, scored = parts(field)
    month, time = np.arange(120) % 12, kh.read(field).time
    calendar = prepare(kh.read(field).anomalies("harmonics"), "blocks", 0).samples.climatology
    for part, rows in scored.items():
        train, truth, found = fits[part], values[rows], plan.metrics[part]
        mean = values[train].mean(axis=0)
        waves = np.linalg.lstsq(calendar.design(time[train]), values[train], rcond=None)[0]
        predicted = {
            "none": np.broadcast_to(mean, truth.shape),
            "month": np.stack([values[train][month[train] == m].mean(axis=0) for m in range(12)])[month[rows]],
            "harmonics": calendar.design(time[rows]) @ waves,
        }
        assert found["baseline_rmse[mean]"] == pytest.approx(rms(truth - mean))
        assert found["baseline_rmse[climatology]"] == pytest.approx(rms(truth - predicted[anomalies]))
        assert found["baseline_rmse[calendar]"] == pytest.approx(rms(truth - predicted["harmonics"]))
        assert found["fvu"] == pytest.approx((found["rmse"] / found["baseline_rmse[climatology]"]) ** 2)
        assert found["fvu_field"] == pytest.approx((found["rmse"] / rms(truth - mean)) ** 2)
        assert found["relative_l2"] == pytest.approx(found["rmse"] / rms(truth))


@pytest.mark.parametrize("order", ["in order", "shuffled"])
def test_neighbours_are_those_in_time(order):
    field = monthly(hole=True)
    n = field.sizes["time"]
    shuffled = np.arange(n) if order == "in order" else np.random.default_rng(1).permutation(n)
    plan = kh.select(field.isel(time=shuffled), 3, anomalies="none", **OPTIONS)
    values, hours = field.values.reshape(n, -1), field.time.values.astype("datetime64[h]").astype(float)
    _, _, scored = parts(field)
    for part, rows in scored.items():
        inner = rows[(rows > 0) & (rows < n - 1)]
        share = (hours[inner] - hours[inner - 1]) / (hours[inner + 1] - hours[inner - 1])
        line = values[inner - 1] + share[:, None] * (values[inner + 1] - values[inner - 1])
        found = plan.metrics[part]
        assert found["baseline_rmse[persistence]"] == pytest.approx(rms(values[rows] - values[rows - 1]))
        assert found["baseline_rmse[interpolation]"] == pytest.approx(rms(values[inner] - line))


def test_components_are_as_many_as_readings(rng):
    """The error of the projection on them, which a linear reconstruction from as many readings stays above."""
    values = smooth(80, 12) + rng.normal(size=(80, 12)) * np.linspace(0.1, 1, 12)
    plan = kh.select(values, 3, **OPTIONS)
    split = prepare(kh.read(values), "blocks", 0).split
    for part, train, rows in (("validation", split.train, split.validation), ("test", split.development, split.test)):
        mean = values[train].mean(axis=0)
        basis = np.linalg.svd(values[train] - mean, full_matrices=False)[2][:3]
        left = (values[rows] - mean) - (values[rows] - mean) @ basis.T @ basis
        assert plan.metrics[part]["baseline_rmse[components]"] == pytest.approx(rms(left), rel=1e-4)
        assert plan.metrics[part]["rmse"] > plan.metrics[part]["baseline_rmse[components]"]


def test_what_does_not_apply_is_left_out(rng):
    values = rng.normal(size=(60, 8))
    plan = kh.select(values, 3, method="qr", reconstructor="ridge", split="random")
    assert {name for name in plan.metrics["test"] if name.startswith("baseline")} == {
        f"baseline_rmse[{name}]" for name in ("mean", "climatology", "components")
    }


def test_members_of_the_same_times_have_no_neighbours():
    twice = kh.read(monthly().expand_dims(member=2), samples=("member", "time"))
    plan = kh.select(twice, 3, anomalies="none", **OPTIONS)
    assert "baseline_rmse[calendar]" in plan.metrics["test"]
    assert "baseline_rmse[persistence]" not in plan.metrics["test"]


def test_neighbours_are_of_the_same_group():
    """Members of an ensemble, each a series of its own: the first sample of a member follows none."""
    import xarray as xr

    members = [monthly(60, seed) for seed in range(5)]
    samples = kh.read(xr.concat(members, "member"), samples=("member", "time")).with_groups(np.arange(300) // 60)
    plan = kh.select(samples, 3, anomalies="none", **{**OPTIONS, "split": None})
    test = prepare(samples, None, 0).split.test
    values = np.stack([member.values.reshape(60, -1) for member in members])[np.unique(test // 60)]
    step = rms(np.diff(values, axis=1))
    assert plan.metrics["test"]["baseline_rmse[persistence]"] == pytest.approx(step)


def test_missing_values_are_not_scored(rng):
    field = monthly()
    field = field.where(rng.uniform(size=field.shape) > 0.1)
    plan = kh.select(kh.read(field, missing="model"), 3, anomalies="none", **OPTIONS)
    values, fits, scored = parts(kh.read(field, missing="model"))
    truth, mean = values[scored["test"]], np.nanmean(values[fits["test"]], axis=0)
    assert plan.metrics["test"]["baseline_rmse[mean]"] == pytest.approx(rms(truth - mean))
    before = rms(truth - values[scored["test"] - 1])
    assert plan.metrics["test"]["baseline_rmse[persistence]"] == pytest.approx(before)


def test_channels_of_other_units_count_by_their_scale():
    import xarray as xr

    first, second = monthly(seed=1), 1000 * monthly(seed=2)
    both = xr.Dataset({"u": first.assign_attrs(units="m"), "v": second.assign_attrs(units="Pa")})
    samples = kh.read(both, variable=["u", "v"])
    plan = kh.select(samples, 3, anomalies="none", **OPTIONS)
    prepared = prepare(samples.anomalies("none"), "blocks", 0)
    scaled = (prepared.test.values - prepared.scaling.baseline) / prepared.scaling.scale[:, None]
    assert plan.metrics["test"]["baseline_rmse[mean]"] == pytest.approx(rms(scaled))


def test_a_field_in_its_file_has_what_one_pass_gives(tmp_path):
    """Neighbours are those that the pass reads, so the first sample of a part has none; others are left out."""
    path = tmp_path / "field.nc"
    monthly(240).astype(np.float32).to_netcdf(path)
    options = {**OPTIONS, "method": "greedy", "anomalies": "none"}
    whole, stored = kh.select(path, 3, **options), kh.select(left_in_file(path), 3, **options)
    found, expected = stored.metrics["test"], whole.metrics["test"]
    assert "principal components are left out" in known_without_sensors(stored, "")
    names = {name for name in expected if name.startswith("baseline")} | {"relative_l2", "fvu_field"}
    assert names - set(found) == {"baseline_rmse[calendar]", "baseline_rmse[components]"}
    for name in names & set(found):
        by_neighbours = name in ("baseline_rmse[persistence]", "baseline_rmse[interpolation]")
        assert found[name] == pytest.approx(expected[name], rel=0.05 if by_neighbours else 1e-4)
