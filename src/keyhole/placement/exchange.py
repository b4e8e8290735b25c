"""Exchange algorithm for A-optimal design under a localised covariance."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.data.samples import Samples
from keyhole.placement.base import Selection, Selector, complete, subsample
from keyhole.placement.classical import Greedy
from keyhole.placement.failures import Network
from keyhole.placement.candidates import FeasibleCandidates
from keyhole.placement.posterior_covariance import Covariance, PosteriorCovariance, fit_localised_covariance

__all__ = ["Exchange"]

_MAX_SAMPLES = 10_000
_MIN_IMPROVEMENT = 1e-4  # relative improvement of a site's gain below which an exchange is not made
_RELATIVE_FLOOR = 1e-10  # of the largest initial gain, below which a candidate adds nothing
_MAX_RESTARTS, _MAX_WORK = 8, 2_000_000_000
_N_BEST = 10  # candidates among which a random restart draws


class Exchange(Selector):
    """Exchange algorithm (Fedorov, 1972) with random restarts, for the trace of the posterior covariance.

    The objective is the expected squared error of optimal interpolation over the whole grid (A-optimal design). Its
    covariance is localised; length scale and noise are fitted to the sites of greedy selection by cross-validation over
    blocks of samples. Sites are selected greedily under it. Then each site in turn is removed and the best of all
    candidates put in its place, until no exchange improves the objective; one exchange costs as much as one greedy
    step, whatever K is. Random restarts follow: a fifth of the incumbent's sites is perturbed and the local search
    repeated, as often as the size of the data allows. The outcome is evaluated over all valid sites and compared with
    the initial sites, which are kept if they are better (as they may be when a time limit ends the search).

    Prefer `Greedy` where an answer is needed at once or rankings must be nested, and `KernelExchange` where
    reconstruction is clearly non-linear.

    References
    ----------
    Fedorov (1972). Theory of Optimal Experiments. Academic Press.

    Examples
    --------
    >>> import numpy as np
    >>> import keyhole as kh
    >>> from keyhole.core.run import Run
    >>> modes = np.cos(np.pi * np.arange(4)[:, None] * np.linspace(0, 1, 12))
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(80, 4)) @ modes)
    >>> len(Exchange().select(samples, 3, validation=None, run=Run()).sites)
    3
    """

    name: ClassVar[str] = "exchange"

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
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
            Ranked sites; the notes hold the length scale, the noise and the number of restarts (``hops``).
        """
        subset = subsample(train, _MAX_SAMPLES, run, "samples to exchange by")
        start = Greedy().select(subset, k, validation=None, run=run).sites
        covariance, notes = fit_localised_covariance(subset, start, run, "exchange")
        state = _ExchangeState(PosteriorCovariance(covariance), FeasibleCandidates(train, covariance.candidates, k))
        if (
            not state.add_greedily() or not state.candidates.full
        ):  # no variance, or fewer than K feasible sites; the greedy sites were completed
            state = _ExchangeState.at(
                start, PosteriorCovariance(covariance), FeasibleCandidates(train, covariance.candidates, k)
            )
        state.exchange(run)
        n_restarts = _n_restarts(covariance, k)
        selected = _random_restarts(state, n_restarts, run).posterior.selected
        return _selection(
            _better_of(selected, start, covariance, subset), covariance, train, k, {"hops": n_restarts, **notes}
        )

    def improve(self, train: Samples, sites: NDArray[np.int64], run: Run) -> Selection:
        """Improve given sites by exchanges, without random restarts: a fraction of the time of `select`.

        Parameters
        ----------
        train
            Scaled samples.
        sites
            Initial sites, flat grid indices.
        run
            Seed, deadline and progress.

        Returns
        -------
        Selection
            As many ranked sites.
        """
        subset = subsample(train, _MAX_SAMPLES, run, "samples to exchange by")
        covariance, notes = fit_localised_covariance(subset, sites, run, "exchange")
        state = _ExchangeState.at(
            sites, PosteriorCovariance(covariance), FeasibleCandidates(train, covariance.candidates, len(sites))
        )
        state.exchange(run)
        selected = _better_of(state.posterior.selected, sites, covariance, subset)
        return _selection(selected, covariance, train, len(sites), notes)


def _better_of(selected: list[int], start: NDArray[np.int64], covariance: Covariance, samples: Samples) -> list[int]:
    """Return the better of the search's outcome and its initial sites, by the error over all valid sites.

    A search that was interrupted may not have caught up with the initial sites, and one that had little time used a
    subset of the targets, for which sites close to them look better than they are.
    """
    initial = [int(candidate) for candidate in np.searchsorted(covariance.candidates, start)]
    if set(selected) == set(initial):
        return selected
    explained = [
        Network.over_all_cells(covariance, candidates, samples).explained for candidates in (selected, initial)
    ]
    return selected if explained[0] >= explained[1] else initial


def _selection(
    candidates: list[int], covariance: Covariance, train: Samples, k: int, notes: dict[str, float]
) -> Selection:
    """Rank the sites, and complete them where constraints left fewer than ``k``."""
    ranked = _rank_greedily(covariance, candidates)
    return Selection(complete(covariance.candidates[ranked], k, train), notes=notes)


