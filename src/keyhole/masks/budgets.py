"""Budgets: how many sites a law may open, and how that is held while it learns."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from keyhole.masks import MaskDistribution, MaskSample

__all__ = ["Budget", "CountBudget", "DualAscent", "ExactK", "L0Penalty"]

_PULL = 0.05  # share of the way to k that a dual law is shifted after each step


class Budget(nn.Module, ABC):
    """What stands between a law's sample and the reconstructor, and what it costs to open sites.

    A training step asks for `masks` and `loss`, steps the optimiser, then calls `update`.
    """

    def masks(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Return the masks that the reconstructor sees, `(draws, *grid)`."""
        return sample.values

    @abstractmethod
    def loss(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Return a scalar to add to the objective."""

    @torch.no_grad()
    def update(self, distribution: MaskDistribution, sample: MaskSample) -> None:
        """Move what is not learned by gradient; after the optimiser's step."""


class L0Penalty(Budget):
    r"""The paper's way: a price on the expected L0, and the number of sites comes out as it may.

    .. math:: \text{weight} \cdot \frac{1}{m} \sum_i P(S_i > 0)

    Parameters
    ----------
    weight
        The paper searches it in [0.01, 1].
    """

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def loss(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Return `weight * expected_l0 / sites`."""
        return self.weight * sample.expected_l0 / distribution.sites


class CountBudget(Budget):
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


class DualAscent(CountBudget):
    r"""Hold the zero-temperature count at k by a price that is learned.

    .. math:: \text{loss} = (p + \rho\, e)\,\frac{c - k}{k}, \qquad
              e = \frac{\bar c - k}{\max(\bar c, k)}, \qquad
              p \leftarrow p + \text{rate} \cdot e

    The gradient is that of a multiplier and a quadratic (augmented) term, with an error between -1 and 1, so
    that a law that starts far above k does not wind the price up. `p` may go negative: a law with too few
    sites is paid to open more.

    The error is that of the *sampled* count: `c` of this sample plus `gap`, the smoothed difference between
    what draws open and what `c` says. Where `c` is a surrogate (HNet-LN) it still ends at k. The gradient of
    `c` goes half through the sample's zero-temperature probabilities and half through the logits drawn: the
    surrogate alone can be emptied while the law goes on opening sites.

    The price tells sites apart; that they are k on average is soon held by a common shift of all logits as
    well, since sites that are nearly sure answer to a price late, and then too much.

    Soft masks let a law cheat: a logit held just below zero is not counted, yet the mask shows part of the
    site, which a reconstructor scales back. So what is priced with them is the paper's expected L0, which
    counts every site that shows at all, and the price moves until the *count* is k; a law that is paid is
    paid for the count. `MaskDistribution.polarise` keeps such a law from half-open masks; `hard` ones cannot leak.

    Parameters
    ----------
    k
        How many sites.
    rate, stiffness
        Growth of the price per step, and `rho`, both in units of the objective: the defaults suit one of
        order 1 (the share of variance not explained, say), scale them with it.
    smoothing
        Share of `gap` that is kept from step to step.
    hard
        Whether the reconstructor sees the zero-temperature masks, with the gradient of the soft ones.

    >>> budget = DualAscent(5)
    >>> budget.k, budget.multiplier.item()
    (5, 0.0)
    """

    multiplier: Tensor
    gap: Tensor

    def __init__(
        self,
        k: int,
        rate: float = 0.02,
        *,
        stiffness: float = 1.0,
        smoothing: float = 0.95,
        hard: bool = False,
    ) -> None:
        super().__init__(k)
        self.rate, self.stiffness, self.smoothing, self.hard = rate, stiffness, smoothing, hard
        self.register_buffer("multiplier", torch.tensor(0.0))
        self.register_buffer("gap", torch.tensor(0.0))

    def masks(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Return the law's masks, or the zero-temperature ones where they are to be hard."""
        if not self.hard:
            return sample.values
        opened = distribution.scatter(sample.opened.to(sample.values.dtype))
        return opened + (sample.values - sample.values.detach())

    def loss(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Return price times violation."""
        distribution.check_k(self.k)
        price = self.multiplier + self.stiffness * self._error(sample)
        shown = sample.expected_l0 if price > 0 and not self.hard else sample.soft_count
        path = (shown + torch.sigmoid(sample.logits / distribution.temperature).sum(1).mean()) / 2
        return price * (self._count(sample) + (path - path.detach()) - self.k) / self.k

    @torch.no_grad()
    def update(self, distribution: MaskDistribution, sample: MaskSample) -> None:
        """Raise the price where the count is above k, lower it where it is below, and shift the law towards k."""
        self.gap.lerp_((sample.sampled_count - sample.soft_count).to(self.gap), 1 - self.smoothing)
        self.multiplier.add_(self.rate * self._error(sample).to(self.multiplier))
        if torch.equal(sample.opened, sample.logits > 0):  # of a simplex, logits do not tell
            _recentre(distribution, sample, self.k, _PULL)

    def _count(self, sample: MaskSample) -> Tensor:
        return sample.soft_count.detach() + self.gap

    def _error(self, sample: MaskSample) -> Tensor:
        count = self._count(sample)
        return (count - self.k) / count.clamp_min(self.k)


class ExactK(CountBudget):
    r"""Masks that open exactly k sites: those with the k largest logits of the draw.

    .. math:: \text{mask} = 1[u \ge u_{(k)}] \text{, with the gradient of } \mathrm{sigmoid}((u - \tau) / \lambda)

    `tau` lies midway between the k-th and the next logit. It moves with `u` so that the soft mask keeps its
    sum, `d tau = sum_i w_i du_i / sum_i w_i` with `w = s (1 - s)`: every site would lower the error by
    opening, only those that lower it more than the sites they displace should rise. (With `tau` held fixed
    the law does not concentrate; with the gradient of the two logits beside it, it does so more slowly.)

    A constant added to all logits changes no mask; `update` uses that freedom to keep the law's
    zero-temperature count near k, where its marginals mean what they say.

    Parameters
    ----------
    k
        How many sites; a schedule may set it.
    rate
        Share of the shift that each update makes: its smoothing.

    >>> from keyhole.masks import CorrelatedLogitNormal
    >>> generator = torch.Generator().manual_seed(0)
    >>> distribution = CorrelatedLogitNormal(torch.ones(4, 4, dtype=torch.bool), generator=generator)
    >>> ExactK(3).masks(distribution, distribution.sample(2, generator)).sum((1, 2)).tolist()
    [3.0, 3.0]
    """

    def __init__(self, k: int, rate: float = 0.1) -> None:
        super().__init__(k)
        self.rate = rate

    def masks(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Return zeros and exactly k ones per draw; equal logits are taken in C order."""
        distribution.check_k(self.k)
        ordered, order = _largest(sample.logits.detach(), self.k)
        hard = torch.zeros_like(sample.logits).scatter(1, order[:, : self.k], 1.0)
        tau = _after(ordered, self.k, distribution.temperature)
        soft = _soft_mask(sample.logits, tau, distribution.temperature)
        return distribution.scatter(hard + (soft - soft.detach()))

    def loss(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Return zero: the masks hold the budget."""
        return sample.logits.new_zeros(())

    @torch.no_grad()
    def update(self, distribution: MaskDistribution, sample: MaskSample) -> None:
        """Shift the law towards the level that its logits, all draws together, pass k times a draw."""
        _recentre(distribution, sample, self.k, self.rate)


def _recentre(distribution: MaskDistribution, sample: MaskSample, k: int, share: float) -> None:
    """Shift the law by a share of the way to where its logits, all draws together, pass zero k times a draw."""
    pooled, total = sample.logits.reshape(1, -1), k * len(sample.logits)
    ordered = pooled.topk(min(total + 1, pooled.shape[1]), dim=1).values
    distribution.shift(-share * float(_after(ordered, total, distribution.temperature)))


def _largest(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest of each row and the next, falling, and where they are; of equal ones the first."""
    found = logits.topk(min(k + 1, logits.shape[1]), dim=1)
    if k < logits.shape[1] and bool((found.values[:, k - 1] == found.values[:, k]).any()):
        return logits.sort(dim=1, descending=True, stable=True)
    return found.values, found.indices


def _after(ordered: Tensor, position: int, temperature: float) -> Tensor:
    """Return `(rows, 1)`, midway between the falling values at a position and the next; below the last."""
    last = ordered[:, position - 1 : position]
    following = ordered[:, position : position + 1] if position < ordered.shape[1] else last - 2 * temperature
    return (last + following) / 2


def _soft_mask(logits: Tensor, tau: Tensor, temperature: float) -> Tensor:
    """Return `sigmoid((u - tau) / lam)`, with `tau` following `u` so that the sum stays."""
    soft = torch.sigmoid((logits.detach() - tau) / temperature)
    weight = soft * (1 - soft)
    share = weight / weight.sum(1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
    moving = tau + (share * (logits - logits.detach())).sum(1, keepdim=True)
    return torch.sigmoid((logits - moving) / temperature)
