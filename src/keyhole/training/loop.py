"""The training loop: one loop for all networks and mask distributions, on lightning-fabric."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from keyhole.core.errors import SettingsError, TrainingError
from keyhole.core.interrupts import Interrupted, deferred
from keyhole.core.memory import explain_out_of_memory
from keyhole.core.processes import Processes, processes
from keyhole.core.run import Event, Run
from keyhole.training.checkpoint import TrainState
from keyhole.training.settings import TrainSettings

__all__ = ["After", "Task", "precision_of", "seconds_per_step", "seeded", "supports_bf16", "train"]

After = Callable[[], None] | None

_TIMED_STEPS = 3  # repetitions of which the fastest is the time of a step


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
    needs_whole_batch : bool
        Whether `forward` receives the batch of all processes and takes its own part, in distributed training.
    processes : Processes
        The processes of distributed training; set by `train`.
    """

    samples: int
    allows_bf16: bool = False
    needs_whole_batch: ClassVar[bool] = False
    processes: Processes = Processes()

    @abstractmethod
    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], After]:
        """Compute the loss of a batch.

        Parameters
        ----------
        batch
            Sample indices, `(batch,)`.
        generator
            Source of all random numbers of the step; its state is part of the checkpoint.

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
        Seed, device, precision, time limit, checkpoint folder and progress callback.

    Returns
    -------
    list of dict
        The history, one row for each validation: ``step``, ``loss``, ``validation`` and the metrics of the task.

    Raises
    ------
    TrainingError
        The loss is not finite. The last checkpoint is kept.
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
    with explain_out_of_memory(
        name, 'lower the batch (--set train={"batch_size": 16}), take fewer draws, or coarsen the grid'
    ):
        return _trained(task, settings, name, identity, run)


def _trained(task: Task, settings: TrainSettings, name: str, identity: str, run: Run) -> list[dict[str, float]]:
    task.processes = processes()
    fabric = _fabric(run.device, precision := precision_of(task, run), task.processes)
    task.to(fabric.device)
    optimiser = torch.optim.AdamW(
        task.groups(), lr=settings.learning_rate, weight_decay=settings.weight_decay, betas=(0.9, 0.99), fused=True
    )
    with seeded(run.seed_of(name)), deferred() as pending:
        state = TrainState.begin(
            task, optimiser, run, name=name, identity=f"{identity} {precision}{' compiled' * run.compiled}"
        )
        module, stepper = fabric.setup(torch.compile(task) if run.compiled else task, optimiser)
        loop = _Loop(task, module, stepper, fabric, settings, state, run, name)
        loop.run_steps(pending)
    state.restore_best(task)
    return state.history


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
        # Buffers hold the data, the same in all processes; a step may leave some weights unused.
        strategy = DDPStrategy(broadcast_buffers=False, find_unused_parameters=True)
        options |= {"devices": several.count // several.nodes, "num_nodes": several.nodes, "strategy": strategy}
    try:
        fabric = Fabric(**options)
        if several.count > 1:
            fabric.launch()
    except (RuntimeError, ValueError, ImportError) as error:
        raise SettingsError(f"device {device!r} with precision {precision!r} cannot be used: {error}") from error
    return fabric


class _Loop:
    """One training: the steps, validations, checkpoints and progress events."""

    def __init__(
        self, task: Task, module: nn.Module, optimiser: Any, fabric: Any, settings: TrainSettings,
        state: TrainState, run: Run, name: str,
    ) -> None:  # fmt: skip
        self.task, self.module, self.optimiser, self.fabric = task, module, optimiser, fabric
        self.settings, self.state, self.run, self.name = settings, state, run, name
        self.rates = [group["lr"] for group in optimiser.param_groups]
        self.started, self.started_at = time.monotonic(), state.step

    def run_steps(self, pending: Any) -> None:
        if self.state.step == 0 and not self.state.history:
            self.validate()
        while not self.state.finished:
            before = self.validations_due()
            self.step()
            if self.validations_due() > before or self.progress() >= 1:
                self.validate()
                self.state.finished = self.over()
            self.state.save_if_due(self.state.finished)
            signum = self.agreed(pending.signum)
            if signum is not None:
                self.stop(signum)

    def agreed(self, signum: int | None) -> int | None:
        """Return the signal that any process received, so that all stop after the same step."""
        if self.task.processes.count == 1:
            return signum
        found = int(self.fabric.all_reduce(torch.tensor(float(signum or 0)), reduce_op="max"))
        return found or None

    def validations_due(self) -> int:
        """Number of validations that are due by now."""
        return int(self.progress() * self.settings.validation_steps + 1e-9)

    def over(self) -> bool:
        return self.progress() >= 1 or self.state.stale >= self.settings.patience or self.task.done()

    def progress(self) -> float:
        """Return the share of the training that is done, by steps or by the deadline, whichever is larger."""
        by_steps = self.state.step / self.settings.steps
        remaining = self.run.seconds_left()
        if math.isinf(remaining):
            return by_steps
        spent = time.monotonic() - self.started
        return max(by_steps, min(1.0, spent / max(spent + remaining, 1e-9)))

    def step(self) -> None:
        progress = self.progress()
        factor = 1.0 if self.settings.schedule == "constant" else one_cycle(progress, self.settings.warmup)
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.task.train()
        self.task.begin(progress)
        size = self.task.processes.whole(self.settings.batch_size)
        batch = self.state.next_batch(size, self.task.samples, self.task.order)
        batch = batch if self.task.needs_whole_batch else self.task.processes.mine(batch)
        parts, after = self.module(batch.to(self.fabric.device), self.state.generator)
        loss = sum(parts.values(), torch.zeros((), device=self.fabric.device))
        self.check(loss, parts)
        self.optimiser.zero_grad(set_to_none=True)
        self.fabric.backward(loss)
        nn.utils.clip_grad_norm_(self.task.parameters(), self.settings.gradient_clip)
        self.optimiser.step()
        if after is not None:
            after()
        self.state.step += 1
        self.state.average(self.task, self.settings.ema_decay)
        self.state.recent.append(float(loss.detach()))
        self.report()

    def check(self, loss: Tensor, parts: dict[str, Tensor]) -> None:
        if not torch.isfinite(loss):
            shown = ", ".join(f"{name} = {value.item():g}" for name, value in parts.items())
            raise TrainingError(
                f"{self.name}: the loss is not finite at step {self.state.step} ({shown}); "
                "lower the learning rate, or check the data for extreme values"
            )

    def validate(self) -> None:
        """Validate the EMA weights, keep them if they are the best, and append to the history."""
        self.task.eval()
        with torch.no_grad(), self.state.averaged(self.task):
            error = self.task.validate()
            self.state.keep_if_best(self.task, error)
        row = {"step": float(self.state.step), **self.task.figures()}
        row |= {"loss": sum(self.state.recent) / len(self.state.recent)} if self.state.recent else {}
        row |= {} if error is None else {"validation": error}
        self.state.history.append(row)
        self.state.recent = []

    def report(self) -> None:
        if self.run.callback is None:
            return
        last = self.state.history[-1] if self.state.history else {}
        figures = {k: v for k, v in last.items() if k != "step"} | {"loss": self.state.recent[-1]}
        self.run.tell(Event(self.name, self.state.step, self.settings.steps, figures))

    def stop(self, signum: int) -> None:
        kept = self.state.save()
        where = f"its state is in {kept}; run again with resume to go on" if kept else "nothing was kept"
        raise Interrupted(f"{self.name}: stopped at step {self.state.step} of {self.settings.steps}; {where}", signum)


def one_cycle(progress: float, warmup: float) -> float:
    """Compute the learning rate factor of the one-cycle schedule: linear warm-up, then cosine decay to zero.

    Parameters
    ----------
    progress
        Share of the training that is done, from 0 to 1.
    warmup
        Share over which the factor rises to 1.

    Returns
    -------
    float
        From 0 to 1; at least 0.01 during warm-up.

    References
    ----------
    .. [1] L. N. Smith and N. Topin. Super-Convergence: Very Fast Training of Neural Networks Using Large Learning
       Rates. 2019.

    Examples
    --------
    >>> one_cycle(0.05, 0.1), one_cycle(0.1, 0.1)
    (0.5, 1.0)
    """
    if progress < warmup:
        return max(progress / warmup, 0.01)
    return 0.5 * (1 + math.cos(math.pi * (progress - warmup) / max(1 - warmup, 1e-9)))
