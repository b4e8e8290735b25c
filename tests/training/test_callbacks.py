"""Callbacks follow every training, may end it, and write what it reports."""

from __future__ import annotations

import csv
import os
import signal
import sys

import numpy as np
import pytest

import keyhole as kh
from example_data import smooth
from keyhole.core.interrupts import Interrupted
from keyhole.models.reconstructors import Dense
from keyhole.report.tables import plan_table
from keyhole.training import Callback, CSVLogger, TensorBoardLogger

TRAIN = {"steps": 12, "batch_size": 8, "validation_steps": 4, "ema_decay": 0.0}


def selected(callbacks, **options):
    """A plan whose masks and whose network are trained."""
    settings = {"train": TRAIN, "n_masks": 2}
    options = {"method": "learned", "settings": settings, "reconstructor": Dense(width=8, train=TRAIN)} | options
    return kh.select(smooth(40, 4, 4), 3, callbacks=callbacks, **options)


class Recorder(Callback):
    """Keeps what it is told."""

    def __init__(self, stop=lambda event: None):
        self.told, self.stop = [], stop

    def on_start(self, event):
        self.told.append(("start", event.stage, event.step))

    def on_epoch(self, event):
        self.told.append(("epoch", event.stage, event.step))
        return self.stop(event)

    def on_end(self, event):
        self.told.append(("end", event.stage, event.step))


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_training_starts_has_epochs_and_ends():
    """Of the masks, of the network that is measured, and of that which is fitted to all samples."""
    recorder, steps = Recorder(), []
    plan = selected([recorder, lambda event: steps.append(event.step)])
    stages = ["learn vln", "refit dense", "final dense"]
    assert [told[1] for told in recorder.told if told[0] == "start"] == stages
    assert [told[1] for told in recorder.told if told[0] == "end"] == stages
    first = [(moment, step) for moment, stage, step in recorder.told if stage == stages[0]]
    assert first == [("start", 0), *(("epoch", step) for step in (0, 3, 6, 9, 12)), ("end", 12)]
    assert {*range(1, 13)} <= set(steps)
    assert "stopped" not in plan.metadata


@pytest.mark.parametrize("by", ["epoch", "step"])
def test_a_training_ends_where_a_callback_says_so_and_the_plan_tells(by, tmp_path):
    """It is no error; the network is that of the best epoch so far, and what is fitted at the end trains no longer."""

    def is_time(event):
        return event.stage == "refit dense" and event.step >= 6

    recorder = Recorder(is_time if by == "epoch" else lambda event: None)
    plan = selected([recorder, *([is_time] if by == "step" else [])])
    assert plan.metadata["stopped"] == {"refit": 6}
    account = plan_table(plan).renderables[-1].plain
    assert "training ended by a callback: reconstructor at step 6" in account
    assert ("end", "refit dense", 6) in recorder.told
    assert [row["step"] for row in plan.history if row["stage"] == "refit"] == [0, 3, 6]
    assert max(told[2] for told in recorder.told if told[1] == "final dense") <= 6
    plan.save(tmp_path / "stopped.keyhole")
    assert kh.load(tmp_path / "stopped.keyhole").metadata["stopped"] == {"refit": 6}


def test_a_training_may_end_before_its_first_step():
    """The initial weights are then what there is."""
    plan = selected([Recorder(lambda event: event.stage == "refit dense")], refit=False)
    assert plan.metadata["stopped"] == {"refit": 0}


def test_callbacks_change_nothing():
    """The same bits with and without."""
    values = smooth(5, 4, 4)
    plans = [selected(callbacks) for callbacks in ([], [Recorder()])]
    np.testing.assert_array_equal(plans[0].indices, plans[1].indices)
    readings = values.reshape(5, -1)[:, plans[0].indices]
    np.testing.assert_array_equal(*(plan.reconstruct(readings, outliers="trust") for plan in plans))


