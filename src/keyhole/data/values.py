"""Values of samples that are read or computed when they are used, so that data may be larger than memory."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.core.memory import format_size

__all__ = [
    "FEWEST_ROWS", "LARGE", "PANEL_VALUES", "SUBSET_VALUES", "DeferredValues", "Panel", "RowView", "SamplePanels",
    "Values", "as_slice", "fits", "is_large", "memory_of", "probe_sites", "read_columns", "read_rows", "subset_stride",
    "take_rows", "whole_of",
]  # fmt: skip

Floats = NDArray[np.floating[Any]]
Rows = NDArray[np.int64]

# All sizes are numbers of values, so that what is computed depends on the shape of the data alone.
PANEL_VALUES = 2**24  # read or computed at a time
LARGE = 2**27  # beyond which hyperparameters are chosen on a subset of the sites
SUBSET_VALUES = 2**24  # in the subset of sites, and in that of samples
FEWEST_ROWS = 32  # samples in a panel
_MOST_GROUPS = 16
_FEWEST_IN_SUBSET = 16  # samples
_COPIES = 3  # of values in memory, that methods may make


class DeferredValues(ABC):
    """Values ``(n, channels, m)`` of which some are read or computed at a time.

    A subclass implements ``read`` and ``columns``.

    Attributes
    ----------
    shape
        ``(n, channels, m)``.
    dtype
        Data type of the values.
    """

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]

    @abstractmethod
    def read(self, rows: Rows) -> Floats:
        """Return the values of some samples, ``(n, channels, m)``, by their positions in ascending order."""

    @abstractmethod
    def columns(self, sites: Rows | slice) -> Floats:
        """Return the values of all samples at some sites, ``(n, channels, sites)``."""

    @property
    def memory(self) -> int | None:
        """Bytes that may be taken; None where the values are in memory already."""
        return None

    @property
    def whole(self) -> int:
        """Number of samples of the data that these are part of."""
        return self.shape[0]

    @property
    def digest(self) -> str | None:
        """SHA-256 of all values, where it is known."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def load(self) -> Floats:
        """Return all values.

        Raises
        ------
        DataError
            If they need more memory than is allowed.
        """
        if self.memory is not None and not fits(self.nbytes, self.memory):
            raise DataError(
                f"this needs all values in memory at once, {format_size(self.nbytes)}, too much for the "
                f"{format_size(self.memory)} that are allowed: allow more (memory=, --memory) or coarsen the grid; "
                "data of any size have a sensor at each site, method greedy, qr, exchange or learned, and "
                "reconstructor ridge or optimal_interpolation"
            )
        return self.read(np.arange(self.shape[0]))


def fits(size: int, memory: int) -> bool:
    """Whether values of a size, with the copies that methods make of them, fit in some memory."""
    return _COPIES * size <= memory


Values = NDArray[np.floating[Any]] | DeferredValues


@dataclass(frozen=True, eq=False)
class RowView(DeferredValues):
    """Some of the samples of other values.

    Parameters
    ----------
    base
        Values in memory or deferred.
    rows
        Positions of the samples in ``base``.
    """

    base: Values
    rows: Rows
    shape: tuple[int, int, int] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", (len(self.rows), *self.base.shape[1:]))
        object.__setattr__(self, "dtype", self.base.dtype)

    def read(self, rows: Rows) -> Floats:
        """Read samples of ``base``; see `DeferredValues.read`."""
        return read_rows(self.base, self.rows[rows])

    def columns(self, sites: Rows | slice) -> Floats:
        """Read sites of ``base``; see `DeferredValues.columns`."""
        if isinstance(self.base, DeferredValues):
            return np.asarray(self.base.columns(sites)[as_slice(self.rows)])
        kept = as_slice(self.rows)
        if isinstance(kept, slice):
            return self.base[kept, :, sites]
        return (
            self.base[kept[:, np.newaxis], :, sites].transpose(0, 2, 1)
            if isinstance(sites, np.ndarray)
            else (self.base[kept, :, sites])
        )

    @property
    def memory(self) -> int | None:
        """Bytes that may be taken, as for ``base``."""
        return memory_of(self.base)

    @property
    def whole(self) -> int:
        """Number of samples of ``base``."""
        return whole_of(self.base)


