"""Ridge regression from readings to the whole signal, in closed form."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from keyhole.reconstructors.base import flat
from keyhole.reconstructors.linear import LinearReconstructor
from keyhole.run import Run
from keyhole.signals import Signals

__all__ = ["Ridge", "nested_errors"]

# Strengths tried, relative to the mean squared singular value of the readings.
_STRENGTHS = np.logspace(-8, 2, 41)


class Ridge(LinearReconstructor):
    """Linear reconstruction `x = mean + (r - mean_r) B`, `B = (R'R + a I)^-1 R'X`.

    The strength `a` is the one with the smallest leave-one-out error, which the decomposition `R = U S V'` gives for
    every strength at once: with `h_i` the leverage of sample `i`, its left-out residual is `e_i / (1 - h_i)`. Constant
    and duplicate sites are harmless.
    """

    name: ClassVar[str] = "ridge"

    @property
    def strength(self) -> float:
        """The strength with the smallest leave-one-out error."""
        return self.chosen["strength"]

    def fit(self, train: Signals, sites: NDArray[np.int64], *, validation: Signals, run: Run) -> Self:
        """Fit on ``train``; leave-one-out needs no validation."""
        self.channels, self.grid = train.channels, train.grid
        readings = flat(train.readings(sites))
        for targets in self.around_gaps(train, readings):
            strength, self.offset, self.weights = _fit(readings, targets)
        self.chosen = {"strength": strength}
        return self


def _fit(readings: NDArray[Any], targets: NDArray[Any]) -> tuple[float, NDArray[np.float32], NDArray[np.float32]]:
    """Give strength, offset (targets,) and weights (readings, targets) of the best ridge by leave-one-out."""
    centre, middle = readings.mean(axis=0, dtype=np.float64), targets.mean(axis=0, dtype=np.float64)
    left, sizes, right = np.linalg.svd(readings - centre, full_matrices=False)
    centred = (targets - middle).astype(np.float32)
    scores = left.T.astype(np.float32) @ centred
    strengths = _STRENGTHS * max(float(np.square(sizes).mean()), 1e-30)
    errors = _leave_one_out(left, sizes, centred, scores, strengths)
    strength = float(strengths[int(np.argmin(errors))])
    weights = (right.T * (sizes / (sizes**2 + strength))) @ scores
    return strength, (middle - centre @ weights).astype(np.float32), weights.astype(np.float32)


def _leave_one_out(
    left: NDArray[np.float64],
    sizes: NDArray[np.float64],
    centred: NDArray[np.float32],
    scores: NDArray[np.float32],
    strengths: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Leave-one-out sum of squared errors for each strength.

    With shrinkage `D = s^2 / (s^2 + a)`, `||e_i||^2 = ||y_i||^2 - 2 u_i D (U'Y) y_i' + u_i D (U'Y Y'U) D u_i'`: only
    matrices of samples x readings are needed, however many targets there are.
    """
    energy = np.einsum("ij,ij->i", centred, centred, dtype=np.float64)
    cross = (centred @ scores.T).astype(np.float64)
    inner = (scores @ scores.T).astype(np.float64)
    errors = np.empty(len(strengths))
    for position, strength in enumerate(strengths):
        shrunk = left * (sizes**2 / (sizes**2 + strength))
        residual = energy - 2 * (shrunk * cross).sum(axis=1) + ((shrunk @ inner) * shrunk).sum(axis=1)
        leverage = np.minimum((shrunk * left).sum(axis=1) + 1 / len(left), 1 - 1e-9)
        errors[position] = (np.maximum(residual, 0) / (1 - leverage) ** 2).sum()
    return errors


def nested_errors(
    train: Signals,
    judge: Signals,
    sites: NDArray[np.int64],
    strength: float,
    scale: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Sum of squared errors on ``judge`` of ridge fitted on ``train`` with the first 0, 1, ... K sites.

    With `R = (X'X + a I)^-1`, the error of `X_v R X'Y` against `Y_v` is `tr(Y_v'Y_v) - 2 tr(R C_v) + tr(R C R G_v)`,
    `C = X'Y Y'X`, `C_v = X'Y Y_v'X_v`, `G_v = X_v'X_v`. One factor `L L' = X'X + a I` serves every number of sites: the
    traces are sums over leading blocks of `L^-1 C L^-T` and its like, so all of them together cost what one does.

    ``scale`` brings each channel back to its unit before errors are added up.
    """
    readings, targets = flat(train.readings(sites)).astype(np.float64), _scaled(train, scale)
    others, truths = flat(judge.readings(sites)).astype(np.float64), _scaled(judge, scale)
    centre, middle = readings.mean(axis=0), targets.mean(axis=0)
    readings, others = readings - centre, others - centre
    targets, truths = targets - middle, truths - middle
    moments, judged = readings.T @ targets, others.T @ truths
    factor = np.linalg.cholesky(readings.T @ readings + strength * np.eye(readings.shape[1]))
    explained = np.cumsum(np.diag(_whitened(factor, moments @ judged.T)))
    squares = _whitened(factor, moments @ moments.T) * _whitened(factor, others.T @ others)
    spread = np.diag(squares.cumsum(axis=0).cumsum(axis=1))
    total = float(np.square(truths).sum())
    errors = total - 2 * explained + spread
    return np.concatenate([[total], errors[train.channels - 1 :: train.channels]])


def _whitened(factor: NDArray[np.float64], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """`L^-1 M L^-T`."""
    left = solve_triangular(factor, matrix, lower=True)
    return np.asarray(solve_triangular(factor, left.T, lower=True).T)


def _scaled(part: Signals, scale: NDArray[np.float64] | None) -> NDArray[np.float64]:
    packed = part.packed().astype(np.float64)
    return flat(packed if scale is None else packed * scale[:, np.newaxis])
