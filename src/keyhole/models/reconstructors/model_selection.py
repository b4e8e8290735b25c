"""Model selection: the reconstructor with the smallest validation error, where none was named."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.processes import processes
from keyhole.core.run import Run
from keyhole.core.settings import parse
from keyhole.data.samples import Samples
from keyhole.models.reconstructors.base import Reconstructor
from keyhole.models.reconstructors.dense_conv import DenseConv
from keyhole.models.reconstructors.ensemble import Ensemble
from keyhole.models.reconstructors.kernel_ridge import Kernel
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.reconstructors.neural import Dense, NetworkReconstructor
from keyhole.models.reconstructors.optimal_interpolation import OptimalInterpolation
from keyhole.models.reconstructors.residual import Residual
from keyhole.models.reconstructors.ridge import Ridge
from keyhole.models.reconstructors.short_trainings import choose_n_frequencies
from keyhole.models.settings import ModelSelectionSettings

Kind = TypeVar("Kind", bound=Reconstructor)

__all__ = ["fit_best", "fit_linear", "is_short_of_time", "members_in_time", "network_after", "squared_error"]


class _Parts(TypedDict):
    """What `Reconstructor.fit` takes, without the run."""

    train: Samples
    sites: NDArray[np.int64]
    validation: Samples


def fit_best(
    train: Samples,
    sites: NDArray[np.int64],
    *,
    validation: Samples,
    run: Run,
    settings: Mapping[str, Any] | None = None,
) -> Reconstructor:
    """Fit closed forms, then networks while time remains; return the reconstructor with the smallest validation error.

    Ridge, optimal interpolation and kernel ridge are fitted first; networks are then trained on the residuals of the
    better linear reconstruction. A closed form is preferred unless a network's error is at least 2 % lower.

    Parameters
    ----------
    train, validation
        Scaled samples to fit on and to choose by.
    sites
        Flat grid indices of the K sites, ``(K,)``.
    run
        Seed and deadline. Without a deadline one network of each kind is trained and no ensemble.
    settings
        Fields of `ModelSelectionSettings`, by name.

    Returns
    -------
    Reconstructor
        The chosen one; its ``tried`` has a record for each candidate.

    Examples
    --------
    >>> import keyhole as kh
    >>> rng = np.random.default_rng(0)
    >>> samples = kh.read((rng.normal(size=(60, 2)) @ rng.normal(size=(2, 9))).astype(np.float32))  # linear
    >>> no_time = Run(deadline=0.0)
    >>> [row["by"] for row in fit_best(samples, np.array([1, 5]), validation=samples, run=no_time).tried]
    ['optimal_interpolation', 'kernel']
    """
    chosen = parse(ModelSelectionSettings, dict(settings or {}))
    parts: _Parts = {"train": train, "sites": sites, "validation": validation}
    candidates = _Candidates(sites, validation, chosen.min_improvement)
    linear = candidates.fit(lambda: fit_linear(**parts, run=run))
    kernel = candidates.fit(lambda: Kernel().fit(**parts, run=run))
    if run.seconds_left() > 0:
        _try_networks(candidates, linear, parts, run, chosen)
    return candidates.best(min(linear, kernel, key=candidates.error.__getitem__))


def _try_networks(
    candidates: _Candidates, linear: LinearReconstructor, parts: _Parts, run: Run, settings: ModelSelectionSettings
) -> None:
    """Train networks on the residuals of the linear reconstruction, as many as promise to pay in the time.

    The dense network is first. A convolutional one follows on two-dimensional grids if the dense one paid or samples
    are many, but not where time is too short for it and the dense network has not converged. Remaining time goes to
    further members of an ensemble of the best network, as long as the ensemble improves. Where only dense networks are
    trained, the time is shared among as many as can be trained well in it.
    """
    train, sites = parts["train"], parts["sites"]
    on_grid, short_of_time = len(train.grid.shape) == 2, is_short_of_time(train, sites, run, settings)
    n_frequencies = choose_n_frequencies(linear, parts, run)
    share = 0.15
    if not on_grid or short_of_time:
        share = 1 / members_in_time(train, sites, run, settings, n_frequencies)
    dense = Residual("dense", n_frequencies=n_frequencies, train=settings.train).upon(linear)
    candidates.fit(lambda: dense.fit(**parts, run=run.share(share)))
    pays = candidates.is_better(dense, linear)
    if on_grid and (pays or len(train) >= settings.many_samples) and not (short_of_time and dense.network.unfinished):
        candidates.fit(lambda: network_after(dense, settings).fit(**parts, run=run))
    best = candidates.best_so_far()
    if candidates.is_better(best, linear) and run.deadline is not None and isinstance(best, Residual):
        _grow_ensemble(candidates, best, parts, run, settings)


def is_short_of_time(
    train: Samples, sites: NDArray[np.int64], run: Run, settings: ModelSelectionSettings
) -> bool:  # fmt: skip
    """Return whether the remaining time is too short for a convolutional network; never with several processes.

    Parameters
    ----------
    train, sites, run
        As `Reconstructor.fit` takes them.
    settings
        Minimum epochs and steps.
    """
    if run.deadline is None or len(train.grid.shape) != 2 or processes().count > 1:
        return False
    convolutional = DenseConv()
    steps_as_epochs = _epochs_of(settings.min_steps_convolutional, convolutional, train)
    enough = max(settings.min_epochs_convolutional, steps_as_epochs)
    return run.seconds_left() < enough * convolutional.seconds_per_epoch(train, sites, run)


def members_in_time(
    train: Samples, sites: NDArray[np.int64], run: Run, settings: ModelSelectionSettings, n_frequencies: int = 0
) -> int:
    """Return the number of dense networks that can be trained in the remaining time; 1 with several processes.

    Parameters
    ----------
    train, sites, run
        As `Reconstructor.fit` takes them.
    settings
        Epochs and steps that each network needs, and the largest number of networks.
    n_frequencies
        Of the networks' periodic embedding.
    """
    if run.deadline is None or processes().count > 1:
        return 1
    dense = Dense(n_frequencies=n_frequencies)
    epochs = run.seconds_left() / dense.seconds_per_epoch(train, sites, run)
    needed = max(settings.epochs_per_member, _epochs_of(settings.min_steps, dense, train))
    return int(min(settings.max_members, max(1, epochs // needed)))


def _epochs_of(steps: int, network: NetworkReconstructor, train: Samples) -> float:
    """Number of epochs that so many steps make."""
    return steps * network.pace(len(train), limited=True).batch_size / len(train)


def network_after(dense: Residual, settings: ModelSelectionSettings) -> Residual:
    """Return the convolutional network to train next, initialised with the dense one if the deadline stopped that.

    A dense network that did not converge is a good start, since its steps are cheaper: 2.2 to 2.6 % lower error on
    MNIST. A converged one is not: a fresh start had 1.5 to 10 % lower error with few samples.

    Parameters
    ----------
    dense
        The fitted dense network.
    settings
        Its ``train`` holds for the convolutional network, too.
    """
    residual = Residual("dense_conv", n_frequencies=dense.n_frequencies, train=settings.train).upon(dense.linear)
    if dense.network.unfinished and isinstance(dense.network, Dense):
        residual.network = DenseConv(train=settings.train).starting_with(dense.network)
    return residual


def _grow_ensemble(
    candidates: _Candidates, first: Residual, parts: _Parts, run: Run, settings: ModelSelectionSettings
) -> None:
    """Train further members of the best network while the deadline allows and the ensemble's error falls."""
    ensemble, seconds = Ensemble.of([first]), candidates.seconds[first]
    while len(ensemble.members) < settings.max_members and run.seconds_left() > settings.min_time_share * seconds:
        still = settings.max_members - len(ensemble.members)
        share = 1 / min(still, max(1, round(run.seconds_left() / seconds)))
        ensemble = candidates.fit(partial(ensemble.with_another, **parts, run=run.share(share)))
        if candidates.best_so_far() is not ensemble:
            return


