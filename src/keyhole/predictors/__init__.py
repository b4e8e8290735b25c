"""Predictors: from readings to a target. One class in one file, one line in the registry."""

from __future__ import annotations

from keyhole.predictors.base import Predictor, target_of
from keyhole.predictors.choice import PREDICTORS, check_predictor, fit_predictor
from keyhole.predictors.linear import Linear, eliminate, nested_errors
from keyhole.predictors.network import Network

__all__ = [
    "PREDICTORS",
    "Linear",
    "Network",
    "Predictor",
    "check_predictor",
    "eliminate",
    "fit_predictor",
    "nested_errors",
    "target_of",
]
