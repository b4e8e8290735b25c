"""Sweeps: several workers on one study, killed ones, and Pareto fronts."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from command_processes import Launched, launch
from keyhole import read
from keyhole.cli import app
from keyhole.core.errors import InfeasibleError, SettingsError, StorageError
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.workflow.sweeps import StudyFile, Trial, finished, fronts, read_study, work
from keyhole.workflow.sweeps.database import Retrying, heartbeats

STUDY = """
source = "sst"
k = [3, 6, 9]
methods = ["greedy", "qr"]
reconstructors = ["ridge"]
trials = {trials}
heartbeat = 1

[settings.greedy]
n_components = {{ low = 20, high = 60, whole = true }}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def start(path: Path, number: int = 0) -> Launched:
    return launch(path.parent, path.parent / f"worker{number}", "sweep", path, "--json")


def told_by(workers: list[Launched]) -> list[list[dict[str, Any]]]:
    """The trials that each of several workers prints once it is through."""
    for worker in workers:
        assert worker.end() == 0, worker.errors.read_text()
    return [json.loads(worker.out.read_text())["trials"] for worker in workers]


def test_a_sweep_ends_goes_on_and_draws(tmp_path):
    path, figure = write(tmp_path, STUDY.format(trials=4)), tmp_path / "fronts.png"
    first = CliRunner().invoke(app, ["sweep", str(path), "--json", "--figure", str(figure)])
    assert first.exit_code == 0, first.output
    told = json.loads(first.stdout)
    assert len(told["trials"]) == 4
    assert {one["k"] for one in told["trials"]} <= {3, 6, 9}
    assert all(20 <= one["settings"]["n_components"] <= 60 for one in told["trials"] if one["method"] == "greedy")
    assert figure.stat().st_size > 1000
    path.write_text(STUDY.format(trials=6))
    again = CliRunner().invoke(app, ["sweep", str(path), "--json"])
    assert json.loads(again.stdout)["trials"][:4] == told["trials"]
    assert len(json.loads(again.stdout)["trials"]) == 6


def test_two_workers_share_one_study(tmp_path):
    """Together they run as many trials as were asked for, and none twice."""
    path = write(tmp_path, STUDY.format(trials=8))
    first, second = told_by([start(path, number) for number in range(2)])
    assert first == second
    numbers = [one["number"] for one in first]
    assert len(numbers) == len(set(numbers)) == 8


FINITE = """
source = "sst"
k = [3, 6, 9]
methods = ["greedy", "qr"]
trials = 30
heartbeat = 1

[settings.greedy]
n_components = {{ choices = {components} }}
"""


def combinations(trials: list[Trial]) -> list[tuple[object, ...]]:
    return [(one.method, one.reconstructor, one.k, *one.settings.values()) for one in trials]


def test_a_finite_grid_is_gone_through_once(tmp_path):
    """Its nine combinations end the study, whatever number of trials it asks for, and it says so."""
    path = write(tmp_path, FINITE.format(components=[20, 40]))
    done = CliRunner().invoke(app, ["sweep", str(path)])
    assert done.exit_code == 0, done.output
    assert "all 9 combinations have been tried" in done.stderr
    found = combinations(finished(read_study(path), read_study(path).url(path)))
    assert len(found) == len(set(found)) == 9
    again = CliRunner().invoke(app, ["sweep", str(path)])
    assert "begins" not in again.stderr


def test_several_workers_go_through_a_finite_grid_together(tmp_path):
    path = write(tmp_path, FINITE.format(components=[20, 30]))
    told = told_by([start(path, number) for number in range(3)])
    found = combinations([Trial(**one) for one in told[0]])
    assert len(found) == len(set(found)) == 9
    assert told[0] == told[1] == told[2]


@dataclass
class Away:
    """A database that does not answer from one statement on, for as many statements as it is told."""

    after: int
    count: float
    seen: int = 0

    def __call__(self, *statement: Any) -> None:
        self.seen += 1
        if 0 <= self.seen - self.after < self.count:
            raise OperationalError("SELECT", {}, Exception("server closed the connection unexpectedly"))


@contextmanager
def answering(away: Away) -> Iterator[None]:
    event.listen(Engine, "before_cursor_execute", away)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", away)


