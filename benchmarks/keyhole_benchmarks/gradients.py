r"""Bias and variance of gradient estimators of mask distributions, on a problem whose gradient is known by enumeration.

Six sites with covariance `C`, a fixed linear decoder `A`, and the error of a mask `s`,

.. math:: e(s) = \mathrm{tr}\,(I - A\, \mathrm{diag}(s))\, C\, (I - A\, \mathrm{diag}(s))' / \mathrm{tr}\, C

which is a quadratic polynomial, so that it is defined for soft masks too. The expected error over masks with exactly K
sites, or over the zero-temperature masks `1[u > 0]`, is a sum over all masks, whose probabilities are one-dimensional
integrals given the latent vector; its gradient follows by automatic differentiation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product

import numpy as np
import torch
from torch import Tensor

from keyhole.core.run import Run
from keyhole.masks import CorrelatedLogitNormal, DualAscent, ExactK, IndependentLogitNormal, MaskSample, Reinforce
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["DISTRIBUTIONS", "ESTIMATORS", "STATES", "Estimator", "Toy", "jobs"]

Distribution = IndependentLogitNormal | CorrelatedLogitNormal

N_SITES, K, RANK, INDEPENDENT_STD = 6, 2, 2, 0.3
N_DRAWS = 16
_NODES, _LATENT_NODES = 300, 24
DISTRIBUTIONS = ("iln", "vln")
STATES = ("initial", "concentrated")


@dataclass(frozen=True)
class Toy:
    """Covariance of the sites and a linear decoder, the best one for uniformly random masks of K sites.

    Parameters
    ----------
    covariance
        `C`, `(sites, sites)`.
    decoder
        `A`, `(sites, sites)`.
    """

    covariance: Tensor
    decoder: Tensor

    @classmethod
    def random(cls, seed: int) -> Toy:
        """Draw a covariance of rank 2 with noise.

        Parameters
        ----------
        seed
            Seed.

        Returns
        -------
        Toy
        """
        factor = torch.randn(N_SITES, RANK, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        covariance = factor @ factor.T + 0.1 * torch.eye(N_SITES, dtype=torch.float64)
        one, two = K / N_SITES, K * (K - 1) / (N_SITES * (N_SITES - 1))
        both = torch.full_like(covariance, two).fill_diagonal_(one)
        return cls(covariance, one * covariance @ torch.linalg.inv(covariance * both))

    def errors(self, masks: Tensor) -> Tensor:
        """Compute the error of each mask.

        Parameters
        ----------
        masks
            `(n, sites)`.

        Returns
        -------
        Tensor
            `(n,)`.
        """
        left = torch.eye(N_SITES, dtype=masks.dtype) - self.decoder * masks[:, None, :]
        return torch.einsum("nij,jk,nik->n", left, self.covariance, left) / self.covariance.trace()


@dataclass(frozen=True)
class Estimator:
    """An estimator of the gradient of an expected error.

    Parameters
    ----------
    words
        Name on the page.
    objective
        ``exact``: over masks of exactly K sites; ``count``: over zero-temperature masks.
    loss
        Function of the distribution, a draw, and the problem, whose gradient is the estimate.
    temperature
        Temperature of the distribution.
    """

    words: str
    objective: str
    loss: Callable[[Distribution, MaskSample, Toy], Tensor]
    temperature: float


def _straight_through(distribution: Distribution, sample: MaskSample, toy: Toy) -> Tensor:
    return toy.errors(ExactK(K).masks(distribution, sample)).mean()


def _reinforce(distribution: Distribution, sample: MaskSample, toy: Toy) -> Tensor:
    budget = Reinforce(K)
    return budget.surrogate(distribution, sample, toy.errors(budget.masks(distribution, sample)))


def _of_count(hard: bool, distribution: Distribution, sample: MaskSample, toy: Toy) -> Tensor:
    return toy.errors(DualAscent(K, hard=hard).masks(distribution, sample)).mean()


def _estimators() -> Iterator[tuple[str, Estimator]]:
    yield "reinforce", Estimator("`Reinforce`, leave-one-out baseline", "exact", _reinforce, 0.3)
    for lam in (0.1, 0.3, 1.0):
        yield f"exact_{lam:g}", Estimator(f"`ExactK`, straight-through, λ = {lam:g}", "exact", _straight_through, lam)
    for lam in (0.1, 0.3, 1.0):
        soft, hard = partial(_of_count, False), partial(_of_count, True)
        yield f"soft_{lam:g}", Estimator(f"soft masks (the paper), λ = {lam:g}", "count", soft, lam)
        yield f"hard_{lam:g}", Estimator(f"zero-temperature masks, straight-through, λ = {lam:g}", "count", hard, lam)


ESTIMATORS = dict(_estimators())


def jobs(methods: Sequence[str], repetitions: int, seeds: Sequence[int]) -> Iterator[Job]:
    """Return one job for each distribution, state, estimator and seed.

    Parameters
    ----------
    methods
        Names of estimators, keys of `ESTIMATORS`.
    repetitions
        Number of estimates from which bias and standard deviation are computed.
    seeds
        Seeds of the problem, the parameters and the draws.

    Yields
    ------
    Job
        A job with one case.
    """
    for seed, name, state, method in product(seeds, DISTRIBUTIONS, STATES, methods):
        settings = {"repetitions": repetitions, "n_masks": N_DRAWS, "n_sites": N_SITES}
        case = Case("gradients", state, name, method, "none", K, seed, settings)
        yield Job([case], {}, "64-true", partial(_work, case))


def _work(case: Case, run: Run) -> Iterator[Outcome]:
    """Compare the mean of many estimates to the gradient by enumeration."""
    toy, estimator = Toy.random(case.seed), ESTIMATORS[case.method]
    distribution = make_distribution(case.protocol, case.data, case.seed)
    expected = _flat(expected_error(distribution, toy, estimator.objective), distribution)
    distribution.temperature = estimator.temperature
    generator, found = torch.Generator().manual_seed(1000 + case.seed), []
    for _ in range(case.settings["repetitions"]):
        loss = estimator.loss(distribution, distribution.draw(N_DRAWS, generator), toy)
        found.append(_flat(loss, distribution))
    yield Outcome(_compared(torch.stack(found), expected), K, {"objective": estimator.objective})


def make_distribution(name: str, state: str, seed: int) -> Distribution:
    """Return a distribution over six sites in double precision.

    Parameters
    ----------
    name
        ``iln``, or ``vln`` with rank 2 and an independent part.
    state
        ``initial``: as it is constructed, with locations moved at random; ``concentrated``: two sites have a marginal
        of 0.8 besides.
    seed
        Seed of the parameters.

    Returns
    -------
    MaskDistribution
    """
    generator = torch.Generator().manual_seed(seed)
    made: Distribution
    if name == "iln":
        made = IndependentLogitNormal(N_SITES, generator=generator).double()
    else:
        made = CorrelatedLogitNormal(N_SITES, rank=RANK, independent_std=INDEPENDENT_STD, generator=generator).double()
    if state == "concentrated":
        made.warm_start([0, 3])
    location = made.mu if isinstance(made, IndependentLogitNormal) else made.bias
    with torch.no_grad():
        location.add_(0.2 * torch.randn(N_SITES, generator=generator, dtype=torch.float64))
    return made


def expected_error(distribution: Distribution, toy: Toy, objective: str) -> Tensor:
    """Compute the expected error over hard masks by enumeration, differentiable in the parameters.

    Parameters
    ----------
    distribution
        Of normal logits.
    toy
        The problem.
    objective
        ``exact`` or ``count``.

    Returns
    -------
    Tensor
        Scalar.
    """
    locations, spread, weights = _conditional(distribution)
    if objective == "exact":
        sets = [list(one) for one in combinations(range(N_SITES), K)]
        masks = torch.stack([torch.eye(N_SITES, dtype=torch.float64)[one].sum(0) for one in sets])
        chances = torch.stack([weights @ _largest(one, locations, spread) for one in sets])
    else:
        masks = torch.tensor(list(product((0.0, 1.0), repeat=N_SITES)), dtype=torch.float64)
        opened = torch.special.ndtr(locations / spread)[:, None]
        chances = weights @ torch.where(masks > 0, opened, 1 - opened).prod(-1)
    return chances @ toy.errors(masks)


def _conditional(distribution: Distribution) -> tuple[Tensor, Tensor, Tensor]:
    """Return means and standard deviations given nodes of the latent vector, `(nodes, sites)`, and their weights."""
    if isinstance(distribution, IndependentLogitNormal):
        location, spread = distribution.moments()
        return location[None], spread[None], torch.ones(1, dtype=torch.float64)
    nodes, weights = np.polynomial.hermite_e.hermegauss(_LATENT_NODES)
    z = torch.cartesian_prod(*[torch.from_numpy(nodes)] * RANK)
    chance = torch.cartesian_prod(*[torch.from_numpy(weights / weights.sum())] * RANK).prod(-1)
    spread = torch.full((1, N_SITES), INDEPENDENT_STD, dtype=torch.float64)
    return distribution.bias + z @ distribution.weight.T, spread, chance


def _largest(chosen: list[int], location: Tensor, spread: Tensor) -> Tensor:
    """Return the probability that these independent normal variables are the largest, by the smallest of them."""
    low, high = ((location + sign * 9 * spread).detach() for sign in (-1, 1))
    nodes, weights = (torch.from_numpy(one) for one in np.polynomial.legendre.leggauss(_NODES))
    start, half = low.amin(1, keepdim=True), (high.amax(1) - low.amin(1))[:, None] / 2
    t = (start + half * (nodes + 1))[:, :, None]  # (latent nodes, nodes, 1)
    score = (t - location[:, None]) / spread[:, None]
    below, above = torch.special.ndtr(score), torch.special.ndtr(-score)
    density = torch.exp(-score.square() / 2) / (math.sqrt(2 * math.pi) * spread[:, None])
    others = below[..., [j for j in range(N_SITES) if j not in chosen]].prod(-1)
    parts = [density[..., i] * above[..., [j for j in chosen if j != i]].prod(-1) for i in chosen]
    smallest = torch.stack(parts).sum(0)
    probability: Tensor = (weights * half * smallest * others).sum(-1)
    return probability


def _flat(value: Tensor, distribution: Distribution) -> Tensor:
    return torch.cat([one.flatten() for one in torch.autograd.grad(value, list(distribution.parameters()))])


def _compared(found: Tensor, expected: Tensor) -> dict[str, float]:
    """Return bias and standard deviation relative to the gradient's norm, and the cosine of mean and gradient."""
    mean, norm = found.mean(0), float(expected.norm())
    deviation = float(found.var(0).sum().sqrt()) / norm
    return {
        "bias": float((mean - expected).norm()) / norm,
        "bias_of_chance": deviation / math.sqrt(len(found)),
        "deviation": deviation,
        "cosine": float(mean @ expected / (mean.norm() * norm)),
        "norm": norm,
    }
