"""The training loop: what it keeps, what it refuses, and that a killed run goes on bit for bit."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import keyhole as kh
from keyhole.core.errors import StorageError, TrainingError
from keyhole.core.interrupts import Interrupted
from keyhole.core.run import Run
from keyhole.core.storage import read_container, write_container
from keyhole.training.checkpoint import StateError
from keyhole.training.loop import Task, precision_of, seeded, train
from keyhole.training.schedules import one_cycle
from keyhole.training.settings import TrainSettings

SETTINGS = TrainSettings(steps=40, batch_size=8, validation_steps=5)


class Toy(Task):
    """Regression with dropout and noise from the generator, so that every kind of state matters."""

    def __init__(self, poison: int | None = None, stop_at: int | None = None):
        super().__init__()
        self.samples, self.poison, self.stop_at, self.calls = 50, poison, stop_at, 0
        with seeded(1):
            self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))
            self.register_buffer("x", torch.randn(60, 4), persistent=False)
        self.level = nn.Parameter(torch.zeros(()))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, batch, generator):
        self.calls += 1
        x = self.x[batch] + 0.1 * torch.randn(len(batch), 4, generator=generator)
        loss = (self.net(x).squeeze(1) + self.level - x.sum(1)).square().mean()
        if int(self.count) == self.poison:
            loss = loss * float("nan")
        if int(self.count) == self.stop_at:
            os.kill(os.getpid(), signal.SIGINT)
        return {"fit": loss}, lambda: self.count.add_(1)

    def validate(self):
        return (self.net(self.x[50:]).squeeze(1) - self.x[50:].sum(1)).square().mean().item()


def weights(task):
    return {name: tensor.clone() for name, tensor in task.state_dict().items()}


def trained(run, task=None, settings=SETTINGS, identity="a"):
    task = task or Toy()
    history = train(task, settings, name="toy", identity=identity, run=run)
    return weights(task), history


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def test_it_learns_and_leaves_the_global_generator_alone():
    """The error falls, and torch's generator is as it was."""
    before = torch.get_rng_state()
    _, history = trained(Run(), settings=TrainSettings(steps=300, batch_size=16, learning_rate=1e-2))
    assert history[-1]["validation"] < 0.3 * history[0]["validation"]
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("stopped", [False, True])
def test_double_precision_trains_and_single_precision_comes_back(tmp_path, stopped):
    """The first loss is that of single precision, in more digits; a stopped run goes on bit for bit."""
    run = Run(precision="64-true", folder=tmp_path)
    if stopped:
        with pytest.raises(Interrupted):
            trained(run, Toy(stop_at=12))
    found, history = trained(replace(run, resume=stopped))
    assert {tensor.dtype for tensor in found.values()} == {torch.float32, torch.int64}
    single, other = trained(Run())
    assert history[0]["validation"] == pytest.approx(other[0]["validation"], rel=1e-5)
    assert history[0]["validation"] != other[0]["validation"]
    assert not torch.equal(found["level"], single["level"])
    assert_same(found, trained(Run(precision="64-true"))[0])


def test_the_weights_left_are_the_best_on_validation():
    """A rate that wrecks the network leaves the initial weights, which were better."""
    task = Toy()
    initial = weights(task)
    trained(
        Run(),
        task,
        TrainSettings(steps=20, batch_size=8, learning_rate=50.0, ema_decay=0.0, validation_steps=4, gradient_clip=1e9),
    )
    assert_same(
        {k: v for k, v in initial.items() if k != "count"}, {k: v for k, v in weights(task).items() if k != "count"}
    )


@pytest.mark.parametrize("stop_at", [1, 7, 8, 23, 39])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, stop_at):
    """Stopped by Ctrl-C at any step, resumed: the same weights and history as a run left alone."""
    expected = trained(Run(seed=4))
    run = Run(seed=4, folder=tmp_path)
    with pytest.raises(Interrupted, match=f"step {stop_at + 1} of 40"):
        trained(run, Toy(stop_at=stop_at))
    assert_same(expected[0], (found := trained(replace(run, resume=True)))[0])
    assert expected[1] == found[1]


@pytest.mark.parametrize(
    "part", ["generator", "global.cpu", "order", "optimiser.0.exp_avg", "average.net.0.weight", "task.net.0.weight"]
)
def test_a_broken_resume_is_noticed(tmp_path, part):
    """Each kind of state matters: with any one spoiled, the resumed run ends elsewhere. So the test above can fail."""
    expected, _ = trained(Run(seed=4))
    run = Run(seed=4, folder=tmp_path)
    with pytest.raises(Interrupted):
        trained(run, Toy(stop_at=20))
    header, arrays = read_container(tmp_path / "toy.state", "training")
    spoiled = dict(arrays)
    if part in ("generator", "global.cpu"):
        spoiled[part] = torch.Generator().manual_seed(99).get_state().numpy()
    elif part == "order":
        spoiled[part] = arrays[part][::-1].copy()
    else:
        spoiled[part] = np.zeros_like(arrays[part])
    write_container(tmp_path / "toy.state", header, spoiled)
    found, _ = trained(replace(run, resume=True))
    assert any(not torch.equal(expected[name], found[name]) for name in expected)


