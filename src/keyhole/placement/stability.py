"""How stable each selected site is: how often it would be selected again from other samples of the same length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.scaled_samples import ScaledSamples
from keyhole.metrics.bootstrap import block_length, resample
from keyhole.models.principal_components import principal_components
from keyhole.placement.candidates import FeasibleCandidates

__all__ = ["stability"]

_DRAWS = 30  # of the samples: the share is then known to 0.1
_MOST_CANDIDATES, _MOST_SAMPLES = 1000, 1000  # evenly spaced ones stand for more
_COMPONENTS, _MOST_COMPONENTS = 50, 256  # or two for each site
_NEARLY_THE_SAME = 0.9  # correlation from which one site does for another
_ROUNDING = 1e-5  # of sums of squares in single precision


def stability(samples: ScaledSamples, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of resampled data in which each site, or one nearly the same, is selected.

    The samples are resampled 30 times in blocks (see `keyhole.metrics.bootstrap`). Each time as many sites are selected
    greedily by the covariance of the leading principal components, two for each site and at least 50, among 1000
    candidates (fewer of several channels) and the sites themselves. A site counts as selected where one is whose values
    correlate with its own by more than 0.9. It is the selection that is resampled, not the fit: where many sets of
    sites are as good as each other, sites are not stable, and nothing is lost by it.

    Parameters
    ----------
    samples
        Scaled samples that the sites were selected on.
    sites
        Numbers of the K sites, existing ones first.

    Returns
    -------
    ndarray of shape (K,)
        From 0 to 1; NaN for existing sites, and for all of them with a target, groups, sensors apart from sites, or
        values that stay in their file.

    Examples
    --------
    >>> import keyhole as kh
    >>> values = np.random.default_rng(0).normal(size=(60, 5)) * [4, 3, 1, 1, 1]
    >>> stability(kh.read(values).as_scaled(), np.array([0, 1, 4])).round(1).tolist()[:2]
    [1.0, 1.0]
    """
    shares, n_existing = np.full(len(sites), np.nan), len(samples.existing)
    grouped = samples.constraints is not None and samples.constraints.grouping is not None
    if samples.target is not None or grouped or samples.sensors is not None or samples.is_large:
        return shares
    if n_existing == len(sites):
        return shares
    most = _MOST_CANDIDATES // samples.channels
    candidates = np.union1d(_evenly_spaced(np.flatnonzero(samples.observable), most), sites)
    existing, chosen = np.split(np.searchsorted(candidates, sites), [n_existing])
    explained = _ResampledVariance(samples, candidates, len(sites))
    for site in existing:
        explained.observe(np.full(_DRAWS, site))
    searches = [FeasibleCandidates(samples, candidates, len(chosen)) for _ in range(_DRAWS)]
    near = _correlation(samples, candidates, sites[n_existing:]) > _NEARLY_THE_SAME
    found = np.zeros((_DRAWS, len(chosen)), bool)
    for _ in chosen:
        best = [search.add_best(gain, 0.0) for search, gain in zip(searches, explained.gains(), strict=True)]
        picked = np.array([-1 if one is None else one for one in best])
        found |= near[:, picked].T & (picked >= 0)[:, np.newaxis]
        explained.observe(picked)
    shares[n_existing:] = found.mean(axis=0)
    return shares


