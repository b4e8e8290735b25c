"""Tables as scikit-learn's estimators take them, checked and encoded as all of Keyhole encodes tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names, _check_n_features, validate_data

from keyhole.core.errors import DataError
from keyhole.data.table_columns import TableColumns

__all__ = ["FEWEST_SAMPLES", "encode", "fit_columns"]

FEWEST_SAMPLES = 4


def fit_columns(estimator: Any, table: Any) -> tuple[TableColumns, NDArray[np.float64]]:
    """Return the columns of a table and their encoding, and set feature names and their number on the estimator."""
    frame = _frame_of(table)
    if frame is None:
        values = _numbers(estimator, table, reset=True)
        names = getattr(estimator, "feature_names_in_", [f"x{at}" for at in range(values.shape[1])])
        return TableColumns.of_numbers([str(name) for name in names]), values
    _check_feature_names(estimator, table, reset=True)
    _check_n_features(estimator, table, reset=True)
    if len(frame) < FEWEST_SAMPLES:
        raise ValueError(f"n_samples={len(frame)}: at least {FEWEST_SAMPLES} are needed")
    keep = [] if estimator.must_select is None else estimator._must_select().tolist()
    try:
        columns = TableColumns.of(frame, keep=keep)
    except DataError as error:
        raise ValueError(f"{error} (must_select= takes columns that name the rows)") from error
    return columns, _encoded(estimator, columns, frame)


def encode(estimator: Any, table: Any) -> NDArray[np.float64]:
    """Encode another table with the columns that an estimator was fitted to."""
    columns: TableColumns = estimator._columns
    frame = None if columns.is_plain else _as_frame(table)
    if frame is None:
        return _numbers(estimator, table, reset=False)
    _check_feature_names(estimator, table, reset=False)
    _check_n_features(estimator, table, reset=False)
    return _encoded(estimator, columns, frame)


def _encoded(estimator: Any, columns: TableColumns, frame: Any) -> NDArray[np.float64]:
    kept = [at for at, column in enumerate(columns.columns) if not column.left_out]
    if estimator.missing == "error" and frame.iloc[:, kept].isna().any(axis=None):
        raise ValueError("Input X contains NaN: values are missing; missing='model' works with what is there")
    values = np.asarray(columns.encode(frame), np.float64)
    if np.isinf(values).any():
        raise ValueError("Input X contains infinity")
    return values


def _numbers(estimator: Any, table: Any, *, reset: bool) -> NDArray[np.float64]:
    finite: Any = "allow-nan" if estimator.missing == "model" else True
    least = FEWEST_SAMPLES if reset else 1
    found = validate_data(
        estimator, table, dtype=np.float64, ensure_all_finite=finite, ensure_min_samples=least, reset=reset
    )
    return np.asarray(found, np.float64)


def _frame_of(table: Any) -> Any:
    """Return a table with columns that are not numbers as a pandas frame; None for any other table."""
    frame = _as_frame(table)
    return None if frame is None or TableColumns.are_numbers(frame) else frame


def _as_frame(table: Any) -> Any:
    if not hasattr(table, "columns") or not hasattr(table, "shape"):
        return None
    return table if hasattr(table, "iloc") else table.to_pandas() if hasattr(table, "to_pandas") else None
