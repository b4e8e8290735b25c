"""Reconstructors that take any mask, with which mask distributions are trained before the sites are fixed."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.sites import Sites
from keyhole.masks import share
from keyhole.models.principal_components import principal_components
from keyhole.models.reconstructors.networks import DenseNet, ResNet, check_two_dimensional
from keyhole.models.settings import width_for
from keyhole.models.supervised_training import tensor_of

__all__ = ["ConditionalReconstructor", "DenseConditional", "Gaussian", "ResNetConditional", "make_decoder"]


class ConditionalReconstructor(nn.Module, ABC):
    """Base class: reconstruct the targets of all sites from samples observed through masks."""

    @abstractmethod
    def forward(self, x: Tensor, masks: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Reconstruct samples from what the masks let through.

        Parameters
        ----------
        x
            ``(N, channels, m)``.
        masks
            ``(M, m)``, each shared by N / M consecutive samples.
        generator
            Source of random numbers in training, for networks that need them.

        Returns
        -------
        Tensor
            ``(N, channels * m)``.
        """


class Gaussian(ConditionalReconstructor):
    r"""Conditional mean of a low-rank Gaussian, in closed form for any mask.

    With `r` principal components, `x = V a + e`, `a ~ N(0, diag(variances))` and noise `e` of the variance `eps_i` that
    the components leave at each site, a mask gives site `i` the precision `t_i`:

    .. math:: \hat a = A^{-1} V' \mathrm{diag}(t)\, x, \qquad A = \Lambda^{-1} + V' \mathrm{diag}(t) V, \qquad
              t_i = \frac{s_i}{\epsilon_i + (1 - s_i)\, c_i}

    with `c_i` the variance of site `i` given all the other sites of the mask. `t_i` is 0 for a closed site and
    `1 / eps_i` for an open one, and the variance explained by the site is linear in `s_i` in between: it changes
    `A^{-1}` by `-t / (1 + c t) = -s / (eps + c)` times a fixed matrix. So the gradient in `s_i` is exactly what opening
    a closed site would gain and closing an open one would lose. (With `t = s / eps` it would be steep where noise is
    small, whatever the site is worth.)

    One parameter is learned, the size of the noise. Suited to few samples, which a network would overfit.

    Parameters
    ----------
    samples
        Scaled training samples.
    k
        Approximate number of sites of the masks. There are as many components (at least 10): what K readings determine
        at best. With twice as many, sites were better on training and worse on validation samples.
    """

    def __init__(self, samples: ScaledSamples, k: int) -> None:
        super().__init__()
        components = principal_components(samples, max(k, 10))
        basis, variance = components.basis, samples.target_variance()
        unresolved = np.maximum(variance - np.einsum("cmr,cmr,r->cm", basis, basis, components.variances), 0)
        for name, array in {
            "basis": basis.reshape(-1, basis.shape[-1]),
            "mean": components.mean.ravel(),
            "precision": 1 / components.variances,
            "noise": (unresolved + 1e-3 * variance.mean()).ravel(),
        }.items():
            self.register_buffer(name, tensor_of(array), persistent=False)
        self.log_size = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, masks: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Solve one small system for each mask, in the full precision that factorisations need."""
        with torch.autocast(x.device.type, enabled=False):
            basis, mean = self.get_buffer("basis"), self.get_buffer("mean")
            noise = self.get_buffer("noise") * self.log_size.exp()
            observed = masks.repeat(1, x.shape[1])
            precision = observed / (noise + (1 - observed) * self._variance_given_others(observed, noise))
            projected = ((x.flatten(1) - mean) * share(precision, len(x))) @ basis
            factor = share(self._factor(precision), len(x))
            return mean + torch.cholesky_solve(projected.unsqueeze(2), factor).squeeze(2) @ basis.T

    def _factor(self, precision: Tensor) -> Tensor:
        """Cholesky factor of `A` for each mask, `(masks, r, r)`."""
        basis = self.get_buffer("basis")
        information = torch.diag(self.get_buffer("precision")) + (basis.T * precision.unsqueeze(1)) @ basis
        factor: Tensor = torch.linalg.cholesky(information)
        return factor

    @torch.no_grad()
    def _variance_given_others(self, observed: Tensor, noise: Tensor) -> Tensor:
        """Variance of each site given all others: `p / (1 - p t)` with `p` the variance given the whole mask."""
        precision, basis = observed / noise, self.get_buffer("basis").T.expand(len(observed), -1, -1)
        half: Tensor = torch.linalg.solve_triangular(self._factor(precision), basis, upper=False)
        given = half.square().sum(dim=1)
        return given / (1 - given * precision).clamp_min(1e-3)


class DenseConditional(ConditionalReconstructor):
    """Dense network on the observed values and the mask.

    The first layer's product with a mask is computed once for all samples that share the mask.

    Parameters
    ----------
    samples
        Scaled training samples.
    outputs
        Number of outputs; None for the values at valid sites, another number to predict something else.
    """

    def __init__(self, samples: ScaledSamples, outputs: int | None = None) -> None:
        super().__init__()
        count, channels = len(samples.sites), samples.channels
        width = width_for(len(samples))
        self.network = DenseNet(count * (channels + 1), outputs or count * channels, width=width, dropout=0.0)

    def forward(self, x: Tensor, masks: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Map the valid sites of samples and masks to the outputs."""
        mask, first = masks, self.network.first
        observed = (x * share(mask, len(x)).unsqueeze(1)).flatten(1)
        of_observed, of_mask = first.weight.tensor_split([observed.shape[1]], dim=1)
        from_mask = share(functional.linear(mask, of_mask, first.bias), len(x))
        return self.network.beyond_first(functional.linear(observed, of_observed) + from_mask)


