"""Network architectures: dense on vectors, the ResNet generator of pix2pix and a patch network on images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from keyhole.core.errors import PlanError, SettingsError
from keyhole.core.storage import array_of
from keyhole.models.settings import DenseSettings
from keyhole.training.loop import seeded

__all__ = [
    "DenseNet",
    "PatchNet",
    "PeriodicEmbedding",
    "ResNet",
    "check_two_dimensional",
    "conv_norm_relu",
    "load_network",
    "observed_grid",
    "zeroed",
]  # fmt: skip

_MAX_PATCHES = 1024  # on a grid: patches of 2 x 2 sites for 64 x 64
# Standard deviation of the initial frequencies, for inputs of about unit variance. Unexplained variance on MNIST, 20
# sites, two minutes on one core, validation: 0.2758 with 2, 0.2755 with 4, 0.2743 with 8, 0.2751 with 16, and 0.2922
# without the embedding.
_FREQUENCY_SCALE = 8.0
_STRIDE = 4  # of both strided layers of the ResNet together

Layer = TypeVar("Layer", bound=nn.Module)


def zeroed(layer: Layer) -> Layer:
    """Set all weights of a last layer to zero, so that the network starts as the constant zero.

    Added to a linear reconstruction, it starts as that reconstruction.

    Examples
    --------
    >>> zeroed(nn.Linear(2, 1))(torch.ones(1, 2)).item()
    0.0
    """
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


class PeriodicEmbedding(nn.Module):
    r"""Periodic embedding of each input: learned Fourier features followed by a linear layer and ReLU.

    .. math:: x_i \to \big(x_i,\ \max(0, A_i\,[\sin(c_i x_i), \cos(c_i x_i)])\big)

    with learned frequencies `c_i` and weights `A_i` for each input `i`. Dense layers alone are slow to learn steps and
    bumps in one input, such as whether a pixel is ink; the embedding makes them easy.

    Parameters
    ----------
    inputs
        Number of inputs.
    count
        Number of frequencies, and of embedded features, for each input.

    References
    ----------
    Gorishniy, Rubachev & Babenko (2022), *On Embeddings for Numerical Features in Tabular Deep Learning*, NeurIPS.

    Examples
    --------
    >>> import torch
    >>> PeriodicEmbedding(20, 16)(torch.ones(5, 20)).shape
    torch.Size([5, 340])
    """

    def __init__(self, inputs: int, count: int) -> None:
        super().__init__()
        self.outputs = inputs * (1 + count)
        self.frequencies = nn.Parameter(_FREQUENCY_SCALE * torch.randn(inputs, count))
        self.weights = nn.Parameter(torch.randn(inputs, 2 * count, count) / (2 * count) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, inputs)`` to ``(N, inputs * (1 + count))``."""
        angles = x[:, :, None] * self.frequencies
        fourier = torch.cat([angles.sin(), angles.cos()], dim=2)
        embedded = torch.einsum("nif,ifq->niq", fourier, self.weights).relu()
        return torch.cat([x[:, :, None], embedded], dim=2).flatten(1)


