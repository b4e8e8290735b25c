"""Optimal interpolation: the best linear estimate from a covariance that is localised in space."""

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

_STRENGTHS = np.logspace(-6, 1, 29)  # regularisation, relative to the mean variance of the features
_INTERACTION_SCALES = (0.05, 0.1, 0.3)  # candidate scales of the interactions of readings with covariates
_FOLDS = 5
_WORTH_LOCALISING = 0.98  # localise only if the cross-validation error falls below this share of the error without
_AS_GOOD = 1.01  # errors within this factor of the smallest count as equal
_MAX_SAMPLES, _MAX_TARGETS = 10_000, 2048  # subset on which the hyperparameters are selected


class OptimalInterpolation(LinearReconstructor):
    """Optimal interpolation `x = f B`, `B = (C_ff + a I)^-1 C_fx`, with `C = S * exp(-d / length)`.

    `S` are second moments of the scaled samples, whose mean is zero by their scaling, `*` is the entrywise (Schur)
    product, and `d` the distance between sites. Known as simple kriging in geostatistics and as optimal or statistical
    interpolation in weather forecasting. With few samples, distant sites are correlated in `S` by chance; localisation
    damps those correlations.

    The features `f` are the readings and, where there are covariates, their interactions (products) with the covariates
    times a factor ``share``, so that the regression coefficients may vary over the year. With ``means`` the mean
    depends
    linearly on the covariates, too. Length scale, regularisation `a` (relative to the features' mean square), ``share``
    and ``means`` are selected by 5-fold cross-validation over contiguous blocks of samples.

    With an infinite length scale and no covariates this is ridge regression without an intercept. Prefer `Ridge` where
    sites have no meaningful positions, and `Kernel` or a network where the relation is not linear.

    Parameters
    ----------
    like
        A fitted optimal interpolation of the same samples from other sites, whose choices of ``share`` and ``means``
        are
        taken over instead of being selected again.

    References
    ----------
    Gandin (1963), *Objective analysis of meteorological fields*. Houtekamer & Mitchell (2001), *A sequential ensemble
    Kalman filter for atmospheric data assimilation* (localisation by a Schur product). Gaspari & Cohn (1999),
    *Construction of correlation functions in two and three dimensions*.

    Examples
    --------
    >>> import numpy as np
    >>> import keyhole as kh
    >>> from keyhole.core.run import Run
    >>> rng = np.random.default_rng(0)
    >>> smooth = np.cumsum(rng.normal(size=(40, 30)), axis=1)  # 40 random walks along 30 sites
    >>> samples, sites = kh.read((smooth - smooth.mean(axis=0)).astype(np.float32)), np.array([7, 22])
    >>> fitted = OptimalInterpolation().fit(samples, sites, validation=samples, run=Run())
    >>> fitted.reconstruct(samples.readings(sites)).shape
    (40, 1, 30)
    """

    name: ClassVar[str] = "optimal_interpolation"

    def __init__(self, like: OptimalInterpolation | None = None) -> None:
        super().__init__()
        self.like = like

    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Self:
        """Fit on ``train`` in closed form, with hyperparameters selected by cross-validation within it."""
        self.channels, self.grid, self.chosen = train.channels, train.grid, {}
        positions, readings = train.grid.places, flat(train.readings(sites))
        covariates = known(train.covariates, len(train))
        located = (
            np.repeat(positions[sites], train.channels, axis=0),
            np.tile(positions[train.grid.cells], (train.channels, 1)),
        )
        for targets in self.imputed_targets(train, readings, covariates):
            parts = _Parts(readings, targets, covariates, *located)
            self.chosen = self.chosen or _choose_hyperparameters(parts.subsample(run.generator("kriging")), self.like)
            self.offset, self.weights = _solve(parts, **self.chosen)
        return self

    def features(self, readings: NDArray[Any], covariates: NDArray[np.float32]) -> NDArray[Any]:
        """Return the readings, their scaled interactions with the covariates, and the covariates.

        Parameters
        ----------
        readings
            ``(N, K * channels)``.
        covariates
            ``(N, columns)``.

        Returns
        -------
        ndarray
            ``(N, K * channels + columns)``, or ``(N, K * channels * (1 + columns) + columns)`` with interactions.
        """
        return np.concatenate([_interactions(readings, covariates, self.chosen["share"]), covariates], axis=1)


