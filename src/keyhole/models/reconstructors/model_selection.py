"""Model selection: the reconstructor with the smallest validation error, where none was named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.processes import processes
from keyhole.core.run import Run
from keyhole.core.settings import parse
from keyhole.core.trials import Trial, Trials
from keyhole.data.graph_metric import GraphMetric
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.reconstructors.base import Reconstructor
from keyhole.models.reconstructors.dense_conv import DenseConv
from keyhole.models.reconstructors.ensemble import Ensemble
from keyhole.models.reconstructors.graph_ridge import GraphRidge
from keyhole.models.reconstructors.kernel_ridge import Kernel
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.reconstructors.neural import Dense, NetworkReconstructor
from keyhole.models.reconstructors.optimal_interpolation import OptimalInterpolation
from keyhole.models.reconstructors.residual import Residual
from keyhole.models.reconstructors.ridge import Ridge
from keyhole.models.reconstructors.short_trainings import choose_n_frequencies
from keyhole.models.settings import ModelSelectionSettings
from keyhole.training.settings import TrainSettings

Kind = TypeVar("Kind", bound=Reconstructor)

__all__ = ["ModelSelection", "convolutional_after", "fit_best", "fit_linear", "squared_error"]


def fit_best(
    train: ScaledSamples, sites: NDArray[np.int64],
    *, validation: ScaledSamples, run: Run, settings: Mapping[str, Any] | None = None,
) -> Reconstructor:  # fmt: skip
    """Fit closed forms, then networks while time remains; return the reconstructor with the smallest validation error.

    Ridge, optimal interpolation and kernel ridge are fitted first; networks are then trained on the residuals of the
    better linear reconstruction. A closed form is preferred unless a network's error is at least 2 % lower.

    Parameters
    ----------
    train, validation
        Scaled samples to fit on and to choose by.
    sites
        Numbers of the K sites, ``(K,)``.
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
    >>> samples = kh.read((rng.normal(size=(60, 2)) @ rng.normal(size=(2, 9))).astype(np.float32)).as_scaled()  # linear
    >>> no_time = Run(deadline=0.0)
    >>> [row["by"] for row in fit_best(samples, np.array([1, 5]), validation=samples, run=no_time).tried]
    ['ridge', 'kernel']
    """
    if train.is_large:
        return fit_linear(train, sites, validation=validation, run=run)
    chosen = parse(ModelSelectionSettings, settings or {})
    selection = ModelSelection(train, sites, validation, run, chosen)
    linear, kernel = selection.fit(fit_linear), selection.fit(Kernel().fit)
    if run.seconds_left() > 0 and train.reading_channels == train.channels:
        selection.fit_networks(linear)
    best = selection.trials.best_unless_close([linear, kernel], selection.ratio).result
    best.tried = selection.trials.history
    return best


class ModelSelection:
    """Candidates for the reconstruction from some sites: their validation errors, and which to train next.

    Parameters
    ----------
    train, validation
        Scaled samples to fit on and to choose by.
    sites
        Numbers of the K sites, ``(K,)``.
    run
        Seed and deadline.
    settings
        Thresholds.
    """

    def __init__(
        self, train: ScaledSamples, sites: NDArray[np.int64], validation: ScaledSamples, run: Run,
        settings: ModelSelectionSettings,
    ) -> None:  # fmt: skip
        self.train, self.sites, self.validation, self.run, self.settings = train, sites, validation, run, settings
        self.has_grid = len(train.sites.shape) == 2
        self.ratio = 1 - settings.min_improvement
        total = total_variance(validation)
        self.trials = Trials[Reconstructor]("fit", lambda fitted: squared_error(fitted, sites, validation) / total)

    def fit(self, fit_one: Callable[..., Kind], share: float = 1.0) -> Trial[Kind]:
        """Fit a candidate in a share of the remaining time, and record its error on validation (unexplained variance).

        Parameters
        ----------
        fit_one
            Its method ``fit``, or a function that takes the same arguments.
        share
            Share of the time until the deadline.
        """
        run = self.run.share(share)
        fit = partial(fit_one, self.train, self.sites, validation=self.validation, run=run)
        return self.trials.run(fit, _description)

    def fit_networks(self, linear: Trial[LinearReconstructor]) -> None:
        """Train networks on the residuals of the linear reconstruction, as many as promise to pay in the time.

        The dense network is first. A convolutional one follows on two-dimensional grids if the dense one paid or
        samples are many, but not where time is too short for it and the dense network has not converged. Remaining time
        goes to further members of an ensemble of the best network, as long as the ensemble improves. Where only dense
        networks are trained, the time is shared among as many as can be trained well in it.

        Parameters
        ----------
        linear
            The fitted linear reconstruction.
        """
        short_of_time, parts = self.is_short_of_time(), (self.train, self.sites, self.validation)
        n_frequencies = choose_n_frequencies(linear.result, *parts, self.run)
        share = 0.15 if self.has_grid and not short_of_time else 1 / self.members_in_time(n_frequencies)
        residual = Residual("dense", n_frequencies=n_frequencies, train=self.settings.train).upon(linear.result)
        dense = self.fit(residual.fit, share)
        promising = dense.error < self.ratio * linear.error or len(self.train) >= self.settings.many_samples
        if self.has_grid and promising and not (short_of_time and residual.network.unfinished):
            self.fit(convolutional_after(residual, self.settings.train).fit)
        if self.run.deadline is not None and self.trials.best.error < self.ratio * linear.error:
            self._grow_ensemble(self.trials.best)

    def is_short_of_time(self) -> bool:
        """Return whether the remaining time is too short for a convolutional network; never with several processes."""
        if self.run.deadline is None or not self.has_grid or processes().count > 1:
            return False
        needed = self._seconds(
            DenseConv(), self.settings.min_epochs_convolutional, self.settings.min_steps_convolutional
        )
        return self.run.seconds_left() < needed

    def members_in_time(self, n_frequencies: int = 0) -> int:
        """Return the number of dense networks that can be trained in the remaining time; 1 with several processes.

        Parameters
        ----------
        n_frequencies
            Of the networks' periodic embedding.
        """
        if self.run.deadline is None or processes().count > 1:
            return 1
        dense, settings = Dense(n_frequencies=n_frequencies), self.settings
        needed = self._seconds(dense, settings.epochs_per_member, settings.min_steps)
        return int(min(settings.max_members, max(1, self.run.seconds_left() // needed)))

    def _seconds(self, network: NetworkReconstructor, epochs: int, steps: int) -> float:
        """Time that at least so many epochs and steps of a network take."""
        steps_as_epochs = steps * network.pace(len(self.train), limited=True).batch_size / len(self.train)
        return max(epochs, steps_as_epochs) * network.seconds_per_epoch(self.train, self.sites, self.run)

    def _grow_ensemble(self, best: Trial[Reconstructor]) -> None:
        """Train further members of the best network while the deadline allows and the ensemble's error falls."""
        if not isinstance(best.result, Residual):
            return
        ensemble, settings = Ensemble.of([best.result]), self.settings
        while (missing := settings.max_members - len(ensemble.members)) > 0:
            in_time = self.run.seconds_left() / best.seconds
            if in_time <= settings.min_time_share:
                return
            grown = self.fit(ensemble.with_another, 1 / min(missing, max(1, round(in_time))))
            if self.trials.best is not grown:
                return
            ensemble = grown.result


