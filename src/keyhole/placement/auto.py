"""Automatic selection: several selectors, the simplest within one standard error of the best on validation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.metrics import Ratio, choose, is_better, simplest
from keyhole.metrics.trials import Trial, Trials
from keyhole.placement.base import Selection, Selector
from keyhole.placement.baselines.supervised import Forest, Relevance
from keyhole.placement.classical import QR, Greedy
from keyhole.placement.conditioning import SelectionView
from keyhole.placement.exchange import Exchange
from keyhole.placement.kernel_exchange import KernelExchange
from keyhole.placement.learned import Learned
from keyhole.placement.scorer import Scorer
from keyhole.placement.settings import STAGES, AutoSettings, LearnedSettings

__all__ = ["STAGES", "Auto"]

STAGES_FOR_A_TARGET = ("relevance", "forest", "greedy", "learned")
# Stages in closed form, which are refitted in seconds.
_CLOSED: dict[str, Callable[[], Selector]] = {
    "greedy": Greedy, "qr": QR, "exchange": Exchange, "relevance": Relevance, "forest": Forest,
}  # fmt: skip
# Stages that need the covariance of the samples alone, for data of any size.
_LINEAR = ("greedy", "qr", "exchange")
# Stages that run even after the deadline, so that there is always a result.
_ALWAYS_RUN = ("greedy", "qr", "relevance")
# Deterministic stages, whose sites hardly change with a few more samples.
_DETERMINISTIC = ("greedy", "qr", "relevance", "forest")
# A closed form that took less than this share of the search, or these seconds, is refitted even after the deadline.
_QUICK_SHARE, _QUICK_SECONDS = 0.1, 10.0
# Share of its time that a stage needs for a refit; exchange starts from the sites it found.
_REFIT_SHARES = {"exchange": 0.25}
# Share of the remaining time that a stage may take; the rest is for the comparison by networks.
_SHARES = {"exchange": 0.6, "learned": 0.2, "kernel_exchange": 0.6}
# The same for a target, where learned masks are the last stage.
_SHARES_FOR_A_TARGET = {"forest": 0.5, "learned": 0.8}
_MAX_COMPARED = 4  # sets of sites that are compared by networks

Results = Trials[Selection]


class Auto(Selector):
    """Run several selectors and keep the sites of the simplest within one standard error of the best on validation.

    Greedy selection and QR pivoting come first; the exchange algorithm, learned masks (if they are among the stages),
    and the kernel exchange (started from the sites of all stages before) follow: from simple to elaborate. A
    closed-form scorer, linear or non-linear, gives the validation error, and the first stage is chosen whose error is
    within one standard error of the smallest (`keyhole.metrics.simplest`): no stage is taken for a difference that
    chance explains. Where there are fewer than 600 samples, greedy selection, QR pivoting and exchange are compared
    with blocks of all of them left out in turn (`BlocksInTurn`), each selecting anew without a block; the exchange
    algorithm then makes no restarts. Where the non-linear scorer is better and samples are not a time series, the best
    sets are compared by short trainings of a network. Then the winning stage is refitted on training and validation
    samples: in a time series any stage, as the validation samples are the latest; otherwise deterministic ones. For a
    target, forward selection, extra trees and learned masks take the place of the stages for reconstruction. The
    history has a row for each stage: its error, the lowest error so far (``best``), and the seconds it took. After the
    deadline only the first stages are run.

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
        return self._selector("learned").incompatibility(samples) if "learned" in self._asked(samples) else None

    def _asked(self, samples: Samples | ScaledSamples) -> Sequence[str]:
        """Return the stages that were asked for; by default all but learned masks, and with a target these too."""
        default = STAGES if samples.target is not None else [stage for stage in STAGES if stage != "learned"]
        return default if self.options.stages is None else self.options.stages

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Run the stages and return the sites of the chosen one."""
        if train.is_large:
            return self._select_large(train, k, train if validation is None else validation, run)
        scorer = Scorer(train, train if validation is None else validation, run, nonlinear=True)
        results = Results("search", lambda found: scorer.error(found.sites), is_series=train.is_series)
        for stage in self._stages(train):
            if results.tried and stage not in _ALWAYS_RUN and run.seconds_left() <= 0:
                continue
            results.run(lambda stage=stage: self._run_stage(stage, results, train, k, validation, run), stage)  # type: ignore[misc]
        in_turn = self._errors_in_turn(results, scorer, k, run)
        chosen = _simplest(results, in_turn) if train.target is None else results.best
        sites = chosen.result.sites
        for_networks = train.reading_channels == train.channels and not train.is_series
        if validation is not None and for_networks and scorer.is_nonlinear:
            chosen, sites = _best_by_network(results, chosen, scorer, run)
        notes = {"chosen": chosen.name, "scores": {trial.name: trial.error for trial in results.tried}}
        notes |= {"blocks_in_turn": {stage: error.value for stage, error in in_turn.items()}} if in_turn else {}
        return Selection(sites, results.history, {**chosen.result.notes, **notes}, scorer=scorer)

    def _errors_in_turn(self, results: Results, scorer: Scorer, k: int, run: Run) -> dict[str, Ratio]:
        """Errors of the linear stages with blocks of few samples left out in turn; none where there is no time."""
        stages = [trial.name for trial in results.tried if trial.name in _LINEAR]
        if len(stages) < 2 or run.seconds_left() <= 0:
            return {}
        selectors = [one for stage in stages if (one := self._selector(stage).in_turn()) is not None]
        errors = scorer.in_turn(selectors, k, run)
        return {} if errors is None else dict(zip(stages, errors, strict=True))

    def _select_large(self, train: ScaledSamples, k: int, validation: ScaledSamples, run: Run) -> Selection:
        """Run the linear stages, which need the covariance alone, and score their sites after one pass for all."""
        stages = [stage for stage in self._asked(train) if stage in _LINEAR]
        found = {stage: self._selector(stage).select(train, k, validation=None, run=run.share(0.5)) for stage in stages}
        train.readings(np.unique(np.concatenate([one.sites for one in found.values()])))  # read once, and kept
        scorer = Scorer(train, validation, run)
        results = Results("search", lambda one: scorer.error(one.sites), is_series=train.is_series)
        for stage in stages:
            results.run(lambda stage=stage: found[stage], stage)  # type: ignore[misc]
        chosen = results.simplest()
        notes = {"chosen": chosen.name, "scores": {trial.name: trial.error for trial in results.tried}}
        return replace(chosen.result, history=results.history, notes={**chosen.result.notes, **notes})

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
            refitted = self._select_by(stage, development, k, None, replace(run, repeat=1))
        score = None if development.target is None else found.scorer
        if score is not None and score(refitted.sites) > score(found.sites):
            return found
        return replace(found, sites=refitted.sites)

    def _stages(self, train: ScaledSamples) -> Iterator[str]:
        """Return the stages for these samples; those for a target differ, except for learned masks.

        Learned masks need a sensor at each site.
        """
        stages = self._asked(train)
        if train.target is not None:
            stages = [stage for stage in STAGES_FOR_A_TARGET if stage != "learned" or "learned" in stages]
        return iter(stages if train.sensors is None else [stage for stage in stages if stage != "learned"])

    def _run_stage(
        self, stage: str, results: Results, train: ScaledSamples, k: int, validation: ScaledSamples | None, run: Run
    ) -> Selection:
        """Select by one stage, in its share of the time."""
        run = run.share((_SHARES if train.target is None else _SHARES_FOR_A_TARGET).get(stage, 1.0))
        if stage == "kernel_exchange":
            by_error = sorted(results.tried, key=lambda trial: trial.error)
            starts = _distinct((trial, trial.result.sites) for trial in by_error)
            found = KernelExchange().improve(train, [sites for _, sites in starts], run)
        else:
            found = self._select_by(stage, train, k, validation, run)
        results.history += found.history
        return found

    def _select_by(
        self, stage: str, train: ScaledSamples, k: int, validation: ScaledSamples | None, run: Run
    ) -> Selection:
        """Select by one stage; one that does not look at the target, on what existing sites do not explain."""
        selector = self._selector(stage)
        if train.target is not None and not selector.supervised:
            train = SelectionView.of(train, train, train).train
        return selector.select(train, k, validation=validation, run=run)

    def _selector(self, stage: str) -> Selector:
        if stage == "learned":
            return Learned(**self.options.model_dump(include=set(LearnedSettings.model_fields)))
        return _CLOSED[stage]()


Candidate = tuple[Trial[Selection], NDArray[np.int64]]


def _simplest(results: Results, in_turn: Mapping[str, Ratio]) -> Trial[Selection]:
    """Return the simplest stage within one standard error of the best; see `keyhole.metrics.choose`."""
    scored = {number: in_turn[one.name] for number, one in enumerate(results.tried) if one.name in in_turn}
    errors = [trial.ratio for trial in results.tried]
    return results.tried[choose(errors, scored, is_series=results.is_series)]


def _best_by_network(results: Results, best: Trial[Selection], scorer: Scorer, run: Run) -> Candidate:
    """Return the stage and sites of the simplest within one standard error of the best by short trainings of a network.

    Distinct sets within one standard error of the best by the closed-form scorer are compared: those of the stages,
    then their other local optima. Where there is no time, or networks have larger errors than the closed form, the
    chosen stage by the closed form is returned.
    """
    lowest, started = results.best, time.monotonic()
    close = [trial for trial in results.tried if not is_better(lowest.ratio, trial.ratio, is_series=results.is_series)]
    close = sorted(close, key=lambda trial: trial.error)
    candidates = [(trial, trial.result.sites) for trial in close]
    candidates += [(trial, sites) for trial in close for sites in trial.result.others]
    candidates = _distinct(candidates)[:_MAX_COMPARED]
    errors = scorer.by_network([sites for _, sites in candidates], run)
    least = min((error.value for error in errors), default=np.inf)
    for (trial, _), error in zip(candidates, errors, strict=False):
        seconds = round((time.monotonic() - started) / len(errors), 2)
        row = {"error": error.value, "best": least, "seconds": seconds}
        results.history.append({"stage": "compare by network", "by": trial.name, **row})
    if not errors or least > lowest.error:
        return best, best.result.sites
    ranks = [results.tried.index(trial) for trial, _ in candidates[: len(errors)]]
    return candidates[simplest(errors, is_series=results.is_series, simplicity=ranks)]


def _distinct(candidates: Any) -> list[Candidate]:
    """Keep the first of candidates with the same set of sites."""
    found = dict[frozenset[int], Candidate]()
    for trial, sites in candidates:
        found.setdefault(frozenset(sites.tolist()), (trial, sites))
    return list(found.values())
