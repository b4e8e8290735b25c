"""What linear reconstructors have in common: one matrix product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.storage import array_of, count_of, number_of
from keyhole.data.grid import Grid
from keyhole.data.samples import Samples
from keyhole.models.reconstructors.base import Reconstructor, flat, known, unpack

__all__ = ["LinearReconstructor"]

_ROUNDS = 3  # fits after the first, where targets are missing


class LinearReconstructor(Reconstructor):
    """`x = offset + f B`, fitted in closed form; ``chosen`` are the figures that the fit settled on."""

    closed_form: ClassVar[bool] = True

    def __init__(self) -> None:
        self.chosen: dict[str, float] = {}
        self.offset = np.zeros(0, np.float32)
        self.weights = np.zeros((0, 0), np.float32)
        self.channels, self.grid = 1, Grid.plain((0,))

    def reconstruct(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Rebuild by one matrix product."""
        return unpack(self.reconstruct_valid(readings, covariates), self.channels, self.grid)

    def reconstruct_valid(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Rebuild the inside cells alone, ``(N, channels, cells)``."""
        features = self.features(flat(readings), known(covariates, len(readings)))
        packed = features.astype(np.float32, copy=False) @ self.weights
        packed += self.offset
        return packed.reshape(len(readings), self.channels, -1)

    def imputed_targets(
        self, train: Samples, readings: NDArray[Any], covariates: NDArray[np.float32] | None = None
    ) -> Iterator[NDArray[Any]]:
        """Give targets to fit to, ``(N, channels * cells)``: once, or a few times where some are missing.

        These are filled with what the last fit makes of them, so that they end up with no say in it.
        """
        targets = flat(train.valid_values())
        yield targets
        if train.gaps is None:
            return
        gaps = np.isnan(flat(train.truth()))
        for _ in range(_ROUNDS):
            features = self.features(readings, known(covariates, len(readings))).astype(np.float32)
            yield np.where(gaps, self.offset + features @ self.weights, targets)

    def features(self, readings: NDArray[Any], covariates: NDArray[np.float32]) -> NDArray[Any]:
        """What the weights act on: the readings ``(N, K * channels)``, unless it says otherwise."""
        return readings

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give what was settled on, offset and weights."""
        return {**self.chosen, "channels": self.channels}, {"offset": self.offset, "weights": self.weights}

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64]
    ) -> Self:
        """Take them back."""
        made = cls()
        made.chosen = {name: number_of(settings, name) for name in settings if name != "channels"}
        made.channels, made.grid = count_of(settings, "channels"), grid
        outputs = made.channels * len(grid.cells)
        made.offset = array_of(arrays, "offset", (outputs,)).astype(np.float32, copy=False)
        made.weights = array_of(arrays, "weights", (None, outputs)).astype(np.float32, copy=False)
        return made

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Whether there is a weight for each feature."""
        features = self.features(np.zeros((1, sites * channels)), np.zeros((1, covariates), np.float32))
        return channels == self.channels and features.shape[1] == len(self.weights)
