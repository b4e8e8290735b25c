"""Group lasso with several targets: the problem, its solution by proximal gradient, and paths of solutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "GroupLassoProblem", "SolutionPath", "proximal_gradient"]

_GAP = 1e-6  # duality gap, as a share of the targets' energy, at which a solution is good enough
_GAP_STEPS = 10  # after which the gap is computed
_RANK_TOLERANCE = 1e-10
_SLACK = 1e-3  # by which a group outside the working set may break the optimality condition
_MAX_ROUNDS = 30  # of growing working sets

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GroupLassoProblem:
    r"""The group lasso with several targets.

    .. math:: \min_A \tfrac12 \|Y - D A\|_F^2 + \alpha \sum_g w_g \|A_g\|_F

    At the minimum the norm :math:`\|D_g'(Y - D A)\|_F / w_g` of every group's gradient is at most :math:`\alpha`, and
    equal to it where the group is not zero.

    Parameters
    ----------
    design
        `D`, ``(r, columns)``.
    targets
        `Y`, ``(r, t)``.
    labels
        ``(columns,)``, the group of each column of `D` (row of `A`).
    weights
        `w`, ``(groups,)``.

    Examples
    --------
    >>> problem = GroupLassoProblem(np.eye(2), np.array([[3.0], [1.0]]), np.arange(2), np.ones(2))
    >>> problem.gradient_norms(problem.targets)
    array([3., 1.])
    >>> proximal_gradient(problem, 2.0, np.zeros((2, 1))).ravel()
    array([1., 0.])
    """

    design: Array
    targets: Array
    labels: NDArray[np.int64]
    weights: Array

    def norms(self, rows: Array) -> Array:
        """Frobenius norm of each group of rows."""
        squares = np.einsum("ct,ct->c", rows, rows)
        return np.sqrt(np.bincount(self.labels, weights=squares, minlength=len(self.weights)))

    def residual(self, rows: Array) -> Array:
        """Residual of the targets."""
        used = np.flatnonzero(rows.any(axis=1))
        return np.asarray(self.targets - self.design[:, used] @ rows[used])

    def gradient_norms(self, residual: Array) -> Array:
        """Norm of each group's gradient over its weight: the smallest penalty at which the group stays zero."""
        return np.asarray(self.norms(self.design.T @ residual) / self.weights)

    def gap(self, rows: Array, alpha: float) -> float:
        """Duality gap as a share of the energy of the targets: how far the objective can be from its minimum."""
        residual = self.residual(rows)
        energy, unexplained = float(np.square(self.targets).sum()), float(np.square(residual).sum())
        scale = min(1.0, alpha / max(float(self.gradient_norms(residual).max()), np.finfo(float).tiny))
        dual = scale * float((self.targets * residual).sum()) - scale**2 * unexplained / 2
        return (unexplained / 2 + alpha * float(self.weights @ self.norms(rows)) - dual) / energy

    def among(self, groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array, GroupLassoProblem]:
        """Return the problem of a few groups alone: their columns, a rotation of the targets, and the problem.

        Equations and targets are rotated so that only those remain that the columns reach, which changes neither the
        loss (but for a constant) nor the norms; rows of the small problem times the rotation are rows of this one.
        """
        columns = np.flatnonzero(np.isin(self.labels, groups))
        left, sizes, right = np.linalg.svd(self.design[:, columns], full_matrices=False)
        keep = sizes > _RANK_TOLERANCE * sizes[0]
        rotated, energies, rotation = np.linalg.svd(left[:, keep].T @ self.targets, full_matrices=False)
        kept, labels = np.unique(self.labels[columns], return_inverse=True)
        design = sizes[keep, None] * right[keep]
        return columns, rotation, GroupLassoProblem(design, rotated * energies, labels, self.weights[kept])


def proximal_gradient(problem: GroupLassoProblem, alpha: float, start: Array, max_steps: int = 2000) -> Array:
    """Solve the problem by accelerated proximal gradient (FISTA) with adaptive restart of the momentum.

    Parameters
    ----------
    problem
        The group lasso.
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
        norms = np.maximum(problem.norms(new), np.finfo(float).tiny)
        new = new * np.maximum(0.0, 1 - alpha * step * problem.weights / norms)[problem.labels, None]
        uphill = float(((ahead - new) * (new - rows)).sum()) > 0
        grown = (1 + np.sqrt(1 + 4 * (1.0 if uphill else momentum) ** 2)) / 2
        ahead = new + (0.0 if uphill else (momentum - 1) / grown) * (new - rows)
        rows, momentum = new, grown
        if i % _GAP_STEPS == 0 and problem.gap(rows, alpha) < _GAP:
            break
    return rows


class SolutionPath:
    """Solutions of a problem as the weight of the penalty changes, each the start of the next (warm starts).

    Only the groups that are active or violate the optimality condition are worked on (working sets); the condition of
    all others is checked afterwards, so the solution is exact. A step costs O(r x columns x targets).

    Parameters
    ----------
    problem
        The group lasso.
    max_steps
        Steps of the proximal gradient for one working set.

    Attributes
    ----------
    rows
        The present solution, zero at first.
    highest
        The smallest weight at which all rows are zero.
    """

    def __init__(self, problem: GroupLassoProblem, max_steps: int = 2000) -> None:
        self.problem, self.max_steps = problem, max_steps
        self.rows: Array = np.zeros((problem.design.shape[1], problem.targets.shape[1]))
        self.gradient_norms = problem.gradient_norms(problem.targets)
        self.highest = float(self.gradient_norms.max())

    def go(self, alpha: float) -> None:
        """Move to the solution at ``alpha``."""
        working = np.empty(0, np.int64)
        for i in range(_MAX_ROUNDS):
            active = np.flatnonzero(self.problem.norms(self.rows))
            violating = np.flatnonzero(self.gradient_norms > alpha * (1 + _SLACK))
            violating = np.setdiff1d(violating, np.union1d(active, working))
            if i > 0 and not len(violating):
                return
            worst = violating[np.argsort(-self.gradient_norms[violating], kind="stable")][: max(10, len(active))]
            working = np.union1d(active, worst)
            self._solve(working, alpha)

    def _solve(self, groups: NDArray[np.int64], alpha: float) -> None:
        if len(groups):
            columns, rotation, small = self.problem.among(groups)
            rows = proximal_gradient(small, alpha, self.rows[columns] @ rotation.T, self.max_steps) @ rotation
            self.rows = np.zeros_like(self.rows)
            self.rows[columns] = rows
        self.gradient_norms = self.problem.gradient_norms(self.problem.residual(self.rows))
