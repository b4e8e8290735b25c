"""Sweeps: several workers on one study, killed ones, and what nothing beats."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from keyhole.cli import app
from keyhole.errors import SettingsError
from keyhole.sweeps import Trial, finished, fronts, read_study

STUDY = """
source = "sst"
k = [3, 6, 9]
methods = ["greedy", "qr"]
reconstructors = ["ridge"]
trials = {trials}
heartbeat = 1

[settings.greedy]
components = {{ low = 20, high = 60, whole = true }}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def start(path: Path) -> subprocess.Popen[str]:
    run = [sys.executable, "-m", "keyhole", "sweep", str(path), "--json"]
    return subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_sweep_ends_goes_on_and_draws(tmp_path):
    path, figure = write(tmp_path, STUDY.format(trials=4)), tmp_path / "fronts.png"
    first = CliRunner().invoke(app, ["sweep", str(path), "--json", "--figure", str(figure)])
    assert first.exit_code == 0, first.output
    told = json.loads(first.stdout)
    assert len(told["trials"]) == 4
    assert {one["k"] for one in told["trials"]} <= {3, 6, 9}
    assert all(20 <= one["settings"]["components"] <= 60 for one in told["trials"] if one["method"] == "greedy")
    assert figure.stat().st_size > 1000
    path.write_text(STUDY.format(trials=6))
    again = CliRunner().invoke(app, ["sweep", str(path), "--json"])
    assert json.loads(again.stdout)["trials"][:4] == told["trials"]
    assert len(json.loads(again.stdout)["trials"]) == 6


def test_two_workers_share_one_study(tmp_path):
    """Together they run as many trials as were asked for, and none twice."""
    path = write(tmp_path, STUDY.format(trials=8))
    workers = [start(path) for _ in range(2)]
    told = [json.loads(worker.communicate(timeout=200)[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert told[0]["trials"] == told[1]["trials"]
    numbers = [one["number"] for one in told[0]["trials"]]
    assert len(numbers) == len(set(numbers)) == 8


def test_a_killed_workers_trial_is_tried_again(tmp_path):
    """It was under way when its worker was killed; the next run ends it, with the same settings, once."""
    slow = "\n[settings.learned]\nlaw_rate = { choices = [0.05] }\n"
    text = STUDY.format(trials=2).replace('["greedy", "qr"]', '["learned"]') + slow
    path = write(tmp_path, text)
    worker = start(path)
    assert any("begins" in line for line in worker.stderr)
    os.kill(worker.pid, signal.SIGKILL)
    worker.communicate()
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
        ("source = 'sst'\nk = [3]\n[settings.vln]\nlaw_rate = { low = 1.0 }", "low and high"),
        ("source = 'sst'\nk = [3]\n[settings.vln]\nlaw_rate = { low = 2.0, high = 1.0 }", "below"),
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
    page = (Path(__file__).parents[1] / "docs" / "sweeps.md").read_text()
    asked = read_study(write(tmp_path, page.split("```toml\n")[1].split("```")[0]))
    assert asked.trials == 60
    assert asked.settings["vln"]["latent"].choices == [4, 16]
