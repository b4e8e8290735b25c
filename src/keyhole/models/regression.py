"""Ridge regression in closed form: the best strength by leave-one-out error, for the first inputs of a ranking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.principal_components import blocks_of_cells, column_sums
from keyhole.models.projection import Targets, probe_columns, probe_targets, project

__all__ = ["STRENGTHS", "RidgeFit", "RidgeRegression", "nested_squared_errors"]

# Candidate regularisation strengths, relative to the mean squared singular value of the inputs.
STRENGTHS = np.logspace(-8, 2, 41)
_COARSE = 4  # stride of the first, coarse search over the strengths; the neighbours of its minimum follow


class RidgeFit(NamedTuple):
    """A fitted ridge regression `y = offset + x B`.

    Parameters
    ----------
    strength
        The regularisation strength with the smallest leave-one-out error.
    offset
        ``(targets,)``.
    weights
        The matrix `B`, ``(inputs, targets)``.
    leverage
        ``(N,)``, how much each sample determines its own estimate: the leave-one-out residual is `e_i / (1 - h_i)`.
    """

    strength: float
    offset: NDArray[Any]
    weights: NDArray[Any]
    leverage: NDArray[np.float64]


class RidgeRegression:
    r"""Ridge regressions of many targets on the first `c` inputs, for any `c`, from one decomposition.

    .. math:: B = (X'X + a I)^{-1} X'Y

    with centred inputs `X` and targets `Y`. With the QR decomposition `X = Q T` (`Q` orthonormal, `T` triangular), the
    first `c` inputs are `Q_c T_c`, leading blocks of both; so `T_c = W S V'` gives their singular value decomposition
    `Q_c W S V'`, from which every strength `a` and its leave-one-out error follow. The product `Q'Y`, which dominates
    the cost, is shared by every `c`.

    Parameters
    ----------
    inputs
        ``(N, inputs)``.
    targets
        ``(N, targets)`` in memory, or samples of any size, which are gone through three times; once where they are
        large (`ScaledSamples.is_large`), the strength being chosen by the errors on the sites of their ``probe``.
    products
        Gram matrix of the centred targets, ``(N, N)``, if it is available: the leave-one-out errors then need no pass
        over the targets.
    precision
        Data type of products with the targets.

    References
    ----------
    Allen (1974), *The relationship between variable selection and data augmentation and a method for prediction*
    (PRESS, the leave-one-out error in closed form).

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> fit = RidgeRegression(x, 3 + x[:, :1], precision=np.float64).best(2)
    >>> fit.weights.round(3).ravel(), fit.offset.round(3)
    (array([1., 0.]), array([3.]))
    """

    def __init__(
        self, inputs: NDArray[Any], targets: Targets,
        *, products: NDArray[np.float64] | None = None, precision: type[np.floating[Any]] = np.float32,
    ) -> None:  # fmt: skip
        self.precision = precision
        self.centre = inputs.mean(axis=0, dtype=np.float64)
        self.basis, self.triangle = np.linalg.qr(inputs - self.centre)
        if isinstance(targets, ScaledSamples) and targets.is_large:
            self._project_once(targets)
        else:
            self._project_centred(targets, products)

    def _project_once(self, samples: ScaledSamples) -> None:
        """Means and scores in one pass, since the basis is orthogonal to a constant; errors at the probe's sites."""
        ones = np.full((len(self.basis), 1), 1 / len(self.basis))
        projected = project(np.concatenate([ones, self.basis], axis=1), samples)
        self.target_mean, self.scores = projected[0], projected[1:].astype(self.precision)
        columns = probe_columns(samples)
        probe = probe_targets(samples) - self.target_mean[columns].astype(self.precision)
        scores = self.scores[:, columns]
        self.energy = np.einsum("ij,ij->i", probe, probe).astype(np.float64)
        self.cross, self.inner = (probe @ scores.T).astype(np.float64), (scores @ scores.T).astype(np.float64)

    def _project_centred(self, targets: Targets, products: NDArray[np.float64] | None) -> None:
        """Means, then scores of the centred targets, then the products that leave-one-out errors need."""
        self.target_mean = column_sums(_blocks(targets)) / len(self.basis)
        basis = self.basis.astype(self.precision)
        self.scores = np.zeros((basis.shape[1], len(self.target_mean)), self.precision)
        for rows, columns, part in self._centred(targets):
            self.scores[:, columns] += basis[rows].T @ part
        if products is None:
            self.energy, self.cross = np.zeros(len(basis)), np.zeros(basis.shape)
            for rows, columns, part in self._centred(targets):
                self.energy[rows] += np.einsum("ij,ij->i", part, part)
                self.cross[rows] += part @ self.scores[:, columns].T
        else:
            self.energy, self.cross = np.diag(products), products @ self.basis
        self.inner = (self.scores @ self.scores.T).astype(np.float64)

    def _centred(self, targets: Targets) -> Iterator[tuple[slice, slice, NDArray[Any]]]:
        """Yield row slice, column slice and centred values of each block of the targets."""
        start, target_mean = 0, self.target_mean.astype(self.precision)
        for block in _blocks(targets):
            rows = slice(start, start + len(block))
            for columns, part in blocks_of_cells(block, target_mean, self.precision):
                yield rows, columns, part
            start += len(block)

    def best(self, count: int) -> RidgeFit:
        """Solve for the strength with the smallest leave-one-out error.

        Parameters
        ----------
        count
            How many of the inputs to regress on.

        Returns
        -------
        RidgeFit
            Strength, offset, weights, and the leverage of each sample.
        """
        rank = min(count, len(self.triangle))
        rotation, singular_values, right_vectors = np.linalg.svd(self.triangle[:rank, :count], full_matrices=False)
        squares = np.square(singular_values)
        strengths = STRENGTHS * max(float(squares.mean()), 1e-30)
        errors = np.full(len(strengths), np.inf)
        errors[::_COARSE] = self._leave_one_out(rotation, squares, strengths[::_COARSE])
        coarse = int(errors.argmin())
        near = np.arange(max(coarse - _COARSE + 1, 0), min(coarse + _COARSE, len(errors)))
        near = near[near != coarse]
        errors[near] = self._leave_one_out(rotation, squares, strengths[near])
        strength = float(strengths[int(errors.argmin())])
        solved = (right_vectors.T * (singular_values / (squares + strength))) @ rotation.T
        scores = self.scores[:rank]
        offset = self.target_mean - (self.centre[:count] @ solved).astype(self.precision) @ scores
        leverage = self._leverage(self.basis[:, :rank] @ rotation, squares / (squares + strength))
        weights = solved.astype(self.precision) @ scores
        return RidgeFit(strength, offset.astype(self.precision), weights, leverage)

    def _leave_one_out(
        self, rotation: NDArray[np.float64], squares: NDArray[np.float64], strengths: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Leave-one-out sum of squared errors for each strength.

        With `U = Q_c W` and shrinkage `D = s^2 / (s^2 + a)`, `||e_i||^2 = ||y_i||^2 - 2 u_i D (U'Y) y_i' + u_i D
        (U'Y Y'U) D u_i'`: only matrices of samples x inputs are needed, however many targets there are.
        """
        rank = len(rotation)
        left, cross = self.basis[:, :rank] @ rotation, self.cross[:, :rank] @ rotation
        inner = rotation.T @ self.inner[:rank, :rank] @ rotation
        shrinkage = squares / (squares + strengths[:, np.newaxis])
        residual = self.energy[:, np.newaxis] - 2 * (left * cross) @ shrinkage.T
        for position, shrunk in enumerate(left * one for one in shrinkage):
            residual[:, position] += np.einsum("ij,ij->i", shrunk @ inner, shrunk)
        return np.asarray((np.maximum(residual, 0) / (1 - self._leverage(left, shrinkage.T)) ** 2).sum(axis=0))

    @staticmethod
    def _leverage(left: NDArray[np.float64], shrinkage: NDArray[np.float64]) -> NDArray[np.float64]:
        """Leverage of each sample, with that of the mean; below one, so that residuals stay finite."""
        return np.asarray(np.minimum(np.square(left) @ shrinkage + 1 / len(left), 1 - 1e-9))


def _blocks(targets: Targets) -> Iterator[NDArray[Any]]:
    """Blocks of the targets, ``(n, targets)``."""
    if isinstance(targets, ScaledSamples):
        return (panel.targets.reshape(len(panel), -1) for _, panel in targets.panels())
    return iter([targets])


def nested_squared_errors(
    train: tuple[NDArray[Any], NDArray[Any]], scored: tuple[NDArray[Any], NDArray[Any]], strength: float
) -> NDArray[np.float64]:
    """Sum of squared errors of ridge regressions on the first 0, 1, 2, ... inputs.

    With `H = (X'X + a I)^-1`, the error of `X_v H X'Y` against `Y_v` is `tr(Y_v'Y_v) - 2 tr(H C_v) + tr(H C H G_v)`,
    `C = X'Y Y'X`, `C_v = X'Y Y_v'X_v`, `G_v = X_v'X_v`. One Cholesky factor `L L' = X'X + a I` serves every number of
    inputs: the traces are sums over leading blocks of `L^-1 C L^-T` and the like, so all errors together cost as much
    as one.

    Parameters
    ----------
    train, scored
        Inputs ``(N, inputs)`` and targets ``(N, targets)`` to fit on, and to score on.
    strength
        The regularisation strength, the same for every number of inputs.

    Returns
    -------
    ndarray
        ``(inputs + 1,)``; the first is the error of the training mean.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> errors = nested_squared_errors((x, x.sum(axis=1, keepdims=True)), (x, x.sum(axis=1, keepdims=True)), 1e-9)
    >>> bool(errors[0] > errors[1] > errors[2]), bool(errors[2] < 1e-6)
    (True, True)
    """
    means = [part.mean(axis=0) for part in train]
    x, y = (part - mean for part, mean in zip(train, means, strict=True))
    x_scored, y_scored = (part - mean for part, mean in zip(scored, means, strict=True))
    moments, factor = x.T @ y, np.linalg.cholesky(x.T @ x + strength * np.eye(x.shape[1]))
    explained = np.diag(_whitened(factor, moments @ (y_scored.T @ x_scored)))
    squares = _whitened(factor, moments @ moments.T) * _whitened(factor, x_scored.T @ x_scored)
    spread = np.diag(squares.cumsum(axis=0).cumsum(axis=1))
    total = float(np.square(y_scored).sum())
    return np.concatenate([[total], total - 2 * explained.cumsum() + spread])


def _whitened(factor: NDArray[np.float64], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """`L^-1 M L^-T`."""
    left = solve_triangular(factor, matrix, lower=True)
    return np.asarray(solve_triangular(factor, left.T, lower=True).T)
