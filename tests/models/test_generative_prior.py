"""Reconstruction by a generative prior: codes against closed forms, missing readings, training and plan files."""

from __future__ import annotations

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

import keyhole as kh
from keyhole.core.errors import SettingsError
from keyhole.core.interrupts import Interrupted
from keyhole.core.run import Event, Run
from keyhole.data import Sensors
from keyhole.data.preparation import prepare
from keyhole.models.reconstructors import GenerativePrior, Ridge
from keyhole.models.reconstructors.generative_prior import fit_codes, negative_evidence
from keyhole.models.settings import GenerativePriorSettings

TRAIN = {"steps": 60, "batch_size": 32, "ema_decay": 0.0}
QUICK = {"n_latent": 3, "width": 32, "n_steps": 60, "train": TRAIN}
SITES = np.array([3, 8, 14])
NO_COVARIATES = torch.zeros(5, 0)


def parts(n=80, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 20)) + 0.05 * rng.normal(size=(n, 20))
    return prepare(kh.read(values), None, seed=0)


def on_a_curve(n=600):
    """All sites follow one number, each by a wave of its own: three readings tell it, but not linearly."""
    rng = np.random.default_rng(0)
    cause, phases, frequencies = rng.normal(size=(n, 1)), rng.uniform(0, 6, 16), rng.uniform(0.5, 3, 16)
    return prepare(kh.read(np.sin(frequencies * cause + phases) + 0.02 * rng.normal(size=(n, 16))), None, seed=0)


@pytest.mark.parametrize(("seed", "weight"), [(0, 0.1), (1, 0.3), (2, 1.0)])
def test_codes_of_a_linear_decoder_are_those_of_ridge(seed, weight):
    """The minimum has a closed form, in which rows of missing readings are left out."""
    torch.manual_seed(seed)
    decoder, readings = nn.Linear(3, 8).requires_grad_(False), torch.randn(5, 8)
    readings[torch.rand(5, 8) < 0.3] = torch.nan
    chosen = GenerativePriorSettings(n_latent=3, n_steps=400)
    codes = fit_codes(decoder, readings, NO_COVARIATES, torch.randn(2, 3), weight, chosen)
    for code, row in zip(codes.numpy(), readings.numpy(), strict=True):
        seen = ~np.isnan(row)
        matrix, offset = decoder.weight.numpy()[seen], decoder.bias.numpy()[seen]
        normal = matrix.T @ matrix + weight * np.eye(3)
        np.testing.assert_allclose(code, np.linalg.solve(normal, matrix.T @ (row[seen] - offset)), atol=2e-3)


class _TwoValleys(nn.Module):
    """A reading of 1 has two codes: near 0.5, at which the reading can only be 0.5, and at 3."""

    def forward(self, codes):
        return torch.maximum(0.5 - (codes - 0.5).square(), 1 - (codes - 3).square())


def test_the_best_of_several_fits_is_kept():
    """From zero alone the nearest minimum is found, with another start the lowest."""
    chosen, readings = GenerativePriorSettings(n_latent=1, n_steps=300), torch.ones(5, 1)
    near, far = (
        fit_codes(_TwoValleys(), readings, NO_COVARIATES, torch.tensor(starts), 0.0, chosen)
        for starts in ([[0.0]], [[0.0], [2.5]])
    )
    np.testing.assert_allclose(near, 0.5, atol=0.01)
    np.testing.assert_allclose(far, 3.0, atol=0.05)


def test_the_weight_holds_codes_back():
    """Without readings the code is the mean of the prior; with a large weight nearly."""
    decoder, chosen = nn.Linear(2, 3).requires_grad_(False), GenerativePriorSettings(n_latent=2, n_steps=400)
    nothing = torch.full((5, 3), torch.nan)
    np.testing.assert_allclose(fit_codes(decoder, nothing, NO_COVARIATES, torch.ones(1, 2), 0.5, chosen), 0, atol=1e-3)
    assert fit_codes(decoder, torch.ones(5, 3), NO_COVARIATES, torch.ones(1, 2), 1e3, chosen).abs().max() < 0.01


