"""Rules about dimensions: which one holds the samples, and which are spatial."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from keyhole.core.errors import DataError, KeyholeWarning
from keyhole.data.coordinates import is_latitude, is_longitude

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["check_space", "sample_dimension"]

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
        The dimension given by the user; None: ``time``, else the first.

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
    found = "time" if "time" in array.dims else str(array.dims[0])
    if is_latitude(found) or is_longitude(found):
        raise DataError(
            f"{array.name}: no dimension 'time', so samples would run along {found!r}; name another of "
            f"{', '.join(map(str, array.dims))} with samples=... (--samples), or {found!r} if it is meant"
        )
    return found


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
                f"{sample!r}; {_choices(dim)}, or rename it if it is space"
            )
    if not (any(map(is_latitude, others)) and any(map(is_longitude, others))):
        return
    for dim in others:
        if not (is_latitude(dim) or is_longitude(dim) or _is_vertical(array, dim)):
            warnings.warn(
                f"{array.name}: its dimension {dim!r} ({array.sizes[dim]}) is taken as space, like latitude and "
                f"longitude; if it is none, {_choices(dim)}",
                KeyholeWarning,
                stacklevel=2,
            )


def _choices(dim: str) -> str:
    """How to treat a dimension that is not spatial."""
    return (
        f"select one position of it with at={{{dim!r}: ...}} (--at {dim}=...), let samples run along it with "
        f"samples={dim!r} (--samples {dim})"
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
