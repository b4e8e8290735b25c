"""The contract of every reconstructor in the registry, and of the networks."""

from __future__ import annotations

import itertools
import json
import time
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import keyhole as kh
from keyhole.core.errors import SettingsError
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.masks import share
from keyhole.models.reconstructors import RECONSTRUCTORS, Residual, fit_best
from keyhole.models.reconstructors.mask_conditional import make_decoder
from keyhole.models.reconstructors.networks import ResNet
from keyhole.models.settings import width_for
from keyhole.placement.settings import LearnedSettings
from keyhole.training.settings import TrainSettings
from keyhole.workflow.selection import fit_reconstructor

QUICK = {"train": {"steps": 30, "batch_size": 32}}


def build(name):
    return RECONSTRUCTORS[name](**({} if RECONSTRUCTORS[name].closed_form else QUICK))


def neighbours(*shape):
    """Adjacency of the valid sites of `parts`, which lack the last column: those beside each other are connected."""
    places = np.argwhere(np.ones((*shape[:-1], shape[-1] - 1)))
    return (np.abs(places[:, None] - places).sum(axis=2) == 1).astype(float)


def parts(shape=(5, 6), n=80, channels=1, seed=0, nonlinear=False, name=""):
    """Samples of three causes; with a graph for a reconstructor that needs one."""
    rng = np.random.default_rng(seed)
    size = channels * int(np.prod(shape))
    causes = rng.normal(size=(n, 3))
    if nonlinear:
        causes = np.concatenate([causes, np.abs(causes) * 2], axis=1)
    values = causes @ rng.normal(size=(causes.shape[1], size)) + 0.05 * rng.normal(size=(n, size))
    values = values.reshape(n, channels, *shape)
    values[..., -1] = np.nan
    samples = kh.read(values, channels=1)
    return prepare(samples.with_graph(neighbours(*shape)) if name == "graph_ridge" else samples, None, seed=0)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("name", RECONSTRUCTORS)
def test_shape_and_round_trip(name, channels):
    """What is rebuilt has a value for each channel and site, and survives state and restore bit for bit."""
    data, sites = parts(channels=channels, name=name), np.array([3, 8, 14])
    fitted = build(name).fit(data.train, sites, validation=data.validation, run=Run())
    readings = data.validation.readings(sites)
    reconstructed = fitted.reconstruct(readings)
    assert reconstructed.shape == data.validation.values.shape
    assert reconstructed.dtype == np.float32
    described, arrays = fitted.state()
    again = type(fitted).restore(json.loads(json.dumps(described)), arrays, data.samples.sites, sites)
    np.testing.assert_array_equal(again.reconstruct(readings), reconstructed)


@pytest.mark.parametrize("name", RECONSTRUCTORS)
def test_better_than_the_mean(name):
    """Rebuilding from sites that say much leaves less than nothing observed does."""
    data, sites = parts(name=name), np.array([3, 8, 14, 20])
    settings = {} if RECONSTRUCTORS[name].closed_form else {"train": {"steps": 150, "batch_size": 32, "ema_decay": 0.9}}
    made = RECONSTRUCTORS[name](**settings)
    fitted = made.fit(data.train, sites, validation=data.validation, run=Run())
    left = data.validation.values - fitted.reconstruct(data.validation.readings(sites))
    assert np.square(left).sum() < 0.5 * np.square(data.validation.values).sum()


@pytest.mark.parametrize("name", RECONSTRUCTORS)
def test_same_seed_same_weights(name):
    """Two fits with one seed give the same arrays."""
    data, sites = parts(name=name), np.array([3, 8, 14])
    states = [build(name).fit(data.train, sites, validation=data.validation, run=Run(seed=5)).state()[1] for _ in "ab"]
    for key, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][key])


@pytest.mark.parametrize("name", RECONSTRUCTORS)
def test_a_clone_has_the_same_settings(name):
    """Before it is fitted, and after it was stored; an unknown setting is refused by name."""
    given = (
        {}
        if name == "ridge"
        else {"n_folds": 3}
        if name == "graph_ridge"
        else {"max_targets": 7}
        if RECONSTRUCTORS[name].closed_form
        else QUICK
    )
    data, sites = parts(name=name), np.array([3, 8, 14])
    made = RECONSTRUCTORS.make(name, given)
    assert made.clone().settings() == made.settings()
    fitted = made.fit(data.train, sites, validation=data.validation, run=Run())
    described, arrays = fitted.state()
    again = type(fitted).restore(json.loads(json.dumps(described)), arrays, data.samples.sites, sites)
    assert again.clone().settings() == fitted.clone().settings()
    with pytest.raises(SettingsError, match="has no setting 'depth'"):
        RECONSTRUCTORS.make(name, {"depth": 3})


