"""Collapse: from a law to ranked sites, flat C-order grid indices, likeliest first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch

from keyhole.masks import MaskDistribution, MaskSample

__all__ = ["Sites", "best_of", "frequency", "marginal", "rounded"]

Sites = npt.NDArray[np.int64]
_Scores = npt.NDArray[np.float64]

_TIE_DRAWS = 256
_CHUNK = 256  # draws held at once


def marginal(distribution: MaskDistribution, k: int) -> Sites:
    """Rank by the zero-temperature marginals `P(S_i = 1)`; equal ones (0 or 1, often) by mean logit.

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
    """Rank by marginals and take the law's count rounded down, and up, to tens, as the paper does.

    Below ten, "down" is the count rounded down to a whole number, at least one site. Neither takes more
    sites than there are. The two are the same when the count is a multiple of ten.
    """
    count, ranked = round(distribution.count(), 3), _sites(distribution, _by_marginals(distribution))
    down = max(10 * math.floor(count / 10) or math.floor(count), 1)
    up = max(10 * math.ceil(count / 10), down)
    return ranked[:down], ranked[:up]


def frequency(distribution: MaskDistribution, k: int, *, draws: int, generator: torch.Generator) -> Sites:
    """Rank by how often the zero-temperature masks of `draws` draws open a site; equal ones by mean logit."""
    distribution.check_k(k)
    opened, logits = _tally(distribution, draws, generator)
    return _sites(distribution, np.lexsort((-logits, -opened))[:k])


def best_of(
    distribution: MaskDistribution, k: int, *, candidates: int, score: Callable[[Sites], float], generator:
    torch.Generator, legal: Callable[[Sites], Sites] | None = None,
) -> Sites:  # fmt: skip
    """Score joint samples and keep the best.

    The first candidate is `marginal(law, k)`; then come the k largest logits of each of `candidates` draws,
    ranked by their marginals. The lowest score wins, the earliest among equals; a set that comes twice is
    scored once, and one whose score is not a number never wins. `legal` makes k sites of a ranking of all; by
    default they are the first.
    """
    distribution.check_k(k)
    ranked, choose = _sites(distribution, _by_marginals(distribution)), legal or (lambda order: order[:k])
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
    """Rankings of all sites: by marginals, then by the logits of each draw."""
    yield ranked
    for sample in _samples(distribution, draws, generator):
        for order in sample.logits.argsort(dim=1, descending=True, stable=True).cpu().numpy():
            yield _sites(distribution, order)


def _by_marginals(distribution: MaskDistribution) -> Sites:
    """Positions among the observable sites, likeliest first."""
    _, logits = _tally(distribution, _TIE_DRAWS, torch.Generator().manual_seed(0))
    return np.lexsort((-logits, -distribution.marginals().double().cpu().numpy()))


def _tally(distribution: MaskDistribution, draws: int, generator: torch.Generator) -> tuple[_Scores, _Scores]:
    """How often each site opens, and its mean logit."""
    opened, logits = np.zeros(distribution.sites), np.zeros(distribution.sites)
    for sample in _samples(distribution, draws, generator):
        opened += sample.opened.double().sum(0).cpu().numpy()
        logits += sample.logits.double().sum(0).cpu().numpy()
    return opened / draws, logits / draws


def _samples(distribution: MaskDistribution, draws: int, generator: torch.Generator) -> Iterator[MaskSample]:
    for start in range(0, draws, _CHUNK):
        with torch.no_grad():
            sample = distribution.sample(min(_CHUNK, draws - start), generator)
        yield sample


def _sites(distribution: MaskDistribution, positions: Sites) -> Sites:
    return distribution.index.cpu().numpy()[positions]
