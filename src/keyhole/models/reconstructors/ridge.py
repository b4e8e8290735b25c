"""Ridge regression from readings to the whole signal, in closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from keyhole.core.run import Run
from keyhole.data.grid import Grid
from keyhole.data.samples import Samples
from keyhole.models.principal_components import blocks_of_cells, cached_gram, column_sums
from keyhole.models.reconstructors.base import flat
from keyhole.models.reconstructors.linear import LinearReconstructor

__all__ = ["NestedRidge", "Regression", "Ridge", "nested_errors"]

# Strengths tried, relative to the mean squared singular value of the readings.
_STRENGTHS = np.logspace(-8, 2, 41)
_COARSE = 4  # every so many of them are tried, then those beside the best


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

    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Self:
        """Fit on ``train``; leave-one-out needs no validation."""
        self.channels, self.grid = train.channels, train.grid
        readings = flat(train.readings(sites))
        products = cached_gram(train) if train.gaps is None else None
        for targets in self.imputed_targets(train, readings):
            regression = Regression(readings, partial(_alone, targets), products)
            strength, self.offset, self.weights = regression.best(readings.shape[1])
        self.chosen = {"strength": strength}
        return self


class NestedRidge:
    """Ridge with the first sites of a ranking, for any number of them: little more than the largest costs alone.

    For signals without gaps.
    """

    def __init__(self, train: Samples, sites: NDArray[np.int64]) -> None:
        self.train = train
        targets = flat(train.valid_values())
        self._shared = Regression(flat(train.readings(sites)), partial(_alone, targets), cached_gram(train))

    def first(self, count: int) -> Ridge:
        """Give what `Ridge` would be, fitted to the first sites."""
        return self._shared.ridge(count * self.train.channels, self.train.channels, self.train.grid)


class Regression:
    """Ridge from the first readings to targets, for any number of them.

    With `R = Q T` (`Q` orthonormal, `T` triangular), the first `c` readings are `Q_c T_c`, leading blocks of both; so
    `T_c = W S V'` gives their decomposition `Q_c W S V'`, and `Q'Y`, which is what costs, serves every `c`.

    Parameters
    ----------
    readings
        ``(N, K * channels)``.
    targets
        Gives ``(n, cells)`` of the samples, some at a time, in their order; it is asked three times, or twice where all
        come at once.
    products
        Inner products of the centred targets ``(N, N)``, if they are known: what the errors need of the targets then
        costs nothing.
    """

    def __init__(
        self, readings: NDArray[Any], targets: Callable[[], Iterable[NDArray[Any]]],
        products: NDArray[np.float64] | None = None,
    ) -> None:  # fmt: skip
        self.centre = readings.mean(axis=0, dtype=np.float64)
        self.middle = column_sums(targets()) / len(readings)
        self.basis, self.triangle = np.linalg.qr(readings - self.centre)
        basis = self.basis.astype(np.float32)
        self.scores = np.zeros((basis.shape[1], len(self.middle)), np.float32)
        if products is None:
            self.energy, self.cross = self._add_up(basis, targets)
        else:
            self.energy, self.cross = np.diag(products), products @ self.basis
            for rows, cells, part in self._centred(targets):
                self.scores[:, cells] += basis[rows].T @ part
        self.inner = (self.scores @ self.scores.T).astype(np.float64)

    def _add_up(
        self, basis: NDArray[np.float32], targets: Callable[[], Iterable[NDArray[Any]]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Add up `Q'Y`; give `||y_i||^2`, and `Y Y'Q`, for which samples that do not come at once are read again."""
        energy, cross, together = np.zeros(len(basis)), np.zeros(basis.shape), False
        for rows, cells, part in self._centred(targets):
            self.scores[:, cells] += basis[rows].T @ part
            energy[rows] += np.einsum("ij,ij->i", part, part)
            together = rows == slice(0, len(basis))
            if together:  # all samples at once: these cells are done
                cross += part @ self.scores[:, cells].T
        for rows, cells, part in () if together else self._centred(targets):
            cross[rows] += part @ self.scores[:, cells].T
        return energy, cross

    def _centred(
        self, targets: Callable[[], Iterable[NDArray[Any]]]
    ) -> Iterator[tuple[slice, slice, NDArray[np.float32]]]:
        """Give some samples and cells at a time, less the mean, and where they stand among all."""
        start, middle = 0, self.middle.astype(np.float32)
        for part in targets():
            rows = slice(start, start + len(part))
            for cells, centred in blocks_of_cells(part, middle, np.float32):
                yield rows, cells, centred
            start += len(part)

    def ridge(self, count: int, channels: int, grid: Grid) -> Ridge:
        """Give the best ridge from the first so many readings."""
        made = Ridge()
        made.channels, made.grid = channels, grid
        strength, made.offset, made.weights = self.best(count)
        made.chosen = {"strength": strength}
        return made

    def best(self, count: int) -> tuple[float, NDArray[np.float32], NDArray[np.float32]]:
        """Give strength, offset (targets,) and weights (count, targets) of the best ridge by leave-one-out."""
        rank = min(count, len(self.triangle))
        turn, sizes, right = np.linalg.svd(self.triangle[:rank, :count], full_matrices=False)
        strengths = _STRENGTHS * max(float(np.square(sizes).mean()), 1e-30)
        errors = np.full(len(strengths), np.inf)
        errors[::_COARSE] = self._leave_one_out(turn, sizes, strengths[::_COARSE])
        near = _beside(int(errors.argmin()), len(errors))
        errors[near] = self._leave_one_out(turn, sizes, strengths[near])
        strength = float(strengths[int(errors.argmin())])
        solved = (right.T * (sizes / (sizes**2 + strength))) @ turn.T
        scores = self.scores[:rank]
        weights = solved.astype(np.float32) @ scores
        offset = self.middle - (self.centre[:count] @ solved).astype(np.float32) @ scores
        return strength, offset.astype(np.float32), weights

    def _leave_one_out(
        self, turn: NDArray[np.float64], sizes: NDArray[np.float64], strengths: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Leave-one-out sum of squared errors for each strength.

        With `U = Q_c W` and shrinkage `D = s^2 / (s^2 + a)`, `||e_i||^2 = ||y_i||^2 - 2 u_i D (U'Y) y_i' + u_i D
        (U'Y Y'U) D u_i'`: only matrices of samples x readings are needed, however many targets there are.
        """
        rank = len(turn)
        left, cross = self.basis[:, :rank] @ turn, self.cross[:, :rank] @ turn
        inner = turn.T @ self.inner[:rank, :rank] @ turn
        shrinkage = sizes**2 / (sizes**2 + strengths[:, np.newaxis])
        residual = self.energy[:, np.newaxis] - 2 * (left * cross) @ shrinkage.T
        for position, shrunk in enumerate(left * one for one in shrinkage):
            residual[:, position] += np.einsum("ij,ij->i", shrunk @ inner, shrunk)
        leverage = np.minimum(np.square(left) @ shrinkage.T + 1 / len(left), 1 - 1e-9)
        return np.asarray((np.maximum(residual, 0) / (1 - leverage) ** 2).sum(axis=0))


def _beside(place: int, count: int) -> NDArray[np.int64]:
    """Places between the coarse one and the next ones on both sides."""
    near = place + np.delete(np.arange(1 - _COARSE, _COARSE), _COARSE - 1)
    return near[(near >= 0) & (near < count)]


def _alone(targets: NDArray[Any]) -> list[NDArray[Any]]:
    return [targets]


def nested_errors(
    train: Samples,
    scorer: Samples,
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
    others, truths = flat(scorer.readings(sites)).astype(np.float64), _scaled(scorer, scale)
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


def _scaled(part: Samples, scale: NDArray[np.float64] | None) -> NDArray[np.float64]:
    packed = part.valid_values().astype(np.float64)
    return flat(packed if scale is None else packed * scale[:, np.newaxis])
