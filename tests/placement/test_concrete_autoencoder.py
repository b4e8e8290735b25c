"""The concrete autoencoder: sampling, convergence, the sites it finds, and its duplicates."""

from __future__ import annotations

import itertools
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import keyhole as kh
from keyhole.core.errors import SettingsError
from keyhole.core.interrupts import Interrupted
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.placement import SELECTORS
from keyhole.placement.baselines.concrete_autoencoder import Autoencoder, ConcreteAutoencoder, ConcreteRows, collapsed
from keyhole.placement.settings import CAESettings
from keyhole.training.loop import train
from keyhole.training.settings import TrainSettings
from keyhole.workflow.selection import choose_sites

QUICK = {
    "width": 16,
    "train": {"steps": 40, "batch_size": 16, "learning_rate": 1e-3, "weight_decay": 0.0, "ema_decay": 0.0},
}


def rows_of(logits, temperature=1.0):
    logits = torch.as_tensor(logits, dtype=torch.float32)
    rows = ConcreteRows(*logits.shape, temperature=temperature)
    with torch.no_grad():
        rows.logits.copy_(logits)
    return rows


def settled(sites, among, sure=20.0):
    """Logits of rows that are sure of their sites."""
    logits = torch.zeros(len(sites), among)
    logits[range(len(sites)), sites] = sure
    return logits


def prepared(shape=(4, 5), n=60, channels=1, seed=0):
    """Samples of five modes, with the first column on land and two sites that must not be chosen."""
    rng = np.random.default_rng(seed)
    size = channels * int(np.prod(shape))
    values = rng.normal(size=(n, 5)) @ rng.normal(size=(5, size)) + 0.1 * rng.normal(size=(n, size))
    values = values.reshape(n, channels, *shape)
    values[..., 0] = np.nan
    signals = kh.read(values, channels=1)
    observable = signals.observable.copy()
    observable[-2:] = False
    return prepare(replace(signals, observable=observable), None, seed=0)


def learned(parts, k=4, run=None, **settings):
    return ConcreteAutoencoder(**QUICK | settings).learn(parts.development, k, run or Run())[0]


@given(
    rows=st.integers(1, 6), sites=st.integers(1, 30), temperature=st.floats(0.01, 10), seed=st.integers(0, 2**31)
)  # fmt: skip
def test_a_sample_is_a_point_of_the_simplex(rows, sites, temperature, seed):
    """Rows are not negative and sum to one, at any temperature."""
    generator = torch.Generator().manual_seed(seed)
    sample = ConcreteRows(rows, sites, temperature=temperature).sample(generator)
    assert sample.shape == (rows, sites)
    assert (sample >= 0).all()
    torch.testing.assert_close(sample.sum(dim=1), torch.ones(rows))


@given(seed=st.integers(0, 2**31))
def test_a_cold_sample_is_the_largest_of_logits_plus_noise(seed):
    """Near temperature zero a row is one-hot where log a + Gumbel is largest, with the noise of the generator given."""
    logits = torch.randn(4, 9, generator=torch.Generator().manual_seed(seed + 1))
    noise = -torch.empty(4, 9).exponential_(generator=torch.Generator().manual_seed(seed)).log()
    cold = rows_of(logits, temperature=1e-6).sample(torch.Generator().manual_seed(seed))
    expected = torch.nn.functional.one_hot((logits + noise).argmax(dim=1), 9).float()
    torch.testing.assert_close(cold, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.01])
def test_a_site_is_hot_as_often_as_its_probability_says(temperature):
    """Monte Carlo over many equal rows: the argmax of a sample follows softmax(log a), whatever the temperature."""
    logits, draws = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.3]), 40_000
    sample = rows_of(logits.expand(draws, 5), temperature).sample(torch.Generator().manual_seed(0))
    found = torch.bincount(sample.argmax(dim=1), minlength=5) / draws
    expected = torch.softmax(logits, dim=0)
    assert (torch.abs(found - expected) < 4 * torch.sqrt(expected * (1 - expected) / draws)).all()


def test_the_temperature_falls_geometrically_to_its_end():
    """From the first to the last, by the same factor each step."""
    task = Autoencoder(ConcreteRows(2, 18), torch.nn.Identity(), prepared().train, CAESettings())
    seen = []
    for progress in (0, 0.5, 1):
        task.begin(progress)
        seen.append(task.rows.temperature)
    np.testing.assert_allclose(seen, [10, np.sqrt(10 * 0.01), 0.01])


