"""A quick judge that is not linear: kernel ridge, and how much it would gain by each cell, by its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keyhole.core.run import Run
from keyhole.models.reconstructors.kernel_ridge import LINEAR, Shape, shapes_for, spread_of
from keyhole.placement.fit_score_split import FitScoreSplit
from keyhole.placement.random_features import RandomFeatureSurrogate
from keyhole.placement.surrogate import Sites, Surrogate

__all__ = ["KernelSurrogate", "PairwiseKernel", "fit_surrogate"]

_MOST_TAUGHT = 2000  # samples: a score's time grows with the square of their number, and more
_MOST_TO_CHOOSE = 700  # samples that the kernel's shape is chosen by
_SINGLE = 0.03  # strength from which single precision solves well
_MOST_PRODUCTS = 4e9  # that a gradient may take
_NEAREST = 1e-9  # squared distance below which samples are the same


class KernelSurrogate(Surrogate):
    """What kernel ridge leaves: the score of choice wherever it leaves less than random features.

    Parameters
    ----------
    data
        Samples to teach and to judge by.
    shape
        Of the kernel.
    """

    def __init__(self, data: FitScoreSplit, shape: Shape) -> None:
        super().__init__(data)
        self.shape, self.spread = shape, data.spread if shape.even else np.full_like(data.spread, self.level)
        self.precision = torch.float32 if shape.strength >= _SINGLE else torch.float64
        self.known, self.asked = (torch.from_numpy(part).to(self.precision) for part in data.components)

    @classmethod
    def fit_surrogate(cls, data: FitScoreSplit, sites: NDArray[np.int64]) -> Self:
        """Give the score whose kernel suits these sites best."""
        few = data.fewer(_MOST_TO_CHOOSE, _MOST_TO_CHOOSE)
        plain = cls(few, Shape(1.0, 1.0, 1.0))
        readings = plain.readings(few.seen[0], sites).astype(np.float64)
        shapes = [s for even in (False, True) for s in shapes_for(readings / spread_of(readings, even), even)]
        best = shapes[int(np.argmin([cls(few, shape)(sites) for shape in shapes]))]
        return cls(data.fewer(_MOST_TAUGHT, len(data.judged)), best)

    def __call__(self, sites: Sites) -> float:
        """Score the sites (flat grid indices)."""
        taught, judged = self._read(sites)
        votes = torch.cholesky_solve(self.known, self._factor(PairwiseKernel(taught, taught, self.shape).kernel()))
        return self.left((PairwiseKernel(judged, taught, self.shape).kernel() @ votes).numpy().astype(np.float32))

    def gains(self, sites: Sequence[int], without: int | None = None) -> NDArray[np.float64]:
        """How fast the squared error falls as each cell begins to count, beside the sites, all of them or all but one.

        A cell j that counts `t` adds `t (x_j - x'_j)^2` to squared distances and `t x_j x'_j` to inner products; the
        slope at `t = 0` is a quadratic form in the values of j, so one backward pass serves all cells. With `A` the
        kernel among samples that teach, `B` that between these and those that judge, `V = A^-1 Y` the votes and `R = B
        V - Z` what is left, the slope by `B` is `2 R V'` and that by `A` is `-2 A^-1 B' R V'`.
        """
        kept = [site for place, site in enumerate(sites) if place != without]
        taught, judged = self._read(kept)
        among, between = PairwiseKernel(taught, taught, self.shape), PairwiseKernel(judged, taught, self.shape)
        factor = self._factor(among.kernel())
        votes = torch.cholesky_solve(self.known, factor)
        towards = between.kernel()
        left = towards @ votes - self.asked
        back = torch.cholesky_solve(towards.T @ left, factor)
        slopes = self._slopes(among, -2 * back, votes, 0) + self._slopes(between, 2 * left, votes, 1)
        return self._on_grid(-slopes.sum(dim=0).numpy().astype(np.float64), kept)

    def _slopes(self, alike: PairwiseKernel, rows: Tensor, columns: Tensor, part: int) -> Tensor:
        """Slope by each cell ``(channels, cells)`` where that by the kernel is ``rows @ columns.T``; of some samples.

        With `W` the slope by squared distances and `I` that by inner products, cell j has
        `sum_i w_i x_ij^2 + sum_k w'_k x'_kj^2 + x_j' (I - 2 W) x'_j`, `w` and `w'` the sums of W by row and column.
        """
        first, second = self._seen[part], self._seen[0]
        share = min(1.0, (_MOST_PRODUCTS / (len(first) * len(second) * first[0].numel())) ** 0.5)
        some, others = (slice(0, max(1, int(share * len(x)))) for x in (first, second))
        by_square, by_inner = alike.slopes(rows[some] @ columns[others].T, some, others)
        first, second = (x.flatten(1) for x in (first[some], second[others]))
        found = (first * ((by_inner - 2 * by_square) @ second)).sum(dim=0)
        found += by_square.sum(dim=1) @ first.square() + by_square.sum(dim=0) @ second.square()
        return found.reshape(self.data.taught.shape[1:])

    @cached_property
    def _seen(self) -> list[Tensor]:
        """All cells of the samples, each by its spread."""
        return [torch.from_numpy(part / self.spread).to(self.precision) for part in self.data.seen]

    def _read(self, sites: Sites) -> list[Tensor]:
        """Readings of the samples, each by its spread, ``(n, channels * K)``."""
        index = np.searchsorted(self.data.signals.grid.cells, sites)
        read = [part[:, :, index] / self.spread[:, index] for part in self.data.seen]
        return [torch.from_numpy(part).to(self.precision).flatten(1) for part in read]

    def _factor(self, gram: Tensor) -> Tensor:
        gram.diagonal().add_(self.shape.strength)
        factor: Tensor = torch.linalg.cholesky(gram)
        return factor


class PairwiseKernel:
    """How alike two sets of inputs are, ``(n, m)``, as `reconstructors.kernel` has it."""

    def __init__(self, first: Tensor, second: Tensor, shape: Shape) -> None:
        self.shape, self.inner = shape, first @ second.T
        squares = first.square().sum(dim=1)[:, None] + second.square().sum(dim=1) - 2 * self.inner
        self.distances = squares.clamp_(min=_NEAREST).mul_(3 / shape.width).sqrt_()

    def kernel(self) -> Tensor:
        """`(1 + d) exp(-d)` and the linear part."""
        return (1 + self.distances) * torch.exp(-self.distances) + LINEAR / self.shape.level * self.inner

    def slopes(self, by_kernel: Tensor, some: slice, others: slice) -> tuple[Tensor, Tensor]:
        """Slopes by squared distances and by inner products, from that by some of the kernel."""
        falls = -1.5 / self.shape.width * torch.exp(-self.distances[some, others])
        return by_kernel * falls, by_kernel * (LINEAR / self.shape.level)


def fit_surrogate(data: FitScoreSplit, sites: NDArray[np.int64], run: Run) -> Surrogate:
    """Give the quick judge that suits these sites best: random features, or a kernel, which learns from fewer."""
    features, by_kernel = (
        RandomFeatureSurrogate.fit_surrogate(data, sites, run),
        KernelSurrogate.fit_surrogate(data, sites),
    )
    return by_kernel if by_kernel(sites) < features(sites) else features
