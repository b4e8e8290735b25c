"""Which reconstructor to take where none was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from keyhole.core.processes import processes
from keyhole.core.run import Run
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
from keyhole.models.reconstructors.trials import choose_n_frequencies

Kind = TypeVar("Kind", bound=Reconstructor)

__all__ = ["fit_best", "fit_linear", "squared_error"]

# A network must beat the best closed form by this much on validation: that is fitted on validation too, when all
# choices are made.
_WORTH_A_NETWORK = 0.98
_MOST_MEMBERS = 5
# Passes through the samples that each of several dense networks should have. MNIST, 20 sites, one core, validation:
# three of 9 passes leave 0.269 of the variance after 330 s, each by itself 0.276, and one of 36 passes 0.271.
_PASSES_A_MEMBER = 12
# Steps below which passes through few samples teach little, of a dense network and of one of the grid. CelebA, 100 and
# 200 sites, 6400 faces, 300 s on one core, validation: 300 steps took 1.3 % off what a linear map left, some 800 of the
# grid's nothing.
_FEWEST_STEPS, _FEWEST_STEPS_ON_GRID = 1000, 2000
_MANY = 2000  # samples from which convolutions may learn where a dense network does not
# Passes through the samples below which a network of the grid learns less than more dense ones in the same time. MNIST,
# 20 sites, two cores without instructions for bfloat16, 780 s, validation: 8 passes took 2.2 % off what a dense network
# left, which two dense ones do in half the time and five by 3.4 %. Where between 8 and the some twenty of a processor
# with such instructions the turn is was not measured.
_FEWEST_PASSES = 12
_LEAST_SHARE = 0.4  # of the first one's time that one more network should have


def fit_best(train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Reconstructor:
    """Fit ridge, kriging and kernel, then networks on top of the better linear one; keep what is best on validation.

    Networks are begun only while there is time.
    """
    parts: Any = {"train": train, "sites": sites, "validation": validation}
    trail = _Trail(sites, validation)
    linear = trail.fit(lambda: fit_linear(**parts, run=run))
    kernel = trail.fit(lambda: Kernel().fit(**parts, run=run))
    if run.seconds_left() > 0:
        _try_networks(trail, linear, parts, run)
    return trail.best(min(linear, kernel, key=trail.left.__getitem__))


def _try_networks(trail: _Trail, linear: LinearReconstructor, parts: Any, run: Run) -> None:
    """Fit networks on top of the linear one, as many kinds and as many of a kind as promise something in the time.

    The dense network is tried first, then the one that knows the grid and may go on from it, where there are two axes,
    and the dense one paid or samples are many; but not where time is too short for it and the dense one can still
    learn. Time that is left then goes to more of the better one, whose mean is kept while it gets better; where dense
    ones have all the time, it is shared among as many as can learn something in it.
    """
    train, sites = parts["train"], parts["sites"]
    on_grid, hurried = len(train.grid.shape) == 2, _is_hurried(train, sites, run)
    waves = choose_n_frequencies(linear, parts, run)
    share = 0.15 if on_grid and not hurried else 1 / _members_in_time(waves, train, sites, run)
    dense = trail.fit(lambda: Residual("dense", n_frequencies=waves).upon(linear).fit(**parts, run=run.share(share)))
    pays = trail.left[dense] < _WORTH_A_NETWORK * trail.left[linear]
    if on_grid and (pays or len(train) >= _MANY) and not (hurried and dense.network.unfinished):
        trail.fit(lambda: _detail_after(dense).fit(**parts, run=run))
    if trail.left[trail.least()] < _WORTH_A_NETWORK * trail.left[linear]:
        _grow(trail, parts, run)


def _is_hurried(train: Samples, sites: NDArray[np.int64], run: Run) -> bool:
    """Whether the time left is too short for a network of the grid; several processes must agree, and are not asked."""
    if run.deadline is None or len(train.grid.shape) != 2 or processes().count > 1:
        return False
    detail = DenseConv()
    enough = max(_FEWEST_PASSES, _passes_of(_FEWEST_STEPS_ON_GRID, detail, train))
    return run.seconds_left() < enough * detail.seconds_per_epoch(train, sites, run)


def _members_in_time(n_frequencies: int, train: Samples, sites: NDArray[np.int64], run: Run) -> int:
    """How many dense networks can learn in the time left; several processes must agree, and are not asked."""
    if run.deadline is None or processes().count > 1:
        return 1
    dense = Dense(n_frequencies=n_frequencies)
    passes = run.seconds_left() / dense.seconds_per_epoch(train, sites, run)
    return int(min(_MOST_MEMBERS, max(1, passes // max(_PASSES_A_MEMBER, _passes_of(_FEWEST_STEPS, dense, train)))))


def _passes_of(steps: int, network: NetworkReconstructor, train: Samples) -> float:
    """How many passes through the samples so many steps are."""
    return steps * network.pace(len(train), limited=True).batch_size / len(train)


def _detail_after(dense: Residual) -> Residual:
    """Give the network of the grid to be fitted next, which goes on from the dense one if the clock stopped that.

    Then time is too short to learn again what a dense network learns at less cost: 2.2 to 2.6 % less is left on MNIST.
    One that learned all it could is no start: to begin anew left 1.5 to 10 % less on few samples.
    """
    made = Residual("dense_conv", n_frequencies=dense.n_frequencies).upon(dense.linear)
    if dense.network.unfinished:
        made.network = DenseConv().starting_with(cast(Dense, dense.network))
    return made


def _grow(trail: _Trail, parts: Any, run: Run) -> None:
    """Fit more of the best network, as long as there is a time limit that leaves time for one and the mean improves."""
    best = trail.least()
    if run.deadline is None or not isinstance(best, Residual):
        return
    mean = Ensemble.of([best])
    while len(mean.members) < _MOST_MEMBERS and run.seconds_left() > _LEAST_SHARE * trail.seconds[best]:
        rest = min(_MOST_MEMBERS - len(mean.members), max(1, round(run.seconds_left() / trail.seconds[best])))
        mean = trail.fit(partial(mean.grown, parts, run.share(1 / rest)))
        if trail.least() is not mean:
            return


class _Trail:
    """What each reconstructor leaves of the variance on validation, and how long its fit took."""

    def __init__(self, sites: NDArray[np.int64], validation: Samples) -> None:
        self.sites, self.validation = sites, validation
        self.energy = max(float(np.nansum(np.square(validation.truth(), dtype=np.float64))), np.finfo(float).tiny)
        self.left: dict[Reconstructor, float] = {}
        self.seconds: dict[Reconstructor, float] = {}
        self.rows: list[dict[str, Any]] = []

    def fit(self, work: Callable[[], Kind]) -> Kind:
        """Let one be fitted, judge it and write its row."""
        started = time.monotonic()
        fitted = work()
        self.seconds[fitted] = time.monotonic() - started
        self.left[fitted] = squared_error(fitted, self.sites, self.validation) / self.energy
        row = {"left": self.left[fitted], "best": min(self.left.values()), "seconds": round(self.seconds[fitted], 2)}
        self.rows.append({"stage": "fit", "by": _words(fitted), **row})
        return fitted

    def least(self) -> Reconstructor:
        """Give the one that leaves least."""
        return min(self.left, key=self.left.__getitem__)

    def best(self, closed: Reconstructor) -> Reconstructor:
        """Give the one that leaves least; the best closed form unless another leaves clearly less."""
        least = self.least()
        chosen = least if self.left[least] < _WORTH_A_NETWORK * self.left[closed] else closed
        chosen.tried = self.rows
        return chosen


def fit_linear(train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> LinearReconstructor:
    """Fit ridge and kriging, and keep the one that is better on validation."""
    linear = [kind().fit(train, sites, validation=validation, run=run) for kind in (Ridge, OptimalInterpolation)]
    return min(linear, key=lambda fitted: squared_error(fitted, sites, validation))


def squared_error(fitted: Reconstructor, sites: NDArray[np.int64], scorer: Samples) -> float:
    """Sum of squared errors on scaled signals, where they are known."""
    reconstructed = fitted.reconstruct(scorer.readings(sites), scorer.covariates)
    packed = reconstructed.reshape(len(scorer), scorer.channels, -1)[:, :, scorer.grid.cells]
    return float(np.nansum(np.square(scorer.truth() - packed, dtype=np.float64)))


def _words(fitted: Reconstructor) -> str:
    """Name a reconstructor, and its parts where it has some."""
    if isinstance(fitted, Ensemble):
        return f"{len(fitted.members)} of {_words(fitted.members[0])}"
    if isinstance(fitted, Residual):
        return f"{fitted.linear.name} + {fitted.inner}" + (" of waves" if fitted.n_frequencies else "")
    return fitted.name
