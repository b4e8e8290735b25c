"""The embedded water network: where the water of each junction came from, hour by hour."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["WaterNetwork"]

_STEP = 0.5  # of the packed shares, in per cent


@dataclass(frozen=True, eq=False)
class WaterNetwork:
    """A water network, and the percentage of lake water in its junctions and tanks at each hour.

    Attributes
    ----------
    share
        480 hours x 95 junctions and tanks, in per cent.
    pipes
        ``source``, ``target`` and ``length`` in metres of 117 pipes and 2 pumps; a pump counts as one metre.
    nodes
        Map coordinates ``x`` and ``y`` of all 97 nodes by their names, the river and the lake among them.
    """

    share: pd.DataFrame
    pipes: pd.DataFrame
    nodes: pd.DataFrame

    @classmethod
    def load(cls) -> WaterNetwork:
        """Load the network; see `keyhole.datasets.water`."""
        import pandas as pd

        with resources.files("keyhole").joinpath("data/water.npz").open("rb") as file, np.load(file) as data:
            arrays: dict[str, Any] = dict(data)
        names, share = arrays["nodes"], arrays["share"]
        hours = pd.date_range("2001-01-01", periods=len(share), freq="h", name="time")
        ends = {end: names[arrays["ends"][:, place]] for place, end in enumerate(("source", "target"))}
        return cls(
            pd.DataFrame((_STEP * share).astype(np.float32), hours, names[: share.shape[1]].tolist()),
            pd.DataFrame({**ends, "length": np.maximum(arrays["length"], 1.0)}),
            pd.DataFrame(arrays["positions"], names.tolist(), ["x", "y"]),
        )
