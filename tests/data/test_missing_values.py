"""Values that are missing in some samples, and readings that are missing when a plan is used."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr

import keyhole as kh
from example_data import monthly_field, quick, smooth
from keyhole.core.errors import DataError, PlanError, SettingsError
from keyhole.core.run import Run
from keyhole.data.imputation import GaussianImputer, impute_by_covariance
from keyhole.data.preparation import prepare
from keyhole.metrics import evaluate
from keyhole.models.objectives import reconstruction
from keyhole.models.reconstructors import RECONSTRUCTORS
from keyhole.placement import SELECTORS
from keyhole.workflow.selection import choose_sites
from quick_selectors import selector


def torn(n=120, share=0.2, seed=0, noise=0.05):
    """Signals of three modes, some values of which are missing at random, and the whole ones."""
    rng = np.random.default_rng(seed)
    whole = smooth(n, 5, 6, seed=seed) + noise * rng.normal(size=(n, 5, 6))
    return np.where(rng.uniform(size=whole.shape) < share, np.nan, whole), whole


def test_missing_values_are_refused_unless_asked_for():
    """With a word on how to work with them."""
    values, _ = torn()
    with pytest.raises(DataError, match="missing='model'"):
        kh.read(values)
    with pytest.raises(DataError, match="some samples"):
        kh.select(values, 3, method="qr")
    with pytest.raises(SettingsError, match="missing='drop'"):
        kh.read(values, missing="drop")
    signals = kh.read(values, missing="model")
    np.testing.assert_array_equal(signals.missing[:, 0], np.isnan(values).reshape(120, 30))


@pytest.mark.parametrize("name", SELECTORS)
def test_every_selector_works_with_missing_values_or_says_why_not(name):
    """Exactly K sites."""
    parts = prepare(kh.read(torn()[0], missing="model"), None, seed=0)
    chosen = selector(name)
    if chosen.incompatibility(parts.samples):
        pytest.skip("these signals are refused, with a reason")
    assert len(set(choose_sites(chosen, parts, 4, Run()).sites.tolist())) == 4


@pytest.mark.parametrize("name", ["ridge", "optimal_interpolation", "kernel", "dense", "dense_conv", "residual"])
def test_reconstructors_learn_around_missing_values(name):
    """Nearly as well as from whole signals, and what is rebuilt has no gaps."""
    values, whole = torn(n=300)
    kind = RECONSTRUCTORS[name]
    fitted = kind() if kind.closed_form else kind(train={"steps": 120, "batch_size": 64})
    gappy = kh.select(values, 6, method="greedy", reconstructor=fitted, missing="model", seed=1)
    truth = kh.read(whole)
    reconstructed = gappy.reconstruct(truth.readings(gappy.indices))
    assert np.isfinite(reconstructed).all()
    assert np.square(reconstructed - whole).mean() / whole.var() < (0.35 if name in ("dense", "dense_conv") else 0.02)


def test_missing_targets_have_no_say_in_a_linear_fit():
    """Where nothing but targets is missing, each cell's fit is that of the samples which know it."""
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 8)) + 0.3 * rng.normal(size=(200, 8))
    values = whole.copy()
    values[:80, 7] = np.nan
    parts = prepare(kh.read(values, missing="model"), kh_split(), seed=0)
    sites = np.array([0, 1, 2, 3])
    from keyhole.models.reconstructors import Ridge

    fitted = Ridge().fit(parts.train, sites, validation=parts.validation, run=Run())
    known = parts.train.known_targets[:, 0, 7]
    rows = ~np.isnan(known)
    design = np.concatenate([np.ones((rows.sum(), 1)), parts.train.readings(sites)[rows, :, 0]], axis=1)
    alone = np.linalg.lstsq(design, known[rows], rcond=None)[0]
    np.testing.assert_allclose(fitted.weights[:, 7], alone[1:], atol=0.06)


def kh_split():
    from keyhole.data.splits import Split

    return Split.given(np.arange(150), np.arange(175, 200), np.arange(150, 175))


