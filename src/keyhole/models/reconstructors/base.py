"""What a reconstructor is: K readings in, the whole signal out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.grid import Grid
from keyhole.data.samples import Samples

__all__ = ["Reconstructor", "flat", "known", "unpack"]


class Reconstructor(ABC):
    """Rebuilds scaled signals from scaled readings at fixed sites.

    Constructors only assign. ``fit`` learns; ``state`` and ``restore`` carry what was learned through a file: settings
    that JSON can hold, and arrays. One in ``closed_form`` needs no validation part, so it is fitted once more, on
    everything but the test part, when all choices are made. ``tried`` tells what it was chosen from, if it was.
    """

    name: ClassVar[str]
    closed_form: ClassVar[bool] = False
    tried: Sequence[dict[str, Any]] = ()

    def anew(self) -> Self:
        """Give one of the same kind and settings that has learned nothing yet."""
        return type(self)()

    @abstractmethod
    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Self:
        """Learn to rebuild from the sites (flat grid indices); ``validation`` serves to stop and choose alone."""

    @abstractmethod
    def reconstruct(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Rebuild ``(N, channels, *grid)`` from readings ``(N, K, channels)``; zero outside.

        ``context`` ``(N, columns)`` is as that of the signals fitted on; None where they had none.
        """

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give settings and arrays from which ``restore`` makes the same reconstructor."""

    @classmethod
    @abstractmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64]
    ) -> Self:
        """Make a fitted reconstructor from what ``state`` gave; a PlanError where that does not agree with the grid."""

    @abstractmethod
    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Whether it was fitted to so many sites, channels and columns of context."""

    @property
    def history(self) -> list[dict[str, float]]:
        """Figures of each validation during training, if there was any."""
        return []


def flat(values: NDArray[Any]) -> NDArray[Any]:
    """Give each sample as one row."""
    return values.reshape(len(values), -1)


def known(covariates: NDArray[Any] | None, n: int) -> NDArray[np.float32]:
    """Give context as ``(n, columns)``, without columns where there is none."""
    return np.zeros((n, 0), np.float32) if covariates is None else np.asarray(covariates, np.float32)


def unpack(packed: NDArray[Any], channels: int, grid: Grid) -> NDArray[np.float32]:
    """Put packed cells ``(N, channels * cells)`` on the grid, zero outside; no copy where all cells are inside."""
    if len(grid.cells) == grid.size:
        return packed.astype(np.float32, copy=False).reshape(len(packed), channels, *grid.shape)
    full = np.zeros((len(packed), channels, grid.size), np.float32)
    full[:, :, grid.cells] = packed.reshape(len(packed), channels, -1)
    return full.reshape(len(packed), channels, *grid.shape)
