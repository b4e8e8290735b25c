"""What a network learns from where samples are not held in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

__all__ = ["Source"]


class Source(Protocol):
    """Scaled samples that are fetched when they are needed."""

    def __len__(self) -> int: ...

    @property
    def spread(self) -> NDArray[np.float64]:
        """Variance of each value inside over all samples, ``(channels * cells,)``."""

    def order(self, generator: torch.Generator) -> torch.Tensor:
        """Draw an order to go through the samples in, such that neighbours are fetched together."""

    def fetch(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Give samples by their places, ``(n, channels, *grid)``."""
