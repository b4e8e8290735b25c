"""Logit-normal distribution on the simplex: each site takes one of several options, or none."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from keyhole.core.errors import SettingsError
from keyhole.masks.base import CommonArguments, MaskDistribution, reference_generator
from keyhole.masks.logit_normal import INITIAL_ATOM
from keyhole.masks.modes import logit_normal_modes
from keyhole.masks.normal import quantile, row_norm
from keyhole.masks.orthant import all_below_zero, sobol
from keyhole.masks.sample import Draw
from keyhole.masks.valid_sites import SitesLike

__all__ = ["SimplexLogitNormal"]

_ROWS = 8  # GHK estimates per sample
_POINTS = 256  # quasi-random points for marginals, which need no gradient
_BISECTIONS = 40
_MODE_DRAWS = 1024


class SimplexLogitNormal(MaskDistribution):
    r"""Each site takes one of `c` options (an instrument, a precision) or "none": logistic-normal on the simplex.

    .. math::
        u_j = W_j z + b_j, \quad z \sim N(0, I_d), \qquad
        Y = \frac{(e^{u / \lambda}, 1)}{1 + \sum_j e^{u_j / \lambda}}, \qquad
        \log \frac{Y_j}{Y_{none}} \sim N(b / \lambda, W W' / \lambda^2)

    The mask is the stretched `1 - Y_none`: the site's logit is `lam logsumexp_j(u_j / lam)`. A site is open at zero
    temperature when "none" is not the largest component, so both probabilities of a sample are

    .. math:: 1 - P(u_1 \le 0, \dots, u_c \le 0), \qquad u \sim N(b_i, W_i W_i')

    by the GHK simulator with 8 rows; `c = 1` is exact and equals `CorrelatedLogitNormal`. This open probability does
    not depend on the temperature, and is smaller than the probability that the stretched mask is above 0.

    The rows of `W` of a site are initialised orthogonal with equal norms, so that all sites have the same distribution;
    norm and bias are such that `P(S = 0) = P(S = 1) = 0.2`.

    Parameters
    ----------
    sites, temperature, gamma, eta, generator
        As in `MaskDistribution`.
    n_options
        Number of options `c`, such as instruments, from 1 to `rank`; they are numbered from 0.
    rank
        Dimension `d` of the latent vector.

    Raises
    ------
    SettingsError
        `n_options` is not between 1 and `rank`.

    References
    ----------
    .. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.
    .. [2] J. Aitchison and S. M. Shen. Logistic-Normal Distributions: Some Properties and Uses. Biometrika 67, 1980.

    Examples
    --------
    >>> distribution = SimplexLogitNormal(6, generator=torch.Generator().manual_seed(0))
    >>> distribution.composition(5, torch.Generator().manual_seed(0)).shape
    torch.Size([5, 6, 3])
    """

    name: ClassVar[str] = "simplex"
    correlated: ClassVar[bool] = True

    def __init__(
        self,
        sites: SitesLike,
        *,
        n_options: int = 2,
        rank: int = 16,
        **common: Unpack[CommonArguments],
    ) -> None:
        super().__init__(sites, **common)
        if not 1 <= n_options <= rank:
            raise SettingsError(f"n_options must be from 1 to rank ({rank}), got {n_options}")
        location, spread = self._initial_moments(n_options)
        uniform = 2 * self._uniform(self.n_sites, rank, n_options, generator=common.get("generator")) - 1
        self.weight = nn.Parameter(spread * torch.linalg.qr(uniform).Q.mT.contiguous())
        self.bias = nn.Parameter(self._filled(location)[:, None].repeat(1, n_options))

    def composition(self, draws: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw the compositions `Y` that `sample` would draw with this generator.

        Parameters
        ----------
        draws, generator
            As in `sample`.

        Returns
        -------
        Tensor
            `(draws, sites, c + 1)`, sums to 1 over the last axis, whose last entry is "none".
        """
        u = self._choice_logits(draws, generator)
        return torch.softmax(functional.pad(u / self.temperature, (0, 1)), -1)

    @property
    def option_marginals(self) -> Tensor:
        """Probabilities that a site is open with each option at zero temperature, `(n_options, *event_shape)`.

        Their sum over the options is `marginals`. Without gradient; by 256 quasi-random points, exact for one option.
        """
        with torch.no_grad():
            return self.scatter(self._option_marginals().T)

    def top_options(self, k: int) -> tuple[Tensor, Tensor]:
        """Select k sites, and the option that each of them gets: which instrument to put where.

        Parameters
        ----------
        k
            Number of sites.

        Returns
        -------
        sites, options : LongTensor
            `(k,)` each: the sites are those of `top`; the option is the most probable one at its site, from 0 to
            `n_options - 1`.

        Raises
        ------
        InfeasibleError
            k is less than 1 or more than the number of valid sites.

        Examples
        --------
        Two instruments at six sites; the second one at site 4 is favoured:

        >>> distribution = SimplexLogitNormal(6, n_options=2)
        >>> with torch.no_grad():
        ...     distribution.bias[4, 1] += 5
        >>> distribution.top_options(1)
        (tensor([4]), tensor([1]))
        """
        sites = self.top(k)
        return sites, self.option_marginals.flatten(1)[:, sites].argmax(0)

    @torch.no_grad()
    def interior_modes(self) -> Tensor:
        """Find sites with an interior mode, approximating each logit by a normal with its sampled moments.

        Returns
        -------
        Tensor
            Bool, `(n_sites,)`.
        """
        u = self._draw(_MODE_DRAWS, reference_generator()).logits / self.temperature
        return logit_normal_modes(u.mean(0), u.std(0), self.lower_logit, self.upper_logit)

    def _choice_logits(self, draws: int, generator: torch.Generator | None) -> Tensor:
        z = self._normal(draws, self.weight.shape[-1], generator=generator)
        flat = torch.addmm(self.bias.flatten(), z, self.weight.flatten(0, 1).T)
        return flat.reshape(draws, *self.bias.shape)

    def _site_logits(self, u: Tensor) -> Tensor:
        return self.temperature * torch.logsumexp(u / self.temperature, -1)

    def _open(self, location: Tensor, noise: Tensor) -> Tensor:
        return 1 - all_below_zero(location, self.weight @ self.weight.mT, noise)

    def _option_marginals(self) -> Tensor:
        """Return `P(u_j > 0 and u_j > u_l for all l)`, `(n_sites, c)`, as orthant probabilities of differences."""
        n_options = self.bias.shape[1]
        even, found = sobol(_POINTS, n_options - 1, like=self.bias)[:, None], []
        for option in range(n_options):
            contrast = torch.eye(n_options, dtype=self.bias.dtype, device=self.bias.device)
            contrast[:, option] = -1  # rows: u_l - u_j, and -u_j itself
            weight = contrast @ self.weight
            found.append(all_below_zero(self.bias @ contrast.T, weight @ weight.mT, even).mean(0))
        return torch.stack(found, 1)

    def _draw(self, draws: int, generator: torch.Generator | None) -> Draw:
        u = self._choice_logits(draws, generator)
        spare = u.shape[-1] - 1
        noise = self._uniform(_ROWS if spare else 1, self.n_sites, spare, generator=generator)
        opening = self._open(self.bias, noise)
        return Draw(self._site_logits(u), opening, opening, opened=(u > 0).any(-1))

    def _marginals(self) -> Tensor:
        return self._mean_open(self.bias)

    def _mean_open(self, location: Tensor) -> Tensor:
        even = sobol(_POINTS, location.shape[1] - 1, like=location)
        return self._open(location, even[:, None]).mean(0)

    def _shift_logits(self, delta: Tensor) -> None:
        self.bias.add_(delta[:, None])

    def _shift_to_marginals(self, marginals: Tensor) -> Tensor:
        """Use bisection for one shift of all options of a site, between bounds where it is surely closed or open."""
        margin = 10 * row_norm(self.weight).amax(-1)
        low, high = -self.bias.amax(-1) - margin, -self.bias.amin(-1) + margin
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            short = self._mean_open(self.bias + middle[:, None]) < marginals
            low, high = torch.where(short, middle, low), torch.where(short, high, middle)
        return (low + high) / 2

    def _initial_moments(self, n_options: int) -> tuple[float, float]:
        """Return the bias and row norm for which `c` independent options give the initial `P(S = 0)` and `P(S = 1)`."""
        normal = quantile(sobol(2**12, n_options, like=torch.zeros((), dtype=torch.float64)))
        wanted = self.temperature * (self.upper_logit - self.lower_logit)
        low, high = 0.0, 10 * wanted
        for _ in range(_BISECTIONS):
            spread = (low + high) / 2
            first, last = self._atom_edges(spread * normal)
            low, high = (spread, high) if last - first < wanted else (low, spread)
        return self.temperature * self.lower_logit - first, spread

    def _atom_edges(self, u: Tensor) -> tuple[float, float]:
        edges = torch.tensor([INITIAL_ATOM, 1 - INITIAL_ATOM], dtype=u.dtype)
        first, last = torch.quantile(self._site_logits(u), edges).tolist()
        return first, last
