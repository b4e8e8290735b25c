"""Objectives: what a reconstruction is scored by while it is learned."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["reconstruction"]


def reconstruction(rebuilt: Tensor, truth: Tensor, inside: Tensor | None = None) -> Tensor:
    """Mean squared error over samples, channels and inside cells.

    Parameters
    ----------
    rebuilt, truth
        ``(N, channels, *grid)``, or packed ``(N, channels * cells)``.
    inside
        Boolean of the grid's shape; None where everything counts.
    """
    squares = torch.square(rebuilt - truth)
    return squares.mean() if inside is None else squares[..., inside].mean()