def read_rows(values: Values, rows: Rows) -> Floats:
    """Return the values of some samples; consecutive ones of an array are not copied."""
    return values.read(rows) if isinstance(values, DeferredValues) else values[as_slice(rows)]


def read_columns(values: Values, sites: Rows | slice) -> Floats:
    """Return the values of all samples at some sites."""
    return values.columns(sites) if isinstance(values, DeferredValues) else values[:, :, sites]


def take_rows(values: Values, rows: Rows) -> Values:
    """Return some samples without copying them."""
    return RowView(values.base, values.rows[rows]) if isinstance(values, RowView) else RowView(values, rows)


def memory_of(values: Values) -> int | None:
    """Bytes that work on the values may take; None where they are in memory."""
    return values.memory if isinstance(values, DeferredValues) else None


def whole_of(values: Values) -> int:
    """Number of samples of the data that the values are part of."""
    return values.whole if isinstance(values, DeferredValues) else len(values)


def as_slice(rows: Rows) -> Rows | slice:
    """Consecutive positions as a slice, by which arrays are shared instead of copied."""
    consecutive = len(rows) > 0 and rows.dtype.kind in "iu" and bool((np.diff(rows) == 1).all())
    return slice(int(rows[0]), int(rows[0]) + len(rows)) if consecutive else rows


def is_large(shape: tuple[int, ...]) -> bool:
    """Whether there are so many values that hyperparameters are chosen on a subset of the sites."""
    return math.prod(shape) > LARGE


def probe_sites(shape: tuple[int, int, int]) -> Rows:
    """Return the sites on which hyperparameters are chosen for large data, at random but the same for the same shape.

    Parameters
    ----------
    shape
        ``(n, channels, m)`` of the whole data.
    """
    n, channels, m = shape
    most = min(m, max(1, SUBSET_VALUES // (n * channels)))
    return np.arange(m) if most == m else np.sort(np.random.default_rng(0).choice(m, most, replace=False))


def subset_stride(shape: tuple[int, ...]) -> int:
    """Return the step between the samples of a subset of about `SUBSET_VALUES` values, but of 16 samples at least."""
    return max(1, min(-(-math.prod(shape) // SUBSET_VALUES), shape[0] // _FEWEST_IN_SUBSET))


class _Cut(Protocol):
    """Samples that can be cut into panels."""

    def __len__(self) -> int: ...
    def panel(self, rows: Rows) -> Self: ...
    @property
    def data(self) -> Values: ...
    @property
    def shape(self) -> tuple[int, int, int]: ...


T = TypeVar("T", bound=_Cut)


class Panel(NamedTuple, Generic[T]):
    """Consecutive samples in memory, and the position of the first of them."""

    start: int
    samples: T


@dataclass(frozen=True, eq=False)
class SamplePanels(Generic[T]):
    """Samples cut into panels, by their shape alone.

    Parameters
    ----------
    samples
        `keyhole.data.Samples` or `keyhole.data.ScaledSamples`.
    """

    samples: T

    @property
    def step(self) -> int:
        """Number of samples in a panel."""
        _, channels, m = self.samples.shape
        return max(FEWEST_ROWS, PANEL_VALUES // max(channels * m, 1))

    @property
    def is_lazy(self) -> bool:
        """Whether values are read or computed when they are used; workers would have to be sent others."""
        return memory_of(self.samples.data) is not None

    @property
    def n_groups(self) -> int:
        """Number of groups of panels."""
        return min(_MOST_GROUPS, -(-len(self.samples) // self.step))

    def group(self, number: int) -> Iterator[Panel[T]]:
        """Iterate over the panels of a group."""
        n_panels = -(-len(self.samples) // self.step)
        first, last = (number * n_panels // self.n_groups, (number + 1) * n_panels // self.n_groups)
        for start in range(first * self.step, min(last * self.step, len(self.samples)), self.step):
            yield Panel(start, self.samples.panel(np.arange(start, min(start + self.step, len(self.samples)))))

    def __iter__(self) -> Iterator[Panel[T]]:
        for number in range(self.n_groups):
            yield from self.group(number)
