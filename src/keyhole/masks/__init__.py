r"""Differentiable mask distributions for PyTorch: learn which K sites (features, sensors) to observe.

A *mask distribution* is a `torch.nn.Module` whose samples are masks in [0, 1] on a grid, differentiable in its
parameters. A *budget* controls how many sites the masks open during training. *Collapse* functions turn the trained
distribution into K ranked sites. The package depends on torch and `keyhole.core` alone, so it fits into any training
loop.

================================  =========================================================================
`IndependentLogitNormal` (iln)    independent sites, normal logits
`CorrelatedLogitNormal` (vln)     logits share a low-dimensional latent: a low-rank covariance; the default choice
`HyperNetworkLogitNormal` (hnet)  location and weights are themselves functions of the latent: not Gaussian
`HardConcrete` (sct)              independent sites, logistic logits
`GraphLogitNormal` (graph_vln)    the low-rank covariance, localised along a graph: neighbours alone are correlated
`SimplexLogitNormal` (simplex)    each site takes one of several options (instruments, precisions) or none
`L0Penalty`                       weight on the expected number of open sites; the number results from the weight
`DualAscent`                      a Lagrange multiplier holds the expected number at K
`ExactK`                          every mask opens exactly K sites; straight-through gradient
`Reinforce`                       every mask opens exactly K sites; score-function gradient
`MaskDistribution.top`            K sites by marginal probability
`frequency`                       K sites by sampled frequency
`best_of`                         K sites of the best of several joint samples, by a score
`rounded`                         as in the paper: the count rounded down and up to tens
================================  =========================================================================

References
----------
.. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.
.. [2] C. Louizos, M. Welling and D. P. Kingma. Learning Sparse Neural Networks through L0 Regularization. ICLR 2018.

Examples
--------
Ten features, of which only 3 and 7 determine the target; a linear model and the masks are trained together:

>>> import torch
>>> from keyhole.masks import CorrelatedLogitNormal, ExactK
>>> generator = torch.Generator().manual_seed(0)
>>> x = torch.randn(256, 10, generator=generator)
>>> y = x[:, 3] - 2 * x[:, 7]
>>> masks = CorrelatedLogitNormal(10, rank=4, generator=generator)
>>> budget, model = ExactK(2), torch.zeros(10, requires_grad=True)
>>> optimiser = torch.optim.Adam([*masks.parameters(), model], lr=0.05)
>>> for _ in range(150):
...     draw = masks.draw(16, generator)
...     s, penalty = budget(masks, draw)  # (16, 10)
...     loss = (((s[:, None] * x) @ model - y) ** 2).mean() + penalty
...     optimiser.zero_grad()
...     loss.backward()
...     optimiser.step()
...     budget.update(masks, draw)
>>> sorted(masks.top(2).tolist())
[3, 7]
"""

from __future__ import annotations

from keyhole.masks.base import MaskDistribution, concentration_of
from keyhole.masks.budgets import Budget, CountBudget, DualAscent, L0Penalty
from keyhole.masks.collapse import best_of, frequency, rounded
from keyhole.masks.exact_k import ExactK, Reinforce
from keyhole.masks.graph_logit_normal import GraphLogitNormal
from keyhole.masks.hard_concrete import HardConcrete
from keyhole.masks.hyper_network import HyperNetworkLogitNormal
from keyhole.masks.logit_normal import CorrelatedLogitNormal, IndependentLogitNormal
from keyhole.masks.sample import MaskSample, share
from keyhole.masks.simplex import SimplexLogitNormal

__all__ = [
    "MASK_DISTRIBUTIONS",
    "Budget",
    "CorrelatedLogitNormal",
    "CountBudget",
    "DualAscent",
    "ExactK",
    "GraphLogitNormal",
    "HardConcrete",
    "HyperNetworkLogitNormal",
    "IndependentLogitNormal",
    "L0Penalty",
    "MaskDistribution",
    "MaskSample",
    "Reinforce",
    "SimplexLogitNormal",
    "best_of",
    "concentration_of",
    "frequency",
    "rounded",
    "share",
]

MASK_DISTRIBUTIONS: dict[str, type[MaskDistribution]] = {
    distribution.name: distribution
    for distribution in (
        IndependentLogitNormal,
        CorrelatedLogitNormal,
        HyperNetworkLogitNormal,
        GraphLogitNormal,
        HardConcrete,
        SimplexLogitNormal,
    )
}
