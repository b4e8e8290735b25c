"""Networks of DCGAN: from a vector up to a grid, and from a grid down to classes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from keyhole.models.reconstructors.networks import check_two_dimensional, conv_norm_relu, zeroed
from keyhole.models.reconstructors.neural import NetworkReconstructor
from keyhole.models.settings import DCGANSettings

__all__ = ["DCGAN", "DCGANClassifier", "DCGANDecoder"]

_SMALLEST = 4


class DCGANDecoder(nn.Module):
    """Vector to grid: a dense layer to a small map, then transposed convolutions (4 x 4) that each double it.

    Batch norm and ReLU between them; the last one is linear and initialised to zero. The map is 7 x 7 at first for
    28 x 28 and 4 x 4 for 64 x 64; for other sizes it is rounded up, and the output cropped.

    Parameters
    ----------
    inputs, outputs
        Length of the vector, and number of output channels.
    shape
        Shape of the grid.
    filters
        Channels before the last convolution; each layer before has twice as many.

    References
    ----------
    Radford, Metz & Chintala (2016), *Unsupervised Representation Learning with Deep Convolutional Generative
    Adversarial Networks*, ICLR.

    Examples
    --------
    >>> import torch
    >>> DCGANDecoder(20, 1, (28, 28), filters=4)(torch.ones(5, 20)).shape
    torch.Size([5, 1, 28, 28])
    """

    def __init__(self, inputs: int, outputs: int, shape: tuple[int, int], *, filters: int = 32) -> None:
        super().__init__()
        self.shape = shape
        doublings, start = _pyramid(shape)
        widths = [filters * 2**level for level in reversed(range(doublings))]
        dense = nn.Linear(inputs, widths[0] * math.prod(start), bias=False)
        layers = [dense, *conv_norm_relu(nn.Unflatten(1, (widths[0], *start)), widths[0])]
        for before, after in pairwise(widths):
            layers += conv_norm_relu(nn.ConvTranspose2d(before, after, 4, stride=2, padding=1, bias=False), after)
        self.body = nn.Sequential(*layers)
        self.head = zeroed(nn.ConvTranspose2d(filters, outputs, 4, stride=2, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, inputs)`` to ``(N, outputs, *shape)``."""
        return self.head(self.body(x))[..., : self.shape[0], : self.shape[1]]  # type: ignore[no-any-return]


class DCGANClassifier(nn.Module):
    """Grid to class logits: convolutions (4 x 4) that each halve the grid, then a linear layer; the decoder's mirror.

    Leaky ReLU after each convolution, batch norm after all but the first. A size that cannot be halved so often is
    padded with zeros.

    Parameters
    ----------
    inputs, classes
        Numbers of input channels and of classes.
    shape
        Shape of the grid.
    filters
        Channels of the first convolution; each following one has twice as many.

    References
    ----------
    Radford, Metz & Chintala (2016), *Unsupervised Representation Learning with Deep Convolutional Generative
    Adversarial Networks*, ICLR.

    Examples
    --------
    >>> import torch
    >>> DCGANClassifier(1, 10, (28, 28), filters=4)(torch.ones(5, 1, 28, 28)).shape
    torch.Size([5, 10])
    """

    def __init__(self, inputs: int, classes: int, shape: tuple[int, int], *, filters: int = 32) -> None:
        super().__init__()
        doublings, start = _pyramid(shape)
        widths = [filters * 2**level for level in range(doublings)]
        self.padding = (0, (start[1] << doublings) - shape[1], 0, (start[0] << doublings) - shape[0])
        layers: list[nn.Module] = [nn.Conv2d(inputs, filters, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
        for before, after in pairwise(widths):
            convolution = nn.Conv2d(before, after, 4, stride=2, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(after), nn.LeakyReLU(0.2)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1] * math.prod(start), classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, inputs, *shape)`` to logits ``(N, classes)``."""
        return self.head(self.body(functional.pad(x, self.padding)).flatten(1))  # type: ignore[no-any-return]


def _pyramid(shape: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """Number of doublings, and the size to start from: four sites or more along the shorter axis."""
    doublings = max(1, int(math.log2(max(1.0, min(shape) / _SMALLEST))))
    return doublings, (math.ceil(shape[0] / 2**doublings), math.ceil(shape[1] / 2**doublings))


class DCGAN(NetworkReconstructor):
    """Decoder of DCGAN from the K readings to a two-dimensional grid; see `DCGANDecoder`.

    Prefer `DenseConv`, which is usually better; this one is for comparison with the literature.

    Parameters
    ----------
    settings
        Fields of `DCGANSettings`, by name.
    """

    name: ClassVar[str] = "dcgan"
    settings_class = DCGANSettings
    options: DCGANSettings

    def build(self, samples: int) -> nn.Module:
        """Construct a `DCGANDecoder` for the grid."""
        shape = check_two_dimensional(self.domain.shape, self.name)
        return DCGANDecoder(self.n_inputs, self.channels, shape, filters=self.options.filters)
