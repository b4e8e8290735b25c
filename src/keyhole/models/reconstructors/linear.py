"""Base class of linear reconstructors: one affine map, applied as a matrix product."""

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

_IMPUTATION_ROUNDS = 3  # refits after the first, where targets have missing values


class LinearReconstructor(Reconstructor):
    """Affine reconstruction `x = offset + f B` of features `f` of the readings, fitted in closed form.

    Subclasses fit ``offset`` and ``weights`` and may override ``features``.

    Attributes
    ----------
    chosen
        Hyperparameters selected by ``fit``, such as the ridge strength.
    offset
        ``(channels * valid sites,)``.
    weights
        The matrix `B`, ``(features, channels * valid sites)``.
    channels, grid
        Number of channels and grid of the training samples.
    """

    closed_form: ClassVar[bool] = True

    def __init__(self) -> None:
        self.chosen: dict[str, float] = {}
        self.offset = np.zeros(0, np.float32)
        self.weights = np.zeros((0, 0), np.float32)
        self.channels, self.grid = 1, Grid.plain((0,))

    def reconstruct(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Reconstruct fields ``(N, channels, *grid)`` by one matrix product; see `Reconstructor.reconstruct`."""
        return unpack(self.reconstruct_valid(readings, covariates), self.channels, self.grid)

    def reconstruct_valid(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Reconstruct the valid sites only.

        Parameters
        ----------
        readings
            Scaled readings, ``(N, K, channels)``.
        covariates
            ``(N, columns)``, or None.

        Returns
        -------
        ndarray
            ``(N, channels, valid sites)``.
        """
        features = self.features(flat(readings), known(covariates, len(readings)))
        packed = features.astype(np.float32, copy=False) @ self.weights
        packed += self.offset
        return packed.reshape(len(readings), self.channels, -1)

    def imputed_targets(
        self, train: Samples, readings: NDArray[Any], covariates: NDArray[np.float32] | None = None
    ) -> Iterator[NDArray[Any]]:
        """Yield the targets to fit to, with missing values imputed by the previous fit.

        Without missing values the targets are yielded once. Otherwise they are yielded a few more times, each time with
        the missing values replaced by the predictions of the fit made in between (a fixed-point iteration like
        expectation-maximisation), so that imputed values have no influence on the solution in the limit.

        Parameters
        ----------
        train
            Training samples.
        readings
            Their readings, ``(N, K * channels)``.
        covariates
            ``(N, columns)``, or None.

        Yields
        ------
        ndarray
            Targets, ``(N, channels * valid sites)``.
        """
        targets = flat(train.valid_values())
        yield targets
        if train.gaps is None:
            return
        missing = np.isnan(flat(train.truth()))
        for _ in range(_IMPUTATION_ROUNDS):
            features = self.features(readings, known(covariates, len(readings))).astype(np.float32)
            yield np.where(missing, self.offset + features @ self.weights, targets)

    def features(self, readings: NDArray[Any], covariates: NDArray[np.float32]) -> NDArray[Any]:
        """Return the features that the weights apply to; by default the readings themselves.

        Parameters
        ----------
        readings
            ``(N, K * channels)``.
        covariates
            ``(N, columns)``.

        Returns
        -------
        ndarray
            ``(N, features)``.
        """
        return readings

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the selected hyperparameters, the offset and the weights."""
        return {**self.chosen, "channels": self.channels}, {"offset": self.offset, "weights": self.weights}

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64]
    ) -> Self:
        """Recover a fitted linear reconstructor; see `Reconstructor.restore`."""
        restored = cls()
        restored.chosen = {name: number_of(settings, name) for name in settings if name != "channels"}
        restored.channels, restored.grid = count_of(settings, "channels"), grid
        outputs = restored.channels * len(grid.cells)
        restored.offset = array_of(arrays, "offset", (outputs,)).astype(np.float32, copy=False)
        restored.weights = array_of(arrays, "weights", (None, outputs)).astype(np.float32, copy=False)
        return restored

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Return whether there is one weight per feature for inputs of these sizes."""
        features = self.features(np.zeros((1, sites * channels)), np.zeros((1, covariates), np.float32))
        return channels == self.channels and features.shape[1] == len(self.weights)
