"""Training of networks by samples of inputs and targets, as reconstructors and predictors need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.run import Run, digest
from keyhole.models.objectives import known_share
from keyhole.training.loop import Task, train
from keyhole.training.settings import TrainSettings

__all__ = ["CHUNK", "Batches", "FixedBatches", "SupervisedTask", "tensor_of", "train_settings_for", "train_supervised"]

CHUNK = 256  # samples that a network maps at a time; with more, convolutions are limited by memory bandwidth


class Batches(Protocol):
    """Draws the inputs of a model, and then the targets, from indices of samples and a source of random numbers."""

    samples: int

    def __call__(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return inputs and targets of the samples with the given indices."""


class FixedBatches(nn.Module):
    """Batches of inputs and targets without augmentation.

    Parameters
    ----------
    parts
        The inputs of the model, then the targets, of all samples.

    Examples
    --------
    >>> batches = FixedBatches(torch.arange(6.0).reshape(3, 2), torch.arange(3.0))
    >>> batches(torch.tensor([2, 0]))
    (tensor([[4., 5.],
            [0., 1.]]), tensor([2., 0.]))
    """

    def __init__(self, *parts: Tensor) -> None:
        super().__init__()
        self.samples = len(parts[0])
        for position, part in enumerate(parts):
            self.register_buffer(f"part_{position}", part, persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return inputs and targets of the given samples; the generator is not used."""
        return tuple(part[batch] for part in self.buffers())


class SupervisedTask(Task):
    """Minimise a loss of a model's outputs and the targets.

    Parameters
    ----------
    model
        Maps inputs to outputs.
    batches
        Training batches, a module.
    validation
        Validation samples, or None to keep the last weights.
    loss
        Mean loss of outputs and targets; where targets are NaN, of the known ones.
    has_missing
        Whether targets may be NaN.
    allows_bf16
        Whether bfloat16 mixed precision does not harm the result.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        validation: FixedBatches | None,
        loss: Callable[[Tensor, Tensor], Tensor],
        *,
        has_missing: bool = False,
        allows_bf16: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.batches, self.validation, self.loss = model, batches, validation, loss
        self.samples, self.has_missing, self.allows_bf16 = batches.samples, has_missing, allows_bf16

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], None]:
        """Return the loss of a batch; see `Task.forward`."""
        *inputs, targets = self.batches(batch, generator)
        loss = self.loss(self.model(*inputs), targets)
        return {"loss": loss * known_share(targets, self.processes) if self.has_missing else loss}, None

    def validate(self) -> float | None:
        """Return the mean loss of the validation samples, in chunks."""
        if self.validation is None:
            return None
        total = 0.0
        for chunk in torch.split(torch.arange(self.validation.samples), CHUNK):
            *inputs, targets = self.validation(chunk)
            total += float(self.loss(self.model(*inputs), targets)) * len(chunk)
        return total / self.validation.samples


def train_supervised(
    task: SupervisedTask, described: str, train_settings: TrainSettings, *, stage: str, run: Run
) -> list[dict[str, float]]:
    """Train a task, whose checkpoints are identified by its data, weights, settings and seed.

    Parameters
    ----------
    task
        Model and data; left with its best weights, on the CPU.
    described
        What tells the model from others: its settings, and its structure where these do not say it.
    train_settings
        Those of the training.
    stage
        Name of the training, for progress and checkpoints.
    run
        Seed, deadline, and folder for checkpoints.

    Returns
    -------
    list of dict
        The history, as `keyhole.training.loop.train` returns it.
    """
    data = digest(*(part.detach().cpu().numpy() for part in (*task.parameters(), *task.buffers())))
    identity = f"{data} {described} {train_settings} {run.seed}"
    history = train(task, train_settings, name=stage, identity=identity, run=run)
    task.model.cpu().eval()
    return history


def train_settings_for(samples: int, largest: int = 256, *, limited: bool = False) -> TrainSettings:
    """Return the default number of steps and batch size for a number of samples.

    Twenty epochs, but at least 600 and at most 6000 steps; batches of a fifth of the samples, from 16 to ``largest``.

    Parameters
    ----------
    samples
        Number of training samples.
    largest
        Largest batch size.
    limited
        Whether there is a deadline. Then the clock ends the training, and up to forty epochs or 20000 steps are
        allowed.

    Examples
    --------
    >>> train_settings_for(48_000).steps
    3750
    """
    epochs, limit = (40, 20_000) if limited else (20, 6000)
    batch = int(min(largest, max(16, samples // 5)))
    return TrainSettings(batch_size=batch, steps=int(min(limit, max(600, epochs * samples // batch))))


def tensor_of(array: NDArray[Any]) -> Tensor:
    """Return an array as a tensor in single precision."""
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
