"""Batches of training samples that do not fit in memory."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from keyhole.data.scaled_samples import ScaledSamples

if TYPE_CHECKING:
    import torch

__all__ = ["Prefetched", "Source", "StoredBatches"]

Indices = NDArray[np.int64]
_CACHE_SHARE = 1 / 4  # of the memory, for samples that are drawn from at random
_CHUNK_SHARE = 1 / 32  # of the memory, for samples that are read together


class StoredBatches:
    """Batches of scaled samples that are read from their file when they are needed.

    Samples are read in chunks of consecutive ones, of which the last read are kept, and batches are drawn at random
    from a few chunks at a time.

    Parameters
    ----------
    samples
        Scaled samples.
    memory
        Bytes that may be taken.
    """

    def __init__(self, samples: ScaledSamples, memory: int) -> None:
        sample_bytes = 4 * samples.channels * len(samples.sites)
        self.samples = samples
        self._chunk = max(1, int(_CHUNK_SHARE * memory / sample_bytes))
        self._kept = max(1, int(_CACHE_SHARE * memory / (self._chunk * sample_bytes)))
        self._cache: OrderedDict[int, NDArray[np.float32]] = OrderedDict()

    def __len__(self) -> int:
        return len(self.samples)

    def order(self, generator: torch.Generator) -> torch.Tensor:
        """Return a random order of the samples in which samples that are read together stay close."""
        import torch

        chunks = torch.split(torch.arange(len(self)), self._chunk)
        turns = [chunks[int(i)] for i in torch.randperm(len(chunks), generator=generator)]
        windows = [torch.cat(turns[start : start + self._kept]) for start in range(0, len(turns), self._kept)]
        return torch.cat([window[torch.randperm(len(window), generator=generator)] for window in windows])

    def fetch(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the targets of some samples, ``(n, channels, m)``."""
        found = np.empty((len(places), self.samples.channels, len(self.samples.sites)), np.float32)
        for number in np.unique(places // self._chunk):
            mine = places // self._chunk == number
            found[mine] = self._read(int(number))[places[mine] - number * self._chunk]
        return found

    def _read(self, number: int) -> NDArray[np.float32]:
        """Return a chunk, which is kept for the next batches."""
        if number not in self._cache:
            rows = np.arange(number * self._chunk, min((number + 1) * self._chunk, len(self)))
            while len(self._cache) >= self._kept:
                self._cache.popitem(last=False)
            self._cache[number] = self.samples.panel(rows).targets
        self._cache.move_to_end(number)
        return self._cache[number]


class Source(Protocol):
    """Scaled samples that are read from storage when they are needed."""

    def __len__(self) -> int: ...

    def order(self, generator: torch.Generator) -> torch.Tensor:
        """Return a random order of the samples in which samples that are stored together stay close."""

    def fetch(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return samples by index, ``(n, channels, *grid)``."""


class Prefetched:
    """A source whose next batches are read in the background while the current one is used.

    All batches are read by one thread, one after another in the order in which they were announced, so the source need
    not be safe for threads, and what is read does not depend on timing. Nothing is random: after a resume the same
    batches are announced again. The caller bounds the memory by the number of batches that it announces ahead.

    Parameters
    ----------
    source
        Where batches are read from.

    Examples
    --------
    >>> class Squares:
    ...     def fetch(self, places):
    ...         return np.square(places, dtype=np.float32)
    >>> prefetched = Prefetched(Squares())
    >>> prefetched.announce([np.array([1, 2]), np.array([3, 4])])
    >>> prefetched.fetch(np.array([1, 2])).tolist()
    [1.0, 4.0]
    >>> prefetched.close()
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._reader: ThreadPoolExecutor | None = None
        self._announced: deque[tuple[Indices, Future[NDArray[np.float32]]]] = deque()

    def __len__(self) -> int:
        return len(self.source)

    def order(self, generator: torch.Generator) -> torch.Tensor:
        """Draw the order of the source; see `Source.order`."""
        return self.source.order(generator)

    def announce(self, batches: Iterable[Indices]) -> None:
        """Have batches read that will be fetched next, in this order.

        Parameters
        ----------
        batches
            Indices of the samples of each batch, the next one first; those that were announced before are not read
            twice. If the next batches are others than those announced before, the old announcements are dropped.
        """
        wanted = list(batches)
        if any(not np.array_equal(old, new) for (old, _), new in zip(self._announced, wanted, strict=False)):
            self._drop()
        for places in wanted[len(self._announced) :]:
            self._announced.append((places, self._submit(places)))

    def fetch(self, places: Indices) -> NDArray[np.float32]:
        """Return samples by index, and wait for them if they are still being read; see `Source.fetch`.

        Parameters
        ----------
        places
            Indices of the samples. Batches that were not announced are read now.

        Raises
        ------
        Exception
            What the source raised when it read this batch.
        """
        if self._announced and np.array_equal(self._announced[0][0], places):
            return self._announced.popleft()[1].result()
        self._drop()
        return self.source.fetch(places) if self._reader is None else self._submit(places).result()

    def close(self) -> None:
        """Drop what was announced and end the thread, after the batch that it is reading; may be called twice."""
        self._drop()
        if self._reader is not None:
            self._reader.shutdown(wait=True, cancel_futures=True)
            self._reader = None

    def _submit(self, places: Indices) -> Future[NDArray[np.float32]]:
        if self._reader is None:
            self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="keyhole-batches")
        return self._reader.submit(self.source.fetch, places)

    def _drop(self) -> None:
        while self._announced:
            self._announced.pop()[1].cancel()
