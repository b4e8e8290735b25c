"""What networks are taught by: readings of samples, and what is to be made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.data.samples import Samples
from keyhole.models.reconstructors.augmentation import Augmentation
from keyhole.models.reconstructors.linear import LinearReconstructor

__all__ = ["AugmentedBatches", "FixedBatches", "TrainingBatches"]

# Readings (N, K, channels), context and what is estimated already, to what a network takes.
Inputs = Callable[[Tensor, Tensor, Tensor], Tensor]


class TrainingBatches(nn.Module, ABC):
    """Inputs of a network, what is estimated already, and targets, by sample; the latter two packed."""

    samples: int

    @abstractmethod
    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Give inputs, estimates (without columns where there are none) and targets of some samples."""


class FixedBatches(TrainingBatches):
    """The same for a sample at all times."""

    def __init__(self, inputs: Tensor, estimate: Tensor, targets: Tensor) -> None:
        super().__init__()
        self.samples = len(inputs)
        self.register_buffer("inputs", inputs, persistent=False)
        self.register_buffer("estimate", estimate, persistent=False)
        self.register_buffer("targets", targets, persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Look them up."""
        return self.part(batch)

    def part(self, some: Tensor | slice) -> tuple[Tensor, Tensor, Tensor]:
        """Look some up."""
        inputs, estimate, targets = (self.get_buffer(name)[some] for name in ("inputs", "estimate", "targets"))
        return inputs, estimate, targets


class AugmentedBatches(TrainingBatches):
    """Pictures that are moved each time anew, with what a linear part makes of them as the estimate."""

    def __init__(
        self, moves: Augmentation, linear: LinearReconstructor, train: Samples, sites: NDArray[np.int64], inputs: Inputs
    ) -> None:
        super().__init__()
        self.samples, self.moves, self.inputs = len(train), moves, inputs
        parts = {"pictures": train.values, "sites": sites, "offset": linear.offset, "weights": linear.weights}
        for name, array in parts.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)), persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Move the pictures, read them at the sites, and estimate them linearly; full precision."""
        with torch.autocast(batch.device.type, enabled=False):
            pictures = self.moves(self.get_buffer("pictures")[batch], generator)
            readings = pictures.flatten(2)[:, :, self.get_buffer("sites")].transpose(1, 2)
            linear = self.get_buffer("offset") + readings.flatten(1) @ self.get_buffer("weights")
        return self.inputs(readings, readings.new_zeros(len(readings), 0), linear), linear, pictures.flatten(1)
