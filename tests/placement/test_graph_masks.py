"""Selection with masks that are correlated along a graph."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.errors import SettingsError
from keyhole.placement import SELECTORS
from keyhole.workflow.selection import choose_sites
from quick_selectors import QUICK, selector


def ring(count: int) -> np.ndarray:
    """The adjacency matrix of a ring."""
    return np.roll(np.eye(count), 1, axis=1) + np.roll(np.eye(count), -1, axis=1)


@pytest.fixture
def samples(rng):
    """Smooth along a ring of twelve nodes, with noise."""
    smooth = np.linalg.solve(2.2 * np.eye(12) - ring(12), rng.normal(size=(12, 60))).T
    return kh.read(smooth + 0.1 * rng.normal(size=(60, 12)), graph=ring(12))


@pytest.mark.parametrize("budget", ["exact", "dual", "penalty"])
@pytest.mark.parametrize("collapse", ["marginal", "frequency", "best"])
def test_every_budget_with_every_collapse(samples, budget, collapse):
    chosen = selector("graph_vln", budget=budget, collapse=collapse, warm_start="none", diffusion_time=2.0, rank=4)
    sites = choose_sites(chosen, prepare(samples, None, seed=0), 4, Run()).sites
    assert len(set(sites.tolist())) == 4


def test_it_finds_the_sites_that_matter():
    """Three nodes of a path drive all others."""
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(400, 3))
    values = 0.2 * rng.normal(size=(400, 12))
    values[:, [2, 5, 11]] += causes
    for first, cause in ((0, 0), (3, 1), (8, 2)):
        values[:, first : first + 2] += 0.5 * causes[:, [cause]] + 0.6 * rng.normal(size=(400, 2))
    samples = kh.read(values, graph=ring(12))
    settings = {"warm_start": "none", "train": {"steps": 300, "batch_size": 128, "ema_decay": 0.0}}
    selection = choose_sites(SELECTORS.make("graph_vln", settings), prepare(samples, None, seed=0), 3, Run())
    assert set(selection.sites.tolist()) == {2, 5, 11}


def test_the_masks_are_correlated_along_the_graph_of_the_samples(samples):
    """Neighbours on the ring more than others, before there is anything to learn."""
    train = {**QUICK["train"], "steps": 1}
    selection = selector("graph_vln", train=train).select(samples.as_scaled(), 3, validation=None, run=Run())
    covariance = selection.distribution.covariance.abs()
    near, far = covariance.diagonal(1).mean(), covariance.diagonal(6).mean()
    assert near > 2 * far


def test_sites_with_positions_need_no_graph(rng):
    """Each is joined to its nearest ones."""
    values = rng.normal(size=(60, 5, 6)).cumsum(axis=2)
    plan = kh.select(values, 3, method="graph_vln", reconstructor="ridge", settings=QUICK)
    assert len(set(plan.indices.tolist())) == 3


def test_columns_without_a_graph_are_refused(rng):
    table = pd.DataFrame(rng.normal(size=(60, 6)), columns=list("abcdef"))
    with pytest.raises(SettingsError, match="neither a graph nor positions"):
        kh.select(table, 2, method="graph_vln", reconstructor="ridge")


def test_groups_of_nodes_are_nodes_of_a_smaller_graph(samples):
    """Pairs of neighbours on the ring are selected together."""
    grouped = samples.with_constraints({"groups": np.arange(12) // 2})
    plan = kh.select(grouped, 3, method="graph_vln", reconstructor="ridge", settings=QUICK)
    assert sorted(np.bincount(plan.indices // 2, minlength=6).tolist()) == [0, 0, 0, 2, 2, 2]


def test_a_plan_is_saved_and_loaded(samples, tmp_path):
    plan = kh.select(samples, 3, method="graph_vln", reconstructor="ridge", settings=QUICK | {"diffusion_time": 4.0})
    plan.save(tmp_path / "ring.keyhole")
    again = kh.load(tmp_path / "ring.keyhole")
    assert again.indices.tolist() == plan.indices.tolist()
    assert again.metadata["settings"]["diffusion_time"] == 4.0
    np.testing.assert_array_equal(
        again.domain.metric.distances(0, range(12)), plan.domain.metric.distances(0, range(12))
    )
