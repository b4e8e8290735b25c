"""Selectors of the registry with settings that keep a training short."""

from __future__ import annotations

from typing import Any

from keyhole.placement import SELECTORS, Selector

QUICK = {"train": {"steps": 20, "batch_size": 16, "ema_decay": 0.0}, "n_masks": 4}
LEARNED = ["auto", "learned", "iln", "vln", "hnet", "graph_vln", "sct", "simplex", "cgan"]
CONCRETE = ["cae", "cae_distinct"]


def selector(name: str, **settings: Any) -> Selector:
    """Return a selector of the registry whose training takes 20 steps."""
    quick = QUICK if name in LEARNED else {"train": QUICK["train"]} if name in (*CONCRETE, "aefs") else {}
    return SELECTORS.make(name, quick | settings)