def test_residual_starts_as_ridge_and_is_never_worse_on_validation():
    """The first row of its history is ridge's own error, and the weights kept are no worse."""
    data, sites = parts(nonlinear=True, n=500), np.array([3, 8, 14])
    fitted = Residual(**QUICK).fit(data.train, sites, validation=data.validation, run=Run())
    cells = data.validation.targets
    ridge = np.square(cells - fitted.linear.reconstruct(data.validation.readings(sites))).mean()
    assert fitted.history[0]["validation"] == pytest.approx(ridge, rel=1e-4)
    reconstructed = fitted.reconstruct(data.validation.readings(sites))
    assert np.square(cells - reconstructed).mean() <= ridge * (1 + 1e-5)


def test_auto_takes_a_network_only_where_it_pays():
    """Linear data get a closed form, data that are not get a network on top of it."""
    sites = np.array([3, 8, 14])
    assert fit_reconstructor("auto", parts(), sites, Run()).closed_form
    bent = fit_reconstructor("auto", parts(nonlinear=True, n=500), sites, Run())
    assert bent.name == "residual"
    assert [row["by"] for row in bent.tried] == [
        "ridge",
        "optimal_interpolation",
        "kernel",
        f"{bent.linear.name} + dense",
        f"{bent.linear.name} + dense_conv",
    ]
    assert bent.tried[-1]["best"] < 0.98 * bent.tried[2]["best"]
    errors = {row["by"]: row["error"] for row in bent.tried}
    assert bent.improvement == pytest.approx(
        errors[f"{bent.linear.name} + {bent.network.name}"] / errors[bent.linear.name], rel=1e-3
    )


def test_resnet_refuses_a_table():
    """A grid of one axis has no neighbours in two directions."""
    data = parts(shape=(9,))
    with pytest.raises(SettingsError, match="two axes"):
        fit_reconstructor("resnet", data, np.array([1, 2]), Run())


def test_unknown_reconstructor_is_named():
    """An error that says what there is."""
    with pytest.raises(SettingsError, match="residual"):
        fit_reconstructor("mlp", parts(), np.array([1, 2]), Run())


@settings(deadline=None, max_examples=20)
@given(height=st.integers(1, 21), width=st.integers(1, 21))
def test_resnet_takes_any_size(height, width):
    """Padding and cropping hide the strides."""
    network = ResNet(2, 1, filters=2, blocks=1)
    assert network(torch.zeros(2, 2, height, width)).shape == (2, 1, height, width)


def test_width_grows_with_the_samples():
    """Between 128 and 1024, 768 for MNIST's training part."""
    assert [width_for(n) for n in (10, 400, 48_000, 10**7)] == [128, 128, 768, 1024]


@pytest.mark.parametrize("mask_channel", [True, False])
def test_resnet_distinguishes_an_observed_zero_only_with_the_mask(mask_channel):
    """Without the mask channel both look the same to the network."""
    made = RECONSTRUCTORS["resnet"](mask_channel=mask_channel)
    made.domain, made.sites, made.channels = parts().samples.sites, np.array([3, 8]), 1
    zeros = made.inputs(torch.zeros(1, 2, 1), torch.zeros(1, 0), torch.zeros(1, 0))
    assert bool(zeros.any()) is mask_channel


