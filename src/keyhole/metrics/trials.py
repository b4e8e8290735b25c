"""Candidates that are tried one after the other: their errors, the seconds they took, and which to choose."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from keyhole.metrics.bootstrap import Ratio
from keyhole.metrics.choice import simplest

__all__ = ["Trial", "Trials"]

Result = TypeVar("Result")
Kind = TypeVar("Kind")


@dataclass(frozen=True, eq=False)
class Trial(Generic[Result]):
    """One candidate that was tried.

    Parameters
    ----------
    name : str
        Its name in the history.
    result : object
        The candidate.
    ratio : Ratio
        Its error, sample by sample; lower is better.
    seconds : float
        Time that it took to make.
    """

    name: str
    result: Result
    ratio: Ratio
    seconds: float

    @property
    def error(self) -> float:
        """Its error over all samples."""
        return self.ratio.value


class Trials(Generic[Result]):
    """Candidates tried so far, and a history with a row for each.

    Parameters
    ----------
    stage : str
        Name of the stage in the history.
    score : callable
        From a candidate to its error, as a `Ratio` over the same samples for all candidates.
    is_series : bool
        Whether consecutive samples may be correlated.

    Attributes
    ----------
    tried : list of Trial
        In order.
    history : list of dict
        Of each candidate: ``by``, its name; ``error``; ``best``, the lowest error so far; and ``seconds``.

    Examples
    --------
    >>> import numpy as np
    >>> trials = Trials("fit", score=lambda size: Ratio(np.full(9, abs(size)), np.ones(9)), is_series=False)
    >>> names = [trials.run(lambda: -3.0, "first").name, trials.run(lambda: 2.0, "second").name]
    >>> trials.best.name, [row["best"] for row in trials.history]
    ('second', [3.0, 2.0])
    """

    def __init__(self, stage: str, score: Callable[[Any], Ratio], *, is_series: bool) -> None:
        self.stage, self.score, self.is_series = stage, score, is_series
        self.tried: list[Trial[Any]] = []
        self.history: list[dict[str, Any]] = []

    def run(self, make: Callable[[], Kind], name: str | Callable[[Kind], str]) -> Trial[Kind]:
        """Make a candidate, score it and record both.

        Parameters
        ----------
        make : callable
            Returns the candidate.
        name : str or callable
            Its name, or how to name what was made.
        """
        started = time.monotonic()
        result = make()
        seconds = time.monotonic() - started
        trial = Trial(name if isinstance(name, str) else name(result), result, self.score(result), seconds)
        self.tried.append(trial)
        errors = {"error": trial.error, "best": self.best.error}
        self.history.append({"stage": self.stage, "by": trial.name, **errors, "seconds": round(seconds, 2)})
        return trial

    @property
    def best(self) -> Trial[Result]:
        """The candidate with the lowest error, the first of equals."""
        return min(self.tried, key=lambda trial: trial.error)

    def simplest(self, among: Sequence[Trial[Any]] | None = None) -> Trial[Result]:
        """Return the first candidate within one standard error of the best; see `keyhole.metrics.simplest`.

        Parameters
        ----------
        among : sequence of Trial, optional
            Candidates, the simplest first; by default all, in the order in which they were tried.
        """
        trials = self.tried if among is None else among
        return trials[simplest([trial.ratio for trial in trials], is_series=self.is_series)]
