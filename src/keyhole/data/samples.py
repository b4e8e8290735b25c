"""Signals: N samples on one grid, as everything in Keyhole takes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.data.alignment import by_time, same_times
from keyhole.data.batches import Source
from keyhole.data.constraints import Constraints, FeasibleSet, PlacementRules, ResolvedConstraints
from keyhole.data.covariates import Period, check_periods
from keyhole.data.grid import Grid
from keyhole.data.imputation import GaussianImputer, impute_by_covariance
from keyhole.data.origin import SourceInfo
from keyhole.data.splits import Indices, Split
from keyhole.data.target import Target
from keyhole.data.validation import (
    Cycle,
    check_cycle,
    check_dates,
    check_shape,
    check_time,
    check_values,
    columns_of,
    floating,
)
from keyhole.data.weights import resolve_noise, resolve_weights

__all__ = ["Samples"]

_LEAST_AVAILABLE = 0.02


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples on a grid.

    Parameters
    ----------
    values
        ``(N, channels, *grid)``, floating; NaN in the cells that are not inside.
    grid
        Shape, coordinates and the cells inside.
    observable
        Boolean array of the grid's shape: the sites that may be chosen; a subset of ``grid.inside``.
    time
        One ``datetime64``, ``timedelta64`` or number for each sample, in any order, if they have a time.
    cycle
        ``"month"`` to work on anomalies from the monthly climatology of the training block, which needs ``time``;
        None to work on deviations from the mean.
    split
        The parts fixed by the data set, if any.
    target
        What is to be told from the sites instead of the signals themselves, if anything.
    rhythms
        Which rhythms of ``time`` a reconstructor may take as known; None: the year, where there is a cycle by month.
    context
        ``(N, columns)``, what else is known of each sample without any sensor.
    zero
        ``(channels, *grid)``, what was taken off all samples alike when they were scaled, in the new scale.
    constraints
        What sites must keep to beside being observable, if anything.
    weights
        Of the grid's shape, how much an error in each cell counts; None: all alike.
    noise
        ``(channels, *grid)``, standard deviation of what a sensor adds to the truth; None: nothing.
    gaps
        ``(N, channels, *grid)``, which values of the cells inside are missing; None: none.
    filler
        Of scaled signals with gaps: what filled them, so that ``values`` has none.
    source
        Where all samples are, if ``values`` are but a few that stand for them.
    ordered
        Whether samples without a time follow each other in time as they stand.
    root, jitter
        Of scaled signals: the root of the weights, which ``values`` were multiplied by, and the noise that is added to
        readings, ``(N, channels, *grid)``.
    """

    values: NDArray[np.floating[Any]]
    grid: Grid
    observable: NDArray[np.bool_]
    time: NDArray[Any] | None = None
    cycle: Cycle | None = None
    split: Split | None = None
    origin: SourceInfo = field(default_factory=SourceInfo)
    target: Target | None = None
    periods: tuple[Period, ...] | None = None
    covariates: NDArray[np.floating[Any]] | None = None
    zero: NDArray[np.floating[Any]] | None = None
    constraints: ResolvedConstraints | None = None
    weights: NDArray[np.float64] | None = None
    noise: NDArray[np.float64] | None = None
    root: NDArray[np.float32] | None = None
    noise_draw: NDArray[np.float32] | None = None
    gaps: NDArray[np.bool_] | None = None
    imputer: GaussianImputer | None = None
    source: Source | None = None
    ordered: bool = False

    @classmethod
    def build(
        cls,
        values: NDArray[Any],
        grid: Grid,
        *,
        time: NDArray[Any] | None = None,
        cycle: Cycle | None = None,
        split: Split | None = None,
        origin: SourceInfo | None = None,
    ) -> Samples:
        """Check ``values`` and make signals of them; cells that are NaN in all samples are outside.

        Those that are NaN in some samples have ``gaps``; whether that will do is for the reader to say.
        Errors count by area where the grid has latitude and longitude (`weighted` changes that).
        """
        values = floating(values)
        check_shape(values, grid)
        missing = np.isnan(values)
        inside = grid.inside & ~missing.all(axis=(0, 1))
        check_values(values, inside)
        if time is not None:
            check_time(time, len(values))
        check_cycle(cycle, time)
        made = cls(values, replace(grid, inside=inside), inside, time, cycle, split, origin or SourceInfo())
        gaps = missing & inside
        made = replace(made, gaps=gaps) if gaps.any() else made
        return made.with_weights("area") if None not in (grid.axis_of_latitude(), grid.axis_of_longitude()) else made

    def __len__(self) -> int:
        return len(self.values)

    @property
    def taught(self) -> int:
        """How many samples there are to learn from: these, or those that they stand for."""
        return len(self) if self.source is None else len(self.source)

    @property
    def is_series(self) -> bool:
        """Whether samples follow each other in time, so that neighbours are alike."""
        return self.time is not None or self.ordered

    def order_in_time(self) -> Indices:
        """Places of the samples by their time; as they stand where they have none."""
        return np.arange(len(self)) if self.time is None else np.argsort(self.time, kind="stable")

    @property
    def channels(self) -> int:
        """Number of values that one site gives."""
        return int(self.values.shape[1])

    def take(self, indices: Indices) -> Samples:
        """Give some of the samples."""
        time = None if self.time is None else self.time[indices]
        target = None if self.target is None else self.target.take(indices)
        covariates = None if self.covariates is None else self.covariates[indices]
        noise_draw = None if self.noise_draw is None else self.noise_draw[indices]
        gaps = None if self.gaps is None else self.gaps[indices]
        return replace(
            self, values=self.values[indices], time=time, split=None, target=target, covariates=covariates,
            noise_draw=noise_draw,
            gaps=gaps,
        )  # fmt: skip

    def room(self) -> FeasibleSet:
        """Give what may be chosen, all of it at first."""
        rules = PlacementRules(self.grid.size) if self.constraints is None else self.constraints.rules
        return rules.room(self.observable)

    @property
    def choices(self) -> tuple[int, ...]:
        """Shape of what is chosen among: the grid, or a row of groups where sites come in groups."""
        grouping = None if self.constraints is None else self.constraints.grouping
        return self.grid.shape if grouping is None else grouping.observable.shape

    @property
    def existing(self) -> NDArray[np.int64]:
        """Flat grid index of the existing sites, to which others are chosen."""
        return np.empty(0, np.int64) if self.constraints is None else self.constraints.rules.held

    def with_constraints(self, constraints: Constraints | Mapping[str, Any] | None) -> Samples:
        """Let sites keep to constraints, in place of those they had to keep to before."""
        may = self.observable if self.constraints is None else self.constraints.before
        asked = Constraints.of(constraints)
        if not asked.given():
            return replace(self, observable=may, constraints=None)
        resolved = asked.resolve(self.grid, may)
        return replace(self, observable=resolved.observable, constraints=resolved)

    def with_target(self, target: Target | None) -> Samples:
        """Choose sites to tell ``target`` by; None to rebuild the signals themselves.

        A target that knows its times goes by them where the samples have times too.
        """
        if target is not None and target.time is not None:
            target = replace(target.take(same_times(target.time, self.time, f"target {target.name!r}")), time=None)
        if target is not None and len(target) != len(self):
            raise DataError(f"target {target.name!r}: {len(target)} values for {len(self)} samples")
        return replace(self, target=target)

    def with_covariates(self, *periods: str, columns: Any = None) -> Samples:
        """Let reconstructors know the time of ``"year"`` or ``"day"``, or ``columns`` ``(N, c)`` of your own.

        Without either, nothing is known but the readings. Columns that carry times (a DatetimeIndex, a DataArray's
        coordinate) go by them where the samples have times too.
        """
        chosen = check_periods(periods)
        if chosen:
            check_dates(self.time, f"context {chosen[0]!r} needs")
        if columns is None:
            return replace(self, periods=chosen, covariates=None)
        return replace(
            self, periods=chosen, covariates=columns_of(by_time(columns, self.time, "covariates"), len(self))
        )

    def with_weights(self, weights: Any) -> Samples:
        """Say how much an error in each cell counts.

        Parameters
        ----------
        weights
            ``"area"`` (by the cosine of latitude), ``"none"`` or None (all cells alike), an array of the grid's shape,
            a DataArray or Series of numbers, which is aligned by coordinate or site name, or a region of interest,
            given as regions are (`keyhole.Constraints`); a cell that does not count at all still counts a
            ten-thousandth of the others when sites are chosen.
        """
        return replace(self, weights=resolve_weights(weights, self.grid))

    def channels_apart(self) -> Samples:
        """Let each channel of a cell be a site of its own, as if it took a sensor of its own.

        The channels become the first axis of the grid, by the names of the variables where there are some. Each counts
        by its own variance, so that none is drowned by another's units. Constraints are to be given afterwards.
        """
        names = np.array(list(self.origin.variables) or [f"channel {i}" for i in range(self.channels)])
        axis = "variable" if self.origin.variables else "channel"
        shape = (self.channels, *self.grid.shape)
        inside = np.broadcast_to(self.grid.inside, shape).copy()
        grid = Grid(shape, (axis, *self.grid.dims), {axis: names, **self.grid.coordinates}, inside)
        spread = np.nanvar(self.values[:, :, self.grid.inside], axis=(0, 2), dtype=np.float64)
        counts = 1 / np.where(spread > 0, spread, 1.0).reshape(-1, *[1] * len(self.grid.shape))
        one = replace(self.origin, variables={}, channel_axis=None, attributes={})
        return replace(
            self, values=self.values[:, np.newaxis], grid=grid, origin=one, constraints=None,
            observable=np.broadcast_to(self.observable, shape).copy(),
            weights=np.broadcast_to(counts * (1.0 if self.weights is None else self.weights), shape).copy(),
            noise=None if self.noise is None else self.noise[np.newaxis],
            gaps=None if self.gaps is None else self.gaps[:, np.newaxis],
        )  # fmt: skip

    def unweighted(self) -> Samples:
        """Give scaled signals with all cells alike."""
        return self if self.root is None else replace(self, values=self.values / self.root, root=None)

    def with_noise(self, noise: Any) -> Samples:
        """Say what sensors add to the truth: a standard deviation in the data's units, one, or by channel or cell.

        Labelled values are aligned: by the names of variables, by coordinate, by site name.
        """
        return replace(self, noise=resolve_noise(noise, self.channels, self.grid, tuple(self.origin.variables)))

    def anomalies(self, cycle: Cycle | None = "month") -> Samples:
        """Work on anomalies from a climatology (``"month"``), or on deviations from the mean (None)."""
        check_cycle(cycle, self.time)
        return replace(self, cycle=cycle)

    def anomalies_as_asked(self, asked: str | None) -> Samples:
        """Work on anomalies by ``"month"``, on deviations from the mean (``"none"``), or as before (None)."""
        if asked not in (None, "month", "none"):
            raise SettingsError(f"anomalies={asked!r}: 'month', 'none' or None is needed")
        return self if asked is None else self.anomalies("month" if asked == "month" else None)

    def valid_values(self) -> NDArray[np.floating[Any]]:
        """Give the inside cells alone, ``(N, channels, cells)``."""
        flat = self.values.reshape(len(self), self.channels, -1)
        return flat if self.grid.inside.all() else flat[:, :, self.grid.cells]

    def truth(self) -> NDArray[np.floating[Any]]:
        """Give the inside cells alone, as `packed`, NaN where they are missing."""
        packed = self.valid_values()
        if self.gaps is None:
            return packed
        return np.where(self._missing_valid(), np.nan, packed)

    def filled(self, imputer: GaussianImputer | None = None) -> Samples:
        """Fill the gaps of scaled signals with what the rest of a sample tells, as learned from these by default."""
        if self.gaps is None:
            return self
        rows, gaps = self.valid_values().reshape(len(self), -1), self._missing_valid().reshape(len(self), -1)
        imputer = imputer or GaussianImputer.fit(rows, gaps)
        values = np.zeros((len(self), self.channels, self.grid.size), np.float32)
        values[:, :, self.grid.cells] = imputer.fill(rows, gaps).reshape(len(self), self.channels, -1)
        return replace(self, values=values.reshape(self.values.shape), imputer=imputer)

    def availability(self) -> NDArray[np.float64] | None:
        """Share of samples in which each cell is known, of the grid's shape; None where there are no gaps."""
        return None if self.gaps is None else 1 - self.gaps.mean(axis=(0, 1), dtype=np.float64)

    def _missing_valid(self) -> NDArray[np.bool_]:
        gaps = np.zeros(self.values.shape, bool) if self.gaps is None else self.gaps
        return gaps.reshape(len(self), self.channels, -1)[:, :, self.grid.cells]

    def readings(self, sites: Indices) -> NDArray[np.floating[Any]]:
        """Give what the sites (flat grid indices) observe, ``(N, K, channels)``.

        A reading that is missing is NaN, or what the others tell of it where the signals were filled.
        """
        found = self.values.reshape(len(self), self.channels, -1)[:, :, sites]
        if self.root is not None:
            found = found / self.root.ravel()[sites]
        if self.noise_draw is not None:
            found = found + self.noise_draw.reshape(len(self), self.channels, -1)[:, :, sites]
        if self.gaps is not None:
            found = self._without_gaps(found, sites)
        return found.transpose(0, 2, 1)

    def _without_gaps(self, found: NDArray[Any], sites: Indices) -> NDArray[np.floating[Any]]:
        """Put what the readings of the same sample tell in place of those that are missing; NaN before it is filled."""
        gaps = np.zeros(found.shape, bool) if self.gaps is None else self.gaps.reshape(len(self), self.channels, -1)
        rows = np.where(gaps[:, :, sites], np.nan, found)
        if self.imputer is None or not np.isnan(rows).any():
            return rows
        covariance = self.reading_covariance(sites)
        return impute_by_covariance(rows.reshape(len(rows), -1), covariance).reshape(rows.shape).astype(np.float32)

    def reading_covariance(self, sites: Indices) -> NDArray[np.float64]:
        """Covariance of what the sites read of scaled signals, ``(channels * K, channels * K)``, channel by channel."""
        if self.imputer is None:
            rows = self.readings(sites).transpose(0, 2, 1).reshape(len(self), -1).astype(np.float64)
            return np.asarray(rows.T @ rows / len(rows))
        place = np.searchsorted(self.grid.cells, sites)
        columns = np.concatenate([channel * len(self.grid.cells) + place for channel in range(self.channels)])
        root = np.ones(len(columns)) if self.root is None else np.tile(self.root.ravel()[sites], self.channels)
        noise = np.zeros((self.channels, self.grid.size)) if self.noise is None else self.noise
        added = np.diag(np.square(noise.reshape(self.channels, -1)[:, sites].ravel()))
        return np.asarray(self.imputer.covariance(columns) / np.outer(root, root) + added)

    def noisy_readings(self, sites: Indices) -> NDArray[np.floating[Any]]:
        """Give what sensors at the sites would read of signals that were not scaled, with their noise."""
        readings = self.readings(sites)
        if self.noise is None:
            return readings
        noise = self.noise.reshape(self.channels, -1)[:, sites].T
        return readings + np.random.default_rng(0).standard_normal(readings.shape) * noise

    def seen(self) -> NDArray[np.floating[Any]]:
        """Give values with the noise that sensors would add to them, in the same units; zero where they are missing."""
        seen = self.values
        if self.noise_draw is not None:
            seen = seen + self.noise_draw * (np.float32(1) if self.root is None else self.root)
        return seen if self.gaps is None else np.where(self.gaps, np.float32(0), seen)

    def reading_noise(self, sites: Indices) -> NDArray[np.float64]:
        """Variance of the noise of each site's readings in units of ``values``, ``(channels, sites)``.

        To be missing with probability `1 - a` counts as noise of `1 / a - 1` times the variance of what is read: of a
        site by itself that leaves the share `a` of what it tells.
        """
        noise = np.zeros((self.channels, len(sites)))
        if self.noise is not None:
            root = 1.0 if self.root is None else self.root.ravel()[sites]
            noise = noise + np.square(self.noise.reshape(self.channels, -1)[:, sites] * root)
        available = self.availability()
        if available is not None:
            spread = self.values.reshape(len(self), self.channels, -1)[:, :, sites].var(axis=0, dtype=np.float64)
            noise = noise + spread * (1 / np.maximum(available.ravel()[sites], _LEAST_AVAILABLE) - 1)
        return noise

    def fingerprint(self) -> str:
        """SHA-256 of the values, shape, inside and observable cells, rules, and the target."""
        return self.fingerprint_of([self.values])

    def fingerprint_of(self, blocks: Iterable[NDArray[Any]], samples: int | None = None) -> str:
        """Give the fingerprint that signals of this kind would have, from values that come some at a time."""
        shape = (len(self) if samples is None else samples, *self.values.shape[1:])
        digest = hashlib.sha256(repr((shape, str(self.values.dtype), self.cycle)).encode())
        for array in chain(blocks, (self.grid.inside, self.observable)):
            digest.update(np.ascontiguousarray(array).data)
        if self.covariates is not None:
            digest.update(np.ascontiguousarray(self.covariates).data)
        if self.constraints is not None:
            self.constraints.add_to(digest)
        for about in (self.weights, self.noise):
            digest.update(b"" if about is None else np.ascontiguousarray(about).data)
        if self.target is not None:
            digest.update(repr((self.target.name, self.target.classes)).encode())
            digest.update(np.ascontiguousarray(self.target.values).data)
        return digest.hexdigest()