def test_gaussian_is_the_conditional_mean():
    """With hard masks it is the textbook formula for a Gaussian with the model's covariance."""
    data = parts(n=200)
    decoder = make_decoder("gaussian", data.train, k=3)
    chosen = np.array([2, 9, 17])
    mask = torch.zeros(len(data.samples.sites))
    mask[torch.from_numpy(chosen)] = 1
    x = torch.from_numpy(data.validation.values[:5])
    reconstructed = decoder(x, mask.unsqueeze(0)).detach().double().numpy()
    basis, noise = decoder.get_buffer("basis").double().numpy(), decoder.get_buffer("noise").double().numpy()
    model = basis / decoder.get_buffer("precision").double().numpy() @ basis.T
    seen = model[np.ix_(chosen, chosen)] + np.diag(noise[chosen])
    mean = decoder.get_buffer("mean").double().numpy()
    packed = data.validation.targets[:5, 0].astype(float)
    expected = mean + (packed - mean)[:, chosen] @ np.linalg.solve(seen, model[chosen])
    np.testing.assert_allclose(reconstructed, expected, atol=1e-3)


@pytest.mark.parametrize("name", sorted({*get_args(LearnedSettings.model_fields["decoder"].annotation)} - {"auto"}))
def test_conditional_reconstructors_see_only_what_the_mask_lets_through(name):
    """Changing a cell under a closed mask changes nothing."""
    data = parts()
    torch.manual_seed(0)
    decoder = make_decoder(name, data.train, k=3).eval()
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    masks = torch.zeros(2, len(data.samples.sites))
    masks[0, 6], masks[1, 13] = 1, 1
    x = torch.from_numpy(data.train.values[:4])
    other = x.clone()
    other[:2, :, 0] += 5
    other[2:, :, 6] += 5
    with torch.no_grad():
        torch.testing.assert_close(decoder(x, masks), decoder(other, masks), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("batch", [6, 5, 2])
def test_a_dense_decoder_is_its_network_on_what_is_seen_and_the_mask(batch):
    """Though the first layer takes each mask once, and not once for every signal that shares it."""
    data = parts()
    torch.manual_seed(0)
    decoder = make_decoder("dense", data.train, k=3)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    masks = torch.rand(3, len(data.samples.sites))
    x = torch.from_numpy(data.train.values[:batch])
    seen = share(masks, batch)
    inputs = torch.cat([x.flatten(1) * seen, seen], dim=1)
    torch.testing.assert_close(decoder(x, masks), decoder.network(inputs), atol=1e-4, rtol=1e-4)


def test_an_ensemble_is_the_mean_of_networks_that_differ():
    """Its first member is what would be fitted alone; each other has its own weights and state."""
    data, sites = parts(nonlinear=True, n=500), np.array([3, 8, 14])
    settings = {"train": data.train, "validation": data.validation}
    together = RECONSTRUCTORS["ensemble"](members=3, **QUICK).fit(sites=sites, run=Run(), **settings)
    alone = Residual(**QUICK).fit(sites=sites, run=Run(), **settings)
    readings = data.validation.readings(sites)
    reconstructed = [member.reconstruct(readings) for member in together.members]
    np.testing.assert_array_equal(reconstructed[0], alone.reconstruct(readings))
    assert all(np.abs(one - other).max() > 1e-4 for one, other in itertools.combinations(reconstructed, 2))
    np.testing.assert_allclose(together.reconstruct(readings), np.mean(reconstructed, axis=0), atol=1e-6)
    errors = [np.square(data.validation.values - one).mean() for one in reconstructed]
    assert np.square(data.validation.values - together.reconstruct(readings)).mean() <= np.mean(errors)


def test_members_keep_states_apart(tmp_path):
    data, sites = parts(), np.array([3, 8])
    run = Run(folder=tmp_path, save_seconds=0.0)
    RECONSTRUCTORS["ensemble"](members=2, **QUICK).fit(data.train, sites, validation=data.validation, run=run)
    assert len(list(tmp_path.glob("*.state"))) == 2


def test_time_that_is_left_goes_to_more_networks():
    """Under a limit auto grows an ensemble; without one it does not."""
    quick = TrainSettings(steps=600, batch_size=32, ema_decay=0.9)
    data, sites = parts(shape=(30,), nonlinear=True, n=2000), np.array([3, 8, 14])
    given = {"train": data.train, "sites": sites, "validation": data.validation}
    settings = {"train": quick}
    limited = fit_best(**given, run=Run(deadline=time.monotonic() + 3600), settings=settings)
    linear = limited.tried[3]["by"].removesuffix(" + dense")
    assert linear in ("ridge", "optimal_interpolation")
    assert limited.tried[4]["by"] == f"2 of {linear} + dense"
    free = fit_best(**given, run=Run(), settings=settings)
    assert len(free.tried) == 4
