"""The logit-normal law on the simplex: each site takes one of several choices, or none."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from keyhole.core.errors import SettingsError
from keyhole.masks.base import CommonArguments, Draw, MaskDistribution, reference_generator
from keyhole.masks.logit_normal import INITIAL_ATOM
from keyhole.masks.modes import logit_normal_modes
from keyhole.masks.normal import quantile, row_norm
from keyhole.masks.orthant import all_below_zero, sobol

__all__ = ["SimplexLogitNormal"]

_ROWS = 8
_POINTS = 256  # for what is not differentiated
_HALVINGS = 40
_MODE_DRAWS = 1024


class SimplexLogitNormal(MaskDistribution):
    r"""Sites that choose among `c` ways of being observed (an instrument, a precision) and "none".

    .. math::
        u_j = W_j z + b_j, \quad z \sim N(0, I_d), \qquad
        Y = \frac{(e^{u / \lambda}, 1)}{1 + \sum_j e^{u_j / \lambda}}, \qquad
        \log \frac{Y_j}{Y_{none}} \sim N(b / \lambda, W W' / \lambda^2)

    The mask stretches `1 - Y_none`: the site's logit is `lam logsumexp_j(u_j / lam)`. A site is open at zero
    temperature when "none" is not the largest, so both of the sample's probabilities are

    .. math:: 1 - P(u_1 \le 0, \dots, u_c \le 0), \qquad u \sim N(b_i, W_i W_i')

    by the GHK simulator, 8 rows a sample; `c = 1` is exact, and is `CorrelatedLogitNormal`. This open probability is
    the same at every temperature, and less than the chance that the stretched mask is above 0.

    At the start the rows of a site are orthogonal and of one norm, so all sites have one law, and that norm
    and the common bias hold `P(S = 0) = P(S = 1) = 0.2`. Arguments as in `MaskDistribution`, and `choices`, the `c` of
    the formula, and `rank`, its `d`, no smaller.

    >>> distribution = SimplexLogitNormal(torch.ones(6, dtype=torch.bool), generator=torch.Generator().manual_seed(0))
    >>> distribution.composition(5, torch.Generator().manual_seed(0)).shape
    torch.Size([5, 6, 3])
    """

    name: ClassVar[str] = "simplex"
    correlated: ClassVar[bool] = True

    def __init__(
        self,
        observable: Tensor,
        *,
        generator: torch.Generator,
        choices: int = 2,
        rank: int = 16,
        **common: Unpack[CommonArguments],
    ) -> None:
        super().__init__(observable, generator=generator, **common)
        if not 1 <= choices <= rank:
            raise SettingsError(f"choices takes 1 to rank ({rank}), got {choices}")
        location, spread = self._initial_moments(choices)
        uniform = 2 * self._uniform(self.sites, rank, choices, generator=generator) - 1
        self.weight = nn.Parameter(spread * torch.linalg.qr(uniform).Q.mT.contiguous())
        self.bias = nn.Parameter(self._filled(location)[:, None].repeat(1, choices))

    def composition(self, draws: int, generator: torch.Generator) -> Tensor:
        """Return the `Y`, `(draws, sites, c + 1)`, that `sample` would use; "none" is last."""
        u = self._choice_logits(draws, generator)
        return torch.softmax(functional.pad(u / self.temperature, (0, 1)), -1)

    @torch.no_grad()
    def interior_modes(self) -> Tensor:
        """Tell it per site, on the normal law that has the mean and spread of the logit over fixed draws."""
        u = self._draw(_MODE_DRAWS, reference_generator()).logits / self.temperature
        return logit_normal_modes(u.mean(0), u.std(0), self.lower_logit, self.upper_logit)

    def _choice_logits(self, draws: int, generator: torch.Generator) -> Tensor:
        z = self._normal(draws, self.weight.shape[-1], generator=generator)
        flat = torch.addmm(self.bias.flatten(), z, self.weight.flatten(0, 1).T)
        return flat.reshape(draws, *self.bias.shape)

    def _site_logits(self, u: Tensor) -> Tensor:
        return self.temperature * torch.logsumexp(u / self.temperature, -1)

    def _open(self, location: Tensor, noise: Tensor) -> Tensor:
        return 1 - all_below_zero(location, self.weight @ self.weight.mT, noise)

    def _draw(self, draws: int, generator: torch.Generator) -> Draw:
        u = self._choice_logits(draws, generator)
        spare = u.shape[-1] - 1
        noise = self._uniform(_ROWS if spare else 1, self.sites, spare, generator=generator)
        opening = self._open(self.bias, noise)
        return Draw(self._site_logits(u), opening, opening, opened=(u > 0).any(-1))

    def _marginals(self) -> Tensor:
        return self._even_open(self.bias)

    def _even_open(self, location: Tensor) -> Tensor:
        even = sobol(_POINTS, location.shape[1] - 1, like=location)
        return self._open(location, even[:, None]).mean(0)

    def _move(self, delta: Tensor) -> None:
        self.bias.add_(delta[:, None])

    def _offset(self, marginals: Tensor) -> Tensor:
        """By halving: one shift for all choices of a site, between bounds where it is surely shut or open."""
        reach = 10 * row_norm(self.weight).amax(-1)
        low, high = -self.bias.amax(-1) - reach, -self.bias.amin(-1) + reach
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            short = self._even_open(self.bias + middle[:, None]) < marginals
            low, high = torch.where(short, middle, low), torch.where(short, high, middle)
        return (low + high) / 2

    def _initial_moments(self, choices: int) -> tuple[float, float]:
        """Bias and norm for which `c` independent choices give the site's logit both atoms."""
        normal = quantile(sobol(2**12, choices, like=torch.zeros((), dtype=torch.float64)))
        wanted = self.temperature * (self.upper_logit - self.lower_logit)
        low, high = 0.0, 10 * wanted
        for _ in range(_HALVINGS):
            spread = (low + high) / 2
            first, last = self._atom_edges(spread * normal)
            low, high = (spread, high) if last - first < wanted else (low, spread)
        return self.temperature * self.lower_logit - first, spread

    def _atom_edges(self, u: Tensor) -> tuple[float, float]:
        edges = torch.tensor([INITIAL_ATOM, 1 - INITIAL_ATOM], dtype=u.dtype)
        first, last = torch.quantile(self._site_logits(u), edges).tolist()
        return first, last
