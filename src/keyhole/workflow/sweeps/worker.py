"""A worker of a sweep: it asks the store what to try next, tries it, and tells what came out."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from keyhole.core.errors import KeyholeError, SettingsError, StorageError
from keyhole.core.extras import check_extra
from keyhole.core.run import Run
from keyhole.data.preparation import PreparedSamples
from keyhole.workflow.arguments import AUTO, make_parts
from keyhole.workflow.selection import choose_sites, fit_plan
from keyhole.workflow.sweeps.grid import Tried, grid_of
from keyhole.workflow.sweeps.retries import Patience, signs_of_life, without_password
from keyhole.workflow.sweeps.study import StudyFile

__all__ = ["Trial", "finished", "work"]

_RETRIES = 3  # of a trial that failed, or whose worker was killed
_MISSED = 3  # signs of life of a worker, after which its trial is another's
_LOOK = 0.5  # seconds between looks whether others have ended
_ATTEMPTS = 4  # to open a store
_RANDOM = 10  # trials before the sampler goes by what came out


@dataclass(frozen=True)
class Trial:
    """What one trial was and what it came to: errors on validation, which may decide, and on test, which may not."""

    number: int
    method: str
    reconstructor: str
    k: int
    settings: dict[str, Any]
    error: float
    test_error: float
    seconds: float


def work(
    asked: StudyFile, url: str, prepared: PreparedSamples, tell: Callable[[str], None],
    *, wait: Callable[[float], None] = time.sleep,
) -> None:  # fmt: skip
    """Run trials until the study has as many as it asks for, whoever runs them; tells of each as it begins and ends.

    A finite grid is gone through once: no combination is run twice, and when all have ended the study is over. A trial
    whose worker was killed is tried again by another, or by the next run, and counts once. When the last trials are
    under way elsewhere, this worker waits for them: should another die, it takes over. A database that is away for some
    minutes is waited for.

    Parameters
    ----------
    asked, url
        The study and where its trials are kept.
    prepared
        The data.
    tell
        Told what happens, a line at a time.
    wait
        Lets so many seconds pass.
    """
    worker = _Worker(asked, url, tell, wait)
    while not (tried := worker.look()).is_over:
        if tried.has_room:
            worker.run_one(prepared)
        else:
            worker.wait_for_others(tried)
    worker.sum_up(tried)


def finished(asked: StudyFile, url: str, *, wait: Callable[[float], None] = time.sleep) -> list[Trial]:
    """Give the trials that ended, in the order in which they began."""
    import optuna

    study, _ = _study(asked, url, wait)
    ended = Patience(url, wait=wait)(lambda: study.get_trials(states=(optuna.trial.TrialState.COMPLETE,)))
    return list({one.number: one for one in (Trial(**found.user_attrs["trial"]) for found in ended)}.values())


class _Worker:
    """A worker's part in a study, by a database that may be away for a while."""

    def __init__(self, asked: StudyFile, url: str, tell: Callable[[str], None], wait: Callable[[float], None]) -> None:
        self.asked, self.tell, self.wait = asked, tell, wait
        self.study, self.storage = _study(asked, url, wait)
        self.patient, self.grid = Patience(url, tell, wait), grid_of(asked)
        self._waits, self._failures = False, 0
        self._away: float | None = None

    def look(self) -> Tried:
        """See which trials there are, when those of workers that were killed have been given up."""
        self.patient(self._sign_for_the_silent)
        if self._others_could_sign():
            self.patient(self._give_up_the_silent)
        trials = self.patient(lambda: self.study.get_trials(deepcopy=False))
        return Tried(self.asked, trials, self.grid, _RETRIES + 1)

    def _others_could_sign(self) -> bool:
        """Whether the database has answered for as long as others have to sign: before, silence means nothing."""
        if self.patient.failures > self._failures:
            self._failures = self.patient.failures
            self._away = time.monotonic()
        return self._away is None or time.monotonic() - self._away > _MISSED * self.asked.heartbeat

    def wait_for_others(self, tried: Tried) -> None:
        """Let some time pass, and say why."""
        if tried.is_used_up and not self._waits:
            self._waits = True
            self.tell(f"all {len(tried.grid or {})} combinations are done or under way; waiting for the last to end")
        self.wait(_LOOK)

    def sum_up(self, tried: Tried) -> None:
        """Say where a finite grid ended before as many trials as were asked for, and what was given up."""
        ended, given_up = tried.of("COMPLETE"), tried.given_up()
        for key in given_up:
            named = ", ".join(f"{name} = {value}" for name, value in key)
            self.tell(f"given up after it failed {_RETRIES + 1} times: {named}")
        if not ended:
            raise KeyholeError(f"study {self.asked.name!r}: every combination failed {_RETRIES + 1} times")
        if len(ended) < self.asked.trials:
            self.tell(
                f"all {len(tried.grid or {})} combinations have been tried; {self.asked.trials} trials were asked"
            )

    def run_one(self, prepared: PreparedSamples) -> None:
        """Ask for a trial, run it unless another does the same, and tell what came out."""
        trial = self.patient(self.study.ask)
        with signs_of_life(lambda: self._sign(trial), self.asked.heartbeat):
            try:
                self._run(trial, prepared)
            except BaseException:
                self._end(trial, "FAIL")
                raise

    def _run(self, trial: Any, prepared: PreparedSamples) -> None:
        asked = self.patient(lambda: _suggested(self.asked, trial))
        if not self._is_needed(trial):
            self._end(trial, "PRUNED")
            return
        self.tell(f"trial {trial.number} begins")
        found = _try(self.asked, asked, prepared)
        self.patient(lambda: self._record(trial, found))
        self.tell(f"trial {found.number}: {found.method} + {found.reconstructor}, K = {found.k}: {found.error:.4f}")

    def _is_needed(self, trial: Any) -> bool:
        """Whether nobody else runs what a trial suggests; where somebody does, the next trial gets what is left."""
        while (tried := self.look()).grid is not None and tried.undecided(before=trial.number):
            self.wait(_LOOK)
        if tried.needs(trial.number, trial.params):
            return True
        left = tried.left()
        if left and tried.grid is not None:
            parameters = tried.grid[left[trial.number % len(left)]]
            self.patient(lambda: self.study.enqueue_trial(parameters))
        return False

    def _record(self, trial: Any, found: Trial) -> None:
        """Keep what came out; also where the trial was taken for dead meanwhile, and is another's by now."""
        import optuna

        values = (found.error, found.k, found.seconds)
        try:
            trial.set_user_attr("trial", vars(found))
            self.study.tell(trial, values)
        except (optuna.exceptions.UpdateFinishedTrialError, ValueError):
            if self._state(trial) == "COMPLETE":  # the database took it, and went away before it said so
                return
            self.study.add_trial(optuna.create_trial(
                values=values, params=trial.params, distributions=trial.distributions,
                user_attrs={"trial": vars(found)},
            ))  # fmt: skip

    def _end(self, trial: Any, state: str) -> None:
        """End a trial without a result; where the database is away, its silence will."""
        import optuna

        ended = optuna.trial.TrialState[state]
        self.patient.once(lambda: self.study.tell(trial, state=ended, skip_if_finished=True))

    def _sign(self, trial: Any) -> None:
        self.patient.once(lambda: self.storage.record_heartbeat(trial._trial_id))

    def _state(self, trial: Any) -> str:
        return str(self.storage.get_trial(trial._trial_id).state.name)

    def _give_up_the_silent(self) -> None:
        import optuna

        optuna.storages.fail_stale_trials(self.study)

    def _sign_for_the_silent(self) -> None:
        """Sign once for trials whose worker never did: killed before its first sign, it would not be given up."""
        from optuna.trial import TrialState
        from sqlalchemy import text

        running = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        with self.storage.engine.connect() as connection:
            signed = set(connection.execute(text("SELECT trial_id FROM trial_heartbeats")).scalars())
        for one in running:
            if one._trial_id not in signed:
                self.storage.record_heartbeat(one._trial_id)