def test_an_error_in_a_callback_is_that_of_the_run():
    """And the training is ended for all others."""

    def fail(event):
        raise ZeroDivisionError("mine")

    recorder = Recorder()
    with pytest.raises(ZeroDivisionError, match="mine"):
        selected([recorder, Recorder(fail)])
    assert recorder.told[-1] == ("end", "learn vln", 0)


@pytest.mark.parametrize("given", [5, "all", [5], [CSVLogger]])
def test_what_is_no_callback_is_refused(given):
    """With its position."""
    with pytest.raises(kh.errors.SettingsError, match="callbacks"):
        selected(given)


def test_the_csv_has_a_row_for_each_epoch(tmp_path):
    """Of all trainings, with the figures of each."""
    path = tmp_path / "logs" / "training.csv"
    plan = selected([CSVLogger(path)])
    rows = rows_of(path)
    assert [(row["stage"], int(row["step"])) for row in rows] == [
        *(("learn vln", n) for n in (0, 3, 6, 9, 12)),
        *(("refit dense", n) for n in (0, 3, 6, 9, 12)),
        *(("final dense", int(row["step"])) for row in rows[10:]),
    ]
    expected = [row for row in plan.history if row["stage"] == "refit"]
    assert [float(row["validation"]) for row in rows[5:10]] == [row["validation"] for row in expected]
    assert rows[0]["validation"] == ""
    assert float(rows[0]["concentration"]) > 0


def test_the_csv_of_a_resumed_run_is_that_of_a_run_left_alone(tmp_path):
    """Rows beyond the checkpoint are written again, none twice."""

    def stop(event):
        if (event.stage, event.step) == ("refit dense", 7):
            os.kill(os.getpid(), signal.SIGINT)

    selected([CSVLogger(tmp_path / "alone.csv")])
    with pytest.raises(Interrupted):
        selected([CSVLogger(tmp_path / "resumed.csv"), stop], checkpoint=tmp_path / "states")
    selected([CSVLogger(tmp_path / "resumed.csv")], checkpoint=tmp_path / "states", resume=True)
    assert rows_of(tmp_path / "resumed.csv") == rows_of(tmp_path / "alone.csv")


def test_another_table_is_not_mixed_with_the_log(tmp_path):
    """A file that is no log is refused where it would be continued."""
    (tmp_path / "log.csv").write_text("a,b\n1,2\n")
    options = {"checkpoint": tmp_path / "states", "method": "qr", "settings": {}, "refit": False}
    selected([], **options)
    with pytest.raises(kh.errors.DataError, match="CSVLogger"):
        selected([CSVLogger(tmp_path / "log.csv")], **options, resume=True)


def test_tensorboard_has_the_figures_of_each_training(tmp_path):
    """A run of its own for each of them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    plan = selected([TensorBoardLogger(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["final-dense", "learn-vln", "refit-dense"]
    found = EventAccumulator(str(tmp_path / "refit-dense")).Reload().Scalars("validation")
    expected = [(row["step"], row["validation"]) for row in plan.history if row["stage"] == "refit"]
    assert [(one.step, pytest.approx(one.value)) for one in found] == expected


def test_tensorboard_names_its_extra(monkeypatch, tmp_path):
    """Before anything is trained."""
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(kh.errors.MissingExtraError, match=r"keyhole\[tensorboard\]"):
        TensorBoardLogger(tmp_path)


def test_comparisons_and_curves_take_callbacks():
    """Each method has a training of its own."""
    dense, recorder = Dense(width=8, train=TRAIN), Recorder()
    kh.compare(smooth(40, 4, 4), 3, ["qr", "greedy"], reconstructor=dense, callbacks=[recorder])
    kh.curve(smooth(40, 4, 4), [2], ["qr"], reconstructor=dense, callbacks=[recorder])
    assert [told[1] for told in recorder.told if told[0] == "start"] == ["refit dense"] * 3
