"""Learned masks with a decoder and a loss of the user's own."""

from __future__ import annotations

import os
import pickle
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import keyhole as kh
from keyhole.core.errors import SettingsError, TrainingError
from keyhole.core.interrupts import Interrupted
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.data.target import Target
from keyhole.placement import Learned
from own_modules import QUICK, Copied, FromGrid, FromReadings, field, first_rows, last_rows

MASKS = {"n_masks": 2, "train": QUICK}


def learn(learned, samples=None, run=None):
    train = prepare(field() if samples is None else samples, None, seed=0).train
    task, history = learned.clone().learn(train, 3, run or Run(seed=3))
    return task.state_dict(), history, task


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("given", [FromGrid, FromGrid(), nn.Sequential(nn.Flatten(), nn.LazyLinear(20))])
def test_a_decoder_takes_the_masked_grid(given):
    """A class, an object, or one that returns the valid sites alone; the plan has its name."""
    plan = kh.select(field(), 3, method=Learned(decoder=given, **MASKS), reconstructor="ridge")
    assert plan.k == 3
    assert plan.metadata["settings"]["decoder"] in ("from_grid", "sequential")


def test_it_sees_what_the_masks_let_through_and_the_mask():
    """Zeros elsewhere, and at land."""
    _, _, task = learn(Learned(decoder=Copied(), **MASKS))
    seen = task.objective.decoder.network.module.seen
    assert seen.shape[1:] == (2, 4, 6)
    values, mask = seen[:, 0], seen[:, 1]
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    assert (mask.flatten(1).sum(1) == 3).all()
    assert not values[mask == 0].any()
    assert not mask[..., -1].any()
    _, _, alone = learn(Learned(decoder=Copied(), mask_channel=False, **MASKS))
    assert alone.objective.decoder.network.module.seen.shape[1:] == (1, 4, 6)


