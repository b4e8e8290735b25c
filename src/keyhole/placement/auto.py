"""Automatic selection: several selectors in turn, the best by validation error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.core.trials import Trial, Trials
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.placement.base import Selection, Selector
from keyhole.placement.baselines.supervised import Forest, Relevance
from keyhole.placement.classical import QR, Greedy
from keyhole.placement.exchange import Exchange
from keyhole.placement.kernel_exchange import KernelExchange
from keyhole.placement.learned import Learned
from keyhole.placement.scorer import Scorer
from keyhole.placement.settings import STAGES, AutoSettings, LearnedSettings

__all__ = ["STAGES", "Auto"]

STAGES_FOR_A_TARGET = ("relevance", "forest", "learned")
# Stages in closed form, which are refitted in seconds.
_CLOSED: dict[str, Callable[[], Selector]] = {
    "greedy": Greedy, "qr": QR, "exchange": Exchange, "relevance": Relevance, "forest": Forest,
}  # fmt: skip
# Stages that need the covariance of the samples alone, for data of any size.
_LINEAR = ("greedy", "qr", "exchange")
# Stages that run even after the deadline, so that there is always a result.
_ALWAYS_RUN = ("greedy", "qr", "relevance")
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

Results = Trials[Selection]


class Auto(Selector):
    """Run several selectors and keep the sites with the lowest validation error.

    Greedy selection and QR pivoting come first; the exchange algorithm, learned masks, and the kernel exchange (started
    from the sites of all stages before) follow. A closed-form scorer, linear or non-linear, gives the validation error,
    so the result is never worse there than the classical one. Where the non-linear scorer is better and samples are not
    a time series, the best sets are compared by short trainings of a network. Then the winning stage is refitted on
    training and validation samples: in a time series any stage, as the validation samples are the latest; otherwise
    deterministic ones. For a target, forward selection and extra trees take the place of the stages for reconstruction.
    The history has a row for each stage: its error, the lowest error so far (``best``), and the seconds it took. After
    the deadline only the first stages are run.

    Of large samples (`ScaledSamples.is_large`), which may stay in their file, only the linear stages are run.

    Parameters
    ----------
    settings
        Fields of `AutoSettings`, by name: the stages to run, and settings of the learned stage.

    Raises
    ------
    SettingsError
        If a stage is unknown, or neither greedy nor QR is among them.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]).as_scaled()
    >>> found = Auto(stages="greedy,qr").select(samples, 2, validation=samples, run=Run())
    >>> sorted(found.sites.tolist()), list(found.notes["scores"])
    ([1, 3], ['greedy', 'qr'])
    """

    name: ClassVar[str] = "auto"
    assumes_noise: ClassVar[bool] = True
    takes_sensors: ClassVar[bool] = True
    any_size: ClassVar[bool] = True
    supervised: ClassVar[bool] = True
    settings_class: ClassVar[type[AutoSettings]] = AutoSettings
    options: AutoSettings

    @property
    def requires_validation(self) -> bool:
        """Always true: stages are compared on validation samples."""
        return True

    def incompatibility(self, samples: Samples | ScaledSamples) -> str | None:
        """Return what prevents the learned stage from using the samples, if it is run."""
        if samples.sensors is not None:
            return None
        return self._selector("learned").incompatibility(samples) if "learned" in self.options.stages else None

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Run the stages and return the sites with the lowest validation error."""
        if train.is_large:
            return self._select_large(train, k, train if validation is None else validation, run)
        scorer = Scorer(train, train if validation is None else validation, run, nonlinear=True)
        results = Results("search", lambda found: scorer(found.sites))
        for stage in self._stages(train):
            if results.tried and stage not in _ALWAYS_RUN and run.seconds_left() <= 0:
                continue
            results.run(lambda stage=stage: self._run_stage(stage, results, train, k, validation, run), stage)  # type: ignore[misc]
        closed = [trial for trial in results.tried if trial.name in _CLOSED]
        chosen = results.best_unless_close(closed, _MIN_RATIO if train.is_series else 1.0)
        sites = chosen.result.sites
        for_networks = train.reading_channels == train.channels and not train.is_series
        if validation is not None and for_networks and scorer.is_nonlinear:
            chosen, sites = _best_by_network(results, chosen, scorer, run)
        notes = {"chosen": chosen.name, "scores": {trial.name: trial.error for trial in results.tried}}
        return Selection(sites, results.history, {**chosen.result.notes, **notes})

    def _select_large(self, train: ScaledSamples, k: int, validation: ScaledSamples, run: Run) -> Selection:
        """Run the linear stages, which need the covariance alone, and score their sites after one pass for all."""
        stages = [stage for stage in self.options.stages if stage in _LINEAR]
        found = {stage: self._selector(stage).select(train, k, validation=None, run=run.share(0.5)) for stage in stages}
        train.readings(np.unique(np.concatenate([one.sites for one in found.values()])))  # read once, and kept
        scorer = Scorer(train, validation, run)
        results = Results("search", lambda one: scorer(one.sites))
        for stage in stages:
            results.run(lambda stage=stage: found[stage], stage)  # type: ignore[misc]
        notes = {"chosen": results.best.name, "scores": {trial.name: trial.error for trial in results.tried}}
        return replace(results.best.result, history=results.history, notes={**results.best.result.notes, **notes})

    def refit(self, found: Selection, development: ScaledSamples, run: Run) -> Selection:
        """Refit the winning stage on training and validation samples, time permitting.

        In a time series the validation samples are the latest, which outweighs that the sites were scored on them.
        Otherwise only deterministic stages are refitted, since a random search may end in a worse optimum. Closed forms
        that took little time are refitted even after the deadline.
        """
        if development.is_large and run.seconds_left() <= 0:
            return found
        stage, k = found.notes["chosen"], len(found.sites)
        if not development.is_series and stage not in _DETERMINISTIC:
            return found
        seconds = {row["by"]: float(row["seconds"]) for row in found.history if "by" in row}
        quick = stage in _CLOSED and seconds[stage] < max(_QUICK_SHARE * sum(seconds.values()), _QUICK_SECONDS)
        if not quick and run.seconds_left() < _REFIT_SHARES.get(stage, 1.0) * seconds[stage]:
            return found
        if stage == "kernel_exchange":
            refitted = KernelExchange().improve(development, [found.sites], run)
        elif stage == "exchange":
            refitted = Exchange().improve(development, found.sites, run)
        else:
            refitted = self._selector(stage).select(development, k, validation=None, run=replace(run, repeat=1))
        return replace(found, sites=refitted.sites)

    def _stages(self, train: ScaledSamples) -> Iterator[str]:
        """Return the stages for these samples; those for a target differ, except for learned masks.

        Learned masks need a sensor at each site.
        """
        stages: Sequence[str] = self.options.stages
        if train.target is not None:
            stages = [stage for stage in STAGES_FOR_A_TARGET if stage != "learned" or "learned" in stages]
        return iter(stages if train.sensors is None else [stage for stage in stages if stage != "learned"])

    def _run_stage(
        self, stage: str, results: Results, train: ScaledSamples, k: int, validation: ScaledSamples | None, run: Run
    ) -> Selection:
        """Select by one stage, in its share of the time."""
        run = run.share(_SHARES.get(stage, 1.0))
        if stage == "kernel_exchange":
            by_error = sorted(results.tried, key=lambda trial: trial.error)
            starts = _distinct((trial, trial.result.sites) for trial in by_error)
            found = KernelExchange().improve(train, [sites for _, sites in starts], run)
        else:
            found = self._selector(stage).select(train, k, validation=validation, run=run)
        results.history += found.history
        return found

    def _selector(self, stage: str) -> Selector:
        if stage == "learned":
            return Learned(**self.options.model_dump(include=set(LearnedSettings.model_fields)))
        return _CLOSED[stage]()


