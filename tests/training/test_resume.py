"""Training resumes bit for bit where it was stopped: mask distributions, budgets, objectives, predictors."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

import keyhole as kh
from example_data import smooth
from keyhole.core.interrupts import Interrupted
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.data.target import Target
from keyhole.models.predictors import Network, fit_predictor
from keyhole.placement import SELECTORS

STEPS = 12
TRAIN = {"steps": STEPS, "batch_size": 8, "validation_steps": 4}
PAPER = {"budget": "dual", "masks": "soft", "k_anneal": 0.5, "warm_start": "none"}
SITES = np.array([1, 6, 11])
MASK_DISTRIBUTIONS = {
    "cgan": ("cgan", {}),
    "cgan, dual and soft": ("cgan", PAPER),
    "vln, dual and soft": ("vln", PAPER | {"decoder": "resnet", "mask_channel": False}),
    "vln, shifted resnet": ("vln", PAPER | {"decoder": "resnet", "n_phases": 4}),
    "hnet, dual and soft": ("hnet", PAPER),
    "sct, dual and soft": ("sct", PAPER),
    "simplex, dual and soft": ("simplex", PAPER),
    "vln, dual and hard": ("vln", PAPER | {"masks": "hard", "decoder": "dense"}),
    "vln, penalty": ("vln", {"budget": "penalty"}),
}


def stopping_at(step):
    """A callback that presses Ctrl-C in a step."""

    def stop(event):
        if event.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    return stop


def stopped_and_resumed(work, folder, step):
    """What work gives that was stopped in a step and went on."""
    run = Run(seed=3, folder=folder)
    with pytest.raises(Interrupted, match=f"stopped at step {step} of {STEPS}"):
        work(replace(run, callback=stopping_at(step)))
    return work(replace(run, resume=True))


def assert_same(one, other):
    """The same names, and the same bits under each."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(other[name])), name


@pytest.mark.parametrize("step", [1, 7])
@pytest.mark.parametrize("name", MASK_DISTRIBUTIONS)
def test_a_distribution_goes_on_bit_for_bit(tmp_path, name, step):
    """Distribution, network, multiplier and history are those of a run left alone, and they have moved."""
    method, settings = MASK_DISTRIBUTIONS[name]
    selector = SELECTORS.make(method, {"train": TRAIN | {"ema_decay": 0.0}, "n_masks": 2, **settings})
    train = prepare(kh.read(smooth(40, 4, 4)), None, 0).train

    def work(run):
        task, history = selector.learn(train, 3, run)
        return task.state_dict(), history

    (expected, rows), (found, others) = work(Run(seed=3)), stopped_and_resumed(work, tmp_path, step)
    assert_same(expected, found)
    assert rows == others
    assert rows[0]["count"] != rows[-1]["count"]


@pytest.mark.parametrize("step", [1, 7])
@pytest.mark.parametrize("kind", ["class", "number"])
@pytest.mark.parametrize("name", ["network", "auto"])
def test_a_predictor_goes_on_bit_for_bit(tmp_path, name, kind, step):
    """Weights and history of the network are those of a run left alone."""
    values = smooth(40, 4, 4)
    cause = values[:, 0, 0] - values[:, 3, 3]
    parts = prepare(kh.read(values).with_target(Target.of(cause > 0 if kind == "class" else cause)), None, 0)

    def work(run):
        given = {"train": parts.train, "sites": SITES, "validation": parts.validation, "run": run}
        fitted = (
            fit_predictor(**given, settings={"train": TRAIN}) if name == "auto" else Network(train=TRAIN).fit(**given)
        )
        return fitted.learned()[1], fitted.history, fitted.name

    expected, found = work(Run(seed=3)), stopped_and_resumed(work, tmp_path, step)
    assert_same(expected[0], found[0])
    assert expected[1:] == found[1:]


def test_a_distribution_that_chooses_once_more_keeps_its_states_apart(tmp_path):
    """Auto trains it on train, then on train and validation: a run that is resumed finds both."""
    parts = prepare(kh.datasets.sst(), None, seed=0)
    settings = {"train": TRAIN, "n_masks": 4}
    auto = SELECTORS.make("auto", {"stages": ("greedy", "learned"), **settings})
    trained = [{"stage": "search", "by": "learned", "seconds": 0.0}]

    def work(run):
        first = SELECTORS.make("learned", settings).select(parts.train, 3, validation=None, run=run)
        return auto.refit(replace(first, history=trained, notes={"chosen": "learned"}), parts.development, run).sites

    once = work(Run(seed=3, folder=tmp_path))
    assert len(list(tmp_path.glob("*.state"))) == 2
    np.testing.assert_array_equal(work(Run(seed=3, folder=tmp_path, resume=True)), once)
