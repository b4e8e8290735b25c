"""Learning-rate schedules: the factor of the learning rate as a function of the progress of the training."""

from __future__ import annotations

import math
from collections.abc import Callable

from keyhole.core.registry import Registry

__all__ = ["SCHEDULES", "Schedule", "constant", "one_cycle"]

# Maps progress and warm-up, both shares of the training from 0 to 1, to the factor of the learning rate. Progress is
# measured by steps or by the clock, whichever is ahead, which the schedules of torch (by steps alone) cannot follow.
Schedule = Callable[[float, float], float]

SCHEDULES: Registry[Schedule] = Registry(
    "schedule",
    "keyhole.schedules",
    {"cycle": "keyhole.training.schedules:one_cycle", "constant": "keyhole.training.schedules:constant"},
)


def one_cycle(progress: float, warmup: float) -> float:
    """Linear warm-up, then cosine decay to zero.

    Parameters
    ----------
    progress
        Share of the training that is done, from 0 to 1.
    warmup
        Share over which the factor rises to 1.

    Returns
    -------
    float
        From 0 to 1; at least 0.01 during warm-up.

    References
    ----------
    .. [1] L. N. Smith and N. Topin. Super-Convergence: Very Fast Training of Neural Networks Using Large Learning
       Rates. 2019.

    Examples
    --------
    >>> one_cycle(0.05, 0.1), one_cycle(0.1, 0.1)
    (0.5, 1.0)
    """
    if progress < warmup:
        return max(progress / warmup, 0.01)
    return 0.5 * (1 + math.cos(math.pi * (progress - warmup) / max(1 - warmup, 1e-9)))


def constant(progress: float, warmup: float) -> float:
    """Constant learning rate, without warm-up.

    Examples
    --------
    >>> constant(0.5, 0.1)
    1.0
    """
    return 1.0
