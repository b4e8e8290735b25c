"""Coordinates of sites: their roles, tables of them, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError

__all__ = [
    "DIGITS",
    "FULL_TURN",
    "Auxiliary",
    "Role",
    "count_distinct",
    "digits_of_axis",
    "is_latitude",
    "is_longitude",
    "is_radian",
    "roles_of",
    "rows_by_name",
    "text_of",
]

FULL_TURN = 360.0  # degrees
DIGITS = (6, 9, 17)  # significant digits of labels: short, single precision, double precision
Role = Literal["latitude", "longitude", "x", "y", "vertical"]

_LATITUDES = ("lat", "latitude", "nav_lat")
_LONGITUDES = ("lon", "longitude", "nav_lon")


class Auxiliary(NamedTuple):
    """A coordinate that is not that of one axis: latitude on a curvilinear grid, or of each station.

    Parameters
    ----------
    dims
        The dimensions of the data that it varies along.
    values
        Its values, one axis for each of ``dims``.
    """

    dims: tuple[str, ...]
    values: NDArray[Any]


def is_latitude(name: str) -> bool:
    """Whether a coordinate of this name holds latitudes."""
    return name.lower() in _LATITUDES


def is_longitude(name: str) -> bool:
    """Whether a coordinate of this name holds longitudes."""
    return name.lower() in _LONGITUDES


def is_radian(attributes: Mapping[str, Any]) -> bool:
    """Whether a variable with these attributes is in radians."""
    return str(attributes.get("units", "")).lower().startswith("rad")


def rows_by_name(table: Any, labels: list[str]) -> tuple[Any, list[str]]:
    """Rows of a table of coordinates in the order of the sites, and the columns that hold numbers."""
    import pandas as pd

    frame = pd.DataFrame(table)
    texts = [str(name) for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    if texts:
        named = next((name for name in texts if str(name).lower() in ("name", "site", "station", "id")), texts[0])
        frame = frame.set_index(named)
    frame.index = frame.index.map(str)
    columns = [str(name) for name in frame.columns if pd.api.types.is_numeric_dtype(frame[name])]
    missing = [label for label in labels if label not in frame.index]
    if missing:
        raise SettingsError(f"coordinates: no row for site {missing[0]!r}; {len(missing)} of {len(labels)} have none")
    if not frame.index.is_unique:
        raise SettingsError(f"coordinates: site {frame.index[frame.index.duplicated()][0]!r} has more than one row")
    if not set(roles_of(tuple(columns))) >= {"latitude", "longitude"} and not {"x", "y"} <= set(columns):
        raise SettingsError(f"coordinates: columns lat and lon, or x and y, are needed; there are {', '.join(columns)}")
    rows = frame.loc[labels]
    for name in columns:
        finite = np.isfinite(rows[name].to_numpy(np.float64))
        if not finite.all():
            raise SettingsError(f"coordinates: {name!r} is missing at site {labels[int((~finite).argmax())]!r}")
    return rows, columns


def roles_of(names: tuple[str, ...]) -> dict[Role, str]:
    """Latitude and longitude by their usual names."""
    roles: dict[Role, str] = {}
    for name in names:
        if is_latitude(name):
            roles.setdefault("latitude", name)
        elif is_longitude(name):
            roles.setdefault("longitude", name)
        elif name.lower() in ("depth", "z", "height", "altitude", "elevation", "level"):
            roles.setdefault("vertical", name)
    return roles


def digits_of_axis(values: NDArray[Any]) -> int:
    """Significant digits that make the values of an axis distinct; 0 where none do."""
    return next((digits for digits in DIGITS if len({text_of(one, digits) for one in values}) == len(values)), 0)


def count_distinct(columns: Sequence[NDArray[Any]], digits: int | None) -> int:
    """Number of distinct rows of some columns, rounded to significant digits; of columns without values 0."""
    if digits is not None:
        columns = [_rounded(column.astype(np.float64), digits) for column in columns]
    places = [np.unique(column, return_inverse=True)[1] for column in columns]
    return np.unique(np.stack(places), axis=1).shape[1] if places else 0


def _rounded(values: NDArray[np.float64], digits: int) -> NDArray[np.float64]:
    """Values rounded to significant digits."""
    sizes = np.abs(np.where(np.isfinite(values) & (values != 0), values, 1.0))
    unit = 10.0 ** (np.floor(np.log10(sizes)) + 1 - digits)
    return np.asarray(np.round(values / unit) * unit)


def text_of(value: object, digits: int) -> str:
    """A coordinate as text."""
    return f"{value:.{digits}g}" if isinstance(value, float | np.floating) else str(value)
