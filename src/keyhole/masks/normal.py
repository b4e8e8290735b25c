"""Normal distribution functions, typed, for the closed forms of the logit-normal mask distributions."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["cdf", "log_cdf", "normal_above", "quantile", "row_norm", "widened"]


def widened(x: Tensor) -> Tensor:
    """Return a tensor in at least single precision, for functions that torch has not in half precision.

    Parameters
    ----------
    x
        Floating point, any shape.

    Returns
    -------
    Tensor
        The same numbers; those of bfloat16 and float16 as float32.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


def cdf(x: Tensor) -> Tensor:
    """Compute the standard normal cumulative distribution function `Phi`.

    Parameters
    ----------
    x
        Any shape.

    Returns
    -------
    Tensor
        Same shape, in [0, 1].
    """
    result: Tensor = torch.special.ndtr(x)
    return result


def log_cdf(x: Tensor) -> Tensor:
    """Compute the logarithm of `cdf`, accurate also where that is nearly 0.

    Parameters
    ----------
    x
        Any shape.

    Returns
    -------
    Tensor
        Same shape, at most 0.
    """
    result: Tensor = torch.special.log_ndtr(widened(x))
    return result.to(x.dtype)


def quantile(p: Tensor) -> Tensor:
    """Compute the standard normal quantile function, the inverse of `Phi`.

    Parameters
    ----------
    p
        Probabilities, any shape.

    Returns
    -------
    Tensor
        Same shape; infinite at 0 and 1.
    """
    result: Tensor = torch.special.ndtri(widened(p))
    return result.to(p.dtype)


def normal_above(threshold: float, location: Tensor, spread: Tensor) -> Tensor:
    """Compute `P(u > threshold)` for `u ~ N(location, spread^2)`.

    Parameters
    ----------
    threshold
        Scalar.
    location, spread
        Mean and positive standard deviation, of shapes that broadcast.

    Returns
    -------
    Tensor
        Probabilities, differentiable in both.

    Examples
    --------
    >>> normal_above(0.0, torch.zeros(()), torch.ones(())).item()
    0.5
    """
    return cdf((location - threshold) / spread)


def row_norm(weight: Tensor) -> Tensor:
    """Compute the standard deviation of `W z` for standard normal `z`: the norm of each row of `W`.

    Parameters
    ----------
    weight
        `W`, `(..., sites, d)`.

    Returns
    -------
    Tensor
        `(..., sites)`, at least 1e-6 so that it can be a divisor.
    """
    norm: Tensor = torch.linalg.vector_norm(weight, dim=-1)
    return norm.clamp_min(1e-6)
