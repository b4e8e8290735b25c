"""Fields that stay where they are stored, of which a few samples are read at a time."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.core.memory import format_size
from keyhole.core.progress import progress
from keyhole.core.reduction import tell
from keyhole.core.run import Event
from keyhole.data.origin import SourceInfo
from keyhole.data.sample_labels import Coordinates
from keyhole.data.samples import Samples
from keyhole.data.series import feature_sites
from keyhole.data.sites import Sites
from keyhole.data.validation import check_positions, check_time, floating
from keyhole.data.values import PANEL_VALUES, DeferredValues, probe_sites

__all__ = ["FieldValues", "StoredField", "kept_open", "stored_samples"]

_LARGEST_SHARE = 1 / 6  # of the memory that samples may take that are stored together


class StoredField(Protocol):
    """What is needed of a field; see `keyhole.data.readers.fields.Field`."""

    def __len__(self) -> int: ...

    @property
    def sites(self) -> Sites:
        """All sites of the grid."""

    @property
    def time(self) -> NDArray[Any] | None:
        """Time of each sample."""

    @property
    def origin(self) -> SourceInfo:
        """Where the field comes from."""

    @property
    def coordinates(self) -> Coordinates:
        """Coordinates along the samples, by name."""

    @property
    def chunk(self) -> int:
        """Number of samples that are stored together."""

    def values(self, rows: slice) -> NDArray[Any]:
        """Read some samples."""


class FieldValues(DeferredValues):
    """Values of a field at valid sites, read from where they are stored.

    Samples are read by the chunks in which they are stored. Values at single sites are kept once they are read, since
    that takes a pass through all samples.

    Parameters
    ----------
    field
        The field.
    sites
        Its valid sites.
    memory
        Bytes that may be taken.
    dtype
        Data type of the values.
    digest
        SHA-256 of all values, if it is known.
    """

    def __init__(
        self, field: StoredField, sites: Sites, memory: int, dtype: np.dtype[Any], *, channels: int,
        digest: str | None = None,
    ) -> None:  # fmt: skip
        self.field, self.sites, self.dtype = field, sites, dtype
        self.shape = (len(field), channels, len(sites))
        self._memory, self._digest = memory, digest
        self._last: tuple[int, NDArray[np.floating[Any]]] | None = None  # the chunk read last, and its number
        self._kept = _Columns()

    @property
    def memory(self) -> int:
        """Bytes that may be taken."""
        return self._memory

    @property
    def digest(self) -> str | None:
        """SHA-256 of all values, if it is known."""
        return self._digest

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """Read samples chunk by chunk; see `DeferredValues.read`."""
        chunk = self.field.chunk
        numbers = rows // chunk
        runs = list(_runs(np.unique(numbers)))
        if len(runs) == 1 and len(rows) == rows[-1] - rows[0] + 1:
            start = int(rows[0]) - runs[0][0] * chunk
            return self._chunks(*runs[0])[start : start + len(rows)]
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for first, last in runs:
            mine = (numbers >= first) & (numbers <= last)
            found[mine] = self._chunks(first, last)[rows[mine] - first * chunk]
        return found

    def columns(self, sites: NDArray[np.int64] | slice) -> NDArray[np.floating[Any]]:
        """Read sites in a pass through all samples; those that were read before are kept."""
        wanted = np.arange(self.shape[2])[sites] if isinstance(sites, slice) else sites
        absent = np.setdiff1d(wanted, self._kept.sites)
        if len(absent):
            read = np.empty((len(self.field), self.shape[1], len(absent)), self.dtype)
            for rows in panels_of(self.shape):
                read[rows] = self.read(rows)[:, :, absent]
                tell("read sites", int(rows[-1]) + 1, len(self.field))
            self._kept.add(absent, read)
        return self._kept.take(wanted)

    def keep_columns(self, sites: NDArray[np.int64], values: NDArray[np.floating[Any]]) -> None:
        """Keep values of all samples at some sites, ``(n, channels, sites)``."""
        self._kept.add(sites, values)

    def _chunks(self, first: int, last: int) -> NDArray[np.floating[Any]]:
        """Read consecutive chunks, and keep the last of them."""
        chunk, parts, last_read = self.field.chunk, [], self._last  # read once: tasks of a worker may be threads
        if last_read is not None and last_read[0] == first:
            parts.append(last_read[1])
            first += 1
        if first <= last:
            stop = min((last + 1) * chunk, len(self.field))
            parts.append(self.sites.from_grid(floating(self.field.values(slice(first * chunk, stop)))))
            self._last = last, parts[-1][(last - first) * chunk :].copy()
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None, "_kept": _Columns()}


class _Columns:
    """Values of all samples at some sites."""

    def __init__(self) -> None:
        self.sites = np.empty(0, np.int64)
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.floating[Any]]]] = []

    def add(self, sites: NDArray[np.int64], values: NDArray[np.floating[Any]]) -> None:
        """Keep the values of sites in ascending order."""
        self._parts.append((sites, values))
        self.sites = np.union1d(self.sites, sites)

    def take(self, sites: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """Return the values at some sites, all of which are kept."""
        n, channels, _ = self._parts[0][1].shape
        found = np.empty((n, channels, len(sites)), self._parts[0][1].dtype)
        for kept, values in self._parts:
            here = np.isin(sites, kept)
            found[:, :, here] = values[:, :, np.searchsorted(kept, sites[here])]
        return found


def panels_of(shape: tuple[int, int, int]) -> Iterator[NDArray[np.int64]]:
    """Iterate over the positions of consecutive samples that are read at a time."""
    n, channels, m = shape
    step = max(1, PANEL_VALUES // (channels * m))
    for start in range(0, n, step):
        yield np.arange(start, min(start + step, n))


def _runs(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive numbers."""
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
        yield int(run[0]), int(run[-1])


