"""Base class of linear reconstructors: one affine map, applied as a matrix product."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.core.storage import array_of, count_of, number_of
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.scaler import Scaler
from keyhole.data.sites import Sites
from keyhole.models.projection import Targets
from keyhole.models.reconstructors.base import Reconstructor, flat, known

__all__ = ["LinearReconstructor"]

_IMPUTATION_ROUNDS = 3  # refits after the first, where targets have missing values


class LinearReconstructor(Reconstructor):
    """Affine reconstruction `x = offset + f B` of features `f` of the readings, fitted in closed form.

    A subclass implements ``solve``, and may override ``features``.

    Attributes
    ----------
    chosen
        Hyperparameters selected by ``fit``, such as the ridge strength.
    offset
        ``(channels * m,)``.
    weights
        The matrix `B`, ``(features, channels * m)``.
    channels, domain
        Number of channels and sites of the training samples.
    """

    closed_form: ClassVar[bool] = True

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.chosen: dict[str, float] = {}
        self.offset = np.zeros(0, np.float32)
        self.weights = np.zeros((0, 0), np.float32)
        self.channels, self.domain = 1, Sites.plain((0,))

    def fit(self, train: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run) -> Self:
        """Fit on ``train`` in closed form; ``validation`` is not used.

        Where targets have missing values, the map is fitted a few more times, each time to targets with the missing
        values replaced by the predictions of the fit before (a fixed-point iteration like expectation-maximisation),
        so that imputed values have no influence on the solution in the limit.
        """
        self.channels, self.domain, self.chosen = train.channels, train.sites, {}
        self.solve(train, sites, train, run)
        if train.missing is not None:
            targets = flat(train.targets)
            missing = np.isnan(flat(train.known_targets))
            for _ in range(_IMPUTATION_ROUNDS):
                estimate = flat(self.reconstruct(train.readings(sites), train.covariates))
                self.solve(train, sites, np.where(missing, estimate, targets), run)
        return self

    @abstractmethod
    def solve(self, train: ScaledSamples, sites: NDArray[np.int64], targets: Targets, run: Run) -> None:
        """Compute ``chosen``, ``offset`` and ``weights``.

        Parameters
        ----------
        train
            Scaled training samples.
        sites
            Numbers of the K sites.
        targets
            ``train`` itself; or ``(N, channels * m)``, its targets with missing values imputed.
        run
            Its seed draws subsets on which hyperparameters are selected.
        """

    def reconstruct(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Reconstruct targets ``(N, channels, m)`` by one matrix product; see `Reconstructor.reconstruct`."""
        features = self.features(flat(readings), known(covariates, len(readings)))
        targets = features.astype(np.float32, copy=False) @ self.weights
        targets += self.offset
        return targets.reshape(len(readings), self.channels, -1)

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

    def in_units(self, scaling: Scaler) -> NDArray[np.floating[Any]]:
        """Return the map from features to the user's units as one matrix, so that a product does it all.

        With `x = (offset + f B) * scale / root + d C`, and the sample's row `d` of the design of the climatology behind
        the features, the rows are `B * scale / root`, and `C + c offset * scale / root`, where `d c = 1` at all times.

        Parameters
        ----------
        scaling
            The scaling of the samples it was fitted to, with the coefficients `C` of the climatology.

        Returns
        -------
        ndarray
            ``(features + columns, channels * m)``.
        """
        unit = np.broadcast_to(scaling.unit, (len(scaling.scale), len(self.domain)))
        if scaling.root is not None:
            unit = unit / scaling.root
        features, columns = len(self.weights), len(scaling.baseline)
        matrix = np.empty((features + columns, unit.size), scaling.baseline.dtype)
        matrix[:features] = self.weights * unit.ravel()
        matrix[features:] = scaling.baseline.reshape(columns, -1)
        matrix[features:][scaling.climatology.constant > 0] += (self.offset * unit.ravel()).astype(matrix.dtype)
        return matrix

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the selected hyperparameters, the offset and the weights."""
        settings = {**self.chosen, "channels": self.channels, **self.given_settings()}
        return settings, {"offset": self.offset, "weights": self.weights}

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], domain: Sites, sites: NDArray[np.int64]
    ) -> Self:
        """Recover a fitted linear reconstructor; see `Reconstructor.restore`."""
        restored = cls(**settings.get("given", {}))
        restored.chosen = {name: number_of(settings, name) for name in settings if name not in ("channels", "given")}
        restored.channels, restored.domain = count_of(settings, "channels"), domain
        outputs = restored.channels * len(domain)
        restored.offset = array_of(arrays, "offset", (outputs,)).astype(np.float32, copy=False)
        restored.weights = array_of(arrays, "weights", (None, outputs)).astype(np.float32, copy=False)
        return restored

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Return whether there is one weight per feature for inputs of these sizes."""
        return self.takes_readings(sites * channels, channels, covariates)

    def takes_readings(self, readings: int, channels: int, covariates: int) -> bool:
        """Return whether there is one weight per feature for so many readings; see `Reconstructor.takes_readings`."""
        features = self.features(np.zeros((1, readings)), np.zeros((1, covariates), np.float32))
        return channels == self.channels and features.shape[1] == len(self.weights)
