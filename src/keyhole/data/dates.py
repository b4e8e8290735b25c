"""Dates as texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["parse_dates"]


def parse_dates(values: Any) -> NDArray[np.datetime64]:
    """Parse ISO 8601 dates.

    Parameters
    ----------
    values : array-like of shape (n,)
        Text or dates; numbers are refused, which pandas would take as nanoseconds since 1970.

    Returns
    -------
    ndarray of datetime64[ns]
        In UTC.

    Raises
    ------
    ValueError, TypeError
        If values are not dates.

    Examples
    --------
    >>> parse_dates(["2020-01-01T01:00+01:00"]).astype("datetime64[m]")
    array(['2020-01-01T00:00'], dtype='datetime64[m]')
    """
    import pandas as pd

    column = np.atleast_1d(np.asarray(values))
    if column.ndim > 1 or column.dtype.kind in "biufc":
        raise TypeError(f"{column.dtype} of shape {column.shape}")
    return pd.to_datetime(column, format="ISO8601", utc=True).tz_localize(None).to_numpy("datetime64[ns]")
