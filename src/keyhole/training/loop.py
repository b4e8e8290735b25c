"""The training loop: one loop for all networks and mask distributions, on lightning-fabric."""

from __future__ import annotations

import contextlib
import logging
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from keyhole.core.callbacks import Moment
from keyhole.core.errors import SettingsError, TrainingError
from keyhole.core.interrupts import Interrupted, Pending, deferred
from keyhole.core.memory import explain_out_of_memory
from keyhole.core.processes import Processes, processes
from keyhole.core.run import Event, Run
from keyhole.training.batch_norm import synchronised
from keyhole.training.checkpoint import TrainState
from keyhole.training.schedules import SCHEDULES
from keyhole.training.settings import TrainSettings

__all__ = ["After", "Task", "precision_of", "seconds_per_step", "seeded", "supports_bf16", "train"]

After = Callable[[], None] | None

_TIMED_STEPS = 3  # repetitions of which the fastest is the time of a step
_AHEAD = 2  # batches read ahead, one ready and one being read: more would only take memory


class Task(nn.Module, ABC):
    """Base class: a module with a loss for a batch of samples, to be trained by `train`.

    Keep data in non-persistent buffers, so that they move with the device and stay out of checkpoints. All state that
    a resumed run needs must be a parameter or a persistent buffer.

    Attributes
    ----------
    samples : int
        Number of training samples; a subclass sets it.
    allows_bf16 : bool
        Whether bfloat16 mixed precision does not harm the result.
    processes : Processes
        The processes of distributed training; see `distribute`.
    """

    samples: int
    allows_bf16: bool = False
    processes: Processes = Processes()

    @abstractmethod
    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], After]:
        """Compute the loss of a batch.

        Parameters
        ----------
        batch
            Sample indices, `(batch,)`; in distributed training those of this process. The gradients of all processes
            are averaged, so the loss is a mean over samples, and terms that do not depend on them count once.
        generator
            Source of all random numbers of the step, other ones in each process; its state is part of the checkpoint.
            Every parameter must have a gradient in every step.

        Returns
        -------
        losses : dict of Tensor
            Named scalar terms, whose sum is minimised.
        after : callable or None
            Called after the optimiser's step, for updates other than by gradient (a Lagrange multiplier, say).
        """

    def groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups of the optimiser.

        Returns
        -------
        list of dict
            As in `torch.optim`; a group may set its own ``lr``, which the schedule scales in proportion.
        """
        return [{"params": list(self.parameters())}]

    def distribute(self, processes: Processes) -> None:
        """Take note of the processes that train together; called by `train`.

        Parameters
        ----------
        processes
            For terms of the loss that are not a mean over samples, which must be combined over all processes.
        """
        self.processes = processes

    def prefetch(self, batches: list[Tensor]) -> None:
        """Begin to read batches from storage that `forward` will receive next; the default does nothing.

        Parameters
        ----------
        batches
            Sample indices of the batches, in order, the one of the current step first.
        """

    def close(self) -> None:
        """Release what `prefetch` holds; called at the end of the training, also of an interrupted one."""

    def order(self, generator: torch.Generator) -> Tensor:
        """Draw the order of the samples for one epoch.

        Parameters
        ----------
        generator
            Source of the permutation.

        Returns
        -------
        Tensor
            Sample indices, int64.
        """
        return torch.randperm(self.samples, generator=generator)

    def begin(self, progress: float) -> None:
        """Update schedules (temperature, k) before a step; the default does nothing.

        Parameters
        ----------
        progress
            Share of the training that is done, from 0 to 1.
        """

    def validate(self) -> float | None:
        """Compute the validation error.

        Returns
        -------
        float or None
            Lower is better; None, the default, keeps the latest weights and disables early stopping.
        """
        return None

    def done(self) -> bool:
        """Check for convergence after each validation; True ends the training.

        Returns
        -------
        bool
        """
        return False

    def figures(self) -> dict[str, float]:
        """Return metrics for the progress display and the history, beside the loss.

        Returns
        -------
        dict of float
        """
        return {}


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators inside a block (initial weights, dropout), and restore their state afterwards.

    Parameters
    ----------
    seed
        The seed.

    Examples
    --------
    >>> with seeded(0):
    ...     first = torch.rand(1)
    >>> with seeded(0):
    ...     bool(first == torch.rand(1))
    True
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def train(task: Task, settings: TrainSettings, *, name: str, identity: str, run: Run) -> list[dict[str, float]]:
    """Train a task with AdamW, an EMA of the weights and early stopping; the task is left with its best weights.

    Parameters
    ----------
    task
        Model and loss; modified in place.
    settings
        Steps, learning rate, schedule, patience and so on.
    name
        Name of this training, unique within a run: it names the checkpoint and derives the random numbers.
    identity
        Fingerprint of everything that defines the run (data, K, settings, seed); a checkpoint with another one is
        refused. Versions and thread count are recorded separately.
    run
        Seed, device, precision, time limit, checkpoint folder and callback.

    Returns
    -------
    list of dict
        The history, one row for each validation: ``step``, ``loss``, ``validation`` and the metrics of the task. The
        last has ``stopped`` if a callback ended the training.

    Raises
    ------
    TrainingError
        The loss is not finite, or does not depend on the weights; the last checkpoint is kept. Or the validation
        error was never finite.
    StateError
        The checkpoint to resume from belongs to another run or version, is damaged, or does not fit the task.
    Interrupted
        A signal arrived; the step was completed and a checkpoint saved if ``run.folder`` is set.

    Examples
    --------
    >>> class Mean(Task):
    ...     samples = 8
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.mean = nn.Parameter(torch.zeros(()))
    ...     def forward(self, batch, generator):
    ...         return {"mse": (self.mean - batch.float()).square().mean()}, None
    >>> history = train(Mean(), TrainSettings(steps=20, validation_steps=2), name="mean", identity="", run=Run())
    >>> [row["step"] for row in history]
    [0.0, 10.0, 20.0]
    """
    advice = 'lower the batch (--set train={"batch_size": 16}), take fewer draws, or coarsen the grid'
    with explain_out_of_memory(name, advice), seeded(run.seed_of(name)), deferred() as pending:
        task.distribute(processes())
        with synchronised(task, task.processes), contextlib.closing(task):
            loop = _Loop(task, settings, name, identity, run)
            loop.run_until_over(pending)
        if not loop.state.best:
            raise TrainingError(
                f"{name}: the validation error was not finite at any step, so that no weights are the best; check the "
                "network and the loss, where they are your own, in evaluation mode"
            )
        task.load_state_dict(loop.state.best)
        loop.give_back_dtype()
    return loop.state.progress.history


class _Loop:
    """One training: its parts, a step, a validation, and what ends it."""

    def __init__(self, task: Task, settings: TrainSettings, name: str, identity: str, run: Run) -> None:
        self.task, self.settings, self.name, self.run = task, settings, name, run
        precision = precision_of(task, run)
        self.fabric = _fabric(run.device, precision, task.processes)
        self.dtype = next(task.parameters()).dtype
        task.to(self.fabric.device)
        self.fabric.strategy.precision.convert_module(task)  # before copies of its weights are made
        rate, decay = settings.learning_rate, settings.weight_decay
        optimiser = torch.optim.AdamW(task.groups(), lr=rate, weight_decay=decay, betas=(0.9, 0.99), fused=True)
        self.rates = [group["lr"] for group in optimiser.param_groups]
        identity = f"{identity} {precision}{' compiled' * run.compiled}"
        self.state = TrainState(task, optimiser, run, name=name, identity=identity, processes=task.processes)
        self.size = self.batch_size()
        with warnings.catch_warnings():  # of an option that has no successor yet, see torch's message
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            self.module, self.optimiser = self.fabric.setup(torch.compile(task) if run.compiled else task, optimiser)
        self.started = time.monotonic()
        self.validated = self.validations_due()
        self.asked = False  # whether a callback asks for the end

    def give_back_dtype(self) -> None:
        """Return the trained task to the data type that it came in, where it was trained in another (``64-true``)."""
        if next(self.task.parameters()).dtype != self.dtype:
            self.task.to(self.dtype)

    def batch_size(self) -> int:
        """Return the number of samples in each process's part of a batch."""
        several, samples = self.task.processes, self.task.samples
        if samples < several.count:
            raise SettingsError(f"{samples} samples cannot be divided among {several.count} processes; start fewer")
        return min(several.whole(self.settings.batch_size), samples) // several.count

    def run_until_over(self, pending: Pending) -> None:
        """Make steps, validations and checkpoints until the training is over or a signal arrives."""
        self.tell("start", {})
        try:
            self.go_on(pending)
        finally:
            self.tell("end", self.latest())

    def go_on(self, pending: Pending) -> None:
        """Make steps from where the training is."""
        progress = self.state.progress
        if progress.step == 0 and not progress.history:
            self.validate()
            progress.finished = self.asked
        while not progress.finished:
            received = self.step(pending.signum)
            if self.validations_due() > self.validated or self.is_at_end() or self.is_stopped():
                self.validate()
                progress.finished = self.is_over()
            self.state.save_if_due()
            self.stop_if(pending.signum if self.task.processes.count == 1 else received)
        if self.task.processes.count > 1:  # the last step began before a signal that arrived in it
            signum = torch.tensor([float(pending.signum or 0)], device=self.fabric.device)
            self.stop_if(int(self.task.processes.gather(signum).max()))

    def step(self, signum: int | None) -> int:
        """Draw a batch, compute its loss, and update the weights and their average.

        Parameters
        ----------
        signum
            Number of a signal that this process received before the step.

        Returns
        -------
        int
            That of any process, or 0: all must stop after the same step.
        """
        task, state, done = self.task, self.state, self.share_done()
        factor = SCHEDULES[self.settings.schedule](done, self.settings.warmup)
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        task.train()
        task.begin(done)
        batch = state.next_batch(self.size, task.order)
        task.prefetch([batch, *state.upcoming(self.size, _AHEAD)])
        parts, after = self.module(batch.to(self.fabric.device), self.step_generator())
        loss, received = self.backward(parts, signum)
        nn.utils.clip_grad_norm_(task.parameters(), self.settings.gradient_clip)
        self.optimiser.step()
        if after is not None:
            after()
        state.progress.step += 1
        state.average(self.settings.ema_decay)
        state.progress.recent.append(loss)
        self.tell("step", self.latest() | {"loss": loss})
        return received

    def tell(self, moment: Moment, figures: dict[str, float]) -> None:
        """Report to the run's callback, and take note if it asks for the end."""
        event = Event(self.name, self.state.progress.step, self.settings.steps, figures)
        self.asked |= self.run.tell(event, moment)

    def latest(self) -> dict[str, float]:
        """Return the figures of the last validation."""
        history = self.state.progress.history
        return {name: value for name, value in history[-1].items() if name != "step"} if history else {}

    def is_stopped(self) -> bool:
        """Return whether a callback asked for the end in a step; several processes agree on that when they validate."""
        return self.asked and self.task.processes.count == 1

    def backward(self, parts: dict[str, Tensor], signum: int | None) -> tuple[float, int]:
        """Compute the gradients; return the mean loss, and a signal that any process received, exchanged meanwhile."""
        loss = sum(parts.values(), torch.zeros((), device=self.fabric.device))
        own = torch.stack([loss, loss.new_tensor(float(signum or 0))])
        gathered = self.task.processes.gather_later(own[None])
        self.optimiser.zero_grad(set_to_none=True)
        if not loss.requires_grad:
            raise TrainingError(
                f"{self.name}: the loss does not depend on the weights, so that nothing can be learned; look for "
                ".detach(), .item(), NumPy or torch.no_grad() in the network and the loss"
            )
        self.fabric.backward(loss)
        losses, signals = gathered().T
        return self.finite_mean(losses, parts), int(signals.max())

    def step_generator(self) -> torch.Generator:
        """Return the source of the step's random numbers.

        With several processes it is seeded by the step and the rank, so that each process draws its own masks and noise
        without drawing those of the others, and so is the global generator, of which dropout draws. Then no state of
        the ranks beyond the first must be in the checkpoint.
        """
        several = self.task.processes
        if several.count == 1:
            return self.state.generator
        purpose = f"{self.name}: step {self.state.progress.step} of rank {several.rank} of {several.count}"
        torch.manual_seed(self.run.seed_of(f"{purpose}, dropout"))
        return torch.Generator().manual_seed(self.run.seed_of(purpose))

    def finite_mean(self, losses: Tensor, parts: dict[str, Tensor]) -> float:
        """Return the mean loss of the processes, or raise a TrainingError with the parts of this one."""
        mean = float(losses.mean())
        if not math.isfinite(mean):
            shown = ", ".join(f"{name} = {value.item():g}" for name, value in parts.items())
            step = self.state.progress.step
            advice = "lower the learning rate" if step else "check the network and the loss, where they are your own"
            raise TrainingError(
                f"{self.name}: the loss is not finite at step {step} ({shown}); {advice}, or check the data for "
                "extreme values"
            )
        return mean

    def validate(self) -> None:
        """Validate the EMA weights, keep them if they are the best, and append to the history."""
        progress = self.state.progress
        self.task.eval()
        with torch.no_grad(), self.state.averaged():
            error = self.agreed(self.task.validate())
            self.state.keep_if_best(error)
        row = {"step": float(progress.step), **self.task.figures()}
        row |= {"loss": sum(progress.recent) / len(progress.recent)} if progress.recent else {}
        row |= {} if error is None else {"validation": error}
        progress.history.append(row)
        progress.recent, self.validated = [], self.validations_due()
        self.tell("epoch", self.latest())
        asked = torch.tensor([float(self.asked)], device=self.fabric.device)
        self.asked = bool(self.task.processes.gather(asked).max())
        if self.asked and not self.is_at_end():
            row["stopped"] = 1.0

    def agreed(self, error: float | None) -> float | None:
        """Return the same validation error in all processes, which must take the same decisions by it."""
        if error is None:
            return None
        return float(self.task.processes.mean(torch.tensor(error, dtype=torch.float64, device=self.fabric.device)))

    def share_done(self) -> float:
        """Return the share of the training that is done, by steps or by the deadline, whichever is larger."""
        by_steps, remaining = self.state.progress.step / self.settings.steps, self.run.seconds_left()
        if math.isinf(remaining):
            return by_steps
        spent = time.monotonic() - self.started
        return max(by_steps, min(1.0, spent / max(spent + remaining, 1e-9)))

    def validations_due(self) -> int:
        """Number of validations that are due by now."""
        return int(self.share_done() * self.settings.validation_steps + 1e-9)

    def is_at_end(self) -> bool:
        """Return whether this was the last step."""
        return self.share_done() >= 1 or self.state.progress.step == self.settings.last_step

    def is_over(self) -> bool:
        """Return whether the training is over: at its end, without improvement, converged, or ended by a callback."""
        stale = self.state.progress.stale >= self.settings.patience
        return self.is_at_end() or stale or self.asked or self.task.done()

    def stop_if(self, signum: int | None) -> None:
        """Save and raise if there was a signal."""
        if signum:
            kept, step = self.state.save(), self.state.progress.step
            where = f"its state is in {kept}; run again with resume to go on" if kept else "nothing was kept"
            raise Interrupted(f"{self.name}: stopped at step {step} of {self.settings.steps}; {where}", signum)


