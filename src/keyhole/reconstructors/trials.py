"""Short trainings of a dense network, which tell in seconds what long ones would prefer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.processes import processes
from keyhole.reconstructors.linear import LinearReconstructor
from keyhole.reconstructors.neural import Dense
from keyhole.reconstructors.residual import Residual
from keyhole.run import Run
from keyhole.signals import Signals

__all__ = ["STEPS", "WAVES", "improvement_by_trial", "steps_within", "waves_that_pay"]

WAVES = 16
STEPS, _FEWEST_STEPS = 200, 50
_LOOKS = 4  # at validation: more of them would take longer than the steps
_SHARE = 0.08  # of the time left, for each of the two trials of waves


def waves_that_pay(linear: LinearReconstructor, parts: Mapping[str, Any], run: Run) -> int:
    """Tell by two short trainings whether a dense network does better with waves of the readings or without.

    Which it is depends on the data more than on their number: on MNIST 20 sites leave 6 % less with waves, whether 3000
    digits teach or 55000; on Isolet 6 % more, on COIL20 22 %, on CelebA 1 %. Both have the same steps, whatever the
    clock says meanwhile: one that is held up by other work on the machine would lose. Without time for it, no waves.
    """
    steps = int(min(STEPS, steps_within(_SHARE * run.seconds_left(), parts["train"], parts["sites"], run)))
    if steps < _FEWEST_STEPS:
        return 0
    left = {waves: improvement_by_trial(linear, parts, waves, steps, run) for waves in (0, WAVES)}
    return min(left, key=left.__getitem__)


def steps_within(seconds: float, train: Signals, sites: NDArray[np.int64], run: Run) -> float:
    """How many steps of a trial there is time for; several processes must agree, and are not asked."""
    if run.deadline is None or processes().count > 1:
        return np.inf
    batch = Dense().pace(len(train), limited=False).batch
    step = Dense(waves=WAVES).seconds_a_pass(train, sites, run) * batch / len(train)
    return seconds / step


def improvement_by_trial(
    linear: LinearReconstructor, parts: Mapping[str, Any], waves: int, steps: int, run: Run
) -> float:
    """Give the validation error of a network after so many steps, as a share of that of the linear part it is upon.

    It has all of them, whatever the time, and no state is kept to go on from: how many they are goes by the clock.
    """
    pace = Dense().pace(len(parts["train"]), limited=False).model_copy(update={"steps": steps, "validations": _LOOKS})
    made = Residual("dense", label=f"trial {waves}", waves=waves, train=pace).upon(linear)
    return made.fit(**parts, run=replace(run, deadline=None, folder=None)).improvement
