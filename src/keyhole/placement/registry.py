"""Registry of the selectors: names of ``method=`` and the classes behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keyhole.core.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from keyhole.placement.base import Selector

__all__ = ["SELECTORS"]

_HERE = "keyhole.placement"
_BASELINES = f"{_HERE}.baselines"
# From the simplest to the most elaborate: of methods as good as the best of a comparison, the first is chosen.
SELECTORS: Registry[Callable[..., Selector]] = Registry(
    "method",
    "keyhole.selectors",
    {
        "random": f"{_HERE}.classical:Random",
        "variance": f"{_HERE}.classical:Variance",
        "laplacian": f"{_BASELINES}.laplacian_score:Laplacian",
        "mcfs": f"{_BASELINES}.mcfs:MCFS",
        "greedy": f"{_HERE}.classical:Greedy",
        "qr": f"{_HERE}.classical:QR",
        "relevance": f"{_BASELINES}.supervised:Relevance",
        "forest": f"{_BASELINES}.supervised:Forest",
        "linear_autoencoder": f"{_BASELINES}.linear_autoencoder:LinearAutoencoder",
        "self_representation": f"{_BASELINES}.self_representation:SelfRepresentation",
        "lasso": f"{_BASELINES}.lasso:Lasso",
        "group_lasso": f"{_BASELINES}.lasso:GroupLasso",
        "sparse_group_lasso": f"{_BASELINES}.sparse_group_lasso:SparseGroupLasso",
        "exclusive_lasso": f"{_BASELINES}.exclusive_lasso:ExclusiveLasso",
        "exchange": f"{_HERE}.exchange:Exchange",
        "kernel_exchange": f"{_HERE}.kernel_exchange:KernelExchange",
        "aefs": f"{_BASELINES}.aefs:AEFS",
        "cae": f"{_BASELINES}.concrete_autoencoder:ConcreteAutoencoder",
        "cae_distinct": f"{_BASELINES}.concrete_autoencoder:distinct_concrete_autoencoder",
        "iln": f"{_HERE}.learned:learned_iln",
        "vln": f"{_HERE}.learned:learned_vln",
        "learned": f"{_HERE}.learned:Learned",
        "hnet": f"{_HERE}.learned:learned_hnet",
        "graph_vln": f"{_HERE}.learned:learned_graph_vln",
        "sct": f"{_HERE}.learned:learned_sct",
        "simplex": f"{_HERE}.learned:learned_simplex",
        "cgan": f"{_HERE}.learned:learned_gan",
        "auto": f"{_HERE}.auto:Auto",
    },
)
