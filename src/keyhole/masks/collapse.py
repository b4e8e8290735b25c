"""Collapse of a mask distribution to K ranked sites, beside `MaskDistribution.top`: by sampling, or as in the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from keyhole.masks.base import MaskDistribution
from keyhole.masks.sample import MaskSample

__all__ = ["best_of", "frequency", "rounded"]

_CHUNK = 256  # draws in memory at once


def rounded(distribution: MaskDistribution) -> tuple[Tensor, Tensor]:
    """Select by marginals, with the number of sites from the count rounded down and up to tens, as in the paper.

    For distributions trained with `L0Penalty`, where the number of sites is a result.

    Parameters
    ----------
    distribution
        A trained mask distribution.

    Returns
    -------
    down, up : LongTensor
        Flat C-order grid indices, largest marginal first. For counts below ten, `down` has the integer part of the
        count, at least one site. Neither has more sites than are valid; both are equal when the count is a
        multiple of ten.

    References
    ----------
    .. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.
    """
    count, ranked = round(distribution.count(), 3), distribution.top(distribution.n_sites)
    down = max(10 * math.floor(count / 10) or math.floor(count), 1)
    up = max(10 * math.ceil(count / 10), down)
    return ranked[:down], ranked[:up]


def frequency(
    distribution: MaskDistribution, k: int, *, draws: int, generator: torch.Generator | None = None
) -> Tensor:
    """Select the k sites that the zero-temperature masks open most often.

    A Monte Carlo version of `MaskDistribution.top`, for checking closed-form marginals against samples.

    Parameters
    ----------
    distribution
        A trained mask distribution.
    k
        Number of sites.
    draws
        Number of masks; the standard error of a frequency is at most `0.5 / sqrt(draws)`.
    generator
        Source of the draws; None takes torch's global generator.

    Returns
    -------
    LongTensor
        `(k,)`, flat C-order grid indices, most frequent first; ties are resolved by mean logit.

    Raises
    ------
    InfeasibleError
        k is less than 1 or more than the number of valid sites.
    """
    distribution.check_k(k)
    opened, logits = torch.zeros(2, distribution.n_sites, dtype=torch.float64, device=distribution.index.device)
    for sample in _samples(distribution, draws, generator):
        opened += sample.opened.double().sum(0)
        logits += sample.logits.double().sum(0)
    order = logits.argsort(descending=True, stable=True)
    return distribution.index[order[opened[order].argsort(descending=True, stable=True)[:k]]]


def best_of(
    distribution: MaskDistribution,
    k: int,
    *,
    candidates: int,
    score: Callable[[Tensor], float],
    generator: torch.Generator | None = None,
    make_feasible: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Select the best of several joint samples by a score, such as a validation error.

    The first candidate is `distribution.top(k)`; the others are the k largest logits of each draw. Joint samples
    respect the correlations between sites, so with a correlated distribution that has not fully concentrated the result
    is at least as good, by this score, as that of `top`, at the price of the evaluations.

    Parameters
    ----------
    distribution
        A trained mask distribution.
    k
        Number of sites.
    candidates
        Number of draws.
    score
        Function of k sites (flat C-order grid indices, largest marginal first); lower is better. Each distinct set is
        scored once, ties go to the earliest, and a set with a NaN score is never selected.
    generator
        Source of the draws; None takes torch's global generator.
    make_feasible
        Function that takes k feasible sites from a ranking of all valid sites; by default the first k.

    Returns
    -------
    LongTensor
        `(k,)`, flat C-order grid indices, largest marginal first.

    Raises
    ------
    InfeasibleError
        k is less than 1 or more than the number of valid sites.

    Examples
    --------
    >>> from keyhole.masks import IndependentLogitNormal
    >>> generator = torch.Generator().manual_seed(0)
    >>> distribution = IndependentLogitNormal(6, generator=generator)
    >>> sites = best_of(distribution, 2, candidates=99, score=lambda sites: float(sites.sum()), generator=generator)
    >>> sorted(sites.tolist())
    [0, 1]
    """
    distribution.check_k(k)
    ranked, choose = distribution.top(distribution.n_sites), make_feasible or (lambda order: order[:k])
    best, lowest, seen = choose(ranked), math.inf, set[tuple[int, ...]]()
    for order in _candidates(distribution, ranked, candidates, generator):
        sites = ranked[torch.isin(ranked, choose(order))]
        if (identity := tuple(sites.tolist())) not in seen:
            seen.add(identity)
            value = score(sites)
            best, lowest = (sites, value) if value < lowest else (best, lowest)
    return best


def _candidates(
    distribution: MaskDistribution, ranked: Tensor, draws: int, generator: torch.Generator | None
) -> Iterator[Tensor]:
    """Yield rankings of all sites: by marginals, then by the logits of each draw."""
    yield ranked
    for sample in _samples(distribution, draws, generator):
        yield from distribution.index[sample.logits.argsort(dim=1, descending=True, stable=True)]


def _samples(distribution: MaskDistribution, draws: int, generator: torch.Generator | None) -> Iterator[MaskSample]:
    """Yield the draws in chunks, without gradient."""
    for start in range(0, draws, _CHUNK):
        with torch.no_grad():
            sample = distribution.draw(min(_CHUNK, draws - start), generator)
        yield sample
