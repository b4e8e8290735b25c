"""The plan: selected sites, the models fitted to them, and how both were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyhole.metrics import Ratio
from keyhole.plan.export import bounds_of, coordinates_of, to_source_type
from keyhole.plan.fitted import FittedModels, check_finite
from keyhole.plan.functionals import functional_intervals
from keyhole.plan.outliers import Outliers, check_outliers, drop_beyond, warn_beyond
from keyhole.plan.readings import check_units, order_readings
from keyhole.plan.table_readings import encode_readings, sites_by_column

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Plan", "ReconstructionInterval"]


class ReconstructionInterval(NamedTuple):
    """A reconstruction with prediction intervals, each part of the same type as the data that were read.

    Parameters
    ----------
    mean
        The reconstruction, as `Plan.reconstruct` returns it without an interval.
    lower, upper
        Bounds of the prediction interval of each site.
    """

    mean: Any
    lower: Any
    upper: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan(FittedModels):
    """K ranked sites, the reconstructor fitted to them, and the predictor if there is a target.

    Returned by `select`, `extend` and `drop`; saved with `save` and loaded with `load`. The sites and the fitted models
    are fields of the base class: ``domain``, ``indices``, ``scaling``, ``reconstructor``, ``origin``, ``predictor``,
    ``covariance`` and ``intervals``.

    Parameters
    ----------
    gain
        ``(K,)``, reduction of the validation error (by ridge) when each site is added to those before it, as a fraction
        of the variance of the field, or of the target if there is one.
    metadata
        How the plan was made: method, settings, seed, split, versions, fingerprint of the data.
    metrics
        Errors by part: ``{"validation": {...}, "test": {...}}``; those of the target begin with ``target_``. Standard
        errors have the name of the error followed by ``_se``.
    history
        Training history (loss, validation error, ...), empty for closed forms.
    ranges
        ``(2, K, channels)``, smallest and largest reading of each site outside the test part, in the user's units; a
        `ReadingsWarning` is issued for readings far beyond. None in older files.
    measured
        The plan whose errors ``metrics`` holds, where sites and models were selected and fitted once more on all
        samples afterwards (``metadata["refit"]``); it has seen no sample of the test part. It is not saved.
    stability
        ``(K,)``, share of resampled data in which each site, or one whose values correlate with its own by more than
        0.9, is selected greedily (`keyhole.placement.stability`). NaN where it is not known. None in older files.
    sample_errors
        By part and metric, the sums of each sample that the metric is made of, or of each group of samples, by which
        the plan can be compared with others on the same samples. Not saved with the plan.

    Examples
    --------
    >>> import keyhole as kh
    >>> plan = kh.select(kh.datasets.sst(), k=3, method="qr", reconstructor="ridge")
    >>> plan.sites.columns.tolist()
    ['rank', 'index', 'name', 'lat', 'lon', 'gain', 'stability', 'existing']
    """

    gain: NDArray[np.float64]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    ranges: NDArray[np.float64] | None = None
    measured: Plan | None = None
    stability: NDArray[np.float64] | None = None
    sample_errors: Mapping[str, Mapping[str, Ratio]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return sites, errors and how the plan was made, as `keyhole info` prints them."""
        from keyhole.report.tables import as_text, plan_table

        return as_text(plan_table(self))

    def _repr_html_(self) -> str:
        from keyhole.report.tables import plan_page

        return plan_page(self)

    @property
    def names(self) -> list[str]:
        """Names of the sites in rank order; of a table those of its columns."""
        if self.sensors is not None:
            return list(self.sensors.names)
        columns = self.origin.columns
        if columns is not None:
            return [columns.columns[at].name for at in columns.of_sites(self.indices)]
        return self._site_names

    @property
    def _site_names(self) -> list[str]:
        return [self.domain.name(int(number)) for number in self.numbers]

    @property
    def target(self) -> str | None:
        """Name of the target, if there is one."""
        return None if self.predictor is None else self.predictor.target

    @property
    def sites(self) -> pd.DataFrame:
        """Table of the sites by rank: rank, index, name, coordinates, gain, stability, existing, and group if any.

        Of sensors that are not simply sites: also their kind, noise and cost, as far as these were given.

        The coordinates that say where a site is come first, then all others. Of a table there is a row for each
        column, of words too, and the index is its position among the columns.
        """
        import pandas as pd

        constraint_metadata = self.metadata.get("constraints", {})
        if self.origin.columns is not None and self.sensors is None:
            existing = constraint_metadata.get("existing", 0)
            stability = np.full(self.k, np.nan) if self.stability is None else self.stability
            return sites_by_column(self.origin.columns, self.indices, self.gain, stability, existing)
        columns: dict[str, Any] = {"rank": np.arange(1, self.k + 1), "index": self.indices, "name": self.names}
        if self.sensors is not None:
            columns |= self.sensors.columns()
        else:
            coordinates = [name for name in coordinates_of(self.domain, self.origin) if name not in columns]
            columns |= {name: self.domain.coordinate(name)[self.numbers] for name in coordinates}
        columns["gain"] = self.gain
        columns["stability"] = np.full(self.k, np.nan) if self.stability is None else self.stability
        columns |= {"existing": np.arange(self.k) < constraint_metadata.get("existing", 0)}
        return pd.DataFrame(
            columns | ({"group": constraint_metadata["groups"]} if "groups" in constraint_metadata else {})
        )

    def reconstruct(
        self, readings: Any, *, time: Any = None, covariates: Any = None, interval: float | None = None,
        outliers: Outliers = "flag",
    ) -> Any:  # fmt: skip
        """Reconstruct whole fields from readings at the sites.

        Parameters
        ----------
        readings
            ``(K,)``, ``(N, K)`` or ``(N, K, channels)`` in rank order; or labelled, in any order: a mapping, Series or
            frame by site name, a DataArray (a Dataset of several variables) by the sites' names or coordinates; of a
            table by column, with its words and dates. Missing
            readings (NaN) are imputed from the other readings of the same sample, using their covariance.
        time
            Time of each sample, as dates or numbers like those of the data; required if the plan is based on anomalies
            or the time of year, unless the readings are labelled with it.
        covariates
            ``(N, columns)``, required if the plan was made with covariates of the user's own.
        interval
            Nominal coverage of prediction intervals to return as well, such as 0.9.
        outliers
            Treatment of readings that exceed what their site ever showed by more than the width of that range (or the
            channel's standard deviation, if that is larger): ``"flag"`` reconstructs from them with a warning,
            ``"drop"`` imputes them like missing ones, with a warning that counts them, ``"trust"`` does not check.

        Returns
        -------
        array, DataArray, Dataset, DataFrame or ReconstructionInterval
            ``(N, *grid)`` in the user's units, of the same type as the data that were read; NaN at invalid sites. With
            ``interval``, a `ReconstructionInterval` of three such objects: ``mean``, ``lower``, ``upper``.

        Raises
        ------
        PlanError
            Readings of the wrong shape, labels or units, a missing time, an interval of an uncalibrated plan, or
            ``outliers="drop"`` with a plan of an older version, which has no ranges.

        Warns
        -----
        ReadingsWarning
            A reading lies far outside the range of its site in the training data.
        """
        values, when = self.take_readings(readings, time, interval, outliers=outliers)
        parts = self.reconstruct_with_bounds(values, when, covariates, interval)
        if interval is None:
            return to_source_type(parts[0], self.domain, self.origin, when)
        origins = (self.origin, *bounds_of(self.origin, interval))
        return ReconstructionInterval(
            *(to_source_type(part, self.domain, one, when) for part, one in zip(parts, origins, strict=True))
        )

    def interval(
        self, region: Any, readings: Any, *, time: Any = None, covariates: Any = None, level: float = 0.9,
        outliers: Outliers = "flag",
    ) -> pd.DataFrame:  # fmt: skip
        """Estimate the mean over a region, or any weighted sum over the field, with its prediction interval.

        Errors of neighbouring sites are correlated, so that the interval of a mean is wider than independent errors
        would make it, and does not follow from the bounds that `reconstruct` returns. It is calibrated by the errors of
        this very mean on held-out samples.

        Parameters
        ----------
        region
            A box such as ``{"lat": (-5, 5), "lon": (190, 240)}``, GeoJSON, a boolean mask, or a list of these, as
            `keyhole.Constraints` takes them: the mean over its sites, weighted by their areas where these are known.
            Numbers of the shape of the data, or a DataArray or Series of them: the weights of a sum, as they are, such
            as ``-1`` and ``1`` at two sites for their difference.
        readings, time, covariates, outliers
            As in `reconstruct`.
        level
            Nominal coverage of the interval.

        Returns
        -------
        DataFrame
            One row for each sample, labelled by its time if that is known (and by variable, if there are several), with
            the columns ``estimate``, ``lower`` and ``upper`` in the user's units.

        Raises
        ------
        PlanError
            The plan has no prediction intervals, or was made by a version without those of means.
        SettingsError
            No site lies in the region, or it does not fit the sites.

        Examples
        --------
        >>> import keyhole as kh
        >>> field = kh.datasets.sst()
        >>> plan = kh.select(field, k=5, method="qr", reconstructor="ridge")
        >>> tropics = plan.interval({"lat": (-20, 20)}, field.readings(plan.indices)[-3:], time=field.time[-3:])
        >>> tropics.columns.tolist(), len(tropics)
        (['estimate', 'lower', 'upper'], 3)
        """
        values, when = self.take_readings(readings, time, level, outliers=outliers)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return functional_intervals(self, region, values, when, covariates, level)

    def take_readings(
        self,
        readings: Any,
        time: Any = None,
        interval: float | None = None,
        *,
        outliers: Outliers = "flag",
        stacklevel: int = 3,
    ) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
        """Return readings as ``(N, K, channels)`` in rank order, and their times if known.

        Raises a PlanError if the units differ from the plan's, and issues a ReadingsWarning for a reading far outside
        the range of its site in the training data, which is NaN in the result if it is dropped. Parameters are those of
        `reconstruct`.
        """
        check_outliers(outliers, known=self.ranges is not None)
        channels = self.reading_channels
        units = self.origin.channel_units(len(self.scaling.scale))
        check_units(readings, units)
        names = self.names
        if self.origin.columns is not None and self.sensors is None:
            readings, names = encode_readings(readings, self.origin.columns, self.indices), self._site_names
        values, when = order_readings(
            readings, names, channels, time, clock=self.origin.clock,
            domain=self.domain if self.sensors is None else self.sensors.sites,
            variables=tuple(self.origin.variables),
        )  # fmt: skip
        if self.ranges is None or outliers == "trust":
            return values, when
        units = units if self.sensors is None else self.sensors.units(units)
        about = (self.ranges, self.reading_scale, names, units)
        if outliers == "drop":
            return drop_beyond(values, *about, stacklevel=stacklevel), when
        warn_beyond(values, *about, interval, stacklevel=stacklevel)
        return values, when

    def reconstruct_with_bounds(
        self, readings: NDArray[Any], time: NDArray[Any] | None, covariates: Any = None, interval: float | None = None
    ) -> list[NDArray[np.floating[Any]]]:
        """Reconstruct ``(N, channels, m)`` from ordered readings; with an interval, followed by its bounds.

        Raises a PlanError if the result is not finite because of overflow.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            parts = [self.reconstruct_array(readings, time, covariates)]
            if interval is not None:
                half = self.half_width(readings, time, interval).reshape(parts[0].shape)
                parts += [parts[0] - half, parts[0] + half]
        for part in parts:
            check_finite(part, "reconstruction")
        return parts

    def predict(self, readings: Any, *, time: Any = None, outliers: Outliers = "flag") -> NDArray[Any]:
        """Predict the target from readings.

        Parameters
        ----------
        readings, time, outliers
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
        values, when = self.take_readings(readings, time, outliers=outliers)
        return predictor.answer(self.predict_array(values, when))

    def refit(self, data: Any, **options: Any) -> Plan:
        """Fit the models to new data, such as those of another year, at the same sites.

        Parameters
        ----------
        data
            Anything that `keyhole.read` takes, of the same sites.
        options
            ``missing``, ``split``, ``refit``, ``time_limit``, ``seed`` and ``device``, as in `keyhole.select`.

        Returns
        -------
        Plan
            Its errors are measured on the test part of the new data; the models are then fitted to all of them.
        """
        from keyhole.workflow.changes import refit

        return refit(self, data, **options)

    def plot(self, *, projection: Any = None) -> Figure:
        """Draw the ranked sites over the mean of the field: a map, slices of a volume, or a line over columns.

        Parameters
        ----------
        projection
            Map projection of sites with latitude and longitude: one of ``cartopy.crs`` or its name, such as
            ``"Robinson"`` or ``"NorthPolarStereo"``; it needs ``keyhole[maps]``. None: longitude and latitude are the
            axes.

        Returns
        -------
        Figure
            Of matplotlib; coastlines are drawn where cartopy is installed and has Natural Earth's files on the machine.

        Raises
        ------
        SettingsError
            There is no such projection, or the sites have no latitude and longitude.
        MissingExtraError
            A projection is asked for, and cartopy is not installed.

        Examples
        --------
        >>> import keyhole as kh
        >>> figure = kh.select(kh.datasets.sst(), k=3, method="qr", reconstructor="ridge").plot()
        >>> figure.axes[0].get_xlabel(), figure.axes[1].get_ylabel()
        ('lon', 'mean (degC)')
        """
        from keyhole.report.figures import plan_figure

        return plan_figure(self, projection=projection)

    def save(self, path: str | Path) -> None:
        """Write the plan to one file.

        Parameters
        ----------
        path
            File to write, by convention ``.keyhole``: JSON, arrays (safetensors) and a SHA-256 checksum, no code. An
            existing file is replaced only when the new one is complete.
        """
        from keyhole.plan.file_format import save

        save(self, Path(path))