def convolutional_after(dense: Residual, train: TrainSettings | None) -> Residual:
    """Return the convolutional network to train next, initialised with the dense one if the deadline stopped that.

    A dense network that did not converge is a good start, since its steps are cheaper: 2.2 to 2.6 % lower error on
    MNIST. A converged one is not: a fresh start had 1.5 to 10 % lower error with few samples.

    Parameters
    ----------
    dense
        The fitted dense network.
    train
        Training settings of the convolutional network; None: by the number of samples.
    """
    residual = Residual("dense_conv", n_frequencies=dense.n_frequencies, train=train).upon(dense.linear)
    if dense.network.unfinished and isinstance(dense.network, Dense):
        residual.network = DenseConv(train=train).starting_with(dense.network)
    return residual


def fit_linear(
    train: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run
) -> LinearReconstructor:
    """Fit ridge, optimal interpolation and, on a graph, graph ridge; return that with the smallest validation error.

    Parameters
    ----------
    train, sites, validation, run
        As `Reconstructor.fit` takes them.
    """
    kinds: list[type[LinearReconstructor]] = [Ridge, OptimalInterpolation]
    if isinstance(train.sites.metric, GraphMetric):
        kinds.append(GraphRidge)
    linear = [kind().fit(train, sites, validation=validation, run=run) for kind in kinds]
    return min(linear, key=lambda fitted: squared_error(fitted, sites, validation))


def squared_error(fitted: Reconstructor, sites: NDArray[np.int64], scorer: ScaledSamples) -> float:
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
    error = 0.0
    for _, panel in scorer.panels():
        reconstructed = fitted.reconstruct(panel.readings(sites), panel.covariates)
        error += float(np.nansum(np.square(panel.known_targets - reconstructed, dtype=np.float64)))
    return error


def total_variance(samples: ScaledSamples) -> float:
    """Sum of squares of all targets that are not missing; positive."""
    squares = (np.nansum(np.square(panel.known_targets, dtype=np.float64)) for _, panel in samples.panels())
    return max(float(sum(squares)), np.finfo(float).tiny)


def _description(fitted: Reconstructor) -> str:
    """Name of a reconstructor with its parts, for the records of candidates."""
    if isinstance(fitted, Ensemble):
        return f"{len(fitted.members)} of {_description(fitted.members[0])}"
    if isinstance(fitted, Residual):
        embedding = " with periodic embedding" if fitted.n_frequencies else ""
        return f"{fitted.linear.name} + {fitted.network.name}{embedding}"
    return fitted.name