class DenseNet(nn.Module):
    """Vector to vector: a linear layer, residual blocks (norm, linear, SiLU, dropout), norm and a linear layer.

    The last layer is initialised to zero, see `zeroed`.

    Parameters
    ----------
    inputs, outputs
        Numbers of inputs and outputs.
    width
        Width of the hidden layers.
    blocks
        Number of residual blocks.
    dropout
        Dropout probability within the blocks.
    n_frequencies
        Frequencies of a `PeriodicEmbedding` of the inputs; 0 for none.

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
        self.norm, self.last = nn.LayerNorm(width), zeroed(nn.Linear(width, outputs))

    @classmethod
    def of(cls, inputs: int, outputs: int, settings: DenseSettings) -> Self:
        """Construct the network that settings describe, whose width must be set."""
        sizes = settings.model_dump(include={"width", "blocks", "dropout", "n_frequencies"})
        return cls(inputs, outputs, **sizes)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, inputs)`` to ``(N, outputs)``."""
        return self.beyond_first(self.first(self.embedding(x) if self.embedding else x))

    def beyond_first(self, hidden: Tensor) -> Tensor:
        """Apply all layers after the first one to its output, ``(N, width)``."""
        hidden = functional.silu(hidden)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.last(self.norm(hidden))  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """ResNet generator of pix2pix: 7 x 7 convolution, two strided ones, residual blocks, two transposed ones, 7 x 7.

    With reflection padding, batch norm, and a linear output layer initialised to zero. A grid whose sides are not
    multiples of 4 is padded with zeros, and the output cropped. Activations use the channels-last memory format, which
    is a third faster on CPUs.

    The strides treat sites differently by their row and column modulo 4, so that sites that are learned with this
    network are drawn to a lattice. With ``n_phases`` the grid is shifted on a larger canvas of zeros, by 0 to 3 rows
    and columns, and the output shifted back: at random in training, the same shift for the whole batch (for a
    process's part of it, where several train together); in evaluation by all of these phases, or some, and the outputs
    are averaged. The mean over all 16 phases is equivariant to shifts
    of the input, apart from the borders.

    Parameters
    ----------
    inputs, outputs
        Numbers of input and output channels.
    filters
        Channels of the first convolution; twice and four times as many after the strides.
    blocks
        Number of residual blocks.
    n_phases
        Number of phases averaged in evaluation: 1, 4 (every second row and column) or 16 (all); 0 for no shifts, in
        training neither.

    References
    ----------
    Isola, Zhu, Zhou & Efros (2017), *Image-to-Image Translation with Conditional Adversarial Networks*, CVPR. Johnson,
    Alahi & Fei-Fei (2016), *Perceptual Losses for Real-Time Style Transfer and Super-Resolution*, ECCV.
    """

    def __init__(
        self, inputs: int, outputs: int, *, filters: int = 16, blocks: int = 2, n_phases: Literal[0, 1, 4, 16] = 0
    ) -> None:
        super().__init__()
        self.n_phases, deepest = n_phases, 4 * filters
        layers = [nn.ReflectionPad2d(3), *conv_norm_relu(nn.Conv2d(inputs, filters, 7, bias=False), filters)]
        for width in (2 * filters, deepest):
            layers += conv_norm_relu(nn.Conv2d(width // 2, width, 3, stride=2, padding=1, bias=False), width)
        layers += [_ResidualBlock(deepest) for _ in range(blocks)]
        for width in (2 * filters, filters):
            up = nn.ConvTranspose2d(2 * width, width, 3, stride=2, padding=1, output_padding=1, bias=False)
            layers += conv_norm_relu(up, width)
        self.body = nn.Sequential(*layers, nn.ReflectionPad2d(3))
        self.head = zeroed(nn.Conv2d(filters, outputs, 7))

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Map ``(N, inputs, height, width)`` to ``(N, outputs, height, width)``.

        Parameters
        ----------
        x
            The inputs on the grid.
        generator
            Source of the shift in training; None takes torch's global generator, as dropout does.
        """
        if not self.n_phases:
            return self._shifted(x, 0, 0)
        if self.training:
            row, column = torch.randint(_STRIDE, (2,), generator=generator).tolist()
            return self._shifted(x, row, column)
        every = range(0, _STRIDE, _STRIDE // math.isqrt(self.n_phases))
        outputs = [self._shifted(x, row, column) for row in every for column in every]
        return torch.stack(outputs).mean(dim=0)

    def _shifted(self, x: Tensor, row: int, column: int) -> Tensor:
        """Reconstruct with the grid's corner at a row and column of the canvas."""
        height, width = x.shape[-2:]
        room = _STRIDE - 1 if self.n_phases else 0  # the same for all shifts
        below = _padded_length(height + room) - height - row
        right = _padded_length(width + room) - width - column
        padded = functional.pad(x, (column, right, row, below))
        # Cloned: `contiguous` would keep the strides of a single channel, which satisfy both memory formats.
        outputs: Tensor = self.head(self.body(padded.clone(memory_format=torch.channels_last)))
        return outputs[..., row : row + height, column : column + width].contiguous()


class PatchNet(nn.Module):
    """Grid to grid at reduced resolution: patches to channels, residual blocks of 3 x 3 convolutions, and back.

    A patch is 2 x 2 sites, or larger where the grid would have more than 1024 patches (`pixel_unshuffle` and
    `pixel_shuffle`). Convolutions over patches reach as far as several layers of convolutions over sites, at a fraction
    of the cost. The last layer is initialised to zero.

    Parameters
    ----------
    inputs, outputs
        Numbers of input and output channels.
    shape
        Shape of the grid.
    filters
        Channels of the hidden layers; None for a number that makes the cost of a sample independent of the grid's size.
    blocks
        Number of residual blocks of two convolutions.

    References
    ----------
    Shi et al. (2016), *Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional
    Neural Network*, CVPR. He, Zhang, Ren & Sun (2016), *Identity Mappings in Deep Residual Networks*, ECCV.

    Examples
    --------
    >>> import torch
    >>> PatchNet(3, 1, (28, 28), filters=8, blocks=1)(torch.ones(5, 3, 28, 28)).shape
    torch.Size([5, 1, 28, 28])
    """

    def __init__(self, inputs: int, outputs: int, shape: tuple[int, int], *, filters: int | None, blocks: int) -> None:
        super().__init__()
        self.patch = 2
        while (patches := math.prod(math.ceil(side / self.patch) for side in shape)) > _MAX_PATCHES:
            self.patch *= 2
        # 64 for MNIST's 196 patches, 32 for the 1024 of a 64 x 64 grid: a sample costs the same on every grid.
        filters = filters or min(64, 8 * round(1024 / math.sqrt(patches) / 8))
        self.first = nn.Conv2d(inputs * self.patch**2, filters, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(*_preactivated(filters), *_preactivated(filters)) for _ in range(blocks)
        )
        self.last = zeroed(nn.Conv2d(filters, outputs * self.patch**2, 3, padding=1))

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


def _preactivated(width: int) -> list[nn.Module]:
    """Pre-activation unit: batch norm and ReLU before the convolution (He et al., 2016)."""
    return [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1, bias=False)]


class _ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions with reflection padding, added to their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        first = conv_norm_relu(nn.Conv2d(width, width, 3, bias=False), width)
        second = conv_norm_relu(nn.Conv2d(width, width, 3, bias=False), width)[:-1]
        self.body = nn.Sequential(nn.ReflectionPad2d(1), *first, nn.ReflectionPad2d(1), *second)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)  # type: ignore[no-any-return]


