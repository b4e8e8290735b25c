"""Regularised self-representation: the samples from few of their own sites, robust against outlying samples."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.principal_components import principal_components
from keyhole.placement.base import Selection, Selector, complete, subsample
from keyhole.placement.baselines.reweighted_rows import (
    Array,
    ReweightedRows,
    bisect_penalty,
    participation,
    reweighted_ridge,
)
from keyhole.placement.baselines.self_regression import site_norms
from keyhole.placement.settings import SelfRepresentationSettings

__all__ = ["RobustRows", "SelfRepresentation"]

_SMOOTHING = 1e-6  # of the norm of a residual, relative to the root mean square of the samples' norms


class SelfRepresentation(Selector):
    r"""Regularised self-representation (RSR): sites that represent all others, with norms instead of squares.

    .. math:: \min_W \|X - X W\|_{2,1} + \lambda \|W\|_{2,1}
              = \min_W \sum_i \|x_i - x_i W\| + \lambda \sum_s \|W_s\|_F

    over samples `i` and sites `s`, all channels of a site together: the lasso (`Lasso`) with a loss in which an
    outlying sample counts by its distance, not by the square. By iteratively reweighted least squares, in principal
    components. :math:`\lambda` is bisected so that K rows carry the weight, by their participation number, as in
    `LinearAutoencoder`; sites are ranked by the norm of their rows. At most 2000 samples are used, drawn by the run's
    seed.

    Parameters
    ----------
    settings
        Fields of `SelfRepresentationSettings`, by name.

    References
    ----------
    Zhu, Zuo, Zhang, Hu & Shiu (2015). Unsupervised feature selection by regularized self-representation. Pattern
    Recognition 48.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]).as_scaled()
    >>> SelfRepresentation().select(samples, 2, validation=None, run=Run()).sites.tolist()
    [1, 3]
    """

    name: ClassVar[str] = "self_representation"
    settings_class: ClassVar[type[SelfRepresentationSettings]] = SelfRepresentationSettings
    options: SelfRepresentationSettings

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Find the penalty under which about ``k`` rows carry the weight."""
        some = subsample(train, self.options.max_samples, run, "samples to represent")
        components = principal_components(some, max(2 * k, 100))
        centred = (some.targets - components.mean).reshape(len(some), -1)
        scores = np.asarray(centred @ components.basis.reshape(centred.shape[1], -1), np.float64)
        rows = np.asarray(components.basis[:, some.observable].reshape(-1, scores.shape[1]), np.float64)

        def fit(penalty: float) -> Array:
            return RobustRows(scores, rows, train.channels, penalty).fit()

        penalty, norms = bisect_penalty(fit, k, run, self.name)
        order = np.argsort(-norms, kind="stable")[: np.count_nonzero(norms)]
        notes = {"penalty": penalty, "participation": participation(norms)}
        return Selection(complete(np.flatnonzero(some.observable)[order], k, train), notes=notes)


class RobustRows(ReweightedRows):
    r"""Self-representation under one penalty, in principal components.

    With the samples' scores `Z` and the rows :math:`V_o` of the observable sites, :math:`W = A V'` and
    :math:`\|x_i - x_i W\| = \|z_i - z_i V_o' A\|`, as in `Regression`. In a step the norms of residuals are bounded as
    those of rows are: sample `i` has the weight :math:`g_i = 1 / (2 \|r_i\|)`, and with the triangular factor of
    :math:`Z' G Z = R'R` the weighted loss is :math:`\|R - R V_o' A\|_F^2`, a ridge regression of `r` equations. Norms
    of residuals are smoothed, :math:`\sqrt{\|r\|^2 + \epsilon^2}`, by a millionth of the samples' typical norm. The
    state is the norms of the residuals.

    Parameters
    ----------
    scores
        `Z`, ``(n, r)``.
    rows
        :math:`V_o`, ``(channels * sites, r)``.
    channels
        Rows that one site has.
    penalty
        As a share of the least that leaves no row.
    """

    def __init__(self, scores: Array, rows: Array, channels: int, penalty: float) -> None:
        self.scores = scores
        self.smoothing = _SMOOTHING * float(np.sqrt(np.square(scores).sum(axis=1).mean()))
        lengths = self._smooth(scores)
        gradient = rows @ (scores.T @ (scores / lengths[:, np.newaxis]))
        super().__init__(rows.T, channels, penalty * float(site_norms(gradient, channels).max()), lengths)

    def _smooth(self, residual: Array) -> Array:
        return np.asarray(np.sqrt(np.square(residual).sum(axis=1) + self.smoothing**2))

    def _step(self, scales: Array) -> tuple[Array, Array, float]:
        """Return the norms of the residuals and of the rows, and the objective after one reweighting of both."""
        root = np.linalg.qr(self.scores / np.sqrt(2 * self.state)[:, np.newaxis]).R
        rows = reweighted_ridge(root @ self.design, root, self.spread(scales))
        lengths = self._smooth(self.scores - self.scores @ (self.design @ rows))
        norms = site_norms(rows, self.channels)
        return lengths, norms, float(lengths.sum()) + self.weight * float(norms.sum())
