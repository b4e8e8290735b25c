"""Readings and sites of tables by their own columns, where some of these are encoded as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError
from keyhole.data.labels import is_a
from keyhole.data.readers.tables import TIME
from keyhole.data.table_columns import TableColumns
from keyhole.plan.readings import check_labels

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["encode_readings", "sites_by_column"]


def encode_readings(readings: Any, columns: TableColumns, sites: NDArray[np.int64]) -> Any:
    """Return readings of columns, words and dates among them, as readings of encoded columns.

    Parameters
    ----------
    readings
        A mapping, Series or frame by column, with the time in a column ``time`` or in the index; or an array of the
        columns by rank. Readings of encoded columns in rank order are returned as they are.
    columns
        All columns of the table.
    sites
        Positions of the selected encoded columns, by rank.

    Raises
    ------
    PlanError
        If a column is missing, repeated or unknown, or a value is of another kind than its column.
    """
    import pandas as pd

    chosen = columns.take(columns.of_sites(sites))
    names = [column.name for column in chosen.columns]
    if not isinstance(readings, Mapping) and not is_a(readings, "pandas", "Series", "DataFrame"):
        if is_a(readings, "xarray", "Dataset", "DataArray") or _is_encoded(readings, len(sites)):
            return readings
        readings = pd.DataFrame(_rows(readings, len(names)), columns=names)
    frame = _frame(readings)
    time = frame.pop(TIME).to_numpy() if TIME in frame.columns and TIME not in names else None
    check_labels([str(name) for name in frame.columns], names)
    frame = frame.set_axis([str(name) for name in frame.columns], axis="columns")[names]
    try:
        encoded = pd.DataFrame(chosen.encode(frame), frame.index, chosen.names)
    except (ValueError, TypeError) as error:
        raise PlanError(f"readings: a value is of another kind than its column ({error})") from error
    encoded = encoded[[columns.names[site] for site in sites]]
    return encoded if time is None else encoded.assign(**{TIME: time})


def sites_by_column(
    columns: TableColumns, sites: NDArray[np.int64], gain: NDArray[np.float64], stability: NDArray[np.float64],
    existing: int,
) -> pd.DataFrame:  # fmt: skip
    """Return a table of the selected columns by rank: the gain of a column is that of its indicators together.

    Parameters
    ----------
    columns
        All columns of the table.
    sites
        Positions of the selected encoded columns, by rank.
    gain, stability
        Of each of them; the stability of a column is the mean of its indicators'.
    existing
        How many of them, the first, are existing ones.
    """
    import pandas as pd

    chosen, owners = columns.of_sites(sites), columns.owners[sites]
    return pd.DataFrame(
        {
            "rank": np.arange(1, len(chosen) + 1),
            "index": chosen,
            "name": [columns.columns[at].name for at in chosen],
            "column": chosen,
            "gain": np.bincount(owners, gain, len(columns.columns))[chosen],
            "stability": (np.bincount(owners, stability) / np.maximum(np.bincount(owners), 1))[chosen],
            "existing": np.isin(chosen, owners[:existing]),
        }
    )


def _is_encoded(readings: Any, count: int) -> bool:
    """Return whether readings are numbers with one for each encoded column, or each with its channel."""
    values = np.asarray(readings)
    return values.dtype.kind in "biuf" and count in values.shape[-2:]


def _rows(readings: Any, count: int) -> NDArray[Any]:
    """Return readings without labels as rows, one entry for each column."""
    values = np.asarray(readings, dtype=object)
    if values.ndim not in (1, 2) or values.shape[-1] != count:
        raise PlanError(f"readings: shape {values.shape}; this plan takes ({count},) or (N, {count}) in rank order")
    return values.reshape(-1, count)


def _frame(readings: Any) -> pd.DataFrame:
    """Return labelled readings as a frame of its own."""
    import pandas as pd

    if isinstance(readings, Mapping):
        try:
            return pd.DataFrame({name: np.atleast_1d(np.asarray(one, object)) for name, one in readings.items()})
        except ValueError as error:
            raise PlanError(f"readings: rows of different length ({error})") from error
    return readings.to_frame().T if isinstance(readings, pd.Series) else readings.copy(deep=False)
