"""Checks at the door: what was asked for can be had, before anything is computed."""

from __future__ import annotations

import numbers
import time as clock
from collections.abc import Mapping
from typing import Any

import numpy as np

from keyhole.core.errors import InfeasibleError, SettingsError
from keyhole.core.processes import processes
from keyhole.data.grid import Grid
from keyhole.data.samples import Samples
from keyhole.models.predictors import PREDICTORS
from keyhole.models.reconstructors import RECONSTRUCTORS, Reconstructor
from keyhole.models.reconstructors.networks import check_two_dimensional
from keyhole.placement import Selector

__all__ = [
    "check_budget",
    "check_failures",
    "check_k",
    "check_reconstructor",
    "check_run",
    "check_stages",
    "deadline_after",
]

_CONVOLUTIONAL = ("resnet", "dcgan", "dense_conv")
_DEVICES = ("auto", "cpu", "cuda", "gpu", "mps")
_PRECISIONS = ("auto", "32-true", "bf16-mixed")


def check_budget(k: Any, signals: Samples) -> int | None:
    """Give K as an int, or say why it cannot be had; None where a limit of cost stands in its place."""
    if k is None and signals.constraints is None:
        raise InfeasibleError("k is missing: how many sites are to be chosen? A limit of cost may stand in its place")
    if k is not None or signals.constraints is None:
        return check_k(k, signals)
    signals.constraints.check(None)
    return None


def check_k(k: Any, signals: Samples) -> int:
    """Give K as an int, or say why it cannot be had."""
    if isinstance(k, bool) or not isinstance(k, numbers.Real) or not float(k).is_integer():
        raise InfeasibleError(f"k={k!r}: a whole number of sites is needed")
    count, most = int(float(k)), int(signals.observable.sum())
    if signals.constraints is not None and count > 0:
        signals.constraints.check(count)
    elif not 1 <= count <= most:
        raise InfeasibleError(f"k={count}: between 1 and the {most} observable sites are possible")
    return count


def check_stages(
    selectors: Mapping[str, Selector], reconstructor: str | Reconstructor, predictor: str, signals: Samples
) -> None:
    """Raise a SettingsError unless every stage is known and suits the signals; nothing has been trained so far."""
    for method, selector in selectors.items():
        reason = selector.incompatibility(signals)
        if reason is not None:
            raise SettingsError(f"method {method!r}: {reason}")
    check_reconstructor(reconstructor, signals.grid)
    PREDICTORS.check(predictor, "auto")
    if predictor != "auto" and signals.target is None:
        raise SettingsError(f"predictor {predictor!r} has no meaning without a target; give one, or leave it out")


def check_reconstructor(given: str | Reconstructor, grid: Grid) -> None:
    """Raise a SettingsError unless there is such a reconstructor and it can rebuild the grid."""
    name = given if isinstance(given, str) else given.name
    RECONSTRUCTORS.check(name, "auto")
    if name in _CONVOLUTIONAL:
        check_two_dimensional(grid.shape, name)


def check_failures(failures: Any, count: int) -> int:
    """Give the number of sites that may fail as an int, or say why not."""
    if isinstance(failures, bool) or not isinstance(failures, int) or not 0 <= failures < count:
        raise SettingsError(
            f"failures={failures!r}: a whole number from 0 to one less than the {count} sites is needed"
        )
    return failures


def check_run(device: str, precision: str, save_every: float = 15.0) -> None:
    """Raise a SettingsError for what no machine has; whether this one has it shows when something is trained."""
    if device not in _DEVICES:
        raise SettingsError(f"device {device!r} is not known; there are {', '.join(_DEVICES)}")
    if precision not in _PRECISIONS:
        raise SettingsError(f"precision {precision!r} is not known; there are {', '.join(_PRECISIONS)}")
    if not _is_number(save_every) or not save_every >= 0:
        raise SettingsError(f"save_every={save_every!r}: a number of seconds is needed")


def deadline_after(time_limit: float | None) -> float | None:
    """Clock time at which a time limit that starts now is over."""
    if time_limit is None:
        return None
    if not _is_number(time_limit) or not time_limit > 0:
        raise SettingsError(f"time_limit={time_limit!r}: a positive number of seconds is needed")
    if processes().count > 1:
        raise SettingsError("time_limit: clocks of several processes differ; limit the steps instead")
    return clock.monotonic() + float(time_limit)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
