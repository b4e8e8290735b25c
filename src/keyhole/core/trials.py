"""Candidates that are tried one after the other: their errors, the seconds they took, and the best so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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
    error : float
        Its error; lower is better.
    seconds : float
        Time that it took to make.
    """

    name: str
    result: Result
    error: float
    seconds: float


class Trials(Generic[Result]):
    """Candidates tried so far, and a history with a row for each.

    Parameters
    ----------
    stage : str
        Name of the stage in the history.
    score : callable
        From a candidate to its error.

    Attributes
    ----------
    tried : list of Trial
        In order.
    history : list of dict
        Of each candidate: ``by``, its name; ``error``; ``best``, the lowest error so far; and ``seconds``.

    Examples
    --------
    >>> trials = Trials("fit", score=abs)
    >>> names = [trials.run(lambda: -3, "first").name, trials.run(lambda: 2, "second").name]
    >>> trials.best.name, [row["best"] for row in trials.history]
    ('second', [3, 2])
    """

    def __init__(self, stage: str, score: Callable[[Any], float]) -> None:
        self.stage, self.score = stage, score
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

    def best_unless_close(self, preferred: Iterable[Trial[Any]], ratio: float) -> Trial[Result]:
        """Return the best candidate; the best of the preferred ones unless that is clearly better.

        Parameters
        ----------
        preferred : iterable of Trial
            Candidates to prefer, such as closed forms, which can be refitted on more samples.
        ratio : float
            Ratio of errors below which the best counts as clearly better.
        """
        best_preferred = min(preferred, key=lambda trial: trial.error)
        return self.best if self.best.error < ratio * best_preferred.error else best_preferred
