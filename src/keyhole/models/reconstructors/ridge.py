"""Ridge regression from readings to the whole field, in closed form."""

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

# Candidate regularisation strengths, relative to the mean squared singular value of the readings.
_STRENGTHS = np.logspace(-8, 2, 41)
_COARSE = 4  # stride of the first, coarse search over the strengths; the neighbours of its minimum follow


class Ridge(LinearReconstructor):
    """Ridge regression `x = mean + (r - mean_r) B`, `B = (R'R + a I)^-1 R'X`.

    `R` are the centred readings of the training samples and `X` their centred fields. The regularisation strength `a`
    minimises the leave-one-out error, which the singular value decomposition `R = U S V'` gives for every strength at
    once: with leverage `h_i`, the leave-one-out residual of sample `i` is `e_i / (1 - h_i)` (PRESS). Constant and
    duplicate sites are harmless.

    The fastest reconstructor and the default linear one. With fewer samples than sites' correlations need, prefer
    `OptimalInterpolation`, which localises the covariance; for non-linear relations prefer `Kernel` or `Residual`.

    References
    ----------
    Hoerl & Kennard (1970), *Ridge regression: biased estimation for nonorthogonal problems*. Allen (1974), *The
    relationship between variable selection and data augmentation and a method for prediction* (PRESS).

    Examples
    --------
    >>> import numpy as np
    >>> import keyhole as kh
    >>> from keyhole.core.run import Run
    >>> rng = np.random.default_rng(0)
    >>> fields = np.tensordot(rng.normal(size=(60, 2)), rng.normal(size=(2, 5, 5)), axes=1)  # rank 2
    >>> samples, sites = kh.read(fields.astype(np.float32)), np.array([3, 12])
    >>> ridge = Ridge().fit(samples, sites, validation=samples, run=Run())
    >>> estimate = ridge.reconstruct(samples.readings(sites))
    >>> estimate.shape, bool(np.allclose(estimate, samples.values, atol=1e-4))
    ((60, 1, 5, 5), True)
    """

    name: ClassVar[str] = "ridge"

    @property
    def strength(self) -> float:
        """The regularisation strength selected by leave-one-out error."""
        return self.chosen["strength"]

    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Self:
        """Fit on ``train`` in closed form; ``validation`` and ``run`` are not used."""
        self.channels, self.grid = train.channels, train.grid
        readings = flat(train.readings(sites))
        products = cached_gram(train) if train.gaps is None else None
        for targets in self.imputed_targets(train, readings):
            regression = Regression(readings, partial(_in_one_block, targets), products)
            strength, self.offset, self.weights = regression.best(readings.shape[1])
        self.chosen = {"strength": strength}
        return self


class NestedRidge:
    """Ridge regressions on the first 1, 2, ... sites of a ranking, at little more than the cost of the largest.

    All of them share one QR decomposition (see `Regression`). For samples without missing values.

    Parameters
    ----------
    train
        Scaled training samples.
    sites
        Flat grid indices of the ranked sites, ``(K,)``.
    """

    def __init__(self, train: Samples, sites: NDArray[np.int64]) -> None:
        self.train = train
        targets = flat(train.valid_values())
        self._shared = Regression(flat(train.readings(sites)), partial(_in_one_block, targets), cached_gram(train))

    def first(self, count: int) -> Ridge:
        """Return the `Ridge` fitted to the first ``count`` sites."""
        return self._shared.ridge(count * self.train.channels, self.train.channels, self.train.grid)


