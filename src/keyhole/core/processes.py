"""Distributed training with `torchrun`: rank of this process, its part of a batch, and what all processes agree on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

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

    def mean(self, value: Tensor) -> Tensor:
        """Average a tensor over the processes, all of which must call this.

        Parameters
        ----------
        value : Tensor
            Of the same shape in every process.

        Returns
        -------
        Tensor
            Without gradient, the same in every process; the value itself if there is one process.
        """
        if self.count == 1:
            return value.detach()
        from torch import distributed

        total = value.detach().clone()
        distributed.all_reduce(total)
        return total / self.count

    def gather(self, value: Tensor) -> Tensor:
        """Concatenate the tensors of all processes along the first axis; all of them must call this.

        Parameters
        ----------
        value : Tensor
            Of the same shape in every process.

        Returns
        -------
        Tensor
            Without gradient, in the order of the ranks; the value itself if there is one process.
        """
        return self.gather_later(value)()

    def gather_later(self, value: Tensor) -> Callable[[], Tensor]:
        """Begin to concatenate the tensors of all processes while something else is computed.

        Parameters
        ----------
        value : Tensor
            As in `gather`.

        Returns
        -------
        callable
            Waits, and returns what `gather` returns.
        """
        own = value.detach()
        if self.count == 1:
            return lambda: own
        import torch
        from torch import distributed

        parts = [torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(self.count)]
        work = distributed.all_gather(parts, own.contiguous(), async_op=True)

        def wait() -> Tensor:
            work.wait()
            return torch.cat(parts)

        return wait


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