def small(folder: Path, url: str | None = None) -> tuple[StudyFile, str, PreparedSamples]:
    """A study of four quick combinations, where it is kept, and its data."""
    asked = StudyFile(source="sst", k=[2, 3], trials=9, heartbeat=1)
    field = read(np.random.default_rng(0).normal(size=(40, 12)))
    return asked, url or f"sqlite:///{folder / 'study.db'}", prepare(field, None, 0)


@pytest.mark.parametrize("after", [104, 160, 230])
def test_a_database_that_restarts_is_waited_for(tmp_path, after):
    """Whatever it was asked when it went: every combination ends, once."""
    asked, url, prepared = small(tmp_path)
    away = Away(after, 3)
    with answering(away):
        work(asked, url, prepared, lambda _: None, wait=no_wait)
    assert away.seen > after
    found = combinations(finished(asked, url))
    assert len(found) == len(set(found)) == 4


def test_a_database_that_stays_away_is_an_error_that_says_so(tmp_path):
    """After a number of attempts further and further apart; a later run goes on with what was kept."""
    asked, url, prepared = small(tmp_path)
    waited: list[float] = []
    with answering(Away(200, np.inf)), pytest.raises(StorageError, match=r"has not answered .* run the command again"):
        work(asked, url, prepared, lambda _: None, wait=waited.append)
    assert waited == sorted(waited)
    assert 60 < sum(waited) < 600
    kept = finished(asked, url)
    assert kept
    give_up_the_running(asked, url)  # as the next run does, once they have not signed for a while
    work(asked, url, prepared, lambda _: None, wait=no_wait)
    assert finished(asked, url)[: len(kept)] == kept
    assert len(finished(asked, url)) == 4


def give_up_the_running(asked: StudyFile, url: str) -> None:
    study = optuna.load_study(study_name=asked.name, storage=url)
    for one in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
        study.tell(one.number, state=optuna.trial.TrialState.FAIL)


def no_wait(seconds: float) -> None:
    """Let no time pass."""


def test_a_locked_database_is_waited_for(tmp_path):
    """Another process writes for longer than SQLite waits by itself."""
    asked, url, prepared = small(tmp_path, f"sqlite:///{tmp_path / 'study.db'}?timeout=0.01")
    work(asked.model_copy(update={"trials": 1}), url, prepared, lambda _: None)
    other = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            other.execute("COMMIT")

    told: list[str] = []
    work(asked, url, prepared, told.append, wait=wait)
    assert len(waited) >= 3
    assert len(finished(asked, url)) == 4


def test_signs_of_life_go_on_when_one_is_not_taken():
    signed, taken = [], threading.Event()

    def sign() -> None:
        signed.append(1)
        if len(signed) == 1:
            raise OperationalError("INSERT", {}, Exception("database is locked"))
        taken.set()

    patient = Retrying("sqlite://")
    with heartbeats(lambda: patient.once(sign), 0.001):
        assert taken.wait(60)
    assert patient.failures == 1


def test_a_result_is_kept_though_its_worker_was_taken_for_dead(tmp_path):
    """It could not sign while the database was away, and another gave its trial up; it is not run once more."""
    asked, url, prepared = small(tmp_path)
    given_up: list[int] = []

    def tell(line: str) -> None:
        if "begins" in line and not given_up:
            study = optuna.load_study(study_name=asked.name, storage=url)
            given_up.append(study.trials[-1].number)
            study.tell(given_up[0], state=optuna.trial.TrialState.FAIL)
            study.enqueue_trial(study.trials[given_up[0]].params)

    work(asked, url, prepared, tell, wait=no_wait)
    found = finished(asked, url)
    assert given_up[0] in [one.number for one in found]
    assert len(combinations(found)) == len(set(combinations(found))) == 4


def test_what_fails_is_tried_again_a_few_times_and_given_up(tmp_path):
    """More sites than there are: an error each time, until it is left out."""
    asked, url, prepared = small(tmp_path)
    asked = asked.model_copy(update={"k": [2, 99], "methods": ["qr"]})
    told: list[str] = []
    failed = 0
    for _ in range(6):
        try:
            work(asked, url, prepared, told.append, wait=no_wait)
        except InfeasibleError:
            failed += 1
    assert failed == 4
    assert [one.k for one in finished(asked, url)] == [2]
    assert any("given up after it failed 4 times" in line and "k = 99" in line for line in told)