def seconds_per_step(task: Task, batch: int, run: Run) -> float:
    """Measure the time of a forward and backward pass, without the optimiser's step.

    The fastest of three repetitions. Weights do not change; running statistics of layers (batch normalisation) do.

    Parameters
    ----------
    task
        The task.
    batch
        Batch size; the first samples are used.
    run
        Device and precision.

    Returns
    -------
    float
        Seconds.
    """
    fabric = _fabric(run.device, precision_of(task, run), Processes())
    module, first, times = fabric.setup_module(task.to(fabric.device)), torch.arange(batch), []
    with seeded(0):
        for _ in range(_TIMED_STEPS):
            started = time.monotonic()
            parts, _ = module(first.to(fabric.device), torch.Generator().manual_seed(0))
            loss = sum(parts.values(), torch.zeros((), device=fabric.device))
            fabric.backward(loss)
            float(loss.detach())  # waits for the device
            times.append(time.monotonic() - started)
    return min(times)


def precision_of(task: Task, run: Run) -> str:
    """Resolve the precision of a run.

    Parameters
    ----------
    task
        Declares whether bfloat16 is allowed.
    run
        Its ``precision``, and the device.

    Returns
    -------
    str
        As lightning-fabric names it. For ``"auto"``: ``"bf16-mixed"`` if the task allows it and the device has
        instructions for it, otherwise ``"32-true"``.
    """
    if run.precision != "auto":
        return run.precision
    return "bf16-mixed" if task.allows_bf16 and supports_bf16(run.device) else "32-true"


def supports_bf16(device: str) -> bool:
    """Check whether a device has bfloat16 instructions; emulation would be slower than single precision.

    Parameters
    ----------
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"gpu"``.

    Returns
    -------
    bool
    """
    if device in ("auto", "cuda", "gpu") and torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    can = torch.cpu.get_capabilities()
    return device in ("auto", "cpu") and bool(can.get("avx512_bf16") or can.get("amx_bf16"))


def _fabric(device: str, precision: str, several: Processes) -> Any:
    """Return the Fabric: one device, or distributed data parallel with one device per process."""
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it logs the settings of every run
    options: dict[str, Any] = {"accelerator": device, "precision": precision, "devices": 1}
    if several.count > 1:
        # Buffers hold the data, the same in all processes; every step uses all weights.
        strategy = DDPStrategy(broadcast_buffers=False, find_unused_parameters=False, gradient_as_bucket_view=True)
        options |= {"devices": several.count // several.nodes, "num_nodes": several.nodes, "strategy": strategy}
    try:
        fabric = Fabric(**options)
        if several.count > 1:
            fabric.launch()
    except (RuntimeError, ValueError, ImportError) as error:
        raise SettingsError(f"device {device!r} with precision {precision!r} cannot be used: {error}") from error
    return fabric
