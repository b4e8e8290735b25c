"""How the time limit is shared among networks."""

from __future__ import annotations

from time import monotonic

import numpy as np
import pytest

import keyhole as kh
from keyhole.core.run import Run
from keyhole.models.reconstructors.model_selection import ModelSelection
from keyhole.models.settings import ModelSelectionSettings


def selection(train, seconds):
    run = Run(deadline=monotonic() + seconds)
    return ModelSelection(train, np.arange(2), train, run, ModelSelectionSettings())


@pytest.mark.parametrize(("samples", "members"), [(500, 1), (30_000, 5)])
def test_a_network_has_enough_steps_and_not_passes_alone(monkeypatch, samples, members):
    """Sixty passes are five times twelve; of few samples they are too few steps for more than one."""
    monkeypatch.setattr("keyhole.models.reconstructors.neural.Dense.seconds_per_epoch", lambda *given: 1.0)
    train = kh.read(np.random.default_rng(0).normal(size=(samples, 6))).as_scaled()
    assert selection(train, 61).members_in_time() == members


@pytest.mark.parametrize(("samples", "hurried"), [(500, True), (20_000, False)])
def test_a_network_of_the_grid_needs_enough_steps_too(monkeypatch, samples, hurried):
    monkeypatch.setattr("keyhole.models.reconstructors.dense_conv.DenseConv.seconds_per_epoch", lambda *given: 1.0)
    train = kh.read(np.random.default_rng(0).normal(size=(samples, 2, 3))).as_scaled()
    assert selection(train, 20).is_short_of_time() is hurried
