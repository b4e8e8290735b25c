"""Networks that get their weights back from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from keyhole.core.errors import PlanError
from keyhole.core.storage import array_of
from keyhole.training.loop import seeded

__all__ = ["load_network"]


def load_network(build: Callable[[], nn.Module], weights: Mapping[str, NDArray[Any]]) -> nn.Module:
    """Build a network and give it weights, ready to be used.

    A file's settings may declare a network of any size, so it is first built without memory, and a PlanError is raised
    where it is not of the weights' size: what is allocated is never more than what the file holds.
    """
    with seeded(0):
        with torch.device("meta"):
            built = build().state_dict()
        declared = {name: tuple(weight.shape) for name, weight in built.items()}
        found = {name: tuple(array.shape) for name, array in weights.items()}
        if declared != found:
            odd = sorted(set(declared.items()) ^ set(found.items()))[0][0]
            says = f"{declared.get(odd)} by the settings and {found.get(odd)} in the file"
            raise PlanError(f"the network's weights {odd!r} are {says}")
        for name, weight in built.items():
            array_of(weights, name, tuple(weight.shape), "f" if weight.is_floating_point() else "iu")
        network = build()
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
    return network.eval()