class _Parts(NamedTuple):
    """Readings (n, r), targets (n, t), covariates (n, c), positions of readings and targets, and whether means vary."""

    readings: NDArray[Any]
    targets: NDArray[Any]
    covariates: NDArray[np.float32]
    sites: NDArray[np.float64]
    cells: NDArray[np.float64]
    means: bool = False

    def subsample(self, rng: np.random.Generator) -> _Parts:
        """Return a random subset of samples (in order) and targets, large enough to select hyperparameters on."""
        rows = some(len(self.readings), _MAX_SAMPLES, rng)
        columns = some(self.targets.shape[1], _MAX_TARGETS, rng)
        return self._replace(
            readings=self.readings[rows], targets=self.targets[rows][:, columns], covariates=self.covariates[rows],
            cells=self.cells[columns],
        )  # fmt: skip

    def with_interactions(self, share: float) -> _Parts:
        """Replace the readings by readings and interactions; an interaction has the position of its reading."""
        features = _interactions(self.readings, self.covariates, share)
        repeats = features.shape[1] // max(self.readings.shape[1], 1)
        return self._replace(readings=features, sites=np.tile(self.sites, (repeats, 1)))

    def moments(self, rows: NDArray[np.bool_] | slice) -> _Moments:
        """Estimate means and covariances from some of the samples."""
        design = self.design(rows)
        inverse = np.linalg.pinv(design)
        readings, targets = self.readings[rows], self.targets[rows]
        mean_coefficients = inverse @ readings, inverse @ targets
        centred = (readings - design @ mean_coefficients[0]).astype(np.float32)
        cross = centred.T @ (targets - design @ mean_coefficients[1]).astype(np.float32)
        return _Moments(
            mean_coefficients[0], mean_coefficients[1], (centred.T @ centred) / len(design), cross / len(design)
        )

    def tapers(self, length: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Localisation weights of the covariance of features with each other, and of features with targets."""
        return localisation(self.sites, self.sites, length), localisation(self.sites, self.cells, length)

    def design(self, rows: NDArray[np.bool_] | slice) -> NDArray[np.float64]:
        """Design matrix of the mean: intercept and covariates, or no columns where the means are zero."""
        covariates = self.covariates[rows].astype(np.float64)
        return np.concatenate([np.ones((len(covariates), 1)), covariates], axis=1)[:, : None if self.means else 0]


class _Moments(NamedTuple):
    """Mean coefficients of features and targets, auto-covariance of features, cross-covariance with targets."""

    features: NDArray[Any]
    targets: NDArray[Any]
    auto: NDArray[np.float32]
    cross: NDArray[np.float32]

    def localised(self, auto: NDArray[np.float32], cross: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Schur products of the covariances with the tapers from `_Parts.tapers`."""
        return self.auto * auto, self.cross * cross


def _interactions(readings: NDArray[Any], covariates: NDArray[np.float32], share: float) -> NDArray[Any]:
    """Readings, then their products with each covariate times ``share``, if that is not zero."""
    if share == 0:
        return readings
    columns = [share * readings * covariates[:, [column]] for column in range(covariates.shape[1])]
    return np.concatenate([readings, *columns], axis=1)


def _solve(
    parts: _Parts, length: float, strength: float, share: float, means: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Offset, and weights of the features followed by those of the covariates."""
    parts = parts.with_interactions(share)._replace(means=bool(means))
    moments = parts.moments(slice(None))
    auto, cross = moments.localised(*parts.tapers(length))
    weights = np.linalg.solve(auto + strength * _mean_variance(auto) * np.eye(len(auto)), cross.astype(np.float64))
    mean_coefficients = np.zeros((1 + parts.covariates.shape[1], len(parts.cells)))
    mean_coefficients[: len(moments.targets)] = moments.targets - moments.features @ weights
    return mean_coefficients[0].astype(np.float32), np.concatenate([weights, mean_coefficients[1:]]).astype(np.float32)


def _mean_variance(auto: NDArray[Any]) -> float:
    """Mean variance of the features; one if all are constant."""
    return float(np.trace(auto)) / len(auto) or 1.0


def _choose_hyperparameters(parts: _Parts, like: OptimalInterpolation | None) -> dict[str, float]:
    """Select by cross-validation error, one after the other: length scale, means, interactions; then the strength."""
    errors = _cross_validation_errors(parts, LENGTH_SCALES)
    row = _longest_sufficient(errors.min(axis=1))
    length, best = LENGTH_SCALES[row], errors[row]
    means, share = (0.0, 0.0) if like is None else (like.chosen["means"], like.chosen["share"])
    if like is None and parts.covariates.shape[1]:
        means, share, best = _choose_covariates(parts, length, best)
    elif means or share:
        best = _errors_with_covariates(parts, length, means, share)
    return {"length": length, "strength": float(_STRENGTHS[best.argmin()]), "share": share, "means": means}


def _choose_covariates(
    parts: _Parts, length: float, best: NDArray[np.float64]
) -> tuple[float, float, NDArray[np.float64]]:
    """Select ``means`` and ``share``, each only if it lowers the error; return both and the errors by strength."""
    means = share = 0.0
    errors = _errors_with_covariates(parts, length, 1.0, share)
    if errors.min() < best.min() / _AS_GOOD:
        means, best = 1.0, errors
    for tried in _INTERACTION_SCALES:
        errors = _errors_with_covariates(parts, length, means, tried)
        if errors.min() < best.min() / _AS_GOOD:
            share, best = tried, errors
    return means, share, best


def _errors_with_covariates(parts: _Parts, length: float, means: float, share: float) -> NDArray[np.float64]:
    """Cross-validation errors for every strength, given what depends on the covariates."""
    return np.asarray(
        _cross_validation_errors(parts._replace(means=bool(means)).with_interactions(share), (length,))[0]
    )


def _cross_validation_errors(parts: _Parts, lengths: Sequence[float]) -> NDArray[np.float64]:
    """Sum of squared errors over the held-out folds, for each length scale and strength."""
    errors, tapers = np.zeros((len(lengths), len(_STRENGTHS))), [parts.tapers(length) for length in lengths]
    for kept, held_out in _folds(len(parts.readings)):
        moments, design = parts.moments(kept), parts.design(held_out)
        readings = parts.readings[held_out] - design @ moments.features
        targets = (parts.targets[held_out] - design @ moments.targets).astype(np.float32)
        errors += float(np.square(targets, dtype=np.float64).sum())
        for row, tapers_of_length in enumerate(tapers):
            errors[row] += _errors(*moments.localised(*tapers_of_length), readings, targets)
    return np.maximum(errors, 0)


def _longest_sufficient(least: NDArray[np.float64]) -> int:
    """Index of the longest length scale within tolerance of the best; 0 (infinite) unless localisation pays.

    Folds taken from the middle of a series favour short length scales: a trend that continues beyond the fold
    correlates
    distant sites.
    """
    if least.min() > _WORTH_LOCALISING * least[0]:
        return 0
    return int(np.flatnonzero(least <= _AS_GOOD * least.min())[0])


def _folds(count: int) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Masks of samples kept and held out, for each of five contiguous folds (one per sample if there are fewer)."""
    fold = np.arange(count) * min(_FOLDS, count) // count
    for held_out_fold in range(fold[-1] + 1):
        yield fold != held_out_fold, fold == held_out_fold


def _errors(
    auto: NDArray[Any], cross: NDArray[Any], readings: NDArray[Any], targets: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Sum of squared errors for every strength, minus the sum of squares of the targets.

    With `C_rr = Q diag(w) Q'`, `A = R Q` and `G = Q'C_rx` the estimate is `A diag(1 / (w + a)) G`, so that only `A'A`,
    `G G'` and the diagonal of `A'X G'` are needed for every `a`.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(auto)
    projected = (readings @ eigenvectors).astype(np.float32)
    weights = (eigenvectors.T.astype(np.float32) @ cross).astype(np.float32)
    linear = np.einsum("ij,ij->i", projected.T @ targets, weights, dtype=np.float64)
    square = (projected.T @ projected).astype(np.float64) * (weights @ weights.T).astype(np.float64)
    inverse = 1 / (np.maximum(eigenvalues, 0) + _STRENGTHS[:, np.newaxis] * _mean_variance(auto))
    return np.asarray((inverse @ square * inverse).sum(axis=1) - 2 * inverse @ linear)
