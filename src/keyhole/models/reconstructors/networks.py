"""Networks: a dense one on vectors, the ResNet generator of pix2pix and residual convolutions on patches of grids."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from keyhole.core.errors import SettingsError

__all__ = ["DenseNet", "PatchNet", "PeriodicEmbedding", "ResNet", "width_for"]

_MOST_PATCHES = 1024  # on a grid: four cells of 64 x 64 in one patch
# Spread of the waves' first frequencies, for numbers that spread about one. MNIST, 20 sites, two minutes of one core,
# validation: 2 leaves 0.2758 of the variance, 4 0.2755, 8 0.2743, 16 0.2751, and no waves 0.2922.
_FREQUENCIES = 8.0


class PeriodicEmbedding(nn.Module):
    r"""Each number apart: itself, and as many sums of waves of it, cut off at zero.

    .. math:: x_i \to \big(x_i,\ \max(0, A_i\,[\sin(c_i x_i), \cos(c_i x_i)])\big)

    with learned frequencies `c_i` and weights `A_i`. A dense layer alone is slow to learn steps and bumps in one
    reading, such as whether a pixel is ink; this gives them to it (Gorishniy et al., *On Embeddings for Numerical
    Features in Tabular Deep Learning*, 2022).

    Examples
    --------
    >>> import torch
    >>> PeriodicEmbedding(20, 16)(torch.ones(5, 20)).shape
    torch.Size([5, 340])
    """

    def __init__(self, inputs: int, count: int) -> None:
        super().__init__()
        self.outputs = inputs * (1 + count)
        self.frequencies = nn.Parameter(_FREQUENCIES * torch.randn(inputs, count))
        self.weights = nn.Parameter(torch.randn(inputs, 2 * count, count) / (2 * count) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, inputs)`` to ``(N, inputs * (1 + count))``."""
        angles = x[:, :, None] * self.frequencies
        waves = torch.cat([angles.sin(), angles.cos()], dim=2)
        shaped = torch.einsum("nif,ifq->niq", waves, self.weights).relu()
        return torch.cat([x[:, :, None], shaped], dim=2).flatten(1)


class DenseNet(nn.Module):
    """Vector to vector: a linear layer, residual blocks (norm, linear, SiLU, dropout), norm and a linear layer.

    ``waves`` is how many of each number the first layer gets beside the number itself (`Waves`). The last layer starts
    at zero, so that the network starts as the constant zero: on top of ridge, it starts as ridge.

    Examples
    --------
    >>> import torch
    >>> DenseNet(20, 784, width=64)(torch.ones(5, 20)).abs().sum().item()
    0.0
    """

    def __init__(
        self, inputs: int, outputs: int, *, width: int, blocks: int = 2, dropout: float = 0.1, n_frequencies: int = 0
    ) -> None:
        super().__init__()
        self.embedding = PeriodicEmbedding(inputs, n_frequencies) if n_frequencies else None
        self.first = nn.Linear(self.embedding.outputs if self.embedding else inputs, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Dropout(dropout))
            for _ in range(blocks)
        )
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, outputs)
        for parameter in self.last.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, inputs)`` to ``(N, outputs)``."""
        return self.beyond_first(self.first(self.embedding(x) if self.embedding else x))

    def beyond_first(self, hidden: Tensor) -> Tensor:
        """Go on from what the first layer gives, ``(N, width)``."""
        hidden = functional.silu(hidden)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.last(self.norm(hidden))  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """Generator of pix2pix: 7 x 7 convolution, two strides down, residual blocks, two strides up, 7 x 7 convolution.

    Reflection padding, batch norm, a linear head that starts at zero. A grid that the strides do not divide is padded
    with zeros and cropped back. Between input and output the channels are the last axis in memory, which makes it a
    third faster on a CPU.
    """

    def __init__(self, inputs: int, outputs: int, *, filters: int = 16, blocks: int = 2) -> None:
        super().__init__()
        deep = 4 * filters
        layers: list[nn.Module] = [nn.ReflectionPad2d(3), *_unit(nn.Conv2d(inputs, filters, 7, bias=False), filters)]
        for width in (2 * filters, deep):
            layers += _unit(nn.Conv2d(width // 2, width, 3, stride=2, padding=1, bias=False), width)
        layers += [_Residual(deep) for _ in range(blocks)]
        for width in (2 * filters, filters):
            up = nn.ConvTranspose2d(2 * width, width, 3, stride=2, padding=1, output_padding=1, bias=False)
            layers += _unit(up, width)
        self.body = nn.Sequential(*layers, nn.ReflectionPad2d(3))
        self.head = nn.Conv2d(filters, outputs, 7)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, inputs, height, width)`` to ``(N, outputs, height, width)``."""
        height, width = x.shape[-2:]
        padded = functional.pad(x, (0, _up(width) - width, 0, _up(height) - height))
        # Cloned, not made contiguous: a single channel counts as last wherever it is, and would stay there.
        outputs: Tensor = self.head(self.body(padded.clone(memory_format=torch.channels_last)))
        return outputs[..., :height, :width].contiguous()


