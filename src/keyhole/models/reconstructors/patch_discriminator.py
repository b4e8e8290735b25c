"""The discriminator of pix2pix: it classifies patches of a sample, given the observations of the sample."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["PatchDiscriminator"]

_MIN_SIDE = 4  # sites: the first layer's kernel


class PatchDiscriminator(nn.Module):
    """Strided 4 x 4 convolutions to a map of logits, one for each patch: whether it belongs to a true sample.

    As many strides as leave a map of about 7 x 7, at most three, so that small grids are discriminated in patches too.
    Layers are normalised over channels and sites together (one group), which needs no statistics of a batch: batches of
    true and of reconstructed samples are then treated alike.

    Parameters
    ----------
    inputs
        Number of input channels: of the sample and of its observations.
    shape
        Shape of the grid.
    filters
        Channels of the first convolution; each following one has twice as many.

    References
    ----------
    Isola, Zhu, Zhou & Efros (2017), *Image-to-Image Translation with Conditional Adversarial Networks*, CVPR.

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
        padded = functional.pad(x, (0, max(0, _MIN_SIDE - width), 0, max(0, _MIN_SIDE - height)))
        return self.layers(padded)  # type: ignore[no-any-return]


def _unit(inputs: int, outputs: int, *, kernel: int, stride: int, norm: bool) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=1)
    return [convolution, *([nn.GroupNorm(1, outputs)] if norm else []), nn.LeakyReLU(0.2)]
