"""Budgets: how many sites a law may open, and how that is held while it learns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from keyhole.laws import Law, MaskSample

__all__ = ["BUDGETS", "Budget", "DualAscent", "ExactK", "Penalty"]


class Budget(nn.Module, ABC):
    """What stands between a law's sample and the reconstructor, and what it costs to open sites.

    A training step asks for `masks` and `loss`, steps the optimiser, then calls `update`.
    """

    name: ClassVar[str]

    def masks(self, law: Law, sample: MaskSample) -> Tensor:
        """`(draws, *grid)`: the masks that the reconstructor sees."""
        return sample.values

    @abstractmethod
    def loss(self, law: Law, sample: MaskSample) -> Tensor:
        """Scalar to add to the objective."""

    @torch.no_grad()
    def update(self, law: Law, sample: MaskSample) -> None:  # noqa: B027 (most budgets have nothing to do here)
        """Move what is not learned by gradient; after the optimiser's step."""


class Penalty(Budget):
    r"""The paper's way: a price on the expected L0, and the number of sites comes out as it may.

    .. math:: \text{weight} \cdot \frac{1}{m} \sum_i P(S_i > 0)

    Parameters
    ----------
    weight
        The paper searches it in [0.01, 1].
    """

    name: ClassVar[str] = "penalty"

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def loss(self, law: Law, sample: MaskSample) -> Tensor:
        """`weight * expected_l0 / sites`."""
        return self.weight * sample.expected_l0 / law.sites


class _CountBudget(Budget):
    """A budget of k sites; `k` may be set between steps and is part of `state_dict`."""

    _k: Tensor

    def __init__(self, k: int) -> None:
        super().__init__()
        self.register_buffer("_k", torch.tensor(k))

    @property
    def k(self) -> int:
        """How many sites."""
        return int(self._k)

    @k.setter
    def k(self, value: int) -> None:
        self._k.fill_(value)


class DualAscent(_CountBudget):
    r"""Hold the zero-temperature count at k by a price that is learned.

    .. math:: \text{loss} = (p + \rho\, e)\,\frac{c - k}{k}, \qquad
              e = \frac{c - k}{\max(c, k)} \text{ (no gradient)}, \qquad
              p \leftarrow p + \text{rate} \cdot \bar e

    with `c` the differentiable count of the sample: the gradient of a multiplier and a quadratic (augmented) term whose
    error is bounded by 1, so that a law that starts far above k does not wind the price up. The price follows `e` of the
    *sampled* count, smoothed over steps, and so ends at k sites even where the differentiable count is only a surrogate
    (HNet-LN). It may go negative: a law with too few sites is paid to open more.

    Parameters
    ----------
    k
        How many sites.
    rate
        Growth of the price per step, in units of the objective.
    stiffness
        `rho`, in the same units.
    smoothing
        Share of the sampled count that is kept from step to step.
    """

    name: ClassVar[str] = "dual"
    multiplier: Tensor
    gap: Tensor

    def __init__(self, k: int, rate: float = 5e-3, *, stiffness: float = 0.5, smoothing: float = 0.95) -> None:
        super().__init__(k)
        self.rate, self.stiffness, self.smoothing = rate, stiffness, smoothing
        self.register_buffer("multiplier", torch.tensor(0.0))
        self.register_buffer("gap", torch.tensor(0.0))

    def loss(self, law: Law, sample: MaskSample) -> Tensor:
        """Price times violation."""
        law.check_k(self.k)
        price = self.multiplier + self.stiffness * self._error(sample)
        return price * (sample.soft_count - self.k) / self.k

    @torch.no_grad()
    def update(self, law: Law, sample: MaskSample) -> None:
        """Raise the price where the count is above k, lower it where it is below."""
        self.gap.lerp_((sample.sampled_count - sample.soft_count).to(self.gap), 1 - self.smoothing)
        self.multiplier.add_(self.rate * self._error(sample).to(self.multiplier))

    def _error(self, sample: MaskSample) -> Tensor:
        count = sample.soft_count.detach() + self.gap
        return (count - self.k) / count.clamp_min(self.k)


class ExactK(_CountBudget):
    r"""Masks that open exactly k sites: those with the k largest logits of the draw.

    .. math:: \text{mask} = 1[u \ge u_{(k)}] \text{, with the gradient of } \mathrm{sigmoid}((u - \tau) / \lambda)

    `tau` lies midway between the k-th and the next logit. It moves with `u` so that the soft mask keeps its sum,
    `d tau = sum_i s_i (1 - s_i) du_i / sum_i s_i (1 - s_i)`: every site would lower the error by opening, only those that
    lower it more than the site they displace should rise.

    Adding a constant to all logits changes no mask; `update` uses that freedom to bring the mean `tau` to zero, where
    the law's zero-temperature count is about k and its marginals mean what they say.

    Parameters
    ----------
    k
        How many sites; a schedule may set it.
    rate
        Share of the mean `tau` that each update takes away: its smoothing.
    """

    name: ClassVar[str] = "exact"

    def __init__(self, k: int, rate: float = 0.1) -> None:
        super().__init__(k)
        self.rate = rate

    def masks(self, law: Law, sample: MaskSample) -> Tensor:
        """`(draws, *grid)`: zeros and exactly k ones per draw; equal logits are taken in C order."""
        law.check_k(self.k)
        order, tau = self._cut(sample.logits.detach(), law.temperature)
        hard = torch.zeros_like(sample.logits).scatter(1, order[:, : self.k], 1.0)
        soft = _soft_mask(sample.logits, tau, law.temperature)
        return law.scatter(hard + (soft - soft.detach()))

    def loss(self, law: Law, sample: MaskSample) -> Tensor:
        """Zero: the masks hold the budget."""
        return sample.logits.new_zeros(())

    @torch.no_grad()
    def update(self, law: Law, sample: MaskSample) -> None:
        """Shift the law towards a mean threshold of zero."""
        _, tau = self._cut(sample.logits, law.temperature)
        law.shift(-self.rate * float(tau.mean()))

    def _cut(self, logits: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Sites by falling logit, and the threshold `(draws, 1)`; below the last one where all are open."""
        ordered, order = logits.sort(1, descending=True, stable=True)
        last = ordered[:, self.k - 1 : self.k]
        following = ordered[:, self.k : self.k + 1] if self.k < logits.shape[1] else last - 2 * temperature
        return order, (last + following) / 2


def _soft_mask(logits: Tensor, tau: Tensor, temperature: float) -> Tensor:
    """`sigmoid((u - tau) / lam)`, with `tau` following `u` so that the sum stays."""
    soft = torch.sigmoid((logits.detach() - tau) / temperature)
    weight = soft * (1 - soft)
    share = weight / weight.sum(1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
    moving = tau + (share * (logits - logits.detach())).sum(1, keepdim=True)
    return torch.sigmoid((logits - moving) / temperature)


BUDGETS: dict[str, type[Budget]] = {budget.name: budget for budget in (Penalty, DualAscent, ExactK)}
