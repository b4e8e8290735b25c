"""The discriminator of pix2pix: it judges patches of a signal beside what was observed of it."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["PatchDiscriminator"]

_LEAST = 4  # cells a side: the first layer's kernel


class PatchDiscriminator(nn.Module):
    """Strided 4 x 4 convolutions to a map of logits, one for each patch: is this patch of a true signal?

    As many strides as leave a map of about 7 x 7, at most three, so that small grids are judged in patches too. Layers
    are normalised over channels and cells together (one group), which needs no statistics of a batch: a batch of true
    signals and one of rebuilt ones are then judged alike.

    Examples
    --------
    >>> import torch
    >>> PatchDiscriminator(2, (28, 28))(torch.ones(3, 2, 28, 28)).shape
    torch.Size([3, 1, 7, 7])
    """

    def __init__(self, inputs: int, shape: tuple[int, ...], *, filters: int = 16) -> None:
        super().__init__()
        strides = max(1, min(3, int(math.log2(min(shape))) - 2))
        layers: list[nn.Module] = []
        for depth in range(strides):
            layers += _unit(inputs, filters * 2**depth, kernel=4, stride=2, norm=depth > 0)
            inputs = filters * 2**depth
        layers += _unit(inputs, 2 * inputs, kernel=3, stride=1, norm=True)
        self.layers = nn.Sequential(*layers, nn.Conv2d(2 * inputs, 1, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, inputs, height, width)`` to logits ``(N, 1, patches, patches)``."""
        height, width = x.shape[-2:]
        padded = functional.pad(x, (0, max(0, _LEAST - width), 0, max(0, _LEAST - height)))
        return self.layers(padded)  # type: ignore[no-any-return]


def _unit(inputs: int, outputs: int, *, kernel: int, stride: int, norm: bool) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=1)
    return [convolution, *([nn.GroupNorm(1, outputs)] if norm else []), nn.LeakyReLU(0.2)]
