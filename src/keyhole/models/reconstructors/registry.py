"""Reconstructors by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keyhole.core.registry import Registry

if TYPE_CHECKING:
    from keyhole.models.reconstructors.base import Reconstructor

__all__ = ["RECONSTRUCTORS"]

_HERE = "keyhole.models.reconstructors"
RECONSTRUCTORS: Registry[type[Reconstructor]] = Registry(
    "reconstructor",
    "keyhole.reconstructors",
    {
        "ridge": f"{_HERE}.ridge:Ridge",
        "optimal_interpolation": f"{_HERE}.optimal_interpolation:OptimalInterpolation",
        "graph_ridge": f"{_HERE}.graph_ridge:GraphRidge",
        "kernel": f"{_HERE}.kernel_ridge:Kernel",
        "dense": f"{_HERE}.neural:Dense",
        "dense_conv": f"{_HERE}.dense_conv:DenseConv",
        "resnet": f"{_HERE}.neural:ResNetReconstructor",
        "dcgan": f"{_HERE}.dcgan:DCGAN",
        "generative_prior": f"{_HERE}.generative_prior:GenerativePrior",
        "residual": f"{_HERE}.residual:Residual",
        "ensemble": f"{_HERE}.ensemble:Ensemble",
    },
)
