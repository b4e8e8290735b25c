"""Exchange algorithm whose objective is the validation error of a non-linear surrogate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.core.settings import parse
from keyhole.data.samples import Samples
from keyhole.placement.base import Selection, Selector
from keyhole.placement.classical import Greedy, rank_sites
from keyhole.placement.fit_score_split import FitScoreSplit
from keyhole.placement.kernel_surrogate import fit_surrogate
from keyhole.placement.leave_one_out import leave_one_out_surrogate
from keyhole.placement.settings import KernelExchangeSettings
from keyhole.placement.surrogate import NONLINEAR_THRESHOLD, Surrogate

__all__ = ["KernelExchange"]

_MIN_SAMPLES = 60  # fewer do not determine a non-linear surrogate
_MIN_IMPROVEMENT = 2e-4  # relative improvement of the error below which an exchange is not made
_CLOSE, _MAX_OTHERS = 1.03, 3  # local optima within this factor of the best are reported; at most so many
_N_BEST = 12  # candidates among which a random restart draws


class KernelExchange(Selector):
    """Exchange algorithm with random restarts for a kernel surrogate of the reconstructor.

    Starting from greedy selection, each site in turn is exchanged for one of the few candidates with the largest
    estimated gain, if that lowers the error of the surrogate (kernel ridge or random features, whichever fits better).
    The error is that of a third of the samples, on which the surrogate was not fitted, or the leave-one-out error where
    samples are few. When no exchange improves it, an eighth of the incumbent's sites is perturbed at random and the
    local search repeated. Where the surrogate is hardly better than a linear one, the initial sites are returned:
    `Exchange` then has the same optimum and is much faster.

    Parameters
    ----------
    settings
        Fields of `KernelExchangeSettings`, by name.

    References
    ----------
    Fedorov (1972). Theory of Optimal Experiments. Academic Press.
    """

    name: ClassVar[str] = "kernel_exchange"

    def __init__(self, **settings: Any) -> None:
        self._settings = parse(KernelExchangeSettings, settings)

    def settings(self) -> dict[str, Any]:
        """Return all settings."""
        return self._settings.model_dump()

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Select ``k`` sites greedily and improve them by exchanges.

        Parameters
        ----------
        train
            Scaled samples.
        k
            Number of sites.
        validation
            Not used: the surrogate is scored on a part of ``train``.
        run
            Seed, deadline and progress; at the deadline the incumbent is returned.

        Returns
        -------
        Selection
            Ranked sites; see `improve`.
        """
        start = Greedy().select(train, k, validation=None, run=run).sites
        return self.improve(train, [start], run)

    def improve(self, train: Samples, starts: Sequence[NDArray[np.int64]], run: Run) -> Selection:
        """Run the local search from each of several sets of sites, then with random restarts from the incumbent.

        Parameters
        ----------
        train
            Scaled samples; with fewer than 60 the first set is returned.
        starts
            Initial sets of sites, flat grid indices.
        run
            Seed, deadline and progress; at the deadline the incumbent is returned.

        Returns
        -------
        Selection
            Ranked sites. ``others`` holds further local optima of nearly the same error. The notes tell the ratio of
            the surrogate's error to that of a linear one (``curved``), and the numbers of exchanges (``swaps``) and
            restarts (``hops``).
        """
        if len(train) < _MIN_SAMPLES:
            return Selection(starts[0], notes={"swaps": 0})
        longest = max(starts, key=len)
        surrogate = fit_surrogate(FitScoreSplit.of(train, None, len(longest), run), longest, run)
        initial_scores = [surrogate(start) for start in starts]
        nonlinearity = min(initial_scores) / max(
            surrogate.linear(starts[int(np.argmin(initial_scores))]), np.finfo(float).tiny
        )
        if nonlinearity > NONLINEAR_THRESHOLD:
            return Selection(starts[int(np.argmin(initial_scores))], notes={"curved": nonlinearity, "swaps": 0})
        surrogate = leave_one_out_surrogate(surrogate, train, len(longest), run)
        search = _LocalSearch(surrogate, self._settings, run, total=len(starts) + self._settings.n_restarts)
        for start in starts:
            search.descend([int(site) for site in start])
        while search.count < search.total and run.seconds_left() > 0:
            search.descend(search.perturbed())
        sites = rank_sites(train, np.array(search.sites, np.int64), run)
        notes = {"curved": nonlinearity, "swaps": search.n_exchanges, "hops": search.count - len(starts)}
        others = [rank_sites(train, np.array(optimum, np.int64), run) for optimum in search.others()]
        return Selection(sites, search.history, notes, others=others)


