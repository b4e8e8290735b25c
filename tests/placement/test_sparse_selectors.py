"""Laplacian score, lassos and sparse auto-encoders against formulas, optimality conditions and planted sites."""

from __future__ import annotations

import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import keyhole as kh
from keyhole.core.interrupts import Interrupted
from keyhole.core.run import Event, Run
from keyhole.placement.baselines.aefs import AEFS, SparseRows
from keyhole.placement.baselines.exclusive_lasso import ExclusiveLasso
from keyhole.placement.baselines.laplacian_score import Laplacian, laplacian_scores, neighbour_graph
from keyhole.placement.baselines.lasso import GroupLasso, Lasso, blocks
from keyhole.placement.baselines.linear_autoencoder import Encoder, LinearAutoencoder
from keyhole.placement.baselines.mcfs import MCFS
from keyhole.placement.baselines.reweighted_rows import reweighted_ridge
from keyhole.placement.baselines.row_penalties import GroupNorms
from keyhole.placement.baselines.self_regression import regress_on_sites
from keyhole.placement.baselines.self_representation import SelfRepresentation
from keyhole.placement.baselines.sparse_group_lasso import SparseGroupLasso
from keyhole.placement.baselines.sparse_regression import SolutionPath, SparseRegression

SHORT = {"steps": 300, "batch_size": 64, "ema_decay": 0.0}
SPARSE = {
    "lasso": Lasso(),
    "group_lasso": GroupLasso(block_size=1),
    "sparse_group_lasso": SparseGroupLasso(block_size=1),
    "exclusive_lasso": ExclusiveLasso(),
    "self_representation": SelfRepresentation(),
    "mcfs": MCFS(),
    "linear_autoencoder": LinearAutoencoder(),
    "aefs": AEFS(n_hidden=16, train=SHORT),
}
seeds = st.integers(0, 2**16)


def field(n=60, shape=(4, 5), channels=1, seed=0, rank=6):
    rng = np.random.default_rng(seed)
    size = channels * int(np.prod(shape))
    values = rng.normal(size=(n, rank)) * np.linspace(3, 0.5, rank) @ rng.normal(size=(rank, size))
    values += 0.3 * rng.normal(size=(n, size))
    return kh.read((values - values.mean(axis=0)).reshape(n, channels, *shape), channels=1).as_scaled()


def planted(channels=1, seed=0):
    """Three sites (2, 5, 11) drive all others, which add noise of their own; with channels, the last one tells."""
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(400, 3))
    values = 0.1 * rng.normal(size=(400, channels, 12))
    values[:, -1, [2, 5, 11]] += 1.2 * causes
    for cause, sites in enumerate(([0, 1, 3, 4], [6, 7, 8], [9, 10])):
        values[:, -1, sites] += 0.6 * causes[:, cause, None] + 0.6 * rng.normal(size=(400, len(sites)))
    return kh.read(values - values.mean(axis=0), channels=1).as_scaled()


def choose(selector, signals, k, **circumstances):
    return selector.select(signals, k, validation=None, run=Run(**circumstances))


def naive_laplacian(signals, neighbours):
    """Scores by the paper's formulas, with dense matrices and loops."""
    packed = signals.targets.astype(float)
    flat = packed.reshape(len(packed), -1)
    distances = np.array([[np.sum((a - b) ** 2) for b in flat] for a in flat])
    nearest = [sorted((d, j) for j, d in enumerate(row) if j != i)[:neighbours] for i, row in enumerate(distances)]
    heat = np.mean([d for row in nearest for d, _ in row])
    weights = np.zeros_like(distances)
    for i, row in enumerate(nearest):
        for d, j in row:
            weights[i, j] = weights[j, i] = np.exp(-d / heat)
    degrees = np.diag(weights.sum(axis=1))
    ones = np.ones(len(flat))
    scores = []
    for site in range(packed.shape[2]):
        over = under = 0.0
        for f in packed[:, :, site].T:
            f = f - (f @ degrees @ ones) / (ones @ degrees @ ones)
            over, under = over + f @ (degrees - weights) @ f, under + f @ degrees @ f
        scores.append(over / under)
    return np.array(scores)


@given(seeds, st.integers(1, 8), st.integers(1, 2))
def test_laplacian_ranks_by_the_formula(seed, neighbours, channels):
    """The scores are the naive ones, whatever the neighbours and channels, and sites come in their order."""
    signals = field(n=30, channels=channels, seed=seed)
    expected = naive_laplacian(signals, neighbours)
    graph = neighbour_graph(signals.targets.reshape(30, -1), neighbours)
    np.testing.assert_allclose(laplacian_scores(signals.readings(np.arange(20)), graph), expected, rtol=1e-6)
    ranked = choose(Laplacian(n_neighbors=neighbours), signals, 20).sites
    assert (np.diff(expected[ranked]) > -1e-9).all()


