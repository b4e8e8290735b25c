"""Tables as people have them: numbers, words and flags, as numbers that stand for them."""

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
    """How the columns of a table become numbers: a column of numbers as it is, one of words as a flag for each word.

    Parameters
    ----------
    words
        The words of each column that holds some, by its place.
    owners
        ``(encoded,)``, the column that each number stands for, in part or as a whole.
    missing
        ``"model"`` where values may be missing.
    left_out
        Why a column has no part at all, by its place: one that names the rows, or holds dates.
    """

    words: Mapping[int, tuple[str, ...]]
    owners: NDArray[np.int64]
    missing: str = "error"
    left_out: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, estimator: Any, table: Any, missing: str) -> tuple[Self, NDArray[np.float64]]:
        """Learn how to encode a table, and encode it; the estimator takes note of its columns, as scikit-learn asks."""
        frame = _frame_with_words(table)
        if frame is None:
            values = _numbers(estimator, table, missing, reset=True)
            return cls({}, np.arange(values.shape[1]), missing), values
        _check_feature_names(estimator, table, reset=True)
        _check_n_features(estimator, table, reset=True)
        if len(frame) < _FEWEST_SAMPLES:
            raise ValueError(f"n_samples={len(frame)}: at least {_FEWEST_SAMPLES} are needed")
        places = [place for place in range(frame.shape[1]) if _is_words(frame, place)]
        asked = [] if estimator.must_select is None else estimator._musts().tolist()
        reasons = {place: _against(frame.iloc[:, place]) for place in places if place not in asked}
        left_out = {place: reason for place, reason in reasons.items() if reason is not None}
        words = {place: _words(frame.iloc[:, place]) for place in places if place not in left_out}
        widths = [0 if place in left_out else len(words.get(place, (0,))) for place in range(frame.shape[1])]
        if not any(widths):
            raise ValueError("no column is left to choose: they name the rows or hold dates (must_select= takes them)")
        made = cls(words, np.repeat(np.arange(frame.shape[1]), widths), missing, left_out)
        return made, made._encoded(frame)

    def encode(self, estimator: Any, table: Any) -> NDArray[np.float64]:
        """Encode another table of the same columns."""
        frame = None if self.numeric else _frame_with_words(table)
        if frame is None:
            return _numbers(estimator, table, self.missing, reset=False)
        _check_feature_names(estimator, table, reset=False)
        _check_n_features(estimator, table, reset=False)
        return self._encoded(frame)

    @property
    def numeric(self) -> bool:
        """Whether every column is a number as it stands."""
        return not self.words and not self.left_out

    @property
    def groups(self) -> NDArray[np.int64] | None:
        """Which numbers are chosen together; None where each column is one number."""
        return self.owners if self.words else None

    def _encoded(self, frame: Any) -> NDArray[np.float64]:
        """Numbers ``(n, encoded)``; a word that was not seen before is none of those known."""
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
    """Give a table with columns that are no numbers as a pandas frame; None for any other table."""
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
    """Say why a column of words is none to choose by: a flag for each date, or for each row, tells nothing anew."""
    if _is_dates(column):
        return "holds dates"
    often = column.dropna().astype(str).value_counts()
    alone = int((often == 1).sum())
    return "names the rows: most of its words occur once" if 2 * alone > int(often.sum()) else None


def _is_dates(column: Any) -> bool:
    """Whether a column holds dates, also as texts that begin with year and month."""
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
