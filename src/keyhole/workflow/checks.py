"""Validation of arguments before anything is computed."""

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
    """Return K as an int, or None under a cost limit; raise an InfeasibleError if it is infeasible."""
    if k is None and signals.constraints is None:
        raise InfeasibleError("k is missing: give the number of sites, or costs and a cost limit")
    if k is not None or signals.constraints is None:
        return check_k(k, signals)
    signals.constraints.check(None)
    return None


def check_k(k: Any, signals: Samples) -> int:
    """Return K as an int; raise an InfeasibleError if it is infeasible."""
    if isinstance(k, bool) or not isinstance(k, numbers.Real) or not float(k).is_integer():
        raise InfeasibleError(f"k={k!r}: expected a whole number of sites")
    count, most = int(float(k)), int(signals.observable.sum())
    if signals.constraints is not None and count > 0:
        signals.constraints.check(count)
    elif not 1 <= count <= most:
        raise InfeasibleError(f"k={count} is infeasible: between 1 and {most} observable sites can be selected")
    return count


def check_stages(
    selectors: Mapping[str, Selector], reconstructor: str | Reconstructor, predictor: str, signals: Samples
) -> None:
    """Raise a SettingsError unless selectors, reconstructor and predictor exist and suit the samples."""
    for method, selector in selectors.items():
        reason = selector.incompatibility(signals)
        if reason is not None:
            raise SettingsError(f"method {method!r}: {reason}")
    check_reconstructor(reconstructor, signals.grid)
    PREDICTORS.check(predictor, "auto")
    if predictor != "auto" and signals.target is None:
        raise SettingsError(f"predictor {predictor!r} requires a target")


def check_reconstructor(given: str | Reconstructor, grid: Grid) -> None:
    """Raise a SettingsError unless the reconstructor exists and supports the grid."""
    name = given if isinstance(given, str) else given.name
    RECONSTRUCTORS.check(name, "auto")
    if name in _CONVOLUTIONAL:
        check_two_dimensional(grid.shape, name)


def check_failures(failures: Any, count: int) -> int:
    """Return the number of sensors that may fail; raise a SettingsError unless it is less than ``count``."""
    if isinstance(failures, bool) or not isinstance(failures, int) or not 0 <= failures < count:
        raise SettingsError(
            f"failures={failures!r}: expected a whole number from 0 to {count - 1}, less than the {count} sites"
        )
    return failures


def check_run(device: str, precision: str, save_every: float = 15.0) -> None:
    """Raise a SettingsError for unknown names; whether the machine supports them shows when training starts."""
    if device not in _DEVICES:
        raise SettingsError(f"device {device!r} is unknown; expected one of {', '.join(_DEVICES)}")
    if precision not in _PRECISIONS:
        raise SettingsError(f"precision {precision!r} is unknown; expected one of {', '.join(_PRECISIONS)}")
    if not _is_number(save_every) or not save_every >= 0:
        raise SettingsError(f"save_every={save_every!r}: expected a number of seconds")


def deadline_after(time_limit: float | None) -> float | None:
    """Return the monotonic clock time at which a time limit that starts now ends."""
    if time_limit is None:
        return None
    if not _is_number(time_limit) or not time_limit > 0:
        raise SettingsError(f"time_limit={time_limit!r}: expected a positive number of seconds")
    if processes().count > 1:
        raise SettingsError(
            "time_limit is not supported with several processes (clocks differ); limit the steps instead"
        )
    return clock.monotonic() + float(time_limit)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
