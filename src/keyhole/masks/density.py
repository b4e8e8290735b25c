"""Densities of single sites: of the logit, and of the mask with its atoms at 0 and 1."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from keyhole.masks.normal import log_cdf

__all__ = ["ClippedSigmoid", "LogisticLogits", "LogitDensity", "NormalLogits"]

_NODES = 128
_LEAST_LOG = -1e4  # exp of it is 0 in float64; keeps 0 log 0 from being nan


class LogitDensity(ABC):
    """Distribution of the logit of each site, `(n_sites,)`, differentiable in its parameters."""

    @abstractmethod
    def log_density(self, u: Tensor) -> Tensor:
        """Compute the log density at logits `(..., n_sites)`."""

    @abstractmethod
    def log_cdf(self, u: float) -> Tensor:
        """Compute `log P(logit <= u)`, `(n_sites,)`."""

    @abstractmethod
    def log_survival(self, u: float) -> Tensor:
        """Compute `log P(logit > u)`, `(n_sites,)`."""

    @abstractmethod
    def support(self) -> tuple[Tensor, Tensor]:
        """Return the ends of an interval beyond which the density is below rounding, without gradient."""


@dataclass(frozen=True, eq=False)
class NormalLogits(LogitDensity):
    """Normal logits with mean `location` and standard deviation `spread`."""

    location: Tensor
    spread: Tensor

    def log_density(self, u: Tensor) -> Tensor:
        """Compute the log of the normal density."""
        residual = (u - self.location) / self.spread
        return -residual.square() / 2 - self.spread.log() - math.log(2 * math.pi) / 2

    def log_cdf(self, u: float) -> Tensor:
        """Compute `log Phi((u - location) / spread)`."""
        return log_cdf((u - self.location) / self.spread)

    def log_survival(self, u: float) -> Tensor:
        """Compute `log Phi((location - u) / spread)`."""
        return log_cdf((self.location - u) / self.spread)

    def support(self) -> tuple[Tensor, Tensor]:
        """Return the mean and nine standard deviations to either side."""
        location, spread = self.location.detach(), self.spread.detach()
        return location - 9 * spread, location + 9 * spread


@dataclass(frozen=True, eq=False)
class LogisticLogits(LogitDensity):
    """Logistic logits with this location and unit scale."""

    location: Tensor

    def log_density(self, u: Tensor) -> Tensor:
        """Compute the log of the logistic density."""
        return functional.logsigmoid(u - self.location) + functional.logsigmoid(self.location - u)

    def log_cdf(self, u: float) -> Tensor:
        """Compute `log sigmoid(u - location)`."""
        return functional.logsigmoid(u - self.location)

    def log_survival(self, u: float) -> Tensor:
        """Compute `log sigmoid(location - u)`."""
        return functional.logsigmoid(self.location - u)

    def support(self) -> tuple[Tensor, Tensor]:
        """Return the location and forty units to either side."""
        location = self.location.detach()
        return location - 40, location + 40


@dataclass(frozen=True)
class ClippedSigmoid:
    r"""The map from a logit to the mask of a site, and the distribution of the mask that it gives.

    .. math:: s = \mathrm{clip}((\eta - \gamma)\, y + \gamma,\ 0,\ 1), \qquad y = \mathrm{sigmoid}(u / \lambda)

    Parameters
    ----------
    temperature
        `lam`.
    gamma, eta
        Ends of the stretch.
    """

    temperature: float
    gamma: float
    eta: float

    @property
    def lower(self) -> float:
        """The logit up to which the mask is 0."""
        return self.temperature * math.log(-self.gamma / self.eta)

    @property
    def upper(self) -> float:
        """The logit from which the mask is 1."""
        return self.temperature * math.log((1 - self.gamma) / (self.eta - 1))

    def log_prob(self, density: LogitDensity, s: Tensor) -> Tensor:
        r"""Compute the log density of masks, with respect to Lebesgue measure on (0, 1) plus point masses at 0 and 1.

        .. math::
            \log P(u \le \lambda L) \text{ at } 0, \qquad
            \log p(u) + \log \frac{\lambda}{(\eta - \gamma)\, y (1 - y)} \text{ between}, \qquad
            \log P(u > \lambda U) \text{ at } 1

        Parameters
        ----------
        density
            Distribution of the logits.
        s
            Masks of the sites, `(..., n_sites)`.

        Returns
        -------
        Tensor
            Same shape; minus infinity outside [0, 1].
        """
        y = (s.clamp(0, 1) - self.gamma) / (self.eta - self.gamma)
        u = self.temperature * torch.logit(y)
        result = density.log_density(u) + self._log_slope(u)
        result = torch.where(s == 0, density.log_cdf(self.lower), result)
        result = torch.where(s == 1, density.log_survival(self.upper), result)
        return result.masked_fill((s < 0) | (s > 1), -torch.inf)

    def entropy(self, density: LogitDensity) -> Tensor:
        """Compute the entropy `-E log_prob` of each site, by Gauss-Legendre quadrature between the atoms.

        Parameters
        ----------
        density
            Distribution of the logits.

        Returns
        -------
        Tensor
            `(n_sites,)`, in nats; negative where the mask is nearly certain and not at 0 or 1.
        """
        atoms = [density.log_cdf(self.lower), density.log_survival(self.upper)]
        of_atoms = sum((log.exp() * log.clamp_min(_LEAST_LOG) for log in atoms), torch.zeros_like(atoms[0]))
        start, end = (edge.clamp(self.lower, self.upper) for edge in density.support())
        nodes, weights = (torch.as_tensor(one, dtype=start.dtype, device=start.device) for one in _legendre())
        half = (end - start) / 2
        u = start + half * (nodes[:, None] + 1)
        log = density.log_density(u)
        between = (weights[:, None] * half * log.exp() * (log + self._log_slope(u))).sum(0)
        return -(of_atoms + between)

    def _log_slope(self, u: Tensor) -> Tensor:
        """Return `log du/ds` between the atoms."""
        log_y, log_rest = functional.logsigmoid(u / self.temperature), functional.logsigmoid(-u / self.temperature)
        return math.log(self.temperature / (self.eta - self.gamma)) - log_y - log_rest


@cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights on [-1, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights
