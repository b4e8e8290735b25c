"""Iteratively reweighted least squares for penalties on norms of rows, and the penalty that leaves K of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run

__all__ = ["Array", "ReweightedRows", "bisect_penalty", "participation", "reweighted_ridge"]

_BISECTIONS = 12
_MIN_PENALTY = 1e-6  # as a share of the least that leaves no row
_MAX_STEPS = 200
_LAST_STEPS, _TOLERANCE = 5, 1e-6  # iteration ends when the objective falls by less over so many steps, relatively
_NEGLIGIBLE = 1e-6  # norm of a row, relative to the longest, below which it is dropped
_ACCELERATION, _MAX_POWER = 1.5, 16.0  # factor between the powers of successive steps, and the largest power

Array = NDArray[np.float64]


class ReweightedRows(ABC):
    r"""Minimise a loss and a penalty :math:`\lambda \sum_s \|A_s\|_F` on the rows of sites, by reweighting (IRLS).

    The norm is bounded by :math:`\|a\| \le \|a\|^2 / 2u + u / 2`, so that a step is a ridge regression. The norm of a
    vanishing row shrinks by a nearly constant factor in each step, so steps are extrapolated further and further in the
    logarithm of the norms (`power`); where that raises the objective, the next step is a plain one, which never does.
    Rows of negligible norm are dropped.

    Parameters
    ----------
    design
        ``(r, channels * sites)``.
    channels
        Columns of the design that one site has.
    weight
        :math:`\lambda`.
    state
        What a step changes beside the rows.

    Attributes
    ----------
    history
        The objective after each accepted step.
    """

    def __init__(self, design: Array, channels: int, weight: float, state: Array) -> None:
        self.design, self.channels, self.weight, self.power = design, channels, weight, 1.0
        self.sites = design.shape[1] // channels
        self.kept, self.scales = np.arange(self.sites), np.ones(self.sites)
        self.state = state
        self.state, self.norms, objective = self._step(self.scales)
        self.history = [objective]

    @abstractmethod
    def _step(self, scales: Array) -> tuple[Array, Array, float]:
        """Return the state, the norms of the rows and the objective after one ridge regression with these scales."""

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

    def spread(self, scales: Array) -> Array:
        """Return the variances of the rows in the ridge regression, ``(channels * sites,)``."""
        return np.tile(2 * scales / self.weight, self.channels)

    def _advance(self) -> None:
        scales = self.scales * (self.norms / self.scales) ** self.power
        state, norms, objective = self._step(scales)
        if objective > self.history[-1] and self.power > 1:
            self.power = 1.0
            return
        self.state, self.scales, self.norms = state, scales, norms
        self.power = min(_ACCELERATION * self.power, _MAX_POWER)
        self.history.append(objective)

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
    gram = np.eye(len(design)) + scaled @ design.T
    try:
        return np.asarray(scaled.T @ np.linalg.solve(gram, targets))
    except np.linalg.LinAlgError:  # the identity is lost beside scales that are very large
        return np.asarray(scaled.T @ np.linalg.lstsq(gram, targets)[0])


def bisect_penalty(fit: Callable[[float], Array], k: int, run: Run, stage: str) -> tuple[float, Array]:
    """Return the largest penalty under which at least ``k`` rows carry the weight, and the norms there.

    Parameters
    ----------
    fit
        Returns the norms of the rows under a penalty, as a share of the least that leaves no row.
    k
        Number of rows.
    run
        Deadline and progress.
    stage
        Name of the search, for progress.
    """
    low, high = _MIN_PENALTY, 1.0
    best = fit(low)
    for i in range(_BISECTIONS):
        if run.seconds_left() <= 0:
            break
        run.tell(Event(stage, i, _BISECTIONS))
        middle = float(np.sqrt(low * high))
        norms = fit(middle)
        if participation(norms) >= k:
            low, best = middle, norms
        else:
            high = middle
    return low, best


def participation(norms: Array) -> float:
    r"""Return the participation number :math:`(\sum_s |a_s|)^2 / \sum_s a_s^2`: how many rows carry the weight.

    Examples
    --------
    >>> participation(np.array([1.0, 1.0, 0.0]))
    2.0
    """
    return float(norms.sum() ** 2 / np.square(norms).sum())
