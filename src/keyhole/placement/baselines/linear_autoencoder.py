"""Linear auto-encoder with a row-sparse encoder of the sites."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.placement.base import Selection, Selector, complete
from keyhole.placement.baselines.reweighted_rows import (
    Array,
    ReweightedRows,
    bisect_penalty,
    participation,
    reweighted_ridge,
)
from keyhole.placement.baselines.self_regression import Regression, regress_on_sites, site_norms

__all__ = ["Encoder", "LinearAutoencoder"]


class LinearAutoencoder(Selector):
    r"""Linear auto-encoder with an :math:`\ell_{2,1}` penalty on the encoder (after Yang et al., 2019).

    .. math:: \min_{A, B} \|X - X A B\|_F^2 + \lambda \sum_s \|A_s\|_F, \qquad B B' = I_d, \quad d = \min(K, r)

    in principal components (see `Regression`), with one term for each site, all its channels together. Alternates
    between `A`, a ridge regression whose weights follow the norms of the rows (IRLS, by the bound
    :math:`\|a\| \le \|a\|^2 / 2u + u / 2`), and `B`, a Procrustes rotation. :math:`\lambda` is bisected so that K rows
    carry the weight, by their participation number :math:`(\sum_s \|A_s\|)^2 / \sum_s \|A_s\|^2`; sites are ranked by
    the norm of their rows.

    References
    ----------
    Yang, Zhang, Nie & Li (2019). Unsupervised feature selection based on reconstruction error minimization. ICASSP.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]).as_scaled()
    >>> LinearAutoencoder().select(samples, 2, validation=None, run=Run()).sites.tolist()
    [1, 3]
    """

    name: ClassVar[str] = "linear_autoencoder"

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Find the penalty under which about ``k`` rows carry the weight."""
        regression = regress_on_sites(train, most=max(2 * k, 100))

        def fit(penalty: float) -> Array:
            return Encoder(regression, k, penalty).fit()

        penalty, norms = bisect_penalty(fit, k, run, self.name)
        order = np.argsort(-norms, kind="stable")[: np.count_nonzero(norms)]
        notes = {"penalty": penalty, "participation": participation(norms)}
        return Selection(complete(regression.sites[order], k, train), notes=notes)


class Encoder(ReweightedRows):
    """Alternating minimisation of the linear auto-encoder under one penalty; a step is O(sites r^2).

    Parameters
    ----------
    regression
        Design and targets.
    rank
        Columns of the encoder.
    penalty
        As a share of the least that leaves no row.
    """

    def __init__(self, regression: Regression, rank: int, penalty: float) -> None:
        self.targets = regression.targets
        gradient_norms = site_norms(regression.design.T @ self.targets, regression.channels)
        decoder: Array = np.eye(min(rank, len(self.targets)), len(self.targets))
        super().__init__(regression.design, regression.channels, 2 * penalty * float(gradient_norms.max()), decoder)

    @property
    def decoder(self) -> Array:
        """The decoder, ``(rank, r)``, orthonormal."""
        return self.state

    def _step(self, scales: Array) -> tuple[Array, Array, float]:
        """Return the decoder, the norms of the encoder's rows and the objective after one alternation."""
        encoder = reweighted_ridge(self.design, self.targets @ self.decoder.T, self.spread(scales))
        codes = self.design @ encoder
        left, _, right = np.linalg.svd(codes.T @ self.targets, full_matrices=False)
        decoder, norms = left @ right, site_norms(encoder, self.channels)
        loss = float(np.square(self.targets - codes @ decoder).sum())
        return decoder, norms, loss + self.weight * float(norms.sum())