def test_a_finished_run_is_not_run_again(tmp_path):
    """Resuming what is done gives its weights without a step."""
    run = Run(folder=tmp_path)
    expected, _ = trained(run)
    task = Toy()
    assert_same(expected, trained(replace(run, resume=True), task)[0])
    assert task.calls == 0


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_state(tmp_path):
    """A named error, and the file on disk is the one saved before."""
    run = Run(folder=tmp_path, save_seconds=0)
    with pytest.raises(Interrupted):
        trained(run, Toy(stop_at=10))
    before = (tmp_path / "toy.state").read_bytes()
    with pytest.raises(TrainingError, match=r"not finite at step 11 \(fit = nan\)"):
        trained(replace(run, resume=True), Toy(poison=11))
    assert (tmp_path / "toy.state").read_bytes() == before


@pytest.fixture
def kept(tmp_path):
    """A run to resume, whose state is on disk."""
    run = Run(folder=tmp_path)
    with pytest.raises(Interrupted):
        trained(run, Toy(stop_at=20))
    return replace(run, resume=True)


def rewrite(run, *, header=None, arrays=None, without=()):
    """Change a kept state: words of its header, arrays, names that are to be gone."""
    path = run.folder / "toy.state"
    words, parts = read_container(path, "training")
    words, parts = words | (header or {}), parts | (arrays or {})
    for name in without:
        words.pop(name, None)
        parts.pop(name, None)
    write_container(path, words, parts)


def test_state_of_another_run_is_refused(kept):
    """Other data, K, settings or seed make another identity."""
    with pytest.raises(StateError, match="another run"):
        trained(kept, identity="b")


def test_state_made_with_other_threads_is_refused(kept):
    """Thread count changes bits, so going on would not be bit for bit."""
    rewrite(kept, header={"threads": 64})
    with pytest.raises(StateError, match="64 threads"):
        trained(kept)


@pytest.mark.parametrize("change", [{"header": {"version": "keyhole 9.9 and torch 1.0"}}, {"without": ["version"]}])
def test_state_of_another_version_is_refused(kept, change):
    """Of Keyhole or of torch; a state that does not tell is of an older one."""
    rewrite(kept, **change)
    with pytest.raises(StateError, match=r"was made with (keyhole 9\.9|an older).* remove .*without resume"):
        trained(kept)


@pytest.mark.parametrize(
    "change",
    [
        {"arrays": {"task.net.0.weight": np.zeros((3, 3), np.float32)}},
        {"arrays": {"task.other": np.zeros(3, np.float32)}},
        {"arrays": {"optimiser.0.exp_avg": np.zeros((3, 3), np.float32)}},
        {"arrays": {"optimiser.77.exp_avg": np.zeros(3, np.float32)}},
        {"arrays": {"average.level": np.zeros(3, np.float32)}},
        {"arrays": {"generator": np.zeros(3, np.uint8)}},
        *({"without": [name]} for name in ("task.level", "average.level", "best.level")),
        *({"without": [name]} for name in ("order", "generator", "global.cpu", "identity", "threads", "stale")),
    ],
)
def test_state_that_does_not_fit_says_what_to_do(kept, change):
    """Code that changed without its version: other shapes, other names, things that are gone. Never a raw error."""
    rewrite(kept, **change)
    with pytest.raises(StateError, match=f"remove {kept.folder}, or start anew without resume"):
        trained(kept)


SENSELESS = [-1, 0.5, 10**30, float("nan"), "text", None, [], {}, [{"a": 1}], [None], True]


NAMES = ["step", "finished", "stale", "best_error", "history", "recent", "position", "threads"]


@pytest.mark.parametrize("name", NAMES)
def test_a_state_whose_header_makes_no_sense_is_refused_or_goes_on(kept, name):
    """A right checksum over wrong words: a StateError, or a training that ends; never a raw error."""
    header, _ = read_container(kept.folder / "toy.state", "training")
    for value in SENSELESS:
        rewrite(kept, header={**header, name: value})
        with contextlib.suppress(TrainingError):
            history = trained(kept)[1]
            assert all(math.isfinite(row["validation"]) for row in history)


DAMAGE = {
    "NaN": lambda array: np.full_like(array, np.nan),
    "negative": lambda array: np.full_like(array, -1),
    "large": lambda array: np.full_like(array, 100),
    "empty": lambda array: array.ravel()[:0],
    "longer": lambda array: np.concatenate([array.ravel()] * 2),
    "double": lambda array: array.astype(np.float64),
    "integers": lambda array: array.astype(np.int32),
    "complex": lambda array: array.astype(np.complex64),
}


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_state_whose_arrays_make_no_sense_is_refused_or_goes_on(kept, damage):
    header, arrays = read_container(kept.folder / "toy.state", "training")
    for name, array in arrays.items():
        if damage in ("NaN", "negative") and array.dtype.kind not in ("i" if damage == "negative" else "") + "f":
            continue
        write_container(kept.folder / "toy.state", header, arrays | {name: DAMAGE[damage](array)})
        with contextlib.suppress(TrainingError):
            trained(kept)


