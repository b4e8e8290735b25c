"""Selectors: from signals and K to ranked sites. One class in one file, one line in the registry."""

from __future__ import annotations

from collections.abc import Callable

from keyhole.selectors.base import Selection, Selector
from keyhole.selectors.classical import QR, Greedy, Random, Variance

__all__ = ["SELECTORS", "Selection", "Selector"]

SELECTORS: dict[str, Callable[[], Selector]] = {kind.name: kind for kind in (Greedy, QR, Variance, Random)}