class _ResampledVariance:
    """Variance that each candidate would explain, as in `ExplainedVariance`, by all resampled covariances at once.

    Each covariance is that of the principal scores of resampled samples, and the variance that the components do not
    resolve.
    """

    def __init__(self, samples: ScaledSamples, candidates: NDArray[np.int64], k: int) -> None:
        components = principal_components(samples, min(_MOST_COMPONENTS, max(_COMPONENTS, 2 * k)))
        rank = len(components.variances)
        rows = components.basis[:, candidates].astype(np.float32)
        resolved = np.einsum("csr,csr,r->cs", rows, rows, components.variances)
        self.unresolved = np.maximum(samples.target_variance()[:, candidates] - resolved, 0).astype(np.float32)
        self.noise = self.unresolved + samples.reading_noise(candidates).astype(np.float32)
        self.rows = rows
        some = _some(samples)
        centred = (some.targets - components.mean.astype(np.float32)).reshape(len(some), -1)
        self.matrix = _covariances(centred @ components.basis.reshape(-1, rank).astype(np.float32), samples.is_series)
        projected = np.einsum("csr,brq->bcsq", rows, self.matrix, optimize=True)
        self.own = np.einsum("bcsq,dsq->bscd", projected, rows)
        self.products = np.einsum("bcsq,bdsq->bscd", projected, projected)
        self.floor = max(_ROUNDING * float(self.own.max()), float(np.finfo(np.float32).tiny))

    def gains(self) -> NDArray[np.float64]:
        """Return the reduction of the total variance by each candidate, ``(draws, candidates)``."""
        eye = np.eye(len(self.rows), dtype=np.float32)
        first, second = self.unresolved.T[:, :, np.newaxis], self.unresolved.T[:, np.newaxis]
        removed = self.products + (first + second) * self.own + first * second * eye
        whole = self.own + (self.noise.T[:, :, np.newaxis] + self.floor) * eye
        if len(eye) == 1:
            return np.asarray((removed / np.maximum(whole, self.floor))[:, :, 0, 0], np.float64)
        return np.asarray(np.einsum("bscd,bsdc->bs", np.linalg.inv(whole), removed), np.float64)

    def observe(self, picked: NDArray[np.int64]) -> None:
        """Observe one more site in each covariance; none where it is negative."""
        for channel in range(len(self.rows)):
            rows = self.rows[channel, picked]
            covariance = np.einsum("brq,bq->br", self.matrix, rows)
            variance = np.einsum("br,br->b", covariance, rows) + self.noise[channel, picked]
            scale = np.sqrt(np.where((picked >= 0) & (variance > self.floor), variance, np.inf))
            factor = covariance / scale[:, np.newaxis]
            moved = np.einsum("brq,bq->br", self.matrix, factor)
            own, product = (np.einsum("csr,br->bsc", self.rows, one, optimize=True) for one in (factor, moved))
            square = np.einsum("br,br->b", factor, factor)[:, np.newaxis, np.newaxis, np.newaxis]
            both = own[..., np.newaxis] * own[:, :, np.newaxis]
            change = product[..., np.newaxis] * own[:, :, np.newaxis]
            self.products += both * square - change - change.swapaxes(2, 3)
            self.own -= both
            self.matrix -= factor[:, :, np.newaxis] * factor[:, np.newaxis]


def _covariances(scores: NDArray[np.float32], is_series: bool) -> NDArray[np.float32]:
    """Covariance of scores ``(n, r)`` in each draw of the samples, ``(draws, r, r)``."""
    n = len(scores)
    counts = resample(np.eye(n), block_length(scores, is_series=is_series), n_draws=_DRAWS).astype(np.float32)
    weighted = (scores * (row / row.sum())[:, np.newaxis] for row in counts)
    return np.stack([part.T @ scores for part in weighted])


def _correlation(
    samples: ScaledSamples, candidates: NDArray[np.int64], sites: NDArray[np.int64]
) -> NDArray[np.float64]:  # fmt: skip
    """Correlation of values at sites with those at candidates over samples and channels, ``(sites, candidates)``."""
    values = _some(samples).values
    ones, others = (_standardised(values[:, :, some]) for some in (sites, candidates))
    return ones.T @ others


def _some(samples: ScaledSamples) -> ScaledSamples:
    """At most 1000 evenly spaced samples, in order of time."""
    return samples.take(_evenly_spaced(samples.order_in_time(), _MOST_SAMPLES))


def _standardised(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Values ``(n, channels, sites)`` as ``(n * channels, sites)``, centred and of unit length."""
    centred = np.subtract(values, values.mean(axis=0), dtype=np.float64).reshape(-1, values.shape[2])
    length = np.sqrt(np.square(centred).sum(axis=0))
    return np.asarray(centred / np.where(length > 0, length, 1))


def _evenly_spaced(numbers: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most so many of some numbers, in their order."""
    return numbers if len(numbers) <= most else numbers[np.linspace(0, len(numbers) - 1, most).astype(np.int64)]