@pytest.mark.parametrize("moment", ["step", "exp_avg", "exp_avg_sq"])
def test_a_state_that_lacks_a_moment_is_refused(kept, moment):
    rewrite(kept, without=[f"optimiser.{index}.{moment}" for index in range(9)])
    with pytest.raises(StateError, match="does not fit"):
        trained(kept)


def test_an_order_of_samples_that_there_are_not_is_refused(kept):
    rewrite(kept, arrays={"order": np.array([5, 10**6])}, header={"position": 0})
    with pytest.raises(StateError, match="does not fit"):
        trained(kept)


def test_a_state_without_a_best_is_no_reason_to_refuse(tmp_path):
    """Where no validation gave a number yet, there are no best weights to keep."""

    class Blind(Toy):
        def validate(self):
            return super().validate() if int(self.count) > 25 else float("nan")

    run = Run(folder=tmp_path)
    with pytest.raises(Interrupted):
        trained(run, Blind(stop_at=20))
    assert_same(trained(Run(), Blind())[0], trained(replace(run, resume=True), Blind())[0])


def test_a_damaged_state_is_refused(kept):
    """A flipped byte is an error, never a silent restart."""
    path = kept.folder / "toy.state"
    blob = bytearray(path.read_bytes())
    blob[len(blob) // 2] ^= 1
    path.write_bytes(blob)
    with pytest.raises(StateError, match=r"damaged.*remove .*without resume"):
        trained(kept)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    """State under a file is a StorageError."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        trained(Run(folder=tmp_path / "file" / "sub"))


def test_samples_are_given_back():
    """After training the handlers are those from before."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    trained(Run())
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))


def test_early_stop():
    """With no better validation for as long as the patience, training ends before its steps."""
    task = Toy()
    train(
        task,
        TrainSettings(steps=400, batch_size=8, learning_rate=50.0, validation_steps=100, patience=3),
        name="t",
        identity="",
        run=Run(),
    )
    assert task.calls < 100


def test_a_task_may_say_that_it_is_done(tmp_path):
    """Asked at each look: training ends there, leaves the weights of that step, and does not go on when resumed."""

    class Content(Toy):
        def validate(self):
            return None

        def done(self):
            return int(self.count) >= 10

    run = Run(folder=tmp_path)
    task, again = Content(), Content()
    found, history = trained(run, task)
    assert task.calls == 16  # a look every 8 steps: at 8 it is not done, at 16 it is
    assert [row["step"] for row in history] == [0, 8, 16]
    assert int(found["count"]) == 16
    assert_same(found, trained(replace(run, resume=True), again)[0])
    assert again.calls == 0


def test_the_rate_rises_and_falls():
    """Linear up over the warm-up, then down to zero."""
    assert one_cycle(0.05, 0.1) == pytest.approx(0.5)
    assert one_cycle(0.1, 0.1) == pytest.approx(1)
    assert one_cycle(1.0, 0.1) == pytest.approx(0)


def test_an_unknown_schedule_is_refused():
    """By a list of those there are."""
    with pytest.raises(ValueError, match="there are cycle, constant"):
        TrainSettings(schedule="zigzag")


def test_every_sample_comes_once_before_any_comes_again(tmp_path):
    """Batches walk through a permutation."""
    seen = []

    class Spy(Toy):
        def forward(self, batch, generator):
            seen.append(batch.clone())
            return super().forward(batch, generator)

    trained(Run(), Spy(), TrainSettings(steps=12, batch_size=10))
    first = torch.cat(seen[:5])
    assert sorted(first.tolist()) == list(range(50))
    assert json.dumps([len(batch) for batch in seen]) == json.dumps([10] * 12)


@pytest.mark.parametrize(
    ("asked", "bears", "made_for_it", "taken"),
    [
        ("auto", True, True, "bf16-mixed"),
        ("auto", True, False, "32-true"),
        ("auto", False, True, "32-true"),
        ("32-true", True, True, "32-true"),
        ("bf16-mixed", False, False, "bf16-mixed"),
    ],
)
def test_half_precision_is_taken_where_it_pays_and_does_no_harm(monkeypatch, asked, bears, made_for_it, taken):
    """What is asked for goes first."""
    monkeypatch.setattr(Toy, "allows_bf16", bears)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": made_for_it})
    assert precision_of(Toy(), Run(precision=asked)) == taken


def test_what_is_trained_is_compiled_where_that_is_asked_for(monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda task: compiled.append(type(task)) or task)
    for asked in (False, True):
        values = np.random.default_rng(0).standard_normal((40, 4, 5))
        settings = {"train": {"steps": 3, "batch_size": 8}}
        kh.select(values, 3, method="vln", reconstructor="ridge", settings=settings, compiled=asked)
        assert len(compiled) == int(asked)


def test_a_validation_error_that_is_never_finite_is_named():
    """No weights are the best then."""

    class NotInEvaluation(Toy):
        def validate(self):
            return float("nan")

    with pytest.raises(TrainingError, match="toy: the validation error was not finite at any step"):
        trained(Run(), NotInEvaluation())
