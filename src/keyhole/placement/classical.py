"""Classical selectors, which need no training: random, variance, QR pivoting and greedy selection."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.principal_components import rounding
from keyhole.placement.base import Selection, Selector, complete
from keyhole.placement.candidates import FeasibleCandidates
from keyhole.placement.low_rank_covariance import LowRankCovariance
from keyhole.placement.settings import GreedySettings

__all__ = ["QR", "Greedy", "Random", "Variance", "rank_sites"]

_RANK_TOLERANCE = 1e-10


class Random(Selector):
    """Sites drawn uniformly at random: the baseline that any method must beat.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]).as_scaled()
    >>> len(Random().select(samples, 2, validation=None, run=Run()).sites)
    2
    """

    name: ClassVar[str] = "random"
    quick: ClassVar[bool] = True
    any_size: ClassVar[bool] = True
    nested: ClassVar[bool] = True
    takes_sensors: ClassVar[bool] = True

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Draw ``k`` of the observable sites."""
        observable = np.flatnonzero(train.observable)
        return Selection(complete(run.generator("random sites").permutation(observable), k, train))


class Variance(Selector):
    """Sites of the largest variance, regardless of redundancy between them.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]).as_scaled()
    >>> Variance().select(samples, 2, validation=None, run=Run()).sites.tolist()
    [1, 3]
    """

    name: ClassVar[str] = "variance"
    quick: ClassVar[bool] = True
    any_size: ClassVar[bool] = True
    nested: ClassVar[bool] = True
    takes_sensors: ClassVar[bool] = True

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Rank the sites by their variance, summed over channels."""
        return Selection(complete(np.empty(0, np.int64), k, train))


class QR(Selector):
    """QR factorisation with column pivoting of the leading principal components.

    With the basis `V` of the K leading components, each step selects the site whose row of `V` has the largest
    component orthogonal to the rows already selected. A site with several channels has several rows, whose squared
    norms are added and which are all projected out. The norm is weighted by the share of the site's readings that is
    signal: its variance by these components, over that and the variance of the noise, known or assumed, and of missing
    values (`ScaledSamples.search_noise`). Components are not weighted by their variance, and their number grows with K,
    so rankings are not nested. `Greedy` accounts for the variances, and is usually better.

    References
    ----------
    Manohar, Brunton, Kutz & Brunton (2018). Data-driven sparse sensor placement. IEEE Control Systems Magazine 38.
    Drmač & Gugercin (2016). A new selection operator for the discrete empirical interpolation method. SIAM J. Sci.
    Comput. 38.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]).as_scaled()
    >>> sorted(QR().select(samples, 2, validation=None, run=Run()).sites.tolist())
    [1, 3]
    """

    name: ClassVar[str] = "qr"
    quick: ClassVar[bool] = True
    assumes_noise: ClassVar[bool] = True
    takes_sensors: ClassVar[bool] = True
    any_size: ClassVar[bool] = True

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Select ``k`` sites; O(sites x K) for each."""
        covariance = LowRankCovariance.of(train, k)
        sites, rows = covariance.candidates, covariance.rows
        residual = np.einsum("csr,csr->s", rows, rows).astype(np.float64)
        directions = np.empty((0, rows.shape[2]))
        floor, candidates = rounding(rows) * residual.max(), FeasibleCandidates(train, sites, k)
        signal = np.einsum("csr,csr,r->s", rows, rows, covariance.variances, dtype=np.float64)
        noise = train.search_noise(sites).sum(axis=0)
        weight = np.divide(signal, signal + noise, out=np.zeros_like(signal), where=signal > 0)
        while (best := candidates.add_best(weight * residual, floor)) is not None:
            added = _orthonormal(rows[:, best].astype(np.float64), directions)
            directions = np.concatenate([directions, added])
            residual -= np.square(rows @ added.T.astype(rows.dtype)).sum(axis=(0, 2))
        return Selection(complete(candidates.sites, k, train))


class Greedy(Selector):
    """Greedy column subset selection: each step reduces the variance of the whole grid most.

    With the covariance of the samples as `V M V'` (`V` orthonormal, `M = diag(variances)` initially), observing site
    `j` reduces the trace of the posterior covariance by `||M v_j||^2 / (v_j' M v_j)`, after which `M` loses the
    rank-one part `M v_j v_j' M / (v_j' M v_j)` (greedy A-optimal design, see `ExplainedVariance`). Measurement noise
    adds its variance to `v_j' M v_j`. The variance of a site that the components do not resolve counts as uncorrelated
    with all other sites. A step is O(sites x components).

    Rankings are nested with a fixed number of components, and up to 50 sites; for more sites more components are used,
    and the first sites may differ. `Exchange` improves the result by local search.

    Parameters
    ----------
    settings
        Fields of `GreedySettings`, by name.

    References
    ----------
    Krause, Singh & Guestrin (2008). Near-optimal sensor placements in Gaussian processes. JMLR 9.
    Farahat, Elgohary, Ghodsi & Kamel (2015). Greedy column subset selection for large-scale data sets. Knowledge and
    Information Systems 45.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]).as_scaled()
    >>> Greedy(n_components=3).select(samples, 2, validation=None, run=Run()).sites.tolist()
    [1, 3]
    """

    name: ClassVar[str] = "greedy"
    quick: ClassVar[bool] = True
    any_size: ClassVar[bool] = True
    nested: ClassVar[bool] = True
    assumes_noise: ClassVar[bool] = True
    takes_sensors: ClassVar[bool] = True
    settings_class: ClassVar[type[GreedySettings]] = GreedySettings
    options: GreedySettings

    @staticmethod
    def components_for(k: int) -> int:
        """Return the default number of components for ``k`` sites."""
        return max(4 * k, 200)

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Select ``k`` sites."""
        covariance = LowRankCovariance.of(train, self.options.n_components or self.components_for(k))
        explained, candidates = covariance.explained(), FeasibleCandidates(train, covariance.candidates, k)
        while (best := candidates.add_best(explained.gains(), explained.floor)) is not None:
            explained.observe(best)
        return Selection(complete(candidates.sites, k, train))


def _orthonormal(rows: NDArray[np.float64], directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal basis of the part of ``rows`` that is orthogonal to ``directions``."""
    for _ in range(2):  # twice, against rounding errors
        rows = rows - rows @ directions.T @ directions
    _, sizes, right = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(right[sizes > _RANK_TOLERANCE**0.5 * max(sizes[0], 1e-300)])


def rank_sites(
    train: ScaledSamples, sites: NDArray[np.int64], run: Run, *, selector: Selector | None = None
) -> NDArray[np.int64]:  # fmt: skip
    """Rank given sites by selection among them.

    Parameters
    ----------
    train
        Scaled samples.
    sites
        Numbers of the sites.
    run
        Seed and progress.
    selector
        The selector that ranks; None: greedy selection.

    Returns
    -------
    ndarray
        The same sites, each the one that adds most to those before it.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]).as_scaled()
    >>> rank_sites(samples, np.array([0, 2, 3]), Run()).tolist()
    [3, 2, 0]
    """
    among = np.zeros(len(train.observable), bool)
    among[sites] = True
    only = replace(train, observable=among)
    return (selector or Greedy()).select(only, len(sites), validation=None, run=run).sites
