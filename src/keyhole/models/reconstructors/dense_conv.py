"""A network that knows the grid: dense on the readings first, convolutions for the detail."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor, nn

from keyhole.core.settings import parse
from keyhole.data.grid import Grid
from keyhole.models.reconstructors.bounds import ValueBounds
from keyhole.models.reconstructors.networks import DenseNet, PatchNet, check_two_dimensional, width_for
from keyhole.models.reconstructors.neural import Dense, NetworkReconstructor
from keyhole.models.settings import DenseConvSettings
from keyhole.training.settings import TrainSettings

__all__ = ["DenseConv", "DenseConvNet"]


class DenseConvNet(nn.Module):
    """What a dense network makes of the readings, and what convolutions see in that beside the readings themselves.

    The convolutions get the dense estimate, with what was estimated before added to it, the nearest site's reading in
    every cell (a Voronoi map), how far that site is, where the cell is, and which cells are inside. Their head starts
    at zero, so that the network starts as the dense one. Limits hold for the dense estimate too, so that convolutions
    see and add to what is possible.
    """

    def __init__(
        self, inputs: int, channels: int, grid: Grid, sites: NDArray[np.int64],
        *, width: int, blocks: int, dropout: float, filters: int | None, layers: int, n_frequencies: int = 0,
        bounds: ValueBounds | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.inputs, self.channels, self.sites, self.bounds = inputs, channels, len(sites), bounds
        self.shape = check_two_dimensional(grid.shape, "dense_conv")
        outputs = channels * len(grid.cells)
        self.dense = DenseNet(inputs, outputs, width=width, blocks=blocks, dropout=dropout, n_frequencies=n_frequencies)
        nearest, maps = _maps(grid, sites)
        self.register_buffer("nearest", nearest, persistent=False)
        self.register_buffer("maps", maps, persistent=False)
        self.register_buffer("cells", torch.from_numpy(grid.cells), persistent=False)
        self.convolutions = PatchNet(2 * channels + len(maps), channels, self.shape, filters=filters, blocks=layers)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, inputs)`` to ``(N, channels, *grid)``: readings site by site, context, estimate if there is one."""
        told, estimate = x[:, : self.inputs], x[:, self.inputs :]
        coarse = self.dense(told)
        whole = coarse + estimate if estimate.shape[1] else coarse
        if self.bounds is not None:
            whole = self.bounds(whole)
            coarse = whole - estimate if estimate.shape[1] else whole
        maps = self.get_buffer("maps").expand(len(x), -1, -1, -1)
        seen = torch.cat([self._on_grid(whole), self._voronoi(x), maps], dim=1)
        return self._on_grid(coarse) + self.convolutions(seen)  # type: ignore[no-any-return]

    def _on_grid(self, packed: Tensor) -> Tensor:
        """Put packed cells on the grid, zero outside."""
        full = packed.new_zeros(len(packed), self.channels, math.prod(self.shape))
        full[:, :, self.get_buffer("cells")] = packed.reshape(len(packed), self.channels, -1)
        return full.reshape(len(packed), self.channels, *self.shape)

    def _voronoi(self, x: Tensor) -> Tensor:
        """Give every cell what its nearest site reads."""
        readings = x[:, : self.sites * self.channels].reshape(len(x), self.sites, self.channels)
        return readings[:, self.get_buffer("nearest")].transpose(1, 2).reshape(len(x), self.channels, *self.shape)


def _maps(grid: Grid, sites: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Which site is nearest to each cell, and what is known of every cell: inside, distance to that site, place."""
    distance, nearest = KDTree(grid.places[sites]).query(grid.places)
    rows = [grid.inside.ravel(), distance / max(float(distance.max()), 1e-12), *_spanned(np.indices(grid.shape))]
    maps = np.stack([np.asarray(row, np.float32).reshape(grid.shape) for row in rows])
    return torch.from_numpy(np.asarray(nearest, np.int64)), torch.from_numpy(maps)


def _spanned(indices: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    """Each axis from -1 to 1."""
    return [2 * axis / max(int(axis.max()), 1) - 1 for axis in indices]


class DenseConv(NetworkReconstructor):
    """Dense network from the K readings to all cells, then convolutions over the grid; for grids of two axes."""

    name: ClassVar[str] = "dense_conv"
    largest_batch: ClassVar[int] = 64  # a sample costs so much that more steps are worth more than smoother ones
    settings: DenseConvSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings, self.start = parse(DenseConvSettings, settings), dict[str, Tensor]()

    def starting_with(self, dense: Dense) -> Self:
        """Let the dense part start with the weights of one that was fitted to the same sites and targets.

        A step of the dense network is so much cheaper that it is better to have learned what it can before the
        convolutions begin; from there on half the rate is enough.
        """
        shape = {name: getattr(dense.settings, name) for name in ("width", "blocks", "n_frequencies")}
        self.settings, self.start = self.settings.model_copy(update=shape), dense.network.state_dict()
        return self

    def pace(self, samples: int, *, limited: bool) -> TrainSettings:
        """Go on more slowly from a start, and to the end: while the rate is high it is worse than where it started."""
        pace = super().pace(samples, limited=limited)
        return (
            pace.model_copy(update={"learning_rate": pace.learning_rate / 2, "patience": pace.validation_steps})
            if self.start
            else pace
        )

    def inputs(self, readings: Tensor, covariates: Tensor, estimate: Tensor) -> Tensor:
        """Put the estimate behind readings and context."""
        return torch.cat([super().inputs(readings, covariates, estimate), estimate], dim=1)

    def build(self, samples: int) -> nn.Module:
        """Make a network for the grid, its dense part as wide as the number of samples allows."""
        width = self.settings.width or width_for(samples)
        self.settings = self.settings.model_copy(update={"width": width})
        network = DenseConvNet(
            self.width, self.channels, self.grid, self.sites,
            width=width, blocks=self.settings.blocks, dropout=self.settings.dropout,
            n_frequencies=self.settings.n_frequencies,
            filters=self.settings.filters, layers=self.settings.layers, bounds=self.bounds,
        )  # fmt: skip
        if self.start:
            network.dense.load_state_dict(self.start)
        return network