def test_a_site_that_is_often_missing_is_worth_less():
    """Of two that say the same, the one that is there is chosen."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 6))
    values = np.concatenate([values, 1.02 * values], axis=1)
    values[rng.uniform(size=(300, 12)) < 0.6 * (np.arange(12) >= 6)] = np.nan
    parts = prepare(kh.read(values, missing="model"), None, seed=0)
    for name in ("greedy", "qr", "exchange"):
        assert (choose_sites(selector(name), parts, 2, Run()).sites < 6).all(), name


def test_cells_that_are_hardly_known_are_left_out():
    """Too few samples to learn from: as if outside."""
    values, _ = torn(share=0.0)
    values[3:, 2, 2] = np.nan
    plan = quick(values, missing="model")
    assert 14 not in plan.domain.index


def test_errors_count_what_is_known_alone():
    """The same numbers as without the missing values."""
    truth = np.array([[[1.0, np.nan, 3.0]], [[2.0, 5.0, np.nan]]])
    reconstructed = np.array([[[2.0, 9.0, 3.0]], [[2.0, 7.0, 9.0]]])
    scores = evaluate(truth, reconstructed, np.zeros_like(truth), kh.read(np.nan_to_num(truth[:, 0])).sites)
    assert scores["mse"] == pytest.approx((1 + 0 + 0 + 4) / 4)
    assert scores["fvu"] == pytest.approx(5 / (1 + 9 + 4 + 25))


def test_a_loss_with_missing_values_has_no_gradient_there():
    """And is the mean over what is known."""
    reconstructed = torch.ones(2, 3, requires_grad=True)
    truth = torch.tensor([[0.0, float("nan"), 1.0], [2.0, float("nan"), float("nan")]])
    loss = reconstruction(reconstructed, truth, gaps=True)
    loss.backward()
    assert loss.item() == pytest.approx(2 / 3)
    assert reconstructed.grad[torch.isnan(truth)].abs().sum() == 0


def test_the_filler_is_the_gaussian_mean_given_the_rest():
    """Against the textbook formula on its own covariance, and better than the mean."""
    values, whole = torn(noise=0.1)
    rows, gaps = np.nan_to_num(values).reshape(120, -1), np.isnan(values).reshape(120, -1)
    imputer = GaussianImputer.fit(rows, gaps)
    filled = imputer.fill(rows, gaps)
    covariance = imputer.covariance(np.arange(30))
    by_covariance = impute_by_covariance(np.where(gaps, np.nan, rows), covariance)
    np.testing.assert_allclose(filled, by_covariance, atol=2e-3)
    off = np.square(filled - whole.reshape(120, -1))[gaps].mean()
    assert off < 0.2 * np.square(whole.reshape(120, -1))[gaps].mean()


def test_readings_that_are_missing_are_filled_by_the_others(tmp_path):
    """A plan answers from the rest, less well the more are missing, and a file keeps what that takes."""
    values, whole = torn(share=0.0)
    plan = quick(values, k=6)
    plan.save(tmp_path / "plan.keyhole")
    plan = kh.load(tmp_path / "plan.keyhole")
    readings = kh.read(whole).readings(plan.indices)[..., 0]
    errors = []
    for lost in (0, 1, 3, 5):
        given = readings.copy()
        given[:, :lost] = np.nan
        errors.append(np.square(plan.reconstruct(given) - whole).mean())
    assert errors == sorted(errors)
    assert errors[1] < 0.1 * whole.var()
    nothing = plan.reconstruct(np.full(6, np.nan))
    np.testing.assert_allclose(nothing[0].ravel(), plan.scaling.baseline[0, 0], atol=1e-3)
    with pytest.raises(PlanError, match="infinite"):
        plan.reconstruct(np.full(6, np.inf))


def test_a_field_with_ice_works_by_month():
    """Anomalies by month where some months of a cell are never known."""
    field = monthly_field(120).copy()
    winter = field.time.dt.month.isin([1, 2, 12]).values
    field.values[winter, 3, :2] = np.nan
    plan = quick(kh.read(field, missing="model").anomalies("month"), k=4)
    assert np.isfinite(plan.metrics["test"]["fvu"])
    reconstructed = plan.reconstruct(np.full(4, np.nan), time="2005-01-01")
    assert np.isfinite(plan.domain.from_grid(reconstructed.values)).all()


def test_a_row_at_the_pole_is_reconstructed_around_missing_values():
    """It hardly counts, yet what is rebuilt there is in its units: no rounding is blown up."""
    rng = np.random.default_rng(0)
    lat, lon = np.linspace(90, -90, 7), np.arange(0.0, 360.0, 45.0)
    values = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 7 * 8)) + 0.1 * rng.normal(size=(200, 56))
    values = values.reshape(200, 7, 8)
    values[:, 0] = -1.8  # ice
    values[rng.uniform(size=values.shape) < 0.2] = np.nan
    field = xr.DataArray(values, {"time": np.arange(200), "lat": lat, "lon": lon}, ("time", "lat", "lon"), "t")
    signals = kh.read(field, missing="model")
    plan = kh.select(signals, 6, method="greedy", reconstructor="optimal_interpolation", intervals=False)
    reconstructed = plan.reconstruct_array(signals.noisy_readings(plan.indices), None)
    np.testing.assert_allclose(reconstructed[:, 0, 0], -1.8, atol=0.05)
