"""Exchange algorithm for A-optimal design under a localised covariance."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.placement.base import Selection, Selector, complete, subsample
from keyhole.placement.candidates import FeasibleCandidates
from keyhole.placement.classical import Greedy
from keyhole.placement.failures import Network
from keyhole.placement.local_search import LocalSearch, SearchState
from keyhole.placement.posterior_covariance import Covariance, PosteriorCovariance, fit_localisation
from keyhole.placement.settings import ExchangeSettings
from keyhole.placement.sketch import sketch

__all__ = ["Exchange"]

_MAX_WORK = 2_000_000_000  # numbers in the cross-covariance, times sites, times restarts


class Exchange(Selector):
    """Exchange algorithm (Fedorov, 1972) with random restarts, for the trace of the posterior covariance.

    The objective is the expected squared error of optimal interpolation over the whole grid (A-optimal design). Its
    covariance is localised; length scale and noise are fitted to the sites of greedy selection by cross-validation over
    blocks of samples. Sites are selected greedily under it, and improved by `LocalSearch`: one exchange considers all
    candidates and costs as much as one greedy step, whatever K is. There are as many random restarts as the size of the
    data allows. The outcome is evaluated over all valid sites and compared with the initial sites, which are kept if
    they are better (as they may be when a time limit ends the search).

    Prefer `Greedy` where an answer is needed at once or rankings must be nested, and `KernelExchange` where
    reconstruction is clearly non-linear.

    Parameters
    ----------
    settings
        Fields of `ExchangeSettings`, by name.

    References
    ----------
    Fedorov (1972). Theory of Optimal Experiments. Academic Press.

    Examples
    --------
    >>> import keyhole as kh
    >>> modes = np.cos(np.pi * np.arange(4)[:, None] * np.linspace(0, 1, 12))
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(80, 4)) @ modes).as_scaled()
    >>> len(Exchange(n_restarts=2).select(samples, 3, validation=None, run=Run()).sites)
    3
    """

    name: ClassVar[str] = "exchange"
    quick: ClassVar[bool] = True
    assumes_noise: ClassVar[bool] = True
    takes_sensors: ClassVar[bool] = True
    any_size: ClassVar[bool] = True
    settings_class: ClassVar[type[ExchangeSettings]] = ExchangeSettings
    options: ExchangeSettings

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Select ``k`` sites greedily and improve them by exchanges.

        Parameters
        ----------
        train
            Scaled samples; at most 10000 of them are used.
        k
            Number of sites.
        validation
            Not used.
        run
            Seed, deadline and progress; at the deadline the incumbent is returned.

        Returns
        -------
        Selection
            Ranked sites; the notes hold the length scale, the noise and the numbers of exchanges and restarts.
        """
        subset = self._subset(train, k, run)
        start = Greedy().select(train if train.is_large else subset, k, validation=None, run=run).sites
        covariance, notes = self._covariance(train, subset, start, run)
        state = _state(covariance, train, k)
        # No variance, or fewer than K feasible sites: the greedy sites were completed.
        if not state.add_greedily() or not state.candidates.full:
            state = _state(covariance, train, k, start)
        n_restarts = int(min(self.options.n_restarts, _MAX_WORK // (covariance.cross.size * k)))
        search = LocalSearch(self.options, run, "exchange sites")
        best = search.search([state], n_restarts)
        selected = _better_of(best.selected, start, covariance, subset)
        counts = {"exchanges": search.n_exchanges, "restarts": n_restarts}
        return _selection(selected, covariance, train, k, counts | notes)

    def in_turn(self) -> Exchange:
        """Return the same without restarts, each of which takes as long as the rest."""
        return Exchange(**{**self.settings(), "n_restarts": 0})

    def improve(self, train: ScaledSamples, sites: NDArray[np.int64], run: Run) -> Selection:
        """Improve given sites by exchanges, without random restarts: a fraction of the time of `select`.

        Parameters
        ----------
        train
            Scaled samples.
        sites
            Initial sites, numbers of sites.
        run
            Seed, deadline and progress.

        Returns
        -------
        Selection
            As many ranked sites.
        """
        subset = self._subset(train, len(sites), run)
        covariance, notes = self._covariance(train, subset, sites, run)
        search = LocalSearch(self.options, run, "exchange sites")
        best = search.search([_state(covariance, train, len(sites), sites)], n_restarts=0)
        selected = _better_of(best.selected, sites, covariance, subset)
        return _selection(selected, covariance, train, len(sites), {"exchanges": search.n_exchanges, **notes})

    def _subset(self, train: ScaledSamples, k: int, run: Run) -> ScaledSamples:
        """Samples in memory that the covariance is estimated from: some of them, or a few that stand for large ones."""
        if train.is_large:
            return sketch(train, Greedy.components_for(k))
        return subsample(train, self.options.max_samples, run, "samples to exchange by")

    def _covariance(
        self, train: ScaledSamples, subset: ScaledSamples, sites: NDArray[np.int64], run: Run
    ) -> tuple[Covariance, dict[str, float]]:
        """The localised covariance, tuned to sites."""
        tuned, numbers = subset, sites
        if train.is_large:
            among = np.union1d(train.probe, sites)
            tuned, numbers = train.at(among), np.searchsorted(among, sites)
        parameters = fit_localisation(tuned, numbers, run)
        rng = run.generator("cells to exchange by")
        covariance = Covariance.of(
            subset, **parameters, rng=rng, seconds=run.seconds_left(), limits=self.options.limits
        )
        return covariance, parameters


def _state(covariance: Covariance, train: ScaledSamples, k: int, sites: NDArray[np.int64] | None = None) -> SearchState:
    """Create the state in which the given sites are selected, if any."""
    candidates = FeasibleCandidates(train, covariance.candidates, k)
    selected = np.searchsorted(covariance.candidates, [] if sites is None else sites)
    return SearchState(PosteriorCovariance(covariance), candidates, selected)


def _better_of(
    selected: list[int], start: NDArray[np.int64], covariance: Covariance, samples: ScaledSamples
) -> list[int]:
    """Return the better of the search's outcome and its initial sites, by the error over all valid sites.

    A search that was interrupted may not have caught up with the initial sites, and one that had little time used a
    subset of the targets, for which sites close to them look better than they are.
    """
    initial = np.searchsorted(covariance.candidates, start).tolist()
    if set(selected) == set(initial):
        return selected
    explained = [Network.over_all_cells(covariance, sites, samples).explained for sites in (selected, initial)]
    return selected if explained[0] >= explained[1] else initial


def _selection(
    selected: list[int], covariance: Covariance, train: ScaledSamples, k: int, notes: dict[str, float]
) -> Selection:
    """Rank the sites greedily among themselves, and complete them where constraints left fewer than ``k``."""
    among = PosteriorCovariance(covariance.among(np.array(selected)))
    while len(among.selected) < len(selected):
        among.add(int(among.gains().argmax()))
    ranked = covariance.candidates[np.array(selected)[among.selected]]
    return Selection(complete(ranked, k, train), notes=notes)
