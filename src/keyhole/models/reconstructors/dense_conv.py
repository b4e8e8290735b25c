"""Dense network on the readings, followed by convolutions over the grid."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor, nn

from keyhole.data.sites import Sites
from keyhole.models.reconstructors.bounds import ValueBounds
from keyhole.models.reconstructors.networks import DenseNet, PatchNet, check_two_dimensional
from keyhole.models.reconstructors.neural import Dense
from keyhole.models.settings import DenseConvSettings
from keyhole.training.settings import TrainSettings

__all__ = ["DenseConv", "DenseConvNet"]


class DenseConvNet(nn.Module):
    """Dense network, corrected by convolutions that see its output and the readings on the grid.

    The convolutions get the dense estimate (with the linear estimate added to it, if there is one), the reading of the
    nearest site at each grid point (a Voronoi tessellation), the distance to that site, the position, and the mask of
    valid sites. They are initialised to zero, so that the network starts as the dense one. Bounds hold for the dense
    estimate too, so that convolutions add to possible values.

    Parameters
    ----------
    dense
        Network from readings and covariates to ``(N, channels * m)``.
    inputs
        Number of readings and covariates.
    channels, domain, sites
        Number of channels, all sites, and numbers of the K selected ones.
    filters, layers
        As in `PatchNet`; ``layers`` are its residual blocks.
    bounds
        Bounds of the values, if any.

    References
    ----------
    Fukami, Maulik, Ramachandra, Fukagata & Taira (2021), *Global field reconstruction from sparse sensors with Voronoi
    tessellation-assisted deep learning*, Nature Machine Intelligence 3.

    Examples
    --------
    >>> domain, sites = Sites.plain((8, 8)), np.array([3, 40])
    >>> net = DenseConvNet(DenseNet(2, 64, width=16), 2, 1, domain, sites, filters=4, layers=1)
    >>> net(torch.ones(5, 2)).shape
    torch.Size([5, 1, 8, 8])
    """

    def __init__(
        self, dense: DenseNet, inputs: int, channels: int, domain: Sites, sites: NDArray[np.int64],
        *, filters: int | None, layers: int, bounds: ValueBounds | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.dense, self.inputs, self.channels, self.sites, self.bounds = dense, inputs, channels, len(sites), bounds
        self.shape = check_two_dimensional(domain.shape, "dense_conv")
        places, points = np.indices(self.shape), domain.grid_points()
        distance, nearest = KDTree(points[domain.index[sites]]).query(points)
        position = [2 * axis / max(int(axis.max()), 1) - 1 for axis in places]  # from -1 to 1
        valid = domain.to_grid(np.ones(len(domain)), fill=0.0)
        maps = [valid, distance.reshape(self.shape) / max(float(distance.max()), 1e-12), *position]
        self.register_buffer("nearest", torch.from_numpy(np.asarray(nearest, np.int64)), persistent=False)
        self.register_buffer("maps", torch.from_numpy(np.stack(maps).astype(np.float32)), persistent=False)
        self.register_buffer("index", torch.from_numpy(domain.index), persistent=False)
        self.convolutions = PatchNet(2 * channels + len(maps), channels, self.shape, filters=filters, blocks=layers)

    def forward(self, x: Tensor) -> Tensor:
        """Map readings, covariates and linear estimate ``(N, inputs or more)`` to ``(N, channels, *grid)``."""
        estimate = x[:, self.inputs :]
        added = self.dense(x[:, : self.inputs])
        whole = added + estimate if estimate.shape[1] else added
        if self.bounds is not None:
            whole = self.bounds(whole)
            added = whole - estimate if estimate.shape[1] else whole
        maps = self.get_buffer("maps").expand(len(x), -1, -1, -1)
        seen = torch.cat([self._on_grid(whole), self.voronoi(x), maps], dim=1)
        return self._on_grid(added) + self.convolutions(seen)  # type: ignore[no-any-return]

    def _on_grid(self, packed: Tensor) -> Tensor:
        """Scatter values at the valid sites to the grid, zero elsewhere."""
        full = packed.new_zeros(len(packed), self.channels, math.prod(self.shape))
        full[:, :, self.get_buffer("index")] = packed.reshape(len(packed), self.channels, -1)
        return full.reshape(len(packed), self.channels, *self.shape)

    def voronoi(self, x: Tensor) -> Tensor:
        """Return the reading of the nearest site at each grid point, ``(N, channels, *grid)``."""
        readings = x[:, : self.sites * self.channels].reshape(len(x), self.sites, self.channels)
        return readings[:, self.get_buffer("nearest")].transpose(1, 2).reshape(len(x), self.channels, *self.shape)


class DenseConv(Dense):
    """Dense network from the K readings to all sites, then convolutions over a two-dimensional grid.

    Prefer it to `Dense` for images and fields with local detail, given time for a dozen epochs; see `DenseConvNet`.

    Parameters
    ----------
    settings
        Fields of `DenseConvSettings`, by name.
    """

    name: ClassVar[str] = "dense_conv"
    largest_batch: ClassVar[int] = 64  # a sample costs so much that more steps are worth more than smoother ones
    settings_class = DenseConvSettings
    options: DenseConvSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.start: dict[str, Tensor] = {}

    def starting_with(self, dense: Dense) -> Self:
        """Initialise the dense part with the weights of a network that was fitted to the same sites and targets.

        A step of the dense network is so much cheaper that it is better to have learned what it can before the
        convolutions begin; from there on half the learning rate is enough.

        Parameters
        ----------
        dense
            The fitted network.
        """
        shape = {name: getattr(dense.options, name) for name in ("width", "blocks", "n_frequencies")}
        self.options, self.start = self.options.model_copy(update=shape), dense.network.state_dict()
        return self

    def pace(self, samples: int, *, limited: bool) -> TrainSettings:
        """Return the default training settings; from a start with half the learning rate and no early stopping.

        While the learning rate is high, the network is worse than where it started.
        """
        pace = super().pace(samples, limited=limited)
        from_start = {"learning_rate": pace.learning_rate / 2, "patience": pace.validation_steps}
        return pace.model_copy(update=from_start) if self.start else pace

    def inputs(self, readings: Tensor, covariates: Tensor, estimate: Tensor) -> Tensor:
        """Append the estimate to readings and covariates."""
        return torch.cat([super().inputs(readings, covariates, estimate), estimate], dim=1)

    def build(self, samples: int) -> nn.Module:
        """Construct a `DenseConvNet` for the grid, its dense part as wide as the number of samples allows."""
        self.options = self.options.for_samples(samples)
        dense = DenseNet.of(self.n_inputs, self.n_outputs, self.options)
        if self.start:
            dense.load_state_dict(self.start)
        return DenseConvNet(
            dense, self.n_inputs, self.channels, self.domain, self.places,
            filters=self.options.filters, layers=self.options.layers, bounds=self.bounds,
        )  # fmt: skip