def stored_samples(field: StoredField, memory: int) -> Samples:
    """Make samples of a field that stays where it is, after one pass through it.

    Parameters
    ----------
    field
        The field.
    memory
        Bytes that may be taken.

    Returns
    -------
    Samples

    Raises
    ------
    DataError
        If values are infinite, or missing in some samples only; or if the field is stored in chunks that are too large.
    """
    sites, time = field.sites, field.time
    if time is not None:
        check_time(time, len(field))
    first = sites.from_grid(floating(field.values(slice(0, 1))))
    _check_chunk(field, first.nbytes, memory)
    survey = _Survey(field, first, memory)
    with progress() as report:
        kept, digest = survey.run(report)
    values = FieldValues(
        field, sites.take(kept), memory, first.dtype, channels=first.shape[1], digest=digest
    )  # fmt: skip
    survey.hand_over(values, kept)
    valid = values.sites
    check_positions(valid)
    samples = Samples(
        data=values, sites=valid, observable=np.ones(len(valid), bool), time=time, origin=field.origin,
        coordinates=field.coordinates,
    )  # fmt: skip
    return samples.with_weights("area") if valid.is_geographic and valid.area is not None else samples


def kept_open(samples: Samples, stack: ExitStack) -> Samples:
    """Keep the files open that samples are read from, until the samples are no longer used.

    Parameters
    ----------
    samples
        What `stored_samples` returns.
    stack
        Closes the files; emptied.
    """
    weakref.finalize(samples.data, stack.pop_all().close)
    return samples


class _Survey:
    """One pass that finds the valid sites, and keeps the values of those sites that are needed in any case.

    Which sites these are depends on the valid ones, and so does the hash of the values: the valid sites of the first
    sample are taken for those of all, and what was kept is thrown away where that turns out to be wrong.
    """

    def __init__(self, field: StoredField, first: NDArray[np.floating[Any]], memory: int) -> None:
        self.values = FieldValues(field, field.sites, memory, first.dtype, channels=first.shape[1])
        self.guess = np.flatnonzero(~np.isnan(first[0]).all(axis=0))
        shape = (len(field), first.shape[1], len(self.guess))
        small = np.union1d(feature_sites(shape), probe_sites(shape)) if len(self.guess) else np.empty(0, np.int64)
        self.columns = small[: 0 if len(small) == len(self.guess) else None]
        self.read = np.empty((len(field), first.shape[1], len(self.columns)), first.dtype)

    def run(self, report: Callable[[Event], object]) -> tuple[NDArray[np.int64], str | None]:
        """Return the numbers of the valid sites, and the hash of the values where the guess was right."""
        m = self.values.shape[2]
        ever, always, digest = np.zeros(m, bool), np.ones(m, bool), hashlib.sha256()
        everywhere = len(self.guess) == m
        for rows in panels_of(self.values.shape):
            block = self.values.read(rows)
            report(Event("look through the data", int(rows[-1]) + 1, self.values.shape[0]))
            missing = np.isnan(block)
            if np.isinf(block).any():
                spoilt = rows[np.isinf(block).any(axis=(1, 2))]
                raise DataError(
                    f"the data hold infinite values, in sample {spoilt[0]} for the first time; replace them first"
                )
            ever |= missing.any(axis=(0, 1))
            always &= missing.all(axis=(0, 1))
            valid = block if everywhere else np.ascontiguousarray(block[:, :, self.guess])
            digest.update(np.ascontiguousarray(valid).data)
            self.read[rows] = valid[:, :, self.columns]
        kept = np.flatnonzero(~always)
        if not len(kept):
            raise DataError("every site is missing (NaN) in every sample")
        if (partly := int(ever[kept].sum())) > 0:
            raise DataError(
                f"{partly} of {len(kept)} sites have missing values (NaN) in some samples; fill them, make such sites "
                "NaN in all samples, or allow memory for all data and read them with missing='model' (--missing model)"
            )
        return kept, digest.hexdigest() if np.array_equal(kept, self.guess) else None

    def hand_over(self, values: FieldValues, kept: NDArray[np.int64]) -> None:
        """Let the values keep what was read."""
        if np.array_equal(kept, self.guess) and len(self.columns):
            values.keep_columns(self.columns, self.read)


def _check_chunk(field: StoredField, sample_bytes: int, memory: int) -> None:
    """Raise a DataError if samples that are stored together take too much memory."""
    count = min(field.chunk, len(field))
    if count * sample_bytes > _LARGEST_SHARE * memory:
        raise DataError(
            f"{count} samples lie together in a chunk, {format_size(count * sample_bytes)}, more "
            f"than a sixth of the {format_size(memory)} of memory that are allowed; allow more (memory=, --memory), or "
            "write or rechunk it with fewer samples in a chunk"
        )
