"""Checkpoints of an unfinished training, from which it resumes bit for bit.

They are Keyhole files rather than those of Fabric: no pickle is read, files are replaced atomically, and beside the
weights they hold what decides the next bit, the order of samples and all generators.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from keyhole.core.errors import PlanError, StorageError, TrainingError
from keyhole.core.processes import Processes
from keyhole.core.run import Run
from keyhole.core.storage import check_numbers, read_container, write_container

__all__ = ["Progress", "StateError", "TrainState", "clear_states"]

Weights = dict[str, Tensor]
Count = Annotated[int, Field(ge=0, lt=2**63)]


class StateError(TrainingError):
    """A checkpoint from which this training cannot resume."""


class Progress(BaseModel):
    """The numbers of a training, which are the header of its checkpoint.

    Attributes
    ----------
    step, finished
        Steps done, and whether training has ended.
    stale, best_error
        Validations since the last improvement, and lowest validation error.
    history, recent
        Rows of past validations, and the losses since the last one.
    position
        How many of the samples in the current order have been used.
    """

    model_config = ConfigDict(strict=True)

    step: Count = 0
    finished: bool = False
    stale: Count = 0
    best_error: float = float("inf")
    history: list[dict[str, float]] = []
    recent: list[float] = []
    position: Count = 0


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


class TrainState:
    """Everything that a training needs to resume, in memory and on disk.

    Parameters
    ----------
    task, optimiser
        What is trained, and by what; loaded in place on resume.
    run
        Seed, folder of checkpoints, and whether to resume.
    name, identity
        As in `keyhole.training.loop.train`.
    processes
        The processes that train together; all restore the same checkpoint, and the first one writes it.

    Attributes
    ----------
    progress
        Numbers and history.
    generator
        Draws the order of the samples, the same in every process, and in a single process masks and noise too.
    order
        Permutation of the samples. With several processes each goes through a contiguous part of it, so that each reads
        a part of the file of its own.
    averages, best
        EMA of the weights, and the best weights so far. Not `torch.optim.swa_utils.AveragedModel`, which would copy
        the data that a task holds in its buffers.

    Raises
    ------
    StateError
        The checkpoint to resume from belongs to another run or version, is damaged, or does not fit the task.
    """

    def __init__(
        self, task: nn.Module, optimiser: torch.optim.Optimizer, run: Run, *, name: str, identity: str,
        processes: Processes,
    ) -> None:  # fmt: skip
        self.task, self.optimiser, self.save_seconds, self.processes = task, optimiser, run.save_seconds, processes
        self.identity = {"identity": identity, "threads": torch.get_num_threads(), "version": _version()}
        self.identity |= {"processes": processes.count}
        self.generator = torch.Generator().manual_seed(run.seed_of(f"{name}: batches and masks"))
        self.progress, self.order = Progress(), torch.empty(0, dtype=torch.int64)
        self.averages, self.best = _copy(task), Weights()
        self.saved_at = time.monotonic()
        stem = name.replace(" ", "-") + (f"-{run.repeat}" if run.repeat else "")
        self.path = None if run.folder is None else run.folder / f"{stem}.state"
        if self.path is not None and run.resume and self.path.exists():
            self._restore(self.path)
        if processes.rank:
            self.path = None  # only the first process saves: the state is the same in all

    def next_batch(self, size: int, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        """Return the sample indices of the next batch, from a permutation; an incomplete last batch is dropped.

        Parameters
        ----------
        size
            Number of samples for this process, at most its part of them.
        draw
            Draws a new permutation, the same in every process.
        """
        if not (batch := self.upcoming(size, 1)):
            self.order, self.progress.position = draw(self.generator), 0
            batch = self.upcoming(size, 1)
        self.progress.position += size
        return batch[0]

    def upcoming(self, size: int, count: int) -> list[Tensor]:
        """Return the next batches, fewer at the end of the current permutation; nothing is drawn.

        Parameters
        ----------
        size
            As in `next_batch`.
        count
            Number of batches.
        """
        mine = self.processes.mine(self.order)
        starts = range(self.progress.position, len(mine) - size + 1, size)
        return [mine[start : start + size] for start in starts[:count]]

    @torch.no_grad()
    def average(self, decay: float) -> None:
        """Update the EMA of the weights, with a smaller decay in the first steps.

        Parameters
        ----------
        decay
            EMA decay; at step t at most `(1 + t) / (10 + t)`. Integer buffers are copied.
        """
        decay = min(decay, (1 + self.progress.step) / (10 + self.progress.step))
        for name, tensor in self.task.state_dict().items():
            if tensor.is_floating_point():
                self.averages[name].lerp_(tensor, 1 - decay)
            else:
                self.averages[name].copy_(tensor)

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the EMA weights inside a block, and restore the current weights afterwards."""
        current = _copy(self.task)
        self.task.load_state_dict(self.averages)
        try:
            yield
        finally:
            self.task.load_state_dict(current)

    def keep_if_best(self, error: float | None) -> None:
        """Keep a copy of the task's weights if their validation error is the lowest so far, or None."""
        if error is None or error < self.progress.best_error:
            self.best, self.progress.stale = _copy(self.task), 0
            self.progress.best_error = self.progress.best_error if error is None else error
        else:
            self.progress.stale += 1

    def save_if_due(self) -> None:
        """Save a checkpoint at the end of the training, or when `save_seconds` have passed since the last."""
        if self.progress.finished or time.monotonic() - self.saved_at >= self.save_seconds:
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
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{self.path.parent}: cannot be made: {error.strerror or error}") from error
        moments = self.optimiser.state_dict()["state"].items()
        parts = {
            "global": _global_states(),
            "task": self.task.state_dict(),
            "average": self.averages,
            "best": self.best,
            "optimiser": {f"{index}.{name}": value for index, own in moments for name, value in own.items()},
        }
        tensors = {f"{part}.{name}": tensor for part, weights in parts.items() for name, tensor in weights.items()}
        tensors |= {"order": self.order, "generator": self.generator.get_state()}
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        write_container(self.path, {"kind": "training", **self.identity, **self.progress.model_dump()}, arrays)
        self.saved_at = time.monotonic()
        return self.path

    def _restore(self, path: Path) -> None:
        """Load a checkpoint, or raise a StateError."""
        try:
            header, arrays = read_container(path, "training")
            self._check_identity(header, path)
            progress = Progress.model_validate({name: header[name] for name in Progress.model_fields})
            self._load(progress, {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
        except StateError:
            raise
        except PlanError as error:
            raise _refused(path, str(error).removeprefix(f"{path}: ")) from error
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise _refused(path, "does not fit what is to be trained, whose code may have changed") from error

    def _check_identity(self, header: dict[str, Any], path: Path) -> None:
        """Raise if resuming would not be bit for bit: another version, run or thread count."""
        made_with, threads = header.get("version", "an older keyhole"), self.identity["threads"]
        if made_with != self.identity["version"]:
            raise _refused(path, f"was made with {made_with}, and this is {self.identity['version']}")
        if header["identity"] != self.identity["identity"]:
            reason = "belongs to another run (other data, K, method, network, loss, settings or seed); give the same"
            raise _refused(path, reason)
        if header["threads"] != threads:
            reason = f"was made with {header['threads']} threads and there are {threads} now"
            raise _refused(path, f"{reason}; results would differ in their last bits: set OMP_NUM_THREADS")
        if header["processes"] != self.processes.count:
            reason = f"was made by {header['processes']} processes and there are {self.processes.count} now"
            raise _refused(path, f"{reason}, which draw other masks; start as many")

    def _load(self, progress: Progress, tensors: Weights) -> None:
        """Check everything, since a mistake would only show in a later step, then load it."""
        for name, tensor in tensors.items():
            check_numbers(name, tensor.numpy(), infinite=True)
        order, samples, history = tensors["order"], getattr(self.task, "samples", 0), progress.history
        if order.dtype != torch.int64 or order.ndim != 1 or progress.position > len(order):
            raise ValueError("the order of samples is not valid")
        if len(order) and not 0 <= int(order.min()) <= int(order.max()) < samples:
            raise ValueError("the order has sample indices out of range")
        if any("step" not in row for row in history) or len({"validation" in row for row in history}) > 1:
            raise ValueError("the history has rows without a step, or only some with a validation")
        own = self.task.state_dict()
        current, averages, best = (_like(own, _part(tensors, part)) for part in ("task", "average", "best"))
        if not current or not averages or (progress.finished and not best):
            raise ValueError("weights are missing")  # the best may be, while no validation error was finite
        self._load_moments(_part(tensors, "optimiser"))
        self.task.load_state_dict(current)
        self.generator.set_state(tensors["generator"])
        _set_global_states(_part(tensors, "global"))
        self.progress, self.order, self.averages, self.best = progress, order, averages, best

    def _load_moments(self, moments: Weights) -> None:
        """Load the moments of AdamW, after checks that torch does not make."""
        whole, state = self.optimiser.state_dict(), dict[int, Weights]()
        parameters = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        for index, parameter in enumerate(parameters):
            like = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
            if own := _like(like, _part(moments, str(index))):
                state[index] = own
                if bool((own["step"] < 0) | (own["exp_avg_sq"] < 0).any()):
                    raise ValueError(f"moments of parameter {index} are negative")
        if sum(len(own) for own in state.values()) != len(moments):
            raise ValueError("there are moments of parameters that do not exist")
        self.optimiser.load_state_dict({"state": state, "param_groups": whole["param_groups"]})


def _copy(task: nn.Module) -> Weights:
    """Copy the state dict."""
    return {name: tensor.detach().clone() for name, tensor in task.state_dict().items()}


def _part(tensors: Weights, prefix: str) -> Weights:
    """Return the tensors under a prefix, without it."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def _like(own: Weights, found: Weights) -> Weights:
    """Move weights to the devices of others; names, shapes and types must be theirs, or there are none at all."""
    declared, given = ({name: (t.shape, t.dtype) for name, t in some.items()} for some in (own, found))
    if given and declared != given:
        raise ValueError("weights of other names, shapes or types")
    return {name: tensor.to(own[name].device) for name, tensor in found.items()}


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
