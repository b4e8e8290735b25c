"""Sparse-group and exclusive lasso against optimality conditions, independent solvers and planted blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

import keyhole as kh
from keyhole.core.run import Run
from keyhole.placement.baselines.exclusive_lasso import ExclusiveLasso, smallest_blocks
from keyhole.placement.baselines.lasso import GroupLasso, Lasso, blocks
from keyhole.placement.baselines.row_penalties import ExclusiveNorms, GroupNorms, SparseGroupNorms
from keyhole.placement.baselines.sparse_group_lasso import SparseGroupLasso
from keyhole.placement.baselines.sparse_regression import SolutionPath, SparseRegression

seeds = st.integers(0, 2**16)
GROUPS, CHANNELS = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3]), 2
SITES = np.tile(np.arange(len(GROUPS)), CHANNELS)
WEIGHTS = np.sqrt(np.bincount(GROUPS))


def sparse_group(share):
    return SparseGroupNorms(np.tile(GROUPS, CHANNELS), WEIGHTS, SITES, share)


def exclusive():
    return ExclusiveNorms(SITES, GROUPS)


def norms_by(labels, rows):
    return np.array([np.linalg.norm(rows[labels == label]) for label in range(labels.max() + 1)])


def problem_of(penalty, seed, targets=3):
    rng = np.random.default_rng(seed)
    return SparseRegression(rng.normal(size=(9, len(SITES))), rng.normal(size=(9, targets)), penalty)


def objective(problem, rows, alpha, rounding=0.0):
    """The definition, by loops: half the squared residual and the penalty, with rounded norms."""
    penalty, norms = problem.penalty, np.sqrt(np.square(norms_by(SITES, rows)) + rounding)
    if isinstance(penalty, ExclusiveNorms):
        value = sum(norms[group == GROUPS].sum() ** 2 for group in range(4)) / 2
    else:
        groups = sum(WEIGHTS[g] * np.sqrt(np.square(norms[g == GROUPS]).sum()) for g in range(4))
        value = (1 - penalty.share) * groups + penalty.share * norms.sum()
    return np.square(problem.targets - problem.design @ rows).sum() / 2 + alpha * value


@given(seeds, st.floats(0.0, 1.0), st.floats(0.05, 0.95))
def test_sparse_group_solutions_are_optimal(seed, share, level):
    """Gradients of active sites balance both norms; those of the others are within their bounds."""
    problem = problem_of(sparse_group(share), seed)
    path = SolutionPath(problem)
    alpha = level * path.highest
    path.go(alpha)
    gradient = problem.design.T @ (problem.targets - problem.design @ path.rows)
    labels = np.tile(GROUPS, CHANNELS)
    sizes, group_sizes = norms_by(SITES, path.rows), norms_by(labels, path.rows)
    shrunk = np.maximum(norms_by(SITES, gradient) - alpha * share, 0)
    for site, group in enumerate(GROUPS):
        bound = alpha * (1 - share) * WEIGHTS[group]
        if group_sizes[group] == 0:
            assert np.linalg.norm(shrunk[group == GROUPS]) <= bound + 0.02 * alpha
        elif sizes[site] == 0:
            assert shrunk[site] <= 0.02 * alpha
        elif sizes[site] > 1e-2:
            rows = path.rows[site == SITES]
            expected = rows * (alpha * share / sizes[site] + bound / group_sizes[group])
            np.testing.assert_allclose(gradient[site == SITES], expected, atol=0.03 * alpha)
    assert problem.gap(path.rows, alpha) < 1e-3


@given(seeds, st.floats(1e-3, 10.0))
def test_exclusive_solutions_are_optimal(seed, alpha):
    """The gradient of an active site is alpha times the sum of its group's norms; none is larger."""
    problem = problem_of(exclusive(), seed)
    path = SolutionPath(problem)
    path.go(alpha)
    gradient = problem.design.T @ (problem.targets - problem.design @ path.rows)
    sizes = norms_by(SITES, path.rows)
    for site, group in enumerate(GROUPS):
        bound = alpha * sizes[group == GROUPS].sum()
        assert np.linalg.norm(gradient[site == SITES]) <= bound + 0.02
        if sizes[site] > 1e-2:
            expected = bound * path.rows[site == SITES] / sizes[site]
            np.testing.assert_allclose(gradient[site == SITES], expected, atol=0.02)
    assert problem.gap(path.rows, alpha) < 1e-3


