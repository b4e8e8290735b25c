"""Rules about dimensions: which one holds the samples, and which are spatial."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keyhole.core.errors import DataError, KeyholeWarning
from keyhole.data.coordinates import is_latitude, is_longitude

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["check_space", "is_time", "sample_dimension", "scalar_time", "time_among", "time_dimension"]

_VERTICAL = (
    "lev", "level", "levels", "plev", "pressure", "pressure_level", "pfull", "isobaricinhpa", "air_pressure", "depth",
    "deptht", "depthu", "depthv", "depthw", "height", "altitude", "elevation", "z", "z_t", "zlev", "sigma", "hybrid",
    "model_level", "bottom_top", "s_rho", "layer", "olevel", "st_ocean",
)  # fmt: skip
_NOT_SPACE = (
    "member", "members", "ens", "ensemble", "ensemble_member", "member_id", "realization", "realisation", "number",
    "run", "model", "scenario", "experiment", "time", "valid_time", "date", "init", "init_time", "initial_time",
    "reference_time", "forecast_reference_time", "start_time", "step", "lead", "lead_time", "leadtime",
    "forecast_period", "prediction_timedelta", "year", "season", "month", "dayofyear", "day", "hour", "quantile",
    "percentile", "bnds", "bounds", "nv", "bootstrap", "draw", "chain",
)  # fmt: skip
_STANDARD_NAMES = ("realization", "forecast_period", "forecast_reference_time", "time")


def sample_dimension(array: xr.DataArray, name: str | None) -> str:
    """Return the sample dimension.

    Parameters
    ----------
    array : DataArray
        A field.
    name : str, optional
        The dimension given by the user; None: ``time``, ``sample``, another one of time, else the first.

    Returns
    -------
    str

    Raises
    ------
    DataError
        If the dimension does not exist, or none is given and it would be latitude or longitude.
    """
    if name is not None:
        if name not in array.dims:
            raise DataError(f"{array.name}: no dimension {name!r}; it has {', '.join(map(str, array.dims))}")
        return name
    plain = [dim for dim in ("time", "sample") if dim in array.dims]
    found = plain[0] if plain else time_dimension(array) or str(array.dims[0])
    if is_latitude(found) or is_longitude(found):
        raise DataError(
            f"{array.name}: no dimension 'time', so samples would run along {found!r}; name another of "
            f"{', '.join(map(str, array.dims))} with samples=... (--samples), or {found!r} if it is meant"
        )
    return found


def time_dimension(array: xr.DataArray) -> str | None:
    """Return the dimension of time: ``time``, else the only one that is by its name, its dates or its attributes.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> dates = np.array(["2001-01-01", "2001-01-02"], "datetime64[ns]")
    >>> time_dimension(xr.DataArray(np.zeros((3, 2)), {"time_counter": dates}, ("y", "time_counter")))
    'time_counter'
    """
    return time_among(array, [str(dim) for dim in array.dims])


def scalar_time(array: xr.DataArray) -> str | None:
    """Return the scalar coordinate that is the time of a field without a dimension of time."""
    scalars = [str(name) for name, one in array.coords.items() if one.ndim == 0]
    return time_among(array, scalars) if "time" in scalars or time_dimension(array) is None else None


def time_among(array: xr.DataArray, names: Sequence[str]) -> str | None:
    """Return which of some coordinates is time: ``time``, else the only one that is."""
    if "time" in names:
        return "time"
    found = [one for one in names if one.lower() == "time" or (one in array.coords and is_time(array[one]))]
    return found[0] if len(found) == 1 else None


def is_time(axis: xr.DataArray) -> bool:
    """Whether a coordinate is time: dates of any calendar, or numbers that its name or its CF attributes say are."""
    if axis.dtype.kind == "M" or (axis.dtype.kind == "O" and axis.size and hasattr(axis.values.flat[0], "calendar")):
        return True
    said = axis.attrs
    return str(axis.name).lower() == "time" or said.get("axis") == "T" or said.get("standard_name") == "time"


def check_space(array: xr.DataArray, sample: str) -> None:
    """Check that all dimensions but the sample dimension are spatial.

    A vertical axis is spatial like latitude and longitude; any other dimension beside these is of unknown meaning. In a
    field without latitude and longitude all dimensions are.

    Parameters
    ----------
    array : DataArray
        A field.
    sample : str
        The sample dimension.

    Raises
    ------
    DataError
        If a dimension is known not to be spatial, such as the members of an ensemble.

    Warns
    -----
    KeyholeWarning
        If the meaning of a dimension is unknown.
    """
    others = [str(dim) for dim in array.dims if str(dim) != sample and array.sizes[dim] > 1]
    for dim in others if len(others) > 1 else ():  # a single one holds the sites, whatever it is
        if _is_not_space(array, dim):
            raise DataError(
                f"{array.name}: its dimension {dim!r} ({array.sizes[dim]}) is not space, and samples run along "
                f"{sample!r}; {_choices(dim, sample)}, or rename it if it is space"
            )
    if not (any(map(is_latitude, others)) and any(map(is_longitude, others))):
        return
    for dim in others:
        if not (is_latitude(dim) or is_longitude(dim) or _is_vertical(array, dim)):
            warnings.warn(
                f"{array.name}: its dimension {dim!r} ({array.sizes[dim]}) is taken as space, like latitude and "
                f"longitude; if it is none, {_choices(dim, sample)}",
                KeyholeWarning,
                stacklevel=2,
            )


def _choices(dim: str, sample: str) -> str:
    """How to treat a dimension that is not spatial."""
    return (
        f"select one position of it with at={{{dim!r}: ...}} (--at {dim}=...), let samples run along it with "
        f"samples={dim!r} (--samples {dim}), or along both with samples=({sample!r}, {dim!r})"
    )


def _is_not_space(array: xr.DataArray, dim: str) -> bool:
    """Whether a dimension is known not to be spatial, by name, type or CF standard name."""
    if dim.lower() in _NOT_SPACE:
        return True
    if dim not in array.coords:
        return False
    axis = array[dim]
    return axis.dtype.kind in "mM" or str(axis.attrs.get("standard_name", "")) in _STANDARD_NAMES


def _is_vertical(array: xr.DataArray, dim: str) -> bool:
    """Whether a dimension is vertical, by name or CF attributes."""
    attributes = array[dim].attrs if dim in array.coords else {}
    return dim.lower() in _VERTICAL or attributes.get("axis") == "Z" or "positive" in attributes
