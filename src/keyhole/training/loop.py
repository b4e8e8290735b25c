"""The training loop: one loop for everything that learns, on lightning-fabric."""

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

_TRIES = 3  # steps to tell a step's time by


class Task(nn.Module, ABC):
    """Something to train: parameters, and a loss for a batch of samples.

    Data live in buffers that are not persistent, so that they follow the device and stay out of checkpoints. Whatever
    must survive a resume is a parameter or a persistent buffer.
    """

    samples: int
    allows_bf16: ClassVar[bool] = False  # whether half precision does it no harm
    needs_whole_batch: ClassVar[bool] = (
        False  # whether `forward` has the whole batch of all processes, and finds its part
    )
    processes: Processes = Processes()

    @abstractmethod
    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], After]:
        """Give the named parts of the loss, whose sum is minimised, for sample indices ``batch``.

        The second thing is called after the optimiser's step, such as the ascent of a dual variable; or None.
        """

    def groups(self) -> list[dict[str, Any]]:
        """Parameter groups for the optimiser; each may set its own ``lr``, kept in proportion to the schedule."""
        return [{"params": list(self.parameters())}]

    def order(self, generator: torch.Generator) -> Tensor:
        """Draw an order to go through the samples in."""
        return torch.randperm(self.samples, generator=generator)

    def begin(self, progress: float) -> None:
        """Set schedules before a step; ``progress`` goes from 0 to 1."""

    def validate(self) -> float | None:
        """Error on validation samples; None where there is nothing to choose by."""
        return None

    def done(self) -> bool:
        """Whether there is nothing left to learn, asked at each look: training ends before its steps."""
        return False

    def figures(self) -> dict[str, float]:
        """Figures to show and keep beside the loss."""
        return {}


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators for a block (initial weights, dropout) and give them back as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def train(task: Task, settings: TrainSettings, *, name: str, identity: str, run: Run) -> list[dict[str, float]]:
    """Train ``task`` and leave it with its best weights; gives the history, one row for each validation.

    Parameters
    ----------
    name
        Of the stage, unique within a run: its state is kept and found by it.
    identity
        Fingerprint of all that defines the run, but for versions and threads, which a state tells itself.

    Raises
    ------
    TrainingError
        The loss is not finite. State saved before is untouched.
    StateError
        The state to go on from is another run's, another version's, damaged, or does not fit the task.
    Interrupted
        A signal arrived; the step was ended and the state saved where ``run.folder`` says.
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
        loop.go(pending)
    state.restore_best(task)
    return state.history


def seconds_per_step(task: Task, batch: int, run: Run) -> float:
    """Give the time of a step on the first samples but for the optimiser's part, which is small.

    The quickest of three tries, with weights that stay as they are; statistics that layers keep do not.
    """
    fabric = _fabric(run.device, precision_of(task, run), Processes())
    module, first, times = fabric.setup_module(task.to(fabric.device)), torch.arange(batch), []
    with seeded(0):
        for _ in range(_TRIES):
            started = time.monotonic()
            parts, _ = module(first.to(fabric.device), torch.Generator().manual_seed(0))
            loss = sum(parts.values(), torch.zeros((), device=fabric.device))
            fabric.backward(loss)
            float(loss.detach())  # waits for the device
            times.append(time.monotonic() - started)
    return min(times)


def precision_of(task: Task, run: Run) -> str:
    """Give the precision asked for; for ``"auto"`` half, if the task bears it and the device is made for it."""
    if run.precision != "auto":
        return run.precision
    return "bf16-mixed" if task.allows_bf16 and supports_bf16(run.device) else "32-true"


def supports_bf16(device: str) -> bool:
    """Whether a device has instructions for bfloat16; where it has none, that is slower than single precision."""
    if device in ("auto", "cuda", "gpu") and torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    can = torch.cpu.get_capabilities()
    return device in ("auto", "cpu") and bool(can.get("avx512_bf16") or can.get("amx_bf16"))


def _fabric(device: str, precision: str, several: Processes) -> Any:
    """Give what runs a training: on one device, or with averaged gradients on one for each process."""
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it tells of every run that it is as asked for
    options: dict[str, Any] = {"accelerator": device, "precision": precision, "devices": 1}
    if several.count > 1:
        # Buffers hold the data, which all have; a part of the weights may be out of a step.
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
    """State of one run of `train` between steps."""

    def __init__(
        self, task: Task, module: nn.Module, optimiser: Any, fabric: Any, settings: TrainSettings,
        state: TrainState, run: Run, name: str,
    ) -> None:  # fmt: skip
        self.task, self.module, self.optimiser, self.fabric = task, module, optimiser, fabric
        self.settings, self.state, self.run, self.name = settings, state, run, name
        self.rates = [group["lr"] for group in optimiser.param_groups]
        self.started, self.started_at = time.monotonic(), state.step

    def go(self, pending: Any) -> None:
        if self.state.step == 0 and not self.state.history:
            self.look()
        while not self.state.finished:
            before = self.looks_due()
            self.step()
            if self.looks_due() > before or self.progress() >= 1:
                self.look()
                self.state.finished = self.over()
            self.state.save_if_due(self.state.finished)
            signum = self.agreed(pending.signum)
            if signum is not None:
                self.stop(signum)

    def agreed(self, signum: int | None) -> int | None:
        """Give the signal that any process got: all stop after the same step."""
        if self.task.processes.count == 1:
            return signum
        found = int(self.fabric.all_reduce(torch.tensor(float(signum or 0)), reduce_op="max"))
        return found or None

    def looks_due(self) -> int:
        """How many looks belong before this point of the run."""
        return int(self.progress() * self.settings.validation_steps + 1e-9)

    def over(self) -> bool:
        return self.progress() >= 1 or self.state.stale >= self.settings.patience or self.task.done()

    def progress(self) -> float:
        """Share of the run that is over, by steps or by the deadline, whichever is further."""
        by_steps = self.state.step / self.settings.steps
        left = self.run.seconds_left()
        if math.isinf(left):
            return by_steps
        spent = time.monotonic() - self.started
        return max(by_steps, min(1.0, spent / max(spent + left, 1e-9)))

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
        self.tell()

    def check(self, loss: Tensor, parts: dict[str, Tensor]) -> None:
        if not torch.isfinite(loss):
            shown = ", ".join(f"{name} = {value.item():g}" for name, value in parts.items())
            raise TrainingError(
                f"{self.name}: the loss is not finite at step {self.state.step} ({shown}); "
                "lower the rate, or look for extreme values in the data"
            )

    def look(self) -> None:
        """Validate the averaged weights, keep them if they are the best, and note the figures."""
        self.task.eval()
        with torch.no_grad(), self.state.averaged(self.task):
            error = self.task.validate()
            self.state.scorer(self.task, error)
        row = {"step": float(self.state.step), **self.task.figures()}
        row |= {"loss": sum(self.state.recent) / len(self.state.recent)} if self.state.recent else {}
        row |= {} if error is None else {"validation": error}
        self.state.history.append(row)
        self.state.recent = []

    def tell(self) -> None:
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
    """Factor of the rate: a linear rise over ``warmup``, then half a cosine down to zero."""
    if progress < warmup:
        return max(progress / warmup, 0.01)
    return 0.5 * (1 + math.cos(math.pi * (progress - warmup) / max(1 - warmup, 1e-9)))
