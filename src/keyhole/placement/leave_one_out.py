"""A quick judge for few samples: kernel ridge from all of them, each judged when it is left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.placement.fit_score_split import FitScoreSplit
from keyhole.placement.kernel_surrogate import KernelSurrogate, PairwiseKernel
from keyhole.placement.surrogate import Sites, Surrogate

__all__ = ["LeaveOneOutSurrogate", "leave_one_out_surrogate"]

_MOST_SAMPLES = 1200  # a score's time grows with the cube of their number; a third of more is enough to judge by
_LEAST_NOISE = 1e-3  # share of a cell's variance that is never explained


class LeaveOneOutSurrogate(KernelSurrogate):
    """What kernel ridge leaves of each sample when it learns from all others.

    With `A` the kernel among the samples plus the strength and `G = A^-1`, sample i leaves `(G Y)_i / G_ii`. So all
    samples teach and all judge: of a few hundred a third tells too little, and sites get to know it by heart.
    """

    def __call__(self, sites: Sites) -> float:
        """Score the sites (flat grid indices)."""
        left = self._left(self._inverse(sites), self.known)
        whole, beyond = self.data.energy
        return (float(left.square().sum(dtype=torch.float64)) + beyond) / whole

    def gains(self, sites: Sequence[int], without: int | None = None) -> NDArray[np.float64]:
        """What each cell of the grid would explain of what is left, by what is left of the cell itself, linearly.

        With `e` what is left of the components and `e_j` of the cell, `|e' e_j|^2 / |e_j|^2`. On Isolet, 50 sites,
        swaps that it proposes leave 1.3 % less than exchanges on validation; the slope by how much a cell counts
        proposed none there that help.
        """
        kept = [site for place, site in enumerate(sites) if place != without]
        inverse = self._inverse(kept)
        left, cells = self._left(inverse, self.known), self._left(inverse, self._seen[0].flatten(1))
        gains = (cells.T @ left).square().sum(dim=1) / (cells.square().sum(dim=0) + _LEAST_NOISE * len(cells))
        by_cell = gains.reshape(self.data.taught.shape[1:]).sum(dim=0)
        return self._on_grid(by_cell.numpy().astype(np.float64), kept)

    def _inverse(self, sites: Sites) -> Tensor:
        taught = self._read(sites)[0]
        return torch.cholesky_inverse(self._factor(PairwiseKernel(taught, taught, self.shape).kernel()))

    def _left(self, inverse: Tensor, truth: Tensor) -> Tensor:
        """What is left of each sample when it is left out."""
        return inverse @ truth / inverse.diagonal()[:, None]


def leave_one_out_surrogate(score: Surrogate, train: Samples, k: int, run: Run) -> Surrogate:
    """Give a kernel's score that judges by all samples, where they are few; as it is for any other.

    Not in a series: there the samples beside one that is left out are nearly that one.
    """
    if not isinstance(score, KernelSurrogate) or train.is_series or len(train) > _MOST_SAMPLES:
        return score
    return LeaveOneOutSurrogate(FitScoreSplit.of(train, train, k, run), score.shape)