class _Candidates:
    """Validation error (unexplained variance) and fitting time of every candidate."""

    def __init__(self, sites: NDArray[np.int64], validation: Samples, min_improvement: float) -> None:
        self.sites, self.validation, self.min_improvement = sites, validation, min_improvement
        total_variance = float(np.nansum(np.square(validation.truth(), dtype=np.float64)))
        self.total_variance = max(total_variance, np.finfo(float).tiny)
        self.error: dict[Reconstructor, float] = {}
        self.seconds: dict[Reconstructor, float] = {}
        self.rows: list[dict[str, Any]] = []

    def fit(self, fit_one: Callable[[], Kind]) -> Kind:
        """Fit a candidate, score it on validation and record both."""
        started = time.monotonic()
        fitted = fit_one()
        self.seconds[fitted] = time.monotonic() - started
        self.error[fitted] = squared_error(fitted, self.sites, self.validation) / self.total_variance
        errors = {"left": self.error[fitted], "best": min(self.error.values())}
        row = {**errors, "seconds": round(self.seconds[fitted], 2)}
        self.rows.append({"stage": "fit", "by": _description(fitted), **row})
        return fitted

    def is_better(self, one: Reconstructor, other: Reconstructor) -> bool:
        """Return whether the error of one candidate is clearly smaller than that of another."""
        return self.error[one] < (1 - self.min_improvement) * self.error[other]

    def best_so_far(self) -> Reconstructor:
        """Return the candidate with the smallest error."""
        return min(self.error, key=self.error.__getitem__)

    def best(self, closed: Reconstructor) -> Reconstructor:
        """Return the candidate with the smallest error; the best closed form unless another is clearly better."""
        best_so_far = self.best_so_far()
        chosen = best_so_far if self.is_better(best_so_far, closed) else closed
        chosen.tried = self.rows
        return chosen


def fit_linear(train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> LinearReconstructor:
    """Fit ridge and optimal interpolation; return the one with the smaller validation error.

    Parameters
    ----------
    train, sites, validation, run
        As `Reconstructor.fit` takes them.
    """
    linear = [kind().fit(train, sites, validation=validation, run=run) for kind in (Ridge, OptimalInterpolation)]
    return min(linear, key=lambda fitted: squared_error(fitted, sites, validation))


def squared_error(fitted: Reconstructor, sites: NDArray[np.int64], scorer: Samples) -> float:
    """Sum of squared errors of scaled fields over all values that are not missing.

    Parameters
    ----------
    fitted
        A fitted reconstructor.
    sites
        The sites it was fitted to.
    scorer
        Samples to reconstruct.
    """
    reconstructed = fitted.reconstruct(scorer.readings(sites), scorer.covariates)
    packed = reconstructed.reshape(len(scorer), scorer.channels, -1)[:, :, scorer.grid.cells]
    return float(np.nansum(np.square(scorer.truth() - packed, dtype=np.float64)))


def _description(fitted: Reconstructor) -> str:
    """Name of a reconstructor with its parts, for the records of candidates."""
    if isinstance(fitted, Ensemble):
        return f"{len(fitted.members)} of {_description(fitted.members[0])}"
    if isinstance(fitted, Residual):
        embedding = " with periodic embedding" if fitted.n_frequencies else ""
        return f"{fitted.linear.name} + {fitted.network.name}{embedding}"
    return fitted.name
