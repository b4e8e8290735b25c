"""What each of two processes does in the tests of distributed training."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import keyhole as kh
from example_data import smooth
from keyhole.core.interrupts import Interrupted
from keyhole.core.processes import Processes, processes
from keyhole.core.run import Event, Run
from keyhole.data.preparation import prepare
from keyhole.data.samples import Samples
from keyhole.data.target import Target
from keyhole.masks import MaskSample
from keyhole.models.predictors import Network
from keyhole.models.reconstructors import RECONSTRUCTORS
from keyhole.placement import SELECTORS
from keyhole.placement.learned import JointTask
from keyhole.training.batch_norm import synchronised
from keyhole.training.loop import Task, train
from keyhole.training.settings import TrainSettings

STEPS = 4
TRAIN = {"steps": STEPS, "batch_size": 16, "validation_steps": 2, "ema_decay": 0.0}
SITES = np.array([1, 6, 11])
Arrays = dict[str, np.ndarray]


def data(kind: str = "complete") -> Samples:
    """Samples of 8 x 8 cells: complete, some values missing (unevenly in the order of samples), or with a target."""
    values = smooth(48, 8, 8).astype(np.float32)
    if kind == "missing":
        values[:16][np.random.default_rng(0).random((16, 8, 8)) < 0.6] = np.nan
        return kh.read(values, missing="model")
    cause = values[:, 0, 0] - values[:, 3, 3]
    return kh.read(values).with_target(Target.of(cause > 0)) if kind == "target" else kh.read(values)


def learned(case: dict[str, Any], run: Run) -> tuple[Any, list[dict[str, float]]]:
    """Train the task of a selector."""
    settings = {"train": TRAIN} | {name: value for name, value in case.items() if name not in ("method", "data")}
    train_part = prepare(data(case.get("data", "complete")), None, 0).train
    return SELECTORS.make(case["method"], settings).learn(train_part, 3, run)


def state_of(module: nn.Module) -> Arrays:
    return {name: tensor.detach().numpy().copy() for name, tensor in module.state_dict().items()}


def trainings(cases: dict[str, dict[str, Any]]) -> dict[str, tuple[Arrays, Any]]:
    """Weights and history of trained selectors."""
    found = {}
    for name, case in cases.items():
        task, history = learned(case, Run(seed=3))
        found[name] = (state_of(task), history)
    return found


def models(names: list[str]) -> dict[str, Arrays]:
    """Weights of networks behind fixed sites: reconstructors, a predictor and an auto-encoder of rows."""
    found, small = {}, {"train": TRAIN}
    parts, labelled = (prepare(data(kind), None, 0) for kind in ("complete", "target"))
    for name in names:
        fitted = RECONSTRUCTORS.make(name, small).fit(parts.train, SITES, validation=parts.validation, run=Run(seed=3))
        found[name] = fitted.state()[1]
    predictor = Network(train=TRAIN).fit(labelled.train, SITES, validation=labelled.validation, run=Run(seed=3))
    found["predictor"] = predictor.learned()[1]
    found["aefs"] = {"sites": SELECTORS.make("aefs", small).select(parts.train, 3, validation=None, run=Run()).sites}
    return found


def steps(cases: dict[str, dict[str, Any]]) -> dict[str, tuple[Arrays, Any, Arrays, Arrays]]:
    """Weights and history of trained selectors, and gradients and updates of one more step.

    The step is that of two processes, averaged, and that of one that has the draws of both. By then the budget's
    multiplier is not zero.
    """
    found = {}
    for name, case in cases.items():
        task, history = learned(case, Run(seed=3))
        found[name] = (state_of(task), history, *_step(task))
    return found


def _step(task: JointTask) -> tuple[Arrays, Arrays]:
    several, draws = processes(), task.settings.n_masks // 2
    if task.settings.masks == "soft":  # marginals so near one that they are clipped
        task.distribution.warm_start([5, 20, 40], selected_marginal=0.99999)
    task.train()
    alone = copy.deepcopy(task)
    alone.distribute(Processes())
    draw = alone.distribution.draw
    both = [draw(draws, torch.Generator().manual_seed(rank)) for rank in (0, 1)]
    names = MaskSample.__dataclass_fields__
    joined = MaskSample(**{name: torch.cat([getattr(one, name) for one in both]) for name in names})
    alone.distribution.draw = lambda draws, generator: joined  # type: ignore[method-assign]
    batch = torch.arange(16)
    with synchronised(task, several):
        found = _backward(task, several.mine(batch), torch.Generator().manual_seed(several.rank))
    expected = _backward(alone, batch, torch.Generator())
    mean = {name: several.mean(torch.from_numpy(array)).numpy() for name, array in found.items()}
    return mean, expected


def _backward(task: JointTask, batch: torch.Tensor, generator: torch.Generator) -> Arrays:
    """Gradients, and state after the updates that are not by gradient."""
    task.zero_grad()
    parts, after = task(batch, generator)
    sum(parts.values()).backward()
    found = {f"gradient of {name}": one.grad.numpy().copy() for name, one in task.named_parameters()}
    after()
    return found | {name: array.astype(np.float64) for name, array in state_of(task).items()}


class Draws(Task):
    """Keeps what is drawn from the step's generator and by dropout, and the batches."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.samples, self.stop_at = 30, stop_at
        self.level = nn.Parameter(torch.zeros(()))
        self.seen: dict[str, list[Any]] = {"noise": [], "dropout": [], "batch": []}

    def forward(self, batch: torch.Tensor, generator: torch.Generator) -> tuple[dict[str, torch.Tensor], None]:
        noise = torch.randn(200, generator=generator)
        self.seen["noise"].append(noise.numpy().copy())
        self.seen["dropout"].append(nn.functional.dropout(torch.ones(200), 0.5).numpy().copy())
        self.seen["batch"].append(batch.tolist())
        return {"loss": (self.level - noise.mean()).square() + batch.float().mean() * 1e-3}, None


def draws(steps: int) -> tuple[dict[str, list[Any]], list[dict[str, float]]]:
    """What is drawn in some steps, and the history."""
    task = Draws()
    history = train(task, TrainSettings(steps=steps, batch_size=6), name="draws", identity="", run=Run(seed=3))
    return task.seen, history


class Blind(Task):
    """Validation errors that are not the same in all processes, of which one would stop early."""

    def __init__(self) -> None:
        super().__init__()
        self.samples, self.level = 8, nn.Parameter(torch.zeros(()))

    def forward(self, batch: torch.Tensor, generator: torch.Generator) -> tuple[dict[str, torch.Tensor], None]:
        return {"loss": (self.level - 1).square() + 0 * batch.sum()}, None

    def validate(self) -> float:
        return float(self.level if processes().rank else -3 * self.level)


def disagreement() -> list[dict[str, float]]:
    """Return the history of a training whose processes disagree about their validation error."""
    settings = TrainSettings(steps=30, batch_size=4, patience=2, validation_steps=30, ema_decay=0.0)
    return train(Blind(), settings, name="blind", identity="", run=Run())


def resumed(case: dict[str, Any], folder: Path) -> list[tuple[Arrays, Any]]:
    """Weights and history of a training left alone, and of one that a signal to the second process stopped."""

    def stop(event: Event) -> None:
        if event.step == STEPS // 2 and processes().rank == 1:
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run, found = Run(seed=3, folder=folder), []
    with contextlib.suppress(Interrupted):
        learned(case, replace(run, callback=stop))
        raise AssertionError("it was not stopped")
    for one in (Run(seed=3), replace(run, resume=True)):
        task, history = learned(case, one)
        found.append((state_of(task), history))
    return found