def test_laplacian_survives_samples_that_are_all_the_same_but_one():
    """Neighbours at no distance are joined with full weight."""
    values = np.zeros((8, 5))
    values[0] = np.arange(5)
    assert set(choose(Laplacian(), kh.read(values).as_scaled(), 5).sites.tolist()) == set(range(5))


def test_laplacian_draws_its_samples_by_the_seed():
    """With more samples than the graph may hold, the seed decides which."""
    runs = [choose(Laplacian(max_samples=12), field(), 20, seed=seed).sites.tolist() for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def random_problem(seed, singles):
    rng = np.random.default_rng(seed)
    columns, equations, targets = rng.integers(4, 30), rng.integers(3, 12), rng.integers(1, 8)
    labels = np.arange(columns) if singles else np.unique(rng.integers(0, 6, columns), return_inverse=True)[1]
    weights = np.ones(columns) if singles else np.sqrt(np.bincount(labels))
    design, targets = rng.normal(size=(equations, columns)), rng.normal(size=(equations, targets))
    return SparseRegression(design, targets, GroupNorms(labels, weights))


def assert_optimal(problem, rows, alpha):
    labels, weights = problem.penalty.labels, problem.penalty.weights
    gradient = problem.design.T @ (problem.targets - problem.design @ rows)
    pressure = np.array([np.linalg.norm(gradient[labels == g]) for g in range(len(weights))])
    norms = np.array([np.linalg.norm(rows[labels == g]) for g in range(len(weights))])
    bound = alpha * weights
    assert (pressure <= 1.02 * bound).all()
    np.testing.assert_allclose(pressure[norms > 1e-2], bound[norms > 1e-2], rtol=2e-2)


@given(seeds, st.booleans(), st.floats(0.1, 0.95))
def test_the_path_ends_where_the_optimality_conditions_hold(seed, singles, share):
    """Groups that are zero press less than alpha times their weight, all others just as much."""
    problem = random_problem(seed, singles)
    path = SolutionPath(problem)
    for alpha in (0.97 * path.highest, share * path.highest):
        path.go(alpha)
        assert_optimal(problem, path.rows, alpha)
        assert problem.gap(path.rows, alpha) < 1e-3


def test_nothing_enters_above_the_highest_weight():
    """At the largest pressure of all groups every row is zero, just below it one group is not."""
    problem = random_problem(3, singles=False)
    path = SolutionPath(problem)
    path.go(1.001 * path.highest)
    assert not path.rows.any()
    path.go(0.99 * path.highest)
    assert np.count_nonzero(problem.penalty.norms(path.rows)) == 1


def test_lasso_in_components_is_the_lasso_on_the_samples():
    """Row norms equal those of MultiTaskLasso on all samples, sites and targets, without compression."""
    from sklearn.linear_model import MultiTaskLasso

    signals = field(n=80)
    x = signals.targets[:, 0].astype(float)
    selection = choose(Lasso(), signals, 6)
    regression = regress_on_sites(signals, 200)
    highest = np.linalg.norm(x.T @ x / len(x), axis=1).max()
    alpha = selection.notes["alpha"] * highest
    raw = MultiTaskLasso(alpha=alpha, fit_intercept=False, tol=1e-8, max_iter=10_000).fit(x, x)
    expected = np.linalg.norm(raw.coef_, axis=0)
    penalty = GroupNorms(np.arange(20), np.ones(20))
    path = SolutionPath(SparseRegression(regression.design, regression.targets, penalty))
    path.go(alpha)
    np.testing.assert_allclose(np.linalg.norm(path.rows, axis=1), expected, atol=2e-3 * expected.max())
    assert selection.sites.tolist() == np.argsort(-expected, kind="stable")[:6].tolist()


@pytest.mark.parametrize("channels", [1, 2])
def test_lasso_stops_where_k_sites_are_active(channels):
    """The weight is bisected to K, and the penalty is that of whole sites: their duality gap is closed."""
    signals = field(n=200, shape=(8, 8), channels=channels)
    notes = [choose(Lasso(), signals, k).notes for k in range(2, 12)]
    assert [note["active"] for note in notes] == list(range(2, 12))
    assert max(note["gap"] for note in notes) < 1e-5


def test_lasso_says_how_far_from_the_minimum_it_was_left():
    """A descent that is cut short still gives K sites, and its gap is noted instead of a warning."""
    found = choose(Lasso(), field(), 8)
    cut = choose(Lasso(max_steps=1), field(), 8)
    assert len(set(cut.sites.tolist())) == 8
    assert found.notes["gap"] < 1e-4 < cut.notes["gap"]


@pytest.mark.parametrize("shape", [(4, 5), (12,)])
def test_group_lasso_of_single_sites_is_the_lasso(shape):
    """Blocks of one cell: the same sites in the same order."""
    signals = field(shape=shape)
    for k in (1, 3, 7):
        assert choose(GroupLasso(block_size=1), signals, k).sites.tolist() == choose(Lasso(), signals, k).sites.tolist()


def test_blocks_are_squares_of_the_grid():
    """Blocks at the edge are cut, blocks without a site get no number; on a line they are runs."""
    expected = [[0, 0, 1, 1, 2], [0, 0, 1, 1, 2], [3, 3, 4, 4, 5]]
    assert blocks((3, 5), np.arange(15), 2).reshape(3, 5).tolist() == expected
    assert blocks((3, 5), np.array([0, 4, 10]), 2).tolist() == [0, 1, 2]
    assert blocks((7,), np.arange(7), 3).tolist() == [0, 0, 0, 1, 1, 1, 2]


def test_group_lasso_takes_whole_blocks():
    """Sites come block by block: all of the first before any of the second."""
    sites = choose(GroupLasso(block_size=2), field(shape=(6, 6)), 24).sites
    runs = blocks((6, 6), sites, 2).reshape(6, 4)
    assert (runs == runs[:, :1]).all()


def test_group_lasso_weighs_blocks_by_their_size():
    """A pair must press more than a single site by the root of two, not merely more."""
    values = np.random.default_rng(0).normal(size=(2000, 3)) * [1.0, 1.0, 1.1]
    assert choose(GroupLasso(block_size=2), kh.read(values).as_scaled(), 1).sites.tolist() == [2]
    data = kh.read(values * [1.3, 1.3, 1.0]).as_scaled()
    assert set(choose(GroupLasso(block_size=2), data, 2).sites.tolist()) == {0, 1}


def test_group_lasso_finds_the_block_that_matters():
    """Four neighbours that together drive all the rest are the first block."""
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(300, 4))
    values = 0.5 * rng.normal(size=(300, 6, 6)) + (causes @ rng.normal(size=(4, 36)) / 4).reshape(300, 6, 6)
    values[:, 2:4, 4:6] = causes.reshape(300, 2, 2)
    sites = choose(GroupLasso(), kh.read(values).as_scaled(), 4).sites
    assert set(sites.tolist()) == {16, 17, 22, 23}


