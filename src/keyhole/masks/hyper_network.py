"""Hypernetwork logit-normal distribution (HNet-LN): weights and biases are functions of the latent vector."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from keyhole.masks.base import REFERENCE_DRAWS, CommonArguments, MaskDistribution, reference_generator
from keyhole.masks.logit_normal import INITIAL_ATOM
from keyhole.masks.modes import logit_normal_modes
from keyhole.masks.normal import normal_above, row_norm
from keyhole.masks.sample import Draw
from keyhole.masks.valid_sites import SitesLike

__all__ = ["HyperNetworkLogitNormal"]

_LEAK = 0.2
_ROWS = 8  # draws for which W is computed explicitly, for the closed forms
_CHUNK = 1024  # sites whose logits are in memory at once for all reference draws


class _Layer(nn.Module):
    """Linear layer with He initialisation from standard normal noise, `(outputs, inputs)`."""

    def __init__(self, noise: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(noise * (2 / noise.shape[1]) ** 0.5)
        self.bias = nn.Parameter(noise.new_zeros(len(noise)))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


class _Hidden(NamedTuple):
    """Hidden layers of some draws: the inputs of the two output heads."""

    outer: Tensor  # (draws, (hidden + 1) * d)
    for_weight: Tensor  # (draws, hidden + 1)
    for_bias: Tensor  # (draws, hidden)


class HyperNetworkLogitNormal(MaskDistribution):
    r"""Logit-normal distribution whose parameters come from a hypernetwork (HNet-LN in the paper).

    .. math:: r = F_{rep}(z), \quad W = F_W(r), \quad b = F_b(r), \quad u = W z + b, \qquad z \sim N(0, I_d)

    Each `F` is a two-layer perceptron with leaky ReLU. The logits are not Gaussian, so the joint distribution is more
    flexible than that of `CorrelatedLogitNormal`, with about `hidden` times as many parameters.

    `W_i z` is bilinear in the last hidden layer `h` of `F_W` (with a 1 appended) and `z`. The outer product `h z'` is
    computed first and multiplied by the head, `(sites, (hidden + 1) * d)`, so no draws x sites x d tensor is allocated.

    **The closed-form probabilities are surrogates.** Given `r` they are `P(S_i > 0) = 1 - Phi((lam L - b_i) /
    ||W_i||)`, which is exact for `W(r) z' + b(r)` with an independent `z'`; here `W` and `b` depend on the same `z`
    that they multiply. They are computed for at most 8 of the draws. `marginals`, `count` and `covariance` are Monte
    Carlo estimates from 4096 fixed draws instead.

    Initially `P(S = 0) = P(S = 1) = 0.2` at every site, by the quantiles of these draws.

    Parameters
    ----------
    sites, temperature, gamma, eta, generator
        As in `MaskDistribution`.
    rank
        Dimension `d` of the latent vector.
    hidden
        Width of `r` and of the hidden layers.

    References
    ----------
    .. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.
    .. [2] D. Ha, A. Dai and Q. V. Le. HyperNetworks. ICLR 2017.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> distribution = HyperNetworkLogitNormal((4, 4), generator=generator)
    >>> distribution.draw(64, torch.Generator().manual_seed(0)).open_probability.shape
    torch.Size([8, 16])
    """

    name: ClassVar[str] = "hnet"
    correlated: ClassVar[bool] = True

    def __init__(
        self,
        sites: SitesLike,
        *,
        rank: int = 16,
        hidden: int = 16,
        **common: Unpack[CommonArguments],
    ) -> None:
        super().__init__(sites, **common)
        self.rank, generator = rank, common.get("generator")
        widths = (rank, hidden, hidden, hidden)
        first, second, third, fourth = (_Layer(self._normal(hidden, width, generator=generator)) for width in widths)
        self.represent, self.before_weight, self.before_bias = nn.ModuleList([first, second]), third, fourth
        uniform = self._uniform(self.n_sites, hidden + 1, rank, generator=generator)
        self.weight_head = nn.Parameter(2 * uniform - 1)
        self.bias_head = nn.Parameter(2 * self._uniform(self.n_sites, hidden, generator=generator) - 1)
        self.bias = nn.Parameter(self._filled(0.0))
        self._initialise_scale()

    def latent_draws(self, draws: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw the latent vectors `z` that `sample` would draw with this generator.

        Parameters
        ----------
        draws, generator
            As in `sample`.

        Returns
        -------
        Tensor
            `(draws, d)`.
        """
        return self._normal(draws, self.rank, generator=generator)

    def conditional(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the weights and biases given latent vectors.

        Parameters
        ----------
        z
            `(rows, d)`; few rows, since `W` is computed explicitly.

        Returns
        -------
        weight, bias : Tensor
            `W(r)`, `(rows, sites, d)`, and `b(r)`, `(rows, n_sites)`.
        """
        return self._conditional(self._hidden(z))

    @torch.no_grad()
    def interior_modes(self) -> Tensor:
        """Find sites with an interior mode under the surrogate, for any of 8 fixed draws of `W` and `b`.

        Returns
        -------
        Tensor
            Bool, `(n_sites,)`.
        """
        weight, bias = self.conditional(self.latent_draws(_ROWS, reference_generator()))
        location, spread = bias / self.temperature, row_norm(weight) / self.temperature
        return logit_normal_modes(location, spread, self.lower_logit, self.upper_logit).any(0)

    def _hidden(self, z: Tensor) -> _Hidden:
        first, second = self.represent
        r = second(functional.leaky_relu(first(z), _LEAK))
        for_weight = functional.pad(functional.leaky_relu(self.before_weight(r), _LEAK), (0, 1), value=1.0)
        for_bias = functional.leaky_relu(self.before_bias(r), _LEAK)
        return _Hidden((for_weight[:, :, None] * z[:, None, :]).flatten(1), for_weight, for_bias)

    def _logits(self, hidden: _Hidden, part: slice = slice(None)) -> Tensor:
        bias = torch.addmm(self.bias[part], hidden.for_bias, self.bias_head[part].T)
        return torch.addmm(bias, hidden.outer, self.weight_head[part].flatten(1).T)

    def _conditional(self, hidden: _Hidden) -> tuple[Tensor, Tensor]:
        weight = torch.einsum("rh,shd->rsd", hidden.for_weight, self.weight_head)
        return weight, torch.addmm(self.bias, hidden.for_bias, self.bias_head.T)

    def _draw(self, draws: int, generator: torch.Generator | None) -> Draw:
        hidden = self._hidden(self.latent_draws(draws, generator))
        weight, bias = self._conditional(_Hidden(*(layer[:_ROWS] for layer in hidden)))
        spread = row_norm(weight)
        opening = normal_above(self.temperature * self.lower_logit, bias, spread)
        return Draw(self._logits(hidden), opening, normal_above(0.0, bias, spread))

    def _reference_logits(self) -> Iterator[Tensor]:
        """Yield the logits of the reference draws, `(4096, chunk)`, for chunks of the sites."""
        hidden = self._hidden(self.latent_draws(REFERENCE_DRAWS, reference_generator()))
        for start in range(0, self.n_sites, _CHUNK):
            yield self._logits(hidden, slice(start, start + _CHUNK))

    def _marginals(self) -> Tensor:
        return torch.cat([(u > 0).to(u.dtype).mean(0) for u in self._reference_logits()])

    def _shift_logits(self, delta: Tensor) -> None:
        self.bias.add_(delta)

    def _shift_to_marginals(self, marginals: Tensor) -> Tensor:
        """Use order statistics of the reference draws, so that `marginals` is met to within one draw."""
        below = ((1 - marginals) * REFERENCE_DRAWS).round().long().clamp(1, REFERENCE_DRAWS - 1)
        parts = zip(torch.split(below, _CHUNK), self._reference_logits(), strict=True)
        return torch.cat([-_split_point(u, rank) for rank, u in parts])

    @torch.no_grad()
    def _initialise_scale(self) -> None:
        """Scale the heads and shift the logits of each site to the initial probabilities of the class docstring."""
        below = torch.tensor([INITIAL_ATOM, 1 - INITIAL_ATOM], dtype=self._dtype, device=self.index.device)
        low, high = torch.cat([torch.quantile(u, below, dim=0) for u in self._reference_logits()], dim=1)
        scale = self.temperature * (self.upper_logit - self.lower_logit) / (high - low)
        self.weight_head.mul_(scale[:, None, None])
        self.bias_head.mul_(scale[:, None])
        self.bias.copy_(self.temperature * self.lower_logit - scale * low)


def _split_point(u: Tensor, below: Tensor) -> Tensor:
    """Return for each column the midpoint between the order statistics `below` and `below + 1`."""
    ordered = u.T.contiguous().sort(dim=1).values
    return (ordered.gather(1, below[:, None]) + ordered.gather(1, below[:, None] - 1)).squeeze(1) / 2