class Regression:
    """Ridge regression of many targets on the first `c` readings, for any `c`.

    With the QR decomposition `R = Q T` (`Q` orthonormal, `T` triangular), the first `c` readings are `Q_c T_c`, leading
    blocks of both; so `T_c = W S V'` gives their singular value decomposition `Q_c W S V'`. The product `Q'Y`, which
    dominates the cost, is shared by every `c`.

    Parameters
    ----------
    readings
        ``(N, K * channels)``.
    targets
        Called to iterate over blocks ``(n, targets)`` of consecutive samples; the targets need not fit in memory.
        It is called three times, or twice if all samples come in one block.
    products
        Gram matrix of the centred targets, ``(N, N)``, if it is available: the leave-one-out errors then need no pass
        over the targets.
    """

    def __init__(
        self, readings: NDArray[Any], targets: Callable[[], Iterable[NDArray[Any]]],
        products: NDArray[np.float64] | None = None,
    ) -> None:  # fmt: skip
        self.centre = readings.mean(axis=0, dtype=np.float64)
        self.target_mean = column_sums(targets()) / len(readings)
        self.basis, self.triangle = np.linalg.qr(readings - self.centre)
        basis = self.basis.astype(np.float32)
        self.scores = np.zeros((basis.shape[1], len(self.target_mean)), np.float32)
        if products is None:
            self.energy, self.cross = self._accumulate(basis, targets)
        else:
            self.energy, self.cross = np.diag(products), products @ self.basis
            for rows, cells, part in self._centred(targets):
                self.scores[:, cells] += basis[rows].T @ part
        self.inner = (self.scores @ self.scores.T).astype(np.float64)

    def _accumulate(
        self, basis: NDArray[np.float32], targets: Callable[[], Iterable[NDArray[Any]]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Accumulate `Q'Y`; return `||y_i||^2` and `Y Y'Q`, in a second pass if there are several blocks."""
        energy, cross, one_block = np.zeros(len(basis)), np.zeros(basis.shape), False
        for rows, cells, part in self._centred(targets):
            self.scores[:, cells] += basis[rows].T @ part
            energy[rows] += np.einsum("ij,ij->i", part, part)
            one_block = rows == slice(0, len(basis))
            if one_block:  # all samples are in this block, so Q'Y is complete for these columns
                cross += part @ self.scores[:, cells].T
        for rows, cells, part in () if one_block else self._centred(targets):
            cross[rows] += part @ self.scores[:, cells].T
        return energy, cross

    def _centred(
        self, targets: Callable[[], Iterable[NDArray[Any]]]
    ) -> Iterator[tuple[slice, slice, NDArray[np.float32]]]:
        """Yield row slice, column slice and centred values of each block of the targets."""
        start, target_mean = 0, self.target_mean.astype(np.float32)
        for part in targets():
            rows = slice(start, start + len(part))
            for cells, centred in blocks_of_cells(part, target_mean, np.float32):
                yield rows, cells, centred
            start += len(part)

    def ridge(self, count: int, channels: int, grid: Grid) -> Ridge:
        """Return the `Ridge` with the best strength on the first readings.

        Parameters
        ----------
        count
            How many readings, i.e. sites times channels.
        channels, grid
            Those of the samples.
        """
        ridge_of_first = Ridge()
        ridge_of_first.channels, ridge_of_first.grid = channels, grid
        strength, ridge_of_first.offset, ridge_of_first.weights = self.best(count)
        ridge_of_first.chosen = {"strength": strength}
        return ridge_of_first

    def best(self, count: int) -> tuple[float, NDArray[np.float32], NDArray[np.float32]]:
        """Solve for the strength with the smallest leave-one-out error.

        Parameters
        ----------
        count
            How many of the readings to regress on.

        Returns
        -------
        strength : float
            The regularisation strength.
        offset : ndarray
            ``(targets,)``.
        weights : ndarray
            ``(count, targets)``.
        """
        rank = min(count, len(self.triangle))
        left_vectors, singular_values, right_vectors = np.linalg.svd(self.triangle[:rank, :count], full_matrices=False)
        strengths = _STRENGTHS * max(float(np.square(singular_values).mean()), 1e-30)
        errors = np.full(len(strengths), np.inf)
        errors[::_COARSE] = self._leave_one_out(left_vectors, singular_values, strengths[::_COARSE])
        near = _refined(int(errors.argmin()), len(errors))
        errors[near] = self._leave_one_out(left_vectors, singular_values, strengths[near])
        strength = float(strengths[int(errors.argmin())])
        solved = (right_vectors.T * (singular_values / (singular_values**2 + strength))) @ left_vectors.T
        scores = self.scores[:rank]
        weights = solved.astype(np.float32) @ scores
        offset = self.target_mean - (self.centre[:count] @ solved).astype(np.float32) @ scores
        return strength, offset.astype(np.float32), weights

    def _leave_one_out(
        self, left_vectors: NDArray[np.float64], singular_values: NDArray[np.float64], strengths: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Leave-one-out sum of squared errors for each strength.

        With `U = Q_c W` and shrinkage `D = s^2 / (s^2 + a)`, `||e_i||^2 = ||y_i||^2 - 2 u_i D (U'Y) y_i' + u_i D
        (U'Y Y'U) D u_i'`: only matrices of samples x readings are needed, however many targets there are.
        """
        rank = len(left_vectors)
        left, cross = self.basis[:, :rank] @ left_vectors, self.cross[:, :rank] @ left_vectors
        inner = left_vectors.T @ self.inner[:rank, :rank] @ left_vectors
        shrinkage = singular_values**2 / (singular_values**2 + strengths[:, np.newaxis])
        residual = self.energy[:, np.newaxis] - 2 * (left * cross) @ shrinkage.T
        for position, shrunk in enumerate(left * one for one in shrinkage):
            residual[:, position] += np.einsum("ij,ij->i", shrunk @ inner, shrunk)
        leverage = np.minimum(np.square(left) @ shrinkage.T + 1 / len(left), 1 - 1e-9)
        return np.asarray((np.maximum(residual, 0) / (1 - leverage) ** 2).sum(axis=0))


def _refined(coarse: int, count: int) -> NDArray[np.int64]:
    """Indices strictly between the coarse minimum and its coarse neighbours on both sides."""
    near = coarse + np.delete(np.arange(1 - _COARSE, _COARSE), _COARSE - 1)
    return near[(near >= 0) & (near < count)]


def _in_one_block(targets: NDArray[Any]) -> list[NDArray[Any]]:
    """Wrap targets that are in memory as a single block."""
    return [targets]


def nested_errors(
    train: Samples,
    scorer: Samples,
    sites: NDArray[np.int64],
    strength: float,
    scale: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Sum of squared errors on ``scorer`` of ridge fitted on ``train`` to the first 0, 1, ... K sites.

    With `H = (X'X + a I)^-1`, the error of `X_v H X'Y` against `Y_v` is `tr(Y_v'Y_v) - 2 tr(H C_v) + tr(H C H G_v)`,
    `C = X'Y Y'X`, `C_v = X'Y Y_v'X_v`, `G_v = X_v'X_v`. One Cholesky factor `L L' = X'X + a I` serves every number of
    sites: the traces are sums over leading blocks of `L^-1 C L^-T` and the like, so all errors together cost as much as
    one.

    Parameters
    ----------
    train, scorer
        Scaled samples to fit on and to score on.
    sites
        Flat grid indices of the ranked sites, ``(K,)``.
    strength
        The regularisation strength, the same for every number of sites.
    scale
        ``(channels,)``, factors that bring each channel to its own unit before errors are summed; None for errors of
        the scaled samples.

    Returns
    -------
    ndarray
        ``(K + 1,)``; the first is the error of the training mean.
    """
    readings, targets = flat(train.readings(sites)).astype(np.float64), _scaled(train, scale)
    scorer_readings, scorer_targets = flat(scorer.readings(sites)).astype(np.float64), _scaled(scorer, scale)
    centre, target_mean = readings.mean(axis=0), targets.mean(axis=0)
    readings, scorer_readings = readings - centre, scorer_readings - centre
    targets, scorer_targets = targets - target_mean, scorer_targets - target_mean
    moments, scorer_moments = readings.T @ targets, scorer_readings.T @ scorer_targets
    factor = np.linalg.cholesky(readings.T @ readings + strength * np.eye(readings.shape[1]))
    explained = np.cumsum(np.diag(_whitened(factor, moments @ scorer_moments.T)))
    squares = _whitened(factor, moments @ moments.T) * _whitened(factor, scorer_readings.T @ scorer_readings)
    spread = np.diag(squares.cumsum(axis=0).cumsum(axis=1))
    total = float(np.square(scorer_targets).sum())
    errors = total - 2 * explained + spread
    return np.concatenate([[total], errors[train.channels - 1 :: train.channels]])


def _whitened(factor: NDArray[np.float64], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """`L^-1 M L^-T`."""
    left = solve_triangular(factor, matrix, lower=True)
    return np.asarray(solve_triangular(factor, left.T, lower=True).T)


def _scaled(part: Samples, scale: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Values at the valid sites, ``(N, channels * valid sites)``, in the channels' own units if a scale is given."""
    packed = part.valid_values().astype(np.float64)
    return flat(packed if scale is None else packed * scale[:, np.newaxis])
