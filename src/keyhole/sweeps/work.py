"""A worker of a sweep: it asks the store what to try next, tries it, and tells what came out."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from keyhole.errors import KeyholeError, SettingsError, StorageError
from keyhole.pipeline import choose_sites, fit_reconstructor, make_plan, make_selector
from keyhole.preparation import Prepared
from keyhole.run import Run
from keyhole.sweeps.study import StudyFile

__all__ = ["Trial", "finished", "work"]

_RETRIES = 3
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


def work(asked: StudyFile, url: str, prepared: Prepared, tell: Callable[[str], None]) -> None:
    """Run trials until the study has as many as it asks for, whoever runs them; tells of each as it begins and ends.

    A trial whose worker was killed is tried again by another, or by the next run, and counts once. When the last trials
    are under way elsewhere, this worker waits for them: should another die, it takes over.
    """
    import optuna

    study, storage = _study(asked, url)

    def objective(trial: Any) -> tuple[float, int, float]:
        if _counted(study, before=trial.number) >= asked.trials:
            raise optuna.TrialPruned
        tell(f"trial {trial.number} begins")
        found = _try(asked, prepared, trial)
        trial.set_user_attr("trial", vars(found))
        tell(f"trial {found.number}: {found.method} + {found.reconstructor}, K = {found.k}: {found.error:.4f}")
        return found.error, found.k, found.seconds

    while _counted(study, ended=True) < asked.trials:
        _sign_for_the_silent(study, storage)
        optuna.storages.fail_stale_trials(study)
        if _counted(study) < asked.trials:
            study.optimize(objective, n_trials=1)
        else:
            time.sleep(_LOOK)


def finished(asked: StudyFile, url: str) -> list[Trial]:
    """Give the trials that ended, in the order in which they began."""
    import optuna

    study, _ = _study(asked, url)
    ended = study.get_trials(states=(optuna.trial.TrialState.COMPLETE,))
    return [Trial(**one.user_attrs["trial"]) for one in ended]


def _study(asked: StudyFile, url: str) -> Any:
    """Open the study and its store, or make them; two workers that do so are in each other's way for a moment."""
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _open(asked, url)
        except (ArgumentError, ImportError) as error:
            raise SettingsError(f"storage {url!r}: {error}") from error
        except SQLAlchemyError as error:
            if attempt == _ATTEMPTS:
                raise StorageError(f"storage {url!r}: {error}") from error
            time.sleep(attempt * _LOOK)
    return None


def _open(asked: StudyFile, url: str) -> tuple[Any, Any]:
    import optuna

    optuna.logging.set_verbosity(logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # heartbeats, and the sampler's
    storage = optuna.storages.RDBStorage(
        url, heartbeat_interval=asked.heartbeat, grace_period=_MISSED * asked.heartbeat,
        heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(_RETRIES),
    )  # fmt: skip
    study = optuna.create_study(
        study_name=asked.name, storage=storage, load_if_exists=True, directions=["minimize"] * 3,
        sampler=optuna.samplers.TPESampler(constant_liar=True, n_startup_trials=_RANDOM),
    )  # fmt: skip
    return study, storage


def _sign_for_the_silent(study: Any, storage: Any) -> None:
    """Sign once for trials whose worker never did: killed before its first sign of life, it would not be given up."""
    from optuna.trial import TrialState
    from sqlalchemy import text

    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    with storage.engine.connect() as connection:
        signed = set(connection.execute(text("SELECT trial_id FROM trial_heartbeats")).scalars())
    for one in running:
        if one._trial_id not in signed:
            storage.record_heartbeat(one._trial_id)


def _counted(study: Any, *, before: int | None = None, ended: bool = False) -> int:
    """How many trials have ended, or are under way too; those that began before a number, where one is given."""
    from optuna.trial import TrialState

    states = (TrialState.COMPLETE,) if ended else (TrialState.COMPLETE, TrialState.RUNNING)
    found = study.get_trials(deepcopy=False, states=states)
    return sum(before is None or one.number < before for one in found)


def _try(asked: StudyFile, prepared: Prepared, trial: Any) -> Trial:
    """Choose, fit and judge what a trial suggests."""
    method = trial.suggest_categorical("method", asked.methods)
    reconstructor = trial.suggest_categorical("reconstructor", asked.reconstructors)
    k = trial.suggest_categorical("k", asked.k)
    ranges = asked.settings.get(method, {})
    settings = {name: one.suggest(trial, f"{method}.{name}") for name, one in ranges.items()}
    started = time.monotonic()
    deadline = None if asked.time_limit is None else started + asked.time_limit
    run = Run(seed=asked.seed, deadline=deadline)
    selector = make_selector(method, settings)
    selection = choose_sites(selector, prepared, k, run)
    fitted = fit_reconstructor(reconstructor, prepared, selection.sites, run)
    plan = make_plan(prepared, selection, fitted, selector, run, method=method)
    errors = [plan.metrics[part].get(asked.metric) for part in ("validation", "test")]
    if errors[0] is None or errors[1] is None:
        raise KeyholeError(f"metric {asked.metric!r} is not known; there are {', '.join(plan.metrics['test'])}")
    seconds = round(time.monotonic() - started, 3)
    return Trial(trial.number, method, reconstructor, k, settings, errors[0], errors[1], seconds)