def test_the_bound_is_that_of_its_distributions():
    """The log likelihood under the noise of the largest likelihood, less the divergence of codes from the prior."""
    torch.manual_seed(0)
    truth, made, mean, log_variance = torch.randn(6, 9), torch.randn(6, 9), torch.randn(6, 2), torch.randn(6, 2)
    spread = (made - truth).square().mean().sqrt()
    likelihood = Normal(made, spread).log_prob(truth).sum(dim=1).mean()
    divergence = kl_divergence(Normal(mean, (log_variance / 2).exp()), Normal(0.0, 1.0)).sum(dim=1).mean()
    constant = 0.5 + np.log(2 * np.pi) / 2
    found = negative_evidence((made, mean, log_variance), truth)
    assert float(found) == pytest.approx(float((divergence - likelihood) / 9) - constant, abs=1e-3)


def test_a_curve_is_reconstructed_where_no_linear_estimate_can():
    """From three readings, of samples that neither model has seen."""
    data, sites = on_a_curve(), np.array([0, 1, 2])
    training = {"steps": 600, "batch_size": 64, "ema_decay": 0.9}
    prior = GenerativePrior(n_latent=2, width=64, train=training)
    prior.fit(data.train, sites, validation=data.validation, run=Run())
    ridge = Ridge().fit(data.train, sites, validation=data.validation, run=Run())
    unseen = data.choosing.apply(data.test.take(np.arange(60)))
    left = [np.square(unseen.values - made.reconstruct(unseen.readings(sites))).mean() for made in (prior, ridge)]
    assert left[0] < 0.2 * left[1]


@pytest.fixture(scope="module")
def fitted():
    data = parts()
    return data, GenerativePrior(**QUICK).fit(data.train, SITES, validation=data.validation, run=Run())


def test_a_missing_reading_leaves_out_its_term(fitted):
    """The result is that of the same decoder fitted to the other sites alone, which is trained without the sites."""
    data, prior = fitted
    fewer = GenerativePrior(**QUICK).fit(data.train, SITES[:2], validation=data.validation, run=Run())
    readings = data.validation.readings(SITES)
    readings[:, 2] = np.nan
    np.testing.assert_allclose(prior.reconstruct(readings), fewer.reconstruct(readings[:, :2]), atol=1e-4)


def test_samples_are_fitted_independently(fitted):
    """One sample alone and among others; none at all."""
    data, prior = fitted
    readings = data.validation.readings(SITES)
    together = prior.reconstruct(readings)
    alone = np.concatenate([prior.reconstruct(readings[i : i + 1]) for i in range(3)])
    np.testing.assert_allclose(alone, together[:3], atol=1e-3)
    assert prior.reconstruct(readings[:0]).shape == (0, 1, 20)
    with torch.inference_mode():
        np.testing.assert_array_equal(prior.reconstruct(readings), together)


def test_the_default_weight_is_what_the_decoder_does_not_explain(fitted):
    """A decoder that was trained longer leaves less, so that readings count more; a given weight is kept."""
    data, prior = fitted
    longer = GenerativePrior(**QUICK | {"train": TRAIN | {"steps": 400}})
    longer.fit(data.train, SITES, validation=data.validation, run=Run())
    assert 0 < longer.code_weight < prior.code_weight
    given = GenerativePrior(**QUICK, code_weight=0.25).fit(data.train, SITES, validation=data.validation, run=Run())
    assert given.code_weight == 0.25


def test_loss_weights_count_in_the_readings():
    """Targets are multiplied by the roots of the weights, and readings likewise before codes are fitted to them."""
    values = np.random.default_rng(0).normal(size=(60, 2)) @ np.random.default_rng(1).normal(size=(2, 9))
    data = prepare(kh.read(values).with_weights(np.linspace(0.2, 3, 9)), None, seed=0)
    sites = np.array([0, 4, 8])
    training = {"steps": 400, "batch_size": 16, "ema_decay": 0.0}
    prior = GenerativePrior(n_latent=2, width=32, train=training)
    prior.fit(data.train, sites, validation=data.validation, run=Run())
    left = data.validation.targets - prior.reconstruct(data.validation.readings(sites))
    assert np.square(left).mean() < 0.2 * np.square(data.validation.targets).mean()


