"""Kernel ridge regression as a surrogate of reconstructor or predictor: the error of sites in a tenth of a second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve, solve_triangular

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.metrics import Ratio
from keyhole.models.kernels import Hyperparameters, PairwiseKernel, candidates, inverse, kernel, leave_one_out, scale_of
from keyhole.models.predictors import target_of
from keyhole.models.reconstructors.base import flat
from keyhole.placement.base import subsample

__all__ = ["MAX_SCORING", "FitScoreSplit", "KernelSurrogate", "LeaveOneOutSurrogate", "target_columns"]

_MAX_FITTING, MAX_SCORING = 2000, 3000  # the cost grows faster than the square of the first
_MAX_TO_TUNE = 700  # samples used to choose the hyperparameters
# Principal components, or two for each site where that is more; few samples allow more of them.
_COMPONENTS, _COMPONENTS_OF_FEW, _FEW = 96, 256, 2000
_RIDGE_REGULARISATIONS = (1e-3, 1e-2, 1e-1, 1.0)
_SINGLE = 0.03  # regularisation from which single precision is accurate enough
_MAX_PRODUCTS = 4e9  # in the computation of a gradient
_MIN_NOISE = 1e-3  # share of a site's variance that counts as noise

Sites = Sequence[int] | NDArray[np.int64]
Values = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class FitScoreSplit:
    """Fitting and scoring subsets of the samples, with the outputs that are predicted.

    The outputs are the scores of the leading principal components of the field, or the columns of a target: the
    indicators of its classes, or its standardised numbers.

    Parameters
    ----------
    fitting, scoring
        Values at the valid sites, ``(n, channels, sites)``, centred by the mean of the first.
    readings
        The same samples as sensors observe them, ``(n, channels, sites)`` or ``(n, 1, sensors)``: unweighted, with
        measurement noise.
    basis
        ``(r, channels * sites)``, leading principal components, which stand for the values to be reconstructed.
    target
        Columns of the target of both parts, ``(n, t)``, centred by the mean of the first; None: the field is
        reconstructed.
    existing
        Numbers of sites that are observed besides the selected ones, where a target is predicted.
    order
        Positions of the scoring samples in order of time.
    groups
        Label of each scoring sample that says which belong together, in this order; None: each is alone.
    """

    fitting: Values
    scoring: Values
    readings: tuple[Values, Values]
    basis: Values
    order: NDArray[np.int64]
    groups: NDArray[Any] | None = None
    target: tuple[Values, Values] | None = None
    existing: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @cached_property
    def outputs(self) -> tuple[Values, Values]:
        """What is predicted of the fitting and of the scoring samples, ``(n, r)``."""
        if self.target is not None:
            return self.target
        return flat(self.fitting) @ self.basis.T, flat(self.scoring) @ self.basis.T

    @cached_property
    def energies(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sum of squares of each scoring sample: in total, and outside the span of the outputs."""
        whole = self.outputs[1] if self.target is not None else flat(self.scoring)
        total, within = (np.square(part, dtype=np.float64).sum(axis=1) for part in (whole, self.outputs[1]))
        return total + np.finfo(float).tiny, np.maximum(0.0, total - within)

    @cached_property
    def energy(self) -> tuple[float, float]:
        """Sum of squares of the scoring samples: in total, and outside the span of the outputs."""
        total, beyond = self.energies
        return float(total.sum()), float(beyond.sum())

    @cached_property
    def level(self) -> np.float32:
        """Overall standard deviation of the readings of the fitting samples."""
        return np.float32(max(float(self.readings[0].std()), float(np.finfo(np.float32).tiny)))

    def scale(self, standardised: bool) -> NDArray[np.float64]:
        """Divisors of the readings, ``(channels, sites)``: of each its standard deviation, or of all the same."""
        rows = flat(self.readings[0]).astype(np.float64) / self.level
        return (scale_of(rows, standardised) * self.level).reshape(self.readings[0].shape[1:])

    def fewer(self, fitting: int, scoring: int) -> Self:
        """Return at most so many samples of each part, evenly spaced."""
        first, second = _evenly_spaced(len(self.fitting), fitting), _evenly_spaced(len(self.scoring), scoring)
        readings = (self.readings[0][first], self.readings[1][second])
        order = np.arange(len(self.scoring))[second]
        target = None if self.target is None else (self.target[0][first], self.target[1][second])
        parts = replace(self, fitting=self.fitting[first], scoring=self.scoring[second], readings=readings)
        parts = replace(parts, target=target)
        return replace(parts, order=order, groups=None)

    @classmethod
    def from_samples(
        cls, train: ScaledSamples, scored: ScaledSamples | None, k: int, run: Run, *, assume_noise: bool = False
    ) -> Self:  # fmt: skip
        """Split samples, and compute the outputs: those of the target where there is one, else principal components.

        Parameters
        ----------
        train
            Scaled samples to fit on; at most 2000 are used.
        scored
            Scaled samples to score on, at most 3000. If None, a third of ``train``: drawn at random, or the last in
            time for a time series, whose neighbouring samples are too similar to be independent.
        k
            Number of sites; there are at least 2 k components.
        run
            Its seed determines the draws.
        assume_noise
            Whether readings have the noise that searches assume (`ScaledSamples.assumed_noise`).

        Returns
        -------
        FitScoreSplit
            The split.
        """
        from sklearn.utils.extmath import randomized_svd

        if scored is None:
            drawn = run.generator("samples to swap by").permutation(len(train))
            order = train.order_in_time() if train.is_series else drawn
            cut = max(1, len(train) - min(MAX_SCORING, len(train) // 3))
            train, scored = train.take(np.sort(order[:cut])), train.take(np.sort(order[cut:]))
        first = subsample(train, _MAX_FITTING, run, "samples to teach by")
        second = subsample(scored, MAX_SCORING, run, "samples to judge by")
        mean = first.targets.mean(axis=0)
        fitting, scoring = first.targets - mean, second.targets - mean
        observed = first.root is not None or first.is_noisy or first.missing is not None or first.sensors is not None
        observed = observed or first.target is not None
        readings = _readings(first, second) if observed else (fitting, scoring)
        assumed = first.assumed_noise(np.arange(readings[0].shape[2])).astype(np.float32)
        if assume_noise and assumed.any():
            rng = run.generator("noise that searches assume")
            one, other = (part + assumed * rng.standard_normal(part.shape, np.float32) for part in readings)
            readings = one, other
        order, groups = second.order_in_time(), second.sample_groups
        groups = None if groups is None else groups[order]
        if first.target is not None:
            no_basis = np.zeros((0, flat(fitting).shape[1]), np.float32)
            columns = target_columns(first), target_columns(second, first)
            return cls(fitting, scoring, readings, no_basis, order, groups, columns, first.existing)
        n_components = max(_COMPONENTS if len(fitting) > _FEW else _COMPONENTS_OF_FEW, 2 * k)
        n_components = min(n_components, *flat(fitting).shape)
        basis = randomized_svd(flat(fitting), n_components, n_iter=3, random_state=0)[2].astype(np.float32)
        return cls(fitting, scoring, readings, basis, order, groups)


class KernelSurrogate:
    """Unexplained variance of kernel ridge regression, for any set of sites; lower is better.

    The leading principal components stand for the valid sites, so that one evaluation takes about a tenth of a second.
    Where the samples have a target, it is the unexplained variance of that: of a number, or of the indicators of the
    classes.

    Parameters
    ----------
    data
        Fitting and scoring samples.
    parameters
        Hyperparameters of the kernel.

    Examples
    --------
    >>> import keyhole as kh
    >>> phase = np.linspace(0, 6, 200)[:, np.newaxis]
    >>> waves = np.sin(2 * np.pi * (phase + np.linspace(0, 1, 12)))  # travelling wave: not linear in one reading
    >>> data = FitScoreSplit.from_samples(kh.read(waves.astype(np.float32)).as_scaled(), None, 2, Run())
    >>> surrogate = KernelSurrogate.fit(data, np.array([0, 3]))
    >>> surrogate([0, 3]) < surrogate([0, 6])
    True
    """

    def __init__(self, data: FitScoreSplit, parameters: Hyperparameters) -> None:
        self.data, self.parameters = data, parameters
        self.precision: Any = np.float32 if parameters.regularisation >= _SINGLE else np.float64
        self.scale = data.scale(parameters.standardised)
        self.fitting, self.scoring = (part.astype(self.precision) for part in data.outputs)

    @classmethod
    def fit(cls, data: FitScoreSplit, sites: NDArray[np.int64]) -> Self:
        """Return the surrogate with the hyperparameters of the lowest error for these sites, on 700 samples."""
        few = data.fewer(_MAX_TO_TUNE, _MAX_TO_TUNE)
        read = np.concatenate([few.existing, sites])
        readings = flat(few.readings[0][:, :, read].transpose(0, 2, 1)) / few.level
        tried = [parameters for _, group in candidates(readings.astype(np.float64)) for parameters in group]
        return cls(data, min(tried, key=lambda parameters: cls(few, parameters)(sites)))

    def __call__(self, sites: Sites) -> float:
        """Return the unexplained variance for the sites (numbers of sites)."""
        return self._unexplained(self._residual(sites))

    def error(self, sites: Sites) -> Ratio:
        """Return the unexplained variance for the sites, sample by sample in order of time."""
        return self._ratio(self._residual(sites))

    def _residual(self, sites: Sites) -> NDArray[Any]:
        """Error of the outputs of each scoring sample, ``(n, r)``."""
        fitting, scoring = self._read(sites)
        weights = cho_solve(self._factor(kernel(fitting, fitting, self.parameters)), self.fitting)
        return np.asarray(self.scoring - kernel(scoring, fitting, self.parameters) @ weights)

    def gains(self, sites: Sites) -> NDArray[np.float64]:
        """Estimate how much the squared error falls by each site, from the slope as it begins to enter the kernel.

        Site j with weight `t` adds `t (x_j - x'_j)^2` to the squared distances and `t x_j x'_j` to the inner products;
        the slope at `t = 0` is a quadratic form in the values of j, so one backward pass serves all sites. With `A` the
        kernel among the fitting samples, `B` that between scoring and fitting samples, `V = A^-1 Y` the dual weights
        and `R = B V - Z` the residual, the gradient by `B` is `2 R V'` and by `A` it is `-2 A^-1 B' R V'`. A site
        of weight `t` is worth about `t (1 + h) / (1 + t h)` of what it is worth when it is observed in full, with `h`
        its variance given the others, relative to the regularisation: the slope is divided by `1 + h`.

        Parameters
        ----------
        sites
            Numbers of the selected sites.

        Returns
        -------
        ndarray
            One value for each valid site; only the order matters.
        """
        fitting, scoring = self._read(sites)
        among = PairwiseKernel(fitting, fitting, self.parameters)
        between = PairwiseKernel(scoring, fitting, self.parameters)
        factor, cross = self._factor(among.matrix()), between.matrix()
        weights = cho_solve(factor, self.fitting)
        residual = cross @ weights - self.scoring
        adjoint = cho_solve(factor, cross.T @ residual)
        slopes = self._slopes(among, -2 * adjoint, weights, 0) + self._slopes(between, 2 * residual, weights, 1)
        rows = slice(0, max(1, int(self._share(len(fitting), len(fitting)) * len(fitting))))
        values = solve_triangular(factor[0][rows, rows], self._all_readings[0][rows], lower=True, check_finite=False)
        return _saturated(slopes, among.mean_slope() * np.square(values).sum(axis=0))

    def linear_error(self, sites: Sites) -> Ratio:
        """Return the unexplained variance of ridge regression with the best regularisation, as `error` does."""
        index, (targets, truth) = self._observed(sites), self.data.outputs
        readings = [flat(part[:, :, index]) / self.data.level for part in self.data.readings]
        design, scored = (np.column_stack([np.ones(len(part), np.float32), part]) for part in readings)
        gram, cross, eye = design.T @ design, design.T @ targets, np.eye(design.shape[1], dtype=np.float32)
        fits = (
            solve(gram + regularisation * len(design) * eye, cross, assume_a="pos")
            for regularisation in _RIDGE_REGULARISATIONS
        )
        return min((self._ratio(truth - scored @ weights) for weights in fits), key=lambda ratio: ratio.value)

    def _slopes(self, pairs: PairwiseKernel, rows: NDArray[Any], columns: NDArray[Any], part: int) -> NDArray[Any]:
        """Slope by each site, ``(channels, sites)``, for the kernel gradient ``rows @ columns.T``, from a subset.

        With `W` the gradient by squared distances and `I` that by inner products, site j has
        `sum_i w_i x_ij^2 + sum_k w'_k x'_kj^2 + x_j' (I - 2 W) x'_j`, `w` and `w'` the row and column sums of W.
        """
        first, second = self._all_readings[part], self._all_readings[0]
        share = self._share(len(first), len(second))
        rows_used, columns_used = (slice(0, max(1, int(share * len(part)))) for part in (first, second))
        by_square, by_inner = pairs.gradients(rows[rows_used] @ columns[columns_used].T, rows_used, columns_used)
        first, second = first[rows_used], second[columns_used]
        slopes = np.einsum("ns,ns->s", first, (by_inner - 2 * by_square) @ second)
        slopes += by_square.sum(axis=1) @ np.square(first) + by_square.sum(axis=0) @ np.square(second)
        return np.asarray(slopes.reshape(self.data.readings[0].shape[1:]))

    def _share(self, n: int, m: int) -> float:
        """Share of n and of m samples that a gradient is computed from."""
        return min(1.0, math.sqrt(_MAX_PRODUCTS / (n * m * self._all_readings[0].shape[1])))

    @cached_property
    def _all_readings(self) -> list[NDArray[Any]]:
        """Scaled readings at all valid sites, ``(n, channels * sites)``."""
        return [flat(part / self.scale).astype(self.precision) for part in self.data.readings]

    def _read(self, sites: Sites) -> list[NDArray[Any]]:
        """Scaled readings of some sites and of the existing ones, ``(n, channels * K)``."""
        index = self._observed(sites)
        scaled = (part[:, :, index] / self.scale[:, index] for part in self.data.readings)
        return [flat(part).astype(self.precision) for part in scaled]

    def _observed(self, sites: Sites) -> NDArray[np.int64]:
        return np.concatenate([self.data.existing, np.asarray(sites, np.int64)])

    def _factor(self, gram: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        """Cholesky factor of the regularised kernel matrix."""
        gram[np.diag_indices(len(gram))] += self.precision(self.parameters.regularisation)
        return cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)  # type: ignore[no-any-return]

    def _unexplained(self, residual: NDArray[Any]) -> float:
        """Unexplained variance of a residual of the outputs."""
        total, beyond = self.data.energy
        return (float(np.square(residual, dtype=np.float64).sum()) + beyond) / total

    def _ratio(self, residual: NDArray[Any]) -> Ratio:
        """Unexplained variance of a residual of the outputs, sample by sample in order of time."""
        total, beyond = (part[self.data.order] for part in self.data.energies)
        error = np.square(residual, dtype=np.float64).sum(axis=1)[self.data.order] + beyond
        return Ratio(error, total).over(self.data.groups)


class LeaveOneOutSurrogate(KernelSurrogate):
    """Leave-one-out error of kernel ridge regression, in closed form, for few samples.

    All samples serve for fitting and for scoring (`FitScoreSplit.from_samples` of the same samples twice); with a few
    hundred samples, a third of them is too few to score on, and the search would overfit to it.
    """

    def _residual(self, sites: Sites) -> NDArray[Any]:
        """Leave-one-out error of the outputs of each sample, ``(n, r)``."""
        return leave_one_out(self._inverse(sites), self.fitting)

    def gains(self, sites: Sites) -> NDArray[np.float64]:
        r"""Estimate how much the leave-one-out error falls by each site.

        With `C = (K + a I)^{-1}`, `R` the leave-one-out residuals and `r_i` their rows, the gradient of the error by
        the kernel matrix is

        .. math:: -2\, C\, \mathrm{diag}(1 / C_{ii})\, R\, (C Y)' + 2\, C\, \mathrm{diag}(|r_i|^2 / C_{ii})\, C

        and gives the slope as a site begins to enter the kernel; see `KernelSurrogate.gains`.
        """
        inverse_gram, fitting = self._inverse(sites), self._read(sites)[0]
        pairs, scale = PairwiseKernel(fitting, fitting, self.parameters), np.diagonal(inverse_gram)[:, np.newaxis]
        dual = inverse_gram @ self.fitting
        residual = dual / scale
        energy = np.square(residual).sum(axis=1) / scale[:, 0]
        rows = np.hstack([-2 * inverse_gram @ (residual / scale), 2 * inverse_gram * energy])
        slopes = self._slopes(pairs, rows, np.hstack([dual, inverse_gram]), 0)
        values = self._all_readings[0]
        return _saturated(slopes, pairs.mean_slope() * np.einsum("ns,ns->s", values, inverse_gram @ values))

    def _inverse(self, sites: Sites) -> NDArray[Any]:
        fitting = self._read(sites)[0]
        return inverse(kernel(fitting, fitting, self.parameters), self.parameters.regularisation)


def _saturated(slopes: NDArray[Any], added: NDArray[Any]) -> NDArray[np.float64]:
    """Gain of each site, from slopes ``(channels, sites)`` and the relative variance that each reading adds."""
    return np.asarray(-(slopes / (1 + added.reshape(slopes.shape))).sum(axis=0), np.float64)


def _evenly_spaced(n: int, count: int) -> slice | NDArray[np.int64]:
    return slice(None) if n <= count else np.linspace(0, n - 1, count).astype(np.int64)


def _readings(first: ScaledSamples, second: ScaledSamples) -> tuple[Values, Values]:
    """Readings of sensors at all sites, for both parts, ``(n, channels, sites)``, centred by the first part."""
    mean = first.observed().mean(axis=0)
    return first.observed() - mean, second.observed() - mean


def target_columns(samples: ScaledSamples, like: ScaledSamples | None = None) -> Values:
    """Return the target as columns: indicators of the classes, or standardised numbers, centred.

    Parameters
    ----------
    samples
        Scaled samples with a target.
    like
        Samples whose mean and standard deviation are used; None: their own.
    """
    target, reference = target_of(samples), target_of(like or samples)
    if target.is_class:
        columns, others = (np.eye(len(one.classes))[one.values] for one in (target, reference))
    else:
        columns, others = (one.values[:, np.newaxis] / (reference.values.std() or 1.0) for one in (target, reference))
    return np.asarray(columns - others.mean(axis=0), np.float32)