@pytest.mark.parametrize("alpha", [0.1, 1.0])
@pytest.mark.parametrize("penalty", [sparse_group(0.4), exclusive()], ids=["sparse_group", "exclusive"])
def test_no_general_optimiser_finds_less(penalty, alpha):
    """L-BFGS on the definition with slightly rounded norms ends at the same value and the same rows."""
    problem = problem_of(penalty, 0, targets=1)

    def rounded(flat):
        return objective(problem, flat.reshape(-1, 1), alpha, rounding=1e-10)

    start = np.random.default_rng(1).normal(size=len(SITES))
    found = minimize(rounded, start, method="L-BFGS-B", options={"maxiter": 5000, "maxfun": 10**6, "ftol": 1e-13})
    path = SolutionPath(problem)
    path.go(alpha)
    ours = objective(problem, path.rows, alpha)
    assert ours <= found.fun + 1e-4
    assert ours == pytest.approx(found.fun, abs=1e-3)
    np.testing.assert_allclose(norms_by(SITES, path.rows), norms_by(SITES, found.x.reshape(-1, 1)), atol=0.02)


@given(seeds, st.floats(0.0, 1.0))
def test_the_dual_norm_of_a_group_is_where_it_becomes_zero(seed, share):
    """It solves its equation, found by bisection, and the proximal operator leaves nothing just above it."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(len(SITES), 2)) * 10.0 ** rng.integers(-2, 2)
    penalty, sizes = sparse_group(share), norms_by(SITES, rows)
    labels = np.tile(GROUPS, CHANNELS)
    for group, found in enumerate(penalty.dual_norms(rows)):
        within, weight = sizes[group == GROUPS], WEIGHTS[group]

        def beyond(nu, within=within, weight=weight):
            return np.linalg.norm(np.maximum(within - nu * share, 0)) - nu * (1 - share) * weight

        if share < 0.99:  # at 1 both sides are zero beyond the root
            highest = np.linalg.norm(within) / ((1 - share) * weight) + 1e-9
            assert found == pytest.approx(brentq(beyond, 0, highest, xtol=1e-14), rel=1e-6)
        assert not penalty.shrink(rows, 1.0001 * found)[labels == group].any()
        assert penalty.shrink(rows, 0.999 * found)[labels == group].any()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_ends_of_the_sparse_group_penalty_are_group_lasso_and_lasso(share):
    """Value, proximal operator and dual norm."""
    rows = np.random.default_rng(0).normal(size=(len(SITES), 2))
    ours = sparse_group(share)
    theirs = GroupNorms(SITES, np.ones(len(GROUPS))) if share else GroupNorms(np.tile(GROUPS, CHANNELS), WEIGHTS)
    assert ours.value(rows) == pytest.approx(theirs.value(rows))
    np.testing.assert_allclose(ours.shrink(rows, 0.7), theirs.shrink(rows, 0.7))
    assert ours.dual(rows, 0.3)[0] == pytest.approx(theirs.dual(rows, 0.3)[0])


@given(seeds, st.floats(1e-3, 1e3))
def test_the_exclusive_proximal_operator_minimises_its_definition(seed, weight):
    """Its lengths are those of a bounded optimiser, and directions are kept."""
    rows = np.random.default_rng(seed).normal(size=(len(SITES), 2))
    sizes, shrunk = norms_by(SITES, rows), exclusive().shrink(rows, weight)

    def value(lengths):
        sums = np.bincount(GROUPS, weights=lengths)
        return (
            np.square(lengths - sizes).sum() / 2 + weight * np.square(sums).sum() / 2,
            lengths - sizes + weight * sums[GROUPS],
        )

    bounds = [(0, None)] * len(sizes)
    found = minimize(value, sizes, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-9})
    np.testing.assert_allclose(norms_by(SITES, shrunk), found.x, atol=1e-4)
    np.testing.assert_allclose(shrunk, rows * (norms_by(SITES, shrunk) / sizes)[SITES][:, None], atol=1e-12)


@given(seeds, st.floats(0.1, 2.0), st.floats(0.1, 2.0))
def test_conjugates_bound_the_product(seed, alpha, scale):
    """Fenchel's inequality, which the duality gap rests on, and its equality for some rows."""
    rng = np.random.default_rng(seed)
    gradient, rows = rng.normal(size=(2, len(SITES), 2))
    for penalty in (sparse_group(0.3), exclusive()):
        limit, quadratic = penalty.dual(gradient, alpha)
        c = min(scale, limit)
        assert c * (gradient * rows).sum() <= alpha * penalty.value(rows) + c**2 * quadratic / 2 + 1e-9
    best = np.zeros_like(gradient)  # the largest site of each group: what attains the conjugate
    for group in range(4):
        sizes = np.where(group == GROUPS, norms_by(SITES, gradient), 0)
        best[np.argmax(sizes) == SITES] = gradient[np.argmax(sizes) == SITES] / alpha
    attained = (gradient * best).sum() - alpha * exclusive().value(best)
    assert attained == pytest.approx(exclusive().dual(gradient, alpha)[1] / 2)


