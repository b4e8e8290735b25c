"""Selectors: from signals and K to ranked sites. One class in one file, one line in the registry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from keyhole.errors import SettingsError
from keyhole.laws import LAWS
from keyhole.selectors.auto import Auto
from keyhole.selectors.base import Selection, Selector
from keyhole.selectors.classical import QR, Greedy, Random, Variance
from keyhole.selectors.learned import Learned

__all__ = ["SELECTORS", "Selection", "Selector"]


def _of_law(law: str, /, **settings: Any) -> Learned:
    """Give the learned selector with one law."""
    if "law" in settings:
        raise SettingsError(f"method {law!r} has its law; take method 'learned' to choose another")
    return Learned(law=law, **settings)


SELECTORS: dict[str, Callable[..., Selector]] = {
    "auto": Auto,
    "learned": Learned,
    **{law: partial(_of_law, law) for law in LAWS},
    **{kind.name: kind for kind in (Greedy, QR, Variance, Random)},
}
