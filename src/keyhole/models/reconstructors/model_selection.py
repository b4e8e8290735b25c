"""Model selection: the reconstructor with the smallest validation error, where none was named."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from keyhole.core.processes import processes
from keyhole.core.run import Run
from keyhole.core.trials import Trial, Trials
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

__all__ = ["fit_best", "fit_linear", "squared_error"]

Fits = Trials[Reconstructor]

# A network must have less than this share of the validation error of the best closed form, because the latter is
# refitted on training and validation samples once it is chosen.
_WORTH_A_NETWORK = 0.98
_MAX_MEMBERS = 5
# Epochs that each member of an ensemble of dense networks should have. Unexplained variance on MNIST, 20 sites, one
# core, 330 s, validation: 0.269 for three members of 9 epochs (0.276 each), 0.271 for one network of 36 epochs.
_EPOCHS_PER_MEMBER = 12
# Minimum steps of a dense and of a convolutional network where epochs are short. CelebA, 100 and 200 sites, 6400 faces,
# 300 s on one core, validation: 300 steps of a dense network lowered the linear error by 1.3 %, about 800 steps of a
# convolutional one not at all.
_MIN_STEPS, _MIN_STEPS_CONVOLUTIONAL = 1000, 2000
_MANY_SAMPLES = 2000  # from which convolutions may improve on a linear map even if a dense network does not
# Minimum epochs of a convolutional network; with fewer, an ensemble of dense ones is better in the same time. MNIST, 20
# sites, two cores without bfloat16 instructions, 780 s, validation: 8 epochs lowered the error of a dense network by
# 2.2 %; two dense networks do so in half the time, and five lower it by 3.4 %. The break-even point, between 8 and the
# twenty epochs that a processor with such instructions manages, was not measured.
_MIN_EPOCHS_CONVOLUTIONAL = 12
_MIN_TIME_SHARE = 0.4  # remaining time, relative to the first member's, from which another member is trained


def fit_best(train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Reconstructor:
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

    Returns
    -------
    Reconstructor
        The chosen one; its ``tried`` has a record for each candidate.
    """
    parts: Any = {"train": train, "sites": sites, "validation": validation}
    total = max(float(np.nansum(np.square(validation.truth(), dtype=np.float64))), np.finfo(float).tiny)
    trials = Fits("fit", lambda fitted: squared_error(fitted, sites, validation) / total)
    linear = trials.run(lambda: fit_linear(**parts, run=run), _description)
    kernel = trials.run(lambda: Kernel().fit(**parts, run=run), _description)
    if run.seconds_left() > 0:
        _try_networks(trials, linear, parts, run)
    chosen = trials.best_unless_close([linear, kernel], _WORTH_A_NETWORK).result
    chosen.tried = trials.history
    return chosen


def _try_networks(trials: Fits, linear: Trial[LinearReconstructor], parts: Any, run: Run) -> None:
    """Train networks on the residuals of the linear reconstruction, as many as promise to pay in the time.

    The dense network is first. A convolutional one follows on two-dimensional grids if the dense one paid or samples
    are
    many, but not where time is too short for it and the dense network has not converged. Remaining time goes to further
    members of an ensemble of the best network, as long as the ensemble improves. Where only dense networks are trained,
    the time is shared among as many as can be trained well in it.
    """
    train, sites = parts["train"], parts["sites"]
    on_grid, short_of_time = len(train.grid.shape) == 2, _is_short_of_time(train, sites, run)
    n_frequencies = choose_n_frequencies(linear.result, parts, run)
    share = 0.15 if on_grid and not short_of_time else 1 / _members_in_time(n_frequencies, train, sites, run)
    residual = Residual("dense", n_frequencies=n_frequencies).upon(linear.result)
    dense = trials.run(lambda: residual.fit(**parts, run=run.share(share)), _description)
    promising = dense.error < _WORTH_A_NETWORK * linear.error or len(train) >= _MANY_SAMPLES
    if on_grid and promising and not (short_of_time and dense.result.network.unfinished):
        trials.run(lambda: _convolutional_after(dense.result).fit(**parts, run=run), _description)
    if trials.best.error < _WORTH_A_NETWORK * linear.error:
        _grow_ensemble(trials, parts, run)


def _is_short_of_time(train: Samples, sites: NDArray[np.int64], run: Run) -> bool:
    """Whether the remaining time is too short for a convolutional network; never with several processes."""
    if run.deadline is None or len(train.grid.shape) != 2 or processes().count > 1:
        return False
    convolutional = DenseConv()
    enough = max(_MIN_EPOCHS_CONVOLUTIONAL, _epochs_of(_MIN_STEPS_CONVOLUTIONAL, convolutional, train))
    return run.seconds_left() < enough * convolutional.seconds_per_epoch(train, sites, run)


def _members_in_time(n_frequencies: int, train: Samples, sites: NDArray[np.int64], run: Run) -> int:
    """Number of dense networks that can be trained in the remaining time; 1 with several processes."""
    if run.deadline is None or processes().count > 1:
        return 1
    dense = Dense(n_frequencies=n_frequencies)
    epochs = run.seconds_left() / dense.seconds_per_epoch(train, sites, run)
    return int(min(_MAX_MEMBERS, max(1, epochs // max(_EPOCHS_PER_MEMBER, _epochs_of(_MIN_STEPS, dense, train)))))


def _epochs_of(steps: int, network: NetworkReconstructor, train: Samples) -> float:
    """Number of epochs that so many steps make."""
    return steps * network.pace(len(train), limited=True).batch_size / len(train)


def _convolutional_after(dense: Residual) -> Residual:
    """Return the convolutional network to train next, initialised with the dense one if the deadline stopped that.

    A dense network that did not converge is a good start, since its steps are cheaper: 2.2 to 2.6 % lower error on
    MNIST.
    A converged one is not: a fresh start had 1.5 to 10 % lower error with few samples.
    """
    residual = Residual("dense_conv", n_frequencies=dense.n_frequencies).upon(dense.linear)
    if dense.network.unfinished:
        residual.network = DenseConv().starting_with(cast(Dense, dense.network))
    return residual


def _grow_ensemble(trials: Fits, parts: Any, run: Run) -> None:
    """Train further members of the best network while the deadline allows and the ensemble's error falls."""
    best = trials.best
    if run.deadline is None or not isinstance(best.result, Residual):
        return
    ensemble = Ensemble.of([best.result])
    while len(ensemble.members) < _MAX_MEMBERS and run.seconds_left() > _MIN_TIME_SHARE * best.seconds:
        members_left = min(_MAX_MEMBERS - len(ensemble.members), max(1, round(run.seconds_left() / best.seconds)))
        grown = trials.run(partial(ensemble.grown, parts, run.share(1 / members_left)), _description)
        if trials.best is not grown:
            return
        ensemble = grown.result


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
        return f"{fitted.linear.name} + {fitted.inner}" + (" with periodic embedding" if fitted.n_frequencies else "")
    return fitted.name
