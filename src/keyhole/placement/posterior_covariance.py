"""Localised covariance of the field, and its posterior covariance given the selected sites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sgemm

from keyhole.core.run import Run
from keyhole.data.metric import Metric
from keyhole.data.observed import ObservedSamples
from keyhole.data.placed_sensors import rows_over
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.reconstructors import OptimalInterpolation
from keyhole.models.subsets import random_subset
from keyhole.placement.local_search import Objective
from keyhole.placement.settings import CovarianceLimits

__all__ = ["Covariance", "PosteriorCovariance", "fit_localised_covariance"]

_BLOCK = 8_000_000  # numbers in a block of the cross-covariance
_MIN_NOISE = 1e-3  # share of the readings' variance; without noise, adjacent sites appear informative
_DRIFT = 0.05  # share of a site's noise variance that accumulated rounding may reach before everything is recomputed


@dataclass(frozen=True, eq=False)
class Covariance:
    """Localised sample covariance of candidates and targets, `S * exp(-d / length)` elementwise.

    The sample covariance `S` is tapered by an exponential of the distance `d` (covariance localisation), which removes
    spurious long-range correlations of few samples. It is never stored as a matrix of all sites by all sites.

    Parameters
    ----------
    candidates
        ``(m,)``, numbers of the sites that may be selected.
    readings
        ``(n, m, channels)``, centred readings of the candidates divided by the square root of n.
    targets
        ``(n, t)``, values to be reconstructed, likewise (all channels of all valid sites, or a subset).
    located
        ``(t,)``, number of the site of each target.
    metric
        Distances between sites.
    length
        Length scale of the localisation; infinite for none.
    noise
        ``(m, channels)``, noise variance of each reading.
    places
        ``(m,)``, number of the site by which each candidate's distances are known: the candidate itself, or the site of
        the largest weight of a sensor.
    limits
        Limits of memory and time.

    References
    ----------
    Houtekamer & Mitchell (2001). A sequential ensemble Kalman filter for atmospheric data assimilation. Monthly Weather
    Review 129.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4))).as_scaled()
    >>> covariance = Covariance.of(samples, np.inf, 1e-3, np.random.default_rng(0))
    >>> covariance.cross.shape
    (4, 4, 1)
    """

    candidates: NDArray[np.int64]
    readings: NDArray[np.float32]
    targets: NDArray[np.float32]
    located: NDArray[np.int64]
    metric: Metric
    length: float
    noise: NDArray[np.float64]
    places: NDArray[np.int64]
    limits: CovarianceLimits = field(default_factory=CovarianceLimits)

    @classmethod
    def of(
        cls, samples: ScaledSamples, length: float, noise: float, rng: np.random.Generator, *, seconds: float = np.inf,
        limits: CovarianceLimits | None = None,
    ) -> Self:  # fmt: skip
        """Estimate the covariance from samples.

        Parameters
        ----------
        samples
            Scaled samples.
        length
            Length scale of the localisation, relative to the extent of the sites.
        noise
            Noise variance as a share of the mean variance of the readings, in addition to the sensors' own noise.
        rng
            Draws the subset of targets where not all are used.
        seconds
            Time available; where it is short, fewer targets are used.
        limits
            Limits of memory and time.

        Returns
        -------
        Covariance
            With the observable sites as candidates.
        """
        centred = _centred(samples)
        candidates = np.flatnonzero(samples.observable)
        readings = _readings(samples, centred, candidates)
        limits = limits or CovarianceLimits()
        size = int(max(limits.max_size, min(limits.max_full_size, limits.numbers_per_second * seconds)))
        columns = random_subset(centred[0].size, max(size // readings[0].size, limits.min_directions), rng)
        mean_variance = float(np.square(readings).sum()) / readings[0].size or 1.0
        return cls(
            candidates, readings, centred.reshape(len(centred), -1)[:, columns], columns % len(samples.sites),
            samples.sites.metric, length, noise * mean_variance + _sensor_noise(samples, candidates),
            _places(samples, candidates), limits,
        )  # fmt: skip

    def among(self, selected: NDArray[np.int64]) -> Covariance:
        """Restrict the candidates to those with the given indices."""
        return replace(
            self, candidates=self.candidates[selected], readings=self.readings[:, selected], noise=self.noise[selected],
            places=self.places[selected],
        )  # fmt: skip

    def with_all_cells(self, samples: ScaledSamples) -> Covariance:
        """Use all valid sites as targets, where a subset was used; ``samples`` are those it was estimated from."""
        centred = _centred(samples).reshape(len(samples), -1)
        if centred.shape == self.targets.shape:
            return self
        return replace(self, targets=centred, located=np.tile(np.arange(len(samples.sites)), samples.channels))

    def own_covariance(self) -> NDArray[np.float32]:
        """Covariance of each candidate's channels, ``(m, channels, channels)``, without noise."""
        return np.asarray(np.einsum("nmc,nmd->mcd", self.readings, self.readings))

    @cached_property
    def cross(self) -> NDArray[np.float32]:
        """Cross-covariance of targets and candidates, ``(t, m, channels)``, float32.

        Where it would have more than 10 million numbers, the targets are projected on fewer orthonormal directions,
        found by a randomised range finder (Halko et al., 2011). Only sums over the targets of products of its columns
        are ever used, and these are invariant under an orthonormal basis of the columns' span; for smooth fields a few
        directions hold nearly all of that span. A subset of the targets would not do: sites would be selected close to
        its members.

        References
        ----------
        Halko, Martinsson & Tropp (2011). Finding structure with randomness. SIAM Review 53.
        """
        width = self.readings[0].size
        count = max(self.limits.max_size // width, self.limits.min_directions)
        if self.targets.shape[1] <= count:
            return self._cross_rows(slice(None))
        count = min(count, width)  # the rank of the columns
        test_matrix = np.random.default_rng(0).normal(size=(width, count)).astype(np.float32)
        return self._project(np.linalg.qr(self._range_sketch(test_matrix))[0]).reshape(count, *self.readings.shape[1:])

    def _cross_rows(self, rows: slice) -> NDArray[np.float32]:
        """Cross-covariance of some targets with all candidates."""
        plain = np.tensordot(self.targets[:, rows], self.readings, axes=(0, 0))
        taper = self.metric.taper(self.located[rows], self.places, self.length)
        return np.asarray(plain * taper[:, :, np.newaxis])

    def _blocks(self) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Iterate over blocks of targets and their cross-covariance with all readings, ``(rows, m * channels)``."""
        step = max(1, _BLOCK // self.readings[0].size)
        for start in range(0, self.targets.shape[1], step):
            rows = slice(start, start + step)
            yield rows, self._cross_rows(rows).reshape(-1, self.readings[0].size)

    def _range_sketch(self, directions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Multiply the cross-covariance by ``directions`` from the right, ``(t, directions)``."""
        return np.concatenate([block @ directions for _, block in self._blocks()])

    def _project(self, basis: NDArray[np.float32]) -> NDArray[np.float32]:
        """Multiply the cross-covariance by the transpose of ``basis`` from the left, ``(directions, m * channels)``."""
        total = np.zeros((basis.shape[1], self.readings[0].size), np.float32)
        for rows, block in self._blocks():
            total += basis[rows].T @ block
        return total

    def with_candidates(self, candidate: int) -> NDArray[np.float32]:
        """Covariance of all candidates with one of them, ``(m, channels, channels)``, without noise."""
        plain = np.einsum("nmc,nd->mcd", self.readings, self.readings[:, candidate], optimize=True)
        taper = self.metric.taper(self.places, self.places[[candidate]], self.length)
        return np.asarray(plain * taper[:, :, np.newaxis])

    def between(self, selected: Sequence[int]) -> NDArray[np.float32]:
        """Covariance among some candidates, ``(len(selected) * channels, len(selected) * channels)``, without noise."""
        readings = self.readings[:, selected].reshape(len(self.readings), -1)
        taper = self.metric.taper(self.places[selected], self.places[selected], self.length)
        channels = self.readings.shape[2]
        return np.asarray(readings.T @ readings * np.kron(taper, np.ones((channels, channels))))


def _centred(samples: ScaledSamples) -> NDArray[np.float32]:
    """Values at the valid sites, ``(n, channels, sites)``, centred and divided by the square root of n."""
    packed = samples.targets
    return np.asarray((packed - packed.mean(axis=0)) / np.float32(np.sqrt(len(packed))))


def _readings(
    samples: ScaledSamples, targets: NDArray[np.float32], candidates: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Unweighted readings ``(n, m, channels)`` of the candidates from centred targets."""
    if isinstance(samples, ObservedSamples):
        return (
            np.asarray(rows_over(samples.over_targets[candidates], targets), np.float32)[:, :, np.newaxis]
            / (samples.level[candidates].astype(np.float32)[:, np.newaxis])
        )
    readings = targets[:, :, candidates].transpose(0, 2, 1)
    return readings if samples.root is None else readings / samples.root[candidates][:, np.newaxis]


def _sensor_noise(samples: ScaledSamples, candidates: NDArray[np.int64]) -> NDArray[np.float64]:
    """Noise variance of the candidates, known or assumed, ``(m, channels)``, in units of their readings."""
    noise = samples.search_noise(candidates)
    if isinstance(samples, ObservedSamples):
        return np.asarray((noise / np.square(samples.level[candidates])).T)
    return np.asarray((noise if samples.root is None else noise / np.square(samples.root[candidates])).T)


def _places(samples: ScaledSamples, candidates: NDArray[np.int64]) -> NDArray[np.int64]:
    """Site of each candidate."""
    return samples.home[candidates] if isinstance(samples, ObservedSamples) else candidates


def fit_localised_covariance(
    samples: ScaledSamples, sites: NDArray[np.int64], run: Run, purpose: str, limits: CovarianceLimits | None = None
) -> tuple[Covariance, dict[str, float]]:
    """Estimate the localised covariance with the length scale and noise that suit given sites.

    Both are those of optimal interpolation fitted to the sites, chosen by cross-validation over blocks of samples. If
    the measurement noise is known, the readings already contain it, and only a minimal share is added.

    Parameters
    ----------
    samples
        Scaled samples.
    sites
        Numbers of the sites to fit to, such as those of greedy selection.
    run
        Seed and deadline.
    purpose
        Names the random draw of targets on a large grid.
    limits
        Limits of memory and time.

    Returns
    -------
    covariance : Covariance
        The estimate.
    parameters : dict
        ``length`` and ``noise``.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4))).as_scaled()
    >>> covariance, parameters = fit_localised_covariance(samples, np.array([0, 2]), Run(), "show")
    >>> covariance.candidates, sorted(parameters)
    (array([0, 1, 2, 3]), ['length', 'noise'])
    """
    parameters = fit_localisation(samples, sites, run)
    rng = run.generator(f"cells to {purpose} by")
    return Covariance.of(samples, **parameters, rng=rng, seconds=run.seconds_left(), limits=limits), parameters


def fit_localisation(samples: ScaledSamples, sites: NDArray[np.int64], run: Run) -> dict[str, float]:
    """Return the ``length`` scale and ``noise`` of the localised covariance that suit given sites.

    Parameters
    ----------
    samples
        Scaled samples.
    sites
        Numbers of the sites.
    run
        Seed of the subsets by which they are chosen.
    """
    fitted = OptimalInterpolation().fit(samples, sites, validation=samples, run=run).chosen
    noise = _MIN_NOISE if samples.is_noisy else max(fitted["strength"], _MIN_NOISE)
    return {"length": fitted["length"], "noise": noise}


class PosteriorCovariance(Objective):
    """Covariance of the field given the observed sites, with rank-one updates and downdates.

    For the prior covariance `C`, observed sites `S` and noise variance `a`,

        P = C - C_xS (C_SS + a I)^-1 C_Sx.

    The trace of `P` over the targets is the expected squared error of the optimal linear estimate (A-optimality).
    Observing site j as well reduces it by `tr((P_jj + a I)^-1 P_jt P_tj)`. Removing site i adds `G b^-1 G'` to `P`,
    with `B = (C_SS + a I)^-1`, `G = C_xS B_Si` and `b = B_ii`; so the gains of all candidates after a removal cost one
    product with `P`, as many operations as the gains of one greedy step.

    Updates accumulate rounding errors, which small noise amplifies. For the observed sites the exact value is
    `P_SS = a - a B a`; where the difference grows too large, `P` is recomputed.

    Parameters
    ----------
    covariance
        Prior covariance of candidates and targets.

    Attributes
    ----------
    selected
        Indices of the observed candidates, in the order of observation.

    References
    ----------
    Rasmussen & Williams (2006), *Gaussian Processes for Machine Learning*, section 2.2.
    Chaloner & Verdinelli (1995). Bayesian experimental design: a review. Statistical Science 10.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]).as_scaled()
    >>> posterior = PosteriorCovariance(Covariance.of(samples, np.inf, 1e-3, np.random.default_rng(0)))
    >>> posterior.add(int(posterior.gains().argmax()))
    >>> posterior.selected, int(posterior.gains().argmax())
    ([1], 3)
    """

    def __init__(self, covariance: Covariance) -> None:
        self.covariance = covariance
        self.selected: list[int] = []
        self._cross, self._own = covariance.cross.copy(), covariance.own_covariance()
        self._products = _column_products(self._cross)
        self._columns: list[NDArray[np.float32]] = []  # prior covariance of all candidates with each selected one

    def copy(self) -> Self:
        """Return an independent copy; the prior covariance is shared."""
        other = super().copy()
        other._cross, other._own, other._products = self._cross.copy(), self._own.copy(), self._products.copy()
        other._columns = list(self._columns)
        return other

    def explained(self) -> float:
        """Return the reduction of the expected squared error by the observed sites, `tr(C_tS (C_SS + a I)^-1 C_St)`."""
        if not self.selected:
            return 0.0
        targets = self._targets().astype(np.float64)
        return float(np.einsum("stc,scue,ute->", targets, self._inverse(), targets, optimize=True))

    def error(self) -> float:
        """Return the expected squared error, up to the prior variance, which is constant."""
        return -self.explained()

    def best_exchange(self, position: int, gains: NDArray[np.float64]) -> tuple[int, float]:
        """Return the candidate of the largest gain, as gains are exact; the improvement is relative to its gain."""
        best, gain = int(gains.argmax()), gains[self.selected[position]]
        return best, (gains[best] - gain) / abs(gains[best]) if gains[best] > gain else 0.0

    def gains(self) -> NDArray[np.float64]:
        """Return the reduction of the error by each further candidate, ``(m,)``; minus infinity for observed ones."""
        return self._gains(self._own, self._products, self.selected)

    def add(self, candidate: int) -> None:
        """Observe one more candidate (rank-one update, of rank ``channels`` where there are several)."""
        column = self.covariance.with_candidates(candidate)
        factor = np.linalg.inv(self._own[candidate] + self._noise[candidate])
        self._rank_update(self._cross[:, candidate].copy(), -factor, self._posterior_column(column))
        self.selected.append(candidate)
        self._columns.append(column)
        self._recompute_if_drifted()

    def gains_without(self, position: int) -> NDArray[np.float64]:
        """Return the gain of each candidate, ``(m,)``, once the site at ``position`` in ``selected`` is removed.

        The removed site itself is among the candidates, with the gain of observing it again.
        """
        targets, factor, candidates = self._removal_terms(position)
        single = targets.astype(np.float32)  # otherwise the whole cross-covariance would be copied to float64
        from_left = (single.T @ self._cross.reshape(len(targets), -1)).T.reshape(*candidates.shape[:2], -1)
        half = np.einsum("mce,ef,mdf->mcd", from_left, factor, candidates, optimize=True)
        inner = factor @ (targets.T @ targets) @ factor.T
        square = self._products + half + half.transpose(0, 2, 1)
        square += np.einsum("mce,ef,mdf->mcd", candidates, inner, candidates, optimize=True)
        own = self._own + np.einsum("mce,ef,mdf->mcd", candidates, factor, candidates, optimize=True)
        return self._gains(own, square, self.selected[:position] + self.selected[position + 1 :])

    def drop(self, position: int) -> None:
        """Remove the site at ``position`` in ``selected`` (rank-one downdate)."""
        self._rank_update(*self._removal_terms(position))
        self.selected.pop(position)
        self._columns.pop(position)
        self._recompute_if_drifted()

    def replace(self, position: int, candidate: int) -> None:
        """Exchange the site at ``position`` in ``selected`` for a candidate, or for itself; it becomes the last."""
        if self.selected[position] == candidate:
            self.selected.append(self.selected.pop(position))
            self._columns.append(self._columns.pop(position))
            return
        self.drop(position)
        self.add(candidate)

    def _targets(self) -> NDArray[np.float32]:
        """Prior covariance of the targets with each selected site, ``(sites, t, channels)``."""
        return np.ascontiguousarray(np.moveaxis(self.covariance.cross[:, self.selected], 1, 0))

    @cached_property
    def _noise(self) -> NDArray[np.float64]:
        """Noise covariance of each candidate, ``(m, channels, channels)``."""
        return self.covariance.noise[:, :, np.newaxis] * np.eye(self.covariance.noise.shape[1])

    def _gains(self, own: NDArray[Any], square: NDArray[Any], selected: list[int]) -> NDArray[np.float64]:
        gains = np.einsum("mcd,mdc->m", np.linalg.inv(own + self._noise), square)
        gains[selected] = -np.inf
        return np.asarray(gains, np.float64)

    def _rank_update(self, targets: NDArray[Any], factor: NDArray[Any], candidates: NDArray[Any]) -> None:
        """Add `targets factor candidates'` to the posterior covariance."""
        scaled = candidates.reshape(-1, len(factor)) @ factor.T
        cross = self._cross.reshape(len(targets), -1)
        added = sgemm(
            1.0, scaled, targets, beta=1.0, c=cross.T, trans_b=1, overwrite_c=1
        )  # in place, without a second array
        self._cross = added.T.reshape(self._cross.shape)
        self._own += np.einsum("mce,ef,mdf->mcd", candidates, factor, candidates, optimize=True).astype(np.float32)
        self._products = _column_products(self._cross)

    def _recompute_if_drifted(self) -> None:
        """Recompute the posterior covariance where rounding errors have accumulated."""
        if not self.selected:
            return
        noise, inverse, positions = self._noise[self.selected], self._inverse(), np.arange(len(self.selected))
        exact = noise - noise @ inverse[positions, :, positions] @ noise
        if bool((np.abs(self._own[self.selected] - exact) <= _DRIFT * noise.max(axis=(1, 2), keepdims=True)).all()):
            return
        weights = np.einsum("stc,scue->tue", self._targets(), inverse, optimize=True)
        candidates = np.stack(self._columns)
        cross = self.covariance.cross - np.einsum("tue,umde->tmd", weights, candidates, optimize=True)
        own = np.einsum("smdc,scue,umfe->mdf", candidates, inverse, candidates, optimize=True)
        self._cross, self._own = cross.astype(np.float32), (self.covariance.own_covariance() - own).astype(np.float32)
        self._products = _column_products(self._cross)

    def _inverse(self) -> NDArray[np.float64]:
        """`(C_SS + a I)^-1`, ``(sites, channels, sites, channels)``."""
        count, channels = len(self.selected), self._own.shape[1]
        between = np.stack([column[self.selected] for column in self._columns], axis=2)
        size = count * channels
        matrix = between.astype(np.float64).reshape(size, size) + np.diag(self.covariance.noise[self.selected].ravel())
        return np.asarray(np.linalg.inv(matrix).reshape(count, channels, count, channels), np.float64)

    def _removal_terms(self, position: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """`G` over the targets, `b^-1`, and `G` over the candidates."""
        inverse = self._inverse()[:, :, position]
        targets = np.einsum("stc,sce->te", self._targets(), inverse, optimize=True)
        candidates = np.einsum("smdc,sce->mde", np.stack(self._columns), inverse, optimize=True)
        return targets, np.linalg.inv(inverse[position]), candidates

    def _posterior_column(self, column: NDArray[np.float32]) -> NDArray[Any]:
        """Posterior covariance of all candidates with one, given its prior column, ``(m, channels, channels)``."""
        if not self.selected:
            return column
        weights = np.einsum("scte,ted->scd", self._inverse(), column[self.selected], optimize=True)
        return np.asarray(column - np.einsum("smdc,sce->mde", np.stack(self._columns), weights, optimize=True))


def _column_products(cross: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums over the targets of products of each candidate's columns, ``(m, channels, channels)``."""
    channels = range(cross.shape[2])
    pairs = [[np.einsum("tm,tm->m", cross[:, :, one], cross[:, :, other]) for other in channels] for one in channels]
    return np.asarray(np.moveaxis(np.array(pairs), 2, 0), np.float32)
