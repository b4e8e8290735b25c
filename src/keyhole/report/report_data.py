"""Data of the report: results of the chosen plan on the test part, computed once for all figures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole import metrics
from keyhole.data.preparation import PreparedSamples
from keyhole.data.sites import Sites
from keyhole.plan.plan import Plan
from keyhole.report.formatting import plain
from keyhole.workflow.calibration import errors_by_failures, reliability, width_map
from keyhole.workflow.comparison import Comparison

__all__ = ["Pick", "Quantity", "ReportData"]

# Raw samples look alike where the baseline varies over the sites by so much more than they vary around it.
_ALIKE = 4.0
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
MOST_FAILURES = 10

Field = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Pick:
    """A test sample that is shown.

    Parameters
    ----------
    label : {"best", "median", "worst"}
        Its place among the test samples.
    when : str
        Its time or number.
    rmse : float
        Its error.
    true, reconstructed : ndarray of shape (m,)
        Averaged over channels.
    """

    label: str
    when: str
    rmse: float
    true: Field
    reconstructed: Field

    @property
    def error(self) -> Field:
        """Reconstruction minus truth."""
        return self.reconstructed - self.true


@dataclass(frozen=True, eq=False)
class Quantity:
    """A quantity of each site, to be drawn with the selected sites on it.

    Parameters
    ----------
    values : ndarray of shape (m,)
        One for each site.
    label : str
        What it is, without units.
    units : str
        Its units; empty if unknown.
    colours : str
        Colour map of a map.
    baseline : ndarray of shape (m,), optional
        The same quantity without sensors, drawn as a second line.
    shows_ranks : bool
        Whether sites are drawn with their ranks.
    from_zero : bool
        Whether it is not negative, so that its scale begins at zero.
    """

    values: NDArray[np.float64]
    label: str
    units: str
    colours: str
    baseline: NDArray[np.float64] | None = None
    shows_ranks: bool = False
    from_zero: bool = True


@dataclass(frozen=True, eq=False)
class ReportData:
    """Data of the report on one plan.

    Parameters
    ----------
    prepared : PreparedSamples
        The split and scaled samples.
    plan : Plan
        The plan that the report is about, as it was measured.
    final : Plan, optional
        The plan to use, where that was fitted once more on all samples.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.workflow.comparison import compare
    >>> data = ReportData.of(compare(kh.datasets.sst(), 5, ["qr"]))
    >>> [pick.label for pick in data.picks]
    ['best', 'median', 'worst']
    """

    prepared: PreparedSamples
    plan: Plan
    final: Plan | None = None

    @classmethod
    def of(cls, comparison: Comparison) -> ReportData:
        """Return the data of the entry of a comparison that is chosen."""
        return cls(comparison.prepared, comparison.choice.plan, comparison.choice.final)

    @property
    def to_use(self) -> Plan:
        """The plan whose sites are listed and drawn by rank."""
        return self.final or self.plan

    @property
    def domain(self) -> Sites:
        """The m sites of the data."""
        return self.plan.domain

    @property
    def units(self) -> str:
        """Units of the values and errors shown: empty if unknown, standard deviations if variables differ."""
        return self.plan.origin.error_units

    @property
    def channels(self) -> int:
        """Number of values at each site."""
        return len(self.plan.scaling.scale)

    @cached_property
    def spread(self) -> NDArray[np.float64]:
        """Standard deviation of each site about the baseline outside the test part."""
        values = self.prepared.development.values
        nothing = np.broadcast_to(np.float32(0), values[:, :1].shape)
        squares = [
            np.square(scale / shown) * metrics.squared_error_map(values[:, c : c + 1], nothing)
            for c, (scale, shown) in enumerate(zip(self.prepared.scaling.unit, self.plan.error_scale, strict=True))
        ]
        mean: NDArray[np.float64] = np.mean(squares, axis=0)
        return np.sqrt(mean)

    @cached_property
    def reconstructed(self) -> Field:
        """Reconstruction of the test part, ``(N, channels, m)``."""
        return self.plan.reconstruct_samples(self.prepared.test)

    @cached_property
    def predicted(self) -> NDArray[np.float64]:
        """Prediction of the target of the test part: probabilities ``(N, classes)``, or numbers ``(N,)``."""
        test = self.prepared.test
        return self.plan.predict_array(self.plan.readings_of(test), test.time)

    @cached_property
    def error_map(self) -> NDArray[np.float64]:
        """RMSE of each site on the test part."""
        true, reconstructed = (self._pooled(values) for values in (self.prepared.test.values, self.reconstructed))
        return np.sqrt(metrics.squared_error_map(true, reconstructed))

    @cached_property
    def interval_map(self) -> NDArray[np.float64]:
        """Mean width of the 90 % prediction interval of each site on the test part."""
        return width_map(self.plan, self.prepared.test)

    @cached_property
    def reliability(self) -> tuple[list[float], list[float]]:
        """Nominal coverage levels, and the coverage on the test part."""
        return list(LEVELS), reliability(self.plan, self.prepared.test, LEVELS)

    @cached_property
    def by_failures(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and largest RMSE on the test part with 0, 1, ... failed sensors."""
        return errors_by_failures(self.plan, self.prepared.test, MOST_FAILURES)

    @cached_property
    def sample_errors(self) -> NDArray[np.float64]:
        """RMSE of each test sample."""
        true, reconstructed = (
            self._pooled(values)[:, np.newaxis] for values in (self.prepared.test.values, self.reconstructed)
        )
        pairs = zip(true, reconstructed, strict=True)
        maps = (metrics.squared_error_map(true, reconstructed) for true, reconstructed in pairs)
        return np.sqrt([np.nanmean(squares) for squares in maps])

    @cached_property
    def as_anomalies(self) -> bool:
        """Whether samples are shown as deviations from the baseline, since raw ones would look alike."""
        scaling = self.plan.scaling
        if self.plan.origin.units_differ:
            return True
        varies = float(scaling.mean.var(axis=-1).mean())
        return scaling.climatology.needs_time or varies > _ALIKE * float(np.square(scaling.scale).mean())

    @cached_property
    def picks(self) -> list[Pick]:
        """Best, median and worst test sample; fewer if the test part is smaller."""
        order = np.argsort(self.sample_errors, kind="stable")
        ranks = {"best": 0, "median": (len(order) - 1) // 2, "worst": len(order) - 1}
        labels = {int(order[rank]): label for label, rank in reversed(ranks.items())}
        return [self._pick(labels[i], i) for i in sorted(labels, key=self.sample_errors.__getitem__)]

    def _pick(self, label: str, i: int) -> Pick:
        """Make one sample to show."""
        test = self.prepared.test
        when = f"sample {self.prepared.split.test[i]}" if test.time is None else plain(test.time[i])
        expected = self.plan.scaling.expected(test.take(np.array([i])))[0] if self.as_anomalies else 0.0
        true, reconstructed = (self._shown(values[i], expected) for values in (test.values, self.reconstructed))
        return Pick(label, when, float(self.sample_errors[i]), true, reconstructed)

    def _shown(self, values: Field, expected: Field | float) -> Field:
        """Values of one sample as they are shown: averaged over channels."""
        return np.asarray(self._pooled((values - expected)[np.newaxis])[0].mean(axis=0))

    def _pooled(self, values: Field) -> Field:
        """Convert ``(N, channels, m)`` to units in which channels can be averaged."""
        if not self.plan.origin.units_differ:
            return values
        return values / self.plan.error_scale
