"""Study files: the data, search space and number of trials of a sweep, in TOML."""

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
from keyhole.data.climatology import Anomalies

__all__ = ["Range", "StudyFile", "Value", "read_study"]

Value = str | int | float | bool


class Range(Settings):
    """Values of one setting: a range, or a list of choices.

    Parameters
    ----------
    low, high
        Bounds of the range.
    log
        Whether to sample on a logarithmic scale.
    whole
        Whether values are whole numbers.
    choices
        List of values, in place of a range.
    """

    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False
    choices: list[Value] | None = None

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        ends = self.low is not None and self.high is not None
        if ends == (self.choices is not None):
            raise ValueError("either low and high, or choices, are needed")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError("low must be below high")
        if self.log and (self.low or 0) <= 0:
            raise ValueError("on a logarithm low must be above zero")
        return self

    def values(self) -> Sequence[Value] | None:
        """Return all values if they are finitely many, else None."""
        if self.choices is not None:
            return self.choices
        return range(int(self.low or 0), int(self.high or 0) + 1) if self.whole else None

    def suggest(self, trial: Any, name: str) -> Value:
        """Suggest a value for a trial of Optuna."""
        if self.choices is not None:
            return trial.suggest_categorical(name, self.choices)  # type: ignore[no-any-return]
        if self.whole:
            return int(trial.suggest_int(name, int(self.low or 0), int(self.high or 0), log=self.log))
        return float(trial.suggest_float(name, float(self.low or 0), float(self.high or 0), log=self.log))


class StudyFile(Settings):
    """Definition of a sweep.

    Parameters
    ----------
    name
        Name of the study in its database.
    source, variable, group_by, anomalies, split
        Data to read, as on the command line.
    k, methods, reconstructors
        Values to try.
    settings
        Ranges of a selector's settings, by method.
    trials
        Number of trials.
    time_limit
        Time limit in seconds for each trial.
    metric
        Validation error to minimise.
    seed
        Random seed.
    heartbeat
        Seconds between heartbeats of a worker; after three missed ones its trial is given to another.
    storage
        Database of the trials, as a URL of SQLAlchemy; by default a SQLite file beside the study.
    """

    name: str = "keyhole"
    source: str | list[str]
    variable: str | None = None
    group_by: str | None = None
    anomalies: Anomalies = "auto"
    split: Literal["blocks", "random", "groups"] | None = None
    k: list[int] = Field(min_length=1)
    methods: list[str] = Field(["greedy", "qr"], min_length=1)
    reconstructors: list[str] = Field(["ridge"], min_length=1)
    settings: dict[str, dict[str, Range]] = Field(default_factory=dict)
    trials: int = Field(30, ge=1)
    time_limit: float | None = Field(None, gt=0)
    metric: str = "fvu"
    seed: int = Field(0, ge=0)
    heartbeat: int = Field(10, ge=1)
    storage: str | None = None

    def url(self, path: Path) -> str:
        """Return the URL of the database."""
        return self.storage or f"sqlite:///{path.with_suffix('.db').absolute()}"


def read_study(path: Path) -> StudyFile:
    """Read a study file.

    Parameters
    ----------
    path
        TOML file.

    Returns
    -------
    StudyFile
        The checked definition.

    Raises
    ------
    SettingsError
        The file is not TOML, or an entry is unknown or invalid; the message names file and entry.
    """
    check_extra("sweeps")
    check_regular(path)
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # TOML, its encoding, or nesting too deep
        raise SettingsError(f"{path}: not TOML ({error})") from error
    try:
        return parse(StudyFile, given)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error
