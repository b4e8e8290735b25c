"""Context of one run, shared by all of its stages: seed, device, deadline, checkpoints and progress."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.callbacks import Callback, CallbackLike, Moment

__all__ = ["Event", "Run", "digest"]


def digest(*arrays: NDArray[Any]) -> str:
    """Return the SHA-256 of arrays: their shapes, types and values."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(f"{array.shape} {array.dtype} ".encode())
        hashed.update(np.ascontiguousarray(array).data)
    return hashed.hexdigest()


@dataclass(frozen=True)
class Event:
    """Progress of one stage of a run.

    Parameters
    ----------
    stage : str
        Name of the stage, shown beside the progress bar.
    step, total : int
        Steps done, and all steps.
    figures : mapping of str to float
        Current values to show, such as ``{"loss": 0.1}``.
    """

    stage: str
    step: int
    total: int
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """Context of one run: randomness, device, time limit, checkpoints and progress.

    Parameters
    ----------
    seed : int
        Every random number derives from it and from the name of its purpose, so that stages are independent of each
        other.
    device, precision : str
        As lightning-fabric takes them: ``"auto"``, ``"cpu"``, ``"cuda"``; ``"32-true"``, ``"bf16-mixed"``, or
        ``"auto"``, which is mixed precision for reconstruction networks on devices that support it, else single
        precision.
    compiled : bool
        Whether networks are compiled (``torch.compile``) before training.
    deadline : float, optional
        Time on the clock of ``time.monotonic()`` after which training stops; None: no limit.
    folder : Path, optional
        Where checkpoints are stored; None: nowhere.
    resume : bool
        Whether to resume from the checkpoints in ``folder``.
    save_seconds : float
        Time between checkpoints.
    repeat : int
        Number of earlier repetitions on other samples in this run; their checkpoints are stored separately.
    callback : Callback or callable, optional
        Called while a training goes on; a function with the `Event` of each step.

    Examples
    --------
    >>> run = Run(seed=1)
    >>> run.seed_of("weights") == Run(seed=1).seed_of("weights"), run.seed_of("weights") == run.seed_of("batches")
    (True, False)
    """

    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    compiled: bool = False
    deadline: float | None = None
    folder: Path | None = None
    resume: bool = False
    save_seconds: float = 15.0
    repeat: int = 0
    callback: CallbackLike | None = None

    def seed_of(self, purpose: str) -> int:
        """Return the seed of one purpose, derived from the run's seed and the purpose's name."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{purpose}".encode()).digest()[:7], "little")

    def generator(self, purpose: str) -> np.random.Generator:
        """Return a NumPy generator for one purpose."""
        return np.random.default_rng(self.seed_of(purpose))

    def tell(self, event: Event, moment: Moment = "step") -> bool:
        """Report progress to the callback, if there is one; return whether it asks for the end of the training.

        Parameters
        ----------
        event : Event
            The progress.
        moment : {"start", "step", "epoch", "end"}
            Of a training; a function is called at steps alone.
        """
        if isinstance(self.callback, Callback):
            return bool(getattr(self.callback, f"on_{moment}")(event))
        return self.callback is not None and moment == "step" and bool(self.callback(event))

    def share(self, part: float) -> Run:
        """Return a run whose deadline is after a part (0 to 1) of the remaining time; unchanged without a deadline."""
        if self.deadline is None:
            return self
        return replace(self, deadline=time.monotonic() + part * self.seconds_left())

    def seconds_left(self) -> float:
        """Return the seconds until the deadline; infinite without one."""
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()