def test_training_ends_when_the_rows_are_settled_and_cold():
    """Sure rows stop it at the first look below temperature one; rows in doubt use all steps."""
    steps = {}
    for sure in (40.0, 3.0):
        parts = prepared()
        task = learned(parts)
        with torch.no_grad():
            task.rows.logits.copy_(settled([0, 3, 5, 7], 14, sure))
        chosen = TrainSettings(steps=100, batch_size=16, validation_steps=50, ema_decay=0.0)
        history = train(task, chosen, name="t", identity="", run=Run())
        steps[sure] = history[-1]["step"]
    assert 30 <= steps[40.0] <= 40  # 10 (0.001)^p passes 1 at a third
    assert steps[3.0] == 100


def test_duplicates_are_counted_and_filled_up():
    """Two rows on one site: three distinct sites of four, the fourth is the most variable one left."""
    parts = prepared()
    task, whole = learned(parts), parts.development
    logits = settled([6, 2, 6, 9], 14)
    logits[1, 2], logits[3, 9] = 30, 10  # row 1 is the surest, row 3 the least
    with torch.no_grad():
        task.rows.logits.copy_(logits)
    selection = collapsed(task, whole)
    candidates = np.flatnonzero(whole.observable)
    left = np.setdiff1d(candidates, candidates[[2, 6, 9]])
    spread = whole.values.reshape(len(whole), -1)[:, left].var(axis=0)
    assert selection.sites.tolist() == [*candidates[[2, 6, 9]], left[spread.argmax()]]
    assert (selection.notes["distinct"], selection.notes["duplicates"]) == (3, 1)
    assert selection.notes["mean_max_probability"] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("decoder", ["dense", "dcgan"])
def test_reconstruct_is_the_decoder_on_the_raw_rows(decoder, channels):
    """Duplicates and all, in the rows' order, without dropout."""
    parts = prepared(channels=channels)
    task = learned(parts, decoder=decoder)
    picked = [6, 2, 6, 9]
    with torch.no_grad():
        task.rows.logits.copy_(settled(picked, 14))
    reconstructed = collapsed(task, parts.development).reconstruct(parts.validation)
    cells = np.flatnonzero(parts.samples.observable)[picked]
    values = parts.validation.values.reshape(len(parts.validation), channels, -1)
    readings = np.stack([values[:, c, cell] for cell in cells for c in range(channels)], axis=1)
    with torch.no_grad():
        expected = task.decoder(torch.from_numpy(readings)).numpy()
    assert reconstructed.shape == parts.validation.values.shape
    assert reconstructed.dtype == np.float32
    np.testing.assert_array_equal(reconstructed.reshape(len(expected), -1), expected)


@pytest.mark.parametrize("distinct", [False, True])
def test_converged_rows_are_trained_on_what_reconstruct_gives(distinct):
    """The loss of sure and cold rows is the error of rebuild, and with ``distinct`` what they want twice is added."""
    parts = prepared(channels=2)
    task, whole = learned(parts, distinct=distinct, overlap_weight=3.0), parts.development
    with torch.no_grad():
        task.rows.logits.copy_(settled([6, 2, 8, 9], 14, sure=60.0))
        task.begin(1)
        loss, _ = task(torch.arange(len(whole)), torch.Generator().manual_seed(0))
        task.rows.logits.copy_(settled([6, 2, 6, 6], 14, sure=60.0))
        doubled, _ = task(torch.arange(len(whole)), torch.Generator().manual_seed(0))
        task.rows.logits.copy_(settled([6, 2, 8, 9], 14, sure=60.0))
    left = collapsed(task, whole).reconstruct(whole) - whole.values
    assert loss["reconstruction"].item() == pytest.approx(np.square(left).mean(), rel=1e-4)
    assert doubled.get("overlap", torch.zeros(())).item() == pytest.approx(3 * 2 / 4 if distinct else 0)


def test_the_overlap_is_what_a_loop_finds():
    """What the rows want of each site beyond one row's worth, as a share of the rows."""
    rows = ConcreteRows(6, 4)
    with torch.no_grad():
        rows.logits.mul_(8)
    total = 0.0
    for site in range(4):
        wanted = sum(float(torch.softmax(row, dim=0)[site]) for row in rows.logits.detach())
        total += max(0.0, wanted - 1)
    assert total > 0.1
    assert rows.overlap().item() == pytest.approx(total / 6, rel=1e-5)
    assert rows_of(settled([0, 1, 2], 4)).overlap().item() == pytest.approx(0, abs=1e-6)
    assert rows_of(settled([1, 1, 1], 4)).overlap().item() == pytest.approx(2 / 3)


def test_the_overlap_drives_rows_apart():
    """Its gradient takes two rows off the site they share."""
    rows = rows_of(settled([1, 1], 4, sure=2.0) + 0.1 * torch.arange(8).reshape(2, 4))
    optimiser = torch.optim.Adam(rows.parameters(), lr=0.1)
    for _ in range(100):
        optimiser.zero_grad()
        rows.overlap().backward()
        optimiser.step()
    assert rows.overlap().item() == pytest.approx(0, abs=1e-3)


