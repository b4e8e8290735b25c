"""Kernel ridge surrogate, and the gain of each site by the gradient of its error."""

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

_MAX_FITTING = 2000  # samples: the cost grows faster than the square of their number
_MAX_TO_TUNE = 700  # samples used to choose the kernel's hyperparameters
_SINGLE = 0.03  # regularisation from which single precision is accurate enough
_MAX_PRODUCTS = 4e9  # in the computation of a gradient
_MIN_DISTANCE = 1e-9  # squared distance below which samples count as identical


class KernelSurrogate(Surrogate):
    """Unexplained variance of kernel ridge regression on the principal components.

    Parameters
    ----------
    data
        Fitting and scoring samples.
    shape
        Hyperparameters of the kernel.
    """

    def __init__(self, data: FitScoreSplit, shape: Shape) -> None:
        super().__init__(data)
        self.shape, self.spread = shape, data.spread if shape.even else np.full_like(data.spread, self.level)
        self.precision = torch.float32 if shape.strength >= _SINGLE else torch.float64
        self.fitting_scores, self.scoring_scores = (
            torch.from_numpy(part).to(self.precision) for part in data.components
        )

    @classmethod
    def fit_surrogate(cls, data: FitScoreSplit, sites: NDArray[np.int64]) -> Self:
        """Return the surrogate whose kernel has the lowest error for these sites."""
        few = data.fewer(_MAX_TO_TUNE, _MAX_TO_TUNE)
        plain = cls(few, Shape(1.0, 1.0, 1.0))
        readings = plain.readings(few.seen[0], sites).astype(np.float64)
        shapes = [s for even in (False, True) for s in shapes_for(readings / spread_of(readings, even), even)]
        best = shapes[int(np.argmin([cls(few, shape)(sites) for shape in shapes]))]
        return cls(data.fewer(_MAX_FITTING, len(data.scoring)), best)

    def __call__(self, sites: Sites) -> float:
        """Return the unexplained variance for the sites (flat grid indices)."""
        fitting, scoring = self._read(sites)
        weights = torch.cholesky_solve(
            self.fitting_scores, self._factor(PairwiseKernel(fitting, fitting, self.shape).kernel())
        )
        return self.unexplained(
            (PairwiseKernel(scoring, fitting, self.shape).kernel() @ weights).numpy().astype(np.float32)
        )

    def gains(self, sites: Sequence[int], without: int | None = None) -> NDArray[np.float64]:
        """Return the negative slope of the squared error as each site begins to enter the kernel.

        Site j with weight `t` adds `t (x_j - x'_j)^2` to the squared distances and `t x_j x'_j` to the inner products;
        the slope at `t = 0` is a quadratic form in the values of j, so one backward pass serves all sites. With `A` the
        kernel among the fitting samples, `B` that between scoring and fitting samples, `V = A^-1 Y` the dual weights
        and `R = B V - Z` the residual, the gradient by `B` is `2 R V'` and by `A` it is `-2 A^-1 B' R V'`.
        """
        kept = [site for place, site in enumerate(sites) if place != without]
        fitting, scoring = self._read(kept)
        among, between = PairwiseKernel(fitting, fitting, self.shape), PairwiseKernel(scoring, fitting, self.shape)
        factor = self._factor(among.kernel())
        weights = torch.cholesky_solve(self.fitting_scores, factor)
        cross = between.kernel()
        residual = cross @ weights - self.scoring_scores
        adjoint = torch.cholesky_solve(cross.T @ residual, factor)
        slopes = self._slopes(among, -2 * adjoint, weights, 0) + self._slopes(between, 2 * residual, weights, 1)
        return self._on_grid(-slopes.sum(dim=0).numpy().astype(np.float64), kept)

    def _slopes(self, kernel: PairwiseKernel, rows: Tensor, columns: Tensor, part: int) -> Tensor:
        """Slope by each site, ``(channels, sites)``, for the kernel gradient ``rows @ columns.T``, from a subset.

        With `W` the gradient by squared distances and `I` that by inner products, site j has
        `sum_i w_i x_ij^2 + sum_k w'_k x'_kj^2 + x_j' (I - 2 W) x'_j`, `w` and `w'` the row and column sums of W.
        """
        first, second = self._seen[part], self._seen[0]
        share = min(1.0, (_MAX_PRODUCTS / (len(first) * len(second) * first[0].numel())) ** 0.5)
        rows_used, columns_used = (slice(0, max(1, int(share * len(x)))) for x in (first, second))
        by_square, by_inner = kernel.slopes(rows[rows_used] @ columns[columns_used].T, rows_used, columns_used)
        first, second = (x.flatten(1) for x in (first[rows_used], second[columns_used]))
        found = (first * ((by_inner - 2 * by_square) @ second)).sum(dim=0)
        found += by_square.sum(dim=1) @ first.square() + by_square.sum(dim=0) @ second.square()
        return found.reshape(self.data.fitting.shape[1:])

    @cached_property
    def _seen(self) -> list[Tensor]:
        """Readings at all valid sites, divided by their scale."""
        return [torch.from_numpy(part / self.spread).to(self.precision) for part in self.data.seen]

    def _read(self, sites: Sites) -> list[Tensor]:
        """Readings of the samples, each by its spread, ``(n, channels * K)``."""
        index = np.searchsorted(self.data.samples.grid.cells, sites)
        read = [part[:, :, index] / self.spread[:, index] for part in self.data.seen]
        return [torch.from_numpy(part).to(self.precision).flatten(1) for part in read]

    def _factor(self, gram: Tensor) -> Tensor:
        gram.diagonal().add_(self.shape.strength)
        factor: Tensor = torch.linalg.cholesky(gram)
        return factor


class PairwiseKernel:
    """Kernel between two sets of readings, ``(n, m)``: Matérn 3/2 plus a linear part, as in kernel ridge."""

    def __init__(self, first: Tensor, second: Tensor, shape: Shape) -> None:
        self.shape, self.inner = shape, first @ second.T
        squares = first.square().sum(dim=1)[:, None] + second.square().sum(dim=1) - 2 * self.inner
        self.distances = squares.clamp_(min=_MIN_DISTANCE).mul_(3 / shape.width).sqrt_()

    def kernel(self) -> Tensor:
        """Return `(1 + d) exp(-d)` plus the linear part."""
        return (1 + self.distances) * torch.exp(-self.distances) + LINEAR / self.shape.level * self.inner

    def slopes(self, by_kernel: Tensor, rows_used: slice, columns_used: slice) -> tuple[Tensor, Tensor]:
        """Return the gradients by squared distances and by inner products, given that by the kernel."""
        slope = -1.5 / self.shape.width * torch.exp(-self.distances[rows_used, columns_used])
        return by_kernel * slope, by_kernel * (LINEAR / self.shape.level)


def fit_surrogate(data: FitScoreSplit, sites: NDArray[np.int64], run: Run) -> Surrogate:
    """Return the surrogate with the lowest error for these sites: random features, or a kernel on fewer samples.

    Parameters
    ----------
    data
        Fitting and scoring samples.
    sites
        Flat grid indices to tune the hyperparameters for.
    run
        Its seed determines the random features.

    Returns
    -------
    Surrogate
        The better of both.
    """
    features, by_kernel = (
        RandomFeatureSurrogate.fit_surrogate(data, sites, run),
        KernelSurrogate.fit_surrogate(data, sites),
    )
    return by_kernel if by_kernel(sites) < features(sites) else features