def test_covariates_are_inputs_of_the_decoder():
    """What they tell is known without any reading."""
    rng = np.random.default_rng(0)
    told = rng.normal(size=(200, 1))
    samples = kh.read(told @ rng.normal(size=(1, 9)) + 0.1 * rng.normal(size=(200, 9))).with_covariates(columns=told)
    data, sites = prepare(samples, None, seed=0), np.array([0, 4])
    training = {"steps": 300, "batch_size": 32, "ema_decay": 0.9}
    prior = GenerativePrior(n_latent=2, width=32, train=training)
    prior.fit(data.train, sites, validation=data.validation, run=Run())
    nothing = np.full((len(data.validation), 2, 1), np.nan, np.float32)
    left = data.validation.targets - prior.reconstruct(nothing, data.validation.covariates)
    assert np.square(left).mean() < 0.2 * np.square(data.validation.targets).mean()


def test_training_goes_on_where_it_was_stopped(tmp_path):
    """Interrupted, then resumed: the arrays of a training left alone."""

    def stop(event: Event) -> None:
        if event.step == 30:
            signal.raise_signal(signal.SIGINT)

    data = parts()
    made, run = GenerativePrior(**QUICK), Run(folder=tmp_path)
    whole = made.clone().fit(data.train, SITES, validation=data.validation, run=Run()).state()[1]
    with pytest.raises(Interrupted, match="generative_prior"):
        made.clone().fit(data.train, SITES, validation=data.validation, run=replace(run, callback=stop))
    resumed = made.clone().fit(data.train, SITES, validation=data.validation, run=replace(run, resume=True))
    for name, array in resumed.state()[1].items():
        np.testing.assert_array_equal(array, whole[name])


def test_a_plan_leaves_out_missing_readings_and_survives_its_file(tmp_path):
    """Readings that are NaN are not imputed; the loaded plan gives the same, with intervals."""
    values = np.random.default_rng(0).normal(size=(120, 3)) @ np.random.default_rng(1).normal(size=(3, 10))
    plan = kh.select(values, k=3, method="qr", reconstructor=GenerativePrior(**QUICK), refit=False)
    readings = values[:4][:, plan.indices]
    readings[1, 0] = np.nan
    scaled = plan.scaling.scale_readings(readings[:, :, None], plan.numbers, None)
    assert np.isnan(scaled).sum() == 1
    expected = plan.scaling.undo(plan.reconstructor.reconstruct(scaled), None).reshape(4, 10)
    found = plan.reconstruct(readings, interval=0.9)
    np.testing.assert_array_equal(found[0], expected)
    plan.save(tmp_path / "prior.keyhole")
    for loaded, made in zip(
        kh.load(tmp_path / "prior.keyhole").reconstruct(readings, interval=0.9), found, strict=True
    ):
        np.testing.assert_array_equal(loaded, made)


def test_it_is_fitted_to_all_samples_in_the_end():
    """`refit` trains once more without validation, and sets weight and initial codes as well."""
    data = parts()
    prior = GenerativePrior(**QUICK).fit(data.train, SITES, validation=data.validation, run=Run())
    again = prior.refit(data.development, SITES, validation=data.validation, run=Run())
    assert again.code_weight > 0
    assert again.starts.shape == (4, 3)
    assert not again.starts[0].any()


def test_missing_values_in_the_samples_do_not_count():
    """The decoder is trained on what is known."""
    values = np.random.default_rng(0).normal(size=(80, 3)) @ np.random.default_rng(1).normal(size=(3, 10))
    values[np.random.default_rng(2).uniform(size=values.shape) < 0.1] = np.nan
    plan = kh.select(values, k=3, method="qr", reconstructor=GenerativePrior(**QUICK), missing="model", refit=False)
    assert np.isfinite(plan.metrics["test"]["fvu"])


def test_sensors_apart_from_sites_are_refused():
    sensors = Sensors.at({"lat": [0.0, 10.0], "lon": [-150.0, -120.0]}, noise=0.0)
    samples = kh.read(kh.datasets.sst()).with_sensors(sensors)
    with pytest.raises(SettingsError, match="sensor at each site"):
        kh.select(samples, k=2, method="greedy", reconstructor="generative_prior")
