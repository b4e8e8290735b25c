"""Several processes that train together, as `torchrun` starts them: which one this is, and what its part is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Processes", "is_first", "processes"]

Sliced = TypeVar("Sliced")


@dataclass(frozen=True)
class Processes:
    """How many processes train together, and the number of this one.

    Examples
    --------
    >>> Processes(rank=1, count=2).mine([0, 1, 2, 3])
    [2, 3]
    """

    rank: int = 0
    count: int = 1
    nodes: int = 1

    def mine(self, batch: Sliced) -> Sliced:
        """Give this process's part of something that all have, in equal parts one after the other."""
        size = len(batch) // self.count  # type: ignore[arg-type]
        return batch[self.rank * size : (self.rank + 1) * size]  # type: ignore[index, no-any-return]

    def whole(self, count: int) -> int:
        """Give a number of which every process can have an equal part: the next above."""
        return -(-count // self.count) * self.count


def processes() -> Processes:
    """Give what `torchrun` says in the environment; one process where it says nothing."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count < 2 or "RANK" not in os.environ:
        return Processes()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(count)))
    return Processes(int(os.environ["RANK"]), count, max(1, count // local))


def is_first() -> bool:
    """Whether this process is the one that writes and prints."""
    return processes().rank == 0
