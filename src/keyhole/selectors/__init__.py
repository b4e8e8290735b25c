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
from keyhole.selectors.concrete_autoencoder import ConcreteAutoencoder
from keyhole.selectors.exchange import Exchange
from keyhole.selectors.laplacian import Laplacian
from keyhole.selectors.lasso import GroupLasso, Lasso
from keyhole.selectors.learned import Learned
from keyhole.selectors.linear_autoencoder import LinearAutoencoder
from keyhole.selectors.sparse_autoencoder import AEFS
from keyhole.selectors.supervised import Forest, Relevance
from keyhole.selectors.swaps import Swaps

__all__ = ["SELECTORS", "Selection", "Selector"]


def _learned(name: str, fixed: dict[str, Any], /, **settings: Any) -> Learned:
    """Give the learned selector with some settings fixed by its name."""
    for setting in fixed.keys() & settings.keys():
        raise SettingsError(f"method {name!r} has its {setting}; take method 'learned' to choose another")
    return Learned(**fixed, **settings)


def _distinct_cae(**settings: Any) -> ConcreteAutoencoder:
    """Give the concrete autoencoder whose rows hold distinct sites."""
    if "distinct" in settings:
        raise SettingsError("method 'cae_distinct' has its distinct; take method 'cae' to choose")
    return ConcreteAutoencoder(distinct=True, **settings)


SELECTORS: dict[str, Callable[..., Selector]] = {
    "auto": Auto,
    "learned": Learned,
    **{law: partial(_learned, law, {"law": law}) for law in LAWS},
    "cgan": partial(_learned, "cgan", {"objective": "gan"}),
    "cae": ConcreteAutoencoder,
    "cae_distinct": _distinct_cae,
    **{kind.name: kind for kind in (Exchange, Swaps, Greedy, QR, Variance, Random)},
    **{kind.name: kind for kind in (Laplacian, Lasso, GroupLasso, LinearAutoencoder, AEFS, Relevance, Forest)},
}
