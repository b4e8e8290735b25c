"""Orthant probabilities of low-dimensional normal vectors by the GHK simulator."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from keyhole.masks.normal import cdf, quantile, widened

__all__ = ["all_below_zero", "sobol"]


def all_below_zero(location: Tensor, covariance: Tensor, noise: Tensor) -> Tensor:
    r"""Estimate `P(u_1 <= 0, ..., u_c <= 0)` for `u ~ N(location, covariance)`.

    Geweke-Hajivassiliou-Keane importance sampling: unbiased, differentiable, between 0 and 1. With `covariance = L L'`
    the entries are drawn sequentially from truncated normal distributions, and the conditional probabilities are
    multiplied:

    .. math:: P = \mathrm{E} \prod_j \Phi(a_j), \qquad
              a_j = -\frac{b_j + \sum_{l<j} L_{jl} e_l}{L_{jj}}, \qquad e_j = \Phi^{-1}(v_j \Phi(a_j))

    Parameters
    ----------
    location
        `(sites, c)`.
    covariance
        `(sites, c, c)`.
    noise
        `(rows, sites or 1, c - 1)`: the uniform numbers `v`, one row per estimate; none for `c = 1`, which is exact.

    Returns
    -------
    Tensor
        `(rows, n_sites)`, to be averaged over rows.

    References
    ----------
    .. [1] V. Hajivassiliou, D. McFadden and P. Ruud. Simulation of multivariate normal rectangle probabilities and
       their derivatives. Journal of Econometrics 72, 1996.
    """
    dtype = location.dtype
    location, covariance, noise = widened(location), widened(covariance), widened(noise)
    factor = torch.linalg.cholesky(_regularised(covariance))
    product = noise.new_ones(len(noise), len(location))
    drawn = location.expand(len(noise), -1, -1)
    for j in range(location.shape[1]):
        chance = cdf(-drawn[..., j] / factor[:, j, j])
        product = product * chance
        if j < noise.shape[-1]:
            drawn = drawn + factor[:, :, j] * _below(noise[..., j] * chance)[..., None]
    return product.to(dtype)


def _below(probability: Tensor) -> Tensor:
    """Return normal quantiles, finite also at probabilities 0 and 1."""
    limits = torch.finfo(probability.dtype)
    return quantile(probability.clamp(limits.tiny, 1 - limits.eps))


def _regularised(covariance: Tensor) -> Tensor:
    """Add a few rounding errors to the diagonal: collinear rows of W make the covariance singular."""
    diagonal = covariance.diagonal(dim1=-2, dim2=-1)
    nugget = 16 * torch.finfo(covariance.dtype).eps * diagonal.mean(-1, keepdim=True).clamp_min(1e-6)
    return covariance + torch.diag_embed(nugget.expand_as(diagonal))


def sobol(points: int, dimension: int, like: Tensor) -> Tensor:
    """Return the first points of a Sobol sequence, shifted into the open unit cube; deterministic.

    Parameters
    ----------
    points
        Number of points, a power of two for balance.
    dimension
        Dimension; 0 gives an empty tensor.
    like
        Tensor whose dtype and device are used.

    Returns
    -------
    Tensor
        `(points, dimension)`, in (0, 1).

    Examples
    --------
    >>> sobol(2, 1, like=torch.zeros(())).flatten().tolist()
    [0.25, 0.75]
    """
    if dimension == 0:
        return like.new_zeros(points, 0)
    engine = SobolEngine(dimension)  # type: ignore[no-untyped-call]
    return engine.draw(points, dtype=torch.float64).to(like) + 0.5 / points
