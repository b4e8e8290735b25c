"""Logit-normal distribution whose covariance is localised along a graph, by the heat kernel."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keyhole.core.errors import DataError, SettingsError
from keyhole.core.laplacian import smallest_eigenpairs
from keyhole.masks.base import CommonArguments
from keyhole.masks.logit_normal import CorrelatedLogitNormal
from keyhole.masks.normal import row_norm
from keyhole.masks.valid_sites import SitesLike

__all__ = ["GraphLogitNormal"]


_NOTHING = 1e-9  # share of a site in the eigenvectors left out, below which it is rounding


class GraphLogitNormal(CorrelatedLogitNormal):
    r"""Logit-normal distribution with a low-rank covariance that is localised along a graph.

    .. math::
        \mathrm{cov}(u) = (W W') \circ C, \qquad C_{ij} = H_{ij} / \sqrt{H_{ii} H_{jj}}, \qquad H = e^{-t L}

    The covariance of `CorrelatedLogitNormal`, multiplied entry by entry by the correlations `C` of the heat kernel of
    the normalised Laplacian `L = U diag(l) U'` [1]_: a covariance by the Schur product theorem. Sites that are near to
    each other along the edges are correlated, with a sign and a size that are learned, so that they open together or
    compete; far sites are independent. Standard deviations are the row norms of `W`, and all closed forms those of
    `CorrelatedLogitNormal`. For data on a graph where a site's value says something of its neighbours' alone, as in
    large networks; on others prefer `CorrelatedLogitNormal`.

    `C` is approximated by the `r` leading eigenvectors, `C = G G' + diag(delta^2)`, so that a draw is

    .. math::
        u_i = b_i + \sum_{jk} W_{ij} G_{ik} z_{jk} + \delta_i \lVert W_i \rVert \epsilon_i, \qquad
        G_i = U_i e^{-t l / 2} / \sqrt{h_i}, \qquad \delta_i^2 = 1 - \lVert G_i \rVert^2

    with standard normal `z`, `(d, r)`, and `epsilon`, `(n_sites,)`. The estimate of the diagonal of `H` is

    .. math:: h_i = \sum_{j \le r} U_{ij}^2 e^{-t l_j} + c_i e^{-t \mu_i} \cosh(t \tau_i)

    No further eigenvectors are needed for it: their squares at site `i` add up to `c_i = 1 - sum_j U_ij^2`, and with
    these as weights the mean and the standard deviation of their eigenvalues, `mu_i` and `tau_i`, follow from the
    diagonals of `L` and `L^2`. With all eigenvectors `C` is exact; the variances of the logits are so with any number.

    Parameters
    ----------
    sites, temperature, gamma, eta, generator
        As in `MaskDistribution`.
    adjacency
        `(n, n)` sparse or dense and symmetric, with the positive weights of the edges. Its first nodes are the cells of
        the grid in C order, valid or not; further nodes only connect others. None: cells of the grid that share a
        side are connected.
    rank
        Rank `d` of `W W'`.
    diffusion_time
        `t`, about the squared number of edges over which sites are correlated.
    n_eigenvectors
        `r`, at most the number of nodes. A draw multiplies a matrix `(sites, d r)`.

    Raises
    ------
    DataError
        The adjacency matrix is not square or not symmetric, or has fewer nodes than the grid has cells.
    SettingsError
        The diffusion time is not positive.

    References
    ----------
    .. [1] R. I. Kondor and J. Lafferty. Diffusion kernels on graphs and other discrete structures. ICML 2002.
    .. [2] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.

    Examples
    --------
    A ring of six nodes; with `W` of rank 1, correlations fall with the number of edges between two nodes:

    >>> ring = np.roll(np.eye(6), 1, axis=1) + np.roll(np.eye(6), -1, axis=1)
    >>> covariance = GraphLogitNormal(6, adjacency=ring, rank=1).covariance
    >>> [round(value, 2) for value in (covariance / covariance[0, 0]).abs()[0].tolist()]
    [1.0, 0.45, 0.11, 0.04, 0.11, 0.45]
    """

    name: ClassVar[str] = "graph_vln"
    factor: Tensor
    unresolved: Tensor

    def __init__(
        self,
        sites: SitesLike,
        *,
        adjacency: Any = None,
        rank: int = 16,
        diffusion_time: float = 1.0,
        n_eigenvectors: int = 32,
        **common: Unpack[CommonArguments],
    ) -> None:
        super().__init__(sites, rank=rank, **common)
        if not 0 < diffusion_time < math.inf:
            raise SettingsError(f"diffusion_time must be a number above zero, got {diffusion_time}")
        matrix = _lattice(self.event_shape) if adjacency is None else _checked(adjacency, self.event_shape.numel())
        factor, unresolved = _heat_factor(matrix, n_eigenvectors, diffusion_time)
        index = self.index.cpu().numpy()
        for name, values in (("factor", factor[index]), ("unresolved", unresolved[index])):
            self.register_buffer(name, torch.from_numpy(values).to(self.index.device, self._dtype))

    def _logits(self, draws: int, generator: torch.Generator | None) -> Tensor:
        z = self._normal(draws, self.weight.shape[1] * self.factor.shape[1], generator=generator)
        own = self.unresolved * row_norm(self.weight) * self._normal(draws, self.n_sites, generator=generator)
        both, _ = self._factors()
        return self.bias + torch.addmm(own, z, both.T)

    def _factors(self) -> tuple[Tensor, Tensor]:
        both = (self.weight[:, :, None] * self.factor[:, None, :]).flatten(1)
        return both, (self.unresolved * row_norm(self.weight)).square()


def _heat_factor(adjacency: Any, count: int, time: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return `G`, `(n, count)`, and `delta`, `(n,)`; see `GraphLogitNormal`."""
    from scipy.sparse.csgraph import laplacian

    values, vectors = smallest_eigenpairs(adjacency, count)
    factor, squares = vectors * np.exp(-time / 2 * values), np.square(vectors)
    rest = np.maximum(1 - squares.sum(axis=1), 0)
    matrix = laplacian(adjacency, normed=True)
    sums = matrix.diagonal() - squares @ values, matrix.power(2).sum(axis=1) - squares @ values**2
    mean, square = (np.divide(one, rest, out=np.zeros_like(rest), where=rest > _NOTHING) for one in sums)
    mean = np.clip(mean, values[-1], 2)
    exponent = -time * (mean - np.sqrt(np.maximum(square - mean**2, 0)) * np.array([[1], [-1]]))
    own = rest * np.minimum(np.exp(exponent).mean(axis=0), np.exp(-time * values[-1]))
    whole = np.square(factor).sum(axis=1) + own
    return factor / np.sqrt(whole)[:, np.newaxis], np.sqrt(own / whole)


def _lattice(grid: tuple[int, ...]) -> Any:
    """Adjacency of the cells of a grid that share a side."""
    from scipy.sparse import coo_array

    cells, size = np.arange(math.prod(grid)).reshape(grid), math.prod(grid)
    pairs = [
        (cells.take(range(n - 1), axis).ravel(), cells.take(range(1, n), axis).ravel()) for axis, n in enumerate(grid)
    ]
    one, other = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    index = np.concatenate([one, other]), np.concatenate([other, one])
    return coo_array((np.ones(2 * len(one)), index), shape=(size, size)).tocsr()


def _checked(adjacency: Any, cells: int) -> Any:
    """Return an adjacency matrix as a sparse one."""
    from scipy.sparse import csr_array

    matrix = csr_array(adjacency, dtype=np.float64)
    rows, columns = matrix.shape
    if rows != columns or rows < cells:
        raise DataError(
            f"adjacency: a matrix of shape {matrix.shape}; a square one of at least {cells} nodes is needed"
        )
    if matrix.nnz and not (np.isfinite(matrix.data).all() and matrix.data.min() >= 0):
        raise DataError("adjacency: every weight must be a finite number, and none below zero")
    off = abs(matrix - matrix.T)
    if off.nnz and off.max() > 1e-9 * matrix.max():
        raise DataError("adjacency: the matrix is not symmetric; for a directed graph give (A + A.T) / 2")
    return matrix
