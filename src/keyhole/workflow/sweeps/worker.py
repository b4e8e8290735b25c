"""Workers of a sweep: each takes trials from the shared database, runs them and stores the results."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from keyhole.core.errors import KeyholeError, SettingsError, StorageError
from keyhole.core.extras import check_extra
from keyhole.core.run import Run
from keyhole.data.preparation import PreparedSamples
from keyhole.workflow.arguments import AUTO, make_parts
from keyhole.workflow.selection import choose_sites, fit_plan
from keyhole.workflow.sweeps.database import Retrying, heartbeats, without_password
from keyhole.workflow.sweeps.study import StudyFile
from keyhole.workflow.sweeps.trials import StudyState, Trial, grid_of

__all__ = ["finished", "work"]

_RETRIES = 3  # of a trial that failed, or whose worker was killed
_MISSED = 3  # heartbeats of a worker, after which its trial is given to another
_POLL_SECONDS = 0.5  # between looks at the trials of other workers
_ATTEMPTS = 4  # to open a database
_RANDOM = 10  # trials at random before the sampler uses their results


def work(
    study: StudyFile, url: str, prepared: PreparedSamples, report: Callable[[str], None],
    *, wait: Callable[[float], None] = time.sleep,
) -> None:  # fmt: skip
    """Run trials until the study has as many as it defines, together with all other workers.

    No combination of a finite grid is run twice, and the study ends when all have been. A trial whose worker was killed
    is run again by another worker, or by the next run, and counts once. While the last trials run elsewhere, this
    worker waits, and takes over if another one dies. A database that does not answer is waited for, up to some minutes.

    Parameters
    ----------
    study, url
        The study and the database of its trials.
    prepared
        The data.
    report
        Called with a line when a trial begins or ends.
    wait
        Sleeps for a number of seconds.

    Raises
    ------
    KeyholeError
        Every combination failed.
    StorageError
        The database cannot be opened, or does not answer for minutes.
    """
    worker = _Worker(study, url, report, wait)
    while not (state := worker.look()).is_over:
        if state.can_start:
            worker.run_one(prepared)
        else:
            worker.wait_for_others(state)
    worker.sum_up(state)


def finished(study: StudyFile, url: str, *, wait: Callable[[float], None] = time.sleep) -> list[Trial]:
    """Return the trials that ended, in the order in which they began.

    Parameters
    ----------
    study, url
        The study and the database of its trials.
    wait
        Sleeps for a number of seconds.
    """
    import optuna

    opened, _ = _open(study, url, wait)
    ended = Retrying(url, wait=wait)(lambda: opened.get_trials(states=(optuna.trial.TrialState.COMPLETE,)))
    return list({one.number: one for one in (Trial(**found.user_attrs["trial"]) for found in ended)}.values())


class _Worker:
    """One worker on a study, whose database may not answer for a while."""

    def __init__(
        self, study: StudyFile, url: str, report: Callable[[str], None], wait: Callable[[float], None]
    ) -> None:
        self.definition, self.report, self.wait = study, report, wait
        self.study, self.storage = _open(study, url, wait)
        self.retrying, self.grid = Retrying(url, report, wait), grid_of(study)
        self._waits, self._failures = False, 0
        self._away: float | None = None

    def look(self) -> StudyState:
        """Return all trials, after giving up those of workers that were killed."""
        self.retrying(self._start_missing_heartbeats)
        if self._others_could_beat():
            self.retrying(self._fail_stale_trials)
        trials = self.retrying(lambda: self.study.get_trials(deepcopy=False))
        return StudyState(self.definition, trials, self.grid, _RETRIES + 1)

    def _others_could_beat(self) -> bool:
        """Return whether the database has answered for long enough that missing heartbeats mean a dead worker."""
        if self.retrying.failures > self._failures:
            self._failures = self.retrying.failures
            self._away = time.monotonic()
        return self._away is None or time.monotonic() - self._away > _MISSED * self.definition.heartbeat

    def wait_for_others(self, state: StudyState) -> None:
        """Wait for a while, and say once why."""
        if state.is_exhausted and not self._waits:
            self._waits = True
            self.report(f"all {len(state.grid or {})} combinations are done or under way; waiting for the last to end")
        self.wait(_POLL_SECONDS)

    def sum_up(self, state: StudyState) -> None:
        """Report combinations that were given up, and a finite grid with fewer trials than were asked for."""
        ended, given_up = state.of("COMPLETE"), state.given_up()
        for key in given_up:
            named = ", ".join(f"{name} = {value}" for name, value in key)
            self.report(f"given up after it failed {_RETRIES + 1} times: {named}")
        if not ended:
            raise KeyholeError(f"study {self.definition.name!r}: every combination failed {_RETRIES + 1} times")
        if len(ended) < self.definition.trials:
            self.report(
                f"all {len(state.grid or {})} combinations have been tried; {self.definition.trials} trials were asked"
            )

    def run_one(self, prepared: PreparedSamples) -> None:
        """Take a trial, run it unless another worker does the same, and store its result."""
        trial = self.retrying(self.study.ask)
        with heartbeats(lambda: self._beat(trial), self.definition.heartbeat):
            try:
                self._run(trial, prepared)
            except BaseException:
                self._end(trial, "FAIL")
                raise

    def _run(self, trial: Any, prepared: PreparedSamples) -> None:
        suggested = self.retrying(lambda: _suggested(self.definition, trial))
        if not self._is_needed(trial):
            self._end(trial, "PRUNED")
            return
        self.report(f"trial {trial.number} begins")
        found = _run_trial(self.definition, suggested, prepared)
        self.retrying(lambda: self._record(trial, found))
        self.report(f"trial {found.number}: {found.method} + {found.reconstructor}, K = {found.k}: {found.error:.4f}")

    def _is_needed(self, trial: Any) -> bool:
        """Return whether no other worker runs the same; if one does, enqueue a remaining combination."""
        while (state := self.look()).grid is not None and state.has_incomplete(before=trial.number):
            self.wait(_POLL_SECONDS)
        if state.needs(trial.number, trial.params):
            return True
        remaining = state.remaining()
        if remaining and state.grid is not None:
            parameters = state.grid[remaining[trial.number % len(remaining)]]
            self.retrying(lambda: self.study.enqueue_trial(parameters))
        return False

    def _record(self, trial: Any, found: Trial) -> None:
        """Store a result, also if the trial was meanwhile taken for dead and given to another worker."""
        import optuna

        values = (found.error, found.k, found.seconds)
        try:
            trial.set_user_attr("trial", vars(found))
            self.study.tell(trial, values)
        except (optuna.exceptions.UpdateFinishedTrialError, ValueError):
            if self._state(trial) == "COMPLETE":  # it was stored before the connection broke
                return
            self.study.add_trial(optuna.create_trial(
                values=values, params=trial.params, distributions=trial.distributions,
                user_attrs={"trial": vars(found)},
            ))  # fmt: skip

    def _end(self, trial: Any, state: str) -> None:
        """End a trial without a result; if the database does not answer, its missing heartbeats will."""
        import optuna

        ended = optuna.trial.TrialState[state]
        self.retrying.once(lambda: self.study.tell(trial, state=ended, skip_if_finished=True))

    def _beat(self, trial: Any) -> None:
        self.retrying.once(lambda: self.storage.record_heartbeat(trial._trial_id))

    def _state(self, trial: Any) -> str:
        return str(self.storage.get_trial(trial._trial_id).state.name)

    def _fail_stale_trials(self) -> None:
        import optuna

        optuna.storages.fail_stale_trials(self.study)

    def _start_missing_heartbeats(self) -> None:
        """Record a first heartbeat for trials without one: a worker killed before its first would never be stale."""
        from optuna.trial import TrialState
        from sqlalchemy import text

        running = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        with self.storage.engine.connect() as connection:
            beating = set(connection.execute(text("SELECT trial_id FROM trial_heartbeats")).scalars())
        for one in running:
            if one._trial_id not in beating:
                self.storage.record_heartbeat(one._trial_id)


def _open(study: StudyFile, url: str, wait: Callable[[float], None]) -> Any:
    """Open or create a study and its database; retried, since two workers that create it disturb each other."""
    check_extra("sweeps")
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _open_once(study, url)
        except (ArgumentError, ImportError) as error:
            raise SettingsError(f"storage {without_password(url)!r}: {error}") from error
        except (SQLAlchemyError, StorageInternalError) as error:
            if attempt == _ATTEMPTS:
                reason = error.__cause__ if isinstance(error, StorageInternalError) else error
                raise StorageError(f"storage {without_password(url)!r}: {reason}") from error
            wait(attempt * _POLL_SECONDS)
    return None


def _open_once(study: StudyFile, url: str) -> tuple[Any, Any]:
    import optuna

    optuna.logging.set_verbosity(logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # heartbeats, and the sampler's
    warnings.filterwarnings("ignore", message="Heartbeat of storage")  # recorded here
    storage = optuna.storages.RDBStorage(
        url, heartbeat_interval=study.heartbeat, grace_period=_MISSED * study.heartbeat,
        heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(_RETRIES),
    )  # fmt: skip
    named: Any = {
        "study_name": study.name, "storage": storage,
        "sampler": optuna.samplers.TPESampler(constant_liar=True, n_startup_trials=_RANDOM),
    }  # fmt: skip
    try:
        # Not left to create_study: a worker killed while it made the tables may have left one without its unique index,
        # and the study would then be created twice.
        return optuna.load_study(**named), storage
    except KeyError:
        return optuna.create_study(load_if_exists=True, directions=["minimize"] * 3, **named), storage


def _suggested(study: StudyFile, trial: Any) -> Trial:
    """Return the settings that Optuna suggests for a trial, without a result."""
    try:
        method = trial.suggest_categorical("method", study.methods)
        reconstructor = trial.suggest_categorical("reconstructor", study.reconstructors)
        k = trial.suggest_categorical("k", study.k)
        ranges = study.settings.get(method, {})
        settings = {name: one.suggest(trial, f"{method}.{name}") for name, one in ranges.items()}
    except ValueError as error:
        raise SettingsError(
            f"study {study.name!r} was begun with other methods, reconstructors, k or choices ({error}); "
            "give it another name to begin anew"
        ) from error
    return Trial(trial.number, method, reconstructor, k, settings, float("nan"), float("nan"), 0.0)


def _run_trial(study: StudyFile, trial: Trial, prepared: PreparedSamples) -> Trial:
    """Select, fit and score with the settings of a trial; return it with its result."""
    started = time.monotonic()
    run = Run(seed=study.seed, deadline=None if study.time_limit is None else started + study.time_limit)
    parts = make_parts(trial.method, trial.reconstructor, AUTO, trial.settings)
    plan = fit_plan(prepared, choose_sites(parts.selector, prepared, trial.k, run), parts, run)
    errors = [plan.metrics[part].get(study.metric) for part in ("validation", "test")]
    if errors[0] is None or errors[1] is None:
        raise KeyholeError(f"metric {study.metric!r} is not known; there are {', '.join(plan.metrics['test'])}")
    return replace(trial, error=errors[0], test_error=errors[1], seconds=round(time.monotonic() - started, 3))
