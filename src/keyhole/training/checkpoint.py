"""Checkpoints of an unfinished training, from which it resumes bit for bit."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from keyhole.core.errors import PlanError, StorageError, TrainingError
from keyhole.core.processes import is_first
from keyhole.core.run import Run
from keyhole.core.storage import check_numbers, read_container, write_container

__all__ = ["StateError", "TrainState", "clear_states"]

Weights = dict[str, Tensor]
Count = Annotated[int, Field(ge=0, lt=2**63)]
_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}  # of AdamW


class StateError(TrainingError):
    """A checkpoint from which this training cannot resume."""


class _Header(BaseModel):
    """The typed header of a checkpoint."""

    model_config = ConfigDict(strict=True)

    step: Count
    finished: bool
    stale: Count
    best_error: float
    history: list[dict[str, float]]
    recent: list[float]
    position: Count


def clear_states(folder: Path) -> None:
    """Remove all checkpoints from a folder, and the folder if it is empty then.

    Parameters
    ----------
    folder
        The folder; files other than ``*.state`` are kept.
    """
    for path in folder.glob("*.state"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


@dataclass
class TrainState:
    """Everything that a training needs to resume.

    Attributes
    ----------
    task, optimiser, generator
        What is trained, and by what; the generator draws batches, masks and noise.
    path
        File of the checkpoint; None where none is saved.
    identity
        Fingerprint of the run.
    save_seconds
        Least time between two checkpoints.
    step, finished, stale, best_error
        Steps done, whether training has ended, validations since the last improvement, lowest validation error.
    history, recent
        Rows of past validations, and the losses since the last one.
    order, position
        Permutation of the samples, and how much of it has been used.
    averages, best
        EMA of the weights, and the best weights so far.
    saved_at
        Monotonic time of the last checkpoint.
    """

    task: nn.Module
    optimiser: torch.optim.Optimizer
    generator: torch.Generator
    path: Path | None
    identity: str
    save_seconds: float
    step: int = 0
    finished: bool = False
    stale: int = 0
    best_error: float = float("inf")
    history: list[dict[str, float]] = field(default_factory=list)
    recent: list[float] = field(default_factory=list)
    order: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    position: int = 0
    averages: Weights = field(default_factory=dict)
    best: Weights = field(default_factory=dict)
    saved_at: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(
        cls, task: nn.Module, optimiser: torch.optim.Optimizer, run: Run, *, name: str, identity: str
    ) -> TrainState:
        """Start a new training, or load the checkpoint in the run's folder if the run resumes.

        Parameters
        ----------
        task, optimiser
            What is trained; loaded in place on resume.
        run
            Seed, folder, and whether to resume.
        name, identity
            As in `keyhole.training.loop.train`.

        Returns
        -------
        TrainState

        Raises
        ------
        StateError
            The checkpoint belongs to another run or version, is damaged, or does not fit the task.
        """
        generator = torch.Generator().manual_seed(run.seed_of(f"{name}: batches and masks"))
        stem = name.replace(" ", "-") + (f"-{run.repeat}" if run.repeat else "")
        path = None if run.folder is None else run.folder / f"{stem}.state"
        state = cls(task, optimiser, generator, path, identity, run.save_seconds)
        state.averages = _copy(task)
        if path is not None and run.resume and path.exists():
            state._restore(path)
        if not is_first():
            state.path = None  # only the first process saves: the state is the same in all
        return state

    def next_batch(self, size: int, samples: int, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        """Return the sample indices of the next batch, from a permutation; an incomplete last batch is dropped.

        Parameters
        ----------
        size
            Batch size, reduced to the number of samples if larger.
        samples
            Number of samples.
        draw
            Draws a new permutation.

        Returns
        -------
        Tensor
            Int64 indices.
        """
        size = min(size, samples)
        if self.position + size > len(self.order):
            self.order, self.position = draw(self.generator), 0
        batch = self.order[self.position : self.position + size]
        self.position += size
        return batch

    @torch.no_grad()
    def average(self, task: nn.Module, decay: float) -> None:
        """Update the EMA of the weights, with a smaller decay in the first steps.

        Parameters
        ----------
        task
            Holds the current weights; integer buffers are copied.
        decay
            EMA decay; at step t at most `(1 + t) / (10 + t)`.
        """
        decay = min(decay, (1 + self.step) / (10 + self.step))
        for name, tensor in task.state_dict().items():
            if tensor.is_floating_point():
                self.averages[name].lerp_(tensor, 1 - decay)
            else:
                self.averages[name].copy_(tensor)

    @contextlib.contextmanager
    def averaged(self, task: nn.Module) -> Iterator[None]:
        """Use the EMA weights inside a block, and restore the current weights afterwards.

        Parameters
        ----------
        task
            The task whose weights are exchanged.
        """
        current = _copy(task)
        task.load_state_dict(self.averages)
        try:
            yield
        finally:
            task.load_state_dict(current)

    def keep_if_best(self, task: nn.Module, error: float | None) -> None:
        """Keep a copy of the task's weights if their validation error is the lowest so far.

        Parameters
        ----------
        task
            Holds the weights that were validated.
        error
            Validation error; None always keeps the latest weights.
        """
        if error is None or error < self.best_error:
            self.best, self.stale = _copy(task), 0
            self.best_error = self.best_error if error is None else error
        else:
            self.stale += 1

    def restore_best(self, task: nn.Module) -> None:
        """Load the best weights.

        Parameters
        ----------
        task
            Modified in place.
        """
        task.load_state_dict(self.best)

    def save_if_due(self, finished: bool) -> None:
        """Save a checkpoint at the end, or when `save_seconds` have passed since the last.

        Parameters
        ----------
        finished
            Whether training has ended.
        """
        if finished or time.monotonic() - self.saved_at >= self.save_seconds:
            self.save()

    def save(self) -> Path | None:
        """Write the checkpoint atomically.

        Returns
        -------
        Path or None
            The file; None if no checkpoints are saved.

        Raises
        ------
        StorageError
            The folder cannot be created, or the file cannot be written.
        """
        if self.path is None:
            return None
        header = {
            "kind": "training",
            "identity": self.identity,
            "step": self.step,
            "finished": self.finished,
            "stale": self.stale,
            "best_error": self.best_error,
            "history": self.history,
            "recent": self.recent,
            "position": self.position,
            "threads": torch.get_num_threads(),
            "version": _version(),
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{self.path.parent}: cannot be made: {error.strerror or error}") from error
        write_container(self.path, header, self._arrays())
        self.saved_at = time.monotonic()
        return self.path

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the tensors of the checkpoint by name."""
        arrays = {"order": self.order, "generator": self.generator.get_state()}
        arrays |= {f"global.{kind}": value for kind, value in _global_states().items()}
        for part, weights in (("task", _copy(self.task)), ("average", self.averages), ("best", self.best)):
            arrays |= {f"{part}.{name}": tensor for name, tensor in weights.items()}
        for index, moments in self.optimiser.state_dict()["state"].items():
            arrays |= {f"optimiser.{index}.{name}": value for name, value in moments.items()}
        return {name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()}

    def _restore(self, path: Path) -> None:
        """Load a checkpoint, or raise a StateError."""
        try:
            header, arrays = read_container(path, "training")
            self._check(header, path)
            self._load(header, {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
        except StateError:
            raise
        except PlanError as error:
            raise _refused(path, str(error).removeprefix(f"{path}: ")) from error
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise _refused(path, "does not fit what is to be trained, whose code may have changed") from error

    def _check(self, header: dict[str, Any], path: Path) -> None:
        """Raise if resuming would not be bit for bit: another version, run or thread count."""
        made_with, threads = header.get("version", "an older keyhole"), torch.get_num_threads()
        if made_with != _version():
            raise _refused(path, f"was made with {made_with}, and this is {_version()}")
        if header["identity"] != self.identity:
            reason = "belongs to another run (other data, K, method, settings or seed); give the same ones"
            raise _refused(path, reason)
        if header["threads"] != threads:
            reason = f"was made with {header['threads']} threads and there are {threads} now"
            raise _refused(path, f"{reason}; results would differ in their last bits: set OMP_NUM_THREADS")

    def _load(self, fields: dict[str, Any], tensors: Weights) -> None:
        """Validate header and tensors, then load them."""
        header = _Header.model_validate(fields)
        self._check_content(header, tensors)
        self.task.load_state_dict(_like(_part(tensors, "task"), self.task))
        self.averages, best = _like(_part(tensors, "average"), self.task), _part(tensors, "best")
        self.best = _like(best, self.task) if best else {}  # empty while no validation error was finite
        self._restore_optimiser(_part(tensors, "optimiser"))
        self.generator.set_state(tensors["generator"])
        _set_global_states(_part(tensors, "global"))
        self.order, self.position = tensors["order"], header.position
        self.step, self.finished, self.stale = header.step, header.finished, header.stale
        self.best_error, self.history, self.recent = header.best_error, header.history, header.recent

    def _check_content(self, header: _Header, tensors: Weights) -> None:
        """Raise, before anything is loaded, for content that would only fail in a later step."""
        for name, tensor in tensors.items():
            check_numbers(name, tensor.numpy(), infinite=True)
        order, samples = tensors["order"], getattr(self.task, "samples", 0)
        if order.dtype != torch.int64 or order.ndim != 1 or header.position > len(order):
            raise ValueError("the order of samples is not valid")
        if len(order) and not 0 <= int(order.min()) <= int(order.max()) < samples:
            raise ValueError("the order has sample indices out of range")
        if header.finished and not _part(tensors, "best"):
            raise ValueError("finished, but without best weights")
        if any("step" not in row for row in header.history) or len({"validation" in row for row in header.history}) > 1:
            raise ValueError("the history has rows without a step, or only some with a validation")

    def _restore_optimiser(self, moments: Weights) -> None:
        """Load the moments of AdamW, after checks that torch does not make."""
        shapes = [parameter.shape for group in self.optimiser.param_groups for parameter in group["params"]]
        state: dict[int, Weights] = {}
        for name, tensor in moments.items():
            index, key = name.split(".", 1)
            needed = torch.Size() if key == "step" else shapes[int(index)]
            signed = key == "exp_avg"
            if int(index) < 0 or tensor.shape != needed or not (signed or bool((tensor >= 0).all())):
                raise ValueError(f"{key} of parameter {index} is not valid")
            if tensor.dtype != torch.float32:
                raise ValueError(f"{key} of parameter {index} is of type {tensor.dtype}")
            state.setdefault(int(index), {})[key] = tensor
        if any(set(own) != _MOMENTS for own in state.values()):
            raise ValueError("moments are missing")
        whole = self.optimiser.state_dict()
        self.optimiser.load_state_dict({"state": state, "param_groups": whole["param_groups"]})


def _copy(task: nn.Module) -> Weights:
    """Copy the state dict."""
    return {name: tensor.detach().clone() for name, tensor in task.state_dict().items()}


def _part(tensors: Weights, prefix: str) -> Weights:
    """Return the tensors under a prefix, without it."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def _like(weights: Weights, task: nn.Module) -> Weights:
    """Move weights to the task's devices; names, shapes and types must be those of the task."""
    own = task.state_dict()
    declared, found = ({name: (t.shape, t.dtype) for name, t in some.items()} for some in (own, weights))
    if declared != found:
        raise ValueError("weights of other names, shapes or types")
    return {name: tensor.to(own[name].device) for name, tensor in weights.items()}


def _global_states() -> Weights:
    """Return the states of torch's global generators."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_global_states(states: Weights) -> None:
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def _refused(path: Path, reason: str) -> StateError:
    """Build the error, with what to do about it."""
    return StateError(f"{path}: {reason}; remove {path.parent}, or start anew without resume")


def _version() -> str:
    return f"keyhole {version('keyhole')} and torch {torch.__version__}"
