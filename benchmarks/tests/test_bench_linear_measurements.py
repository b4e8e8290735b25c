"""K free linear measurements: principal components at first, better than them and than K sites in the end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.models.principal_components import principal_components
from keyhole.models.settings import DenseSettings
from keyhole_benchmarks import protocols, table1
from keyhole_benchmarks.drawing import table1_chart
from keyhole_benchmarks.linear_measurements import fit_linear_measurements
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.records import Store
from keyhole_benchmarks.runner import run_jobs
from keyhole_benchmarks.sections import table1 as section

TRAIN = {"steps": 200, "batch_size": 32, "ema_decay": 0.9}
SETTINGS = DenseSettings(width=32, blocks=1, dropout=0.0, train=TRAIN)


def curved(n=300):
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(n, 2))
    values = np.concatenate([causes, causes**2], axis=1) @ rng.normal(size=(4, 20))
    return prepare(kh.read(values + 0.05 * rng.normal(size=(n, 20))), None, seed=0)


def test_it_starts_as_the_principal_components():
    """The first validation error is that of the K leading ones: the best linear measurements, decoded linearly."""
    data = curved()
    _, history = fit_linear_measurements(data.train, data.validation, 3, SETTINGS, Run())
    components = principal_components(data.train, 3)
    basis, left = components.basis[0], data.validation.targets[:, 0] - components.mean[0]
    expected = np.square(left - left @ basis @ basis.T).mean()
    assert history[0]["validation"] == pytest.approx(expected, rel=1e-4)


def test_measurements_are_trained_with_a_decoder_that_bends():
    """Two causes: two measurements, decoded by a network, tell more than two principal components do."""
    data = curved()
    model, history = fit_linear_measurements(data.train, data.validation, 2, SETTINGS, Run())
    errors = [row["validation"] for row in history]
    assert min(errors) < 0.7 * errors[0]
    left = data.validation.targets - model.reconstruct(data.validation)
    assert np.square(left).mean() == pytest.approx(min(errors), rel=1e-4)


def test_more_measurements_than_the_rank_of_the_data():
    """There are no more than components; reconstruction is exact at once."""
    rng = np.random.default_rng(0)
    data = prepare(kh.read(rng.normal(size=(60, 2)) @ rng.normal(size=(2, 9))), None, seed=0)
    model, history = fit_linear_measurements(data.train, data.validation, 5, SETTINGS, Run())
    assert model.encoder.out_features == 2
    assert history[0]["validation"] < 1e-6


def test_it_is_a_line_of_table_1_and_a_line_in_its_chart(monkeypatch, tmp_path):
    """One record for each K and seed; a row without sites, beside those of methods, and a dashed line."""
    small = replace(protocols.PROTOCOLS["small"][""], name="tiny", samples=120, steps=2, precision="32-true")
    monkeypatch.setitem(protocols.PROTOCOLS, "tiny", {"": small})
    store = Store(tmp_path, "table1")
    jobs = list(table1.jobs("tiny", ["digits"], ["qr", table1.REFERENCE], [5], [0]))
    run_jobs(jobs, store, device="cpu", say=str)
    lines = {(one["method"], one["reconstructor"]): one for one in store.lines()}
    reference, refit = lines[table1.REFERENCE, "residual"], lines["qr", "residual"]
    assert len(lines) == 3
    assert reference["settings"]["reconstructor"] == refit["settings"]["reconstructor"]
    assert reference["metrics"]["fvu"] < refit["metrics"]["fvu"]
    assert reference["notes"]["best_validation"] <= reference["notes"]["components_validation"]
    page = list(section(Lines(store.lines())))
    assert any(row.startswith("| K linear measurements (reference) |") for row in page)
    assert run_jobs(jobs, store, device="cpu", say=str) == 0
    figure = table1_chart(store.lines())
    words = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert "K linear measurements" in words
