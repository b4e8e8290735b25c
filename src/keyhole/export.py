"""Rebuilt signals as the kind of object that was read: array, DataArray or frame."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.grid import Grid
from keyhole.origin import Origin
from keyhole.readers.calendars import to_calendar

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["as_array", "as_field", "as_frame", "as_read"]

Time = NDArray[Any] | None


def as_read(values: NDArray[Any], grid: Grid, origin: Origin, time: Time) -> Any:
    """Give ``(N, channels, *grid)`` as what it was read from."""
    if origin.kind == "field":
        return as_field(values, grid, origin, time)
    if origin.kind == "table":
        return as_frame(values, grid, time)
    return as_array(values, origin)


def as_array(values: NDArray[Any], origin: Origin) -> NDArray[Any]:
    """Give an array with channels where they were, or without an axis for them."""
    return values[:, 0] if origin.channel_axis is None else np.moveaxis(values, 1, origin.channel_axis)


def as_field(values: NDArray[Any], grid: Grid, origin: Origin, time: Time) -> xr.DataArray | xr.Dataset:
    """Give a DataArray with the coordinates and attributes of the field that was read; a Dataset of several fields."""
    import xarray as xr

    if origin.variables:
        said = origin.variables.items()
        each = {name: replace(origin, name=name, attributes=about, variables={}) for name, about in said}
        return xr.Dataset(
            {name: as_field(values[:, [i]], grid, one, time) for i, (name, one) in enumerate(each.items())}
        )
    sample = origin.sample_dim
    many = values.shape[1] > 1
    dims = (sample, *(("channel",) if many else ()), *grid.dims)
    coordinates: dict[str, Any] = {
        dim: (dim, np.asarray(grid.coordinates[dim]), dict(origin.axis_attributes.get(dim, {}))) for dim in grid.dims
    }
    if time is not None:
        about = dict(origin.axis_attributes.get(sample, {}))
        coordinates[sample] = (sample, to_calendar(time, origin.calendar), about)
    elif origin.clock == "dates":  # numbers that were made up would pass for times
        coordinates[sample] = np.arange(len(values))
    return xr.DataArray(
        values if many else values[:, 0], coordinates, dims, name=origin.name, attrs=dict(origin.attributes)
    )


def as_frame(values: NDArray[Any], grid: Grid, time: Time) -> pd.DataFrame:
    """Give a frame with a column for each site."""
    import pandas as pd

    columns = [grid.name(index) for index in range(grid.size)]
    index = None if time is None else pd.Index(time, name="time")
    return pd.DataFrame(values.reshape(len(values), -1), columns=columns, index=index)
