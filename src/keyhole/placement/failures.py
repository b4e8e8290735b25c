"""Sensor failures: the expected error after the loss of sites, and sites selected to be robust against it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.placement.base import Selection, subsample
from keyhole.placement.candidates import FeasibleCandidates
from keyhole.placement.classical import rank_sites
from keyhole.placement.local_search import LocalSearch, ScoredObjective, SearchState
from keyhole.placement.posterior_covariance import Covariance, PosteriorCovariance, fit_localised_covariance
from keyhole.placement.settings import LocalSearchSettings

__all__ = ["FailureObjective", "Network", "harden_against_failures"]

_MAX_SAMPLES = 10_000
_MAX_SETS = 1500  # of failing sites over which the error is averaged
_N_CANDIDATES = 12  # candidates evaluated for each exchange


class Network:
    """Selected sites of a Gaussian field, and the increase of the error when some of them fail.

    With `C_SS + a I = B^-1` the covariance of the readings, `G = C_tS B` and `Q = G'G`, the sites `S` reduce the
    expected squared error by `tr(C_tS B C_St)`, and the loss of the sites `F` increases it by `tr(B_FF^-1 Q_FF)`.

    Parameters
    ----------
    covariance
        Prior covariance of candidates and targets.
    selected
        Indices of the selected sites among the candidates.

    Attributes
    ----------
    explained
        Reduction of the expected squared error by all sites together.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]).as_scaled()
    >>> network = Network(Covariance.of(samples, np.inf, 1e-3, np.random.default_rng(0)), [1, 3])
    >>> network.losses(np.array([[0], [1]])).argmax()
    np.int64(0)
    """

    def __init__(self, covariance: Covariance, selected: Sequence[int]) -> None:
        self.covariance, self.selected = covariance, list(selected)
        targets = covariance.cross[:, self.selected]
        self.targets, self.channels = targets.reshape(len(targets), -1).astype(np.float64), targets.shape[2]
        own = covariance.between(self.selected).astype(np.float64)
        self.inverse = np.linalg.inv(own + np.diag(covariance.noise[self.selected].ravel()))
        inner = self.targets.T @ self.targets
        self.returned = self.inverse @ inner @ self.inverse
        self.explained = float(np.einsum("ij,ij->", inner, self.inverse))

    @classmethod
    def over_all_cells(cls, covariance: Covariance, selected: Sequence[int], samples: ScaledSamples) -> Self:
        """Create the network with all valid sites as targets, where the covariance may hold a subset of them.

        Parameters
        ----------
        covariance
            Prior covariance.
        selected
            Indices of the selected sites among its candidates.
        samples
            The samples that the covariance was estimated from.

        Returns
        -------
        Network
            With the selected sites as its only candidates.
        """
        return cls(covariance.among(np.array(selected)).with_all_cells(samples), range(len(selected)))

    def losses(self, sets: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the increase of the expected squared error for each set of failing sites.

        Parameters
        ----------
        sets
            ``(n, failures)``, positions of the failing sites among the selected ones.

        Returns
        -------
        ndarray
            ``(n,)``, zero where no site fails.
        """
        if sets.shape[1] == 0:
            return np.zeros(len(sets))
        columns = (sets[:, :, np.newaxis] * self.channels + np.arange(self.channels)).reshape(len(sets), -1)
        index = columns[:, :, np.newaxis], columns[:, np.newaxis]
        solved = np.linalg.solve(self.inverse[index], self.returned[index])
        return np.asarray(np.trace(solved, axis1=1, axis2=2))

    def loss(self, sites: NDArray[np.int64]) -> float:
        """Return the increase of the expected squared error if some sites fail together.

        Parameters
        ----------
        sites
            Their positions among the selected ones.
        """
        return float(self.losses(sites[np.newaxis])[0])


class FailureObjective(ScoredObjective, PosteriorCovariance):
    """Expected squared error averaged over sets of failing sites; exchanges are proposed by the gains without failures.

    Parameters
    ----------
    covariance
        Prior covariance of candidates and targets.
    sets
        ``(n, failures)``, positions of the failing sites among the selected ones.
    n_scored
        Candidates that are scored for each exchange.
    """

    def __init__(self, covariance: Covariance, sets: NDArray[np.int64], n_scored: int) -> None:
        ScoredObjective.__init__(self, n_scored)
        PosteriorCovariance.__init__(self, covariance)
        self.sets = sets

    def score(self, selected: list[int]) -> float:
        """Return the mean error of the selected sites."""
        return _mean_error(Network(self.covariance, selected), self.sets)


