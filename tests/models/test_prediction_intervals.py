"""Prediction intervals: their coverage, and that they are wider where the error is larger."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import keyhole as kh
from example_data import gridded, monthly_field, quick, smooth
from keyhole.core.errors import DataError, PlanError
from keyhole.models.error_components import ErrorComponents
from keyhole.models.intervals import HeldOut, PredictionIntervals
from keyhole.plan.files import write_reconstruction
from keyhole.workflow.calibration import coverage_map


def with_noise(n=1500, seed=0):
    """A field whose noise is larger in some cells, and three times as large where the first mode is high."""
    rng = np.random.default_rng(seed)
    modes = rng.normal(size=(n, 3))
    signals = np.tensordot(modes, rng.normal(size=(3, 6, 7)), axes=1)
    scale = np.where(np.arange(7) < 3, 0.1, 1.0) * np.where(modes[:, :1] > 0, 3.0, 1.0)[:, :, None]
    return signals + 0.3 * scale * rng.normal(size=signals.shape)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
def test_the_share_asked_for_lies_within(level):
    """On samples that nothing was learned from, in each part of the grid."""
    values = with_noise()
    plan = quick(values[:1200], k=8)
    truth = kh.read(values[1200:])
    reconstructed, low, high = plan.reconstruct(truth.readings(plan.indices), interval=level)
    within = (gridded(truth)[:, 0] >= low) & (gridded(truth)[:, 0] <= high)
    assert -0.03 < within.mean() - level < 0.06  # cross-fitting errs on the wide side: it fits to fewer samples
    assert within[:, :, :3].mean() == pytest.approx(level, abs=0.08)
    assert within[:, :, 3:].mean() == pytest.approx(level, abs=0.08)
    np.testing.assert_allclose((low + high) / 2, reconstructed, atol=1e-5)


def test_the_band_varies_over_cells_and_readings():
    """Wide where errors are large, by place and by what was read."""
    values = with_noise(4000)
    plan = quick(values, k=8)
    assert plan.intervals.neighbours > 0
    truth = kh.read(values)
    _, low, high = plan.reconstruct(truth.readings(plan.indices), interval=0.9)
    width = high - low
    assert width[:, :, 3:].mean() > 1.3 * width[:, :, :3].mean()
    off = np.abs(plan.reconstruct(truth.readings(plan.indices)) - values).mean(axis=(1, 2))
    assert np.corrcoef(off, width.mean(axis=(1, 2)))[0, 1] > 0.3


def test_missing_readings_make_a_wider_band_that_still_holds():
    """Two of six lost, for every sample."""
    values = with_noise()
    plan = quick(values[:1200], k=6)
    truth = kh.read(values[1200:])
    readings = truth.readings(plan.indices)[..., 0].copy()
    whole = plan.reconstruct(readings, interval=0.9)
    readings[:, [1, 4]] = np.nan
    torn = plan.reconstruct(readings, interval=0.9)
    assert (torn.upper - torn.lower).mean() > (whole.upper - whole.lower).mean()
    within = (gridded(truth)[:, 0] >= torn.lower) & (gridded(truth)[:, 0] <= torn.upper)
    assert within.mean() == pytest.approx(0.9, abs=0.05)


def test_labelled_intervals_go_to_a_file(tmp_path):
    """DataArrays in Python; further variables of a NetCDF file; the plan's file keeps the bands."""
    field = monthly_field(120)
    plan = quick(kh.read(field).anomalies("month"), k=4)
    plan.save(tmp_path / "plan.keyhole")
    again = kh.load(tmp_path / "plan.keyhole")
    readings, time = kh.read(field).readings(plan.indices)[:2, :, 0], field.time.values[:2]
    one, other = (one.reconstruct(readings, time=time, interval=0.8) for one in (plan, again))
    assert isinstance(one.lower, xr.DataArray)
    for first, second in zip(one, other, strict=True):
        np.testing.assert_array_equal(first, second)
    write_reconstruction(plan, readings, tmp_path / "out.nc", time, 0.8)
    with xr.open_dataset(tmp_path / "out.nc") as data:
        assert list(data.data_vars) == ["sst", "sst_lower", "sst_upper"]
        np.testing.assert_allclose(data["sst_upper"], one.upper, rtol=1e-5)
        assert data["sst_lower"].attrs["units"] == "degC"
    with pytest.raises(DataError, match=r"nc only"):
        write_reconstruction(plan, readings, tmp_path / "out.npy", time, 0.8)