class _ExchangeState:
    """State of the local search: posterior covariance and feasible candidates, kept in agreement."""

    def __init__(self, posterior: PosteriorCovariance, candidates: FeasibleCandidates) -> None:
        self.posterior, self.candidates = posterior, candidates

    @classmethod
    def at(
        cls, sites: NDArray[np.int64], posterior: PosteriorCovariance, candidates: FeasibleCandidates
    ) -> _ExchangeState:
        """Create the state in which the given sites are selected."""
        state = cls(posterior, candidates)
        for candidate in np.searchsorted(candidates.candidates, sites):
            state.candidates.add(int(candidate))
            state.posterior.add(int(candidate))
        return state

    def copy(self) -> _ExchangeState:
        """Return an independent copy."""
        return _ExchangeState(self.posterior.copy(), self.candidates.copy())

    def add_greedily(self) -> bool:
        """Add candidates greedily until none has a gain; return whether any was added."""
        initial = len(self.posterior.selected)
        floor = _RELATIVE_FLOOR * float(np.abs(self.posterior.gains()[self.candidates.mask]).max(initial=0.0))
        while (best := self.candidates.add_best(self.posterior.gains(), floor)) is not None:
            self.posterior.add(best)
        return len(self.posterior.selected) > initial

    def exchange(self, run: Run) -> None:
        """Exchange sites in turn until no exchange improves the objective and no further site can be paid for."""
        n_exchanges, n_failed = 0, 0
        while n_failed < len(self.posterior.selected) and run.seconds_left() > 0:
            site, gains = self.posterior.selected[0], self.gains_without(0)
            best = int(gains.argmax())
            improvement = gains[best] - gains[site] if gains[best] > gains[site] else 0.0
            better = improvement > _MIN_IMPROVEMENT * abs(gains[best])
            self.replace(0, best if better else site)
            n_exchanges, n_failed = (
                (n_exchanges + 1, 0) if better or self._added_within_cost() else (n_exchanges, n_failed + 1)
            )
            run.tell(Event("exchange sites", n_failed, len(self.posterior.selected), {"swaps": float(n_exchanges)}))

    def gains_without(self, position: int) -> NDArray[np.float64]:
        """Gain of each candidate in place of the site at ``position``, minus infinity where infeasible."""
        site = self.posterior.selected[position]
        with self.candidates.without(site):
            return np.where(self.candidates.mask, self.posterior.gains_without(position), -np.inf)

    def allows(self, position: int, candidate: int) -> bool:
        """Whether a candidate is feasible in place of the site at ``position``."""
        with self.candidates.without(self.posterior.selected[position]):
            return self.candidates.is_feasible(candidate)

    def replace(self, position: int, candidate: int) -> None:
        """Exchange the site at ``position`` for a candidate, which becomes the last."""
        self.candidates.replace(self.posterior.selected[position], candidate)
        self.posterior.replace(position, candidate)

    def force_in(self, candidate: int) -> None:
        """Add a candidate, and remove the sites that conflict with it or exceed the size of the selection."""
        for other in self.candidates.conflicting(candidate):
            self._drop(self.posterior.selected.index(other))
        while self.posterior.selected and not self.candidates.is_feasible(candidate):
            self._drop(0)
        self.candidates.add(candidate)
        self.posterior.add(candidate)
        self.add_greedily()

    def _drop(self, position: int) -> None:
        self.candidates.remove(self.posterior.selected[position])
        self.posterior.drop(position)

    def _added_within_cost(self) -> bool:
        return self.candidates.costs is not None and self.add_greedily()


def _n_restarts(covariance: Covariance, k: int) -> int:
    """Number of random restarts: fewer where an exchange is expensive."""
    return int(min(_MAX_RESTARTS, _MAX_WORK // (covariance.cross.size * k)))


def _random_restarts(best: _ExchangeState, n_restarts: int, run: Run) -> _ExchangeState:
    """Perturb the incumbent at random, repeat the local search, and keep the better of both."""
    rng = run.generator("hops of exchanges")
    count = len(best.posterior.selected)
    for _ in range(n_restarts if best.posterior.count > count > 1 else 0):
        if run.seconds_left() <= 0:
            break
        trial = best.copy()
        for _ in range(max(2, count // 5)):
            _perturb_one(trial, rng)
        _make_feasible(trial, rng)
        trial.exchange(run)
        if trial.candidates.full and trial.posterior.explained() > best.posterior.explained():
            best = trial
    return best


def _make_feasible(trial: _ExchangeState, rng: np.random.Generator) -> None:
    """Where constraints leave fewer than K sites, add those with the fewest conflicts until there are K."""
    for _ in range(2 * trial.candidates.limit if trial.candidates.costs is None else 0):
        allowed = trial.candidates.least_conflicting()
        if trial.candidates.full or not len(allowed):
            return
        trial.force_in(int(rng.choice(allowed)))


def _perturb_one(trial: _ExchangeState, rng: np.random.Generator) -> None:
    """Move one random site to one of the best candidates; sites that conflict with it are removed."""
    position = int(rng.integers(len(trial.posterior.selected)))
    gains = trial.posterior.gains_without(position)
    best_candidates = np.argsort(-gains, kind="stable")[:_N_BEST]
    allowed = [int(candidate) for candidate in best_candidates if candidate not in trial.posterior.selected]
    if not allowed:
        return
    candidate = int(rng.choice(allowed))
    trial.replace(position, candidate) if trial.allows(position, candidate) else trial.force_in(candidate)


def _rank_greedily(covariance: Covariance, candidates: list[int]) -> NDArray[np.int64]:
    """Order the sites by greedy selection among them."""
    among = PosteriorCovariance(covariance.among(np.array(candidates)))
    while len(among.selected) < len(candidates):
        among.add(int(among.gains().argmax()))
    return np.array(candidates)[among.selected]
