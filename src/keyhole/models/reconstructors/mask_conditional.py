"""Reconstructors that take any mask: what a law is trained with, before its sites are fixed."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from keyhole.data.samples import Samples
from keyhole.masks import share
from keyhole.models.principal_components import principal_components
from keyhole.models.reconstructors.networks import DenseNet, ResNet, check_two_dimensional
from keyhole.models.settings import width_for

__all__ = ["ConditionalReconstructor", "DenseConditional", "ResNetConditional", "make_decoder"]


class ConditionalReconstructor(nn.Module, ABC):
    """Rebuilds packed cells from signals seen through masks.

    Made for one grid; ``forward`` takes signals ``(batch, channels, *grid)`` and masks ``(draws, *grid)``, each shared
    by consecutive signals, and gives ``(batch, channels * cells)``.
    """

    cells: Tensor

    def __init__(self, signals: Samples) -> None:
        super().__init__()
        self.register_buffer("cells", torch.from_numpy(signals.grid.cells), persistent=False)

    def pack(self, values: Tensor, lead: int) -> Tensor:
        """Keep the inside cells of ``(*lead axes, *grid)``."""
        flat = values.flatten(lead)
        return flat if len(self.cells) == flat.shape[-1] else flat.index_select(-1, self.cells)

    @abstractmethod
    def forward(self, x: Tensor, masks: Tensor) -> Tensor:
        """Rebuild from what the masks let through."""


class Gaussian(ConditionalReconstructor):
    r"""Conditional mean of a low-rank Gaussian, in closed form for any mask.

    With `r` principal components, `x = V a + e`, `a ~ N(0, diag(variances))` and noise `e` of the variance `eps_i` that
    the components leave at each site, a mask trusts site `i` with precision `t_i`:

    .. math:: \hat a = A^{-1} V' \mathrm{diag}(t)\, x, \qquad A = \Lambda^{-1} + V' \mathrm{diag}(t) V, \qquad
              t_i = \frac{s_i}{\epsilon_i + (1 - s_i)\, c_i}

    with `c_i` the variance of site `i` given all the other sites of the mask. `t_i` is 0 for a closed site and
    `1 / eps_i` for an open one, and what the site explains is linear in `s_i` in between: it changes `A^{-1}` by
    `-t / (1 + c t) = -s / (eps + c)` times a fixed matrix. So the gradient in `s_i` is just what opening a closed site
    would gain and what closing an open one would lose, which is what a law needs to know. (With `t = s / eps` it would
    be steep where noise is small, whatever the site is worth.)

    One number is learned: the size of the noise. Right for few samples, where a network would learn them by heart.
    """

    def __init__(self, signals: Samples, k: int) -> None:
        super().__init__(signals)
        # As many components as sites: what K readings could tell at best. With twice as many the sites were better on
        # train and worse on validation.
        components = principal_components(signals, max(k, 10))
        basis = components.basis
        packed = signals.valid_values() - components.mean
        scores = np.einsum("ncm,cmr->nr", packed, basis)
        left = np.square(packed - np.einsum("nr,cmr->ncm", scores, basis)).mean(axis=0)
        noise = left + 1e-3 * np.square(packed).mean()
        for name, array in {
            "basis": basis.reshape(-1, basis.shape[-1]),
            "mean": components.mean.ravel(),
            "precision": 1 / components.variances,
            "noise": noise.ravel(),
        }.items():
            self.register_buffer(name, torch.from_numpy(array.astype(np.float32)), persistent=False)
        self.log_size = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, masks: Tensor) -> Tensor:
        """Solve one small system for each mask; in full precision, which factorisations need."""
        with torch.autocast(x.device.type, enabled=False):
            return self._rebuilt(x, masks)

    def _rebuilt(self, x: Tensor, masks: Tensor) -> Tensor:
        basis, mean = self.get_buffer("basis"), self.get_buffer("mean")
        noise = self.get_buffer("noise") * self.log_size.exp()
        seen = self.pack(masks, 1).repeat(1, x.shape[1])
        trust = seen / (noise + (1 - seen) * self._given_others(seen, noise))
        told = ((self.pack(x, 2).flatten(1) - mean) * share(trust, len(x))) @ basis
        factor = share(torch.linalg.cholesky(self._information(trust)), len(x))
        scores = torch.cholesky_solve(told.unsqueeze(2), factor).squeeze(2)
        return mean + scores @ basis.T

    def _information(self, trust: Tensor) -> Tensor:
        """`A` of each mask, `(draws, r, r)`."""
        basis = self.get_buffer("basis")
        return torch.diag(self.get_buffer("precision")) + (basis.T * trust.unsqueeze(1)) @ basis

    @torch.no_grad()
    def _given_others(self, seen: Tensor, noise: Tensor) -> Tensor:
        """Variance of each site given all others: `p / (1 - p t)` with `p` the variance given the whole mask."""
        basis, trust = self.get_buffer("basis"), seen / noise
        factor = torch.linalg.cholesky(self._information(trust))
        half = torch.linalg.solve_triangular(factor, basis.T.expand(len(seen), -1, -1), upper=False)
        given: Tensor = half.square().sum(dim=1)
        return given / (1 - given * trust).clamp_min(1e-3)


class DenseConditional(ConditionalReconstructor):
    """Dense network on what the mask lets through and the mask itself.

    What the first layer makes of a mask is made once for all signals that share it.

    Parameters
    ----------
    outputs
        How many numbers to give; None for the packed cells, another number where something else is to be told from
        what is seen.
    """

    def __init__(self, signals: Samples, outputs: int | None = None) -> None:
        super().__init__(signals)
        cells = len(signals.grid.cells)
        inputs = cells * (signals.channels + 1)
        self.network = DenseNet(
            inputs, outputs or cells * signals.channels, width=width_for(signals.taught), dropout=0.0
        )

    def forward(self, x: Tensor, masks: Tensor) -> Tensor:
        """Rebuild from the packed cells."""
        seen, packed = self.pack(masks, 1), self.pack(x, 2)
        observed = (packed * share(seen, len(x)).unsqueeze(1)).flatten(1)
        first = self.network.first
        of_observed, of_mask = first.weight.tensor_split([observed.shape[1]], dim=1)
        told_by_mask = functional.linear(seen, of_mask, first.bias)
        hidden = functional.linear(observed, of_observed) + share(told_by_mask, len(x))
        return self.network.beyond_first(hidden)


class ResNetConditional(ConditionalReconstructor):
    """The paper's ResNet on the observed grid.

    Parameters
    ----------
    mask_channel
        Whether the mask is one more input; the paper's network sees `S * x` alone.
    noise
        Whether one more input is noise, as a conditional GAN's generator takes; it must be given with each call.
    """

    def __init__(self, signals: Samples, *, mask_channel: bool = True, noise: bool = False) -> None:
        super().__init__(signals)
        check_two_dimensional(signals.grid.shape)
        self.mask_channel = mask_channel
        self.network = ResNet(signals.channels + int(mask_channel) + int(noise), signals.channels)

    def forward(self, x: Tensor, masks: Tensor) -> Tensor:
        """Rebuild from the grid."""
        return self.pack(self.on_grid(x, masks), 2).flatten(1)

    def on_grid(self, x: Tensor, masks: Tensor, *more: Tensor) -> Tensor:
        """Rebuild ``(batch, channels, *grid)``; ``more`` are further inputs of the grid's shape."""
        seen = share(masks, len(x)).unsqueeze(1)
        inputs = [x * seen, *([seen] if self.mask_channel else []), *more]
        return self.network(torch.cat(inputs, dim=1))  # type: ignore[no-any-return]


def make_decoder(kind: str, signals: Samples, k: int, *, mask_channel: bool = True) -> ConditionalReconstructor:
    """Give a reconstructor of packed cells by its name, for masks of about ``k`` sites."""
    if kind == "gaussian":
        return Gaussian(signals, k)
    if kind == "dense":
        return DenseConditional(signals)
    return ResNetConditional(signals, mask_channel=mask_channel)
