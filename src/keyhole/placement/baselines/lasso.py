"""Multi-task lasso and group lasso: sites with non-zero rows in a sparse linear reconstruction."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.placement.base import Selection, Selector, complete
from keyhole.placement.baselines.group_lasso_solver import Array, GroupLassoProblem, SolutionPath
from keyhole.placement.baselines.self_regression import regress_on_sites, site_norms
from keyhole.placement.settings import GroupLassoSettings, LassoSettings

__all__ = ["GroupLasso", "Lasso", "blocks"]

_STEP = 0.9  # from one weight of the penalty to the next
_LOWEST = 1e-3  # weight, as a share of that at which all rows are zero, below which the data give no more
_HALVINGS = 6


class Lasso(Selector):
    r"""Multi-task lasso: linear self-reconstruction of the samples from few sites.

    .. math:: \min_W \tfrac{1}{2n} \|X - X W\|_F^2 + \alpha \sum_s \|W_s\|_F

    with one term for each site, all its channels together. The weight :math:`\alpha` falls until K sites are active,
    then is bisected to the largest that gives K. Sites are ranked by the norm of their rows there, not by order of
    entry: the first to enter stand for whole regions, and are outdone as others join. Solved in principal components
    (see `Regression`) by working sets (see `SolutionPath`).

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
    settings_class: ClassVar[type[LassoSettings]] = LassoSettings
    options: LassoSettings
    block_size: int = 1

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Lower the penalty until ``k`` sites are active."""
        regression = regress_on_sites(train, most=max(4 * k, 200))
        group = blocks(train.sites.shape, train.sites.index[regression.sites], self.block_size)
        labels = np.tile(group, regression.channels)
        problem = GroupLassoProblem(regression.design, regression.targets, labels, np.sqrt(np.bincount(group)))
        path = SolutionPath(problem, self.options.max_steps)
        alpha, rows = _sparsest(path, k, run, self.name, regression.channels)
        norms = site_norms(rows, regression.channels)
        order = np.lexsort((-norms, group, -(problem.norms(rows) / problem.weights)[group]))
        order = order[norms[order] > 0]
        notes = {"alpha": alpha / path.highest, "active": len(order), "gap": problem.gap(rows, alpha)}
        return Selection(complete(regression.sites[order], k, train), notes=notes)


class GroupLasso(Lasso):
    r"""Group lasso: sites enter by square blocks of the grid, or by runs of columns.

    .. math:: \min_W \tfrac{1}{2n} \|X - X W\|_F^2 + \alpha \sum_g \sqrt{|g|}\, \|W_g\|_F

    with :math:`|g|` the number of sites of a block that may be selected. The weight is found as in `Lasso`. Blocks are
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

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Lower the penalty until the active blocks hold ``k`` sites."""
        self.block_size = self.options.block_size
        return super().select(train, k, validation=validation, run=run)


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
    high = low = path.highest
    most = 0
    while most < k and low > _LOWEST * path.highest and run.seconds_left() > 0:
        high, low = low, low * _STEP
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
