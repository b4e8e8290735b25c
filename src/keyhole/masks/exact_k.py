"""Budgets that open exactly k sites: by the straight-through gradient, and by the score function."""

from __future__ import annotations

import torch
from torch import Tensor

from keyhole.core.errors import DataError
from keyhole.masks.base import MaskDistribution
from keyhole.masks.budgets import CountBudget
from keyhole.masks.recentring import recentre, threshold_after
from keyhole.masks.sample import MaskSample

__all__ = ["ExactK", "Reinforce"]


class ExactK(CountBudget):
    r"""Masks that open exactly k sites: those with the k largest logits of the draw.

    .. math:: \text{mask} = 1[u \ge u_{(k)}] \text{, with the gradient of } \mathrm{sigmoid}((u - \tau) / \lambda)

    a straight-through estimator. The threshold `tau` is the midpoint between the k-th and the next largest logit. Its
    gradient keeps the sum of the soft mask constant, `d tau = sum_i w_i du_i / sum_i w_i` with `w = s (1 - s)`, so the
    gradient compares sites with those that they would displace: opening any site lowers the error, but only sites that
    lower it more than others should rise. (With a constant `tau` the distribution does not concentrate; with the
    gradient of the two adjacent logits it concentrates more slowly.)

    A constant added to all logits changes no mask. `update` uses this freedom to keep the zero-temperature count near
    k, so that the marginals remain meaningful.

    Parameters
    ----------
    k
        Number of sites; may be assigned between steps.
    rate
        Share of the shift towards a count of k that each update makes.

    References
    ----------
    .. [1] Y. Bengio, N. Léonard and A. Courville. Estimating or Propagating Gradients Through Stochastic Neurons for
       Conditional Computation. arXiv:1308.3432, 2013.

    Examples
    --------
    >>> from keyhole.masks import CorrelatedLogitNormal
    >>> distribution = CorrelatedLogitNormal((4, 4))
    >>> masks, penalty = ExactK(3)(distribution, distribution.draw(2))
    >>> masks.sum((1, 2)).tolist()
    [3.0, 3.0]
    """

    def __init__(self, k: int, rate: float = 0.1) -> None:
        super().__init__(k)
        self.rate = rate

    def masks(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Compute masks with exactly k ones per draw, and zeros elsewhere.

        Parameters
        ----------
        distribution, sample
            As in `Budget.masks`.

        Returns
        -------
        Tensor
            `(draws, *event_shape)`; ties between logits are resolved in C order.

        Raises
        ------
        InfeasibleError
            There are fewer than k valid sites, or k is less than 1.
        """
        distribution.check_k(self.k)
        ordered, order = _largest(sample.logits.detach(), self.k)
        hard = torch.zeros_like(sample.logits).scatter(1, order[:, : self.k], 1.0)
        tau = threshold_after(ordered, self.k, distribution.temperature)
        soft = _soft_mask(sample.logits, tau, distribution.temperature)
        return distribution.scatter(hard + (soft - soft.detach()))

    def loss(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Return zero: the masks meet the budget by construction.

        Parameters
        ----------
        distribution, sample
            As in `Budget.loss`.

        Returns
        -------
        Tensor
            Scalar zero.
        """
        return sample.logits.new_zeros(())

    @torch.no_grad()
    def update(self, distribution: MaskDistribution, sample: MaskSample) -> None:
        """Shift the logits towards a count of k; the masks do not change.

        Parameters
        ----------
        distribution, sample
            As in `Budget.update`.
        """
        recentre(distribution, sample, self.k, self.rate, self.processes)


class Reinforce(ExactK):
    r"""Masks that open exactly k sites, with the gradient of the score function and a leave-one-out baseline.

    The masks are those of `ExactK`, without gradient. With the error `e_i` of each of n draws, the gradient of the
    expected error is estimated by

    .. math::
        \frac{1}{n} \sum_i \Big(e_i - \frac{1}{n - 1} \sum_{j \ne i} e_j\Big) \nabla \log p(u_i)

    with the log density of the logits of the draw, `logit_log_prob` (the probability of a mask itself, that these
    logits and not others are the k largest, has no closed form). The estimate is unbiased, also for errors that are not
    differentiable in the mask. Its variance is larger than that of `ExactK`, whose estimate is biased
    (`keyhole-bench gradients` measures both): prefer it as a check, for few sites, and for errors without a gradient.

    It needs a density of the logits: `IndependentLogitNormal`, `HardConcrete`, `CorrelatedLogitNormal` with
    `independent_std` above 0, and `GraphLogitNormal` with fewer eigenvectors than nodes.

    Parameters
    ----------
    k, rate
        As in `ExactK`.

    References
    ----------
    .. [1] R. J. Williams. Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning.
       Machine Learning 8, 1992.
    .. [2] W. Kool, H. van Hoof and M. Welling. Buy 4 REINFORCE Samples, Get a Baseline for Free! ICLR Workshop on Deep
       Reinforcement Learning Meets Structured Prediction, 2019.

    Examples
    --------
    An error without a gradient, which is least with site 2 open:

    >>> from keyhole.masks import IndependentLogitNormal
    >>> masks, budget = IndependentLogitNormal(4), Reinforce(1)
    >>> generator = torch.Generator().manual_seed(0)
    >>> optimiser = torch.optim.Adam(masks.parameters(), lr=0.05)
    >>> for _ in range(100):
    ...     draw = masks.draw(16, generator)
    ...     s, _ = budget(masks, draw)
    ...     errors = 1 - s[:, 2]
    ...     optimiser.zero_grad()
    ...     budget.surrogate(masks, draw, errors).backward()
    ...     optimiser.step()
    >>> masks.top(1)
    tensor([2])
    """

    def masks(self, distribution: MaskDistribution, sample: MaskSample) -> Tensor:
        """Compute masks with exactly k ones per draw, without gradient.

        Parameters
        ----------
        distribution, sample
            As in `Budget.masks`.

        Returns
        -------
        Tensor
            `(draws, *event_shape)`.
        """
        return super().masks(distribution, sample).detach()

    def surrogate(self, distribution: MaskDistribution, sample: MaskSample, errors: Tensor) -> Tensor:
        """Compute the term whose gradient in the distribution's parameters is the estimate; its value is 0.

        Add it to the mean of the errors, through which other parameters, those of a decoder, get their gradient.

        Parameters
        ----------
        distribution, sample
            As in `Budget.masks`.
        errors
            `(draws,)`: the error with the mask of each draw.

        Returns
        -------
        Tensor
            Scalar.

        Raises
        ------
        DataError
            There is not one error for each of at least two draws.
        NotImplementedError
            The logits of the distribution have no density, or none in closed form.
        """
        draws = len(sample.logits)
        if errors.shape != (draws,) or draws < 2:
            raise DataError(
                f"errors: shape {tuple(errors.shape)} for {draws} draws; the leave-one-out baseline needs one error "
                "for each of at least two draws"
            )
        advantage = (errors.detach() - errors.detach().mean()) * draws / (draws - 1)
        term = (advantage * distribution.logit_log_prob(sample.logits.detach())).mean()
        return term - term.detach()


def _largest(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k + 1 largest of each row in descending order, and their positions; ties in C order."""
    found = logits.topk(min(k + 1, logits.shape[1]), dim=1)
    if k < logits.shape[1] and bool((found.values[:, k - 1] == found.values[:, k]).any()):
        return logits.sort(dim=1, descending=True, stable=True)
    return found.values, found.indices


def _soft_mask(logits: Tensor, tau: Tensor, temperature: float) -> Tensor:
    """Return `sigmoid((u - tau) / lam)`, with a gradient of `tau` in `u` that keeps the sum constant."""
    soft = torch.sigmoid((logits.detach() - tau) / temperature)
    weight = soft * (1 - soft)
    share = weight / weight.sum(1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
    moving = tau + (share * (logits - logits.detach())).sum(1, keepdim=True)
    return torch.sigmoid((logits - moving) / temperature)
