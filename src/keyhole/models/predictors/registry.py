"""Predictors by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keyhole.core.registry import Registry

if TYPE_CHECKING:
    from keyhole.models.predictors.base import Predictor

__all__ = ["PREDICTORS"]

PREDICTORS: Registry[type[Predictor]] = Registry(
    "predictor",
    "keyhole.predictors",
    {
        "linear": "keyhole.models.predictors.linear:Linear",
        "network": "keyhole.models.predictors.network:Network",
    },
)