class _LocalSearch:
    """Local search: the incumbent, all local optima, and the history."""

    def __init__(self, surrogate: Surrogate, settings: KernelExchangeSettings, run: Run, *, total: int) -> None:
        self.surrogate, self.settings, self.run, self.total = surrogate, settings, run, total
        self.rng = run.generator("hops")
        self.sites: list[int] = []
        self.error, self.n_exchanges = np.inf, 0
        self.optima: dict[frozenset[int], float] = {}
        self.history: list[dict[str, float]] = []

    @property
    def count(self) -> int:
        """Number of local optima found."""
        return len(self.history)

    def others(self) -> list[list[int]]:
        """Local optima of nearly the same error as the incumbent, the better first."""
        close = [optimum for optimum, error in self.optima.items() if self.error < error < _CLOSE * self.error]
        return [sorted(optimum) for optimum in sorted(close, key=self.optima.__getitem__)[:_MAX_OTHERS]]

    def descend(self, sites: list[int]) -> None:
        """Exchange sites until no exchange lowers the error; update the incumbent."""
        error, n_failed = self.surrogate(sites), 0
        position = len(sites) - 1  # perturbed sites are last, and are exchanged first
        while n_failed < len(sites) and self.run.seconds_left() > 0:
            sites, new_error = self._exchanged(sites, position, error)
            self.n_exchanges, n_failed = (
                (self.n_exchanges + 1, 0) if new_error < error else (self.n_exchanges, n_failed + 1)
            )
            error, position = min(error, new_error), (position - 1) % len(sites)
            self._report(error)
        if error < self.error:
            self.sites, self.error = sites, error
        self.optima[frozenset(sites)] = error
        self.history.append({"step": float(self.count), "left": error, "best": self.error})

    def perturbed(self) -> list[int]:
        """Perturb the incumbent: replace an eighth of its sites by random ones of the best candidates."""
        count = min(max(2, len(self.sites) // 8), max(1, len(self.sites) - 1))
        removed = self.rng.permutation(len(self.sites))[:count]
        sites = [site for position, site in enumerate(self.sites) if position not in removed]
        while len(sites) < len(self.sites):
            candidates = _best(self.surrogate.gains(sites), _N_BEST)
            if not len(candidates):  # no other candidate is feasible
                return list(self.sites)
            sites.append(int(self.rng.choice(candidates)))
        return sites

    def _exchanged(self, sites: list[int], position: int, error: float) -> tuple[list[int], float]:
        """Exchange the site at ``position`` if one of a few candidates lowers the error; return sites and error."""
        candidates = _best(self.surrogate.gains(sites, without=position), self.settings.n_candidates)
        proposals = [
            [*sites[:position], int(candidate), *sites[position + 1 :]]
            for candidate in candidates
            if candidate != sites[position]
        ]
        scores = [self.surrogate(proposal) for proposal in proposals]
        best = int(np.argmin(scores)) if scores else 0
        if not scores or scores[best] > (1 - _MIN_IMPROVEMENT) * error:
            return sites, error
        return proposals[best], scores[best]

    def _report(self, error: float) -> None:
        figures = {"swaps": float(self.n_exchanges), "left": min(error, self.error)}
        self.run.tell(Event("swap sites", self.count, self.total, figures))


def _best(gains: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the feasible candidates with the largest gains."""
    order = np.argsort(-gains, kind="stable")[:count]
    return np.asarray(order[np.isfinite(gains[order])], np.int64)
