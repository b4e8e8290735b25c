"""Tables: pandas frames, one sample a row, one site a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keyhole.errors import DataError
from keyhole.grid import Grid
from keyhole.signals import Origin, Signals

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_frame"]


def read_frame(frame: pd.DataFrame) -> Signals:
    """Take a frame of numbers; a DatetimeIndex gives the samples' times."""
    import pandas as pd

    words = [str(column) for column, kind in frame.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)]
    if words:
        raise DataError(f"columns that are not numbers: {', '.join(words[:5])}; leave them out or encode them")
    names = tuple(str(column) for column in frame.columns)
    if len(set(names)) < len(names):
        raise DataError("two columns have the same name; a site's name must be its own")
    grid = Grid((len(names),), ("column",), {"column": np.arange(len(names))}, np.ones(len(names), bool), names)
    time = frame.index.to_numpy("datetime64[ns]") if isinstance(frame.index, pd.DatetimeIndex) else None
    values = frame.to_numpy()
    if values.dtype == object:  # kinds of numbers that numpy does not join
        values = frame.to_numpy(float, na_value=np.nan)
    return Signals.build(values[:, np.newaxis], grid, time=time, origin=Origin("table", name="table"))
