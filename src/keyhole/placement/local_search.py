"""Local search over sets of sites: exchanges until none improves the objective, then random restarts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.placement.candidates import FeasibleCandidates
from keyhole.placement.settings import LocalSearchSettings

__all__ = ["LocalSearch", "Objective", "ScoredObjective", "SearchState"]

_RELATIVE_FLOOR = 1e-10  # of the largest gain, below which a candidate adds nothing


class Objective(ABC):
    """Error of the selected candidates, and the gains of all others; the oracle of a local search.

    Attributes
    ----------
    selected
        Indices of the selected candidates, in the order of selection.
    """

    selected: list[int]

    @abstractmethod
    def gains(self) -> NDArray[np.float64]:
        """Return the (estimated) reduction of the error by each further candidate, minus infinity if selected."""

    @abstractmethod
    def gains_without(self, position: int) -> NDArray[np.float64]:
        """Return the gains once the site at ``position`` in ``selected`` is removed; that site is a candidate too."""

    @abstractmethod
    def error(self) -> float:
        """Return the error of the selected sites, up to a constant."""

    @abstractmethod
    def best_exchange(self, position: int, gains: NDArray[np.float64]) -> tuple[int, float]:
        """Find the best candidate in place of a site.

        Parameters
        ----------
        position
            Position of the site in ``selected``.
        gains
            Those of `gains_without`, minus infinity for infeasible candidates.

        Returns
        -------
        candidate : int
            The best one, possibly the site itself.
        improvement : float
            Relative improvement of the objective by the exchange.
        """

    def add(self, candidate: int) -> None:
        """Select a candidate."""
        self.selected.append(candidate)

    def drop(self, position: int) -> None:
        """Remove the site at ``position`` in ``selected``."""
        self.selected.pop(position)

    def replace(self, position: int, candidate: int) -> None:
        """Exchange the site at ``position`` for a candidate, or for itself; it becomes the last."""
        self.drop(position)
        self.add(candidate)

    def copy(self) -> Self:
        """Return an independent copy."""
        other = copy(self)
        other.selected = list(self.selected)
        return other


class ScoredObjective(Objective):
    """Objective whose gains are estimates: the most promising candidates are scored by the error itself.

    Parameters
    ----------
    n_scored
        Candidates that are scored for each exchange.
    """

    def __init__(self, n_scored: int) -> None:
        self.n_scored = n_scored
        self._errors: dict[frozenset[int], float] = {}

    @abstractmethod
    def score(self, selected: list[int]) -> float:
        """Return the error of a set of candidates."""

    def error(self) -> float:
        """Return the error of the selected sites."""
        return self._error_of(self.selected)

    def best_exchange(self, position: int, gains: NDArray[np.float64]) -> tuple[int, float]:
        """Score the candidates of the largest gains in place of a site; see `Objective.best_exchange`."""
        site, others = self.selected[position], self.selected[:position] + self.selected[position + 1 :]
        proposals = [candidate for candidate in _largest(gains, self.n_scored) if candidate != site]
        errors = {candidate: self._error_of([*others, candidate]) for candidate in proposals}
        best = min(errors, key=errors.__getitem__, default=site)
        return best, 1 - errors.get(best, self.error()) / max(self.error(), np.finfo(float).tiny)

    def _error_of(self, selected: list[int]) -> float:
        key = frozenset(selected)
        if key not in self._errors:
            self._errors[key] = self.score(selected)
        return self._errors[key]


class SearchState:
    """Selected sites of a search: an objective and the feasible candidates, kept in agreement.

    Parameters
    ----------
    objective
        Error and gains; nothing is selected yet.
    candidates
        The candidates and their constraints.
    selected
        Indices of candidates to select.
    """

    def __init__(self, objective: Objective, candidates: FeasibleCandidates, selected: Iterable[int] = ()) -> None:
        self.objective, self.candidates = objective, candidates
        for candidate in selected:
            self.add(int(candidate))

    @property
    def selected(self) -> list[int]:
        """Indices of the selected candidates."""
        return self.objective.selected

    def copy(self) -> SearchState:
        """Return an independent copy."""
        return SearchState(self.objective.copy(), self.candidates.copy())

    def add(self, candidate: int) -> None:
        """Select a candidate."""
        self.candidates.add(candidate)
        self.objective.add(candidate)

    def drop(self, position: int) -> None:
        """Remove the site at ``position``."""
        self.candidates.remove(self.selected[position])
        self.objective.drop(position)

    def replace(self, position: int, candidate: int) -> None:
        """Exchange the site at ``position`` for a candidate, or for itself; it becomes the last."""
        self.candidates.remove(self.selected[position])
        self.candidates.add(candidate)
        self.objective.replace(position, candidate)

    def add_greedily(self) -> bool:
        """Add the feasible candidate of the largest gain until none has one; return whether any was added."""
        initial, floor = len(self.selected), -np.inf
        while not self.candidates.complete:
            gains = self.objective.gains()
            floor = max(floor, _RELATIVE_FLOOR * float(np.abs(gains[self.candidates.mask]).max(initial=0.0)))
            best = self.candidates.add_best(gains, floor)
            if best is None:
                break
            self.objective.add(best)
        return len(self.selected) > initial

    def exchange(self, min_improvement: float) -> bool:
        """Exchange the first site for a better one, if there is any; it becomes the last. Return whether there was."""
        site = self.selected[0]
        with self.candidates.without(site):
            gains = np.where(self.candidates.mask, self.objective.gains_without(0), -np.inf)
        best, improvement = self.objective.best_exchange(0, gains)
        improved = improvement > min_improvement
        self.replace(0, best if improved else site)
        return improved

    def perturb(self, rng: np.random.Generator, n_sites: int, n_best: int) -> None:
        """Move random sites, one after the other, to one of the best candidates each.

        Sites that conflict with it are removed. Where constraints then leave fewer than K sites, the candidates with
        the fewest conflicts are added until there are K.
        """
        for _ in range(n_sites):
            if not self.selected:
                return
            position = int(rng.integers(len(self.selected)))
            best = _largest(self.objective.gains_without(position), n_best)
            allowed = [candidate for candidate in best if candidate not in self.selected]
            if allowed:
                self._move(position, int(rng.choice(allowed)))
        for _ in range(2 * self.candidates.limit):
            allowed = [] if self.candidates.full else self.candidates.least_conflicting().tolist()
            if not allowed:
                return
            self._force_in(int(rng.choice(allowed)))

    def _move(self, position: int, candidate: int) -> None:
        with self.candidates.without(self.selected[position]):
            feasible = self.candidates.is_feasible(candidate)
        if feasible:
            self.replace(position, candidate)
        else:
            self._force_in(candidate)

    def _force_in(self, candidate: int) -> None:
        """Add a candidate, and remove the sites that conflict with it or exceed the size of the selection."""
        for other in self.candidates.conflicting(candidate):
            self.drop(self.selected.index(other))
        while self.selected and not self.candidates.is_feasible(candidate):
            self.drop(0)
        if self.candidates.is_feasible(candidate):  # its own cost may exceed the limit
            self.add(candidate)
        self.add_greedily()


class LocalSearch:
    """Exchange algorithm (Fedorov, 1972) with random restarts (iterated local search).

    Each site in turn is exchanged for the best candidate in its place, until no exchange improves the objective by a
    minimum. A restart perturbs the incumbent, the best local optimum so far, and repeats the search from there.

    Parameters
    ----------
    settings
        Minimum improvement, and size of the perturbation.
    run
        Seed, deadline and progress; at the deadline the incumbent stands.
    stage
        Name of the search, for the progress.

    Attributes
    ----------
    best
        The incumbent.
    optima
        Error of each local optimum, by its candidates.
    history
        A row for each local optimum.
    n_exchanges
        Number of exchanges made.

    References
    ----------
    Fedorov (1972). Theory of Optimal Experiments. Academic Press.
    Lourenço, Martin & Stützle (2003). Iterated local search. Handbook of Metaheuristics.
    """

    best: SearchState

    def __init__(self, settings: LocalSearchSettings, run: Run, stage: str) -> None:
        self.settings, self.run, self.stage = settings, run, stage
        self.rng = run.generator("hops of exchanges")  # the name is part of the seed: another would change results
        self.error, self.n_exchanges = np.inf, 0
        self.optima: dict[frozenset[int], float] = {}
        self.history: list[dict[str, Any]] = []

    def search(self, starts: Iterable[SearchState], n_restarts: int) -> SearchState:
        """Improve every start, then restart from the incumbent; return the incumbent.

        Parameters
        ----------
        starts
            Initial selections; they are changed.
        n_restarts
            Number of random restarts.
        """
        for start in starts:
            self._descend(start)
        for _ in range(n_restarts):
            if self.run.seconds_left() <= 0 or len(self.best.candidates.candidates) <= len(self.best.selected):
                break
            trial, count = self.best.copy(), len(self.best.selected)
            n_perturbed = min(max(2, int(self.settings.perturbed_share * count)), count)
            trial.perturb(self.rng, n_perturbed, self.settings.n_perturbation_candidates)
            self._descend(trial)
        return self.best

    def others(self, factor: float, count: int) -> list[list[int]]:
        """Return other local optima with an error within a factor of the lowest, the better first."""
        close = [optimum for optimum, error in self.optima.items() if self.error < error < factor * self.error]
        return [sorted(optimum) for optimum in sorted(close, key=self.optima.__getitem__)[:count]]

    def _descend(self, state: SearchState) -> None:
        """Exchange sites until no exchange improves the objective and no further site can be paid for."""
        n_failed = 0
        while n_failed < len(state.selected) and self.run.seconds_left() > 0:
            improved = state.exchange(self.settings.min_improvement)
            if improved or (state.candidates.grows and state.add_greedily()):
                self.n_exchanges, n_failed = self.n_exchanges + 1, 0
            else:
                n_failed += 1
            figures = {"exchanges": float(self.n_exchanges), "restarts": float(len(self.history))}
            self.run.tell(Event(self.stage, n_failed, len(state.selected), figures))
        error = state.objective.error()
        if not self.history or (error < self.error and state.candidates.full):
            self.best, self.error = state, error
        self.optima[frozenset(state.selected)] = error
        self.history.append({"step": float(len(self.history) + 1), "error": error, "best": self.error})


def _largest(gains: NDArray[np.float64], count: int) -> list[int]:
    """Return the candidates with the largest gains, without those of minus infinity."""
    order = np.argsort(-gains, kind="stable")[:count]
    return [int(candidate) for candidate in order if np.isfinite(gains[candidate])]
