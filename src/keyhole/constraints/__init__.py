"""What a placement must keep to: regions, distance, cost, groups, and sites that are there already."""

from __future__ import annotations

from keyhole.constraints.asked import Constraints, Resolved
from keyhole.constraints.groups import Grouping
from keyhole.constraints.packing import most_that_fit, packing
from keyhole.constraints.rules import Room, Rules

__all__ = ["Constraints", "Grouping", "Resolved", "Room", "Rules", "most_that_fit", "packing"]
