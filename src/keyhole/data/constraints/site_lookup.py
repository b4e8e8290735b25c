"""Look up sites by index, by name, by coordinates, or as rows of a table."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.data.labels import is_a
from keyhole.data.sites import Sites

__all__ = ["find_sites", "nearest_site", "rows_of", "sites_given"]

_ABOUT_A_PLAN = ("rank", "gain", "existing", "cost", "group", "kind", "noise")
_OTHER_LABELS = ("index", "name")


def find_sites(given: Any, sites: Sites, what: str = "existing") -> NDArray[np.int64]:
    """Return the number of each site.

    Parameters
    ----------
    given : int, str, mapping, sequence of these, DataFrame or None
        Positions in the data (C order), names, or coordinates, which select the nearest site about one step away at
        most. Rows of a DataFrame are found by their coordinates if it has them, else by ``name``, else by ``index``.
    sites : Sites
        The sites.
    what : str
        Name of the argument in error messages.

    Returns
    -------
    ndarray of int

    Raises
    ------
    SettingsError
        If a site does not exist, is not valid, or is given twice.

    Examples
    --------
    >>> find_sites([4, {"row": 0, "column": 2}], Sites.plain((2, 3)))
    array([4, 2])
    """
    found = [_find(one, sites, what) for one in sites_given(given)]
    twice = [sites.name(site) for site in sorted(set(found)) if found.count(site) > 1]
    if twice:
        raise SettingsError(f"{what}: two of the sites are the same, {twice[0]}")
    return np.array(found, np.int64)


def rows_of(frame: Any) -> list[Any]:
    """Return the rows of a DataFrame as mappings, without the columns that describe a plan (rank, gain, ...)."""
    return list(frame[[name for name in frame.columns if name not in _ABOUT_A_PLAN]].to_dict("records"))


def sites_given(given: Any) -> list[Any]:
    """Return one or several sites as a list."""
    if given is None:
        return []
    if hasattr(given, "to_dict") and hasattr(given, "columns"):
        return rows_of(given)
    if is_a(given, "pandas", "Series") and not {"index", "name"}.isdisjoint(given.index):  # a row of a plan's table
        return rows_of(given.to_frame().T)
    return [given] if isinstance(given, str | numbers.Integral | Mapping) else list(given)


def _find(one: Any, sites: Sites, what: str) -> int:
    if isinstance(one, Mapping):
        return _find_row(one, sites, what)
    return _at_index(one, sites, what) if isinstance(one, numbers.Integral) else _named(str(one), sites, what)


def _find_row(row: Mapping[str, Any], sites: Sites, what: str) -> int:
    """Find a site by its coordinates; by name where these are text or the sites have names of their own.

    The index is used as a last resort, since it depends on the data that it was made for.
    """
    others = [label for label in _OTHER_LABELS if label in row and label not in sites.dims]
    if "name" in others and sites.dims == ("sensor",):  # two sensors may stand in one place
        return _named(str(row["name"]), sites, what)
    coordinates = {str(name): value for name, value in row.items() if sites.find_coordinate(str(name)) is not None}
    if others and not (_has_positions(sites) and _locates(coordinates, sites)):
        by_name = "name" in others
        return _find(str(row["name"]) if by_name else _whole(row["index"], what), sites, what)
    return nearest_site(coordinates if others else row, sites, what)


def _has_positions(sites: Sites) -> bool:
    """Whether coordinates are numbers with a meaning beyond the order of columns."""
    return bool(sites.auxiliary) or (
        sites.names is None and all(one.dtype.kind in "biuf" for one in sites.axes.values())
    )


def _locates(coordinates: Mapping[str, Any], sites: Sites) -> bool:
    """Whether coordinates locate a site: all that the sites have, or latitude and longitude in a list of sites."""
    found = {sites.find_coordinate(name) for name in coordinates}
    horizontal = {sites.roles.get("latitude"), sites.roles.get("longitude")}
    return found >= set(sites.location) or (len(sites.shape) == 1 and sites.is_geographic and found >= horizontal)


def _whole(index: Any, what: str) -> int:
    if isinstance(index, bool) or not isinstance(index, numbers.Real) or not float(index).is_integer():
        raise SettingsError(f"{what}: index {index!r} is not a whole number")
    return int(float(index))


def _at_index(one: numbers.Integral, sites: Sites, what: str) -> int:
    if isinstance(one, bool) or not 0 <= int(one) < sites.size:
        raise SettingsError(f"{what}: site {one!r} is not an index of the {sites.size} sites, 0 to {sites.size - 1}")
    number = int(sites.number(int(one)))
    if number < 0:
        raise SettingsError(f"{what}: site {int(one)} is not valid (land)")
    return number


def _named(name: str, sites: Sites, what: str) -> int:
    names = {sites.name(site): site for site in range(len(sites))}
    if name not in names:
        close = difflib.get_close_matches(name, names, 3)
        raise SettingsError(f"{what}: no site is called {name!r}" + (f"; there is {', '.join(close)}" if close else ""))
    return names[name]


def nearest_site(position: Mapping[str, Any], sites: Sites, what: str) -> int:
    """Return the number of the nearest site to a position, at most about one step away.

    Parameters
    ----------
    position : mapping
        Coordinates by name.
    sites : Sites
        The sites.
    what : str
        What is looked up, for error messages.

    Raises
    ------
    SettingsError
        If a coordinate is missing or unknown, or no valid site is near.
    """
    named = {sites.find_coordinate(str(name)): value for name, value in position.items()}
    if None in named or len(named) < len(position) or not _locates(position, sites):
        needed = ", ".join(sites.location)
        raise SettingsError(f"{what}: coordinates {', '.join(map(str, position))}; {needed} are needed")
    steps = _steps_away({str(name): float(value) for name, value in named.items() if name in sites.location}, sites)
    best = int(steps.argmin())
    if not steps[best] <= 1:
        where = ", ".join(f"{name}={value}" for name, value in position.items())
        raise SettingsError(f"{what}: there is no valid site at {where}; the nearest is {sites.name(best)}")
    return best


def _steps_away(position: Mapping[str, float], sites: Sites) -> NDArray[np.float64]:
    """Distance of each site from a position in steps: along the axis that is farthest, or between neighbours."""
    if not set(position) <= set(sites.dims) - set(sites.auxiliary):
        distance, spacing = sites.distances_from(position)
        return distance / spacing
    away = np.zeros(len(sites))
    for name, value in position.items():
        line = np.asarray(sites.axes[name], float)
        off = np.abs(sites.coordinate(name).astype(float) - value)
        if name == sites.roles.get("longitude"):
            off = np.minimum(off % 360, -off % 360)
        away = np.maximum(away, off / (float(np.abs(np.diff(line)).max()) if len(line) > 1 else 1.0))
    return away