def test_a_study_begun_with_other_choices_is_refused_by_name(tmp_path):
    asked, url, prepared = small(tmp_path)
    work(asked, url, prepared, lambda _: None, wait=no_wait)
    with pytest.raises(SettingsError, match="another name"):
        work(asked.model_copy(update={"k": [2, 4]}), url, prepared, lambda _: None, wait=no_wait)


def test_a_database_whose_creation_was_killed_holds_one_study(tmp_path):
    """Tables come before their indices: without that of names, the same study could be created twice."""
    asked, url, prepared = small(tmp_path)
    work(asked.model_copy(update={"trials": 1}), url, prepared, lambda _: None, wait=no_wait)
    with contextlib.closing(sqlite3.connect(tmp_path / "study.db")) as database:
        database.execute("DROP INDEX ix_studies_study_name")
    work(asked, url, prepared, lambda _: None, wait=no_wait)
    assert len(finished(asked, url)) == 4


def test_a_password_is_not_shown():
    assert "secret" not in Retrying("postgresql://user:secret@host/studies").url


def test_a_killed_workers_trial_is_tried_again(tmp_path):
    """It was under way when its worker was killed; the next run ends it, with the same settings, once."""
    slow = "\n[settings.learned]\nmask_learning_rate = { choices = [0.05] }\n"
    text = STUDY.format(trials=2).replace('["greedy", "qr"]', '["learned"]') + slow
    path = write(tmp_path, text)
    worker = start(path)
    worker.wait_for_message("begins")
    worker.send(signal.SIGKILL)
    assert worker.end() == -9
    path.write_text(text.replace("heartbeat = 1", "heartbeat = 1\ntime_limit = 1"))
    done = CliRunner().invoke(app, ["sweep", str(path), "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["trials"]) == 2
    assert states(path).count("FAIL") == 1


def states(path: Path) -> list[str]:
    import optuna

    asked = read_study(path)
    return [one.state.name for one in optuna.load_study(study_name=asked.name, storage=asked.url(path)).trials]


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1), st.floats(0.1, 9)), min_size=1))
def test_nothing_beats_a_front(points):
    """Of every trial there is one on the front that is no worse, and none on it beats another."""
    trials = [Trial(i, "qr", "ridge", k, {}, e, e, s) for i, (k, e, s) in enumerate(points)]
    for front in fronts(trials):
        cost = [getattr(one, front.cost) for one in front.trials]
        assert cost == sorted(set(cost))
        for one in trials:
            assert any(
                getattr(best, front.cost) <= getattr(one, front.cost) and best.error <= one.error
                for best in front.trials
            )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source = 'sst'", "k"),
        ("source = 'sst'\nk = [3]\nkay = 2", "kay"),
        ("source = 'sst'\nk = [3]\n[settings.vln]\nmask_learning_rate = { low = 1.0 }", "low and high"),
        ("source = 'sst'\nk = [3]\n[settings.vln]\nmask_learning_rate = { low = 2.0, high = 1.0 }", "below"),
        ("k = [", "not TOML"),
        ("k = " + 5000 * "1", "not TOML"),
        ("k = " + 3000 * "[", "not TOML"),
    ],
)
def test_a_study_that_is_wrong_is_refused_by_name(tmp_path, text, words):
    with pytest.raises(SettingsError, match=words) as error:
        read_study(write(tmp_path, text))
    assert "study.toml" in str(error.value)


def test_a_store_that_is_not_there_is_an_error(tmp_path):
    path = write(
        tmp_path, STUDY.format(trials=1).replace("trials", 'storage = "sqlite:////nowhere/at/all.db"\ntrials', 1)
    )
    done = CliRunner().invoke(app, ["sweep", str(path)])
    assert done.exit_code != 0


def test_what_ended_can_be_read_back(tmp_path):
    path = write(tmp_path, STUDY.format(trials=1))
    CliRunner().invoke(app, ["sweep", str(path)])
    (trial,) = finished(read_study(path), read_study(path).url(path))
    assert trial.error > 0
    assert trial.test_error > 0


def test_the_study_in_the_page_can_be_read(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()
    asked = read_study(write(tmp_path, page.split("```toml\n")[1].split("```")[0]))
    assert asked.trials == 60
    assert asked.settings["vln"]["rank"].choices == [4, 16]
