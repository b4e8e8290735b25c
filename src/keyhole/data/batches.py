"""Access to training samples that do not fit in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

__all__ = ["Source"]


class Source(Protocol):
    """Scaled samples that are read from storage when they are needed."""

    def __len__(self) -> int: ...

    @property
    def spread(self) -> NDArray[np.float64]:
        """Variance of each value of the valid sites over all samples, ``(channels * valid sites,)``."""

    def order(self, generator: torch.Generator) -> torch.Tensor:
        """Return a random order of the samples in which samples that are stored together stay close."""

    def fetch(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return samples by index, ``(n, channels, *grid)``."""
