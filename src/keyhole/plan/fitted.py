"""Fitted models of one network: from readings in the user's units to fields, targets and prediction intervals."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError
from keyhole.data.imputation import impute_by_covariance
from keyhole.data.labels import align_in_time
from keyhole.data.origin import SourceInfo
from keyhole.data.placed_sensors import PlacedSensors, rows_over
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.sites import Sites
from keyhole.models.intervals import PredictionIntervals
from keyhole.models.predictors import Predictor
from keyhole.models.reconstructors import Reconstructor
from keyhole.models.reconstructors.base import flat
from keyhole.models.reconstructors.linear import LinearReconstructor

__all__ = ["FittedModels", "check_finite", "range_of"]


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedModels:
    """What is fitted to the readings of K sites: scaler, reconstructor, predictor and prediction intervals.

    All methods take readings as ``(N, K, channels)`` in rank order and in the user's units, NaN where missing. `Plan`
    adds how the sites were selected, and takes labelled readings.

    Parameters
    ----------
    domain
        The m valid sites of the data, which are reconstructed.
    indices
        ``(K,)``, position of each selected site in the data (C order), by rank.
    scaling
        Climatology (or mean) and scale of each channel.
    reconstructor
        Fitted model from readings to the field.
    origin
        Type, name, units and attributes of the data that were read, in which reconstructions are returned.
    predictor
        Fitted model from readings to the target; None without a target.
    covariance
        ``(channels * K, channels * K)``, covariance of the scaled readings, channel by channel, to impute missing ones.
    intervals
        Calibrated prediction intervals; None if they were not wanted, or there were too few samples.
    sensors
        The selected sensors by rank, where these are not simply sites; ``indices`` are then their numbers among all
        that might have been selected.
    """

    domain: Sites
    indices: NDArray[np.int64]
    scaling: Scaler
    reconstructor: Reconstructor
    origin: SourceInfo
    predictor: Predictor | None = None
    covariance: NDArray[np.float64] | None = None
    intervals: PredictionIntervals | None = None
    sensors: PlacedSensors | None = None

    @property
    def k(self) -> int:
        """Number of sites."""
        return len(self.indices)

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """Number of each selected site among the valid ones, ``(K,)``, by rank; of a sensor the main one it reads."""
        return self.domain.number(self.indices) if self.sensors is None else self.sensors.home(len(self.domain))

    def candidates_in(self, samples: Samples) -> NDArray[np.int64]:
        """Return the number of each selected site, or sensor, among the candidates of samples, ``(K,)``, by rank."""
        if self.sensors is None:
            return self.numbers
        if samples.sensors is None:
            raise PlanError("the plan has sensors of its own, and the samples have none; set them with with_sensors")
        return samples.sensors.numbers_of(self.sensors.names)

    @property
    def reading_channels(self) -> int:
        """Number of values that each sensor reads."""
        return len(self.scaling.scale) if self.sensors is None else 1

    @property
    def reading_scale(self) -> NDArray[np.float64]:
        """Typical size of an anomaly of each reading, ``(1, channels)`` or ``(K, channels)``."""
        return self.scaling.unit_at(self.numbers).T if self.sensors is None else self._sensor_scale[:, np.newaxis]

    @cached_property
    def _sensor_scale(self) -> NDArray[np.float64]:
        return np.ones(0) if self.sensors is None else self.sensors.scaled(self.scaling.scale)[1]

    def readings_of(self, samples: Samples) -> NDArray[np.floating[Any]]:
        """Return what the selected sensors measure of samples in the user's units, ``(N, K, channels)``, with noise."""
        if self.sensors is None:
            return samples.noisy_readings(self.indices)
        return self.sensors.readings(samples, np.arange(self.k), noisy=True)

    def _scale_readings(self, readings: NDArray[Any], time: NDArray[Any] | None) -> NDArray[np.float32]:
        """Scale readings; of a sensor by its rows of the climatology."""
        if self.sensors is None:
            return self.scaling.scale_readings(readings, self.numbers, time)
        coefficients = rows_over(self.sensors.operator, self.scaling.baseline.astype(np.float64))
        climatology = self.scaling.climatology
        expected = climatology.expected(coefficients, climatology.lookup(time, len(readings)))
        return np.asarray((readings[:, :, 0] - expected) / self._sensor_scale, np.float32)[:, :, np.newaxis]

    @property
    def error_scale(self) -> NDArray[np.float64]:
        """Divisor of the errors before pooling, ``(channels, m)``; see `Scaler.error_scale`."""
        return self.scaling.error_scale(self.origin)

    def parts(self) -> dict[str, Any]:
        """Return all fields of this class by name, for the constructor of a `Plan`."""
        return {part.name: getattr(self, part.name) for part in fields(FittedModels)}

    def scaled(self, readings: NDArray[Any], time: NDArray[Any] | None) -> NDArray[np.float32]:
        """Scale readings and impute missing ones from the others of the same sample."""
        scaled = self._scale_readings(readings, time)
        if not np.isnan(scaled).any():
            return scaled
        if self.covariance is None:
            raise PlanError(
                "readings: some are missing, and this plan is from a version without imputation; make it again"
            )
        rows = scaled.transpose(0, 2, 1).reshape(len(scaled), -1)
        try:
            filled = impute_by_covariance(rows, self.covariance).reshape(len(scaled), scaled.shape[2], -1)
        except np.linalg.LinAlgError as error:
            raise PlanError(f"readings: some are missing, and the others' covariance is singular ({error})") from error
        return filled.transpose(0, 2, 1).astype(np.float32)

    def inputs(self, readings: NDArray[Any], time: NDArray[Any] | None) -> NDArray[np.float32]:
        """Return what the reconstructor takes: scaled readings, missing ones imputed unless it does without them."""
        if self.reconstructor.takes_missing:
            return self._scale_readings(readings, time)
        return self.scaled(readings, time)

    def reconstruct_array(
        self, readings: NDArray[Any], time: NDArray[Any] | None, covariates: Any = None
    ) -> NDArray[np.floating[Any]]:
        """Reconstruct the valid sites, ``(N, channels, m)``, in the user's units."""
        columns = self.reconstruct_columns(self.inputs(readings, time), time, covariates)
        return columns.reshape(len(readings), -1, len(self.domain))

    def reconstruct_columns(
        self, scaled: NDArray[np.float32], time: NDArray[Any] | None, covariates: Any = None,
        columns: NDArray[np.int64] | slice = slice(None),
    ) -> NDArray[np.floating[Any]]:  # fmt: skip
        """Reconstruct some of the values ``(N, channels * m)``, in the user's units, from scaled readings."""
        known = self.scaling.covariates(time, align_in_time(covariates, time, "covariates"), len(scaled))
        if isinstance(self.reconstructor, LinearReconstructor):
            features = self.reconstructor.features(flat(scaled), known)
            design = self.scaling.climatology.design(time, len(scaled))
            whole = np.concatenate([features, design], axis=1).astype(self._affine.dtype)
            return np.asarray(whole @ self._affine[:, columns])
        return flat(self.scaling.undo(self.reconstructor.reconstruct(scaled, known), time))[:, columns]

    def reconstruct_samples(self, samples: Samples) -> NDArray[np.floating[Any]]:
        """Reconstruct samples in the user's units from their own readings at the sites."""
        return self.reconstruct_array(self.readings_of(samples), samples.time, samples.covariates)

    @cached_property
    def _affine(self) -> NDArray[np.floating[Any]]:
        """Linear reconstructor and rescaling to the user's units as one matrix."""
        return self.reconstructor.in_units(self.scaling)  # type: ignore[attr-defined, no-any-return]

    def predict_array(self, readings: NDArray[Any], time: NDArray[Any] | None) -> NDArray[np.float64]:
        """Predict the target: probabilities ``(N, classes)``, or numbers ``(N,)``."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            predicted = self.need_predictor().predict(self.scaled(readings, time))
        check_finite(predicted, "prediction")
        return predicted

    def need_predictor(self) -> Predictor:
        """Return the predictor; raise a PlanError if there is none."""
        if self.predictor is None:
            raise PlanError("this plan has no target to predict; make one with select(..., target=...) or --target")
        return self.predictor

    def half_width(self, readings: NDArray[Any], time: NDArray[Any] | None, interval: float) -> NDArray[np.float64]:
        """Return half the width of the prediction intervals, ``(N, channels * m)``."""
        intervals = self.need_intervals(interval, "interval")
        factors = np.array([intervals.factor(interval, int(count)) for count in self.count_missing(readings)])
        spread = intervals.spread(flat(self.scaled(readings, time)))
        return np.asarray(spread * factors[:, np.newaxis])

    @staticmethod
    def count_missing(readings: NDArray[Any]) -> NDArray[np.int64]:
        """Return the number of sites without a reading, ``(N,)``."""
        return np.asarray(np.isnan(readings).any(axis=2).sum(axis=1))

    def need_intervals(self, level: float, argument: str) -> PredictionIntervals:
        """Return the prediction intervals; raise a PlanError if there are none, or the coverage is not possible."""
        if self.intervals is None:
            raise PlanError(
                "this plan has no prediction intervals: it was made with intervals=False, or from too few samples"
            )
        if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
            raise PlanError(f"{argument}={level!r}: expected a coverage between 0 and 1")
        return self.intervals


def check_finite(values: NDArray[Any], what: str) -> None:
    """Raise a PlanError unless all values are finite; ``what`` names them."""
    if not np.isfinite(values).all():
        raise PlanError(
            f"the {what} is not finite: a reading is too large for this plan, or the plan's own numbers are; "
            "put NaN for a reading that is wrong"
        )


def range_of(readings: NDArray[Any]) -> NDArray[np.float64]:
    """Return the smallest and largest reading of each site, ``(2, K, channels)``, ignoring missing ones."""
    return np.stack([np.nanmin(readings, axis=0), np.nanmax(readings, axis=0)]).astype(np.float64)