@given(seeds)
def test_woodbury_is_the_direct_inverse(seed):
    """The encoder's ridge equals the solution with a matrix of columns by columns."""
    rng = np.random.default_rng(seed)
    design, targets = rng.normal(size=(5, 9)), rng.normal(size=(5, 3))
    scales = rng.uniform(0.01, 3, 9)
    direct = np.linalg.inv(design.T @ design + np.diag(1 / scales)) @ design.T @ targets
    np.testing.assert_allclose(reweighted_ridge(design, targets, scales), direct, atol=1e-9)


@given(seeds, st.floats(1e-3, 0.9), st.integers(1, 2))
def test_the_linear_autoencoder_goes_downhill(seed, penalty, channels):
    """The objective never rises, faster steps and dropped rows included, and the decoder stays orthonormal."""
    encoder = Encoder(regress_on_sites(field(n=40, channels=channels, seed=seed), 30), 4, penalty)
    encoder.fit()
    falls = -np.diff(encoder.history)
    assert (falls >= -1e-6 * encoder.history[0]).all()
    assert encoder.history[-1] < encoder.history[0]
    np.testing.assert_allclose(encoder.decoder @ encoder.decoder.T, np.eye(4), atol=1e-9)


@pytest.mark.parametrize("channels", [1, 2])
def test_the_encoder_solves_the_lasso_of_its_decoder(channels):
    """For the decoder it ends with, the rows are those that proximal gradient finds."""
    regression = regress_on_sites(field(n=80, channels=channels), 60)
    encoder = Encoder(regression, 5, 0.3)
    norms = encoder.fit()
    labels = np.tile(np.arange(20), channels)
    penalty = GroupNorms(labels, np.ones(20))
    problem = SparseRegression(regression.design, regression.targets @ encoder.decoder.T, penalty)
    path = SolutionPath(problem)
    path.go(encoder.weight / 2)
    rows = path.rows
    np.testing.assert_allclose(norms, problem.penalty.norms(rows), atol=0.03 * norms.max())


def test_more_penalty_leaves_fewer_rows():
    """What the bisection rests on."""
    regression = regress_on_sites(field(n=80), 60)
    rows = [np.count_nonzero(Encoder(regression, 5, penalty).fit() > 1e-2) for penalty in (0.01, 0.3, 0.8)]
    assert rows == sorted(rows, reverse=True)
    assert rows[0] > rows[-1]


