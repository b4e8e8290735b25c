"""Result of `curve`: errors by method and number of sites, and the smallest number that reaches an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.core.interrupts import Interrupted
from keyhole.data.origin import SourceInfo

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Curve", "CurveInterrupted", "Row"]

_LABELS = {
    "fvu": "unexplained variance",
    "rmse": "RMSE",
    "mse": "mean squared error",
    "fvu_area": "unexplained variance, area-weighted",
    "rmse_area": "RMSE, area-weighted",
    "target_error": "misclassification rate of the target",
    "target_log_loss": "log loss of the target",
    "target_fvu": "unexplained variance of the target",
    "target_rmse": "RMSE of the target",
    "target_mse": "mean squared error of the target",
}
_IN_UNITS = ("rmse", "rmse_area")


@dataclass(frozen=True, eq=False)
class Row:
    """One method at one K.

    Parameters
    ----------
    method, k
        Name of the selector, and the number of sites.
    validation, test
        Metrics by name, as in ``Plan.metrics``.
    seconds
        Time that site selection took; the rows of a nested method share one selection.
    sites
        ``(k,)``, flat grid indices by rank.
    """

    method: str
    k: int
    validation: Mapping[str, float]
    test: Mapping[str, float]
    seconds: float
    sites: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Curve:
    """Error against K of several methods.

    Parameters
    ----------
    rows
        Sorted by method, then by K: every given K, and those tried during the bisection for ``target_error``.
    ks
        The given K, ascending.
    metric
        Name of the metric to report.
    reconstructor
        Reconstructor fitted to the sites of every method.
    target_error
        Validation error to reach, if given.
    origin
        Name, units and attributes of the data.

    Examples
    --------
    >>> import keyhole as kh
    >>> found = kh.curve(kh.datasets.sst(), ks=(5, 20), methods=("greedy", "random"), target_error=0.7)
    >>> found.smallest_k("greedy"), found.smallest_k("random")
    (14, None)
    """

    rows: Sequence[Row]
    ks: Sequence[int]
    metric: str
    reconstructor: str
    target_error: float | None = None
    origin: SourceInfo = field(default_factory=SourceInfo)

    @property
    def methods(self) -> list[str]:
        """Methods that have a row, in the order given."""
        return list(dict.fromkeys(row.method for row in self.rows))

    @property
    def label(self) -> str:
        """Name of the metric for axes and tables, with its units."""
        units = f" ({self.origin.error_units})" if self.origin.error_units and self.metric in _IN_UNITS else ""
        return _LABELS[self.metric] + units

    @property
    def title(self) -> str:
        """Title for tables and figures: data, reconstructor and metric."""
        reconstructed = "" if self.metric.startswith("target_") else f", reconstructed by {self.reconstructor}"
        return f"{self.origin.name}{reconstructed}: {self.label} on test"

    def of(self, method: str) -> list[Row]:
        """Return the rows of one method, by ascending K."""
        if method not in self.methods:
            raise SettingsError(f"method {method!r} is not on this curve; expected one of {', '.join(self.methods)}")
        return [row for row in self.rows if row.method == method]

    def best(self, method: str) -> Row:
        """Return the row of a method with the smallest validation error."""
        return min(self.of(method), key=lambda row: np.nan_to_num(row.validation[self.metric], nan=np.inf))

    def smallest(self, method: str) -> Row | None:
        """Return the row with the fewest sites whose validation error is at most ``target_error``, or None."""
        if self.target_error is None:
            raise SettingsError("this curve has no target error; give one with curve(..., target_error=...)")
        return next((row for row in self.of(method) if row.validation[self.metric] <= self.target_error), None)

    def smallest_k(self, method: str) -> int | None:
        """Return the smallest K that reaches ``target_error`` on validation; None if it is never reached.

        One site fewer was tried and did not reach it. If the error is not monotonic in K, a smaller K between two given
        ones may reach it as well. An interrupted curve takes only the finished rows into account.
        """
        row = self.smallest(method)
        return None if row is None else row.k

    def records(self) -> list[dict[str, Any]]:
        """Return one dict for each method and K: validation and test metrics, seconds and sites."""
        return [
            {
                "method": row.method,
                "k": row.k,
                "reconstructor": self.reconstructor,
                **{f"validation_{name}": value for name, value in row.validation.items()},
                **{f"test_{name}": value for name, value in row.test.items()},
                "seconds": round(row.seconds, 2),
                "sites": row.sites.tolist(),
            }
            for row in self.rows
        ]

    def frame(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame; ``sites`` are flat grid indices by rank."""
        import pandas as pd

        return pd.DataFrame(self.records())

    def plot(self) -> Figure:
        """Plot the test error against K; with a target error, also the validation error and the smallest K."""
        from keyhole.report import Line, error_by_k_figure

        lines = []
        for method in self.methods:
            rows = self.of(method)
            test, validation = [row.test[self.metric] for row in rows], [row.validation[self.metric] for row in rows]
            smallest = None if self.target_error is None else self.smallest_k(method)
            lines.append(Line(method, [row.k for row in rows], test, validation, smallest))
        return error_by_k_figure(lines, self.title, self.label, target_error=self.target_error)


class CurveInterrupted(Interrupted):
    """Raised when a signal interrupts `curve`; ``curve`` holds the finished rows."""

    def __init__(self, message: str, signum: int, curve: Curve) -> None:
        super().__init__(message, signum)
        self.curve = curve
