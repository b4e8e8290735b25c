"""Logit-normal mask distributions: independent sites (ILN) and sites with a low-rank covariance (VLN)."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.distributions import LowRankMultivariateNormal

from keyhole.core.errors import SettingsError
from keyhole.masks.base import CommonArguments, MaskDistribution
from keyhole.masks.density import NormalLogits
from keyhole.masks.modes import logit_normal_modes
from keyhole.masks.normal import normal_above, quantile, row_norm, widened
from keyhole.masks.sample import Draw, MaskSample
from keyhole.masks.valid_sites import SitesLike

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
    sites, temperature, gamma, eta, generator
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
            `(n_sites,)` each, differentiable.
        """

    @abstractmethod
    def _logits(self, draws: int, generator: torch.Generator | None) -> Tensor:
        """Draw logits, `(draws, n_sites)`."""

    def _initial_moments(self) -> tuple[float, float]:
        """Return the mean and standard deviation for which `P(S = 0) = P(S = 1) = 0.2` at the current temperature."""
        middle = self.temperature * (self.upper_logit + self.lower_logit) / 2
        reach = self.temperature * (self.upper_logit - self.lower_logit) / 2
        return middle, reach / float(quantile(torch.tensor(1 - INITIAL_ATOM, dtype=torch.float64)))

    def _draw(self, draws: int, generator: torch.Generator | None) -> Draw:
        opening = self._open_probability(generator)
        return Draw(self._logits(draws, generator), opening, self._marginals()[None])

    def _marginals(self) -> Tensor:
        return normal_above(0.0, *self.moments())

    def _probs_open(self) -> Tensor:
        return normal_above(self.temperature * self.lower_logit, *self.moments())

    def _open_probability(self, generator: torch.Generator | None) -> Tensor:
        return self._probs_open()[None]

    def _logit_density(self) -> NormalLogits:
        return NormalLogits(*self.moments())

    def _shift_to_marginals(self, marginals: Tensor) -> Tensor:
        location, spread = self.moments()
        return spread * quantile(marginals) - location

    @torch.no_grad()
    def interior_modes(self) -> Tensor:
        """Find sites with an interior mode, exactly; see `logit_normal_modes`.

        Returns
        -------
        Tensor
            Bool, `(n_sites,)`.
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
    sites, temperature, gamma, eta, generator
        As in `MaskDistribution`.

    References
    ----------
    .. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> distribution = IndependentLogitNormal((4, 4), generator=generator)
    >>> distribution.draw(3, torch.Generator().manual_seed(0)).values.shape
    torch.Size([3, 4, 4])
    >>> distribution.count()
    8.0
    """

    name: ClassVar[str] = "iln"
    correlated: ClassVar[bool] = False

    def __init__(self, sites: SitesLike, **common: Unpack[CommonArguments]) -> None:
        super().__init__(sites, **common)
        location, spread = self._initial_moments()
        self.mu = nn.Parameter(self._filled(location))
        self.log_sigma = nn.Parameter(self._filled(spread).log())

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return `mu` and `sigma`.

        Returns
        -------
        location, spread : Tensor
            `(n_sites,)` each.
        """
        return self.mu, self.log_sigma.exp()

    def _logits(self, draws: int, generator: torch.Generator | None) -> Tensor:
        return self.mu + self.log_sigma.exp() * self._normal(draws, self.n_sites, generator=generator)

    def _raise_spread(self, minimum: float) -> None:
        self.log_sigma.clamp_(min=math.log(minimum))

    def _shift_logits(self, delta: Tensor) -> None:
        self.mu.add_(delta)


class CorrelatedLogitNormal(LogitNormal):
    r"""Logit-normal distribution with a low-rank covariance between sites (VLN in the paper).

    .. math::
        u = W z + b + \nu \epsilon, \qquad z \sim N(0, I_d), \quad \epsilon \sim N(0, I_m), \qquad
        \mathrm{cov}(u) = W W' + \nu^2 I, \qquad \sigma_i = \sqrt{\lVert W_i \rVert^2 + \nu^2}

    All sites share a latent vector of small dimension `d`, so that redundant sites can exclude each other. `W` is
    initialised uniformly, with each row scaled so that `P(S = 0) = P(S = 1) = 0.2` (`sigma = 0.855` at temperature
    0.3). In the paper `nu = 0`; then the logits lie in a subspace of dimension `d` and have no density, which the
    score-function estimator `Reinforce` needs.

    Parameters
    ----------
    sites, temperature, gamma, eta, generator
        As in `MaskDistribution`.
    rank
        Dimension `d` of the latent vector, and rank of its part of the covariance.
    independent_std
        `nu`, standard deviation of a part of each logit that is independent of the other sites; it is not learned.

    References
    ----------
    .. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> distribution = CorrelatedLogitNormal((4, 4), generator=generator)
    >>> round(distribution.covariance[0, 0].sqrt().item(), 3)
    0.855
    """

    name: ClassVar[str] = "vln"
    correlated: ClassVar[bool] = True

    def __init__(
        self, sites: SitesLike, *, rank: int = 16, independent_std: float = 0.0, **common: Unpack[CommonArguments]
    ) -> None:
        super().__init__(sites, **common)
        location, spread = self._initial_moments()
        if not 0 <= independent_std < spread:
            raise SettingsError(f"independent_std must be from 0 to below {spread:.3g}, got {independent_std}")
        self.independent_std = independent_std
        uniform = 2 * self._uniform(self.n_sites, rank, generator=common.get("generator")) - 1
        latent = math.sqrt(spread**2 - independent_std**2)
        self.weight = nn.Parameter(latent * uniform / row_norm(uniform)[:, None])
        self.bias = nn.Parameter(self._filled(location))

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return `b` and `sigma`.

        Returns
        -------
        location, spread : Tensor
            `(n_sites,)` each.
        """
        norm = row_norm(self.weight)
        return self.bias, norm if not self.independent_std else torch.hypot(norm, norm.new_tensor(self.independent_std))

    def _logits(self, draws: int, generator: torch.Generator | None) -> Tensor:
        z = self._normal(draws, self.weight.shape[1], generator=generator)
        logits = torch.addmm(self.bias, z, self.weight.T)
        if not self.independent_std:
            return logits
        return logits + self.independent_std * self._normal(draws, self.n_sites, generator=generator)

    def logit_log_prob(self, logits: Tensor) -> Tensor:
        """Compute the log density of the logits of all sites, by the Woodbury identity.

        Parameters
        ----------
        logits
            `(draws, n_sites)`, as in `MaskSample.logits`.

        Returns
        -------
        Tensor
            `(draws,)`.

        Raises
        ------
        NotImplementedError
            Without an independent part the logits lie in a subspace and have no density.
        """
        factor, variance = self._factors()
        if not bool((variance > 0).all()):
            raise NotImplementedError(
                f"logit_log_prob: the covariance of {type(self).__name__} is singular without an independent part of "
                "each logit, so that they have no density; construct CorrelatedLogitNormal with independent_std above "
                "0, or GraphLogitNormal with fewer eigenvectors than nodes"
            )
        mean, factor, variance = widened(self.bias), widened(factor), widened(variance)
        normal = LowRankMultivariateNormal(mean, factor, variance, validate_args=False)
        result: Tensor = normal.log_prob(widened(logits))  # type: ignore[no-untyped-call]
        return result.to(logits.dtype)

    def _factors(self) -> tuple[Tensor, Tensor]:
        """Return the factor of the low-rank part of the covariance, `(n_sites, r)`, and the variance of the rest."""
        return self.weight, self._filled(self.independent_std**2)

    def latent_weights(self) -> list[nn.Parameter]:
        """Return `W`.

        Returns
        -------
        list of Parameter
        """
        return [self.weight]

    def _covariance(self) -> Tensor:
        factor, variance = self._factors()
        return factor @ factor.T + torch.diag(variance)

    def _raise_spread(self, minimum: float) -> None:
        latent = math.sqrt(max(minimum**2 - self.independent_std**2, 0))
        self.weight.mul_((latent / row_norm(self.weight)).clamp_min(1).unsqueeze(1))

    def _shift_logits(self, delta: Tensor) -> None:
        self.bias.add_(delta)
