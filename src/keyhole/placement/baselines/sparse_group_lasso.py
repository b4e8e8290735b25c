"""Sparse-group lasso: few blocks of sites, and few sites in each."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from keyhole.data.scaled_samples import ScaledSamples
from keyhole.placement.baselines.lasso import SparseRegressionSelector, blocks
from keyhole.placement.baselines.row_penalties import RowPenalty, SparseGroupNorms
from keyhole.placement.baselines.self_regression import Regression
from keyhole.placement.settings import SparseGroupLassoSettings

__all__ = ["SparseGroupLasso"]


class SparseGroupLasso(SparseRegressionSelector):
    r"""Sparse-group lasso: sites enter by blocks, as in the group lasso, but not all sites of a block need enter.

    .. math:: \min_W \tfrac{1}{2n} \|X - X W\|_F^2 +
              \alpha \Big((1 - \tau) \sum_g \sqrt{|g|}\, \|W_g\|_F + \tau \sum_s \|W_s\|_F\Big)

    with :math:`|g|` the number of sites of a block that may be selected, and :math:`\tau` the ``lasso_share``: 0 is
    `GroupLasso` but for the ranking, 1 is `Lasso`. Sites are ranked by the norm of their rows; see
    `SparseRegressionSelector`.

    Parameters
    ----------
    settings
        Fields of `SparseGroupLassoSettings`, by name.

    References
    ----------
    Simon, Friedman, Hastie & Tibshirani (2013). A sparse-group lasso. J. Comput. Graph. Statist. 22.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.core.run import Run
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 4, 3]).as_scaled()
    >>> SparseGroupLasso(block_size=2).select(samples, 2, validation=None, run=Run()).sites.tolist()
    [1, 2]
    """

    name: ClassVar[str] = "sparse_group_lasso"
    settings_class: ClassVar[type[SparseGroupLassoSettings]] = SparseGroupLassoSettings
    options: SparseGroupLassoSettings

    def penalty(self, train: ScaledSamples, regression: Regression, k: int) -> RowPenalty:
        """Return the norms of blocks and of sites."""
        group = blocks(train.sites.shape, train.sites.index[regression.sites], self.options.block_size)
        labels, weights = np.tile(group, regression.channels), np.sqrt(np.bincount(group))
        return SparseGroupNorms(labels, weights, regression.row_sites, self.options.lasso_share)
