"""Networks of DCGAN: from a vector up to a grid, and from a grid down to classes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from keyhole.core.settings import parse
from keyhole.models.reconstructors.networks import check_two_dimensional
from keyhole.models.reconstructors.neural import NetworkReconstructor
from keyhole.models.settings import DCGANSettings

__all__ = ["DCGAN", "DCGANClassifier", "DCGANDecoder"]

_SMALLEST = 4


class DCGANDecoder(nn.Module):
    """Vector to grid: a dense layer to a small map, then transposed convolutions (4 x 4) that each double it.

    Batch norm and ReLU between them; the last one is the linear head and starts at zero, so that the network starts as
    the constant zero. The map starts at 7 x 7 for 28 x 28 and at 4 x 4 for 64 x 64; for other sizes it is rounded up
    and what it grows to is cropped.

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
        widths = _widths(filters, doublings)[::-1]
        dense = nn.Linear(inputs, widths[0] * math.prod(start), bias=False)
        layers = [dense, nn.Unflatten(1, (widths[0], *start)), *_normed(widths[0])]
        for before, after in pairwise(widths):
            layers += [nn.ConvTranspose2d(before, after, 4, stride=2, padding=1, bias=False), *_normed(after)]
        self.body = nn.Sequential(*layers)
        self.head = nn.ConvTranspose2d(filters, outputs, 4, stride=2, padding=1)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, inputs)`` to ``(N, outputs, *shape)``."""
        return self.head(self.body(x))[..., : self.shape[0], : self.shape[1]]  # type: ignore[no-any-return]


class DCGANClassifier(nn.Module):
    """Grid to classes: convolutions (4 x 4) that each halve the grid, then a linear layer; the decoder's mirror.

    Leaky ReLU behind each convolution, batch norm behind all but the first. A size that cannot be halved so often is
    padded with zeros. Gives logits.

    Examples
    --------
    >>> import torch
    >>> DCGANClassifier(1, 10, (28, 28), filters=4)(torch.ones(5, 1, 28, 28)).shape
    torch.Size([5, 10])
    """

    def __init__(self, inputs: int, classes: int, shape: tuple[int, int], *, filters: int = 32) -> None:
        super().__init__()
        doublings, start = _pyramid(shape)
        widths = _widths(filters, doublings)
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
    """How often to double, and the size to start from: as often as leaves four cells along the shorter axis."""
    doublings = max(1, int(math.log2(max(1.0, min(shape) / _SMALLEST))))
    return doublings, (math.ceil(shape[0] / 2**doublings), math.ceil(shape[1] / 2**doublings))


def _widths(filters: int, doublings: int) -> list[int]:
    return [filters * 2**level for level in range(doublings)]


def _normed(width: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(width), nn.ReLU()]


class DCGAN(NetworkReconstructor):
    """Decoder of DCGAN from the K readings to the grid."""

    name: ClassVar[str] = "dcgan"
    settings: DCGANSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = parse(DCGANSettings, settings)

    def build(self, samples: int) -> nn.Module:
        """Make a decoder for the grid."""
        shape = check_two_dimensional(self.grid.shape, self.name)
        return DCGANDecoder(self.width, self.channels, shape, filters=self.settings.filters)
