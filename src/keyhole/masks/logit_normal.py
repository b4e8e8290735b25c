"""The logit-normal laws: independent sites (ILN) and a low-rank covariance (VLN)."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from keyhole.masks.base import CommonArguments, Draw, MaskDistribution, MaskSample
from keyhole.masks.modes import logit_normal_modes
from keyhole.masks.normal import normal_above, quantile, row_norm

__all__ = ["INITIAL_ATOM", "CorrelatedLogitNormal", "IndependentLogitNormal", "LogitNormal"]

INITIAL_ATOM = 0.2  # the paper starts with P(S = 0) and P(S = 1) about here


class LogitNormal(MaskDistribution):
    r"""Laws whose logits are normal: a location and a spread per site give every closed form.

    .. math::
        P(S_i > 0) = 1 - \Phi((\lambda \log(-\gamma / \eta) - b_i) / \sigma_i), \qquad
        P(S_i = 1) \to \Phi(b_i / \sigma_i) \text{ as } \lambda \to 0

    The paper prints the first without its temperature, which is right for `lam = 1` only.
    """

    @abstractmethod
    def moments(self) -> tuple[Tensor, Tensor]:
        """Return location and spread of the logits, `(sites,)` each."""

    @abstractmethod
    def _logits(self, draws: int, generator: torch.Generator) -> Tensor: ...

    def _initial_moments(self) -> tuple[float, float]:
        """Location and spread for which `P(S = 0) = P(S = 1) = 0.2` at this temperature and stretch."""
        middle = self.temperature * (self.upper_logit + self.lower_logit) / 2
        reach = self.temperature * (self.upper_logit - self.lower_logit) / 2
        return middle, reach / float(quantile(torch.tensor(1 - INITIAL_ATOM, dtype=torch.float64)))

    def _draw(self, draws: int, generator: torch.Generator) -> Draw:
        location, spread = self.moments()
        opening = normal_above(self.temperature * self.lower_logit, location, spread)
        return Draw(self._logits(draws, generator), opening[None], normal_above(0.0, location, spread)[None])

    def _marginals(self) -> Tensor:
        return normal_above(0.0, *self.moments())

    def _offset(self, marginals: Tensor) -> Tensor:
        location, spread = self.moments()
        return spread * quantile(marginals) - location

    @torch.no_grad()
    def interior_modes(self) -> Tensor:
        """Tell it per site, exactly: see `logit_normal_modes`."""
        location, spread = (moment / self.temperature for moment in self.moments())
        return logit_normal_modes(location, spread, self.lower_logit, self.upper_logit)

    @torch.no_grad()
    def polarise(self, sample: MaskSample, least: float) -> None:
        r"""Widen small spreads, then bound the marginals.

        With `sigma >= lam sqrt(2) cosh(t / 2)`, `t` the logit at which the stretch clips, the turning points of the
        density lie outside and no location gives an interior mode; see `logit_normal_modes`.
        """
        edge = max(-self.lower_logit, self.upper_logit)
        self._widen(self.temperature * math.sqrt(2) * math.cosh(edge / 2))
        self._bound(*self.moments(), least)

    @abstractmethod
    def _widen(self, least: float) -> None:
        """Bring every spread to at least this."""


class IndependentLogitNormal(LogitNormal):
    r"""Independent logit-normal sites.

    .. math:: u = \mu + \sigma \odot z, \qquad z \sim N(0, I_m)

    Starts with `P(S = 0) = P(S = 1) = 0.2` at every site. Arguments as in `MaskDistribution`.

    >>> generator = torch.Generator().manual_seed(0)
    >>> distribution = IndependentLogitNormal(torch.ones(4, 4, dtype=torch.bool), generator=generator)
    >>> distribution.sample(3, torch.Generator().manual_seed(0)).values.shape
    torch.Size([3, 4, 4])
    >>> distribution.count()
    8.0
    """

    name: ClassVar[str] = "iln"
    correlated: ClassVar[bool] = False

    def __init__(self, observable: Tensor, *, generator: torch.Generator, **common: Unpack[CommonArguments]) -> None:
        super().__init__(observable, generator=generator, **common)
        location, spread = self._initial_moments()
        self.mu = nn.Parameter(self._filled(location))
        self.log_sigma = nn.Parameter(self._filled(spread).log())

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return `mu` and `sigma`."""
        return self.mu, self.log_sigma.exp()

    def _logits(self, draws: int, generator: torch.Generator) -> Tensor:
        return self.mu + self.log_sigma.exp() * self._normal(draws, self.sites, generator=generator)

    def _widen(self, least: float) -> None:
        self.log_sigma.clamp_(min=math.log(least))

    def _move(self, delta: Tensor) -> None:
        self.mu.add_(delta)


class CorrelatedLogitNormal(LogitNormal):
    r"""The paper's vanilla correlated law: sites share a small latent.

    .. math::
        u = W z + b, \qquad z \sim N(0, I_d), \qquad
        \sigma_i = \lVert W_i \rVert, \qquad \mathrm{cov}(u) = W W'

    `W` starts uniform, then each row is scaled so that `P(S = 0) = P(S = 1) = 0.2` at every site
    (`sigma = 0.855` at temperature 0.3). Arguments as in `MaskDistribution`, and `rank`, the `d` of the formula.

    >>> generator = torch.Generator().manual_seed(0)
    >>> distribution = CorrelatedLogitNormal(torch.ones(4, 4, dtype=torch.bool), generator=generator)
    >>> round(distribution.covariance()[0, 0].sqrt().item(), 3)
    0.855
    """

    name: ClassVar[str] = "vln"
    correlated: ClassVar[bool] = True

    def __init__(
        self, observable: Tensor, *, generator: torch.Generator, rank: int = 16, **common: Unpack[CommonArguments]
    ) -> None:
        super().__init__(observable, generator=generator, **common)
        location, spread = self._initial_moments()
        uniform = 2 * self._uniform(self.sites, rank, generator=generator) - 1
        self.weight = nn.Parameter(spread * uniform / row_norm(uniform)[:, None])
        self.bias = nn.Parameter(self._filled(location))

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return `b` and the row norms of `W`."""
        return self.bias, row_norm(self.weight)

    def _logits(self, draws: int, generator: torch.Generator) -> Tensor:
        z = self._normal(draws, self.weight.shape[1], generator=generator)
        return torch.addmm(self.bias, z, self.weight.T)

    def latent_weights(self) -> list[nn.Parameter]:
        """Give `W`."""
        return [self.weight]

    def _covariance(self) -> Tensor:
        return self.weight @ self.weight.T

    def _widen(self, least: float) -> None:
        self.weight.mul_((least / row_norm(self.weight)).clamp_min(1).unsqueeze(1))

    def _move(self, delta: Tensor) -> None:
        self.bias.add_(delta)
