"""Mask distributions with learned parameters, budgets that hold the number of open sites, and collapse to K sites."""

from __future__ import annotations

from keyhole.masks.base import MaskDistribution, MaskSample, concentration_of, share
from keyhole.masks.hard_concrete import HardConcrete
from keyhole.masks.hyper_network import HyperNetworkLogitNormal
from keyhole.masks.logit_normal import CorrelatedLogitNormal, IndependentLogitNormal
from keyhole.masks.simplex import SimplexLogitNormal

__all__ = [
    "MASK_DISTRIBUTIONS",
    "CorrelatedLogitNormal",
    "HardConcrete",
    "HyperNetworkLogitNormal",
    "IndependentLogitNormal",
    "MaskDistribution",
    "MaskSample",
    "SimplexLogitNormal",
    "concentration_of",
    "share",
]

MASK_DISTRIBUTIONS: dict[str, type[MaskDistribution]] = {
    distribution.name: distribution
    for distribution in (
        IndependentLogitNormal,
        CorrelatedLogitNormal,
        HyperNetworkLogitNormal,
        HardConcrete,
        SimplexLogitNormal,
    )
}
