"""Kriging: the best linear estimate from a covariance that fades with distance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.models.localisation import LENGTH_SCALES, localisation, some
from keyhole.models.reconstructors.base import flat, known
from keyhole.models.reconstructors.linear import LinearReconstructor

__all__ = ["OptimalInterpolation"]

_STRENGTHS = np.logspace(-6, 1, 29)  # relative to the mean variance of the features
_SHARES = (0.05, 0.1, 0.3)  # of the products with context
_BLOCKS = 5
_WORTH_FADING, _AS_GOOD = 0.98, 1.01  # share of the error without fading to reach; of the least, to be as good
_MOST_SAMPLES, _MOST_TARGETS = 10_000, 2048  # to choose length and strength by


class OptimalInterpolation(LinearReconstructor):
    """Linear reconstruction `x = f B`, `B = (C_ff + a I)^-1 C_fx`, with `C = S * exp(-d / length)`.

    `S` are second moments of the scaled samples, whose mean is zero by their scaling, and `d` the distance between
    cells. Few samples tie far cells by chance; a covariance that fades (localisation, in weather forecasting) forgets
    that. The features `f` are the readings and, where there is context, a ``share`` of their products with it, so that
    what a reading says may change over the year; with ``means``, the mean depends on the context too. With infinite
    length and no context this is ridge. Length, strength `a` (a share of the features' mean square), share and means
    are chosen by leaving out five blocks of samples in turn.

    Parameters
    ----------
    like
        Kriging from other sites of the same signals: what context does, share and means, is as it was chosen there.
    """

    name: ClassVar[str] = "optimal_interpolation"

    def __init__(self, like: OptimalInterpolation | None = None) -> None:
        super().__init__()
        self.like = like

    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Self:
        """Fit on ``train``; the blocks left out need no validation."""
        self.channels, self.grid, self.chosen = train.channels, train.grid, {}
        places, readings = train.grid.places, flat(train.readings(sites))
        covariates = known(train.covariates, len(train))
        apart = np.repeat(places[sites], train.channels, axis=0), np.tile(places[train.grid.cells], (train.channels, 1))
        for targets in self.imputed_targets(train, readings, covariates):
            parts = _Parts(readings, targets, covariates, *apart)
            self.chosen = self.chosen or _choose(parts.fewer(run.generator("kriging")), self.like)
            self.offset, self.weights = _solve(parts, **self.chosen)
        return self

    def features(self, readings: NDArray[Any], covariates: NDArray[np.float32]) -> NDArray[Any]:
        """Readings, a share of their products with the context, and the context."""
        return np.concatenate([_products(readings, covariates, self.chosen["share"]), covariates], axis=1)


class _Parts(NamedTuple):
    """Readings (n, r), targets (n, t) and context (n, c), the places of both, and whether context moves the means."""

    readings: NDArray[Any]
    targets: NDArray[Any]
    covariates: NDArray[np.float32]
    sites: NDArray[np.float64]
    cells: NDArray[np.float64]
    means: bool = False

    def fewer(self, rng: np.random.Generator) -> _Parts:
        """Give as many samples and targets as a choice needs, samples in their order."""
        rows = some(len(self.readings), _MOST_SAMPLES, rng)
        columns = some(self.targets.shape[1], _MOST_TARGETS, rng)
        return self._replace(
            readings=self.readings[rows], targets=self.targets[rows][:, columns], covariates=self.covariates[rows],
            cells=self.cells[columns],
        )  # fmt: skip

    def with_products(self, share: float) -> _Parts:
        """Give the features in place of the readings; a product is where its reading is."""
        features = _products(self.readings, self.covariates, share)
        copies = features.shape[1] // max(self.readings.shape[1], 1)
        return self._replace(readings=features, sites=np.tile(self.sites, (copies, 1)))

    def moments(self, rows: NDArray[np.bool_] | slice) -> _Moments:
        """Estimate means and covariances from some samples."""
        design = self.design(rows)
        inverse = np.linalg.pinv(design)
        readings, targets = self.readings[rows], self.targets[rows]
        middle = inverse @ readings, inverse @ targets
        centred = (readings - design @ middle[0]).astype(np.float32)
        cross = centred.T @ (targets - design @ middle[1]).astype(np.float32)
        return _Moments(middle[0], middle[1], (centred.T @ centred) / len(design), cross / len(design))

    def fades(self, length: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """How much is left of the covariance of features with each other, and with targets."""
        return localisation(self.sites, self.sites, length), localisation(self.sites, self.cells, length)

    def design(self, rows: NDArray[np.bool_] | slice) -> NDArray[np.float64]:
        """What means depend on: one and the context, or nothing, for means of zero."""
        covariates = self.covariates[rows].astype(np.float64)
        return np.concatenate([np.ones((len(covariates), 1)), covariates], axis=1)[:, : None if self.means else 0]


class _Moments(NamedTuple):
    """Means of features and targets by the columns of the design, and covariances of features with both."""

    features: NDArray[Any]
    targets: NDArray[Any]
    own: NDArray[np.float32]
    cross: NDArray[np.float32]

    def faded(self, own: NDArray[np.float32], cross: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Covariances that fade with distance, as `_Parts.fades` tells."""
        return self.own * own, self.cross * cross


def _products(readings: NDArray[Any], covariates: NDArray[np.float32], share: float) -> NDArray[Any]:
    """Readings, then a share of their products with each column of the context, if there is to be one."""
    if share == 0:
        return readings
    columns = [share * readings * covariates[:, [column]] for column in range(covariates.shape[1])]
    return np.concatenate([readings, *columns], axis=1)


def _solve(
    parts: _Parts, length: float, strength: float, share: float, means: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Offset, and weights of the features and of the context behind them."""
    parts = parts.with_products(share)._replace(means=bool(means))
    moments = parts.moments(slice(None))
    own, cross = moments.faded(*parts.fades(length))
    weights = np.linalg.solve(own + strength * _level(own) * np.eye(len(own)), cross.astype(np.float64))
    middle = np.zeros((1 + parts.covariates.shape[1], len(parts.cells)))
    middle[: len(moments.targets)] = moments.targets - moments.features @ weights
    return middle[0].astype(np.float32), np.concatenate([weights, middle[1:]]).astype(np.float32)


def _level(own: NDArray[Any]) -> float:
    """Mean variance of the features; one where nothing varies."""
    return float(np.trace(own)) / len(own) or 1.0


def _choose(parts: _Parts, like: OptimalInterpolation | None) -> dict[str, float]:
    """Choose by the error over the blocks left out, one thing after the other: length, means, share."""
    errors = _left_out(parts, LENGTH_SCALES)
    row = _gentlest(errors.min(axis=1))
    length, best = LENGTH_SCALES[row], errors[row]
    means, share = (0.0, 0.0) if like is None else (like.chosen["means"], like.chosen["share"])
    if like is None and parts.covariates.shape[1]:
        means, share, best = _choose_context(parts, length, best)
    elif means or share:
        best = _with_context(parts, length, means, share)
    return {"length": length, "strength": float(_STRENGTHS[best.argmin()]), "share": share, "means": means}


def _choose_context(
    parts: _Parts, length: float, best: NDArray[np.float64]
) -> tuple[float, float, NDArray[np.float64]]:
    """Choose means and share, each only if it pays, and give the errors with them for every strength."""
    means = share = 0.0
    errors = _with_context(parts, length, 1.0, share)
    if errors.min() < best.min() / _AS_GOOD:
        means, best = 1.0, errors
    for tried in _SHARES:
        errors = _with_context(parts, length, means, tried)
        if errors.min() < best.min() / _AS_GOOD:
            share, best = tried, errors
    return means, share, best


def _with_context(parts: _Parts, length: float, means: float, share: float) -> NDArray[np.float64]:
    """Errors for every strength, with what context may do."""
    return np.asarray(_left_out(parts._replace(means=bool(means)).with_products(share), (length,))[0])


def _left_out(parts: _Parts, lengths: Sequence[float]) -> NDArray[np.float64]:
    """Sum of squared errors over the blocks left out, for each length and strength."""
    errors, fades = np.zeros((len(lengths), len(_STRENGTHS))), [parts.fades(length) for length in lengths]
    for kept, left in _blocks(len(parts.readings)):
        moments, design = parts.moments(kept), parts.design(left)
        readings = parts.readings[left] - design @ moments.features
        targets = (parts.targets[left] - design @ moments.targets).astype(np.float32)
        errors += float(np.square(targets, dtype=np.float64).sum())
        for row, left_of in enumerate(fades):
            errors[row] += _errors(*moments.faded(*left_of), readings, targets)
    return np.maximum(errors, 0)


def _gentlest(least: NDArray[np.float64]) -> int:
    """Place of the largest length that is about as good as the best; the first, infinite, unless fading pays.

    Blocks left out of the middle of a series flatter short lengths: a trend that goes on beyond it ties far cells.
    """
    if least.min() > _WORTH_FADING * least[0]:
        return 0
    return int(np.flatnonzero(least <= _AS_GOOD * least.min())[0])


def _blocks(count: int) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Samples kept and left out, for each of five blocks of neighbours (as many as there are samples, if fewer)."""
    number = np.arange(count) * min(_BLOCKS, count) // count
    for block in range(number[-1] + 1):
        yield number != block, number == block


def _errors(
    own: NDArray[Any], cross: NDArray[Any], readings: NDArray[Any], targets: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Sum of squared errors for every strength, less the targets' own squares.

    With `C_rr = Q diag(w) Q'`, `A = R Q` and `G = Q'C_rx` the estimate is `A diag(1 / (w + a)) G`, so that only `A'A`,
    `G G'` and the diagonal of `A'X G'` are needed for every `a`.
    """
    sizes, turn = np.linalg.eigh(own)
    turned = (readings @ turn).astype(np.float32)
    weights = (turn.T.astype(np.float32) @ cross).astype(np.float32)
    linear = np.einsum("ij,ij->i", turned.T @ targets, weights, dtype=np.float64)
    square = (turned.T @ turned).astype(np.float64) * (weights @ weights.T).astype(np.float64)
    inverse = 1 / (np.maximum(sizes, 0) + _STRENGTHS[:, np.newaxis] * _level(own))
    return np.asarray((inverse @ square * inverse).sum(axis=1) - 2 * inverse @ linear)
