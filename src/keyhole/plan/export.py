"""Convert reconstructions to the type of the data that were read: array, DataArray or DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.origin import SourceInfo
from keyhole.data.readers.calendars import to_calendar
from keyhole.data.sites import Sites

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["as_array", "as_field", "as_frame", "bounds_of", "coordinates_of", "global_attributes", "to_source_type"]

Time = NDArray[Any] | None
_OF_THE_FIELD = {"standard_name", "valid_min", "valid_max", "valid_range", "actual_range", "ancillary_variables"}


def to_source_type(values: NDArray[Any], domain: Sites, origin: SourceInfo, time: Time) -> Any:
    """Convert values of the sites ``(N, channels, m)`` to the type of the data that were read."""
    if origin.kind == "field":
        return as_field(values, domain, origin, time)
    if origin.kind == "table":
        return as_frame(values, domain, origin, time)
    return as_array(values, domain, origin)


def as_array(values: NDArray[Any], domain: Sites, origin: SourceInfo) -> NDArray[Any]:
    """Return an array of the shape of the data, NaN at invalid sites, with the channel axis where it was, if any."""
    whole = domain.to_grid(values)
    return whole[:, 0] if origin.channel_axis is None else np.moveaxis(whole, 1, origin.channel_axis)


def as_field(values: NDArray[Any], domain: Sites, origin: SourceInfo, time: Time) -> xr.DataArray | xr.Dataset:
    """Return a DataArray with the coordinates and attributes of the data; a Dataset for several variables."""
    import xarray as xr

    if origin.variables:
        said = origin.variables.items()
        each = {name: replace(origin, name=name, attributes=about, variables={}) for name, about in said}
        fields = {name: as_field(values[:, [i]], domain, one, time) for i, (name, one) in enumerate(each.items())}
        return xr.Dataset(fields, attrs=global_attributes(origin))
    sample = origin.sample_dim
    many = values.shape[1] > 1
    dims = (sample, *(("channel",) if many else ()), *domain.dims)
    coordinates = coordinates_of(domain, origin)
    if time is not None:
        about = dict(origin.axis_attributes.get(sample, {}))
        coordinates[sample] = (sample, to_calendar(time, origin.calendar), about)
    elif origin.clock == "dates":  # numbers that were made up would pass for times
        coordinates[sample] = np.arange(len(values))
    whole = domain.to_grid(values if many else values[:, 0])
    return xr.DataArray(whole, coordinates, dims, name=origin.name, attrs=dict(origin.attributes))


def coordinates_of(domain: Sites, origin: SourceInfo) -> dict[str, Any]:
    """Return the coordinates of the data with their attributes, as xarray takes them: those that locate sites first.

    An axis that had no coordinate gets the positions along it, unless auxiliary coordinates locate the sites.
    """
    names = dict.fromkeys([*domain.location, *domain.dims, *domain.auxiliary])
    found: dict[str, Any] = {}
    for name in names:
        about = dict(origin.axis_attributes.get(name, {}))
        if name in domain.auxiliary:
            found[name] = (*domain.auxiliary[name], about)
        elif name in domain.location or name in origin.axis_attributes:
            found[name] = (name, np.asarray(domain.axes[name]), about)
    return found


def bounds_of(origin: SourceInfo, interval: float) -> tuple[SourceInfo, SourceInfo]:
    """Return the attributes of the lower and upper bounds of a prediction interval.

    Units and the like are those of the field. Its ``standard_name`` is not theirs, for which CF has none, and neither
    are the ranges of its values: a bound may lie beyond what is valid, and readers would take it as missing. Of words
    the bounds are those of each indicator.
    """
    lower, upper = (
        replace(
            origin,
            attributes=_bound(origin.attributes, origin.name, end, interval),
            variables={name: _bound(said, name, end, interval) for name, said in origin.variables.items()},
            columns=None if origin.columns is None else origin.columns.words_apart(),
        )
        for end in ("lower", "upper")
    )
    return lower, upper


def _bound(said: Mapping[str, Any], name: str, end: str, interval: float) -> dict[str, Any]:
    of = said.get("long_name") or said.get("standard_name") or name
    kept = {key: value for key, value in said.items() if key not in _OF_THE_FIELD}
    return {**kept, "long_name": f"{end} bound of the {100 * interval:g} % prediction interval of {of}"}


def global_attributes(origin: SourceInfo) -> dict[str, Any]:
    """Return the global attributes of the data, with a line added to ``history`` as CF recommends."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    before = str(origin.dataset_attributes.get("history", "")).rstrip("\n")
    line = f"{now}: reconstructed from readings at a few sites by keyhole {_version()}"
    return {**origin.dataset_attributes, "history": f"{before}\n{line}".lstrip("\n")}


@cache
def _version() -> str:
    return version("keyhole")


def as_frame(values: NDArray[Any], domain: Sites, origin: SourceInfo, time: Time) -> pd.DataFrame:
    """Return a DataFrame with a column for each valid site; with the words and dates of a table, where it has any."""
    import pandas as pd

    index = None if time is None else pd.Index(time, name="time")
    if origin.columns is not None:
        return pd.DataFrame(origin.columns.decode(domain.to_grid(values[:, 0])), index=index)
    columns = [domain.name(site) for site in range(len(domain))]
    return pd.DataFrame(values.reshape(len(values), -1), columns=columns, index=index)
