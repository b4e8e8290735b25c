"""Collapse of a mask distribution to K ranked sites: flat C-order grid indices, most probable first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch

from keyhole.masks.base import MaskDistribution
from keyhole.masks.sample import MaskSample

__all__ = ["Sites", "best_of", "frequency", "marginal", "rounded"]

Sites = npt.NDArray[np.int64]
_Scores = npt.NDArray[np.float64]

_TIE_DRAWS = 256  # fixed draws for the mean logits that break ties between marginals
_CHUNK = 256  # draws in memory at once


def marginal(distribution: MaskDistribution, k: int) -> Sites:
    """Select the k sites with the largest zero-temperature marginals `P(S_i = 1)`.

    Fast and deterministic, and sufficient once the distribution has concentrated on k sites. It ignores correlations:
    of two redundant sites with large marginals it takes both; `best_of` compares joint samples instead.

    Parameters
    ----------
    distribution
        A trained mask distribution.
    k
        Number of sites.

    Returns
    -------
    ndarray of int64
        `(k,)`, flat C-order grid indices, largest marginal first. Ties (often of 0 or 1) are resolved by mean logit.

    Raises
    ------
    InfeasibleError
        k is less than 1 or more than the number of observable sites.

    Examples
    --------
    >>> from keyhole.masks import IndependentLogitNormal
    >>> generator = torch.Generator().manual_seed(0)
    >>> distribution = IndependentLogitNormal(torch.ones(2, 3, dtype=torch.bool), generator=generator)
    >>> distribution.warm_start([4, 1])
    >>> sorted(marginal(distribution, 2).tolist())
    [1, 4]
    """
    distribution.check_k(k)
    return _sites(distribution, _by_marginals(distribution)[:k])


def rounded(distribution: MaskDistribution) -> tuple[Sites, Sites]:
    """Select by marginals, with the number of sites from the count rounded down and up to tens, as in the paper.

    For distributions trained with `L0Penalty`, where the number of sites is a result.

    Parameters
    ----------
    distribution
        A trained mask distribution.

    Returns
    -------
    down, up : ndarray of int64
        Flat C-order grid indices, largest marginal first. For counts below ten, `down` has the integer part of the
        count, at least one site. Neither has more sites than are observable; both are equal when the count is a
        multiple of ten.

    References
    ----------
    .. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.
    """
    count, ranked = round(distribution.count(), 3), _sites(distribution, _by_marginals(distribution))
    down = max(10 * math.floor(count / 10) or math.floor(count), 1)
    up = max(10 * math.ceil(count / 10), down)
    return ranked[:down], ranked[:up]


def frequency(distribution: MaskDistribution, k: int, *, draws: int, generator: torch.Generator) -> Sites:
    """Select the k sites that the zero-temperature masks open most often.

    A Monte Carlo version of `marginal`, for checking closed-form marginals against samples.

    Parameters
    ----------
    distribution
        A trained mask distribution.
    k
        Number of sites.
    draws
        Number of masks; the standard error of a frequency is at most `0.5 / sqrt(draws)`.
    generator
        Source of the draws.

    Returns
    -------
    ndarray of int64
        `(k,)`, flat C-order grid indices, most frequent first; ties are resolved by mean logit.

    Raises
    ------
    InfeasibleError
        k is less than 1 or more than the number of observable sites.
    """
    distribution.check_k(k)
    opened, logits = _tally(distribution, draws, generator)
    return _sites(distribution, np.lexsort((-logits, -opened))[:k])


def best_of(
    distribution: MaskDistribution, k: int, *, candidates: int, score: Callable[[Sites], float], generator:
    torch.Generator, make_feasible: Callable[[Sites], Sites] | None = None,
) -> Sites:  # fmt: skip
    """Select the best of several joint samples by a score, such as a validation error.

    The first candidate is `marginal(distribution, k)`; the others are the k largest logits of each draw. Joint samples
    respect the correlations between sites, so with a correlated distribution that has not fully concentrated the result
    is at least as good, by this score, as that of `marginal`, at the price of the evaluations.

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
        Source of the draws.
    make_feasible
        Function that takes k feasible sites from a ranking of all observable sites; by default the first k.

    Returns
    -------
    ndarray of int64
        `(k,)`, flat C-order grid indices, largest marginal first.

    Raises
    ------
    InfeasibleError
        k is less than 1 or more than the number of observable sites.

    Examples
    --------
    >>> from keyhole.masks import IndependentLogitNormal
    >>> generator = torch.Generator().manual_seed(0)
    >>> distribution = IndependentLogitNormal(torch.ones(6, dtype=torch.bool), generator=generator)
    >>> sites = best_of(distribution, 2, candidates=99, score=lambda sites: float(sites.sum()), generator=generator)
    >>> sorted(sites.tolist())
    [0, 1]
    """
    distribution.check_k(k)
    ranked, choose = _sites(distribution, _by_marginals(distribution)), make_feasible or (lambda order: order[:k])
    best, lowest, seen = choose(ranked), math.inf, set[bytes]()
    for order in _candidates(distribution, ranked, candidates, generator):
        sites = ranked[np.isin(ranked, choose(order))]
        if sites.tobytes() not in seen:
            seen.add(sites.tobytes())
            value = score(sites)
            best, lowest = (sites, value) if value < lowest else (best, lowest)
    return best


def _candidates(
    distribution: MaskDistribution, ranked: Sites, draws: int, generator: torch.Generator
) -> Iterator[Sites]:
    """Yield rankings of all sites: by marginals, then by the logits of each draw."""
    yield ranked
    for sample in _samples(distribution, draws, generator):
        for order in sample.logits.argsort(dim=1, descending=True, stable=True).cpu().numpy():
            yield _sites(distribution, order)


def _by_marginals(distribution: MaskDistribution) -> Sites:
    """Return positions among the observable sites, largest marginal first."""
    _, logits = _tally(distribution, _TIE_DRAWS, torch.Generator().manual_seed(0))
    return np.lexsort((-logits, -distribution.marginals().double().cpu().numpy()))


def _tally(distribution: MaskDistribution, draws: int, generator: torch.Generator) -> tuple[_Scores, _Scores]:
    """Return the frequency with which each site is open, and its mean logit."""
    opened, logits = np.zeros(distribution.sites), np.zeros(distribution.sites)
    for sample in _samples(distribution, draws, generator):
        opened += sample.opened.double().sum(0).cpu().numpy()
        logits += sample.logits.double().sum(0).cpu().numpy()
    return opened / draws, logits / draws


def _samples(distribution: MaskDistribution, draws: int, generator: torch.Generator) -> Iterator[MaskSample]:
    """Yield the draws in chunks, without gradient."""
    for start in range(0, draws, _CHUNK):
        with torch.no_grad():
            sample = distribution.sample(min(_CHUNK, draws - start), generator)
        yield sample


def _sites(distribution: MaskDistribution, positions: Sites) -> Sites:
    """Convert positions among the observable sites to flat grid indices."""
    return distribution.index.cpu().numpy()[positions]