class ResNetConditional(ConditionalReconstructor):
    """The paper's ResNet on the observed grid; see `ResNet`.

    Parameters
    ----------
    samples
        Scaled training samples on a two-dimensional grid.
    mask_channel
        Whether the mask is one more input; the paper's network sees `S * x` alone.
    noise
        Whether there is one more input for noise, as the generator of a conditional GAN has.
    n_phases
        Phases of its strides that are averaged, after training with random shifts; see `ResNet`. 0 for neither.
    """

    def __init__(
        self, samples: ScaledSamples, *, mask_channel: bool = True, noise: bool = False,
        n_phases: Literal[0, 1, 4, 16] = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        check_two_dimensional(samples.sites.shape)
        self.mask_channel, self.grid = mask_channel, SitesToGrid(samples.sites)
        inputs = samples.channels + int(mask_channel) + int(noise)
        self.network = ResNet(inputs, samples.channels, n_phases=n_phases)

    def forward(
        self, x: Tensor, masks: Tensor, generator: torch.Generator | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Reconstruct the targets; ``noise`` is one more input on the grid."""
        mask = share(masks, len(x)).unsqueeze(1)
        inputs = [self.grid(x * mask), *([self.grid(mask)] if self.mask_channel else [])]
        inputs += [] if noise is None else [noise]
        return self.grid.pack(self.network(torch.cat(inputs, dim=1), generator)).flatten(1)


class SitesToGrid(nn.Module):
    """Put values of the sites onto their grid, zero where no site is valid, and take them from it.

    Parameters
    ----------
    sites
        The m valid sites.
    """

    def __init__(self, sites: Sites) -> None:
        super().__init__()
        self.shape = sites.shape
        self.register_buffer("index", torch.from_numpy(sites.index), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """Map ``(N, channels, m)`` to ``(N, channels, *shape)``."""
        whole = values.new_zeros(*values.shape[:2], math.prod(self.shape))
        return whole.index_copy(2, self.get_buffer("index"), values).reshape(*values.shape[:2], *self.shape)

    def pack(self, grid: Tensor) -> Tensor:
        """Map ``(N, channels, *shape)`` to ``(N, channels, m)``."""
        return grid.flatten(2).index_select(2, self.get_buffer("index"))


def make_decoder(
    kind: str, samples: ScaledSamples, k: int, *, mask_channel: bool = True, n_phases: Literal[0, 1, 4, 16] = 0
) -> ConditionalReconstructor:
    """Construct a mask-conditional reconstructor.

    Parameters
    ----------
    kind
        ``"gaussian"``, ``"dense"`` or ``"resnet"``.
    samples
        Scaled training samples.
    k
        Approximate number of sites of the masks.
    mask_channel
        Whether the ResNet sees the mask.
    n_phases
        Phases of the ResNet's strides that are averaged.
    """
    if kind == "gaussian":
        return Gaussian(samples, k)
    if kind == "dense":
        return DenseConditional(samples)
    return ResNetConditional(samples, mask_channel=mask_channel, n_phases=n_phases)
