"""What a sweep is to try, as a TOML file says it."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from keyhole.core.errors import SettingsError, StorageError
from keyhole.core.extras import check_extra
from keyhole.core.paths import check_regular
from keyhole.core.settings import Settings, parse

__all__ = ["Range", "StudyFile", "Value", "read_study"]

Value = str | int | float | bool


class Range(Settings):
    """Values of one setting: between two ends, or one of several."""

    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False
    choices: list[Value] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        ends = self.low is not None and self.high is not None
        if ends == (self.choices is not None):
            raise ValueError("either low and high, or choices, are needed")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError("low must be below high")
        if self.log and (self.low or 0) <= 0:
            raise ValueError("on a logarithm low must be above zero")
        return self

    def values(self) -> Sequence[Value] | None:
        """All values, where they are finite; None where they are not."""
        if self.choices is not None:
            return self.choices
        return range(int(self.low or 0), int(self.high or 0) + 1) if self.whole else None

    def suggest(self, trial: Any, name: str) -> Value:
        """Let a trial of optuna choose."""
        if self.choices is not None:
            return trial.suggest_categorical(name, self.choices)  # type: ignore[no-any-return]
        if self.whole:
            return int(trial.suggest_int(name, int(self.low or 0), int(self.high or 0), log=self.log))
        return float(trial.suggest_float(name, float(self.low or 0), float(self.high or 0), log=self.log))


class StudyFile(Settings):
    """A sweep: the data, what to try, how often, and where the trials are kept.

    ``storage`` is a URL of SQLAlchemy; by default a SQLite file beside the study. ``settings`` are ranges of a
    selector's settings, by method.
    """

    name: str = "keyhole"
    source: str | list[str]
    variable: str | None = None
    anomalies: Literal["month", "none"] | None = None
    split: Literal["blocks", "random"] | None = None  # None: blocks where samples have a time or look like a series
    k: list[int] = Field(min_length=1)
    methods: list[str] = Field(["greedy", "qr"], min_length=1)
    reconstructors: list[str] = Field(["ridge"], min_length=1)
    settings: dict[str, dict[str, Range]] = Field(default_factory=dict)
    trials: int = Field(30, ge=1)
    time_limit: float | None = Field(None, gt=0)  # seconds of one trial
    metric: str = "fvu"
    seed: int = Field(0, ge=0)
    heartbeat: int = Field(10, ge=1)  # seconds between signs of life of a worker; after three without, it is given up
    storage: str | None = None

    def url(self, path: Path) -> str:
        """Where the trials are kept."""
        return self.storage or f"sqlite:///{path.with_suffix('.db').absolute()}"


def read_study(path: Path) -> StudyFile:
    """Read a study's file; what is wrong with it is an error that names it."""
    check_extra("sweeps")
    check_regular(path)
    try:
        words = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # of TOML, of its encoding, or of numbers and nests without end
        raise SettingsError(f"{path}: not TOML ({error})") from error
    try:
        return parse(StudyFile, words)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error
