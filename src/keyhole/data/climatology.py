"""What the calendar knows of samples: their mean, the mean of each month, or harmonics of the year and of the day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError
from keyhole.data.covariates import PERIODS, Period, phase_in

__all__ = ["ANOMALIES", "AUTO", "MEAN", "Anomalies", "Climatology", "Term", "cycles_in", "harmonics_of"]

Anomalies = Literal["auto", "none", "month", "harmonics"]
ANOMALIES: tuple[Anomalies, ...] = get_args(Anomalies)
Term = tuple[int, int]  # harmonic of the year and of the day: a cosine, of the opposite number a sine, of 0 one

_CONSTANT: Term = (0, 0)
_HOURS: dict[Period, float] = {"year": 365.2425 * 24, "day": 24.0}
_LEAST_CYCLES = 1.5  # of a period, below which harmonics of it cannot be told from a trend
_NYQUIST_SLACK = 1.02  # months differ in length
_INDEPENDENT = 0.02  # mean square of a column (of cosines 0.5) that those before it must leave
_BLOCK = 2**16  # times at once


@dataclass(frozen=True)
class Climatology:
    r"""A linear model of the calendar, which is all that is known of a sample without sensors.

    The expected value of a sample at time :math:`t` is :math:`\sum_j d_j(t)\,b_j`, with coefficients :math:`b_j` for
    each site. The columns :math:`d_j` of the design are a constant (``"none"``: the mean), indicators of the twelve
    months (``"month"``), or products of cosines and sines of multiples of the phases of the year :math:`\phi` and of
    the day :math:`\psi` (``"harmonics"``), of which the first is constant:

    .. math:: d_j(t) = f_{y_j}(\phi(t))\,f_{h_j}(\psi(t)), \quad f_k(x) = \cos kx, \quad f_{-k}(x) = \sin kx.

    Harmonics need fewer samples than months, know no jumps between them, and hold the daily cycle and its change over
    the year. Prefer months where many years of monthly means are at hand.

    Parameters
    ----------
    kind : {"auto", "none", "month", "harmonics"}
        ``"auto"``: chosen by cross-validation once the training samples are known (`choose_climatology`).
    terms : tuple of (int, int)
        Harmonics of the year and of the day in each column, the constant first; empty until they are chosen.

    Examples
    --------
    >>> seasons = Climatology("harmonics", ((0, 0), (1, 0), (-1, 0)))
    >>> seasons.design(np.array(["2001-01-01", "2001-07-02T12"], "datetime64[h]")).round(2).tolist()
    [[1.0, 1.0, 0.0], [1.0, -1.0, 0.0]]
    >>> seasons.text
    'harmonics of the year'
    """

    kind: Anomalies = "auto"
    terms: tuple[Term, ...] = ()

    @property
    def is_chosen(self) -> bool:
        """Whether the columns of the design are known."""
        return self.kind in ("none", "month") or bool(self.terms)

    @property
    def n_columns(self) -> int:
        """Number of columns of the design; 1 before it is chosen."""
        return {"month": 12, "harmonics": len(self.terms)}.get(self.kind, 1)

    @property
    def needs_time(self) -> bool:
        """Whether the expected value differs between samples."""
        return self.kind in ("month", "harmonics")

    @property
    def periods(self) -> tuple[Period, ...]:
        """Periods that it follows."""
        if self.kind == "month":
            return ("year",)
        by_period = zip(PERIODS, zip(*self.terms, strict=True), strict=False)
        return tuple(period for period, numbers in by_period if any(numbers))

    @property
    def text(self) -> str:
        """What it is, in words: ``"mean"``, ``"monthly climatology"`` or ``"harmonics of the year and of the day"``."""
        if self.kind == "harmonics":
            return f"harmonics of the {' and of the '.join(self.periods)}" if self.terms else "harmonics"
        return "monthly climatology" if self.kind == "month" else "mean"

    @property
    def constant(self) -> NDArray[np.float64]:
        """Coefficients of a value that is the same at all times, ``(columns,)``."""
        weights = np.ones(self.n_columns)
        weights[1:] = self.kind == "month"
        return weights

    def lookup(self, time: NDArray[Any] | None, n: int) -> NDArray[Any]:
        """Return what `expected` needs of each time: the number of its column, or for harmonics its row of the design.

        Parameters
        ----------
        time : ndarray of datetime64, shape (n,), optional
            Needed unless the expected value is the mean.
        n : int
            Number of samples.

        Raises
        ------
        PlanError
            If time is needed, and is missing or no date.
        """
        if not self.needs_time:
            return np.zeros(n, np.int64)
        dates = self._check_dates(time, n)
        if self.kind == "month":
            return np.asarray(dates.astype("datetime64[M]").astype(np.int64) % 12)
        return _columns(dates, self.terms)

    def expected(self, coefficients: NDArray[Any], lookup: NDArray[Any]) -> NDArray[Any]:
        """Return the expected values, ``(n, ...)``; the mean as one row, ``(1, ...)``.

        Parameters
        ----------
        coefficients : ndarray of shape (columns, ...)
            Of each column of the design.
        lookup : ndarray
            From `lookup`, of some samples.
        """
        if self.kind == "harmonics":
            return np.tensordot(lookup.astype(coefficients.dtype), coefficients, axes=1)
        return np.asarray(coefficients[lookup]) if self.kind == "month" else coefficients

    def design(self, time: NDArray[Any] | None, n: int | None = None) -> NDArray[np.float64]:
        """Return the design, ``(n, columns)``.

        Parameters
        ----------
        time : ndarray of datetime64, shape (n,), optional
            As in `lookup`.
        n : int, optional
            Number of samples; by default that of times.
        """
        lookup = self.lookup(time, len(() if time is None else time) if n is None else n)
        return np.asarray(lookup if self.kind == "harmonics" else np.eye(self.n_columns)[lookup])

    def mean(self, coefficients: NDArray[Any]) -> NDArray[Any]:
        """Return the mean over the calendar, ``(...)``."""
        return np.asarray(coefficients[0] if self.kind == "harmonics" else coefficients.mean(axis=0))

    def _check_dates(self, time: NDArray[Any] | None, n: int) -> NDArray[np.datetime64]:
        """Dates of the samples; raise a PlanError if there are none."""
        kind = "monthly anomalies" if self.kind == "month" else f"anomalies from {self.text}"
        if time is None:
            raise PlanError(
                f"this plan was fitted to {kind}: give the time of each reading (time=..., --time, or a time column)"
            )
        if time.dtype.kind != "M":
            raise PlanError(f"this plan was fitted to {kind}: the time of each reading must be a date, not a number")
        if len(time) != n:
            raise PlanError(f"time has {len(time)} entries for {n} readings")
        return time


AUTO, MEAN = Climatology("auto"), Climatology("none")


def cycles_in(time: NDArray[np.datetime64], period: Period) -> float:
    """Return how many cycles of a period the samples cover, each for as long as one is apart from the next.

    Examples
    --------
    >>> cycles_in(np.arange("2000-01", "2002-01", dtype="datetime64[M]"), "year").__round__(1)
    2.0
    """
    hours = np.unique(time.astype("datetime64[s]")).astype(np.float64) / 3600
    return 0.0 if len(hours) < 2 else float((hours[-1] - hours[0] + np.median(np.diff(hours))) / _HOURS[period])


def harmonics_of(
    time: NDArray[np.datetime64], most: int, *, train: NDArray[np.datetime64] | None = None
) -> Climatology | None:  # fmt: skip
    """Return a climatology of the first harmonics of year and day, as far as samples at these times resolve them.

    Harmonics of a period need samples over one and a half cycles, of which the training samples cover one, and at least
    two samples in each of their waves: six harmonics of the year in monthly data, none of the day in daily data, two in
    data of every six hours. Of both periods there are also products, up to half as many harmonics of each. Columns that
    are not independent of those before them at the times of the training samples are left out.

    Parameters
    ----------
    time : ndarray of datetime64, shape (N,)
        Times of all samples.
    most : int
        Number of harmonics of each period.
    train : ndarray of datetime64, optional
        Times of the training samples; None: all.

    Returns
    -------
    Climatology or None
        None where the times resolve no harmonic.

    Examples
    --------
    >>> months = np.arange("2000-01", "2010-01", dtype="datetime64[M]")
    >>> harmonics_of(months, 8).n_columns, harmonics_of(months, 1).terms
    (12, ((0, 0), (1, 0), (-1, 0)))
    >>> days = np.arange("2000-01-01", "2000-01-05", dtype="datetime64[h]")
    >>> harmonics_of(days, 1).terms, harmonics_of(days[::24], 1)
    (((0, 0), (0, 1), (0, -1)), None)
    """
    train = time if train is None else train
    year, day = (_resolved(time, train, period, most) for period in PERIODS)
    pairs = [(a, b) for a in range(1, year // 2 + 1) for b in range(1, day // 2 + 1)]
    candidates = [(a, 0) for a in range(1, year + 1)] + [(0, b) for b in range(1, day + 1)] + pairs
    # In the order in which they come in as `most` grows, so that fewer harmonics are the first columns of more.
    candidates.sort(key=lambda numbers: max(numbers) * (2 if all(numbers) else 1))
    terms = [term for a, b in candidates for term in _signed(a, b)]
    kept = _independent(train, (_CONSTANT, *terms))
    return Climatology("harmonics", kept) if len(kept) > 1 else None


def _signed(year: int, day: int) -> list[Term]:
    """Cosines and sines of a harmonic, or of a product of two."""
    return [(a, b) for a in dict.fromkeys((year, -year)) for b in dict.fromkeys((day, -day))]


def _resolved(time: NDArray[np.datetime64], train: NDArray[np.datetime64], period: Period, most: int) -> int:
    """Number of harmonics of a period that samples are long and frequent enough for."""
    if cycles_in(time, period) < _LEAST_CYCLES or cycles_in(train, period) < 1:
        return 0
    step = float(np.median(np.diff(np.unique(time.astype("datetime64[s]")).astype(np.int64)))) / 3600
    return min(most, int(_NYQUIST_SLACK * _HOURS[period] / (2 * step)))


def _independent(time: NDArray[np.datetime64], terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """Terms whose columns those before them do not nearly give already."""
    blocks = (_columns(time[start : start + _BLOCK], terms) for start in range(0, len(time), _BLOCK))
    gram = sum((block.T @ block for block in blocks), np.zeros((len(terms), len(terms)))) / len(time)
    kept: list[int] = []
    for column in range(len(terms)):
        cross = gram[np.ix_(kept, [column])]
        left = gram[column, column] - float(np.sum(cross * np.linalg.solve(gram[np.ix_(kept, kept)], cross)))
        if left > _INDEPENDENT:
            kept.append(column)
    return tuple(terms[column] for column in kept)


def _columns(time: NDArray[np.datetime64], terms: tuple[Term, ...]) -> NDArray[np.float64]:
    """Columns of the design of harmonics, ``(n, terms)``."""
    waves: list[dict[int, NDArray[np.float64]]] = []
    for period, numbers in zip(PERIODS, zip(*terms, strict=True), strict=True):
        phase = phase_in(time, period) if any(numbers) else np.zeros(len(time))
        waves.append({k: np.cos(k * phase) if k >= 0 else np.sin(-k * phase) for k in set(numbers)})
    return np.stack([waves[0][year] * waves[1][day] for year, day in terms], axis=1)
