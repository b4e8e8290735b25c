"""Periodic embedding of readings in dense networks, and the short trainings that decide on it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.models.reconstructors import Residual, Ridge
from keyhole.models.reconstructors.model_selection import fit_best
from keyhole.models.reconstructors.networks import DenseNet, PeriodicEmbedding
from keyhole.models.reconstructors.short_trainings import choose_n_frequencies


def waving(n: int = 600, shape: tuple[int, ...] = (64,)) -> tuple[Any, NDArray[np.int64]]:
    """Cells that go up and down with two of them, several times; and these two."""
    rng = np.random.default_rng(0)
    told = rng.uniform(-2, 2, (n, 2))
    return _prepared(told, np.sin(9 * told) @ rng.normal(size=(2, 64)), shape)


def bending(n: int = 600) -> tuple[Any, NDArray[np.int64]]:
    """Cells that level off with sums of twelve of them; and these twelve."""
    rng = np.random.default_rng(0)
    told = rng.normal(size=(n, 12))
    return _prepared(told, np.tanh(told @ rng.normal(size=(12, 64)) / 2), (64,))


def _prepared(told: NDArray[Any], values: NDArray[Any], shape: tuple[int, ...]) -> tuple[Any, NDArray[np.int64]]:
    sites = np.arange(told.shape[1])
    values[:, sites] = told
    values += 0.05 * np.random.default_rng(1).normal(size=values.shape)
    return prepare(kh.read(values.reshape(-1, *shape).astype(np.float32)), None, 0), sites


def test_periodic_embedding_is_what_the_formula_says():
    """Against the formula, number by number."""
    torch.manual_seed(0)
    waves, x = PeriodicEmbedding(3, 4), torch.randn(5, 3)
    found = waves(x).detach().numpy().reshape(5, 3, 5)
    frequencies, weights = (part.detach().numpy() for part in (waves.frequencies, waves.weights))
    for sample in range(5):
        for i in range(3):
            angles = float(x[sample, i]) * frequencies[i]
            sums = np.concatenate([np.sin(angles), np.cos(angles)]) @ weights[i]
            np.testing.assert_allclose(found[sample, i], [float(x[sample, i]), *np.maximum(sums, 0)], atol=1e-5)


def test_a_network_with_periodic_embedding_starts_at_zero():
    """And one without has the weights that files have held so far, and no others."""
    assert not DenseNet(3, 7, width=8, n_frequencies=4)(torch.randn(5, 3)).any()
    assert not [name for name in DenseNet(3, 7, width=8).state_dict() if "embedding" in name]


@pytest.mark.parametrize("inner", ["dense", "dense_conv"])
def test_it_comes_back_from_its_state(inner):
    """A network of waves rebuilds the same after it was kept."""
    data, sites = waving(n=60, shape=(8, 8))
    quick: Any = {"train": {"steps": 5, "batch_size": 16}, "width": 16, "n_frequencies": 4}
    made = Residual(inner, **quick).fit(data.train, sites, validation=data.validation, run=Run())
    settings, arrays = made.state()
    back = Residual.restore(settings, arrays, data.train.sites, sites)
    readings = data.test.readings(sites)
    assert back.n_frequencies == 4
    np.testing.assert_array_equal(back.reconstruct(readings), made.reconstruct(readings))


@pytest.mark.parametrize(("made", "pays"), [(waving, True), (bending, False)])
def test_they_are_taken_where_they_pay(made, pays):
    """Where what is told goes up and down with a reading, and not where it is smooth."""
    data, sites = made()
    parts: Any = {"train": data.train, "sites": sites, "validation": data.validation}
    linear = Ridge().fit(**parts, run=Run())
    assert bool(choose_n_frequencies(linear, *parts.values(), Run())) is pays


def test_auto_takes_them_and_says_so():
    """The record of candidates names a network with periodic embedding."""
    data, sites = waving()
    best = fit_best(data.train, sites, validation=data.validation, run=Run())
    assert any("periodic embedding" in row["by"] for row in best.tried)


def test_a_linear_part_that_stands_is_not_fitted_again(monkeypatch):
    """The network is put upon it as it is."""
    data, sites = waving(n=60)
    parts: Any = {"train": data.train, "sites": sites, "validation": data.validation, "run": Run()}
    linear = Ridge().fit(**parts)
    monkeypatch.setattr(Ridge, "fit", None)
    made = Residual("dense", train={"steps": 2, "batch_size": 16}).upon(linear).fit(**parts)
    assert made.linear is linear


def test_networks_are_compared_by_equal_steps_and_not_in_a_hurry(monkeypatch):
    """Whatever else holds up one of both; with no time for it, there are no waves."""
    data, sites = waving(n=60)
    parts: Any = {"train": data.train, "sites": sites, "validation": data.validation}
    linear, raced = Ridge().fit(**parts, run=Run()), []

    def fit(self: Residual, *samples: Any, **told: Any) -> Residual:
        raced.append((self.network.options.train.steps, told["run"].deadline))
        return real(self, *samples, **told)

    real = Residual.fit
    monkeypatch.setattr(Residual, "fit", fit)
    choose_n_frequencies(linear, *parts.values(), Run(deadline=time.monotonic() + 3600))
    assert raced == [(200, None), (200, None)]
    assert choose_n_frequencies(linear, *parts.values(), Run(deadline=time.monotonic())) == 0
    assert len(raced) == 2