def harden_against_failures(found: Selection, train: ScaledSamples, failures: int, run: Run) -> Selection:
    """Exchange sites until the mean error under the failure of ``failures`` of them is smallest.

    A `LocalSearch` as in `Exchange`, with another objective: the expected squared error averaged over all sets of
    failing sites (or 1500 random ones). Constraints are kept. The outcome is evaluated over all valid sites and used
    only if it is better than the initial sites.

    Parameters
    ----------
    found
        The selection to improve.
    train
        Scaled samples; at most 10000 of them are used.
    failures
        Number of sites that fail together.
    run
        Seed, deadline and progress.

    Returns
    -------
    Selection
        Ranked sites. The notes hold the unexplained variance before and after (``unexplained_before``,
        ``unexplained_after``), the set whose failure costs most (``worst``) and the unexplained variance without it
        (``unexplained_without_worst``).

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 2)) @ [[1, 1, 1, 0], [0, 1, 0, 1]]).as_scaled()
    >>> hardened = harden_against_failures(Selection(np.array([0, 3])), samples, 1, Run())
    >>> hardened.notes["unexplained_after"] <= hardened.notes["unexplained_before"]
    True
    """
    subset = subsample(train, _MAX_SAMPLES, run, "samples to harden by")
    covariance, _ = fit_localised_covariance(subset, found.sites, run, "harden")
    initial = np.searchsorted(covariance.candidates, found.sites).tolist()
    sets = failure_sets(len(initial), failures, run)
    candidates = FeasibleCandidates(train, covariance.candidates, len(initial), exact=True)
    state = SearchState(FailureObjective(covariance, sets, _N_CANDIDATES), candidates, initial)
    best = LocalSearch(LocalSearchSettings(), run, "harden sites").search([state], n_restarts=0)
    before, after = (Network.over_all_cells(covariance, sites, subset) for sites in (initial, best.selected))
    improved = _mean_error(after, sets) < _mean_error(before, sets)
    selected, network = (best.selected, after) if improved else (initial, before)
    losses, prior_variance = network.losses(sets), _prior_variance(network.covariance)
    worst = sets[int(losses.argmax())]
    notes = {
        "failures": failures,
        "unexplained_before": _mean_error(before, sets) / prior_variance,
        "unexplained_after": _mean_error(network, sets) / prior_variance,
        "worst": train.positions(covariance.candidates[np.array(selected)[worst]]).tolist(),
        "unexplained_without_worst": (prior_variance - network.explained + float(losses.max())) / prior_variance,
    }
    sites = rank_sites(train, covariance.candidates[selected], run)
    return Selection(sites, found.history, {**found.notes, **notes}, None, found.distribution)


def failure_sets(count: int, failures: int, run: Run) -> NDArray[np.int64]:
    """Return sets of sites that fail together: all sets of that size, or 1500 random ones where there are more.

    Parameters
    ----------
    count
        Number of selected sites.
    failures
        Number of sites that fail together.
    run
        Its seed determines the random sets.

    Returns
    -------
    ndarray
        ``(n, failures)``, positions among the selected sites.

    Examples
    --------
    >>> failure_sets(3, 2, Run()).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    if comb(count, failures) <= _MAX_SETS:
        return np.array(list(combinations(range(count), failures)), np.int64)
    rng = run.generator("sites that fail")
    return np.stack([rng.choice(count, failures, replace=False) for _ in range(_MAX_SETS)]).astype(np.int64)


def _mean_error(network: Network, sets: NDArray[np.int64]) -> float:
    """Expected squared error, averaged over the sets of failing sites."""
    return _prior_variance(network.covariance) - network.explained + float(network.losses(sets).mean())


def _prior_variance(covariance: Covariance) -> float:
    """Sum of the targets' prior variances."""
    return float(np.square(covariance.targets, dtype=np.float64).sum())
