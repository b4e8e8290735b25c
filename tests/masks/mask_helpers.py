"""Helpers for the tests of mask distributions."""

from __future__ import annotations

import torch
from torch import Tensor

from keyhole.masks import MASK_DISTRIBUTIONS, MaskDistribution
from keyhole.masks.valid_sites import SitesLike


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def holed(*grid: int) -> Tensor:
    """A grid of which every fifth cell, from the second on, is not valid."""
    return (torch.arange(torch.Size(grid).numel()) % 5 != 1).reshape(grid)


def make_distribution(
    name: str, sites: SitesLike | None = None, *, seed: int = 0, **options: float
) -> MaskDistribution:
    return MASK_DISTRIBUTIONS[name](holed(3, 4) if sites is None else sites, generator=seeded(seed), **options)


@torch.no_grad()
def roughened(distribution: MaskDistribution, *, seed: int = 7, by: float = 0.3) -> MaskDistribution:
    """The same distribution with every parameter moved, so that no two sites are alike."""
    generator = seeded(seed)
    for parameter in distribution.parameters():
        step = torch.randn(parameter.shape, generator=generator).to(parameter)
        parameter.add_(by * parameter.abs().mean().clamp_min(0.5) * step)
    return distribution


def standard_error(p: Tensor, draws: int) -> Tensor:
    return (p * (1 - p) / draws).clamp_min(1 / draws**2).sqrt()
