"""Logit-normal mask distributions: independent sites (ILN) and sites with a low-rank covariance (VLN)."""

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

INITIAL_ATOM = 0.2  # initial P(S = 0) and P(S = 1), as in the paper


class LogitNormal(MaskDistribution):
    r"""Base class for normal logits: the mean and standard deviation of each site give all closed forms.

    .. math::
        P(S_i > 0) = 1 - \Phi((\lambda \log(-\gamma / \eta) - b_i) / \sigma_i), \qquad
        P(S_i = 1) \to \Phi(b_i / \sigma_i) \text{ as } \lambda \to 0

    The paper's equation for `P(S_i > 0)` omits the temperature, and holds for `lam = 1` only.

    Parameters
    ----------
    observable, generator, temperature, gamma, eta
        As in `MaskDistribution`.

    References
    ----------
    .. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.
    """

    @abstractmethod
    def moments(self) -> tuple[Tensor, Tensor]:
        """Compute the mean and the standard deviation of the logits.

        Returns
        -------
        location, spread : Tensor
            `(sites,)` each, differentiable.
        """

    @abstractmethod
    def _logits(self, draws: int, generator: torch.Generator) -> Tensor:
        """Draw logits, `(draws, sites)`."""

    def _initial_moments(self) -> tuple[float, float]:
        """Return the mean and standard deviation for which `P(S = 0) = P(S = 1) = 0.2` at the current temperature."""
        middle = self.temperature * (self.upper_logit + self.lower_logit) / 2
        reach = self.temperature * (self.upper_logit - self.lower_logit) / 2
        return middle, reach / float(quantile(torch.tensor(1 - INITIAL_ATOM, dtype=torch.float64)))

    def _draw(self, draws: int, generator: torch.Generator) -> Draw:
        location, spread = self.moments()
        opening = normal_above(self.temperature * self.lower_logit, location, spread)
        return Draw(self._logits(draws, generator), opening[None], normal_above(0.0, location, spread)[None])

    def _marginals(self) -> Tensor:
        return normal_above(0.0, *self.moments())

    def _shift_to_marginals(self, marginals: Tensor) -> Tensor:
        location, spread = self.moments()
        return spread * quantile(marginals) - location

    @torch.no_grad()
    def interior_modes(self) -> Tensor:
        """Find sites with an interior mode, exactly; see `logit_normal_modes`.

        Returns
        -------
        Tensor
            Bool, `(sites,)`.
        """
        location, spread = (moment / self.temperature for moment in self.moments())
        return logit_normal_modes(location, spread, self.lower_logit, self.upper_logit)

    @torch.no_grad()
    def polarise(self, sample: MaskSample, min_marginal: float) -> None:
        r"""Raise small standard deviations until no interior mode is left, then clip the marginals.

        With `sigma >= lam sqrt(2) cosh(t / 2)`, where `t` is the logit at which the stretch clips, the turning points
        of the density lie outside the clipping limits and no location gives an interior mode; see
        `logit_normal_modes`.

        Parameters
        ----------
        sample, min_marginal
            As in `MaskDistribution.polarise`; the sample is not used.
        """
        edge = max(-self.lower_logit, self.upper_logit)
        self._raise_spread(self.temperature * math.sqrt(2) * math.cosh(edge / 2))
        self._clip_marginals(*self.moments(), min_marginal)

    @abstractmethod
    def _raise_spread(self, minimum: float) -> None:
        """Raise every standard deviation to at least the minimum, in place."""


class IndependentLogitNormal(LogitNormal):
    r"""Logit-normal distribution with independent sites (ILN in the paper).

    .. math:: u = \mu + \sigma \odot z, \qquad z \sim N(0, I_m)

    Two parameters per site, initialised so that `P(S = 0) = P(S = 1) = 0.2`. Neighbouring sites of a smooth field are
    redundant, which independent sites cannot express: prefer `CorrelatedLogitNormal` there.

    Parameters
    ----------
    observable, generator, temperature, gamma, eta
        As in `MaskDistribution`.

    References
    ----------
    .. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.

    Examples
    --------
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
        """Return `mu` and `sigma`.

        Returns
        -------
        location, spread : Tensor
            `(sites,)` each.
        """
        return self.mu, self.log_sigma.exp()

    def _logits(self, draws: int, generator: torch.Generator) -> Tensor:
        return self.mu + self.log_sigma.exp() * self._normal(draws, self.sites, generator=generator)

    def _raise_spread(self, minimum: float) -> None:
        self.log_sigma.clamp_(min=math.log(minimum))

    def _shift_logits(self, delta: Tensor) -> None:
        self.mu.add_(delta)


class CorrelatedLogitNormal(LogitNormal):
    r"""Logit-normal distribution with a low-rank covariance between sites (VLN in the paper).

    .. math::
        u = W z + b, \qquad z \sim N(0, I_d), \qquad
        \sigma_i = \lVert W_i \rVert, \qquad \mathrm{cov}(u) = W W'

    All sites share a latent vector of small dimension `d`, so that redundant sites can exclude each other. `W` is
    initialised uniformly, with each row scaled so that `P(S = 0) = P(S = 1) = 0.2` (`sigma = 0.855` at temperature
    0.3).

    Parameters
    ----------
    observable, generator, temperature, gamma, eta
        As in `MaskDistribution`.
    rank
        Dimension `d` of the latent vector, and rank of the covariance.

    References
    ----------
    .. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.

    Examples
    --------
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
        """Return `b` and the row norms of `W`.

        Returns
        -------
        location, spread : Tensor
            `(sites,)` each.
        """
        return self.bias, row_norm(self.weight)

    def _logits(self, draws: int, generator: torch.Generator) -> Tensor:
        z = self._normal(draws, self.weight.shape[1], generator=generator)
        return torch.addmm(self.bias, z, self.weight.T)

    def latent_weights(self) -> list[nn.Parameter]:
        """Return `W`.

        Returns
        -------
        list of Parameter
        """
        return [self.weight]

    def _covariance(self) -> Tensor:
        return self.weight @ self.weight.T

    def _raise_spread(self, minimum: float) -> None:
        self.weight.mul_((minimum / row_norm(self.weight)).clamp_min(1).unsqueeze(1))

    def _shift_logits(self, delta: Tensor) -> None:
        self.bias.add_(delta)
