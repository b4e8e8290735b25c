"""Samples that stay in their file: read some at a time, within the memory allowed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keyhole.core.errors import DataError, SettingsError
from keyhole.core.memory import format_size
from keyhole.data.constraints import Constraints
from keyhole.data.readers.fields import Field
from keyhole.data.samples import Samples, ScaledSamples
from keyhole.data.scaler import Scaler
from keyhole.data.splits import Indices
from keyhole.data.validation import Cycle, floating
from keyhole.models.reconstructors.base import flat

__all__ = ["Part", "Store"]

_BLOCK_SHARE = 1 / 24  # of the memory for the samples read at a time, of which a few copies are made
_LARGEST_SHARE = 1 / 6  # of the memory that what lies together in the file may take
_CACHE_SHARE = 1 / 4  # of the memory for samples that a network is trained on by turns
_SOME_SHARE = 1 / 16  # of the memory for samples that are to be had at once


@dataclass(frozen=True, eq=False)
class Store:
    """Samples on a grid, in a file that may be larger than memory.

    Parameters
    ----------
    field
        Where they are.
    about
        Samples without values: sites, which of them are observable, constraints, weights, cycle.
    memory
        Bytes that work on them may take, beside the program's own.
    """

    field: Field
    about: Samples
    memory: int

    def __len__(self) -> int:
        return len(self.field)

    def anomalies(self, cycle: Cycle | None = "month") -> Store:
        """Work on anomalies, as `Samples.anomalies`."""
        return replace(self, about=self.about.anomalies(cycle))

    def with_constraints(self, constraints: Constraints | Mapping[str, Any] | None) -> Store:
        """Let sites keep to constraints, as `Samples.with_constraints`; groups and sites that are there need memory."""
        about = self.about.with_constraints(constraints)
        if about.constraints is not None and (about.constraints.grouping or len(about.constraints.rules.existing)):
            raise SettingsError("groups and sites that are there already need the data in memory; leave out --memory")
        return replace(self, about=about)

    def with_weights(self, weights: Any) -> Store:
        """Say how much an error in each cell counts, as `Samples.weighted`."""
        return replace(self, about=self.about.with_weights(weights))

    def with_covariates(self, *periods: str) -> Store:
        """Let reconstructors know the time of ``"year"`` or ``"day"``."""
        return replace(self, about=self.about.with_covariates(*periods))

    def fingerprint(self) -> str:
        """Give the fingerprint that the same samples have in memory."""
        return self.about.fingerprint_of((block.values for _, block in self.blocks()), len(self))

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample in single precision."""
        return 4 * self.about.channels * self.about.sites.size

    @property
    def bytes(self) -> int:
        """Bytes of all samples in single precision."""
        return len(self) * self.sample_bytes

    @property
    def step(self) -> int:
        """How many samples to read at a time: whole chunks of the file."""
        chunk = min(self.field.chunk, len(self))
        if chunk * self.sample_bytes > _LARGEST_SHARE * self.memory:
            raise DataError(
                f"{chunk} samples lie together in the file, {format_size(chunk * self.sample_bytes)}, too much for "
                f"{format_size(self.memory)} of memory; allow more (--memory), or write it in smaller chunks"
            )
        return max(chunk, int(_BLOCK_SHARE * self.memory / self.sample_bytes) // chunk * chunk)

    def read(self, start: int, stop: int) -> Samples:
        """Read samples that follow each other, as they are."""
        values = self.about.sites.from_grid(floating(self.field.values(slice(start, stop))))
        time = None if self.field.time is None else self.field.time[start:stop]
        return replace(self.about, values=values, time=time, rows=np.arange(start, start + len(values)))

    def blocks(self) -> Iterator[tuple[int, Samples]]:
        """Give all samples, some at a time, and which is the first of them."""
        for start in range(0, len(self), self.step):
            yield start, self.read(start, min(start + self.step, len(self)))

    def part(self, rows: Indices, scaling: Scaler | None = None) -> Part:
        """Give some of the samples, scaled or as they are, in the file's order."""
        return Part(self, np.sort(rows), scaling)


@dataclass(frozen=True, eq=False)
class Part:
    """Some samples of a store, as they are, and scaled where a scaling is given."""

    store: Store
    rows: Indices
    scaling: Scaler | None = None
    _cache: OrderedDict[int, NDArray[np.float32]] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self) -> Iterator[Samples]:
        """Give the samples as they are, some at a time."""
        step = self.store.step
        for start in np.unique(self.rows // step) * step:
            yield self._block(int(start), int(start) + step)

    def scaled_blocks(self) -> Iterator[ScaledSamples]:
        """Give the scaled samples, some at a time."""
        return map(self.scale, self.blocks())

    def scale(self, samples: Samples) -> ScaledSamples:
        """Scale samples by the scaling of this part."""
        if self.scaling is None:
            raise ValueError("this part of a store has no scaling")
        return self.scaling.apply(samples)

    def targets(self) -> Iterator[NDArray[np.float32]]:
        """Give the targets of scaled samples, ``(n, channels * m)``, some at a time."""
        for block in self.scaled_blocks():
            yield flat(block.targets)

    @cached_property
    def spread(self) -> NDArray[np.float64]:
        """Mean square of each target, ``(channels * m,)``: its variance, since scaled samples have no mean."""
        sums = sum(np.einsum("ij,ij->j", block, block).astype(np.float64) for block in self.targets())
        return np.asarray(sums) / len(self)

    def readings(self, sites: Indices) -> NDArray[np.floating[Any]]:
        """Give what the sites observe, scaled, ``(N, K, channels)``."""
        return np.concatenate([block.readings(sites) for block in self.scaled_blocks()])

    def some(self, share: float = _SOME_SHARE) -> Samples:
        """Give as many samples at once as a share of the memory holds, evenly spaced."""
        most = max(2, int(share * self.store.memory / self.store.sample_bytes))
        if most >= len(self):
            return self._joined(list(self.blocks()))
        few = replace(self, rows=self.rows[np.linspace(0, len(self) - 1, most).astype(np.int64)])
        return self._joined(list(few.blocks()))

    def after(self, place: int) -> Part:
        """Give the samples from a place on."""
        return replace(self, rows=self.rows[place:], _cache=OrderedDict())

    def groups(self, share: float) -> list[Part]:
        """Cut the samples in groups that a share of the memory holds at once."""
        step = max(1, int(share * self.store.memory / self.store.sample_bytes))
        cuts = range(0, len(self), step)
        return [replace(self, rows=self.rows[cut : cut + step], _cache=OrderedDict()) for cut in cuts]

    def order(self, generator: torch.Generator) -> Tensor:
        """Draw an order to learn from them in: chunks of the file at random, and at random among a few of them."""
        chunks = [torch.from_numpy(places) for places in self._chunks()]
        turns = [chunks[int(i)] for i in torch.randperm(len(chunks), generator=generator)]
        together = max(1, int(_CACHE_SHARE * self.store.memory / self.store.sample_bytes / max(map(len, turns))))
        windows = [torch.cat(turns[start : start + together]) for start in range(0, len(turns), together)]
        return torch.cat([window[torch.randperm(len(window), generator=generator)] for window in windows])

    def fetch(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Give scaled targets by their places among these, ``(n, channels, m)``; chunks read last are kept."""
        found = np.empty((len(places), *self.store.about.values.shape[1:]), np.float32)
        rows, chunk = self.rows[places], self.store.field.chunk
        for number in np.unique(rows // chunk):
            held, mine = self._chunk(int(number)), rows // chunk == number
            found[mine] = held[rows[mine] - number * chunk]
        return found

    def _block(self, start: int, stop: int) -> Samples:
        """Give those of the samples from ``start`` to ``stop`` that are of this part."""
        mine = self.rows[(self.rows >= start) & (self.rows < stop)]
        read = self.store.read(int(mine[0]), int(mine[-1]) + 1)
        return read if len(read) == len(mine) else read.take(mine - mine[0])

    def _chunks(self) -> list[NDArray[np.int64]]:
        """Places of the samples that lie together in the file."""
        number = self.rows // self.store.field.chunk
        return np.split(np.arange(len(self)), np.flatnonzero(np.diff(number)) + 1)

    def _chunk(self, number: int) -> NDArray[np.float32]:
        """Give a chunk of the file, scaled."""
        if number not in self._cache:
            chunk = self.store.field.chunk
            read = self.store.read(number * chunk, min((number + 1) * chunk, len(self.store)))
            most = max(1, int(_CACHE_SHARE * self.store.memory / (chunk * self.store.sample_bytes)))
            while len(self._cache) >= most:
                self._cache.popitem(last=False)
            self._cache[number] = self.scale(read).targets
        self._cache.move_to_end(number)
        return self._cache[number]

    def _joined(self, blocks: list[Samples]) -> Samples:
        values = np.concatenate([block.values for block in blocks])
        times = [block.time for block in blocks if block.time is not None]
        contexts = [block.covariates for block in blocks if block.covariates is not None]
        return replace(
            blocks[0], values=values, time=np.concatenate(times) if times else None,
            covariates=np.concatenate(contexts) if contexts else None,
            rows=np.concatenate([block.rows for block in blocks]),
        )  # fmt: skip
