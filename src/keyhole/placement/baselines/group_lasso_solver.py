"""Group lasso with several targets: the problem, and two solvers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["GroupLassoProblem", "Solver", "coordinate_descent", "proximal_gradient"]

_GAP = 1e-6  # duality gap, as a share of the targets' energy, at which a solution is good enough
_MOST_PASSES = 2000
_LOOK_EVERY = 10
_RANK_TOLERANCE = 1e-10

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GroupLassoProblem:
    r"""The group lasso with several targets.

    .. math:: \min_A \tfrac12 \|Y - D A\|_F^2 + \alpha \sum_g w_g \|A_g\|_F

    At the minimum the pressure :math:`\|D_g'(Y - D A)\|_F / w_g` of every group is at most :math:`\alpha`, and equal to
    it where the group is not zero.

    ``design`` D is (r, columns), ``targets`` Y (r, t), ``labels`` (columns,) says which group a column of D (a row of
    A) is in, ``weights`` (groups,) are w.
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

    def pressure(self, residual: Array) -> Array:
        """Norm of each group's gradient over its weight: the smallest penalty at which the group stays zero."""
        return np.asarray(self.norms(self.design.T @ residual) / self.weights)

    def gap(self, rows: Array, alpha: float) -> float:
        """Duality gap as a share of the energy of the targets: how far the objective can be from its minimum."""
        residual = self.residual(rows)
        energy, left = float(np.square(self.targets).sum()), float(np.square(residual).sum())
        scale = min(1.0, alpha / max(float(self.pressure(residual).max()), np.finfo(float).tiny))
        dual = scale * float((self.targets * residual).sum()) - scale**2 * left / 2
        return (left / 2 + alpha * float(self.weights @ self.norms(rows)) - dual) / energy

    def among(self, groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array, GroupLassoProblem]:
        """Give the problem of a few groups alone: their columns, a turn of the targets, and the problem.

        Equations and targets are turned so that only those remain that the columns reach, which changes neither the
        loss (but for a constant) nor the norms; rows of the small problem times the turn are rows of this one.
        """
        columns = np.flatnonzero(np.isin(self.labels, groups))
        left, sizes, right = np.linalg.svd(self.design[:, columns], full_matrices=False)
        keep = sizes > _RANK_TOLERANCE * sizes[0]
        turned, energies, turn = np.linalg.svd(left[:, keep].T @ self.targets, full_matrices=False)
        kept, labels = np.unique(self.labels[columns], return_inverse=True)
        design = sizes[keep, None] * right[keep]
        return columns, turn, GroupLassoProblem(design, turned * energies, labels, self.weights[kept])


Solver = Callable[[GroupLassoProblem, float, Array], Array]


def coordinate_descent(problem: GroupLassoProblem, alpha: float, start: Array) -> Array:
    """Solve a problem whose groups are single rows of weight one, by scikit-learn's MultiTaskLasso."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import MultiTaskLasso

    alpha_each = alpha / len(problem.targets)  # theirs is the mean over the equations
    model: Any = MultiTaskLasso(
        alpha=alpha_each, fit_intercept=False, warm_start=True, tol=_GAP, max_iter=_MOST_PASSES,
        random_state=0,  # without one it draws from numpy's global generator
    )  # fmt: skip
    model.coef_ = np.asfortranarray(start.T)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gap that is left is noted where the path ends
        model.fit(problem.design, problem.targets)
    return np.ascontiguousarray(model.coef_.T)


def proximal_gradient(problem: GroupLassoProblem, alpha: float, start: Array) -> Array:
    """Solve by FISTA (Beck & Teboulle, 2009) with adaptive restart of the momentum."""
    gram, towards = problem.design.T @ problem.design, problem.design.T @ problem.targets
    step = 1 / float(np.linalg.norm(problem.design, 2)) ** 2
    rows = ahead = start
    momentum = 1.0
    for i in range(_MOST_PASSES):
        new = _shrunk(problem, ahead + step * (towards - gram @ ahead), alpha * step)
        uphill = float(((ahead - new) * (new - rows)).sum()) > 0
        grown = (1 + np.sqrt(1 + 4 * (1.0 if uphill else momentum) ** 2)) / 2
        ahead = new + (0.0 if uphill else (momentum - 1) / grown) * (new - rows)
        rows, momentum = new, grown
        if i % _LOOK_EVERY == 0 and problem.gap(rows, alpha) < _GAP:
            break
    return rows


def _shrunk(problem: GroupLassoProblem, rows: Array, threshold: float) -> Array:
    """Take ``threshold`` times its weight off the norm of each group, which ends at zero."""
    norms = np.maximum(problem.norms(rows), np.finfo(float).tiny)
    factors = np.maximum(0.0, 1 - threshold * problem.weights / norms)
    return np.asarray(rows * factors[problem.labels, None])
