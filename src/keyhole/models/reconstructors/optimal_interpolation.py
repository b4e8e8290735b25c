"""Optimal interpolation: the best linear estimate from a covariance that is localised in space."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.metric import Metric
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.projection import Targets, probe_columns, project, target_columns
from keyhole.models.reconstructors.base import flat, known
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.settings import OptimalInterpolationSettings
from keyhole.models.subsets import contiguous_folds, random_subset

__all__ = ["STRENGTHS", "OptimalInterpolation", "longest_sufficient"]

# Candidate regularisation strengths, relative to the mean variance of the features.
# Candidate length scales, relative to the extent of the sites: the radius of the sphere, or the longest side.
LENGTH_SCALES = (np.inf, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)
STRENGTHS = np.logspace(-6, 1, 29)
_INTERACTION_SCALES = (0.05, 0.1, 0.3)  # candidate scales of the interactions of readings with covariates
_CHOSEN = ("length", "strength", "share", "means")  # hyperparameters
_AS_GOOD = 1.01  # errors within this factor of the smallest count as equal


class OptimalInterpolation(LinearReconstructor):
    """Optimal interpolation `x = f B`, `B = (C_ff + a I)^-1 C_fx`, with `C = S * exp(-d / length)`.

    `S` are second moments of the scaled samples, whose mean is zero by their scaling, `*` is the entrywise (Schur)
    product, and `d` the distance between sites. Known as simple kriging in geostatistics and as optimal or statistical
    interpolation in weather forecasting. With few samples, distant sites are correlated in `S` by chance; localisation
    damps those correlations.

    The features `f` are the readings and, where there are covariates, their interactions (products) with the covariates
    times a factor ``share``, so that the regression coefficients may vary over the year. With ``means`` the mean
    depends linearly on the covariates, too. Length scale, regularisation `a` (relative to the features' mean square),
    ``share`` and ``means`` are selected by 5-fold cross-validation over contiguous blocks of samples, unless they are
    given as settings.

    With an infinite length scale and no covariates this is ridge regression without an intercept. Prefer `Ridge` where
    sites have no meaningful positions, and `Kernel` or a network where the relation is not linear.

    Parameters
    ----------
    settings
        Fields of `OptimalInterpolationSettings`, by name.

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
    >>> samples, sites = kh.read((smooth - smooth.mean(axis=0)).astype(np.float32)).as_scaled(), np.array([7, 22])
    >>> fitted = OptimalInterpolation().fit(samples, sites, validation=samples, run=Run())
    >>> fitted.reconstruct(samples.readings(sites)).shape
    (40, 1, 30)
    """

    name: ClassVar[str] = "optimal_interpolation"
    any_size: ClassVar[bool] = True
    settings_class = OptimalInterpolationSettings
    options: OptimalInterpolationSettings

    def solve(self, train: ScaledSamples, sites: NDArray[np.int64], targets: Targets, run: Run) -> None:
        """Select hyperparameters by cross-validation on the first call, then solve; see `LinearReconstructor.solve`."""
        readings, covariates = flat(train.readings(sites)), known(train.covariates, len(train))
        at = train.reading_sites(sites)
        if not self.chosen:
            subset = _subset(train, readings, targets, at, self.options, run)
            self.chosen = _choose_hyperparameters(subset, self.options)
        length, strength, share, means = (self.chosen[name] for name in ("length", "strength", "share", "means"))
        features = _interactions(readings, covariates, share)
        at = np.tile(at, features.shape[1] // max(readings.shape[1], 1))
        design = _design(covariates, means)
        inverse = np.linalg.pinv(design)
        feature_means = inverse @ features
        centred = (features - design @ feature_means).astype(np.float32)
        projected = project(np.concatenate([centred, inverse.T], axis=1), targets)
        cross, target_means = projected[: centred.shape[1]] / len(readings), projected[centred.shape[1] :]
        taper = partial(train.sites.metric.taper, at, length=length)
        auto = centred.T @ centred / len(readings) * taper(at)
        cross = cross * np.tile(taper(np.arange(len(train.sites))), train.channels)
        weights = np.linalg.solve(auto + strength * _mean_variance(auto) * np.eye(len(auto)), cross.astype(np.float64))
        mean = np.zeros((1 + covariates.shape[1], weights.shape[1]))
        mean[: len(target_means)] = target_means - feature_means @ weights
        self.offset, self.weights = mean[0].astype(np.float32), np.concatenate([weights, mean[1:]]).astype(np.float32)

    def fit_fold(self, train: ScaledSamples, sites: NDArray[np.int64], run: Run) -> OptimalInterpolation:
        """Solve for the hyperparameters of this one; see `Reconstructor.fit_fold`."""
        chosen = {name: self.chosen[name] for name in _CHOSEN} | {"means": bool(self.chosen["means"])}
        return OptimalInterpolation(**(self.settings() | chosen)).fit(train, sites, validation=train, run=run)

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


class _Data(NamedTuple):
    """Features (n, r), targets (n, t), covariates (n, c), their sites, groups of samples, and whether means vary."""

    features: NDArray[Any]
    targets: NDArray[Any]
    covariates: NDArray[np.float32]
    sites: NDArray[np.int64]
    target_sites: NDArray[np.int64]
    metric: Metric
    groups: NDArray[Any] | None
    means: bool = False

    def with_covariates(self, share: float, means: float) -> _Data:
        """Add interactions to the readings, each at the position of its reading, and let means vary."""
        features = _interactions(self.features, self.covariates, share)
        repeats = features.shape[1] // max(self.features.shape[1], 1)
        return self._replace(features=features, sites=np.tile(self.sites, repeats), means=bool(means))

    def moments(self, rows: NDArray[np.bool_] | slice) -> _Moments:
        """Estimate means and covariances from some of the samples."""
        design = self.design(rows)
        inverse = np.linalg.pinv(design)
        features, targets = self.features[rows], self.targets[rows]
        feature_means, target_means = inverse @ features, inverse @ targets
        features = (features - design @ feature_means).astype(np.float32)
        targets = (targets - design @ target_means).astype(np.float32)
        auto, cross = features.T @ features / len(design), features.T @ targets / len(design)
        return _Moments(feature_means, target_means, auto, cross)

    def tapers(self, length: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Localisation weights of the covariance of features with each other, and of features with targets."""
        taper = partial(self.metric.taper, self.sites, length=length)
        return taper(self.sites), taper(self.target_sites)

    def design(self, rows: NDArray[np.bool_] | slice) -> NDArray[np.float64]:
        """Design matrix of the mean: intercept and covariates, or no columns where the means are zero."""
        return _design(self.covariates[rows], self.means)

    def errors(self, lengths: Sequence[float], n_folds: int) -> NDArray[np.float64]:
        """Sum of squared errors over the held-out folds, for each length scale and strength."""
        errors, tapers = np.zeros((len(lengths), len(STRENGTHS))), [self.tapers(length) for length in lengths]
        for kept, held_out in contiguous_folds(len(self.features), n_folds, self.groups):
            moments, design = self.moments(kept), self.design(held_out)
            features = self.features[held_out] - design @ moments.features
            targets = (self.targets[held_out] - design @ moments.targets).astype(np.float32)
            errors += float(np.square(targets, dtype=np.float64).sum())
            for row, tapers_of_length in enumerate(tapers):
                errors[row] += _fold_errors(*moments.localised(*tapers_of_length), features, targets)
        return np.maximum(errors, 0)


class _Moments(NamedTuple):
    """Mean coefficients of features and targets, auto-covariance of features, cross-covariance with targets."""

    features: NDArray[Any]
    targets: NDArray[Any]
    auto: NDArray[np.float32]
    cross: NDArray[np.float32]

    def localised(self, auto: NDArray[np.float32], cross: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Schur products of the covariances with the tapers from `_Data.tapers`."""
        return self.auto * auto, self.cross * cross


def _subset(
    train: ScaledSamples, readings: NDArray[Any], targets: Targets, at: NDArray[np.int64],
    settings: OptimalInterpolationSettings, run: Run,
) -> _Data:  # fmt: skip
    """A random subset of samples (in order) and targets, large enough to select hyperparameters on."""
    rng, columns = run.generator("kriging"), probe_columns(train)
    rows = random_subset(len(readings), settings.max_samples, rng)
    columns = columns[random_subset(len(columns), settings.max_targets, rng)]
    return _Data(
        readings[rows], target_columns(targets, columns)[rows], known(train.covariates, len(train))[rows], at,
        columns % len(train.sites), train.sites.metric,
        None if train.sample_groups is None else train.sample_groups[rows],
    )  # fmt: skip


def _design(covariates: NDArray[np.float32], means: float) -> NDArray[np.float64]:
    """Design matrix of the mean: intercept and covariates, or no columns where the means are zero."""
    wide = covariates.astype(np.float64)
    return np.concatenate([np.ones((len(wide), 1)), wide], axis=1)[:, : None if means else 0]


def _interactions(readings: NDArray[Any], covariates: NDArray[np.float32], share: float) -> NDArray[Any]:
    """Readings, then their products with each covariate times ``share``, if that is not zero."""
    if share == 0:
        return readings
    return np.concatenate([readings, *(share * readings * column[:, np.newaxis] for column in covariates.T)], axis=1)


def _mean_variance(auto: NDArray[Any]) -> float:
    """Mean variance of the features; one if all are constant."""
    return float(np.trace(auto)) / len(auto) or 1.0


def _choose_hyperparameters(data: _Data, settings: OptimalInterpolationSettings) -> dict[str, float]:
    """Select by cross-validation error, one after the other: length scale, means, interactions; then the strength.

    ``means`` and ``share`` are each selected only if they clearly lower the error. What the settings give is kept.
    """
    given = {name: getattr(settings, name) for name in _CHOSEN}
    if None not in given.values():
        return {name: float(value) for name, value in given.items()}
    lengths = LENGTH_SCALES if settings.length is None else (settings.length,)
    without = data.errors(lengths, settings.n_folds)
    row = longest_sufficient(without.min(axis=1), 1 - settings.min_localisation_gain)
    chosen = {"length": lengths[row], "share": settings.share or 0.0, "means": float(settings.means or False)}
    best = without[row]
    if chosen["share"] or chosen["means"]:
        best = _errors_with(data, chosen, settings)
    if data.covariates.shape[1]:
        candidates = [{"means": 1.0}] if settings.means is None else []
        candidates += [{"share": share} for share in _INTERACTION_SCALES] if settings.share is None else []
        for candidate in candidates:
            errors = _errors_with(data, chosen | candidate, settings)
            if errors.min() < best.min() / _AS_GOOD:
                chosen, best = chosen | candidate, errors
    strength = float(STRENGTHS[best.argmin()]) if settings.strength is None else settings.strength
    return {**chosen, "strength": strength}


def _errors_with(
    data: _Data, chosen: dict[str, float], settings: OptimalInterpolationSettings
) -> NDArray[np.float64]:  # fmt: skip
    """Cross-validation errors for every strength, given the other hyperparameters."""
    varied = data.with_covariates(chosen["share"], chosen["means"])
    return np.asarray(varied.errors((chosen["length"],), settings.n_folds)[0])


def longest_sufficient(errors: NDArray[np.float64], worth_localising: float = 0.98) -> int:
    """Return the index of the longest length scale within tolerance of the best.

    Folds taken from the middle of a series favour short length scales: a trend that continues beyond the fold
    correlates distant sites.

    Parameters
    ----------
    errors
        Cross-validation error of each length scale, in descending order of length; the first is infinite.
    worth_localising
        Share of the first error that the smallest must be below; if not, the first length scale is returned.
    """
    if errors.min() > worth_localising * errors[0]:
        return 0
    return int(np.flatnonzero(errors <= _AS_GOOD * errors.min())[0])


def _fold_errors(
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
    inverse = 1 / (np.maximum(eigenvalues, 0) + STRENGTHS[:, np.newaxis] * _mean_variance(auto))
    return np.asarray((inverse @ square * inverse).sum(axis=1) - 2 * inverse @ linear)
