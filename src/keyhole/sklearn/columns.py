"""Encode the columns of a table as numbers: categories become indicator columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names, _check_n_features, validate_data

from keyhole.data.readers.tables import parse_dates

__all__ = ["Columns"]

_FEWEST_SAMPLES = 4
_LIKE_A_DATE = re.compile(r"\d{4}-\d{2}")


@dataclass(frozen=True, eq=False)
class Columns:
    """Encoding of a table: a column of numbers as it is, a column of words as one indicator for each category.

    Parameters
    ----------
    words
        Categories of each column of words, by column index.
    owners
        ``(encoded,)``, index of the column that each encoded column belongs to.
    missing
        ``"model"`` if values may be missing.
    left_out
        Reasons why columns are excluded, by column index: they name the rows, or hold dates.
    """

    words: Mapping[int, tuple[str, ...]]
    owners: NDArray[np.int64]
    missing: str = "error"
    left_out: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, estimator: Any, table: Any, missing: str) -> tuple[Self, NDArray[np.float64]]:
        """Fit the encoding to a table and apply it; sets the feature names and their number on the estimator."""
        frame = _frame_with_words(table)
        if frame is None:
            values = _numbers(estimator, table, missing, reset=True)
            return cls({}, np.arange(values.shape[1]), missing), values
        _check_feature_names(estimator, table, reset=True)
        _check_n_features(estimator, table, reset=True)
        if len(frame) < _FEWEST_SAMPLES:
            raise ValueError(f"n_samples={len(frame)}: at least {_FEWEST_SAMPLES} are needed")
        places = [place for place in range(frame.shape[1]) if _is_words(frame, place)]
        asked = [] if estimator.must_select is None else estimator._must_select().tolist()
        reasons = {place: _against(frame.iloc[:, place]) for place in places if place not in asked}
        left_out = {place: reason for place, reason in reasons.items() if reason is not None}
        words = {place: _words(frame.iloc[:, place]) for place in places if place not in left_out}
        widths = [0 if place in left_out else len(words.get(place, (0,))) for place in range(frame.shape[1])]
        if not any(widths):
            raise ValueError("no column is left to choose: they name the rows or hold dates (must_select= takes them)")
        made = cls(words, np.repeat(np.arange(frame.shape[1]), widths), missing, left_out)
        return made, made._encoded(frame)

    def encode(self, estimator: Any, table: Any) -> NDArray[np.float64]:
        """Encode another table with the same columns."""
        frame = None if self.numeric else _frame_with_words(table)
        if frame is None:
            return _numbers(estimator, table, self.missing, reset=False)
        _check_feature_names(estimator, table, reset=False)
        _check_n_features(estimator, table, reset=False)
        return self._encoded(frame)

    @property
    def numeric(self) -> bool:
        """Whether every column is encoded as one number."""
        return not self.words and not self.left_out

    @property
    def groups(self) -> NDArray[np.int64] | None:
        """Encoded columns that are selected together, by label; None if each column is one number."""
        return self.owners if self.words else None

    def _encoded(self, frame: Any) -> NDArray[np.float64]:
        """Return ``(n, encoded)``; an unknown category has no indicator."""
        parts = []
        for place in range(frame.shape[1]):
            column = frame.iloc[:, place]
            if place in self.left_out:
                continue
            if place not in self.words:
                parts.append(np.asarray(column.to_numpy(float, na_value=np.nan))[:, np.newaxis])
                continue
            flags = np.stack([(column.astype(str) == word).to_numpy(float) for word in self.words[place]], axis=1)
            flags[column.isna().to_numpy()] = np.nan
            parts.append(flags)
        values = np.concatenate(parts, axis=1)
        if self.missing == "error" and np.isnan(values).any():
            raise ValueError("Input X contains NaN: values are missing; missing='model' works with what is there")
        return values


def _numbers(estimator: Any, table: Any, missing: str, *, reset: bool) -> NDArray[np.float64]:
    finite: Any = "allow-nan" if missing == "model" else True
    least = _FEWEST_SAMPLES if reset else 1
    found = validate_data(
        estimator, table, dtype=np.float64, ensure_all_finite=finite, ensure_min_samples=least, reset=reset
    )
    return np.asarray(found, np.float64)


def _frame_with_words(table: Any) -> Any:
    """Return a table with columns of words as a pandas frame; None for any other table."""
    if not hasattr(table, "columns") or not hasattr(table, "shape"):
        return None
    frame = table if hasattr(table, "iloc") else table.to_pandas() if hasattr(table, "to_pandas") else None
    if frame is None or not any(_is_words(frame, place) for place in range(frame.shape[1])):
        return None
    return frame


def _is_words(frame: Any, place: int) -> bool:
    import pandas as pd

    kind = frame.dtypes.iloc[place]
    if pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind):
        return False
    return not (pd.api.types.is_object_dtype(kind) and _holds_numbers(frame.iloc[:, place]))


def _holds_numbers(column: Any) -> bool:
    import pandas as pd

    kinds = ("integer", "floating", "mixed-integer-float", "boolean")
    return pd.api.types.infer_dtype(column, skipna=True) in kinds


def _against(column: Any) -> str | None:
    """Return why a column of words is excluded: indicators of each date, or of each row, do not generalise."""
    if _is_dates(column):
        return "holds dates"
    often = column.dropna().astype(str).value_counts()
    alone = int((often == 1).sum())
    return "names the rows: most of its words occur once" if 2 * alone > int(often.sum()) else None


def _is_dates(column: Any) -> bool:
    """Return whether a column holds dates, also as texts that begin with year and month."""
    import pandas as pd

    if pd.api.types.infer_dtype(column, skipna=True) in ("datetime64", "datetime", "date", "period"):
        return True
    texts = column.dropna().astype(str).unique()
    if not all(_LIKE_A_DATE.match(text) for text in texts):
        return False
    try:
        return len(parse_dates(texts)) > 0
    except (ValueError, TypeError):
        return False


def _words(column: Any) -> tuple[str, ...]:
    return tuple(sorted({str(word) for word in column.dropna()})) or ("",)
