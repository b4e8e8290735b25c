"""Lookup of sites by index, name or coordinates, or as rows of a table."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.data.alignment import is_a
from keyhole.data.grid import Grid

__all__ = ["find_sites", "rows_of", "sites_given"]

_ABOUT_A_PLAN = ("rank", "gain", "existing", "cost", "group")
_OTHER_LABELS = ("index", "name")


def find_sites(given: Any, grid: Grid, what: str = "existing") -> NDArray[np.int64]:
    """Return the flat index of each site.

    Parameters
    ----------
    given : int, str, mapping, sequence of these, DataFrame or None
        Flat indices, names, or coordinates, which select the nearest valid site within one grid step. Rows of a
        DataFrame are found by their coordinates if it has them, else by ``name``, else by ``index``.
    grid : Grid
        The grid.
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
    >>> find_sites([4, {"row": 0, "column": 2}], Grid.plain((2, 3)))
    array([4, 2])
    """
    sites = [_find(one, grid, what) for one in sites_given(given)]
    twice = [grid.name(site) for site in sorted(set(sites)) if sites.count(site) > 1]
    if twice:
        raise SettingsError(f"{what}: two of the sites are the same, {twice[0]}")
    return np.array(sites, np.int64)


def rows_of(frame: Any) -> list[Any]:
    """Return the rows of a DataFrame as mappings, without the columns that describe a plan (rank, gain, ...)."""
    return list(frame[[name for name in frame.columns if name not in _ABOUT_A_PLAN]].to_dict("records"))


def sites_given(given: Any) -> list[Any]:
    """Return sites as a list of single ones.

    Parameters
    ----------
    given : int, str, mapping, sequence of these, DataFrame, Series or None
        One site, several, rows of a plan's table, or none.

    Returns
    -------
    list

    Examples
    --------
    >>> sites_given({"lat": 10, "lon": 200}), sites_given(None)
    ([{'lat': 10, 'lon': 200}], [])
    """
    if given is None:
        return []
    if hasattr(given, "to_dict") and hasattr(given, "columns"):
        return rows_of(given)
    if is_a(given, "pandas", "Series") and not {"index", "name"}.isdisjoint(given.index):  # a row of a plan's table
        return rows_of(given.to_frame().T)
    return [given] if isinstance(given, str | numbers.Integral | Mapping) else list(given)


def _find(one: Any, grid: Grid, what: str) -> int:
    """Flat index of one site, which must be valid."""
    if isinstance(one, Mapping):
        return _find_row(one, grid, what)
    index = _index(one, grid, what) if isinstance(one, numbers.Integral) else _named(str(one), grid, what)
    if not grid.inside.ravel()[index]:
        raise SettingsError(f"{what}: site {grid.name(index)} is not valid (land)")
    return index


def _find_row(row: Mapping[str, Any], grid: Grid, what: str) -> int:
    """Find a site by its coordinates; by name where these are text or the sites have names of their own.

    The index is used as a last resort, since it depends on the grid that it was made for.
    """
    others = [label for label in _OTHER_LABELS if label in row and label not in grid.dims]
    if others and not (_has_places(grid) and {grid.axis_named(str(dim)) for dim in row} >= set(range(len(grid.dims)))):
        return _find(str(row["name"]) if "name" in others else _whole(row["index"], what), grid, what)
    known = {dim: value for dim, value in row.items() if grid.axis_named(str(dim)) is not None}
    return _nearest(known if others else row, grid, what)


def _has_places(grid: Grid) -> bool:
    """Whether coordinates are numbers with a meaning beyond the order of columns."""
    return grid.names is None and all(axis.dtype.kind in "biuf" for axis in grid.coordinates.values())


def _whole(index: Any, what: str) -> int:
    """Convert an index from a table, where it may be a float."""
    if isinstance(index, bool) or not isinstance(index, numbers.Real) or not float(index).is_integer():
        raise SettingsError(f"{what}: index {index!r} is not a whole number")
    return int(float(index))


def _index(one: numbers.Integral, grid: Grid, what: str) -> int:
    """Check a flat index."""
    if isinstance(one, bool) or not 0 <= int(one) < grid.size:
        raise SettingsError(f"{what}: site {one!r} is not an index of the {grid.size} sites, 0 to {grid.size - 1}")
    return int(one)


def _named(name: str, grid: Grid, what: str) -> int:
    """Flat index of the site with a name; an error suggests similar names."""
    names = {grid.name(int(cell)): int(cell) for cell in grid.cells}
    if name not in names:
        close = difflib.get_close_matches(name, names, 3)
        raise SettingsError(f"{what}: no site is called {name!r}" + (f"; there is {', '.join(close)}" if close else ""))
    return names[name]


def _nearest(place: Mapping[str, Any], grid: Grid, what: str) -> int:
    """Nearest valid site to a position, at most one grid step away along each axis."""
    by_axis = {grid.axis_named(str(dim)): value for dim, value in place.items()}
    if len(by_axis) < len(place) or set(by_axis) != set(range(len(grid.dims))):
        raise SettingsError(f"{what}: coordinates {', '.join(map(str, place))}; {', '.join(grid.dims)} are needed")
    away = np.zeros(grid.size)
    for axis in range(len(grid.dims)):
        off = np.abs(grid.along(axis) - float(by_axis[axis]))
        if axis == grid.axis_of_longitude():
            off = np.minimum(off % 360, -off % 360)
        away = np.maximum(away, off / _spacing(grid, axis))
    away[~grid.inside.ravel()] = np.inf
    best = int(away.argmin())
    if away[best] > 1:
        where = ", ".join(f"{dim}={value}" for dim, value in place.items())
        raise SettingsError(f"{what}: there is no valid site at {where}; the nearest is {grid.name(best)}")
    return best


def _spacing(grid: Grid, axis: int) -> float:
    """Largest step of an axis."""
    line = np.asarray(grid.coordinates[grid.dims[axis]], float)
    return float(np.abs(np.diff(line)).max()) if len(line) > 1 else 1.0
