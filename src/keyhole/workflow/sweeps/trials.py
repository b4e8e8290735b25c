"""Trials of a study: the finite grid they are taken from, if it is one, and which of its combinations remain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from keyhole.workflow.sweeps.study import StudyFile, Value

__all__ = ["StudyState", "Trial", "grid_of"]

Key = tuple[tuple[str, str], ...]

_MAX_COMBINATIONS = 100_000  # that are listed; no study tries more


@dataclass(frozen=True)
class Trial:
    """Settings and result of one trial.

    Parameters
    ----------
    number
        Number in the study.
    method, reconstructor, k, settings
        Settings of the trial; ``settings`` are those of the selector.
    error, test_error
        Validation error, which is minimised, and test error.
    seconds
        Time that it took.
    """

    number: int
    method: str
    reconstructor: str
    k: int
    settings: dict[str, Any]
    error: float
    test_error: float
    seconds: float


def key_of(parameters: Mapping[str, Any]) -> Key:
    """Return the key of a combination of parameters, whatever their order."""
    return tuple(sorted((name, repr(value)) for name, value in parameters.items()))


def grid_of(study: StudyFile) -> dict[Key, dict[str, Value]] | None:
    """Return all combinations of a study as parameters of its trials; None if there are infinitely or too many."""
    found: dict[Key, dict[str, Value]] = {}
    for method in study.methods:
        ranges = study.settings.get(method, {})
        values = {f"{method}.{name}": one.values() for name, one in ranges.items()}
        lists = [one for one in values.values() if one is not None]
        if len(lists) < len(values):
            return None
        columns: list[Sequence[Value]] = [[method], study.reconstructors, study.k, *lists]
        if len(found) + prod(map(len, columns)) > _MAX_COMBINATIONS:
            return None
        for one in product(*columns):
            parameters = dict(zip(("method", "reconstructor", "k", *values), one, strict=True))
            found[key_of(parameters)] = parameters
    return found


@dataclass(frozen=True)
class StudyState:
    """Trials of a study at one moment.

    Parameters
    ----------
    study
        Its definition.
    trials
        Trials of Optuna in any state.
    grid
        All combinations, if they are finitely many.
    attempts
        How often a combination may fail before it is given up.
    """

    study: StudyFile
    trials: Sequence[Any]
    grid: Mapping[Key, dict[str, Value]] | None
    attempts: int

    def of(self, *states: str, before: int | None = None) -> list[Any]:
        """Return the trials in some states; with ``before``, only those of smaller numbers."""
        found = [one for one in self.trials if one.state.name in states]
        return [one for one in found if before is None or one.number < before]

    @property
    def is_over(self) -> bool:
        """Whether enough trials have ended, or all combinations have and none is running."""
        return len(self.of("COMPLETE")) >= self.study.trials or (self.is_exhausted and not self.of("RUNNING"))

    @property
    def is_exhausted(self) -> bool:
        """Whether every combination of a finite grid has ended, is running or was given up."""
        return self.grid is not None and not self.remaining()

    @property
    def can_start(self) -> bool:
        """Whether one more trial may start."""
        return len(self.of("COMPLETE", "RUNNING")) < self.study.trials and not self.is_exhausted

    def remaining(self) -> list[Key]:
        """Return the combinations of a finite grid that have not ended, are not running and were not given up."""
        done = {key_of(one.params) for one in self.of("COMPLETE", "RUNNING")} | set(self.given_up())
        return [key for key in self.grid or {} if key not in done]

    def given_up(self) -> list[Key]:
        """Return the combinations that failed too often and never ended."""
        failed = Counter(key_of(one.params) for one in self.of("FAIL"))
        ended = {key_of(one.params) for one in self.of("COMPLETE")}
        often = [key for key, count in failed.items() if count >= self.attempts and key not in ended]
        return [key for key in often if key in (self.grid or {})]

    def has_incomplete(self, before: int) -> bool:
        """Return whether a trial that started earlier does not have all of its parameters yet."""
        return any(not self._has_all_parameters(one.params) for one in self.of("RUNNING", before=before))

    def needs(self, number: int, parameters: Mapping[str, Any]) -> bool:
        """Return whether a trial is to be run: too few started before it, and none with the same parameters."""
        if len(self.of("COMPLETE", "RUNNING", before=number)) >= self.study.trials:
            return False
        if self.grid is None:
            return True
        earlier = {key_of(one.params) for one in (*self.of("COMPLETE"), *self.of("RUNNING", before=number))}
        return key_of(parameters) not in earlier | set(self.given_up())

    def _has_all_parameters(self, parameters: Mapping[str, Any]) -> bool:
        method = parameters.get("method")
        names = [f"{method}.{name}" for name in self.study.settings.get(str(method), {})]
        return {"method", "reconstructor", "k", *names} <= set(parameters)
