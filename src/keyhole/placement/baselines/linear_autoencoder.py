"""Linear auto-encoder with a row-sparse encoder of the sites."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.data.samples import ScaledSamples
from keyhole.placement.base import Selection, Selector, complete
from keyhole.placement.baselines.self_regression import Regression, regress_on_sites, site_norms

__all__ = ["Encoder", "LinearAutoencoder", "reweighted_ridge"]

_BISECTIONS = 12
_LOWEST = 1e-6  # weight of the penalty, as a share of that which leaves no row
_MOST_STEPS = 200
_LAST_STEPS = 5
_SETTLED = 1e-6  # relative fall of the objective over the last steps at which they end
_DEAD = 1e-6  # a row this much shorter than the longest does not come back
_FASTER, _FASTEST = 1.5, 16.0

Array = NDArray[np.float64]


class LinearAutoencoder(Selector):
    r"""Linear auto-encoder with an :math:`\ell_{2,1}` penalty on the encoder (after Yang et al., 2019).

    .. math:: \min_{A, B} \|X - X A B\|_F^2 + \lambda \sum_s \|A_s\|_F, \qquad B B' = I_d, \quad d = \min(K, r)

    in principal components (see `Regression`), with one term for each site, all its channels together. Alternates
    between `A`, a ridge regression whose weights follow the norms of the rows (IRLS, by the bound
    :math:`\|a\| \le \|a\|^2 / 2u + u / 2`), and `B`, a Procrustes rotation. :math:`\lambda` is bisected so that K rows
    carry the weight, by their participation number :math:`(\sum_s \|A_s\|)^2 / \sum_s \|A_s\|^2`; sites are ranked by
    the norm of their rows.
    """

    name: ClassVar[str] = "linear_autoencoder"

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Find the penalty under which about ``k`` rows carry the weight."""
        regression = regress_on_sites(train, most=max(2 * k, 100))
        penalty, norms = _bisect(regression, k, run, self.name)
        order = np.argsort(-norms, kind="stable")[: np.count_nonzero(norms)]
        notes = {"penalty": penalty, "participation": _participation(norms)}
        return Selection(complete(regression.sites[order], k, train), notes=notes)


class Encoder:
    """The alternation under one weight of the penalty, a share of the least that leaves no row.

    A row that dies shrinks by a nearly constant factor a step, so steps go further and further in the logarithm of the
    norms, and start anew from the plain one, which never raises the objective, where that rises. Rows that have all
    but vanished are left out of what follows. A step is O(sites r^2).
    """

    def __init__(self, regression: Regression, rank: int, penalty: float) -> None:
        self.design, self.targets, self.channels = regression.design, regression.targets, regression.channels
        pull = site_norms(self.design.T @ self.targets, self.channels)
        self.weight, self.power = 2 * penalty * float(pull.max()), 1.0
        self.alive, self.sites = np.arange(len(pull)), len(pull)
        self.decoder: Array = np.eye(min(rank, len(self.targets)), len(self.targets))
        self.scales: Array = np.ones(self.sites)
        self.decoder, self.norms, objective = self._step(self.scales)
        self.history = [objective]

    def fit(self) -> Array:
        """Go on until the objective stands still; gives the norms of all rows, (S,)."""
        for _ in range(_MOST_STEPS):
            self._thin()
            self._advance()
            if self._settled():
                break
        norms = np.zeros(self.sites)
        norms[self.alive] = self.norms
        return norms

    def _advance(self) -> None:
        scales = self.scales * (self.norms / self.scales) ** self.power
        decoder, norms, objective = self._step(scales)
        if objective > self.history[-1] and self.power > 1:
            self.power = 1.0
            return
        self.decoder, self.scales, self.norms = decoder, scales, norms
        self.power = min(_FASTER * self.power, _FASTEST)
        self.history.append(objective)

    def _step(self, scales: Array) -> tuple[Array, Array, float]:
        """Decoder, norms of the encoder's rows and objective after one alternation."""
        spread = np.tile(2 * scales / self.weight, self.channels)
        encoder = reweighted_ridge(self.design, self.targets @ self.decoder.T, spread)
        codes = self.design @ encoder
        left, _, right = np.linalg.svd(codes.T @ self.targets, full_matrices=False)
        decoder, norms = left @ right, site_norms(encoder, self.channels)
        loss = float(np.square(self.targets - codes @ decoder).sum())
        return decoder, norms, loss + self.weight * float(norms.sum())

    def _thin(self) -> None:
        keep = self.norms > _DEAD * self.norms.max()
        if not keep.all():
            self.alive, self.scales, self.norms = self.alive[keep], self.scales[keep], self.norms[keep]
            self.design = self.design[:, np.tile(keep, self.channels)]

    def _settled(self) -> bool:
        recent = self.history[-1 - _LAST_STEPS :]
        return len(recent) > _LAST_STEPS and recent[0] - recent[-1] < _SETTLED * recent[0]


def reweighted_ridge(design: Array, targets: Array, scales: Array) -> Array:
    r"""Minimise :math:`\|T - D A\|_F^2 + \sum_c \|A_c\|^2 / s_c` by Woodbury, without a matrix of columns by columns.

    .. math:: A = (D'D + S^{-1})^{-1} D'T = S D' (I + D S D')^{-1} T
    """
    scaled = design * scales
    return np.asarray(scaled.T @ np.linalg.solve(np.eye(len(design)) + scaled @ design.T, targets))


def _bisect(regression: Regression, k: int, run: Run, stage: str) -> tuple[float, Array]:
    """Give the largest penalty under which at least ``k`` rows carry the weight, and the norms there."""
    low, high = _LOWEST, 1.0
    best = Encoder(regression, k, low).fit()
    for i in range(_BISECTIONS):
        if run.seconds_left() <= 0:
            break
        run.tell(Event(stage, i, _BISECTIONS))
        middle = float(np.sqrt(low * high))
        norms = Encoder(regression, k, middle).fit()
        if _participation(norms) >= k:
            low, best = middle, norms
        else:
            high = middle
    return low, best


def _participation(norms: Array) -> float:
    return float(norms.sum() ** 2 / np.square(norms).sum())
