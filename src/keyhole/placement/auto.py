"""Automatic selection: several selectors in turn, the best by validation error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.placement.base import Selection, Selector
from keyhole.placement.baselines.supervised import Forest, Relevance
from keyhole.placement.classical import QR, Greedy
from keyhole.placement.exchange import Exchange
from keyhole.placement.kernel_exchange import KernelExchange
from keyhole.placement.learned import Learned
from keyhole.placement.network_comparison import compare_by_network
from keyhole.placement.scorer import ClosedFormScorer, Scorer, TargetScorer, is_nonlinear

__all__ = ["STAGES", "Auto"]

STAGES = ("greedy", "qr", "exchange", "learned", "kernel_exchange")
STAGES_FOR_A_TARGET = ("relevance", "forest", "learned")
_CLASSICAL = STAGES[:2]
# Stages in closed form, which are refitted in seconds.
_CLOSED: dict[str, Callable[[], Selector]] = {
    "greedy": Greedy, "qr": QR, "exchange": Exchange, "relevance": Relevance, "forest": Forest,
}  # fmt: skip
# Stages that run even after the deadline, so that there is always a result.
_ALWAYS_RUN = (*_CLASSICAL, "relevance")
# In a time series, the ratio of errors below which another stage is preferred to the best closed form: it may have no
# time for a refit on the latest samples.
_MIN_RATIO = 0.99
# Deterministic stages, whose sites hardly change with a few more samples.
_DETERMINISTIC = ("greedy", "qr", "relevance", "forest")
# A closed form that took less than this share of the search, or these seconds, is refitted even after the deadline.
_QUICK_SHARE, _QUICK_SECONDS = 0.1, 10.0
# Share of its time that a stage needs for a refit; exchange starts from the sites it found.
_REFIT_SHARES = {"exchange": 0.25}
# Share of the remaining time that a stage may take; the rest is for the comparison by networks.
_SHARES = {"exchange": 0.6, "learned": 0.2, "kernel_exchange": 0.6}
# Sets of sites within this factor of the lowest error are compared by networks; at most so many.
_CLOSE, _MAX_COMPARED = 1.01, 4


class Auto(Selector):
    """Run several selectors and keep the sites with the lowest validation error.

    Greedy selection and QR pivoting come first; the exchange algorithm, learned masks, and the kernel exchange (started
    from the sites of all stages before) follow. A closed-form scorer, linear or non-linear, gives the validation error,
    so the result is never worse there than the classical one. Where the non-linear scorer is better and samples are not
    a time series, the best sets are compared by short trainings of a network. Then the winning stage is refitted on
    training and validation samples: in a time series any stage, as the validation samples are the latest; otherwise
    deterministic ones. For a target, forward selection and extra trees take the place of the stages for reconstruction.
    The history has a row for each stage: its error (``left``), the lowest error so far (``best``), and the seconds it
    took. After the deadline only the first stages are run.

    Parameters
    ----------
    stages
        Those of `STAGES` to run, as names or as comma-separated text; greedy or QR must be among them.
    settings
        Fields of `LearnedSettings`, by name, for the learned stage.

    Raises
    ------
    SettingsError
        If a stage is unknown, or neither greedy nor QR is among them.
    """

    name: ClassVar[str] = "auto"
    supervised: ClassVar[bool] = True

    def __init__(self, stages: Sequence[str] | str = STAGES, **settings: Any) -> None:
        self.stages = _check_stages(stages)
        self.learned = Learned(**settings)

    @property
    def requires_validation(self) -> bool:
        """Always true: stages are compared on validation samples."""
        return True

    def settings(self) -> dict[str, Any]:
        """Return the stages and the settings of the learned stage."""
        return {"stages": list(self.stages), **self.learned.settings()}

    def incompatibility(self, samples: Samples) -> str | None:
        """Return what prevents the learned stage from using the samples, if it is run."""
        return self.learned.incompatibility(samples) if "learned" in self.stages else None

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Run the stages and return the sites with the lowest validation error."""
        kind = ClosedFormScorer if train.target is None else TargetScorer
        scorer = kind(train, train if validation is None else validation, run)
        results = _StageResults(scorer, _MIN_RATIO if train.is_series else 1.0)
        for stage in self._stages(train):
            if results.found and stage not in _ALWAYS_RUN and run.seconds_left() <= 0:
                continue
            started = time.monotonic()
            found = self._stage(stage, results, train, k, validation, run.share(_SHARES.get(stage, 1.0)))
            results.add(stage, found, time.monotonic() - started)
        chosen, sites = results.best, results.found[results.best].sites
        if validation is not None and not train.is_series and is_nonlinear(scorer):
            chosen, sites = results.compare_by_network(train, validation, run)
        notes = {**results.found[chosen].notes, "chosen": chosen, "scores": results.scores}
        return Selection(sites, results.history, notes)

    def refit(self, found: Selection, development: Samples, run: Run) -> Selection:
        """Refit the winning stage on training and validation samples, time permitting.

        In a time series the validation samples are the latest, which outweighs that the sites were scored on them.
        Otherwise only deterministic stages are refitted, since a random search may end in a worse optimum. Closed forms
        that took little time are refitted even after the deadline.
        """
        stage, k = found.notes["chosen"], len(found.sites)
        seconds_by_stage = {row["by"]: float(row["seconds"]) for row in found.history if "by" in row}
        if not development.is_series and stage not in _DETERMINISTIC:
            return found
        quick = stage in _CLOSED and seconds_by_stage[stage] < max(
            _QUICK_SHARE * sum(seconds_by_stage.values()), _QUICK_SECONDS
        )
        if not quick and run.seconds_left() < _REFIT_SHARES.get(stage, 1.0) * seconds_by_stage[stage]:
            return found
        if stage == "kernel_exchange":
            refitted = KernelExchange().improve(development, [found.sites], run)
        elif stage == "exchange":
            refitted = Exchange().improve(development, found.sites, run)
        else:
            refitted = self._selector(stage).select(development, k, validation=None, run=replace(run, repeat=1))
        return replace(found, sites=refitted.sites)

    def _stages(self, train: Samples) -> Iterator[str]:
        """Return the stages for these samples; those for a target differ, except for learned masks."""
        if train.target is None:
            return iter(self.stages)
        return (stage for stage in STAGES_FOR_A_TARGET if stage != "learned" or "learned" in self.stages)

    def _stage(
        self, stage: str, results: _StageResults, train: Samples, k: int, validation: Samples | None, run: Run
    ) -> Selection:
        if stage == "kernel_exchange":
            return KernelExchange().improve(train, results.starts(), run)
        return self._selector(stage).select(train, k, validation=validation, run=run)

    def _selector(self, stage: str) -> Selector:
        return self.learned if stage == "learned" else _CLOSED[stage]()


