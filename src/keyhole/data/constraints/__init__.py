"""Constraints on a placement: regions, minimum distance, cost, groups, and existing sites."""

from __future__ import annotations

from keyhole.data.constraints.feasibility import largest_feasible, packing
from keyhole.data.constraints.feasible_set import FeasibleSet, PlacementRules
from keyhole.data.constraints.groups import Grouping
from keyhole.data.constraints.specification import Constraints, ResolvedConstraints

__all__ = [
    "Constraints",
    "FeasibleSet",
    "Grouping",
    "PlacementRules",
    "ResolvedConstraints",
    "largest_feasible",
    "packing",
]
