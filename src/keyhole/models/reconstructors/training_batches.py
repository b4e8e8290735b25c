"""Training batches of networks: inputs, linear estimates and targets, fixed or augmented."""

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

# Maps readings (N, K, channels), covariates and the linear estimate to the network's inputs.
Inputs = Callable[[Tensor, Tensor, Tensor], Tensor]


class TrainingBatches(nn.Module, ABC):
    """Base class of training batches: inputs of a network, estimates it adds to, and targets.

    Attributes
    ----------
    samples
        Number of samples to draw batches from.
    """

    samples: int

    @abstractmethod
    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return the batch of the given samples.

        Parameters
        ----------
        batch
            Indices of samples, ``(B,)``.
        generator
            Source of random numbers, for augmentation.

        Returns
        -------
        inputs : Tensor
            ``(B, ...)``, as the network takes them.
        estimate : Tensor
            ``(B, channels * valid sites)``, or ``(B, 0)`` if the network adds to nothing.
        targets : Tensor
            ``(B, channels * valid sites)``.
        """


class FixedBatches(TrainingBatches):
    """Batches without augmentation.

    Parameters
    ----------
    inputs, estimate, targets
        Of all samples; see `TrainingBatches.forward`.
    """

    def __init__(self, inputs: Tensor, estimate: Tensor, targets: Tensor) -> None:
        super().__init__()
        self.samples = len(inputs)
        self.register_buffer("inputs", inputs, persistent=False)
        self.register_buffer("estimate", estimate, persistent=False)
        self.register_buffer("targets", targets, persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return the batch of the given samples; the generator is not used."""
        return self.part(batch)

    def part(self, index: Tensor | slice) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, estimates and targets of some samples, by indices or by a slice."""
        inputs, estimate, targets = (self.get_buffer(name)[index] for name in ("inputs", "estimate", "targets"))
        return inputs, estimate, targets


class AugmentedBatches(TrainingBatches):
    """Batches of randomly transformed images, drawn anew each time, with their linear reconstruction as the estimate.

    Parameters
    ----------
    augmentation
        The random transformations.
    linear
        The fitted linear reconstruction that the network adds to.
    train
        Training samples: images without covariates, all sites valid.
    sites
        Flat grid indices of the K sites.
    inputs
        Maps readings, covariates and estimate to the network's inputs.
    """

    def __init__(
        self,
        augmentation: Augmentation,
        linear: LinearReconstructor,
        train: Samples,
        sites: NDArray[np.int64],
        inputs: Inputs,
    ) -> None:
        super().__init__()
        self.samples, self.augmentation, self.inputs = len(train), augmentation, inputs
        parts = {"images": train.values, "sites": sites, "offset": linear.offset, "weights": linear.weights}
        for name, array in parts.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)), persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Transform images, read them at the sites and reconstruct them linearly, in full precision."""
        with torch.autocast(batch.device.type, enabled=False):
            images = self.augmentation(self.get_buffer("images")[batch], generator)
            readings = images.flatten(2)[:, :, self.get_buffer("sites")].transpose(1, 2)
            linear = self.get_buffer("offset") + readings.flatten(1) @ self.get_buffer("weights")
        return self.inputs(readings, readings.new_zeros(len(readings), 0), linear), linear, images.flatten(1)
