"""Bands around what is rebuilt: a spread that varies over cells and readings, calibrated on samples held back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError
from keyhole.core.storage import array_of

__all__ = ["PredictionIntervals"]

_MOST_SAMPLES = 1000  # whose errors tell the spread: a plan's file grows with them
_NEIGHBOURS = (10, 30, 100)
_PRIOR = 10.0  # samples that the mean over all counts for, beside the neighbours
_LEVELS = np.linspace(0, 1, 401)
_CHUNK = 256


@dataclass(frozen=True, eq=False)
class PredictionIntervals:
    """How far off a plan is, by cell and by what was read.

    The squared errors of samples that the reconstructor did not learn from are averaged, for each cell, over those
    whose readings are nearest, and over all of them: as many neighbours as foretell the errors of the other samples
    best, all where none do. What is rebuilt plus and minus that spread times a factor is the band; the factor is the
    quantile of `|error| / spread` over the cells of other samples, held back for that alone (split conformal
    prediction), for each number of readings that may be missing.

    Parameters
    ----------
    average
        ``(channels * cells,)``, mean squared error of each cell in the user's units.
    neighbours
        How many to average over; 0 for all.
    readings
        ``(n, K * channels)``, scaled, of the samples that are neighbours.
    squares
        ``(n, channels * cells)``, their squared errors; NaN where the truth is not known.
    factors
        Quantiles of `|error| / spread` at 401 levels from 0 to 1, by the number of readings that were missing.
    samples
        How many samples the factors come from.
    """

    average: NDArray[np.float64]
    neighbours: int
    readings: NDArray[np.float32]
    squares: NDArray[np.float32]
    factors: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    samples: int = 0

    @classmethod
    def fit(cls, readings: NDArray[Any], errors: NDArray[Any], scale: NDArray[np.float64] | None = None) -> Self:
        """Learn the spread from errors ``(n, channels * cells)`` and the readings ``(n, K * channels)`` behind them.

        ``scale``, ``(channels * cells,)``, brings errors of different units to one in which they can be compared.
        """
        some = slice(None, None, -(-len(readings) // _MOST_SAMPLES))
        squares = np.square(errors, dtype=np.float64)
        made = cls(_average(squares, scale), 0, readings[some].astype(np.float32), squares[some].astype(np.float32))
        counts = [count for count in _NEIGHBOURS if 2 * count < len(made.readings)]
        left = {count: replace(made, neighbours=count)._surprise() for count in (0, *counts)}
        best = min(left, key=left.__getitem__)
        kept = slice(None) if best else slice(0)
        return replace(made, neighbours=best, readings=made.readings[kept], squares=made.squares[kept])

    def calibrated(self, scores: Mapping[int, NDArray[np.float64]], samples: int) -> PredictionIntervals:
        """Take the quantiles of `|error| / spread`, by number of missing readings, from so many samples."""
        factors = {missing: np.nanquantile(found, _LEVELS) for missing, found in scores.items()}
        return replace(self, factors=factors, samples=samples)

    def spread(self, readings: NDArray[Any]) -> NDArray[np.float64]:
        """Give the standard deviation of the error for readings ``(N, K * channels)``: ``(N, channels * cells)``."""
        if not self.neighbours:
            return np.broadcast_to(np.sqrt(self.average), (len(readings), len(self.average)))
        parts = [readings[start : start + _CHUNK] for start in range(0, len(readings), _CHUNK)]
        return np.concatenate([np.sqrt(self._variance(self._near(part))) for part in parts])

    def factor(self, level: float, missing: int) -> float:
        """Give what to multiply the spread by, so that the share ``level`` of truths lies within."""
        fair = min(1.0, level * (1 + 1 / max(self.samples, 1)))
        counts = sorted(self.factors)
        at = [float(np.interp(fair, _LEVELS, self.factors[count])) for count in counts]
        return float(np.interp(missing, counts, at))

    def _near(self, readings: NDArray[Any], skip: bool = False) -> NDArray[np.int64] | None:
        """Places of the nearest samples, ``(N, neighbours)``; None where all count. ``skip`` leaves out the first."""
        if not self.neighbours:
            return None
        from scipy.spatial import KDTree

        _, found = KDTree(self.readings).query(readings, self.neighbours + skip)
        return np.asarray(found, np.int64)[:, int(skip) :]

    def _variance(self, near: NDArray[np.int64] | None) -> NDArray[np.float64]:
        if near is None:
            return self.average[np.newaxis]
        picked = np.zeros((len(near), len(self.squares)), np.float32)
        np.put_along_axis(picked, near, np.float32(1), axis=1)
        total, known = (picked @ part for part in self._sums)
        return np.asarray((total + _PRIOR * self.average) / (known + _PRIOR))

    @cached_property
    def _sums(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What is summed over neighbours: squared errors, zero where not known, and in how many they are known."""
        known = ~np.isnan(self.squares)
        if known.all():
            return self.squares, np.ones((len(known), 1), np.float32)
        return np.where(known, self.squares, np.float32(0)), known.astype(np.float32)

    def _surprise(self) -> float:
        """How badly the spread foretells the errors it was learned from, each left out: Gaussian log likelihood."""
        rows = slice(None, None, max(1, len(self.readings) // _CHUNK))
        near = self._near(self.readings[rows], skip=True)
        variance = self._variance(near)
        return float(np.nanmean(np.log(variance) + self.squares[rows] / variance))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give settings and arrays from which ``restore`` makes the same bands."""
        counts = sorted(self.factors)
        factors = np.stack([self.factors[count] for count in counts]) if counts else np.zeros((0, len(_LEVELS)))
        arrays: dict[str, NDArray[Any]] = {
            "average": self.average,
            "readings": self.readings,
            "squares": self.squares,
            "factors": factors,
        }
        return {"neighbours": self.neighbours, "samples": self.samples, "missing": counts}, arrays

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Take them back; a PlanError where they do not agree with each other."""
        counts, neighbours = settings["missing"], settings["neighbours"]
        average = array_of(arrays, "average", (None,))
        readings = array_of(arrays, "readings", (None, None))
        squares = array_of(arrays, "squares", (len(readings), len(average)))
        factors = array_of(arrays, "factors", (len(counts), len(_LEVELS)))
        if counts != sorted(set(counts)) or neighbours > len(readings):
            raise PlanError("bands: missing must rise, and neighbours be no more than the samples that are kept")
        if (average < 0).any() or (squares < 0).any() or (factors < 0).any():
            raise PlanError("bands: squared errors and factors from 0 on are needed")
        return cls(average, neighbours, readings, squares, dict(zip(counts, factors, strict=True)), settings["samples"])

    def takes(self, readings: int, outputs: int) -> bool:
        """Whether it is for so many readings, channel by channel, and numbers to rebuild."""
        return len(self.average) == outputs and self.readings.shape[1] == readings


def _average(squares: NDArray[np.float64], scale: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Mean of each column, as if one more sample had been as all are: no cell is sure by chance."""
    known, units = ~np.isnan(squares), np.ones(1) if scale is None else np.square(scale)
    total = np.nansum(squares, axis=0)
    overall = float((total / units).sum()) / max(int(known.sum()), 1) * units
    return np.asarray(np.maximum((total + overall) / (known.sum(axis=0) + 1), np.finfo(float).tiny))
