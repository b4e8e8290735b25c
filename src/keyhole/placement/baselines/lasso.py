"""Multi-task lasso and group lasso: sites with non-zero rows in a sparse linear reconstruction."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.placement.base import Selection, Selector, complete
from keyhole.placement.baselines.row_penalties import Array, GroupNorms, RowPenalty
from keyhole.placement.baselines.self_regression import Regression, regress_on_sites, site_norms
from keyhole.placement.baselines.sparse_regression import SolutionPath, SparseRegression
from keyhole.placement.settings import GroupLassoSettings, LassoSettings

__all__ = ["GroupLasso", "Lasso", "SparseRegressionSelector", "blocks"]

_HALVINGS = 6


class SparseRegressionSelector(Selector):
    r"""Base of the lassos: linear self-reconstruction of the samples from few sites, under some penalty on rows.

    .. math:: \min_W \tfrac{1}{2n} \|X - X W\|_F^2 + \alpha\,\Omega(W)

    The weight :math:`\alpha` falls until K sites are active, then is bisected to the largest that gives K. Sites are
    ranked by the norm of their rows there, not by order of entry: the first to enter stand for whole regions, and are
    outdone as others join. Solved in principal components (see `Regression`) by working sets (see `SolutionPath`).
    A subclass implements ``penalty``, and may override ``ranking``.
    """

    settings_class: ClassVar[type[LassoSettings]] = LassoSettings
    options: LassoSettings

    @abstractmethod
    def penalty(self, train: ScaledSamples, regression: Regression, k: int) -> RowPenalty:
        """Return the penalty of the rows of the regression's design.

        Parameters
        ----------
        train
            Scaled samples.
        regression
            Their regression on their own sites.
        k
            Number of sites.
        """

    def ranking(self, penalty: RowPenalty, rows: Array, norms: Array) -> NDArray[np.int64]:
        """Return all sites of the regression in rank order.

        Parameters
        ----------
        penalty
            As ``penalty`` returned it.
        rows
            The solution.
        norms
            Norm of each site's rows.
        """
        return np.argsort(-norms, kind="stable")

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Lower the weight until ``k`` sites are active."""
        regression = regress_on_sites(train, most=max(4 * k, 200))
        penalty = self.penalty(train, regression, k)
        problem = SparseRegression(regression.design, regression.targets, penalty)
        path = SolutionPath(problem, self.options.max_steps)
        alpha, rows = _sparsest(path, k, run, self.name, regression.channels)
        norms = site_norms(rows, regression.channels)
        order = self.ranking(penalty, rows, norms)
        order = order[norms[order] > 0]
        notes = {"alpha": alpha / path.highest, "active": len(order), "gap": problem.gap(rows, alpha)}
        return Selection(complete(regression.sites[order], k, train), notes=notes)


class Lasso(SparseRegressionSelector):
    r"""Multi-task lasso: linear self-reconstruction of the samples from few sites.

    .. math:: \min_W \tfrac{1}{2n} \|X - X W\|_F^2 + \alpha \sum_s \|W_s\|_F

    with one term for each site, all its channels together; see `SparseRegressionSelector`.

    Parameters
    ----------
    settings
        Fields of `LassoSettings`, by name.

    References
    ----------
    Obozinski, Taskar & Jordan (2010). Joint covariate selection and joint subspace selection for multiple
    classification problems. Statistics and Computing 20.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]).as_scaled()
    >>> Lasso().select(samples, 2, validation=None, run=Run()).sites.tolist()
    [1, 3]
    """

    name: ClassVar[str] = "lasso"

    def penalty(self, train: ScaledSamples, regression: Regression, k: int) -> RowPenalty:
        """Return the sum of the sites' norms."""
        return GroupNorms(regression.row_sites, np.ones(len(regression.sites)))


class GroupLasso(SparseRegressionSelector):
    r"""Group lasso: sites enter by square blocks of the grid, or by runs of columns.

    .. math:: \min_W \tfrac{1}{2n} \|X - X W\|_F^2 + \alpha \sum_g \sqrt{|g|}\, \|W_g\|_F

    with :math:`|g|` the number of sites of a block that may be selected; see `SparseRegressionSelector`. Blocks are
    ranked by :math:`\|W_g\|_F / \sqrt{|g|}`, and the sites of a block, by the norm of their rows, follow each other.

    Parameters
    ----------
    settings
        Fields of `GroupLassoSettings`, by name.

    References
    ----------
    Yuan & Lin (2006). Model selection and estimation in regression with grouped variables. J. R. Statist. Soc. B 68.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]).as_scaled()
    >>> GroupLasso(block_size=2).select(samples, 2, validation=None, run=Run()).sites.tolist()
    [1, 0]
    """

    name: ClassVar[str] = "group_lasso"
    settings_class: ClassVar[type[GroupLassoSettings]] = GroupLassoSettings
    options: GroupLassoSettings

    def penalty(self, train: ScaledSamples, regression: Regression, k: int) -> RowPenalty:
        """Return the sum of the blocks' norms, each with the root of its size."""
        group = blocks(train.sites.shape, train.sites.index[regression.sites], self.options.block_size)
        return GroupNorms(np.tile(group, regression.channels), np.sqrt(np.bincount(group)))

    def ranking(self, penalty: RowPenalty, rows: Array, norms: Array) -> NDArray[np.int64]:
        """Return sites block by block."""
        group = penalty.labels[: len(norms)]
        size = penalty.norms(rows) / np.sqrt(np.bincount(group))
        return np.lexsort((-norms, group, -size[group]))


def blocks(shape: tuple[int, ...], sites: NDArray[np.int64], side: int) -> NDArray[np.int64]:
    """Return the number of the block that each site is in; blocks without a site are not counted.

    Parameters
    ----------
    shape
        Of the data.
    sites
        Positions of the sites in the data, in C order.
    side
        Sites along each side of a block.

    Examples
    --------
    >>> blocks((2, 4), np.arange(8), side=2)
    array([0, 0, 1, 1, 0, 0, 1, 1])
    """
    positions = [position // side for position in np.unravel_index(sites, shape)]
    tiles = [-(-length // side) for length in shape]
    return np.unique(np.ravel_multi_index(positions, tiles), return_inverse=True)[1]


def _sparsest(path: SolutionPath, k: int, run: Run, stage: str, channels: int) -> tuple[float, Array]:
    """Return the largest weight with at least ``k`` active sites, up to a small part of a step, and the rows there.

    There are fewer where the weight is at its lowest or time is up.
    """
    penalty, most = path.problem.penalty, 0
    high = low = path.highest
    while most < k and low > penalty.lowest * path.highest and run.seconds_left() > 0:
        high, low = low, low * penalty.step
        path.go(low)
        most = max(most, _n_active(path.rows, channels))
        run.tell(Event(stage, min(most, k), k))
    best = path.rows
    for _ in range(_HALVINGS):
        if _n_active(best, channels) <= k:
            break
        middle = float(np.sqrt(low * high))
        path.go(middle)
        if _n_active(path.rows, channels) >= k:
            low, best = middle, path.rows
        else:
            high = middle
    return low, best


def _n_active(rows: Array, channels: int) -> int:
    return int(np.count_nonzero(site_norms(rows, channels)))
