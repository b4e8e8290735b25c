"""Three tasks with a decoder and a loss of one's own: images with edges, classes, and an incompressible flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor, nn

from keyhole.data import datasets
from keyhole.data.preparation import PreparedSamples, prepare, split_of
from keyhole.data.readers import read
from keyhole.data.splits import Split
from keyhole_benchmarks.made_up import vortex_street

__all__ = ["EXAMPLES", "Classifier", "Example", "GridDecoder", "Loss", "with_divergence", "with_edges"]

Loss = Callable[[Tensor, Tensor], Tensor]

_TRAIN, _VALIDATION, _TEST = 3000, 1000, 4000
_FLOWS, _FLOW_VALIDATION, _FLOW_TEST = 3000, 1000, 2000
_GRID = (16, 32)
_TEST_SEED = 1_000_000  # of the flows of the test part, which are the same for all seeds


class GridDecoder(nn.Module):
    """Two dense layers and two transposed convolutions, from the observed grid and its mask to the field.

    Parameters
    ----------
    shape
        Rows and columns, multiples of four.
    channels
        Channels of the field.
    width
        Units of the hidden dense layer.

    Examples
    --------
    >>> import torch
    >>> GridDecoder((8, 12), channels=2)(torch.zeros(3, 3, 8, 12)).shape
    torch.Size([3, 2, 8, 12])
    """

    def __init__(self, shape: tuple[int, int], *, channels: int = 1, width: int = 128) -> None:
        super().__init__()
        rows, columns = shape[0] // 4, shape[1] // 4
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear((channels + 1) * shape[0] * shape[1], width), nn.SiLU(),
            nn.Linear(width, 16 * rows * columns), nn.SiLU(), nn.Unflatten(1, (16, rows, columns)),
            nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1), nn.SiLU(),
            nn.ConvTranspose2d(8, channels, 4, stride=2, padding=1),
        )  # fmt: skip

    def forward(self, observed: Tensor) -> Tensor:
        """Map ``(N, channels + 1, *grid)`` to ``(N, channels, *grid)``."""
        field: Tensor = self.layers(observed)
        return field


class Classifier(nn.Module):
    """A dense network with one hidden layer, from the observed grid and its mask to a logit for each class.

    Parameters
    ----------
    shape
        Rows and columns.
    classes
        Number of classes.
    width
        Units of the hidden layer.

    Examples
    --------
    >>> import torch
    >>> Classifier((8, 8))(torch.zeros(3, 2, 8, 8)).shape
    torch.Size([3, 10])
    """

    def __init__(self, shape: tuple[int, int], *, classes: int = 10, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(2 * shape[0] * shape[1], width), nn.SiLU(), nn.Linear(width, classes)
        )

    def forward(self, observed: Tensor) -> Tensor:
        """Map ``(N, 2, *grid)`` to ``(N, classes)``."""
        logits: Tensor = self.layers(observed)
        return logits


def with_edges(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """Squared error, and squared error of the differences between neighbours in both directions, of each sample.

    Parameters
    ----------
    reconstruction, truth
        ``(N, channels, rows, columns)``.

    Examples
    --------
    >>> import torch
    >>> with_edges(torch.eye(2)[None, None], torch.zeros(1, 1, 2, 2))
    tensor([2.5000])
    """
    difference = reconstruction - truth
    across, down = (difference.diff(dim=axis).square().mean((1, 2, 3)) for axis in (3, 2))
    return difference.square().mean((1, 2, 3)) + across + down


def with_divergence(reconstruction: Tensor, truth: Tensor, *, spread: tuple[float, float], weight: float) -> Tensor:
    """Squared error, and the squared divergence of the reconstruction by central differences, of each sample.

    Parameters
    ----------
    reconstruction, truth
        Standardised velocities along columns and rows, ``(N, 2, rows, columns)``.
    spread
        What both components are multiplied with before their divergence is taken, since each channel is divided by its
        own standard deviation: the ratio of that to the common one.
    weight
        Weight of the divergence.

    Examples
    --------
    >>> import torch
    >>> u, v = torch.meshgrid(torch.arange(4.0), -torch.arange(4.0), indexing="xy")
    >>> flow = torch.stack([u, v])[None]
    >>> with_divergence(flow, flow, spread=(1.0, 1.0), weight=1.0)
    tensor([0.])
    """
    return (reconstruction - truth).square().mean((1, 2, 3)) + weight * squared_divergence(reconstruction, spread)


def squared_divergence(field: Tensor, spread: tuple[float, float]) -> Tensor:
    """Compute the mean squared divergence of each sample, without the cells at the border; see `with_divergence`."""
    u, v = field[:, 0] * spread[0], field[:, 1] * spread[1]
    divergence = (u[:, 1:-1, 2:] - u[:, 1:-1, :-2] + v[:, 2:, 1:-1] - v[:, :-2, 1:-1]) / 2
    return divergence.square().mean((1, 2))


@dataclass(frozen=True)
class Example:
    """A task: data by seed, a decoder and a loss.

    Parameters
    ----------
    data
        Name of the data.
    k
        Number of sites.
    methods
        Selectors that are compared, the learned ones last.
    prepare
        Function of the seed that gives the parts; the test part is the same for all seeds.
    decoder
        Makes an untrained decoder.
    loss
        Function of the parts that gives the loss ``loss(outputs, truth)``.
    parts_of_loss
        Function of the parts that gives further errors by name.
    """

    data: str
    k: int
    methods: tuple[str, ...]
    prepare: Callable[[int], PreparedSamples]
    decoder: Callable[[], nn.Module]
    loss: Callable[[PreparedSamples], Loss]
    parts_of_loss: Callable[[PreparedSamples], Mapping[str, Loss]]


def _digits(seed: int) -> PreparedSamples:
    """The first of MNIST's test images, and 4000 of its training images drawn by the seed."""
    samples = datasets.load("mnist").with_target(datasets.labels("mnist"))
    usual = split_of(samples, samples.split, seed)
    chosen = np.random.default_rng(seed).permutation(usual.train)[: _TRAIN + _VALIDATION]
    return prepare(samples, Split.given(chosen[:_TRAIN], usual.test[:_TEST], chosen[_TRAIN:]), seed)


