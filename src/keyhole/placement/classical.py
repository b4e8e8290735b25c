"""Classical selectors: no training, an answer in seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.core.settings import parse
from keyhole.data.samples import Samples
from keyhole.models.principal_components import components_at_sites, rounding, unresolved_variance
from keyhole.placement.base import Selection, Selector, complete
from keyhole.placement.explained_variance import ExplainedVariance
from keyhole.placement.greedy_selection import FeasibleCandidates
from keyhole.placement.settings import GreedySettings

__all__ = ["QR", "Greedy", "Random", "Variance", "rank_sites"]

_NOTHING_LEFT = 1e-10


class Random(Selector):
    """Sites drawn at random: what any method must beat."""

    name: ClassVar[str] = "random"
    nested: ClassVar[bool] = True

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Draw ``k`` of the observable sites."""
        candidates = np.flatnonzero(train.observable.ravel())
        return Selection(complete(run.generator("random sites").permutation(candidates), k, train))


class Variance(Selector):
    """The most variable sites, whether they say the same thing or not."""

    name: ClassVar[str] = "variance"
    nested: ClassVar[bool] = True

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Rank sites by variance, summed over channels."""
        return Selection(complete(np.empty(0, np.int64), k, train))


class QR(Selector):
    """Column pivots of the QR decomposition of the principal basis (Manohar et al., 2018).

    With the basis `V` of the K leading components, each pick is the site whose row of `V` has the largest part
    orthogonal to the rows already picked. A site with several channels has several rows: their squared norms add up and
    all of them are projected out. The basis grows with K, and all of it counts alike from the first pick on, so
    rankings are not nested: one for more sites, cut, was made for components that fewer sites cannot tell.
    """

    name: ClassVar[str] = "qr"

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Pick ``k`` sites; O(sites x K) a pick."""
        cells, rows, _ = components_at_sites(train, k)
        residual = np.einsum("csr,csr->s", rows, rows).astype(np.float64)
        directions = np.empty((0, rows.shape[2]))
        floor, picks = rounding(rows) * residual.max(), FeasibleCandidates(train, cells, k)
        available = train.availability()
        worth = 1.0 if available is None else available.ravel()[cells]
        while (best := picks.take(worth * residual, floor)) is not None:
            new = _orthonormal(rows[:, best].astype(np.float64), directions)
            directions = np.concatenate([directions, new])
            residual -= np.square(rows @ new.T.astype(rows.dtype)).sum(axis=(0, 2))
        return Selection(complete(picks.sites, k, train))


class Greedy(Selector):
    """Greedy column subset selection: each pick removes the most variance of the whole grid.

    With the covariance of the signals as `V M V'` (`V` orthonormal, `M = diag(variances)` at first), observing site `j`
    removes `||M v_j||^2 / (v_j' M v_j)` from the trace, after which `M` loses the rank-one part `M v_j v_j' M / (v_j' M
    v_j)`; a pick is O(sites x components) (`Explained`). Noise of a sensor adds its variance to `v_j' M v_j`. What a
    site shows beyond the components counts as variance that goes with no other site.

    Picks do not depend on those to come, so rankings are nested: exactly so with a fixed number of components, or up to
    50 sites; beyond, a ranking for more sites works with more components, and its first picks may differ, though they
    are as greedy.

    Parameters
    ----------
    settings
        Those of `GreedySettings`, by name.
    """

    name: ClassVar[str] = "greedy"
    nested: ClassVar[bool] = True

    def __init__(self, **settings: Any) -> None:
        self._settings = parse(GreedySettings, settings)

    def settings(self) -> dict[str, Any]:
        """Give the number of components."""
        return self._settings.model_dump()

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Pick ``k`` sites."""
        most = self._settings.n_components or max(4 * k, 200)
        cells, rows, variances = components_at_sites(train, most)
        alone, picks = unresolved_variance(train, rows, variances), FeasibleCandidates(train, cells, k)
        left = ExplainedVariance(rows, variances, train.reading_noise(cells), alone)
        while (best := picks.take(left.gains(), left.floor)) is not None:
            left.read(best)
        return Selection(complete(picks.sites, k, train))


def _orthonormal(rows: NDArray[np.float64], directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal directions that ``rows`` add to those already there."""
    for _ in range(2):  # once more against rounding
        rows = rows - rows @ directions.T @ directions
    _, sizes, right = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(right[sizes > _NOTHING_LEFT**0.5 * max(sizes[0], 1e-300)])


def rank_sites(train: Samples, sites: NDArray[np.int64], run: Run) -> NDArray[np.int64]:
    """Rank sites by use: each is the one that adds most to those before it."""
    among = np.zeros(train.grid.size, bool)
    among[sites] = True
    only = replace(train, observable=among.reshape(train.grid.shape))
    return Greedy().select(only, len(sites), validation=None, run=run).sites
