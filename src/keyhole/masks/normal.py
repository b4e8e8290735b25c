"""The normal law, typed: what the closed forms of the logit-normal laws are made of."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["cdf", "normal_above", "quantile", "row_norm"]


def cdf(x: Tensor) -> Tensor:
    """Phi, the standard normal distribution function."""
    result: Tensor = torch.special.ndtr(x)
    return result


def quantile(p: Tensor) -> Tensor:
    """Phi's inverse."""
    result: Tensor = torch.special.ndtri(p)
    return result


def normal_above(threshold: float, location: Tensor, spread: Tensor) -> Tensor:
    """Return `P(u > threshold)` for `u ~ N(location, spread^2)`.

    >>> normal_above(0.0, torch.zeros(()), torch.ones(())).item()
    0.5
    """
    return cdf((location - threshold) / spread)


def row_norm(weight: Tensor) -> Tensor:
    """Spread of `W z`: the norm of each row, kept off zero so that it can be divided by."""
    norm: Tensor = torch.linalg.vector_norm(weight, dim=-1)
    return norm.clamp_min(1e-6)
