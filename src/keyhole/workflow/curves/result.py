"""What a curve is: rows of error against the number of sites, and the fewest that reach an error."""

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

_WORDS = {
    "fvu": "variance left",
    "rmse": "RMSE",
    "mse": "mean squared error",
    "fvu_area": "variance left, by area",
    "rmse_area": "RMSE, by area",
    "target_error": "share of the target told wrongly",
    "target_log_loss": "log loss of the target",
    "target_fvu": "the target's variance left",
    "target_rmse": "RMSE of the target",
    "target_mse": "mean squared error of the target",
}
_IN_UNITS = ("rmse", "rmse_area")


@dataclass(frozen=True, eq=False)
class Row:
    """One method at one K: its sites, best first, and the errors by name, as a plan's metrics are.

    ``seconds`` is what the choice of the sites took; of a nested method, the one choice that all its rows share.
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
        By method, then by K: every K asked for, and those tried on the way to the fewest sites.
    ks
        The K asked for, ascending.
    metric
        The error that counts: a name among the metrics of each row.
    reconstructor
        The one that all methods share.
    target_error
        The error to reach on validation, if one was named.
    origin
        What the signals were before they were read.

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
        """Methods that have a row, in the order asked for."""
        return list(dict.fromkeys(row.method for row in self.rows))

    @property
    def label(self) -> str:
        """The error that counts, in words, with its units."""
        units = f" ({self.origin.error_units})" if self.origin.error_units and self.metric in _IN_UNITS else ""
        return _WORDS[self.metric] + units

    @property
    def title(self) -> str:
        """What is shown: the data, what rebuilds them, and the error on test."""
        reconstructed = "" if self.metric.startswith("target_") else f", rebuilt by {self.reconstructor}"
        return f"{self.origin.name}{reconstructed}: {self.label} on test"

    def of(self, method: str) -> list[Row]:
        """Give the rows of one method."""
        if method not in self.methods:
            raise SettingsError(f"method {method!r} is not on this curve; there are {', '.join(self.methods)}")
        return [row for row in self.rows if row.method == method]

    def best(self, method: str) -> Row:
        """Give the row with the least error on validation."""
        return min(self.of(method), key=lambda row: np.nan_to_num(row.validation[self.metric], nan=np.inf))

    def smallest(self, method: str) -> Row | None:
        """Give the row with the fewest sites whose error on validation is the target error or less, if there is one."""
        if self.target_error is None:
            raise SettingsError("this curve has no error to reach; name one with curve(..., target_error=...)")
        return next((row for row in self.of(method) if row.validation[self.metric] <= self.target_error), None)

    def smallest_k(self, method: str) -> int | None:
        """Give the fewest sites that reach the target error on validation; None where it is never reached.

        One site fewer was tried and did not reach it. Where the error goes up and down with K, another K further down
        may reach it too, between two of those asked for that do not. A curve that was stopped knows what it tried.
        """
        row = self.smallest(method)
        return None if row is None else row.k

    def records(self) -> list[dict[str, Any]]:
        """Give one row of plain values for each method and K, for tables and machines."""
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
        """Give the rows as a pandas frame; ``sites`` are flat grid indices, best first."""
        import pandas as pd

        return pd.DataFrame(self.records())

    def plot(self) -> Figure:
        """Draw the errors on test against K; with a target error, those on validation too, and the fewest sites."""
        from keyhole.report import Line, error_by_k_figure

        lines = []
        for method in self.methods:
            rows = self.of(method)
            test, validation = [row.test[self.metric] for row in rows], [row.validation[self.metric] for row in rows]
            smallest = None if self.target_error is None else self.smallest_k(method)
            lines.append(Line(method, [row.k for row in rows], test, validation, smallest))
        return error_by_k_figure(lines, self.title, self.label, target_error=self.target_error)


class CurveInterrupted(Interrupted):
    """A curve was stopped by a signal; ``curve`` holds what was finished."""

    def __init__(self, message: str, signum: int, curve: Curve) -> None:
        super().__init__(message, signum)
        self.curve = curve