def _study(asked: StudyFile, url: str, wait: Callable[[float], None]) -> Any:
    """Open the study and its store, or make them; two workers that do so are in each other's way for a moment."""
    check_extra("sweeps")
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _open(asked, url)
        except (ArgumentError, ImportError) as error:
            raise SettingsError(f"storage {without_password(url)!r}: {error}") from error
        except (SQLAlchemyError, StorageInternalError) as error:
            if attempt == _ATTEMPTS:
                reason = error.__cause__ if isinstance(error, StorageInternalError) else error
                raise StorageError(f"storage {without_password(url)!r}: {reason}") from error
            wait(attempt * _LOOK)
    return None


def _open(asked: StudyFile, url: str) -> tuple[Any, Any]:
    import optuna

    optuna.logging.set_verbosity(logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # heartbeats, and the sampler's
    warnings.filterwarnings("ignore", message="Heartbeat of storage")  # they are signed here
    storage = optuna.storages.RDBStorage(
        url, heartbeat_interval=asked.heartbeat, grace_period=_MISSED * asked.heartbeat,
        heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(_RETRIES),
    )  # fmt: skip
    known: dict[str, Any] = {
        "study_name": asked.name,
        "storage": storage,
        "sampler": optuna.samplers.TPESampler(constant_liar=True, n_startup_trials=_RANDOM),
    }
    try:  # first, since a database whose creation was killed may lack the index that keeps names unique
        study = optuna.load_study(**known)
    except KeyError:
        study = optuna.create_study(**known, load_if_exists=True, directions=["minimize"] * 3)
    return study, storage


def _suggested(asked: StudyFile, trial: Any) -> Trial:
    """Let Optuna choose what a trial is; nothing has come out yet."""
    try:
        method = trial.suggest_categorical("method", asked.methods)
        reconstructor = trial.suggest_categorical("reconstructor", asked.reconstructors)
        k = trial.suggest_categorical("k", asked.k)
        ranges = asked.settings.get(method, {})
        settings = {name: one.suggest(trial, f"{method}.{name}") for name, one in ranges.items()}
    except ValueError as error:
        raise SettingsError(
            f"study {asked.name!r} was begun with other methods, reconstructors, k or choices ({error}); "
            "give it another name to begin anew"
        ) from error
    return Trial(trial.number, method, reconstructor, k, settings, float("nan"), float("nan"), 0.0)


def _try(asked: StudyFile, what: Trial, prepared: PreparedSamples) -> Trial:
    """Choose, fit and judge what a trial suggests."""
    started = time.monotonic()
    deadline = None if asked.time_limit is None else started + asked.time_limit
    run = Run(seed=asked.seed, deadline=deadline)
    parts = make_parts(what.method, what.reconstructor, AUTO, what.settings)
    plan = fit_plan(prepared, choose_sites(parts.selector, prepared, what.k, run), parts, run)
    errors = [plan.metrics[part].get(asked.metric) for part in ("validation", "test")]
    if errors[0] is None or errors[1] is None:
        raise KeyholeError(f"metric {asked.metric!r} is not known; there are {', '.join(plan.metrics['test'])}")
    return replace(what, error=errors[0], test_error=errors[1], seconds=round(time.monotonic() - started, 3))
