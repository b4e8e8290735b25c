"""What every stage of one run shares: seed, device, deadline, where state is kept, whom to tell."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Event", "Run", "digest"]


def digest(*arrays: NDArray[Any]) -> str:
    """SHA-256 of arrays: their shapes, types and values."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(f"{array.shape} {array.dtype} ".encode())
        hashed.update(np.ascontiguousarray(array).data)
    return hashed.hexdigest()


@dataclass(frozen=True)
class Event:
    """One sign of life of a run: step ``step`` of ``total`` of a stage, with figures to show."""

    stage: str
    step: int
    total: int
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """The circumstances of one run.

    Parameters
    ----------
    seed
        Every random number derives from it and from the name of what draws it, so that stages do not disturb
        each other.
    device, precision
        As lightning-fabric takes them: ``"auto"``, ``"cpu"``, ``"cuda"``; ``"32-true"``, ``"bf16-mixed"``, or
        ``"auto"``: the latter for networks that rebuild, on a device made for it, else the former.
    compiled
        Whether networks are compiled (``torch.compile``) before they are trained.
    deadline
        Clock time (``time.monotonic()``) after which learning stops; None for no limit.
    folder
        Where unfinished training is kept, so that it can go on; None to keep nothing.
    resume
        Go on from what ``folder`` holds.
    save_seconds
        How often unfinished training is saved.
    repeat
        How often the same was done before in this run, on other samples: its state is kept apart.
    callback
        Called with each Event.
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
    callback: Callable[[Event], None] | None = None

    def seed_of(self, purpose: str) -> int:
        """Seed of one purpose, from the run's seed and the purpose's name."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{purpose}".encode()).digest()[:7], "little")

    def generator(self, purpose: str) -> np.random.Generator:
        """Numpy generator of one purpose."""
        return np.random.default_rng(self.seed_of(purpose))

    def tell(self, event: Event) -> None:
        """Pass an event on."""
        if self.callback is not None:
            self.callback(event)

    def share(self, part: float) -> Run:
        """Give the run with a deadline after a part of the time left; as it is where there is no deadline."""
        if self.deadline is None:
            return self
        return replace(self, deadline=time.monotonic() + part * self.seconds_left())

    def seconds_left(self) -> float:
        """Time until the deadline; infinite without one."""
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()
