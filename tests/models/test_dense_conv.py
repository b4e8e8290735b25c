"""The network that knows the grid."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.data.sites import Sites
from keyhole.models.reconstructors import RECONSTRUCTORS, Residual
from keyhole.models.reconstructors.dense_conv import DenseConv, DenseConvNet
from keyhole.models.reconstructors.model_selection import convolutional_after, fit_best
from keyhole.models.reconstructors.networks import DenseNet, PatchNet
from keyhole.models.reconstructors.neural import Dense
from keyhole.training.settings import TrainSettings


def network(domain, sites, channels=1, covariates=0):
    torch.manual_seed(0)
    inputs = len(sites) * channels + covariates
    dense = DenseNet(inputs, channels * len(domain), width=16, blocks=1, dropout=0.0)
    return DenseConvNet(dense, inputs, channels, domain, sites, filters=4, layers=1).eval()


def test_it_starts_as_its_dense_part():
    """The head of the convolutions is zero, and cells that are no sites stay zero until it moves."""
    valid = np.ones((5, 6), bool)
    valid[:, 0] = False
    domain = Sites.plain((5, 6), valid)
    net = network(domain, np.array([3, 8]), channels=2)
    torch.nn.init.normal_(net.dense.last.weight)
    x = torch.randn(7, 4)
    out = net(x).detach().numpy()
    assert out.shape == (7, 2, 5, 6)
    assert not out[:, :, ~valid].any()
    packed = net.dense(x).detach().numpy().reshape(7, 2, -1)
    np.testing.assert_allclose(domain.from_grid(out), packed, rtol=1e-6)


def test_the_voronoi_map_holds_the_nearest_reading():
    """Against a search over all pairs; context behind the readings is left out."""
    domain, sites = Sites.plain((5, 6)), np.array([0, 17, 28])
    net = network(domain, sites, channels=2, covariates=1)
    x = torch.arange(7.0)[None]
    places = np.stack(np.unravel_index(np.arange(30), (5, 6)), axis=1)
    nearest = np.square(places[:, None] - places[None, sites]).sum(axis=2).argmin(axis=1)
    readings = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(net.voronoi(x)[0].numpy().reshape(2, 30), readings[nearest].T)


def test_distance_is_over_the_sphere_for_latitude_and_longitude():
    """A site at 175 E is next to a cell at 175 W."""
    axes = {"lat": np.array([-10.0, 0.0, 10.0]), "lon": np.arange(-175.0, 180.0, 10.0)}
    domain = Sites.build((3, 36), ("lat", "lon"), axes)
    net = network(domain, np.array([36 + 18, 36 + 35]))  # 5 E and 175 E on the equator
    assert net.get_buffer("nearest").reshape(3, 36)[1, 0] == 1
    distance = net.get_buffer("maps")[1]
    assert distance[1, 18] == distance[1, 35] == 0
    assert distance[1, 0] < distance[1, 4]


def folds():
    """Folds in a smooth field, and some sites."""
    rng = np.random.default_rng(0)
    waves = rng.normal(size=(3, 8, 8)).cumsum(axis=1).cumsum(axis=2) / 8
    folded = np.abs(np.einsum("nc,chw->nhw", rng.normal(size=(600, 3)), waves))
    return prepare(kh.read(folded[:, None], channels=1), None, seed=0), np.array([9, 14, 27, 36, 49, 54])


def test_it_learns_local_detail_on_top_of_a_linear_part():
    """The network leaves clearly less than ridge."""
    data, sites = folds()
    settings = {"train": {"steps": 150, "batch_size": 64, "ema_decay": 0.9}, "width": 32, "filters": 8}
    fitted = Residual("dense_conv", **settings).fit(data.train, sites, validation=data.validation, run=Run())
    assert fitted.improvement < 0.8
    assert RECONSTRUCTORS["dense_conv"].name == "dense_conv"


def test_it_goes_on_from_a_dense_network():
    """It is that network at its first look, of its width, and gets better at half the rate."""
    data, sites = folds()
    quick = {"train": {"steps": 120, "batch_size": 64, "ema_decay": 0.9}}
    parts = {"sites": sites, "validation": data.validation, "run": Run()}
    dense = Residual("dense", width=48, blocks=1, **quick).fit(data.train, **parts)
    detail = Residual("dense_conv")
    detail.network = DenseConv(filters=8, **quick).starting_with(dense.network)
    assert (
        detail.network.pace(600, limited=False).learning_rate
        == dense.network.pace(600, limited=False).learning_rate / 2
    )
    detail.fit(data.train, **parts)
    errors = [[row["validation"] for row in one.history] for one in (dense, detail)]
    assert errors[1][0] == pytest.approx(min(errors[0]), rel=1e-4)
    assert min(errors[1]) < errors[1][0]


@pytest.mark.parametrize(
    ("steps", "errors", "starts"),
    [(90, [3.0, 2.0, 1.0], True), (100, [3.0, 2.0, 1.0], False), (90, [3.0, 1.0, 2.0, 2.0], False)],
)
def test_it_goes_on_from_a_network_that_the_clock_stopped(steps, errors, starts):
    """Not from one whose steps or patience had run out."""
    dense = Residual("dense")
    dense.network.train_settings = TrainSettings(steps=100, patience=2)
    dense.network.history = [{"step": float(steps), "validation": error} for error in errors]
    dense.network.network = DenseNet(6, 64, width=48)
    assert bool(convolutional_after(dense, None).network.start) is starts


@pytest.mark.parametrize(("seconds", "tried"), [(0.0, True), (1e6, False)])
def test_it_is_left_out_where_time_is_short(monkeypatch, seconds, tried):
    """A pass that takes too long leaves all the time to dense networks, a quick one does not."""
    monkeypatch.setattr(DenseConv, "seconds_per_epoch", lambda *about: seconds)
    monkeypatch.setattr(Dense, "unfinished", property(lambda dense: True))
    quick = TrainSettings(steps=20, batch_size=32, ema_decay=0.9)
    data, sites = folds()
    run, settings = Run(deadline=time.monotonic() + 1e6), {"train": quick}
    fitted = fit_best(data.train, sites, validation=data.validation, run=run, settings=settings)
    assert any("dense_conv" in row["by"] for row in fitted.tried) is tried


def test_no_network_is_begun_when_time_is_over():
    """Closed forms are always there."""
    data, sites = folds()
    fitted = fit_best(data.train, sites, validation=data.validation, run=Run(deadline=time.monotonic() - 1))
    assert fitted.closed_form
    assert [row["by"] for row in fitted.tried] == ["ridge", "optimal_interpolation", "kernel"]


def test_a_pass_is_timed_without_a_trace():
    """It takes time, and the reconstructor is as it was."""
    data, sites = folds()
    made = DenseConv(filters=4)
    assert made.seconds_per_epoch(data.train, sites, Run()) > 0
    assert made.options.width is None
    assert not list(made.network.parameters())


def test_convolutions_see_what_was_estimated_before():
    """Two estimates for the same readings: once the head has moved, the outcome tells them apart."""
    domain, sites = Sites.plain((5, 6)), np.array([3, 8])
    net = network(domain, sites)
    torch.nn.init.normal_(net.convolutions.last.weight)
    readings, estimate = torch.randn(4, 2), torch.randn(4, 30)
    first, second = (net(torch.cat([readings, part], dim=1)) for part in (estimate, estimate + 1))
    assert net(readings).shape == first.shape == (4, 1, 5, 6)
    assert (first - second).abs().max() > 1e-3


def test_patches_grow_with_the_grid():
    """Two cells a side, more where there would be over a thousand; any size comes back as it was."""
    for shape, patch in (((5, 7), 2), ((64, 64), 2), ((65, 64), 4), ((300, 200), 8)):
        net = PatchNet(2, 3, shape, filters=4, blocks=1).eval()
        assert net.patch == patch
        assert net(torch.zeros(1, 2, *shape)).shape == (1, 3, *shape)
