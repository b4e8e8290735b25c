"""What a study can try, where that is a finite grid, and which of it is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from keyhole.workflow.sweeps.study import StudyFile, Value

__all__ = ["Tried", "grid_of", "key_of"]

Key = tuple[tuple[str, str], ...]

_MOST = 100_000  # combinations that are listed: no study gets to the end of more


def key_of(parameters: Mapping[str, Any]) -> Key:
    """Name a combination of parameters, whatever their order."""
    return tuple(sorted((name, repr(value)) for name, value in parameters.items()))


def grid_of(asked: StudyFile) -> dict[Key, dict[str, Value]] | None:
    """Give all combinations that a study can try, as parameters of its trials; None where there is no end of them."""
    found: dict[Key, dict[str, Value]] = {}
    for method in asked.methods:
        ranges = asked.settings.get(method, {})
        values = {f"{method}.{name}": one.values() for name, one in ranges.items()}
        lists = [one for one in values.values() if one is not None]
        if len(lists) < len(values):
            return None
        columns: list[Sequence[Value]] = [[method], asked.reconstructors, asked.k, *lists]
        if len(found) + prod(map(len, columns)) > _MOST:
            return None
        for one in product(*columns):
            parameters = dict(zip(("method", "reconstructor", "k", *values), one, strict=True))
            found[key_of(parameters)] = parameters
    return found


@dataclass(frozen=True)
class Tried:
    """Trials of a study at one moment.

    Parameters
    ----------
    asked
        The study.
    trials
        Those of Optuna.
    grid
        All combinations, where they are finite.
    attempts
        How often a combination may fail before it is given up.
    """

    asked: StudyFile
    trials: Sequence[Any]
    grid: Mapping[Key, dict[str, Value]] | None
    attempts: int

    def of(self, *states: str, before: int | None = None) -> list[Any]:
        """Give the trials in some states; those that began before a number, where one is given."""
        found = [one for one in self.trials if one.state.name in states]
        return [one for one in found if before is None or one.number < before]

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to try and nothing is under way, or all that was asked for has ended."""
        return len(self.of("COMPLETE")) >= self.asked.trials or (self.is_used_up and not self.of("RUNNING"))

    @property
    def is_used_up(self) -> bool:
        """Whether every combination of a finite grid has ended, is under way or was given up."""
        return self.grid is not None and not self.left()

    @property
    def has_room(self) -> bool:
        """Whether one more trial may begin."""
        return len(self.of("COMPLETE", "RUNNING")) < self.asked.trials and not self.is_used_up

    def left(self) -> list[Key]:
        """Combinations of a finite grid that neither ended nor are under way nor were given up."""
        taken = {key_of(one.params) for one in self.of("COMPLETE", "RUNNING")} | set(self.given_up())
        return [key for key in self.grid or {} if key not in taken]

    def given_up(self) -> list[Key]:
        """Combinations that failed too often and never ended."""
        failed = Counter(key_of(one.params) for one in self.of("FAIL"))
        ended = {key_of(one.params) for one in self.of("COMPLETE")}
        often = [key for key, count in failed.items() if count >= self.attempts and key not in ended]
        return [key for key in often if key in (self.grid or {})]

    def undecided(self, before: int) -> bool:
        """Whether a trial that began earlier has not yet said all that it will try."""
        return any(not self._is_whole(one.params) for one in self.of("RUNNING", before=before))

    def needs(self, number: int, parameters: Mapping[str, Any]) -> bool:
        """Whether a trial is to be run: no other before it does the same, and there are not enough without it."""
        if len(self.of("COMPLETE", "RUNNING", before=number)) >= self.asked.trials:
            return False
        if self.grid is None:
            return True
        earlier = {key_of(one.params) for one in (*self.of("COMPLETE"), *self.of("RUNNING", before=number))}
        return key_of(parameters) not in earlier | set(self.given_up())

    def _is_whole(self, parameters: Mapping[str, Any]) -> bool:
        method = parameters.get("method")
        names = [f"{method}.{name}" for name in self.asked.settings.get(str(method), {})]
        return {"method", "reconstructor", "k", *names} <= set(parameters)
