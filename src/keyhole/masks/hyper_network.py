"""The hypernetwork law (HNet-LN): weights and biases are themselves drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from keyhole.masks.base import REFERENCE_DRAWS, CommonArguments, Draw, MaskDistribution, reference_generator
from keyhole.masks.logit_normal import INITIAL_ATOM
from keyhole.masks.modes import logit_normal_modes
from keyhole.masks.normal import normal_above, row_norm

__all__ = ["HyperNetworkLogitNormal"]

_LEAK = 0.2
_ROWS = 8  # draws whose W is written out for the closed forms
_POOLED = 256  # reference draws whose logits are sorted together at the start
_CHUNK = 1024  # sites whose logits are held at once for all reference draws


class _Layer(nn.Module):
    """A linear layer, He-scaled, whose weights come from a generator (torch's own uses the global one)."""

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        noise = torch.randn(outputs, inputs, generator=generator, device=generator.device)
        self.weight = nn.Parameter(noise * (2 / inputs) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(outputs, device=generator.device))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


class _Hidden(NamedTuple):
    """What the heads see of some draws."""

    outer: Tensor  # (draws, (hidden + 1) * d)
    for_weight: Tensor  # (draws, hidden + 1)
    for_bias: Tensor  # (draws, hidden)


class HyperNetworkLogitNormal(MaskDistribution):
    r"""The paper's hypernetwork law.

    .. math:: r = F_{rep}(z), \quad W = F_W(r), \quad b = F_b(r), \quad u = W z + b, \qquad z \sim N(0, I_d)

    Each `F` is linear, leaky ReLU, linear. With `h` the hidden layer of `F_W` and a 1 appended, `W_i z` is
    the product of a matrix `A_i` and the outer product `h z'`, summed: the outer product comes first and one
    matrix product with the head `A`, `(sites, (hidden + 1) * d)`, follows, so that a draws x sites x d
    tensor is never made.

    **The closed forms are surrogates.** Given `r` they read `P(S_i > 0) = 1 - Phi((lam L - b_i) / ||W_i||)`,
    but `W` and `b` depend on the same `z` that they multiply: they would be exact for `W(r) z' + b(r)` with
    an independent `z'`. They come from at most 8 of the draws. What the law is judged by (`marginals`,
    `count`, `covariance`) is sampled, from 4096 fixed draws.

    At the start every site has mean zero and, over all sites together, `P(S = 0) = P(S = 1) = 0.2`, both by
    sampling. Arguments as in `MaskDistribution`, and `rank`, the `d` of the formula, and `hidden`, the width of `r` and
    of the hidden layers.

    >>> generator = torch.Generator().manual_seed(0)
    >>> distribution = HyperNetworkLogitNormal(torch.ones(4, 4, dtype=torch.bool), generator=generator)
    >>> distribution.sample(64, torch.Generator().manual_seed(0)).open_probability.shape
    torch.Size([8, 16])
    """

    name: ClassVar[str] = "hnet"
    correlated: ClassVar[bool] = True

    def __init__(
        self,
        observable: Tensor,
        *,
        generator: torch.Generator,
        rank: int = 16,
        hidden: int = 16,
        **common: Unpack[CommonArguments],
    ) -> None:
        super().__init__(observable, generator=generator, **common)
        self.rank = rank
        self.represent = nn.ModuleList([_Layer(rank, hidden, generator), _Layer(hidden, hidden, generator)])
        self.before_weight = _Layer(hidden, hidden, generator)
        self.before_bias = _Layer(hidden, hidden, generator)
        uniform = self._uniform(self.sites, hidden + 1, rank, generator=generator)
        self.weight_head = nn.Parameter(2 * uniform - 1)
        self.bias_head = nn.Parameter(2 * self._uniform(self.sites, hidden, generator=generator) - 1)
        self.bias = nn.Parameter(self._filled(0.0))
        self.to(self.index.device)
        self._balance()

    def latent_draws(self, draws: int, generator: torch.Generator) -> Tensor:
        """Return the `z`, `(draws, d)`, that `sample` would use from this generator."""
        return self._normal(draws, self.rank, generator=generator)

    def conditional(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return `W(r)`, `(rows, sites, d)`, and `b(r)`, `(rows, sites)`, at a few latents, `(rows, d)`."""
        return self._conditional(self._hidden(z))

    @torch.no_grad()
    def interior_modes(self) -> Tensor:
        """Tell it per site on the surrogate: True if any of 8 fixed draws of `W` and `b` has such a mode."""
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

    def _draw(self, draws: int, generator: torch.Generator) -> Draw:
        hidden = self._hidden(self.latent_draws(draws, generator))
        weight, bias = self._conditional(_Hidden(*(layer[:_ROWS] for layer in hidden)))
        spread = row_norm(weight)
        opening = normal_above(self.temperature * self.lower_logit, bias, spread)
        return Draw(self._logits(hidden), opening, normal_above(0.0, bias, spread))

    def _reference_logits(self) -> Iterator[Tensor]:
        """Yield the logits of the fixed draws, (4096, sites), some sites at a time."""
        hidden = self._hidden(self.latent_draws(REFERENCE_DRAWS, reference_generator()))
        for start in range(0, self.sites, _CHUNK):
            yield self._logits(hidden, slice(start, start + _CHUNK))

    def _marginals(self) -> Tensor:
        return torch.cat([(u > 0).to(u.dtype).mean(0) for u in self._reference_logits()])

    def _move(self, delta: Tensor) -> None:
        self.bias.add_(delta)

    def _offset(self, marginals: Tensor) -> Tensor:
        """From the order of the fixed draws, so that `marginals` meets the goal to within one draw."""
        below = ((1 - marginals) * REFERENCE_DRAWS).round().long().clamp(1, REFERENCE_DRAWS - 1)
        parts = zip(torch.split(below, _CHUNK), self._reference_logits(), strict=True)
        return torch.cat([-_split_point(u, rank) for rank, u in parts])

    @torch.no_grad()
    def _balance(self) -> None:
        """Set the bias and scale the heads, so that the law starts as the class says."""
        mean, pooled = zip(*((u.mean(0), u[:_POOLED].flatten()) for u in self._reference_logits()), strict=True)
        self.bias.sub_(torch.cat(mean))
        centred = torch.cat([u - m.repeat(_POOLED) for u, m in zip(pooled, mean, strict=True)]).sort().values
        low, high = (centred[int(p * len(centred))] for p in (INITIAL_ATOM, 1 - INITIAL_ATOM))
        scale = self.temperature * (self.upper_logit - self.lower_logit) / (high - low)
        for part in (self.weight_head, self.bias_head, self.bias):
            part.mul_(scale)
        self.bias.add_(self.temperature * self.lower_logit - scale * low)


def _split_point(u: Tensor, below: Tensor) -> Tensor:
    """Per column, a value with `below` of its entries under it: midway between two order statistics."""
    ordered = u.T.contiguous().sort(dim=1).values
    return (ordered.gather(1, below[:, None]) + ordered.gather(1, below[:, None] - 1)).squeeze(1) / 2
