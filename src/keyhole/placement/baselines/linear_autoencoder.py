"""Linear auto-encoder with a row-sparse encoder of the sites."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.placement.base import Selection, Selector, complete
from keyhole.placement.baselines.self_regression import Regression, regress_on_sites, site_norms

__all__ = ["Encoder", "LinearAutoencoder", "reweighted_ridge"]

_BISECTIONS = 12
_MIN_PENALTY = 1e-6  # as a share of the least that leaves no row
_MAX_STEPS = 200
_LAST_STEPS, _TOLERANCE = 5, 1e-6  # iteration ends when the objective falls by less over so many steps, relatively
_NEGLIGIBLE = 1e-6  # norm of a row, relative to the longest, below which it is dropped
_ACCELERATION, _MAX_POWER = 1.5, 16.0  # factor between the powers of successive steps, and the largest power

Array = NDArray[np.float64]


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
        penalty, norms = _bisect(regression, k, run, self.name)
        order = np.argsort(-norms, kind="stable")[: np.count_nonzero(norms)]
        notes = {"penalty": penalty, "participation": _participation(norms)}
        return Selection(complete(regression.sites[order], k, train), notes=notes)


class Encoder:
    """Alternating minimisation of the linear auto-encoder under one penalty.

    The norm of a vanishing row shrinks by a nearly constant factor in each step, so steps are extrapolated further and
    further in the logarithm of the norms (`power`); where that raises the objective, the next step is a plain one,
    which never does. Rows of negligible norm are dropped. A step is O(sites r^2).

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
        self.design, self.targets, self.channels = regression.design, regression.targets, regression.channels
        gradient_norms = site_norms(self.design.T @ self.targets, self.channels)
        self.weight, self.power = 2 * penalty * float(gradient_norms.max()), 1.0
        self.kept, self.sites = np.arange(len(gradient_norms)), len(gradient_norms)
        self.decoder: Array = np.eye(min(rank, len(self.targets)), len(self.targets))
        self.scales: Array = np.ones(self.sites)
        self.decoder, self.norms, objective = self._step(self.scales)
        self.history = [objective]

    def fit(self) -> Array:
        """Iterate until the objective no longer falls; return the norms of all rows, ``(sites,)``."""
        for _ in range(_MAX_STEPS):
            self._drop_negligible()
            self._advance()
            if self._converged():
                break
        norms = np.zeros(self.sites)
        norms[self.kept] = self.norms
        return norms

    def _advance(self) -> None:
        scales = self.scales * (self.norms / self.scales) ** self.power
        decoder, norms, objective = self._step(scales)
        if objective > self.history[-1] and self.power > 1:
            self.power = 1.0
            return
        self.decoder, self.scales, self.norms = decoder, scales, norms
        self.power = min(_ACCELERATION * self.power, _MAX_POWER)
        self.history.append(objective)

    def _step(self, scales: Array) -> tuple[Array, Array, float]:
        """Return the decoder, the norms of the encoder's rows and the objective after one alternation."""
        spread = np.tile(2 * scales / self.weight, self.channels)
        encoder = reweighted_ridge(self.design, self.targets @ self.decoder.T, spread)
        codes = self.design @ encoder
        left, _, right = np.linalg.svd(codes.T @ self.targets, full_matrices=False)
        decoder, norms = left @ right, site_norms(encoder, self.channels)
        loss = float(np.square(self.targets - codes @ decoder).sum())
        return decoder, norms, loss + self.weight * float(norms.sum())

    def _drop_negligible(self) -> None:
        keep = self.norms > _NEGLIGIBLE * self.norms.max()
        if not keep.all():
            self.kept, self.scales, self.norms = self.kept[keep], self.scales[keep], self.norms[keep]
            self.design = self.design[:, np.tile(keep, self.channels)]

    def _converged(self) -> bool:
        recent = self.history[-1 - _LAST_STEPS :]
        return len(recent) > _LAST_STEPS and recent[0] - recent[-1] < _TOLERANCE * recent[0]


def reweighted_ridge(design: Array, targets: Array, scales: Array) -> Array:
    r"""Minimise :math:`\|T - D A\|_F^2 + \sum_c \|A_c\|^2 / s_c` by Woodbury, without a matrix of columns by columns.

    .. math:: A = (D'D + S^{-1})^{-1} D'T = S D' (I + D S D')^{-1} T

    Parameters
    ----------
    design, targets
        `D`, ``(r, columns)``, and `T`, ``(r, t)``.
    scales
        `s`, ``(columns,)``.
    """
    scaled = design * scales
    return np.asarray(scaled.T @ np.linalg.solve(np.eye(len(design)) + scaled @ design.T, targets))


def _bisect(regression: Regression, k: int, run: Run, stage: str) -> tuple[float, Array]:
    """Return the largest penalty under which at least ``k`` rows carry the weight, and the norms there."""
    low, high = _MIN_PENALTY, 1.0
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
