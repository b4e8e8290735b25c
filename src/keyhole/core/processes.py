"""Distributed training with `torchrun`: rank of this process, and its part of a batch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Processes", "is_first", "processes"]

Sliced = TypeVar("Sliced")


@dataclass(frozen=True)
class Processes:
    """Rank of this process and number of processes that train together.

    Parameters
    ----------
    rank : int
        Number of this process, from 0.
    count : int
        Number of processes (world size).
    nodes : int
        Number of machines.

    Examples
    --------
    >>> Processes(rank=1, count=2).mine([0, 1, 2, 3])
    [2, 3]
    """

    rank: int = 0
    count: int = 1
    nodes: int = 1

    def mine(self, batch: Sliced) -> Sliced:
        """Return this process's part of a batch that all processes have.

        Parameters
        ----------
        batch : sequence
            Parts are contiguous and of equal size.

        Returns
        -------
        sequence
        """
        size = len(batch) // self.count  # type: ignore[arg-type]
        return batch[self.rank * size : (self.rank + 1) * size]  # type: ignore[index, no-any-return]

    def whole(self, count: int) -> int:
        """Round ``count`` up to a multiple of the number of processes."""
        return -(-count // self.count) * self.count


def processes() -> Processes:
    """Return rank and world size.

    Returns
    -------
    Processes
        From the environment that `torchrun` sets; a single process without it.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count < 2 or "RANK" not in os.environ:
        return Processes()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(count)))
    return Processes(int(os.environ["RANK"]), count, max(1, count // local))


def is_first() -> bool:
    """Whether this process has rank 0, the one that writes files and prints."""
    return processes().rank == 0
