"""Multi-task lasso and group lasso: sites with non-zero rows in a sparse linear reconstruction."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.data.samples import Samples
from keyhole.placement.base import Selection, Selector, complete
from keyhole.placement.baselines.group_lasso_solver import (
    Array,
    GroupLassoProblem,
    Solver,
    coordinate_descent,
    proximal_gradient,
)
from keyhole.placement.baselines.self_regression import regress_on_sites, site_norms
from keyhole.placement.settings import GroupLassoSettings

__all__ = ["GroupLasso", "Lasso", "Path", "blocks"]

_STEP = 0.9  # from one weight of the penalty to the next
_LOWEST = 1e-3  # weight, as a share of that which lets no site in, below which the data give no more
_HALVINGS = 6
_SLACK = 1e-3  # by which a group outside the working set may break the optimality condition
_MOST_ROUNDS = 30


class Lasso(Selector):
    r"""Multi-task lasso: linear self-reconstruction of the samples from few sites.

    .. math:: \min_W \tfrac{1}{2n} \|X - X W\|_F^2 + \alpha \sum_s \|W_s\|_F

    with one term for each site, all its channels together. The weight :math:`\alpha` falls until K sites are active,
    then is bisected to the largest that gives K. Sites are ranked by the norm of their rows there, not by order of
    entry: the first to enter stand for whole regions, and are outdone as others join.

    Solved in principal components (see `Regression`) by working sets (see `Path`), whose small problems scikit-learn's
    MultiTaskLasso solves; with several channels, whose rows it would penalise one by one, proximal gradient does.
    """

    name: ClassVar[str] = "lasso"

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Lower the penalty until ``k`` sites are active."""
        solver = coordinate_descent if train.channels == 1 else proximal_gradient
        return _select(train, k, block=1, solver=solver, run=run, stage=self.name)


class GroupLasso(Selector):
    r"""Group lasso: sites enter by square blocks of the grid, or by runs of columns.

    .. math:: \min_W \tfrac{1}{2n} \|X - X W\|_F^2 + \alpha \sum_g \sqrt{|g|}\, \|W_g\|_F

    with :math:`|g|` the number of sites of a block that may be chosen. The weight is found as in `Lasso`. Blocks are
    ranked by :math:`\|W_g\|_F / \sqrt{|g|}`, and the sites of a block, by the norm of their rows, follow each other.

    Parameters
    ----------
    settings
        Those of `GroupLassoSettings`, by name.
    """

    name: ClassVar[str] = "group_lasso"
    settings_class: ClassVar[type[GroupLassoSettings]] = GroupLassoSettings
    options: GroupLassoSettings

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Lower the penalty until the active blocks hold ``k`` sites."""
        return _select(train, k, block=self.options.block_size, solver=proximal_gradient, run=run, stage=self.name)


class Path:
    """Solutions of a grouped problem as the weight of the penalty changes, each the start of the next.

    Only the groups that are active or ask to be are worked on, and the optimality conditions of all the others are
    checked afterwards: nothing is left out on a guess, and a step costs O(r x columns x targets).
    """

    def __init__(self, problem: GroupLassoProblem, solver: Solver) -> None:
        self.problem, self.solver = problem, solver
        self.rows: Array = np.zeros((problem.design.shape[1], problem.targets.shape[1]))
        self.pressure = problem.pressure(problem.targets)
        self.highest = float(self.pressure.max())

    def go(self, alpha: float) -> None:
        """Move to the solution at ``alpha``."""
        worked = np.empty(0, np.int64)
        for i in range(_MOST_ROUNDS):
            active = np.flatnonzero(self.problem.norms(self.rows))
            broken = np.setdiff1d(np.flatnonzero(self.pressure > alpha * (1 + _SLACK)), np.union1d(active, worked))
            if i > 0 and not len(broken):
                return
            loudest = broken[np.argsort(-self.pressure[broken], kind="stable")][: max(10, len(active))]
            worked = np.union1d(active, loudest)
            self._solve(worked, alpha)

    def _solve(self, groups: NDArray[np.int64], alpha: float) -> None:
        if len(groups):
            columns, turn, small = self.problem.among(groups)
            rows = self.solver(small, alpha, self.rows[columns] @ turn.T) @ turn
            self.rows = np.zeros_like(self.rows)
            self.rows[columns] = rows
        self.pressure = self.problem.pressure(self.problem.residual(self.rows))


def blocks(shape: tuple[int, ...], sites: NDArray[np.int64], side: int) -> NDArray[np.int64]:
    """Number of the block, ``side`` cells a side, that each site (flat grid index) is in; empty ones do not count."""
    places = [place // side for place in np.unravel_index(sites, shape)]
    tiles = [-(-length // side) for length in shape]
    return np.unique(np.ravel_multi_index(places, tiles), return_inverse=True)[1]


def _select(train: Samples, k: int, *, block: int, solver: Solver, run: Run, stage: str) -> Selection:
    regression = regress_on_sites(train, most=max(4 * k, 200))
    of_sites = blocks(train.grid.shape, regression.sites, block)
    labels = np.tile(of_sites, regression.channels)
    problem = GroupLassoProblem(regression.design, regression.targets, labels, np.sqrt(np.bincount(of_sites)))
    path = Path(problem, solver)
    alpha, rows = _sparsest(path, k, run, stage, regression.channels)
    norms = site_norms(rows, regression.channels)
    by_block = (problem.norms(rows) / problem.weights)[of_sites]
    order = np.lexsort((-norms, of_sites, -by_block))
    order = order[norms[order] > 0]
    notes = {"alpha": alpha / path.highest, "active": len(order), "gap": problem.gap(rows, alpha)}
    return Selection(complete(regression.sites[order], k, train), notes=notes)


def _sparsest(path: Path, k: int, run: Run, stage: str, channels: int) -> tuple[float, Array]:
    """Return the largest weight with at least ``k`` active sites, up to a small part of a step, and the rows there.

    There are fewer where the weight is at its lowest or time is up.
    """
    high = low = path.highest
    most = 0
    while most < k and low > _LOWEST * path.highest and run.seconds_left() > 0:
        high, low = low, low * _STEP
        path.go(low)
        most = max(most, _active(path.rows, channels))
        run.tell(Event(stage, min(most, k), k))
    best = path.rows
    for _ in range(_HALVINGS):
        if _active(best, channels) <= k:
            break
        middle = float(np.sqrt(low * high))
        path.go(middle)
        if _active(path.rows, channels) >= k:
            low, best = middle, path.rows
        else:
            high = middle
    return low, best


def _active(rows: Array, channels: int) -> int:
    return int(np.count_nonzero(site_norms(rows, channels)))
