"""Low-rank covariance of a field and of what candidates read of it, and the variance that each would explain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.observed import ObservedSamples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.principal_components import components_at_sites, rounding, unresolved_variance
from keyhole.placement.explained_variance import ExplainedVariance

__all__ = ["LowRankCovariance", "SensorVariance"]

_IN_DOUBLE = 20_000_000  # numbers in a basis up to which its products are in double precision


@dataclass(frozen=True, eq=False)
class LowRankCovariance:
    """Covariance `V M V' + D` of a field by its principal components, and the rows by which candidates read it.

    Where candidates are sites, their rows are those of `V`. A sensor with the row `h` over the targets has the row
    `h V` and leaves the variance `h D h'` unresolved; the field itself stays in the space of the components.

    Parameters
    ----------
    candidates
        ``(s,)``, numbers of the observable candidates.
    rows
        ``(channels, s, r)``, their rows in the space of the components; of sensors one channel.
    variances
        ``(r,)``, the diagonal of `M`.
    samples
        The samples that it was estimated from.
    basis
        ``(channels, m, r)``, `V` at all sites, where candidates are sensors.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.data import Sensors
    >>> fields = kh.read(np.random.default_rng(0).normal(size=(40, 3, 4)))
    >>> between = Sensors.at({"row": [0.5, 1.5], "column": [1.0, 2.5]})
    >>> covariance = LowRankCovariance.of(fields.with_sensors(between).as_scaled(), 5)
    >>> covariance.rows.shape, covariance.variances.shape
    ((1, 2, 5), (5,))
    """

    candidates: NDArray[np.int64]
    rows: NDArray[np.floating[Any]]
    variances: NDArray[np.float64]
    samples: ScaledSamples
    basis: NDArray[np.floating[Any]] | None = None

    @classmethod
    def of(cls, samples: ScaledSamples, most: int) -> LowRankCovariance:
        """Estimate the covariance with at most so many components."""
        if not isinstance(samples, ObservedSamples):
            return cls(*components_at_sites(samples, most), samples)
        candidates = np.flatnonzero(samples.observable)
        _, basis, variances = components_at_sites(samples.field, most)
        flat = basis.reshape(-1, len(variances))
        rows = np.asarray(samples.over_targets[candidates] @ flat, basis.dtype)
        return cls(candidates, rows[np.newaxis], variances, samples, basis)

    def explained(self) -> ExplainedVariance | SensorVariance:
        """Return the variance that each candidate would explain, before any is observed."""
        samples, noise = self.samples, self.samples.search_noise(self.candidates)
        if not isinstance(samples, ObservedSamples) or self.basis is None:
            unresolved = unresolved_variance(samples, self.rows, self.variances)
            return ExplainedVariance(self.rows, self.variances, noise, unresolved)
        of_values = unresolved_variance(samples.field, self.basis, self.variances).ravel()
        operator = samples.over_targets[self.candidates]
        if _are_apart(operator):
            return ExplainedVariance(self.rows, self.variances, noise, of_values[operator.indices][np.newaxis])
        basis = self.basis.reshape(-1, len(self.variances))
        return SensorVariance(operator, basis, self.variances, of_values, noise[0])


class SensorVariance:
    """Variance that each sensor would explain under a covariance `C = V M V' + D`, where several may read a value.

    Sensors read `y = h x + e`. With the innovations of those observed so far, scaled to unit variance, and their
    covariances `G` with the field, the covariance of the field with another sensor is `C h - G p`, `p = G'h`, and the
    variance of its reading is `h C h + a - p'p`. Observing it explains the squared norm of the former over the latter.
    In contrast to `ExplainedVariance`, the unresolved part `D` is conditioned on as well, so that a second sensor in
    the same cell gains no more than it should.

    Parameters
    ----------
    operator
        ``(s, channels * m)`` sparse array, `h` of each sensor.
    basis
        ``(channels * m, r)``, `V`.
    variances
        ``(r,)``, the diagonal of `M`.
    unresolved
        ``(channels * m,)``, the diagonal of `D`.
    noise
        ``(s,)``, variance `a` of the noise of each reading.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> twice = csr_array(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    >>> explained = SensorVariance(twice, np.eye(2), np.array([3.0, 1.0]), np.zeros(2), np.array([1.0, 1.0, 0.0]))
    >>> explained.gains()
    array([2.25, 2.25, 1.  ])
    >>> explained.observe(0)
    >>> explained.gains().round(2)
    array([0.32, 0.32, 1.  ])
    """

    def __init__(
        self, operator: Any, basis: NDArray[np.floating[Any]], variances: NDArray[np.float64],
        unresolved: NDArray[np.float64], noise: NDArray[np.float64],
    ) -> None:  # fmt: skip
        self.operator, self.variances, self.unresolved = operator, variances, unresolved
        self.basis = basis.astype(np.float64) if basis.size <= _IN_DOUBLE else basis
        self.observed: list[NDArray[np.float64]] = []  # covariance of the field with each innovation, `G`
        self.shares: list[NDArray[np.float64]] = []  # covariance of each reading with each innovation, `p`
        rows = operator @ self.basis
        mixed = operator @ (self.unresolved[:, np.newaxis] * self.basis)
        squares = operator.power(2)
        own = np.einsum("sr,sr,r->s", rows, rows, variances, dtype=np.float64)
        self.floor = rounding(basis) * float(own.max())
        self.variance = own + squares @ unresolved + noise
        self.explained = np.einsum("sr,sr,r->s", rows, rows, np.square(variances), dtype=np.float64)
        self.explained += 2 * np.einsum("sr,sr,r->s", rows, mixed, variances, dtype=np.float64)
        self.explained += squares @ np.square(unresolved)

    def gains(self) -> NDArray[np.float64]:
        """Return the reduction of the total variance by each sensor, ``(s,)``."""
        enough = self.variance > self.floor
        gains = np.divide(self.explained, self.variance, out=np.zeros(len(enough)), where=enough)
        return np.asarray(np.maximum(gains, 0.0))

    def observe(self, site: int) -> None:
        """Observe one more sensor."""
        if self.variance[site] <= self.floor:
            return
        row = np.zeros(self.operator.shape[1])
        part = slice(self.operator.indptr[site], self.operator.indptr[site + 1])
        row[self.operator.indices[part]] = self.operator.data[part]
        field = self._times(row)
        for before, shares in zip(self.observed, self.shares, strict=True):
            field -= before * shares[site]
        field /= np.sqrt(self.variance[site])
        share, through = self.operator @ field, self.operator @ self._times(field)
        self.explained += share * (share * float(field @ field) - 2 * through)
        for before, shares in zip(self.observed, self.shares, strict=True):
            self.explained += 2 * share * shares * float(before @ field)
        self.variance -= np.square(share)
        self.observed.append(field)
        self.shares.append(share)

    def _times(self, field: NDArray[np.float64]) -> NDArray[np.float64]:
        """`C` times a field."""
        scores = self.variances * (self.basis.T @ field.astype(self.basis.dtype))
        return np.asarray(self.basis @ scores.astype(self.basis.dtype) + self.unresolved * field, np.float64)


def _are_apart(operator: Any) -> bool:
    """Whether each sensor reads one value, and no two the same."""
    one_each = bool((np.diff(operator.indptr) == 1).all() and (operator.data == 1).all())
    return one_each and len(np.unique(operator.indices)) == len(operator.indices)