def test_bounds_say_what_they_are(tmp_path):
    """A name of their own; units as the field; no standard name, and no range of valid values to be masked by."""
    field = monthly_field(120).assign_attrs(standard_name="sea_surface_temperature", valid_min=-2.0)
    plan = quick(kh.read(field).anomalies("month"), k=4)
    readings, time = kh.read(field).readings(plan.indices)[:2, :, 0], field.time.values[:2]
    found = plan.reconstruct(readings, time=time, interval=0.9)
    write_reconstruction(plan, readings, tmp_path / "out.nc", time, 0.9)
    with xr.open_dataset(tmp_path / "out.nc") as data:
        for end, word in (("lower", "lower"), ("upper", "upper")):
            for bound in (getattr(found, end), data[f"sst_{end}"]):
                assert bound.attrs == {
                    "units": "degC",
                    "long_name": f"{word} bound of the 90 % prediction interval of temperature",
                }
        for reconstructed in (found.mean, data["sst"]):
            assert reconstructed.attrs["long_name"] == "temperature"
            assert reconstructed.attrs["standard_name"] == "sea_surface_temperature"


def test_bounds_of_several_variables_say_whose_they_are(tmp_path):
    field = monthly_field(120)
    plain = (2 * field).assign_attrs(units="m").drop_attrs()
    signals = kh.read(xr.Dataset({"sst": field, "level": plain}))
    plan = quick(signals, k=4)
    readings, time = signals.readings(plan.indices)[:2], signals.time[:2]
    found = plan.reconstruct(readings, time=time, interval=0.955)
    assert found.lower["sst"].attrs["long_name"] == "lower bound of the 95.5 % prediction interval of temperature"
    assert found.upper["level"].attrs["long_name"] == "upper bound of the 95.5 % prediction interval of level"
    write_reconstruction(plan, readings, tmp_path / "out.nc", time, 0.955)
    with xr.open_dataset(tmp_path / "out.nc") as data:
        assert data["level_upper"].attrs["long_name"] == found.upper["level"].attrs["long_name"]


def test_coverage_is_reported_and_mapped():
    """On the test part."""
    plan = quick(with_noise(), k=8)
    assert plan.metrics["test"]["coverage_90"] == pytest.approx(0.9, abs=0.03)
    assert plan.metrics["test"]["width_90"] > 0
    shares = coverage_map(plan, kh.read(with_noise(seed=0)).take(np.arange(100)))
    assert shares.shape == (42,)
    assert (shares > 0.7).all()


def test_what_is_no_interval_is_refused():
    """And a plan without bands says so."""
    plan = quick(smooth(100, 3, 4))
    for wrong in (0, 1, 1.5, "0.9", True):
        with pytest.raises(PlanError, match="interval="):
            plan.reconstruct(np.zeros(3), interval=wrong)
    for without in (quick(smooth(100, 3, 4), intervals=False), quick(smooth(12, 3, 4))):
        with pytest.raises(PlanError, match="no prediction intervals"):
            without.reconstruct(np.zeros(3), interval=0.9)


def held_out(n, m, seed=0, folds=5):
    """Plain Gaussian readings and errors, independent of each other."""
    rng = np.random.default_rng(seed)
    return HeldOut(rng.normal(size=(n, 5)), rng.normal(size=(n, m)), np.arange(n) * folds // n)


def test_spread_is_the_same_everywhere_where_errors_do_not_differ():
    """Plain Gaussian errors: no neighbours are worth asking, and the factor is that of the normal distribution."""
    intervals = PredictionIntervals.fit(held_out(600, 40))
    assert intervals.neighbours == 0
    assert intervals.factor(0.9, 0) == pytest.approx(1.645, abs=0.03)
    assert intervals.factor(0.5, 0) == pytest.approx(0.674, abs=0.03)


def test_spread_is_the_mean_over_neighbours_and_the_prior():
    """Against a plain loop, where the components hold all of the errors."""
    rng = np.random.default_rng(0)
    readings, errors = rng.normal(size=(50, 3)).astype(np.float32), rng.normal(size=(50, 8))
    components = ErrorComponents.of(errors, most=8)
    found = PredictionIntervals(components, 7, readings, np.zeros(50, int)).spread(readings[:4] + 0.01)
    for row, one in enumerate(readings[:4] + 0.01):
        near = np.square(errors)[np.argsort(np.square(readings - one).sum(axis=1))[:7]].mean(axis=0)
        expected = (7 * near + 10 * components.variance) / 17
        np.testing.assert_allclose(found[row] ** 2, expected, rtol=2e-2, atol=1e-3)
