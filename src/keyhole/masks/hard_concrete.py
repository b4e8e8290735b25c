"""The stretched binary concrete law (SCT), also known as hard concrete."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from keyhole.masks.base import CommonArguments, Draw, MaskDistribution, MaskSample
from keyhole.masks.modes import concrete_modes

__all__ = ["HardConcrete"]


class HardConcrete(MaskDistribution):
    r"""Independent sites with logistic noise.

    .. math::
        u = \log\alpha + \log v - \log(1 - v), \quad v \sim U(0, 1), \qquad
        P(S_i > 0) = \mathrm{sigmoid}(\log\alpha_i - \lambda \log(-\gamma / \eta)), \qquad
        P(S_i = 1) \to \mathrm{sigmoid}(\log\alpha_i) \text{ as } \lambda \to 0

    Starts at `log_alpha = 0`: at temperature 2/3 and the usual stretch, `P(S = 0) = P(S = 1) = 0.168`. The
    noise has one scale only, so 0.2 cannot be had at this temperature. Arguments as in `MaskDistribution`.

    >>> distribution = HardConcrete(torch.ones(5, dtype=torch.bool), generator=torch.Generator().manual_seed(0))
    >>> distribution.count(), round(distribution.temperature, 3)
    (2.5, 0.667)
    """

    name: ClassVar[str] = "sct"
    correlated: ClassVar[bool] = False
    default_temperature: ClassVar[float] = 2 / 3

    def __init__(self, observable: Tensor, *, generator: torch.Generator, **common: Unpack[CommonArguments]) -> None:
        super().__init__(observable, generator=generator, **common)
        self.log_alpha = nn.Parameter(self._filled(0.0))

    def _draw(self, draws: int, generator: torch.Generator) -> Draw:
        v = self._uniform(draws, self.sites, generator=generator)
        noise = torch.logit(v.clamp_min(torch.finfo(v.dtype).eps / 4))
        opening = torch.sigmoid(self.log_alpha - self.temperature * self.lower_logit)
        return Draw(self.log_alpha + noise, opening[None], torch.sigmoid(self.log_alpha)[None])

    def _marginals(self) -> Tensor:
        return torch.sigmoid(self.log_alpha)

    def _move(self, delta: Tensor) -> None:
        self.log_alpha.add_(delta)

    @torch.no_grad()
    def polarise(self, sample: MaskSample, least: float) -> None:
        """Bound the marginals; below temperature 1 there are no interior modes."""
        furthest = math.log((1 - least) / least)
        self.log_alpha.clamp_(-furthest, furthest)

    def _offset(self, marginals: Tensor) -> Tensor:
        return torch.logit(marginals) - self.log_alpha

    @torch.no_grad()
    def interior_modes(self) -> Tensor:
        """Tell it per site, exactly; no site has one at a temperature of 1 or less. See `concrete_modes`."""
        return concrete_modes(self.log_alpha, self.temperature, self.lower_logit, self.upper_logit)