def _images(seed: int) -> PreparedSamples:
    prepared = _digits(seed)
    without = prepared.samples.with_target(None)
    return prepare(without, prepared.split, seed)


def _flows(seed: int) -> PreparedSamples:
    chosen, test = (
        vortex_street(n, _GRID, one) for n, one in ((_FLOWS + _FLOW_VALIDATION, seed), (_FLOW_TEST, _TEST_SEED))
    )
    end = len(chosen)
    split = Split.given(range(_FLOWS), range(end, end + len(test)), range(_FLOWS, end))
    return prepare(read(np.concatenate([chosen, test]).astype(np.float32), channels=1), split, seed)


def _squared(reconstruction: Tensor, truth: Tensor) -> Tensor:
    return (reconstruction - truth).square().mean((1, 2, 3))


def _wrong(logits: Tensor, truth: Tensor) -> Tensor:
    return (logits.argmax(1) != truth).float()


def _spread(parts: PreparedSamples) -> tuple[float, float]:
    along, down = (float(one) for one in parts.choosing.scale)
    common = ((along**2 + down**2) / 2) ** 0.5
    return along / common, down / common


def _divergence(parts: PreparedSamples) -> Mapping[str, Loss]:
    return {"mse": _squared, "divergence": lambda field, truth: squared_divergence(field, _spread(parts))}


_LEARNED = ("cold", "warm", "local_search")
_OF_FIELD = ("random", "qr", "greedy", "exchange", *_LEARNED)
_OF_CLASS = ("random", "qr", "greedy", "relevance", "forest", "kernel_exchange", *_LEARNED)
EXAMPLES = {
    "edges": Example(
        "mnist", 20, _OF_FIELD, _images, partial(GridDecoder, (28, 28)),
        lambda parts: with_edges, lambda parts: {"mse": _squared},
    ),
    "class": Example(
        "mnist", 20, _OF_CLASS, _digits, partial(Classifier, (28, 28)),
        lambda parts: nn.functional.cross_entropy, lambda parts: {"wrong": _wrong},
    ),
    "flow": Example(
        "vortex_street", 15, _OF_FIELD, _flows, partial(GridDecoder, _GRID, channels=2),
        lambda parts: partial(with_divergence, spread=_spread(parts), weight=1.0), _divergence,
    ),
}  # fmt: skip
