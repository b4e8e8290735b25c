"""The plan: selected sites, the models fitted to them, and how both were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import KeyholeError, PlanError
from keyhole.core.storage import array_of, read_container, write_container
from keyhole.data.alignment import by_time
from keyhole.data.grid import Grid
from keyhole.data.imputation import impute_by_covariance
from keyhole.data.origin import SourceInfo
from keyhole.data.scaler import Scaler
from keyhole.models.intervals import PredictionIntervals
from keyhole.models.predictors import PREDICTORS, Predictor
from keyhole.models.reconstructors import RECONSTRUCTORS, Reconstructor
from keyhole.models.reconstructors.base import flat, unpack
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.plan._format1 import upgrade
from keyhole.plan.export import bounds_of, to_source_type
from keyhole.plan.readings import check_units, order_readings, warn_beyond
from keyhole.plan.schema import Header, checked_header, grid_of, origin_of, scaling_of, sites_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Plan", "ReconstructionInterval", "load"]

_NOT_FINITE = (
    "the {} is not finite: a reading is too large for this plan, or the plan's own numbers are; "
    "put NaN for a reading that is wrong"
)


class ReconstructionInterval(NamedTuple):
    """A reconstruction with prediction intervals, each part of the same type as the data that were read.

    Parameters
    ----------
    mean
        The reconstruction, as `Plan.reconstruct` returns it without an interval.
    lower, upper
        Bounds of the prediction interval of each cell.
    """

    mean: Any
    lower: Any
    upper: Any


@dataclass(frozen=True, eq=False)
class Plan:
    """K ranked sites, the reconstructor fitted to them, and the predictor if there is a target.

    Returned by `select`, `extend` and `drop`; saved with `save` and loaded with `load`.

    Parameters
    ----------
    grid
        Grid of the data.
    indices
        ``(K,)``, flat grid index (C order) of each site, by rank.
    gain
        ``(K,)``, reduction of the validation error (by ridge) when each site is added to those before it, as a fraction
        of the variance of the field, or of the target if there is one.
    scaling
        Mean or climatology and scale of each channel.
    reconstructor
        Fitted model from readings to the field.
    origin
        Type, name, units and attributes of the data that were read, in which reconstructions are returned.
    metadata
        How the plan was made: method, settings, seed, split, versions, fingerprint of the data.
    metrics
        Errors by part: ``{"validation": {...}, "test": {...}}``; those of the target begin with ``target_``.
    history
        Training history (loss, validation error, ...), empty for closed forms.
    predictor
        Fitted model from readings to the target; None without a target.
    covariance
        ``(channels * K, channels * K)``, covariance of the scaled readings, channel by channel, to impute missing ones.
    intervals
        Calibrated prediction intervals; None if no samples were held out for calibration.
    ranges
        ``(2, K, channels)``, smallest and largest reading of each site outside the test part, in the user's units; a
        `ReadingsWarning` is issued for readings far beyond. None in older files.

    Examples
    --------
    >>> import keyhole as kh
    >>> plan = kh.select(kh.datasets.sst(), k=3, method="qr", reconstructor="ridge")
    >>> plan.sites.columns.tolist()
    ['rank', 'index', 'name', 'lat', 'lon', 'gain', 'existing']
    """

    grid: Grid
    indices: NDArray[np.int64]
    gain: NDArray[np.float64]
    scaling: Scaler
    reconstructor: Reconstructor
    origin: SourceInfo
    metadata: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    predictor: Predictor | None = None
    covariance: NDArray[np.float64] | None = None
    intervals: PredictionIntervals | None = None
    ranges: NDArray[np.float64] | None = None

    @property
    def k(self) -> int:
        """Number of sites."""
        return len(self.indices)

    @property
    def error_scale(self) -> NDArray[np.float64]:
        """Divisor of the errors of each channel before pooling: one, or the channel's scale if units differ."""
        return np.asarray(self.scaling.scale if self.origin.units_differ else np.ones(len(self.scaling.scale)))

    @property
    def names(self) -> list[str]:
        """Names of the sites in rank order."""
        return [self.grid.name(int(index)) for index in self.indices]

    @property
    def target(self) -> str | None:
        """Name of the target, if there is one."""
        return None if self.predictor is None else self.predictor.target

    @property
    def sites(self) -> pd.DataFrame:
        """Table of the sites by rank: rank, index, name, coordinates, gain, existing, and group if there are groups."""
        import pandas as pd

        places = [self.grid.position(int(index)) for index in self.indices]
        columns: dict[str, Any] = {"rank": np.arange(1, self.k + 1), "index": self.indices, "name": self.names}
        columns |= {dim: [place[dim] for place in places] for dim in self.grid.dims if dim not in columns}
        constraint_metadata = self.metadata.get("constraints", {})
        columns |= {"gain": self.gain, "existing": np.arange(self.k) < constraint_metadata.get("existing", 0)}
        return pd.DataFrame(
            columns | ({"group": constraint_metadata["groups"]} if "groups" in constraint_metadata else {})
        )

    def reconstruct(
        self, readings: Any, *, time: Any = None, covariates: Any = None, interval: float | None = None
    ) -> Any:
        """Reconstruct whole fields from readings at the sites.

        Parameters
        ----------
        readings
            ``(K,)``, ``(N, K)`` or ``(N, K, channels)`` in rank order; or labelled, in any order: a mapping, Series or
            frame by site name, a DataArray (a Dataset of several variables) by the sites' names or coordinates. Missing
            readings (NaN) are imputed from the other readings of the same sample, using their covariance.
        time
            Time of each sample, as dates or numbers like those of the data; required if the plan is based on anomalies
            or the time of year, unless the readings are labelled with it.
        covariates
            ``(N, columns)``, required if the plan was made with covariates of the user's own.
        interval
            Nominal coverage of prediction intervals to return as well, such as 0.9.

        Returns
        -------
        array, DataArray, Dataset, DataFrame or ReconstructionInterval
            ``(N, *grid)`` in the user's units, of the same type as the data that were read; NaN at invalid cells. With
            ``interval``, a `ReconstructionInterval` of three such objects: ``mean``, ``lower``, ``upper``.

        Raises
        ------
        PlanError
            Readings of the wrong shape, labels or units, a missing time, or an interval of an uncalibrated plan.

        Warns
        -----
        ReadingsWarning
            A reading lies far outside the range of its site in the training data.
        """
        values, when = self.take_readings(readings, time, interval)
        parts = self.estimate(values, when, covariates, interval)
        if interval is None:
            return to_source_type(parts[0], self.grid, self.origin, when)
        origins = (self.origin, *bounds_of(self.origin, interval))
        return ReconstructionInterval(
            *(to_source_type(part, self.grid, one, when) for part, one in zip(parts, origins, strict=True))
        )

    def take_readings(
        self, readings: Any, time: Any = None, interval: float | None = None, *, stacklevel: int = 3
    ) -> tuple[NDArray[np.float64], NDArray[np.datetime64] | None]:
        """Return readings as ``(N, K, channels)`` in rank order, and their times if known.

        Raises a PlanError if the units differ from the plan's, and issues a ReadingsWarning for a reading far outside
        the range of its site in the training data. Parameters are those of `reconstruct`.
        """
        channels = len(self.scaling.scale)
        units = self.origin.channel_units(channels)
        check_units(readings, units)
        values, when = self.order_readings(readings, time)
        if self.ranges is not None:
            warn_beyond(values, self.ranges, self.scaling.scale, self.names, units, interval, stacklevel=stacklevel)
        return values, when

    def estimate(
        self, readings: NDArray[Any], time: NDArray[np.datetime64] | None, covariates: Any = None,
        interval: float | None = None,
    ) -> list[NDArray[np.floating[Any]]]:  # fmt: skip
        """Reconstruct ``(N, channels, *grid)`` from readings ``(N, K, channels)``, with the bounds of an interval.

        Raises a PlanError if the result is not finite because of overflow.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            parts = [self.reconstruct_array(readings, time, covariates)]
            if interval is not None:
                half = unpack(self.half_width(readings, time, interval), parts[0].shape[1], self.grid)
                parts += [parts[0] - half, parts[0] + half]
        inside = parts[0].size // self.grid.size * len(self.grid.cells)
        if any(np.count_nonzero(np.isfinite(part)) != inside for part in parts):
            raise PlanError(_NOT_FINITE.format("reconstruction"))
        return parts

    def order_readings(self, readings: Any, time: Any = None) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
        """Return labelled or ordered readings as ``(N, K, channels)`` in rank order, and their times if known."""
        return order_readings(
            readings, self.names, len(self.scaling.scale), time, clock=self.origin.clock,
            on=(self.grid, self.indices), variables=tuple(self.origin.variables),
        )  # fmt: skip

    def half_width(
        self, readings: NDArray[Any], time: NDArray[np.datetime64] | None, interval: float
    ) -> NDArray[np.float64]:
        """Return half the width of the intervals, ``(N, channels * cells)``, of readings ``(N, K, channels)``."""
        if self.intervals is None:
            raise PlanError(
                "this plan has no prediction intervals: it was made with intervals=False, or from too few samples"
            )
        if isinstance(interval, bool) or not isinstance(interval, int | float) or not 0 < interval < 1:
            raise PlanError(f"interval={interval!r}: expected a coverage between 0 and 1")
        missing = np.isnan(readings).any(axis=2).sum(axis=1)
        factors = np.array([self.intervals.factor(interval, int(count)) for count in missing])
        spread = self.intervals.spread(self.scaled(readings, time).reshape(len(readings), -1))
        return np.asarray(spread * factors[:, np.newaxis])

    def reconstruct_array(
        self, readings: NDArray[Any], time: NDArray[np.datetime64] | None, covariates: Any = None
    ) -> NDArray[np.floating[Any]]:
        """Reconstruct ``(N, channels, *grid)`` in the user's units from readings ``(N, K, channels)``."""
        scaled = self.scaled(readings, time)
        known = self.scaling.covariates(time, by_time(covariates, time, "covariates"), len(readings))
        if isinstance(self.reconstructor, LinearReconstructor):
            features = self.reconstructor.features(flat(scaled), known)
            phases = np.eye(len(self.scaling.baseline))[self.scaling.phase(time, len(readings))]
            whole = np.concatenate([features, phases], axis=1).astype(self._affine.dtype) @ self._affine
            return np.asarray(whole.reshape(len(readings), -1, *self.grid.shape))
        reconstructed = self.scaling.undo(self.reconstructor.reconstruct(scaled, known), time)
        return np.where(self.grid.inside, reconstructed, reconstructed.dtype.type(np.nan))

    @cached_property
    def _affine(self) -> NDArray[np.floating[Any]]:
        """Linear reconstructor and rescaling to the user's units as one matrix."""
        return self.reconstructor.in_units(self.scaling)  # type: ignore[attr-defined, no-any-return]

    def predict(self, readings: Any, *, time: Any = None) -> NDArray[Any]:
        """Predict the target from readings.

        Parameters
        ----------
        readings, time
            As in `reconstruct`.

        Returns
        -------
        array
            ``(N,)``, class names, or numbers in the units of the target.

        Raises
        ------
        PlanError
            The plan has no target.
        """
        predictor = self.need_predictor()
        values, when = self.take_readings(readings, time)
        return predictor.answer(self.tell(values, when))

    def tell(self, readings: NDArray[Any], time: NDArray[np.datetime64] | None) -> NDArray[np.float64]:
        """Predict probabilities ``(N, classes)``, or numbers ``(N,)``, from readings ``(N, K, channels)``."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            predicted = self.need_predictor().predict(self.scaled(readings, time))
        if not np.isfinite(predicted).all():
            raise PlanError(_NOT_FINITE.format("prediction"))
        return predicted

    def scaled(self, readings: NDArray[Any], time: NDArray[np.datetime64] | None) -> NDArray[np.float32]:
        """Scale readings ``(N, K, channels)`` and impute missing ones from the others of the same sample."""
        scaled = self.scaling.scale_readings(readings, self.indices, time)
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

    def need_predictor(self) -> Predictor:
        """Return the predictor; raise a PlanError if the plan has none."""
        if self.predictor is None:
            raise PlanError("this plan has no target to predict; make one with select(..., target=...) or --target")
        return self.predictor

    def save(self, path: str | Path) -> None:
        """Write the plan to one file.

        Parameters
        ----------
        path
            File to write, by convention ``.keyhole``: JSON, arrays (safetensors) and a SHA-256 checksum, no code. An
            existing file is replaced only when the new one is complete.
        """
        header, arrays = _pack(self)
        write_container(Path(path), header, arrays)


def load(path: str | Path) -> Plan:
    """Load a plan from a file written by `Plan.save`.

    Parameters
    ----------
    path
        Plan file; files of format 1 are converted.

    Raises
    ------
    PlanError
        The file is damaged, truncated, not a plan, or from a newer version.
    """
    header, arrays = read_container(Path(path), "plan")
    try:
        return _unpack(*(upgrade(header, arrays) if header["format"] == 1 else (header, arrays)))
    except Exception as error:  # components may raise anything on invalid headers and arrays
        reason = str(error) if isinstance(error, KeyholeError) else f"{type(error).__name__}: {error}"
        raise PlanError(f"{path}: not a plan that this Keyhole understands ({reason})") from error


def _pack(plan: Plan) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    settings, learned = plan.reconstructor.state()
    axes = {dim: plan.grid.coordinates[dim] for dim in plan.grid.dims}
    header = {
        "kind": "plan",
        "grid": {"shape": plan.grid.shape, "dims": plan.grid.dims, "names": plan.grid.names},
        "coordinate_types": {dim: str(axis.dtype) for dim, axis in axes.items()},
        "coordinate_texts": {dim: axis.tolist() for dim, axis in axes.items() if axis.dtype.kind == "U"},
        "scaling": {"cycle": plan.scaling.cycle, "periods": plan.scaling.periods},
        "reconstructor": {"name": plan.reconstructor.name, "settings": settings},
        "origin": asdict(plan.origin),
        "metadata": dict(plan.metadata),
        "metrics": {part: dict(scores) for part, scores in plan.metrics.items()},
        "history": [dict(row) for row in plan.history],
    }
    arrays = {
        "sites.index": plan.indices,
        "sites.gain": plan.gain,
        "grid.inside": plan.grid.inside,
        "scaling.baseline": plan.scaling.baseline,
        "scaling.scale": plan.scaling.scale,
        "scaling.columns": plan.scaling.columns,
    }
    if plan.intervals is not None:
        header["intervals"], spread = plan.intervals.state()
        arrays |= {f"intervals.{name}": array for name, array in spread.items()}
    if plan.covariance is not None:
        arrays["sites.covariance"] = plan.covariance
    if plan.ranges is not None:
        arrays["sites.range"] = plan.ranges
    if plan.scaling.root is not None:
        arrays["scaling.root"] = plan.scaling.root
    arrays |= {f"coordinates.{dim}": _numbers(axis) for dim, axis in axes.items() if axis.dtype.kind != "U"}
    arrays |= {f"reconstructor.{name}": array for name, array in learned.items()}
    if plan.predictor is not None:
        settings, learned = plan.predictor.state()
        header["predictor"] = {"name": plan.predictor.name, "settings": settings}
        arrays |= {f"predictor.{name}": array for name, array in learned.items()}
    return header, arrays


def _unpack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Plan:
    """Assemble a plan from its parts, each checked by itself and against the others."""
    found = checked_header(header, arrays)
    grid = grid_of(found, arrays)
    sites, scaling = sites_of(found, arrays, grid), scaling_of(found, arrays, grid)
    k, channels = len(sites), len(scaling.scale)
    return Plan(
        grid, sites, array_of(arrays, "sites.gain", (k,)), scaling, _reconstructor(found, arrays, grid, sites, scaling),
        origin_of(found, grid, channels), dict(header["metadata"]), dict(header["metrics"]), list(header["history"]),
        _predictor(found, arrays, k * channels), _covariance(arrays, k * channels),
        _intervals(found, arrays, k * channels, channels * len(grid.cells)), _ranges(arrays, k, channels),
    )  # fmt: skip


def _reconstructor(
    header: Header, arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64], scaling: Scaler
) -> Reconstructor:
    kind, settings = RECONSTRUCTORS[header.reconstructor.name], header.reconstructor.settings
    made = kind.restore(settings, _under("reconstructor.", arrays), grid, sites)
    if not made.takes(len(sites), len(scaling.scale), 2 * len(scaling.periods) + scaling.columns.shape[1]):
        raise PlanError("the reconstructor was fitted to other sites, channels or covariates than the plan has")
    return made


def _predictor(header: Header, arrays: Mapping[str, NDArray[Any]], readings: int) -> Predictor | None:
    if header.predictor is None:
        return None
    made = PREDICTORS[header.predictor.name].restore(header.predictor.settings, _under("predictor.", arrays))
    if len(made.readings.mean) != readings:
        raise PlanError(f"the predictor takes {len(made.readings.mean)} readings, and the plan has {readings}")
    needed = {"target_error", "target_log_loss"} if made.is_class else {"target_rmse", "target_fvu"}
    for part, scores in header.metrics.items():
        if not needed <= set(scores):
            raise PlanError(f"header: metrics.{part}: {sorted(needed - set(scores))[0]} is missing")
    return made


def _covariance(arrays: Mapping[str, NDArray[Any]], readings: int) -> NDArray[np.float64] | None:
    """Return the covariance of the readings; older files have none."""
    if "sites.covariance" not in arrays:
        return None
    found = array_of(arrays, "sites.covariance", (readings, readings))
    if (np.diagonal(found) < 0).any():
        raise PlanError("the array 'sites.covariance' has a negative variance")
    return found.astype(np.float64, copy=False)


def _ranges(arrays: Mapping[str, NDArray[Any]], k: int, channels: int) -> NDArray[np.float64] | None:
    """Return the range of each site's readings; older files have none."""
    return array_of(arrays, "sites.range", (2, k, channels)) if "sites.range" in arrays else None


def _intervals(
    header: Header, arrays: Mapping[str, NDArray[Any]], readings: int, outputs: int
) -> PredictionIntervals | None:
    if header.intervals is None:
        return None
    made = PredictionIntervals.restore(header.intervals.model_dump(), _under("intervals.", arrays))
    if not made.takes(readings, outputs):
        raise PlanError("the prediction intervals are for other sites, channels or cells than the plan has")
    return made


def _under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _numbers(coordinate: NDArray[Any]) -> NDArray[Any]:
    """Return dates as integers of their unit, since safetensors holds no dates."""
    if coordinate.dtype.kind in "mM":
        return coordinate.astype(np.int64)
    if coordinate.dtype.kind not in "biuf":
        raise PlanError(f"coordinates of type {coordinate.dtype} cannot be saved; use numbers, dates or texts")
    return coordinate
