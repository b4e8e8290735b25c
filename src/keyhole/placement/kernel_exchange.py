"""Exchange algorithm whose objective is the validation error of a non-linear surrogate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.metrics import is_better
from keyhole.placement.base import Selection, Selector
from keyhole.placement.baselines.supervised import Relevance
from keyhole.placement.candidates import FeasibleCandidates
from keyhole.placement.classical import Greedy, rank_sites
from keyhole.placement.kernel_surrogate import (
    FitScoreSplit,
    KernelSurrogate,
    LeaveOneOutSurrogate,
)
from keyhole.placement.local_search import LocalSearch, ScoredObjective, SearchState
from keyhole.placement.settings import KernelExchangeSettings

__all__ = ["KernelExchange", "SurrogateObjective"]


class SurrogateObjective(ScoredObjective):
    """Error of a kernel surrogate; candidates are the observable sites.

    Parameters
    ----------
    surrogate
        Error and estimated gains for any set of sites.
    sites
        ``(m,)``, numbers of the candidates.
    n_scored
        Candidates that are scored for each exchange.
    """

    def __init__(self, surrogate: KernelSurrogate, sites: NDArray[np.int64], n_scored: int) -> None:
        super().__init__(n_scored)
        self.surrogate, self.sites, self.selected = surrogate, sites, []

    def score(self, selected: list[int]) -> float:
        """Return the unexplained variance for the selected sites."""
        return self.surrogate(self.sites[selected])

    def gains(self) -> NDArray[np.float64]:
        """Estimate the gain of each further candidate."""
        return self._gains(self.selected)

    def gains_without(self, position: int) -> NDArray[np.float64]:
        """Estimate the gain of each candidate in place of a site."""
        return self._gains(self.selected[:position] + self.selected[position + 1 :])

    def _gains(self, selected: list[int]) -> NDArray[np.float64]:
        gains = self.surrogate.gains(self.sites[selected])[self.sites]
        gains[selected] = -np.inf
        return gains


class KernelExchange(Selector):
    """Exchange algorithm with random restarts for a kernel surrogate of the reconstructor.

    Starting from greedy selection, or from forward selection for a target, each site in turn is exchanged for one of
    the few candidates with the largest estimated gain, if that lowers the error of kernel ridge regression
    (`LocalSearch`). The error is that of a third of the samples, on which the surrogate was not fitted, or the
    leave-one-out error where samples are few. Where the surrogate is not better than a linear one by more than one
    standard error, the initial sites are returned: `Exchange` then has the same optimum and is much faster. With a
    target, the surrogate predicts the indicators of its classes, or its numbers, and the search always runs.

    Parameters
    ----------
    settings
        Fields of `KernelExchangeSettings`, by name.

    References
    ----------
    Fedorov (1972). Theory of Optimal Experiments. Academic Press.

    Examples
    --------
    >>> import keyhole as kh
    >>> causes = np.random.default_rng(0).normal(size=(200, 2))
    >>> wave = 3 * np.cos(causes.sum(axis=1))  # varies most, but does not determine the causes
    >>> samples = kh.read(np.column_stack([wave, *causes.T, wave])).as_scaled()
    >>> sorted(KernelExchange().select(samples, 2, validation=None, run=Run()).sites.tolist())
    [1, 2]
    """

    name: ClassVar[str] = "kernel_exchange"
    assumes_noise: ClassVar[bool] = True
    takes_sensors: ClassVar[bool] = True
    supervised: ClassVar[bool] = True
    settings_class: ClassVar[type[KernelExchangeSettings]] = KernelExchangeSettings
    options: KernelExchangeSettings

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Select ``k`` sites one after another and improve them by exchanges.

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
        start = _ranker(train).select(train, k, validation=None, run=run).sites
        return self.improve(train, [start], run)

    def improve(self, train: ScaledSamples, starts: Sequence[NDArray[np.int64]], run: Run) -> Selection:
        """Run the local search from each of several sets of sites, then with random restarts from the incumbent.

        Parameters
        ----------
        train
            Scaled samples; with fewer than 60 the first set is returned.
        starts
            Initial sets of sites, numbers of sites.
        run
            Seed, deadline and progress; at the deadline the incumbent is returned.

        Returns
        -------
        Selection
            Ranked sites. ``others`` holds further local optima of nearly the same error. The notes hold the ratio of
            the surrogate's error to that of a linear one (``nonlinearity``), and the numbers of exchanges and restarts.
        """
        if len(train) < self.options.min_samples:
            return Selection(starts[0], notes={"exchanges": 0})
        longest = max(starts, key=len)
        data = FitScoreSplit.from_samples(train, None, len(longest), run, assume_noise=True)
        surrogate = KernelSurrogate.fit(data, longest)
        errors = [surrogate(start) for start in starts]
        best_start = starts[int(np.argmin(errors))]
        linear, nonlinear = surrogate.linear_error(best_start), surrogate.error(best_start)
        nonlinearity = min(errors) / max(linear.value, np.finfo(float).tiny)
        if train.target is None and not is_better(nonlinear, linear, is_series=train.is_series):
            return Selection(best_start, notes={"nonlinearity": nonlinearity, "exchanges": 0})
        # Not for time series, whose neighbouring samples are nearly identical.
        if not train.is_series and len(train) <= self.options.max_leave_one_out_samples:
            data = FitScoreSplit.from_samples(train, train, len(longest), run, assume_noise=True)
            surrogate = LeaveOneOutSurrogate(data, surrogate.parameters)
        return self._search(surrogate, train, starts, run, nonlinearity)

    def _search(
        self, surrogate: KernelSurrogate, train: ScaledSamples, starts: Sequence[NDArray[np.int64]], run: Run,
        nonlinearity: float,
    ) -> Selection:  # fmt: skip
        observable = np.flatnonzero(train.observable)
        objective = SurrogateObjective(surrogate, observable, self.options.n_candidates)
        search = LocalSearch(self.options, run, "exchange sites")
        states = []
        for start in starts:
            candidates = FeasibleCandidates(train, observable, len(start), exact=True)
            last_first = np.searchsorted(observable, start[::-1])  # the last of a ranking are the easiest to improve
            states.append(SearchState(objective.copy(), candidates, last_first))
        best = search.search(states, self.options.n_restarts)
        optima = [best.selected, *search.others(self.options.close_optima, self.options.n_others)]
        ranker = _ranker(train)
        sites, *others = (rank_sites(train, observable[optimum], run, selector=ranker) for optimum in optima)
        n_restarts = len(search.history) - len(starts)
        notes = {"nonlinearity": nonlinearity, "exchanges": search.n_exchanges, "restarts": n_restarts}
        return Selection(sites, search.history, notes, others=others)


def _ranker(train: ScaledSamples) -> Selector:
    """The selector of a start and of the order of the sites that are found: greedy, or forward for the target."""
    return Greedy() if train.target is None else Relevance()
