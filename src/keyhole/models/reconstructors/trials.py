"""Short trainings of a dense network, which tell in seconds what long ones would prefer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.processes import processes
from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.reconstructors.neural import Dense
from keyhole.models.reconstructors.residual import Residual

__all__ = ["N_FREQUENCIES", "STEPS", "affordable_steps", "choose_n_frequencies", "improvement_by_trial"]

N_FREQUENCIES = 16
STEPS, _FEWEST_STEPS = 200, 50
_LOOKS = 4  # at validation: more of them would take longer than the steps
_SHARE = 0.08  # of the time left, for each of the two trials of waves


def choose_n_frequencies(linear: LinearReconstructor, parts: Mapping[str, Any], run: Run) -> int:
    """Tell by two short trainings whether a dense network does better with waves of the readings or without.

    Which it is depends on the data more than on their number: on MNIST 20 sites leave 6 % less with waves, whether 3000
    digits teach or 55000; on Isolet 6 % more, on COIL20 22 %, on CelebA 1 %. Both have the same steps, whatever the
    clock says meanwhile: one that is held up by other work on the machine would lose. Without time for it, no waves.
    """
    steps = int(min(STEPS, affordable_steps(_SHARE * run.seconds_left(), parts["train"], parts["sites"], run)))
    if steps < _FEWEST_STEPS:
        return 0
    left = {waves: improvement_by_trial(linear, parts, waves, steps, run) for waves in (0, N_FREQUENCIES)}
    return min(left, key=left.__getitem__)


def affordable_steps(seconds: float, train: Samples, sites: NDArray[np.int64], run: Run) -> float:
    """How many steps of a trial there is time for; several processes must agree, and are not asked."""
    if run.deadline is None or processes().count > 1:
        return np.inf
    batch = Dense().pace(len(train), limited=False).batch_size
    step = Dense(n_frequencies=N_FREQUENCIES).seconds_per_epoch(train, sites, run) * batch / len(train)
    return seconds / step


def improvement_by_trial(
    linear: LinearReconstructor, parts: Mapping[str, Any], n_frequencies: int, steps: int, run: Run
) -> float:
    """Give the validation error of a network after so many steps, as a share of that of the linear part it is upon.

    It has all of them, whatever the time, and no state is kept to go on from: how many they are goes by the clock.
    """
    pace = (
        Dense().pace(len(parts["train"]), limited=False).model_copy(update={"steps": steps, "validation_steps": _LOOKS})
    )
    made = Residual("dense", label=f"trial {n_frequencies}", n_frequencies=n_frequencies, train=pace).upon(linear)
    return made.fit(**parts, run=replace(run, deadline=None, folder=None)).improvement
