"""Model selection: the simplest reconstructor within one standard error of the best, where none was named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from keyhole.core.processes import processes
from keyhole.core.run import Run
from keyhole.core.settings import parse
from keyhole.data.graph_metric import GraphMetric
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.metrics import Ratio, is_better, simplest
from keyhole.metrics.trials import Trial, Trials
from keyhole.models.blocks_in_turn import BlocksInTurn
from keyhole.models.reconstructors.base import Reconstructor
from keyhole.models.reconstructors.dense_conv import DenseConv
from keyhole.models.reconstructors.ensemble import Ensemble
from keyhole.models.reconstructors.errors import unexplained
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

__all__ = ["ModelSelection", "convolutional_after", "fit_best", "fit_linear"]


def fit_best(
    train: ScaledSamples, sites: NDArray[np.int64],
    *, validation: ScaledSamples, run: Run, settings: Mapping[str, Any] | None = None,
) -> Reconstructor:  # fmt: skip
    """Fit closed forms, then networks while time remains; return the simplest within one standard error of the best.

    Ridge, optimal interpolation, on a graph graph ridge, and kernel ridge are fitted first; networks are then trained
    on the residuals of the chosen linear reconstruction. In this order the first is chosen whose validation error is
    within one standard error of the smallest (`keyhole.metrics.simplest`). With few samples closed forms are compared
    with blocks left out in turn (`BlocksInTurn`), and the one that is chosen with networks on the validation samples.

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
    ['ridge', 'optimal_interpolation', 'kernel']
    """
    if train.is_large:
        return fit_linear(train, sites, validation=validation, run=run)
    chosen = parse(ModelSelectionSettings, settings or {})
    selection = ModelSelection(train, sites, validation, run, chosen)
    linear, closed = selection.fit_closed_forms()
    if run.seconds_left() > 0 and train.reading_channels == train.channels:
        selection.fit_networks(linear)
    best = selection.trials.simplest([closed, *selection.networks]).result
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
        self.trials = Trials[Reconstructor](
            "fit", lambda fitted: unexplained(fitted, sites, validation), is_series=validation.is_series
        )
        self.networks: list[Trial[Reconstructor]] = []

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

    def fit_closed_forms(self) -> tuple[Trial[LinearReconstructor], Trial[Reconstructor]]:
        """Fit all closed forms; return the linear one to build upon, and the one to use if no network is better."""
        kinds: list[type[Reconstructor]] = [*linear_kinds(self.train), Kernel]
        trials = [self.fit(kind().fit) for kind in kinds]
        blocks = BlocksInTurn.of(self.train, self.validation, self.run)
        errors = [trial.ratio for trial in trials]
        if blocks is not None and self.run.seconds_left() > 0:
            errors = [blocks.error(partial(_error_of, kind, self.sites, self.run)) for kind in kinds]
        linear, closed = (trials[simplest(some, is_series=self.train.is_series)] for some in (errors[:-1], errors))
        return cast("Trial[LinearReconstructor]", linear), closed

    def fit_network(self, fit_one: Callable[..., Kind], share: float = 1.0) -> Trial[Kind]:
        """Train a network as `fit` fits any candidate, to be chosen among."""
        trial = self.fit(fit_one, share)
        self.networks.append(cast("Trial[Reconstructor]", trial))
        return trial

    def beats(self, one: Trial[Any], other: Trial[Any]) -> bool:
        """Return whether a candidate is better than another by more than one standard error on validation."""
        return is_better(one.ratio, other.ratio, is_series=self.trials.is_series)

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
        dense = self.fit_network(residual.fit, share)
        promising = self.beats(dense, linear) or len(self.train) >= self.settings.many_samples
        if self.has_grid and promising and not (short_of_time and residual.network.unfinished):
            self.fit_network(convolutional_after(residual, self.settings.train).fit)
        if self.run.deadline is not None and self.beats(self.trials.best, linear):
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
            grown = self.fit_network(ensemble.with_another, 1 / min(missing, max(1, round(in_time))))
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


def linear_kinds(train: ScaledSamples) -> list[type[LinearReconstructor]]:
    """Return the linear reconstructors that suit the samples, the simplest first."""
    on_graph = isinstance(train.sites.metric, GraphMetric)
    return [Ridge, OptimalInterpolation, GraphRidge] if on_graph else [Ridge, OptimalInterpolation]


def fit_linear(
    train: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run
) -> LinearReconstructor:
    """Fit ridge, optimal interpolation and, on a graph, graph ridge; return the simplest of the best.

    It is the first in this order whose validation error is within one standard error of the smallest.

    Parameters
    ----------
    train, sites, validation, run
        As `Reconstructor.fit` takes them.
    """
    linear = [kind().fit(train, sites, validation=validation, run=run) for kind in linear_kinds(train)]
    errors = [unexplained(fitted, sites, validation) for fitted in linear]
    return linear[simplest(errors, is_series=validation.is_series)]


def _error_of(
    kind: type[Reconstructor], sites: NDArray[np.int64], run: Run, train: ScaledSamples, scored: ScaledSamples
) -> Ratio:
    """Unexplained variance of a closed form fitted on some samples and scored on others."""
    return unexplained(kind().fit(train, sites, validation=scored, run=run), sites, scored)


def _description(fitted: Reconstructor) -> str:
    """Name of a reconstructor with its parts, for the records of candidates."""
    if isinstance(fitted, Ensemble):
        return f"{len(fitted.members)} of {_description(fitted.members[0])}"
    if isinstance(fitted, Residual):
        embedding = " with periodic embedding" if fitted.n_frequencies else ""
        return f"{fitted.linear.name} + {fitted.network.name}{embedding}"
    return fitted.name