@given(seed=st.integers(0, 2**31))
def test_the_assignment_is_the_likeliest_of_all(seed):
    """Among all ways to give three rows distinct sites, by trying them."""
    logits = 2 * torch.randn(3, 5, generator=torch.Generator().manual_seed(seed))
    log_p = torch.log_softmax(logits.double(), dim=1).numpy()
    best = max(itertools.permutations(range(5), 3), key=lambda sites: log_p[[0, 1, 2], sites].sum())
    assert rows_of(logits).assignment().tolist() == list(best)


def test_the_distinct_one_gives_each_row_a_site_of_its_own():
    """Two rows that want one site: one keeps it, the other gets its second choice, and rebuild sees that."""
    parts = prepared()
    task = learned(parts, distinct=True)
    logits = settled([6, 2, 6, 9], 14)
    logits[2, 11] = 15
    with torch.no_grad():
        task.rows.logits.copy_(logits)
    selection = collapsed(task, parts.development)
    cells = np.flatnonzero(parts.samples.observable)[[6, 2, 11, 9]]
    assert set(selection.sites.tolist()) == set(cells.tolist())
    assert selection.notes["duplicates"] == 0
    assert selection.notes["reassigned"] == 1
    with torch.no_grad():
        expected = task.decoder(torch.from_numpy(parts.validation.readings(cells)[:, :, 0].copy())).numpy()
    np.testing.assert_array_equal(selection.reconstruct(parts.validation).reshape(len(expected), -1), expected)


@pytest.mark.parametrize("name", ["cae", "cae_distinct"])
def test_it_finds_the_sites_that_matter(name):
    """Three sites drive all others: the rows settle on just these, and the decoder rebuilds from them."""
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(400, 3))
    values = 0.1 * rng.normal(size=(400, 12))
    drivers, driven = [2, 5, 11], [0, 1, 3, 4, 6, 7, 8, 9, 10]
    values[:, drivers] += causes
    values[:, driven] += causes[:, [0, 0, 0, 0, 1, 1, 1, 2, 2]] + 0.7 * rng.normal(size=(400, 9))
    parts = prepare(kh.read(values), None, seed=0)
    chosen = {"steps": 800, "batch_size": 128, "learning_rate": 1e-3, "weight_decay": 0.0, "ema_decay": 0.0}
    selection = choose_sites(SELECTORS.make(name, {"width": 32, "train": chosen}), parts, 3, Run())
    assert set(selection.sites.tolist()) == set(drivers)
    assert selection.notes["duplicates"] == 0
    left = np.square(selection.reconstruct(parts.validation) - parts.validation.values).mean()
    assert left < 0.5 * np.square(parts.validation.values).mean()


@pytest.mark.parametrize("name", ["cae", "cae_distinct"])
def test_interrupted_and_resumed_is_as_left_alone(tmp_path, name):
    """Stopped by Ctrl-C in the middle and resumed: the same sites, history and decoder, bit for bit."""
    parts, run = prepared(), Run(seed=3, folder=tmp_path)

    def stop(event):
        if event.step == 23:
            os.kill(os.getpid(), signal.SIGINT)

    expected = choose_sites(SELECTORS.make(name, QUICK), parts, 4, Run(seed=3))
    with pytest.raises(Interrupted, match="step 23 of 40"):
        choose_sites(SELECTORS.make(name, QUICK), parts, 4, replace(run, callback=stop))
    for _ in ("goes on", "was finished"):
        found = choose_sites(SELECTORS.make(name, QUICK), parts, 4, replace(run, resume=True))
        assert found.sites.tolist() == expected.sites.tolist()
        assert found.history == expected.history
        assert found.notes == expected.notes
        np.testing.assert_array_equal(found.reconstruct(parts.validation), expected.reconstruct(parts.validation))


def test_convolutions_refuse_a_table():
    """A grid of one axis: a reason to skip, and an error that says what to do."""
    parts = prepare(kh.read(np.random.default_rng(0).normal(size=(30, 6))), None, seed=0)
    selector = SELECTORS.make("cae", QUICK | {"decoder": "dcgan"})
    assert "two axes" in selector.incompatibility(parts.samples)
    assert SELECTORS.make("cae", QUICK).incompatibility(parts.samples) is None
    with pytest.raises(SettingsError, match=r"dcgan.*two axes.*use dense"):
        choose_sites(selector, parts, 2, Run())


def test_the_distinct_one_cannot_be_told_otherwise():
    """The name says it."""
    assert SELECTORS.make("cae_distinct", QUICK).settings()["distinct"] is True
    with pytest.raises(SettingsError, match="take method 'cae'"):
        SELECTORS.make("cae_distinct", {"distinct": False})