class PatchNet(nn.Module):
    """Grid to grid, patch by patch: patches become channels, residual blocks (3 x 3 convolutions), patches again.

    A patch has two cells a side, or more where the grid would have too many patches. Convolutions between patches see
    as far as those between cells in several layers, at a fraction of the cost. The last layer starts at zero.

    Examples
    --------
    >>> import torch
    >>> PatchNet(3, 1, (28, 28), filters=8, blocks=1)(torch.ones(5, 3, 28, 28)).shape
    torch.Size([5, 1, 28, 28])
    """

    def __init__(self, inputs: int, outputs: int, shape: tuple[int, int], *, filters: int | None, blocks: int) -> None:
        super().__init__()
        self.patch = _patch(shape)
        filters = filters or _filters(_patches(shape, self.patch))
        self.first = nn.Conv2d(inputs * self.patch**2, filters, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(*_before(filters), *_before(filters)) for _ in range(blocks))
        self.last = nn.Conv2d(filters, outputs * self.patch**2, 3, padding=1)
        for parameter in self.last.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, inputs, height, width)`` to ``(N, outputs, height, width)``."""
        height, width = x.shape[-2:]
        padded = functional.pad(x, (0, -width % self.patch, 0, -height % self.patch))
        patches = functional.pixel_unshuffle(padded, self.patch)
        hidden = self.first(patches.clone(memory_format=torch.channels_last))
        for block in self.blocks:
            hidden = hidden + block(hidden)
        whole = functional.pixel_shuffle(self.last(functional.relu(hidden)), self.patch)
        return whole[..., :height, :width].contiguous()


def _before(width: int) -> list[nn.Module]:
    """Norm and ReLU before a convolution, as residual blocks learn best."""
    return [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1, bias=False)]


def _patch(shape: tuple[int, int]) -> int:
    patch = 2
    while _patches(shape, patch) > _MOST_PATCHES:
        patch *= 2
    return patch


def _patches(shape: tuple[int, int], patch: int) -> int:
    return math.ceil(shape[0] / patch) * math.ceil(shape[1] / patch)


def _filters(patches: int) -> int:
    """64 on MNIST's 196 patches, 32 on the 1024 of 64 x 64 cells: a sample costs the same on every grid."""
    return min(64, 8 * round(1024 / math.sqrt(patches) / 8))


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        first = _unit(nn.Conv2d(width, width, 3, bias=False), width)
        second = _unit(nn.Conv2d(width, width, 3, bias=False), width)[:-1]
        self.body = nn.Sequential(nn.ReflectionPad2d(1), *first, nn.ReflectionPad2d(1), *second)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)  # type: ignore[no-any-return]


def _unit(convolution: nn.Module, width: int) -> list[nn.Module]:
    return [convolution, nn.BatchNorm2d(width), nn.ReLU()]


def _up(length: int) -> int:
    """Round up to a multiple of the strides, and to what reflection padding needs."""
    return max(8, 4 * math.ceil(length / 4))


def width_for(samples: int) -> int:
    """Width of a dense network: 3.5 times the root of the number of samples, 128 to 1024.

    768 for MNIST's 48000, 128 for a few hundred monthly maps.
    """
    return int(min(1024, max(128, 64 * round(3.5 * math.sqrt(samples) / 64))))


def check_two_dimensional(shape: tuple[int, ...], network: str = "resnet") -> tuple[int, int]:
    """Give the shape of a grid of two axes; raise a SettingsError that names the network for any other."""
    if len(shape) != 2:
        raise SettingsError(f"the {network} reconstructor needs a grid of two axes, not of shape {shape}; use dense")
    return shape[0], shape[1]
