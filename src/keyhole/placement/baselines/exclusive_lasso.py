"""Exclusive lasso: sites compete within blocks, so that every block keeps one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.data.scaled_samples import ScaledSamples
from keyhole.placement.baselines.lasso import SparseRegressionSelector, blocks
from keyhole.placement.baselines.row_penalties import ExclusiveNorms, RowPenalty
from keyhole.placement.baselines.self_regression import Regression
from keyhole.placement.settings import ExclusiveLassoSettings

__all__ = ["ExclusiveLasso", "smallest_blocks"]


class ExclusiveLasso(SparseRegressionSelector):
    r"""Exclusive lasso: the sites of a block compete, those of different blocks do not.

    .. math:: \min_W \tfrac{1}{2n} \|X - X W\|_F^2 + \tfrac{\alpha}{2} \sum_g \Big(\sum_{s \in g} \|W_s\|_F\Big)^2

    The opposite of the group lasso: however large :math:`\alpha`, every block that explains anything keeps a site. So
    by default blocks are the smallest of which there are at most K; with smaller ones, only the K largest rows count.
    Sites are ranked by the norm of their rows; see `SparseRegressionSelector`.

    Parameters
    ----------
    settings
        Fields of `ExclusiveLassoSettings`, by name.

    References
    ----------
    Zhou, Jin & Hoi (2010). Exclusive lasso for multi-task feature selection. AISTATS. Campbell & Allen (2017). Within
    group variable selection through the exclusive lasso. Electron. J. Statist. 11.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.core.run import Run
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [4, 5, 2, 3]).as_scaled()
    >>> ExclusiveLasso().select(samples, 2, validation=None, run=Run()).sites.tolist()  # one of each half
    [1, 3]
    """

    name: ClassVar[str] = "exclusive_lasso"
    settings_class: ClassVar[type[ExclusiveLassoSettings]] = ExclusiveLassoSettings
    options: ExclusiveLassoSettings

    def penalty(self, train: ScaledSamples, regression: Regression, k: int) -> RowPenalty:
        """Return the squared sums of the norms in each block."""
        shape, index = train.sites.shape, train.sites.index[regression.sites]
        side = self.options.block_size
        groups = smallest_blocks(shape, index, k) if side is None else blocks(shape, index, side)
        return ExclusiveNorms(regression.row_sites, groups)


def smallest_blocks(shape: tuple[int, ...], sites: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return the block of each site, for the smallest blocks of which there are at most ``most``.

    Parameters
    ----------
    shape, sites
        As `blocks` takes them.
    most
        Largest number of blocks.

    Examples
    --------
    >>> smallest_blocks((2, 4), np.arange(8), most=3)
    array([0, 0, 1, 1, 0, 0, 1, 1])
    """
    side = 1
    while (found := blocks(shape, sites, side)).max() >= most:
        side += 1
    return found