class _StageResults:
    """Selections of the stages, their validation errors, and the history."""

    def __init__(self, scorer: Scorer, min_ratio: float) -> None:
        self.scorer, self.min_ratio = scorer, min_ratio
        self.found: dict[str, Selection] = {}
        self.scores: dict[str, float] = {}
        self.history: list[dict[str, Any]] = []
        self._cache: dict[frozenset[int], float] = {}

    @property
    def best(self) -> str:
        """Stage with the lowest error; in a time series a closed form, unless another stage is clearly better."""
        best = min(self.scores, key=self.scores.__getitem__)
        best_closed = min((stage for stage in self.scores if stage in _CLOSED), key=self.scores.__getitem__)
        return best if self.scores[best] < self.min_ratio * self.scores[best_closed] else best_closed

    def compare_by_network(self, train: Samples, validation: Samples, run: Run) -> tuple[str, NDArray[np.int64]]:
        """Return the stage and sites that are best by short trainings of a network.

        The closed-form scorer is accurate to about one percent; sets within that are compared. Where there is no time,
        or networks have larger errors than the closed form, the best stage by the closed form is returned.
        """
        sets, started = self._close_to_best(), time.monotonic()
        errors = compare_by_network([sites for _, sites in sets], train, validation, run) or []
        for (stage, _), error in zip(sets, errors, strict=False):
            seconds = round((time.monotonic() - started) / len(errors), 2)
            self.history.append({"stage": "race", "by": stage, "left": error, "best": min(errors), "seconds": seconds})
        if min(errors, default=np.inf) > min(self.scores.values()):
            return self.best, self.found[self.best].sites
        return sets[int(np.argmin(errors))]

    def _close_to_best(self) -> list[tuple[str, NDArray[np.int64]]]:
        """Distinct sets of nearly the lowest error: those of the best stages, then their other local optima."""
        order = sorted(self.scores, key=self.scores.__getitem__)
        near = [stage for stage in order if self.scores[stage] <= _CLOSE * self.scores[order[0]]]
        sets = [(stage, self.found[stage].sites) for stage in near]
        sets += [(stage, sites) for stage in near for sites in self.found[stage].others]
        distinct = dict[frozenset[int], tuple[str, NDArray[np.int64]]]()
        for stage, sites in sets:
            distinct.setdefault(frozenset(sites.tolist()), (stage, sites))
        return list(distinct.values())[:_MAX_COMPARED]

    def starts(self) -> list[NDArray[np.int64]]:
        """Initial sites for the kernel exchange: the distinct sets of all stages, the best first."""
        order = sorted(self.scores, key=self.scores.__getitem__)
        distinct = {frozenset(self.found[stage].sites.tolist()): self.found[stage].sites for stage in order}
        return list(distinct.values())

    def add(self, stage: str, found: Selection, seconds: float) -> None:
        """Score the sites of a stage and add its row to the history."""
        self.found[stage], self.scores[stage] = found, self._score(found.sites)
        self.history += found.history
        row = {"left": self.scores[stage], "best": min(self.scores.values()), "seconds": round(seconds, 2)}
        self.history.append({"stage": "search", "by": stage, **row})

    def _score(self, sites: NDArray[np.int64]) -> float:
        """Return the validation error of a set of sites, computed once."""
        key = frozenset(sites.tolist())
        if key not in self._cache:
            self._cache[key] = self.scorer(sites)
        return self._cache[key]


def _check_stages(given: Sequence[str] | str) -> tuple[str, ...]:
    stages = given.split(",") if isinstance(given, str) else given
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown:
        raise SettingsError(f"stages: {unknown[0]!r} is not known; there are {', '.join(STAGES)}")
    if not set(stages) & set(_CLASSICAL):
        raise SettingsError("stages: greedy or qr must be among them, so that the outcome is never worse")
    return tuple(stage for stage in STAGES if stage in stages)
