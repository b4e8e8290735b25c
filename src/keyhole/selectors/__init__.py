"""Selectors: from signals and K to ranked sites. One class in one file, one line in the registry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from keyhole.laws import LAWS
from keyhole.selectors.auto import Auto
from keyhole.selectors.base import Selection, Selector
from keyhole.selectors.classical import QR, Greedy, Random, Variance
from keyhole.selectors.learned import Learned

__all__ = ["SELECTORS", "Selection", "Selector"]

SELECTORS: dict[str, Callable[..., Selector]] = {
    "auto": Auto,
    "learned": Learned,
    **{law: partial(Learned, law=law) for law in LAWS},
    **{kind.name: kind for kind in (Greedy, QR, Variance, Random)},
}