def test_the_network_that_was_trained_reconstructs():
    """From the sites that it was collapsed to, in units of the targets whatever the weights are."""
    samples = prepare(kh.datasets.sst(), None, seed=0).train
    still = QUICK | {"steps": 1, "learning_rate": 1e-9}
    learned = Learned(decoder=Copied(), n_masks=2, train=still)
    found = learned.select(samples, 3, validation=None, run=Run())
    reconstructed = found.reconstruct(samples.take(np.arange(5)))
    expected = np.zeros_like(reconstructed)
    expected[:, :, found.sites] = samples.targets[:5][:, :, found.sites]
    np.testing.assert_allclose(reconstructed, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("decoder", ["auto", "dense", FromGrid])
def test_a_loss_on_a_region_puts_the_sites_there(decoder):
    """Causes differ between the upper and the lower rows, so that each region is told by its own sites alone."""
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(200, 2, 1, 1)) * np.ones((1, 1, 2, 6))
    values = causes.reshape(200, 4, 6) + 0.3 * rng.normal(size=(200, 4, 6))
    settings = {"steps": 100, "batch_size": 32, "learning_rate": 1e-2, "ema_decay": 0.0}
    rows = []
    for loss in (first_rows, last_rows):
        learned = Learned(decoder=decoder, loss=loss, warm_start="none", n_masks=8, train=settings)
        plan = kh.select(values, 2, method=learned, reconstructor="ridge", refit=False)
        rows.append(plan.indices // 6)
        assert plan.metadata["settings"]["loss"] == loss.__name__
    assert (rows[0] < 2).all()
    assert (rows[1] >= 2).all()


def test_missing_values_do_not_count():
    """The loss sees where they are."""
    values = np.random.default_rng(0).normal(size=(60, 4, 6))
    values[np.random.default_rng(1).random(values.shape) < 0.2] = np.nan

    def known_only(reconstruction, truth, known, mask, weights):
        assert not truth.isnan().any()
        assert mask.shape == truth.shape
        assert weights.shape == (1, 1, 4, 6)
        assert 0.7 < float(known.mean()) < 0.9
        return ((reconstruction - truth) * known).square().sum() / known.sum()

    samples, errors = kh.read(values, missing="model"), []
    for loss in (None, known_only):
        torch.manual_seed(0)
        _, history, _ = learn(Learned(decoder=FromGrid, loss=loss, **MASKS), samples)
        errors.append([row["loss"] for row in history[1:]])
    np.testing.assert_allclose(*errors, rtol=1e-3)


@pytest.mark.parametrize("budget", ["dual", "penalty"])
def test_the_price_of_a_site_is_in_units_of_the_loss(budget):
    """A loss a thousand times as large has a price a thousand times as large."""
    units = []
    for factor in (1.0, 1000.0):

        def loss(reconstruction, truth, factor=factor):
            return factor * (reconstruction - truth).square().mean()

        _, _, task = learn(Learned(decoder=FromGrid, loss=loss, budget=budget, **MASKS))
        units.append(task.objective.unit)
    assert units[1] == pytest.approx(1000 * units[0])


@pytest.mark.parametrize("kind", ["class", "number"])
def test_a_head_predicts_a_target(kind):
    """From the masked grid to logits, or to a number; the sites that tell the target are found."""
    values = np.random.default_rng(0).normal(size=(300, 8))
    cause = values[:, 2] - values[:, 5]
    samples = kh.read(values).with_target(Target.of(cause > 0 if kind == "class" else cause))
    head = nn.Sequential(nn.Flatten(), nn.LazyLinear(16), nn.ReLU(), nn.Linear(16, 2 if kind == "class" else 1))
    train = {"steps": 120, "batch_size": 32, "learning_rate": 1e-2, "ema_decay": 0.0}
    calls = []

    def loss(outputs, target):
        calls.append((outputs.shape, target.shape))
        of_each = nn.functional.cross_entropy if kind == "class" else nn.functional.l1_loss
        return of_each(outputs, target, reduction="none")

    for own in (None, loss):
        learned = Learned(decoder=head, loss=own, n_masks=8, train=train)
        plan = kh.select(samples, 2, method=learned, predictor="linear", refit=False)
        assert sorted(plan.indices) == [2, 5]
    assert calls[0] == (((32, 2) if kind == "class" else (32,)), (32,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoder": FromGrid(2)}, r"fails for \(2, 2, 4, 6\), which is .* masked grids \(1 channel, the mask\)"),
        ({"decoder": nn.Conv2d(2, 3, 1)}, r"returns \(2, 3, 4, 6\).* needed is \(2, 20\)"),
        ({"decoder": lambda x: x}, "makes no module without arguments"),
        ({"decoder": "mine"}, "Input should be 'auto'"),
        ({"decoder": FromGrid, "objective": "gan"}, "has a decoder and a loss of its own"),
        ({"loss": nn.L1Loss(), "objective": "gan"}, "has a decoder and a loss of its own"),
        ({"loss": nn.L1Loss(), "decoder": "kernel"}, "kernel decoder has the squared error in closed form"),
        ({"loss": nn.L1Loss}, "is a class; give an object"),
        ({"loss": lambda a, b: 1.0}, "returns float"),
        ({"loss": lambda a, b: (a - b).mean((2, 3, 1))[:2]}, "returns a tensor of shape"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(options, message):
    """With the shapes."""
    with pytest.raises(SettingsError, match=message):
        kh.select(field(), 3, method=Learned(**options, train=QUICK))


def test_a_head_of_another_size_is_refused():
    """With the number of classes."""
    samples = kh.read(np.random.default_rng(0).normal(size=(60, 8)))
    samples = samples.with_target(Target.of(np.arange(60) % 3))
    head = nn.Sequential(nn.Flatten(), nn.LazyLinear(2))
    with pytest.raises(SettingsError, match=r"returns \(2, 2\).* needed is \(2, 3\), a logit for each of 3 classes"):
        kh.select(samples, 2, method=Learned(decoder=head, train=QUICK), target_kind=None)


def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path):
    """And only with the same decoder and loss."""

    def stop(event):
        if event.step == 7:
            os.kill(os.getpid(), signal.SIGINT)

    torch.manual_seed(0)
    learned = Learned(decoder=FromGrid(), loss=first_rows, **MASKS)
    expected = learn(learned)
    run = Run(seed=3, folder=tmp_path)
    with pytest.raises(Interrupted, match="stopped at step 7"):
        learn(learned, run=replace(run, callback=stop))
    for other in (Learned(decoder=FromGrid(), loss=first_rows, **MASKS), Learned(decoder=learned.own.decoder, **MASKS)):
        with pytest.raises(TrainingError, match="belongs to another run"):
            learn(other, run=replace(run, resume=True))
    found = learn(learned, run=replace(run, resume=True))
    assert_same(expected[0], found[0])
    assert expected[1] == found[1]


def test_it_is_cloned_sent_and_compared_as_it_is():
    """With decoder and loss."""
    learned = Learned(decoder=FromGrid(), loss=first_rows, **MASKS)
    for one in (learned.clone(), pickle.loads(pickle.dumps(learned))):
        assert one.settings() == learned.settings()
        assert_same(learn(one)[0], learn(learned)[0])
    found = kh.compare(field(), 3, {"own": learned, "greedy": "greedy"})
    assert {row["method"] for row in found.rows()} == {"own", "greedy"}


def test_plans_with_it_are_kept_and_changed(tmp_path):
    """A file has the names alone; sites and a reconstructor are what a plan is made of."""
    learned = Learned(decoder=FromGrid, loss=first_rows, **MASKS)
    plan = kh.select(field(), 3, method=learned, reconstructor="ridge")
    plan.save(tmp_path / "plan.keyhole")
    again = kh.load(tmp_path / "plan.keyhole")
    assert again.metadata["settings"]["decoder"] == "from_grid"
    assert kh.drop(again, field(), 1).k == 2
    assert kh.extend(again, field(), 1, method=learned).k == 4


def test_estimators_take_it():
    """With a network of one's own that reconstructs, cloned as scikit-learn does."""
    from sklearn.base import clone

    from keyhole.models.reconstructors import ModuleReconstructor
    from keyhole.sklearn import KeyholeSelector

    table = np.random.default_rng(0).normal(size=(60, 3)) @ np.random.default_rng(1).normal(size=(3, 6))
    network = ModuleReconstructor(FromReadings(3, 6), train=QUICK)
    learned = Learned(decoder=nn.Conv1d(2, 1, 1), **MASKS)
    estimator = clone(KeyholeSelector(3, method=learned, reconstructor=network, random_state=0)).fit(table)
    assert estimator.inverse_transform(estimator.transform(table)).shape == table.shape