Candidate = tuple[Trial[Selection], NDArray[np.int64]]


def _best_by_network(results: Results, best: Trial[Selection], scorer: Scorer, run: Run) -> Candidate:
    """Return the stage and sites that are best by short trainings of a network.

    The closed-form scorer is accurate to about one percent; distinct sets within that are compared: those of the best
    stages, then their other local optima. Where there is no time, or networks have larger errors than the closed form,
    the best stage by the closed form is returned.
    """
    lowest, started = results.best.error, time.monotonic()
    close = sorted((trial for trial in results.tried if trial.error <= _CLOSE * lowest), key=lambda trial: trial.error)
    candidates = [(trial, trial.result.sites) for trial in close]
    candidates += [(trial, sites) for trial in close for sites in trial.result.others]
    candidates = _distinct(candidates)[:_MAX_COMPARED]
    errors = scorer.by_network([sites for _, sites in candidates], run)
    for (trial, _), error in zip(candidates, errors, strict=False):
        seconds = round((time.monotonic() - started) / len(errors), 2)
        row = {"error": error, "best": min(errors), "seconds": seconds}
        results.history.append({"stage": "compare by network", "by": trial.name, **row})
    return candidates[int(np.argmin(errors))] if min(errors, default=np.inf) <= lowest else (best, best.result.sites)


def _distinct(candidates: Any) -> list[Candidate]:
    """Keep the first of candidates with the same set of sites."""
    found = dict[frozenset[int], Candidate]()
    for trial, sites in candidates:
        found.setdefault(frozenset(sites.tolist()), (trial, sites))
    return list(found.values())
