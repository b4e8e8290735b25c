"""Budgets: control of the number of open sites while a mask distribution is trained; see also `exact_k`."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from keyhole.core.processes import Processes
from keyhole.masks.base import MaskDistribution
from keyhole.masks.recentring import recentre
from keyhole.masks.sample import MaskSample
from keyhole.masks.valid_sites import whole_number

__all__ = ["Budget", "CountBudget", "DualAscent", "L0Penalty"]

_RECENTRE_RATE = 0.05  # share of the shift towards a count of k that dual ascent makes after each step


class Budget(nn.Module, ABC):
    """Base class: turns a sample of masks into those that the reconstructor receives, and adds a cost for open sites.

    In each training step, `masks, penalty = budget(distribution, sample)`: apply the masks to the input, add the
    penalty to the objective, step the optimiser, then call `update` with the same sample. A budget is a module: its
    state (multiplier, k) is part of `state_dict`. A subclass implements `masks`, `loss` and `update`, as far as they
    differ.

    `ExactK` is the best default when the number of sites is given; `DualAscent` keeps the soft masks of the paper and
    meets the number on average; `L0Penalty` is the paper's objective, where the number depends on the weight.

    Attributes
    ----------
    processes : Processes
        The processes of distributed training, of which each draws masks of its own and uses them for its part of a
        batch; one by default. What a budget counts is then counted over the masks of all processes, all of which must
        call `loss` and `update`, and the average over the processes of the gradients of `loss` is that of one process
        with all masks.
    """

    processes: Processes = Processes()

    def masks(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Compute the masks that are applied to the reconstructor's input.

        Parameters
        ----------
        distribution
            The distribution that the sample was drawn from.
        sample
            Draws of this training step.

        Returns
        -------
        Tensor
            `(draws, *event_shape)`, differentiable in the distribution's parameters.
        """
        return sample.values

    def forward(self, distribution: MaskDistribution, sample: MaskSample) -> tuple[Tensor, Tensor]:
        """Compute the masks and the term that is added to the objective: `masks, penalty = budget(distribution, draw)`.

        Parameters
        ----------
        distribution, sample
            As in `masks`.

        Returns
        -------
        masks, penalty : Tensor
            What `masks` and `loss` return.
        """
        return self.masks(distribution, sample), self.loss(distribution, sample)

    @abstractmethod
    def loss(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Compute the term that is added to the objective.

        Parameters
        ----------
        distribution, sample
            As in `masks`.

        Returns
        -------
        Tensor
            Scalar, differentiable in the distribution's parameters.
        """

    @torch.no_grad()
    def update(self, distribution: MaskDistribution, sample: MaskSample) -> None:
        """Update the budget's own state and recentre the distribution; call it after the optimiser's step.

        Parameters
        ----------
        distribution, sample
            As in `masks`; the distribution may be shifted in place. The default does nothing.
        """


class L0Penalty(Budget):
    r"""Penalty on the expected L0 norm of the mask, as in the paper.

    .. math:: \text{weight} \cdot \frac{1}{m} \sum_i P(S_i > 0)

    with `m` valid sites. The number of sites is not prescribed: it results from the weight, which has to be
    searched. Prefer `DualAscent` or `ExactK` when K is given.

    Parameters
    ----------
    weight
        Weight relative to the reconstruction loss. The paper searches it in [0.01, 1].

    References
    ----------
    .. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.
    .. [2] C. Louizos, M. Welling and D. P. Kingma. Learning Sparse Neural Networks through L0 Regularization.
       ICLR 2018.

    Examples
    --------
    >>> from keyhole.masks import HardConcrete
    >>> distribution = HardConcrete(5)
    >>> masks, penalty = L0Penalty(0.1)(distribution, distribution.draw(4))
    >>> round(penalty.item(), 4)
    0.0832
    """

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def loss(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Compute `weight * expected_l0 / sites`.

        Parameters
        ----------
        distribution, sample
            As in `Budget.loss`.

        Returns
        -------
        Tensor
            Scalar.
        """
        return self.weight * sample.expected_l0 / distribution.n_sites


class CountBudget(Budget):
    """Base class of budgets with a given number of sites.

    Parameters
    ----------
    k
        Number of sites. The attribute `k` may be assigned between steps, for example to anneal it from a larger
        number, and is part of `state_dict`. Whether k sites exist is checked when the budget is first used.
    """

    _k: Tensor

    def __init__(self, k: int) -> None:
        super().__init__()
        self.register_buffer("_k", torch.tensor(whole_number(k)))

    @property
    def k(self) -> int:
        """Number of sites."""
        return int(self._k)

    @k.setter
    def k(self, value: int) -> None:
        self._k.fill_(whole_number(value))


class DualAscent(CountBudget):
    r"""Hold the expected number of sites at k with a Lagrange multiplier, learned by dual ascent.

    .. math:: \text{loss} = (p + \rho\, e)\,\frac{c - k}{k}, \qquad
              e = \frac{\bar c - k}{\max(\bar c, k)}, \qquad
              p \leftarrow p + \text{rate} \cdot e

    with the multiplier `p`, the zero-temperature count `c` and its bias-corrected value `c_bar`. The gradient is that
    of an augmented Lagrangian (a linear and a quadratic term). The relative violation `e` lies between -1 and 1, so
    that the multiplier does not overshoot when the count starts far above k. `p` may become negative, which rewards
    opening more sites.

    Details that matter for convergence:

    - `c_bar` is `c` of the sample plus a moving average (`gap`) of the difference between the sampled number of open
      sites and `c`. So the constraint holds for the sampled masks, also where `c` is only a surrogate
      (`HyperNetworkLogitNormal`).
    - Half of the gradient of `c` comes from the zero-temperature probabilities and half from the drawn logits: a
      surrogate alone can go to zero while the sampled masks still open sites.
    - `update` also shifts all logits by a constant towards a count of k, because sites whose marginal is nearly 0 or 1
      respond to the multiplier late and then too strongly.
    - With soft masks and `p > 0` the penalised quantity is the expected L0, which counts every site whose mask is above
      0. Otherwise a logit just below zero would not be counted while the reconstructor recovers the site's value by
      rescaling a partly open mask. `MaskDistribution.polarise` removes such masks; `hard=True` rules them out.

    Parameters
    ----------
    k
        Number of sites.
    rate
        Step size of the multiplier, in units of the objective. The defaults of `rate` and `stiffness` suit an
        objective of order 1, such as the unexplained variance; scale both with it.
    stiffness
        `rho`, the weight of the quadratic term, in units of the objective.
    smoothing
        Decay of the moving average `gap`, from 0 (last sample only) to below 1.
    hard
        Whether the reconstructor receives the zero-temperature masks, with the gradient of the soft masks
        (straight-through).

    References
    ----------
    .. [1] D. P. Bertsekas. Constrained Optimization and Lagrange Multiplier Methods. Academic Press, 1982.

    Examples
    --------
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
        """Return the soft masks of the sample, or the zero-temperature masks if `hard`.

        Parameters
        ----------
        distribution, sample
            As in `Budget.masks`.

        Returns
        -------
        Tensor
            `(draws, *event_shape)`, with the gradient of the soft masks in both cases.
        """
        if not self.hard:
            return sample.values
        opened = distribution.scatter(sample.opened.to(sample.values.dtype))
        return opened + (sample.values - sample.values.detach())

    def loss(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Compute the augmented Lagrangian term.

        Parameters
        ----------
        distribution, sample
            As in `Budget.loss`.

        Returns
        -------
        Tensor
            Scalar, in units of the objective.

        Raises
        ------
        InfeasibleError
            There are fewer than k valid sites, or k is less than 1.
        """
        distribution.check_k(self.k)
        count = self._count(sample)
        price = self.multiplier + self.stiffness * self._relative(count)
        penalised = sample.expected_l0 if price > 0 and not self.hard else sample.soft_count
        path = (penalised + torch.sigmoid(sample.logits / distribution.temperature).sum(1).mean()) / 2
        return price * (count + (path - path.detach()) - self.k) / self.k

    @torch.no_grad()
    def update(self, distribution: MaskDistribution, sample: MaskSample) -> None:
        """Update the multiplier and `gap`, and shift the logits towards a count of k.

        Parameters
        ----------
        distribution, sample
            As in `Budget.update`. Distributions whose open sites are not those with a positive logit
            (`SimplexLogitNormal`) are not shifted.
        """
        by_sign = sample.soft_count.new_tensor(
            float(torch.equal(sample.opened, sample.logits > 0))
        )  # not on the simplex
        gap, by_sign = self.processes.mean(torch.stack([sample.sampled_count - sample.soft_count, by_sign]))
        self.gap.lerp_(gap.to(self.gap), 1 - self.smoothing)
        self.multiplier.add_(self.rate * self._violation(sample).to(self.multiplier))
        if by_sign == 1:
            recentre(distribution, sample, self.k, _RECENTRE_RATE, self.processes)

    def _count(self, sample: MaskSample) -> Tensor:
        """Return the bias-corrected count."""
        return self.processes.mean(sample.soft_count) + self.gap

    def _violation(self, sample: MaskSample) -> Tensor:
        """Return the relative violation of the constraint, between -1 and 1."""
        return self._relative(self._count(sample))

    def _relative(self, count: Tensor) -> Tensor:
        return (count - self.k) / count.clamp_min(self.k)
