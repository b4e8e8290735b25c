"""Objectives: what a reconstruction is scored by while it is learned."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["reconstruction"]


def reconstruction(rebuilt: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error over samples, channels and cells, packed or not."""
    return torch.square(rebuilt - truth).mean()