def choose(selector, values, k):
    return selector.select(kh.read(values - values.mean(axis=0)).as_scaled(), k, validation=None, run=Run())


def in_one_block(n=400):
    """Two sites of the block of the first four drive all others; the block's other sites are noise."""
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(n, 2))
    values = 0.3 * rng.normal(size=(n, 12))
    values[:, [0, 2]] += 1.5 * causes
    values[:, 4:] += causes @ rng.normal(size=(2, 8)) / 3
    return values


def test_sparse_group_lasso_takes_parts_of_blocks():
    """The two sites that matter come first, where the group lasso takes the whole block."""
    found = choose(SparseGroupLasso(block_size=4), in_one_block(), 2)
    assert set(found.sites.tolist()) == {0, 2}
    assert found.notes["active"] == 2
    assert choose(GroupLasso(block_size=4), in_one_block(), 2).notes["active"] == 4


@pytest.mark.parametrize("k", [2, 5, 8])
def test_sparse_group_lasso_with_all_the_weight_on_sites_is_the_lasso(k):
    values = in_one_block()
    found = choose(SparseGroupLasso(block_size=4, lasso_share=1.0), values, k).sites
    assert found.tolist() == choose(Lasso(), values, k).sites.tolist()


def test_exclusive_lasso_takes_sites_of_every_block():
    """One from each row of blocks, the one that drives its block, though one block has most of the variance."""
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(500, 4)) * [4.0, 1.0, 1.0, 1.0]
    values = 0.5 * np.repeat(causes, 4, axis=1) + 0.3 * rng.normal(size=(500, 16))
    values[:, [1, 6, 8, 15]] = causes
    found = choose(ExclusiveLasso(), values, 4)
    assert set(found.sites.tolist()) == {1, 6, 8, 15}
    assert found.notes["active"] == 4
    assert set(blocks((16,), choose(ExclusiveLasso(block_size=4), values, 6).sites, 4).tolist()) == {0, 1, 2, 3}


def test_exclusive_lasso_with_more_blocks_than_sites_takes_the_largest_rows():
    """No weight leaves fewer sites than there are blocks; K of them are taken all the same."""
    found = choose(ExclusiveLasso(block_size=1), in_one_block(), 3)
    assert found.notes["active"] == 12
    assert len(set(found.sites.tolist())) == 3


def test_blocks_are_the_smallest_of_which_there_are_few_enough():
    assert len(set(smallest_blocks((6, 6), np.arange(36), 9).tolist())) == 9
    assert len(set(smallest_blocks((6, 6), np.arange(36), 8).tolist())) == 4
    assert smallest_blocks((6, 6), np.arange(36), 36).tolist() == list(range(36))
    assert not smallest_blocks((6, 6), np.arange(36), 1).any()