def test_the_penalty_is_a_share_of_the_least_that_leaves_no_row():
    """Rows vanish just above it and not just below."""
    regression = regress_on_sites(field(n=80), 60)
    longest = {penalty: Encoder(regression, 5, penalty).fit().max() for penalty in (0.5, 0.9, 1.1)}
    assert longest[1.1] < 1e-6 < 0.1 * longest[0.5] < longest[0.9]


@pytest.mark.parametrize("k", [2, 5, 9])
def test_k_rows_of_the_linear_autoencoder_carry_the_weight(k):
    """The bisection ends where the participation number is K, or just above."""
    assert k <= choose(LinearAutoencoder(), field(n=200), k).notes["participation"] < k + 0.1


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("name", SPARSE)
def test_the_sites_that_drive_all_others_are_found(name, channels):
    """Three planted sites, also where only one of two channels tells anything."""
    assert set(choose(SPARSE[name], planted(channels), 3).sites.tolist()) == {2, 5, 11}


@pytest.mark.parametrize("name", [*SPARSE, "laplacian", "blocks"])
def test_a_constant_site_comes_last(name):
    """A site that never changes is not preferred to one that does, even where that says little."""
    values = field(shape=(8,)).values.copy()
    values[:, :, 3] = 0.7
    values[:, :, 6] *= 1e-3
    selector = {**SPARSE, "laplacian": Laplacian(), "blocks": GroupLasso(block_size=2)}[name]
    sites = choose(selector, kh.read(values, channels=1).as_scaled(), 8).sites.tolist()
    assert sites[-1] == 3
    assert sorted(sites) == list(range(8))


def test_aefs_keeps_k_rows_and_loses_them_bit_by_bit():
    """Rows fall from all to K, never below, and what is zero stays so."""
    selection = choose(SPARSE["aefs"], field(n=100, shape=(6, 6)), 5)
    rows = [row["rows"] for row in selection.history]
    assert rows[0] == 36
    assert rows[-1] == selection.notes["rows"] == 5
    assert rows == sorted(rows, reverse=True)
    assert len(set(rows)) > 4


def test_aefs_gives_constant_sites_no_row():
    """Neither at first nor later."""
    values = field(shape=(8,)).values.copy()
    values[:, :, 3] = 0.7
    task = SparseRows(kh.read(values, channels=1).as_scaled(), 3, hidden=4)
    task.shrink()
    assert task.alive.tolist() == (task.norms() > 0).tolist() == [site != 3 for site in range(8)]


def test_aefs_shrinks_as_the_optimiser_steps():
    """A row with twice the gradients loses half as much; where the penalty is small, none dies."""
    task = SparseRows(planted(), 3, hidden=4)
    task.squares += 1
    task.squares[1] = 4
    before = task.norms()
    task.begin(0.5)
    task.shrink()
    lost = before - task.norms()
    np.testing.assert_allclose(lost[0] / lost[1], 2, rtol=1e-3)
    assert task.alive.all()


@given(st.floats(0, 1), st.integers(1, 12))
def test_aefs_never_loses_more_rows_than_are_too_many(progress, k):
    """However large the weight of the penalty, as many rows are left as are allowed."""
    task = SparseRows(planted(), k, hidden=4)
    task.squares += 1
    task.weight.fill_(1e6)
    task.begin(progress)
    task.shrink()
    assert int((task.norms() > 0).sum()) == int(task.alive.sum()) == task.allowed >= k


def test_aefs_goes_on_where_it_was_stopped(tmp_path):
    """Interrupted while rows are being lost, then resumed: the sites and history of a run left alone."""

    def stop(event: Event) -> None:
        if event.step == 150:
            signal.raise_signal(signal.SIGINT)

    signals = planted()
    expected = choose(SPARSE["aefs"], signals, 3)
    run = Run(folder=tmp_path)
    with pytest.raises(Interrupted, match="learn aefs"):
        SPARSE["aefs"].select(signals, 3, validation=None, run=replace(run, callback=stop))
    found = SPARSE["aefs"].select(signals, 3, validation=None, run=replace(run, resume=True))
    assert found.sites.tolist() == expected.sites.tolist()
    assert found.history == expected.history


@pytest.mark.parametrize("name", SPARSE)
def test_a_time_limit_that_is_over_still_gives_k_sites(name):
    """What there is, completed, after one step at most."""
    events: list[Event] = []
    sites = choose(SPARSE[name], field(), 6, deadline=time.monotonic(), callback=events.append).sites
    assert len(set(sites.tolist())) == 6
    assert len(events) <= 1


@pytest.mark.parametrize("name", sorted(SPARSE.keys() - {"aefs"}))
def test_progress_is_reported_and_never_falls(name):
    """Each step of the search is an event of its stage."""
    events: list[Event] = []
    choose(SPARSE[name], field(), 6, callback=events.append)
    steps = [event.step for event in events]
    assert steps == sorted(steps)
    assert {event.stage for event in events} == {name}
    assert 0 <= steps[-1] <= events[-1].total
