"""Columns of a table as numbers: words become indicators, dates days, and what only names the rows is left out."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, ReadingsWarning, SettingsError
from keyhole.core.memory import check_fits
from keyhole.core.text import listed
from keyhole.data.dates import parse_dates
from keyhole.data.labels import is_a

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Column", "ColumnKind", "TableColumns", "column_spread"]

ColumnKind = Literal["number", "date", "duration", "words"]

_LIKE_A_DATE = re.compile(r"\d{4}-\d{2}")
_SHOWN = 5
_DAY = np.timedelta64(1, "D") / np.timedelta64(1, "ns")  # nanoseconds


@dataclass(frozen=True)
class Column:
    """How one column of a table is encoded.

    Parameters
    ----------
    name : str
        Its name.
    kind : {"number", "date", "duration", "words"}
        Numbers stay as they are, dates become days since 1970 and durations days, words one indicator each.
    words : tuple of str
        The words, sorted; of columns of words.
    left_out : str
        Why the column is not encoded, as the end of a sentence; empty if it is.
    """

    name: str
    kind: ColumnKind = "number"
    words: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def names(self) -> list[str]:
        """Names of the encoded columns: ``colour=red`` and the like of words."""
        if self.left_out:
            return []
        return [f"{self.name}={word}" for word in self.words] if self.kind == "words" else [self.name]

    @classmethod
    def of(cls, name: str, values: pd.Series[Any], *, keep: bool = False) -> Self:
        """Return how a column is encoded, by its type and values; ``keep`` leaves no words out."""
        kind = _kind(values)
        if kind != "words":
            return cls(name, kind)
        texts = values.dropna().astype(str)
        _check_no_numbers(name, texts)
        often = texts.value_counts()
        alone = int((often == 1).sum())
        if not keep and 2 * alone > len(texts):
            return cls(name, kind, left_out="names the rows: most of its words occur once")
        return cls(name, kind, tuple(sorted(map(str, often.index))))

    def encode(self, values: pd.Series[Any]) -> NDArray[np.float64]:
        """Return ``(n, encoded)``; NaN where a value is missing, or a word is not one of ``words``."""
        if self.kind == "words":
            return self._indicators(values)
        if self.kind == "number":
            return np.asarray(values.to_numpy(float, na_value=np.nan))[:, np.newaxis]
        import pandas as pd

        if self.kind == "date":
            times: Any = parse_dates(values.dt.to_timestamp() if isinstance(values.dtype, pd.PeriodDtype) else values)
        else:
            times = pd.to_timedelta(values).to_numpy("timedelta64[ns]")
        days = times.astype(np.int64) / _DAY
        return np.where(np.isnat(times), np.nan, days)[:, np.newaxis]

    def decode(self, encoded: NDArray[np.floating[Any]]) -> NDArray[Any]:
        """Return the column from ``(n, encoded)``; of words the one with the largest indicator."""
        if self.kind == "words":
            likeliest = np.where(np.isnan(encoded), -np.inf, encoded).argmax(axis=1)
            return np.asarray(np.array(self.words, object)[likeliest])
        if self.kind == "number":
            return encoded[:, 0]
        seconds = np.round(encoded[:, 0].astype(np.float64) * 86_400)
        return seconds.astype("M8[s]" if self.kind == "date" else "m8[s]")

    def _indicators(self, values: pd.Series[Any]) -> NDArray[np.float64]:
        missing = values.isna().to_numpy()
        texts = values.astype(str).to_numpy(object)
        numbers = {word: number for number, word in enumerate(self.words)}
        codes = np.array([-1 if gone else numbers.get(text, -1) for text, gone in zip(texts, missing, strict=True)])
        unknown = sorted({str(texts[row]) for row in np.flatnonzero((codes < 0) & ~missing)})
        if unknown:
            warnings.warn(
                f"column {self.name!r}: {listed([repr(word) for word in unknown], _SHOWN)} is none of the "
                f"{len(self.words)} words that it was fitted to; taken as missing",
                ReadingsWarning,
                stacklevel=2,
            )
        indicators = np.zeros((len(values), len(self.words)))
        indicators[codes >= 0, codes[codes >= 0]] = 1
        indicators[codes < 0] = np.nan
        return indicators


@dataclass(frozen=True, eq=False)
class TableColumns:
    """The columns of a table, and how they are encoded as numbers, one site for each encoded column.

    The indicators of a column of words are selected together, count once and cost as much as one column.

    Parameters
    ----------
    columns : tuple of Column
        In the order of the table.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.5, 2.5, 2.0, 1.0], "colour": ["red", "blue", "red", "blue"]})
    >>> columns = TableColumns.of(frame)
    >>> columns.names
    ['size', 'colour=blue', 'colour=red']
    >>> columns.encode(frame)[0]
    array([1.5, 0. , 1. ])
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, frame: pd.DataFrame, *, names: Sequence[str] = (), keep: Iterable[int] = ()) -> Self:
        """Return how the columns of a frame are encoded.

        Dates, also as texts that begin with year and month, are numbers of days. Columns of words of which most occur
        once name the rows, and are left out.

        Parameters
        ----------
        frame : DataFrame
            The table.
        names : sequence of str
            Names of the columns; by default those of the frame.
        keep : iterable of int
            Positions of columns that are encoded even if they name the rows.

        Raises
        ------
        DataError
            If a word stands among numbers, or all columns name the rows.
        """
        kept, labels = set(keep), list(names) or [str(name) for name in frame.columns]
        numeric = {kind for kind in set(frame.dtypes) if _is_numeric(kind)}
        columns = [
            Column(label) if kind in numeric else Column.of(label, frame.iloc[:, at], keep=at in kept)
            for at, (label, kind) in enumerate(zip(labels, frame.dtypes, strict=True))
        ]
        made = cls(tuple(columns))
        if columns and not made.names:
            raise DataError("no column is left to choose from: all of them name the rows")
        return made

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Self:
        """Return the columns of a table of numbers."""
        return cls(tuple(map(Column, names)))

    @staticmethod
    def are_numbers(frame: pd.DataFrame) -> bool:
        """Return whether all columns of a frame are numbers."""
        return all(_kind(frame.iloc[:, at]) == "number" for at in range(frame.shape[1]))

    @cached_property
    def names(self) -> list[str]:
        """Names of the encoded columns."""
        return [name for column in self.columns for name in column.names]

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """``(encoded,)``, position of the column that each encoded column is of."""
        return np.repeat(np.arange(len(self.columns)), [len(column.names) for column in self.columns])

    @property
    def is_plain(self) -> bool:
        """Whether every column is a number, encoded as it is."""
        return all(column.kind == "number" for column in self.columns)

    @property
    def left_out(self) -> list[Column]:
        """Columns that are not encoded."""
        return [column for column in self.columns if column.left_out]

    def take(self, positions: Iterable[int]) -> TableColumns:
        """Return some of the columns, in the order given."""
        return TableColumns(tuple(self.columns[at] for at in positions))

    def of_sites(self, indices: NDArray[np.int64]) -> list[int]:
        """Return the positions of the columns that some encoded columns are of, each once, in their order."""
        return list(dict.fromkeys(self.owners[indices].tolist()))

    def words_apart(self) -> TableColumns:
        """Return the columns with one of numbers for each indicator."""
        apart = [
            [Column(name) for name in one.names] if one.kind == "words" and not one.left_out else [one]
            for one in self.columns
        ]
        return TableColumns(tuple(column for part in apart for column in part))

    def encode(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return the columns of a frame, which has them in this order, as numbers, ``(n, encoded)``."""
        if self.is_plain:
            values = frame.to_numpy()
            return values if values.dtype != object else frame.to_numpy(float, na_value=np.nan)
        check_fits(8 * len(frame) * len(self.names), f"a table of {len(self.names)} columns, one for each word,")
        parts = [column.encode(frame.iloc[:, at]) for at, column in enumerate(self.columns) if not column.left_out]
        return np.concatenate(parts, axis=1)

    def decode(self, encoded: NDArray[np.floating[Any]]) -> dict[str, NDArray[Any]]:
        """Return the columns by name from ``(n, encoded)``, without those that have no value."""
        known, found = ~np.isnan(encoded).all(axis=0), dict[str, NDArray[Any]]()
        for at, column in enumerate(self.columns):
            mine = self.owners == at
            if known[mine].any():
                found[column.name] = column.decode(encoded[:, mine])
        return found

    # Constraints on columns as constraints on encoded columns

    def group_labels(self, groups: Any) -> NDArray[Any] | None:
        """Return the group of each encoded column, given that of each column, or None."""
        several = np.bincount(self.owners, minlength=len(self.columns))[self.owners] > 1
        own = np.array([f"column {owner}" if more else "" for owner, more in zip(self.owners, several, strict=True)])
        if groups is None:
            return own if several.any() else None
        given = self.each(groups, "groups")
        alone = np.array([label in (-1, "", None) or label != label for label in given.tolist()])
        return np.where(alone, own, [f"group {label}" for label in given])

    def shared(self, costs: Any) -> NDArray[np.float64]:
        """Return the cost of each encoded column: an equal share of that of its column."""
        return np.asarray(self.each(costs, "costs") / np.bincount(self.owners)[self.owners], np.float64)

    def find(self, given: Sequence[Any]) -> list[int]:
        """Return the positions of the encoded columns of some columns, given by name, position, or row of a plan."""
        names, found = [column.name for column in self.columns], list[int]()
        for one in given:
            label = one.get("name", one.get("index")) if isinstance(one, Mapping) else one
            at = label if isinstance(label, int | np.integer) else names.index(label) if label in names else -1
            if not 0 <= at < len(names):
                raise SettingsError(f"existing: no column {label!r}; there are {listed(names, _SHOWN)}")
            if self.columns[at].left_out:
                raise SettingsError(f"existing: column {names[at]!r} {self.columns[at].left_out}, so it is left out")
            found += np.flatnonzero(self.owners == at).tolist()
        return found

    def each(self, given: Any, what: str) -> NDArray[Any]:
        """Return the value of each encoded column, given one value, or one for each column, by name if labelled."""
        if not isinstance(given, Mapping) and not is_a(given, "pandas", "Series"):
            values = np.asarray(given)
            if values.shape not in ((), (len(self.columns),)):
                raise SettingsError(f"{what}: {values.size} values for a table of {len(self.columns)} columns")
            return np.asarray(np.broadcast_to(values, len(self.columns))[self.owners])
        by_name = {str(name): value for name, value in given.items()}
        missing = [column.name for column in self.columns if not column.left_out and column.name not in by_name]
        if missing:
            raise SettingsError(f"{what}: no value for column {missing[0]!r}; {len(missing)} are missing")
        there = next(iter(by_name.values()))
        return np.asarray([by_name.get(column.name, there) for column in self.columns])[self.owners]


def _kind(values: pd.Series[Any]) -> ColumnKind:
    """Kind of a column, by its type; objects by what they hold."""
    import pandas as pd

    if _is_numeric(values.dtype):
        return "number"
    held = pd.api.types.infer_dtype(values, skipna=True)
    if held in ("integer", "floating", "mixed-integer-float", "boolean", "decimal", "empty"):
        return "number"
    if held in ("timedelta64", "timedelta"):
        return "duration"
    if held in ("datetime64", "datetime", "date", "period") or _are_dates(values):
        return "date"
    return "words"


def _is_numeric(kind: Any) -> bool:
    """Return whether a type of pandas is one of numbers or booleans."""
    import pandas as pd

    return bool(pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind))


def _are_dates(values: pd.Series[Any]) -> bool:
    """Return whether texts are dates that begin with year and month."""
    texts = values.dropna().astype(str).unique()
    if not all(_LIKE_A_DATE.match(text) for text in texts):
        return False
    try:
        return len(parse_dates(texts)) > 0
    except (ValueError, TypeError):
        return False


def _check_no_numbers(name: str, texts: pd.Series[Any]) -> None:
    """Raise a DataError if most of the words are numbers, so that the others may stand for missing values."""
    import pandas as pd

    numbers = pd.to_numeric(texts, errors="coerce")
    others = texts[numbers.isna()]
    if 0 < len(others) < len(texts) / 2:
        raise DataError(
            f"column {name!r}: {others.iloc[0]!r} stands among numbers; leave such samples out, empty the field if it "
            "is missing, or make all of the column words"
        )


def column_spread(variance: NDArray[np.float64], owners: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """Return the standard deviation of the column that each site is of.

    Parameters
    ----------
    variance : ndarray of shape (m,)
        Variance of each site.
    owners : ndarray of shape (m,), optional
        The column that each site is of; None: each is a column of its own. The indicators of a column of words share
        the sum of their variances, so that together they count as much as a number.

    Returns
    -------
    ndarray of shape (m,)

    Examples
    --------
    >>> column_spread(np.array([4.0, 0.0, 0.5, 0.5]), np.array([0, 1, 2, 2]))
    array([2., 0., 1., 1.])
    """
    return np.sqrt(variance if owners is None else np.bincount(owners, variance)[owners])