def conv_norm_relu(convolution: nn.Module, width: int) -> list[nn.Module]:
    """Return a convolution, batch norm and ReLU, in this order.

    Parameters
    ----------
    convolution
        The convolution, without bias.
    width
        Its number of output channels.
    """
    return [convolution, nn.BatchNorm2d(width), nn.ReLU()]


def _padded_length(length: int) -> int:
    """Round up to a multiple of the strides, and to the minimum that reflection padding needs."""
    return max(2 * _STRIDE, _STRIDE * math.ceil(length / _STRIDE))


def check_two_dimensional(shape: tuple[int, ...], network: str = "resnet") -> tuple[int, int]:
    """Return the shape of a two-dimensional grid.

    Parameters
    ----------
    shape
        Shape of the grid.
    network
        Name of the reconstructor, for the message.

    Raises
    ------
    SettingsError
        If the grid has one axis, or more than two.
    """
    if len(shape) != 2:
        raise SettingsError(f"the {network} reconstructor needs a grid of two axes, not of shape {shape}; use dense")
    return shape[0], shape[1]


def observed_grid(
    readings: Tensor, covariates: Tensor, at: NDArray[np.int64], shape: tuple[int, ...], *, mask_channel: bool
) -> Tensor:
    """Place readings on a grid of zeros.

    Parameters
    ----------
    readings
        ``(N, K, channels)``.
    covariates
        ``(N, columns)``.
    at
        Position of each site in the grid, in C order.
    shape
        Shape of the grid.
    mask_channel
        Whether the mask is a channel too.

    Returns
    -------
    Tensor
        ``(N, channels + 1 + columns, *shape)``: readings, mask, and covariates as constant channels.

    Examples
    --------
    >>> observed_grid(torch.full((1, 1, 1), 5.0), torch.zeros(1, 0), np.array([2]), (3,), mask_channel=True).tolist()
    [[[0.0, 0.0, 5.0], [0.0, 0.0, 1.0]]]
    """
    parts = [readings.transpose(1, 2)]
    if mask_channel:
        parts.append(readings.new_ones(len(readings), 1, len(at)))
    at_sites, size = torch.cat(parts, dim=1), math.prod(shape)
    grid = readings.new_zeros(*at_sites.shape[:2], size)
    grid[:, :, torch.from_numpy(at)] = at_sites
    everywhere = covariates[:, :, None].expand(-1, -1, size)
    return torch.cat([grid, everywhere], dim=1).reshape(len(grid), -1, *shape)


def load_network(build: Callable[[], nn.Module], weights: Mapping[str, NDArray[Any]]) -> nn.Module:
    """Build a network and load its weights, in evaluation mode.

    The settings in a file may declare a network of any size, so it is first built on the meta device, without memory,
    and compared with the weights: never more memory is allocated than the file itself holds.

    Parameters
    ----------
    build
        Constructs the network, with arbitrary weights.
    weights
        Its state dict as arrays.

    Raises
    ------
    PlanError
        If names, shapes or data types of the weights are not those of the network.
    """
    with seeded(0):
        with torch.device("meta"):
            expected = build().state_dict()
        declared = {name: tuple(weight.shape) for name, weight in expected.items()}
        found = {name: tuple(array.shape) for name, array in weights.items()}
        if declared != found:
            differing = sorted(set(declared.items()) ^ set(found.items()))[0][0]
            shapes = f"{declared.get(differing)} by the settings and {found.get(differing)} in the file"
            raise PlanError(f"the network's weights {differing!r} are of shape {shapes}")
        for name, weight in expected.items():
            array_of(weights, name, tuple(weight.shape), "f" if weight.is_floating_point() else "iu")
        network = build()
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
    return network.eval()
