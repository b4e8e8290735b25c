"""Regression with few rows: the problem with any penalty on rows, its solution by proximal gradient, and paths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyhole.placement.baselines.row_penalties import Array, RowPenalty

__all__ = ["SolutionPath", "SparseRegression", "proximal_gradient"]

_GAP = 1e-6  # duality gap, as a share of the targets' energy, at which a solution is good enough
_GAP_STEPS = 10  # after which the gap is computed
_RANK_TOLERANCE = 1e-10
_SLACK = 1e-3  # by which a unit outside the working set may break the optimality condition
_MAX_ROUNDS = 30  # of growing working sets


@dataclass(frozen=True, eq=False)
class SparseRegression:
    r"""Least squares with several targets and a penalty on the rows of the coefficients.

    .. math:: \min_A \tfrac12 \|Y - D A\|_F^2 + \alpha\,\Omega(A)

    Parameters
    ----------
    design
        `D`, ``(r, columns)``.
    targets
        `Y`, ``(r, t)``.
    penalty
        :math:`\Omega`, of as many rows as the design has columns.

    Examples
    --------
    >>> from keyhole.placement.baselines.row_penalties import GroupNorms
    >>> problem = SparseRegression(np.eye(2), np.array([[3.0], [1.0]]), GroupNorms(np.arange(2), np.ones(2)))
    >>> proximal_gradient(problem, 2.0, np.zeros((2, 1))).ravel()
    array([1., 0.])
    """

    design: Array
    targets: Array
    penalty: RowPenalty

    def residual(self, rows: Array) -> Array:
        """Residual of the targets."""
        used = np.flatnonzero(rows.any(axis=1))
        return np.asarray(self.targets - self.design[:, used] @ rows[used])

    def gap(self, rows: Array, alpha: float) -> float:
        """Duality gap as a share of the energy of the targets: how far the objective can be from its minimum."""
        residual = self.residual(rows)
        energy, unexplained = float(np.square(self.targets).sum()), float(np.square(residual).sum())
        limit, quadratic = self.penalty.dual(self.design.T @ residual, alpha)
        scale = min(1.0, limit)
        dual = scale * float((self.targets * residual).sum()) - scale**2 * (unexplained + quadratic) / 2
        return (unexplained / 2 + alpha * self.penalty.value(rows) - dual) / energy

    def among(self, units: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array, SparseRegression]:
        """Return the problem of a few units alone: their columns, a rotation of the targets, and the problem.

        Equations and targets are rotated so that only those remain that the columns reach, which changes neither the
        loss (but for a constant) nor the norms; rows of the small problem times the rotation are rows of this one.
        """
        columns = np.flatnonzero(np.isin(self.penalty.labels, units))
        left, sizes, right = np.linalg.svd(self.design[:, columns], full_matrices=False)
        keep = sizes > _RANK_TOLERANCE * sizes[0]
        rotated, energies, rotation = np.linalg.svd(left[:, keep].T @ self.targets, full_matrices=False)
        design = sizes[keep, None] * right[keep]
        return columns, rotation, SparseRegression(design, rotated * energies, self.penalty.among(columns))


def proximal_gradient(problem: SparseRegression, alpha: float, start: Array, max_steps: int = 2000) -> Array:
    """Solve the problem by accelerated proximal gradient (FISTA) with adaptive restart of the momentum.

    Parameters
    ----------
    problem
        The regression.
    alpha
        Weight of the penalty.
    start
        Initial rows.
    max_steps
        Steps at which it ends if the duality gap is not small enough before.

    Returns
    -------
    ndarray
        The rows, ``(columns, t)``.

    References
    ----------
    Beck & Teboulle (2009). A fast iterative shrinkage-thresholding algorithm. SIAM J. Imaging Sciences 2.
    O'Donoghue & Candès (2015). Adaptive restart for accelerated gradient schemes. Found. Comput. Math. 15.
    """
    gram, towards = problem.design.T @ problem.design, problem.design.T @ problem.targets
    step = 1 / float(np.linalg.norm(problem.design, 2)) ** 2
    rows = ahead = start
    momentum = 1.0
    for i in range(max_steps):
        new = ahead + step * (towards - gram @ ahead)
        new = problem.penalty.shrink(new, alpha * step)
        uphill = float(((ahead - new) * (new - rows)).sum()) > 0
        grown = (1 + np.sqrt(1 + 4 * (1.0 if uphill else momentum) ** 2)) / 2
        ahead = new + (0.0 if uphill else (momentum - 1) / grown) * (new - rows)
        rows, momentum = new, grown
        if i % _GAP_STEPS == 0 and problem.gap(rows, alpha) < _GAP:
            break
    return rows


class SolutionPath:
    """Solutions of a problem as the weight of the penalty changes, each the start of the next (warm starts).

    Only the units that are active or violate the optimality condition are worked on (working sets); the condition of
    all others is checked afterwards, so the solution is exact. A step costs O(r x columns x targets).

    Parameters
    ----------
    problem
        The regression.
    max_steps
        Steps of the proximal gradient for one working set.

    Attributes
    ----------
    rows
        The present solution, zero at first.
    highest
        The weight at which a path begins; of a norm, the smallest at which all rows are zero.
    """

    def __init__(self, problem: SparseRegression, max_steps: int = 2000) -> None:
        self.problem, self.max_steps = problem, max_steps
        self.rows: Array = np.zeros((problem.design.shape[1], problem.targets.shape[1]))
        self.gradient = problem.design.T @ problem.targets
        self.highest = problem.penalty.start(self.gradient, float(np.linalg.norm(problem.design, 2)) ** 2)

    def go(self, alpha: float) -> None:
        """Move to the solution at ``alpha``."""
        penalty, working = self.problem.penalty, np.empty(0, np.int64)
        for i in range(_MAX_ROUNDS):
            active = np.flatnonzero(penalty.norms(self.rows))
            excess = penalty.excess(self.gradient, self.rows, alpha)
            violating = np.setdiff1d(np.flatnonzero(excess > _SLACK), np.union1d(active, working))
            if i > 0 and not len(violating):
                return
            worst = violating[np.argsort(-excess[violating], kind="stable")][: max(10, len(active))]
            working = np.union1d(active, worst)
            self._solve(working, alpha)

    def _solve(self, units: NDArray[np.int64], alpha: float) -> None:
        if len(units):
            columns, rotation, small = self.problem.among(units)
            rows = proximal_gradient(small, alpha, self.rows[columns] @ rotation.T, self.max_steps) @ rotation
            self.rows = np.zeros_like(self.rows)
            self.rows[columns] = rows
        self.gradient = self.problem.design.T @ self.problem.residual(self.rows)
