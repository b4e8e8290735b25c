"""Regions (coordinate boxes, GeoJSON polygons, masks) as boolean arrays, one entry for each site."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError, StorageError
from keyhole.core.paths import check_regular
from keyhole.data.alignment import align
from keyhole.data.coordinates import FULL_TURN
from keyhole.data.sites import Sites

__all__ = ["inside_rings", "region"]

Bools = NDArray[np.bool_]
_ROUNDING = 1e-9  # degrees


def region(given: Any, sites: Sites, what: str = "region") -> Bools:
    """Return the sites of a region.

    Parameters
    ----------
    given : mapping, path, array-like or list
        A box ``{"lat": (10, 50), "lon": (-80, 0)}``, where None is an open end and longitudes run east from the first
        to the second in either convention, so that ``(160, -160)`` crosses the date line. GeoJSON (a mapping with a
        ``type``, or the path of a .geojson or .json file), where an edge of more than 180 degrees takes the short way
        across the date line, unless it spans the whole globe. A boolean array of the shape of the data, or a DataArray,
        aligned by coordinate. A list of these is their union.
    sites : Sites
        The sites.
    what : str
        Name of the argument in error messages.

    Returns
    -------
    ndarray of bool, shape (m,)

    Raises
    ------
    SettingsError, DataError, StorageError
        If the region does not fit the sites, is not valid GeoJSON, or its file cannot be read.

    Examples
    --------
    >>> region({"row": (1, None)}, Sites.plain((2, 3))).tolist()
    [False, False, False, True, True, True]
    """
    if isinstance(given, str | Path):
        return _of_file(Path(given), sites, what)
    if isinstance(given, Mapping):
        return _polygons(given, sites, what) if "type" in given else _box(given, sites, what)
    if isinstance(given, Sequence) and not _is_mask(given):
        if not given:
            raise SettingsError(f"{what}: the list of regions is empty")
        return np.asarray(np.logical_or.reduce([region(part, sites, what) for part in given]), bool)
    return _mask(given, sites, what)


def _is_mask(given: Sequence[Any]) -> bool:
    first = given[0] if len(given) else None
    return isinstance(first, bool | np.bool_) or (isinstance(first, list) and len(first) > 0)


def _of_file(path: Path, sites: Sites, what: str) -> Bools:
    if path.suffix not in (".geojson", ".json"):
        raise SettingsError(f"{what}: {path}: a .geojson or .json file is needed")
    check_regular(path)
    try:
        return _polygons(json.loads(path.read_text(encoding="utf-8")), sites, f"{what}: {path}")
    except OSError as error:
        raise StorageError(f"{what}: {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, SettingsError | DataError):
            raise
        raise DataError(f"{what}: {path}: cannot be read ({error})") from error


def _mask(given: Any, sites: Sites, what: str) -> Bools:
    mask = align(given, sites, what)
    if mask.dtype != bool and not np.isin(mask, (0, 1)).all():
        raise SettingsError(f"{what}: a mask holds true and false (or 1 and 0) alone")
    return mask.astype(bool)


def _box(bounds: Mapping[str, Any], sites: Sites, what: str) -> Bools:
    within = np.ones(len(sites), bool)
    for dim, ends in bounds.items():
        name = sites.find_coordinate(dim)
        if name is None:
            known = ", ".join(dict.fromkeys([*sites.location, *sites.dims]))
            raise SettingsError(f"{what}: the sites have no coordinate {dim!r}; they have {known}")
        turns = name == sites.roles.get("longitude")
        low, high = _ends(ends, f"{what}: {dim}", turns=turns)
        values = _numbers(sites, name, f"{what}: {dim}")
        within &= _turn(values, low, high) if turns else (values >= low) & (values <= high)
    return within


def _numbers(sites: Sites, name: str, what: str) -> NDArray[np.float64]:
    try:
        return sites.coordinate(name).astype(np.float64)
    except ValueError as error:
        raise SettingsError(f"{what}: its coordinates are no numbers; give a mask") from error


def _ends(ends: Any, what: str, *, turns: bool) -> tuple[float, float]:
    try:
        low, high = ends
        low, high = (-np.inf if low is None else float(low)), (np.inf if high is None else float(high))
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{what}={ends!r}: a low and a high end are needed, (10, 50)") from error
    if np.isnan([low, high]).any() or not (turns or low <= high):
        raise SettingsError(f"{what}={ends!r}: the low end comes first")
    return low, high


def _turn(longitude: NDArray[np.float64], low: float, high: float) -> Bools:
    """Which longitudes lie from low to high, going east, modulo 360; an open end is the edge of the map."""
    if not np.isfinite([low, high]).all():
        low, high = (_on_map(end, longitude) for end in (low, high))
        return (longitude >= low) & (longitude <= high)
    width = high - low if high >= low else (high - low) % FULL_TURN
    return np.asarray((longitude - low + _ROUNDING) % FULL_TURN <= width + 2 * _ROUNDING)


def _on_map(end: float, longitude: NDArray[np.float64]) -> float:
    """Shift a longitude to the convention of the map."""
    first, middle = float(longitude.min()), float(longitude.min() + longitude.max()) / 2
    if not np.isfinite(end) or first <= end <= first + FULL_TURN:
        return end
    return end + FULL_TURN * round((middle - end) / FULL_TURN)


def _polygons(geojson: Any, sites: Sites, what: str) -> Bools:
    """Sites whose position lies in a polygon and not in one of its holes."""
    east, north = _plane(sites, what)
    within = np.zeros(len(sites), bool)
    for rings in _rings(geojson, what):
        if "longitude" not in sites.roles:
            within |= inside_rings(east, north, rings)
        else:
            within |= inside_rings(east, north, [_short_way(ring, what) for ring in rings], turn=FULL_TURN)
    return within


def _short_way(ring: NDArray[np.float64], what: str) -> NDArray[np.float64]:
    """Unwrap edges of more than 180 degrees across the date line; an edge around the whole globe is unchanged."""
    steps = np.diff(ring[:, 0], append=ring[0, 0])
    beyond = (np.abs(steps) > FULL_TURN / 2 + _ROUNDING) & (np.abs(steps) < FULL_TURN - _ROUNDING)
    if not beyond.any():
        return ring
    steps = np.where(beyond, steps - FULL_TURN * np.sign(steps), steps)
    if abs(steps.sum()) > _ROUNDING:
        raise DataError(
            f"{what}: a ring has an edge of more than 180 degrees of longitude, and the short way it goes around the "
            "globe; add points so that no edge is longer, and the edge of the map (-180, 180) where it holds a pole"
        )
    return np.column_stack([ring[0, 0] + np.append(0.0, steps[:-1].cumsum()), ring[:, 1]])


def _plane(sites: Sites, what: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Longitude and latitude of each site, or x and y, or the last axis and the one before."""
    for pair in (("longitude", "latitude"), ("x", "y")):
        if set(pair) <= set(sites.roles):
            east, north = (sites.coordinate(sites.roles[role]).astype(np.float64) for role in pair)
            return east, north
    if len(sites.shape) != 2:
        raise SettingsError(f"{what}: polygons need latitude and longitude, x and y, or data of two axes")
    return _numbers(sites, sites.dims[1], what), _numbers(sites, sites.dims[0], what)


def _rings(geojson: Any, what: str) -> Iterator[list[NDArray[np.float64]]]:
    """Rings of each polygon of a GeoJSON object."""
    kind = geojson.get("type") if isinstance(geojson, Mapping) else None
    if kind == "FeatureCollection":
        for feature in geojson.get("features") or []:
            yield from _rings(feature, what)
    elif kind == "Feature":
        yield from _rings(geojson.get("geometry"), what)
    elif kind == "GeometryCollection":
        for geometry in geojson.get("geometries") or []:
            yield from _rings(geometry, what)
    elif kind in ("Polygon", "MultiPolygon"):
        many = geojson.get("coordinates") if kind == "MultiPolygon" else [geojson.get("coordinates")]
        yield from ([_ring(ring, what) for ring in polygon or []] for polygon in many or [])
    else:
        raise DataError(f"{what}: GeoJSON of type {kind!r}; polygons are needed")


def _ring(points: Any, what: str) -> NDArray[np.float64]:
    try:
        ring = np.array([point[:2] for point in points], np.float64)
    except (TypeError, ValueError, IndexError) as error:
        raise DataError(f"{what}: a ring of a polygon is a list of points [longitude, latitude]") from error
    if ring.ndim != 2 or len(ring) < 3 or ring.shape[1] != 2 or not np.isfinite(ring).all():
        raise DataError(f"{what}: a ring of a polygon needs at least three points [longitude, latitude]")
    return ring


def inside_rings(
    x: NDArray[np.float64], y: NDArray[np.float64], rings: Sequence[NDArray[np.float64]], *, turn: float = 0.0
) -> Bools:
    """Return which points lie in an odd number of rings (even-odd rule); points on an edge count as inside.

    Parameters
    ----------
    x, y : ndarray of shape (n,)
        Coordinates of the points.
    rings : sequence of ndarray of shape (m, 2)
        Exterior ring and holes.
    turn : float
        Period of ``x``, such as 360 degrees; 0: not periodic.
    """
    odd, edge = np.zeros(len(x), bool), np.zeros(len(x), bool)
    for ring in rings:
        found = [_crossed(x + shift, y, ring) for shift in ((-turn, 0.0, turn) if turn else (0.0,))]
        odd ^= np.logical_or.reduce([one for one, _ in found])
        edge |= np.logical_or.reduce([one for _, one in found])
    return odd | edge


def _crossed(x: NDArray[np.float64], y: NDArray[np.float64], ring: NDArray[np.float64]) -> tuple[Bools, Bools]:
    """Whether a ray to the right crosses the ring an odd number of times, and whether a point lies on an edge."""
    odd, edge = np.zeros(len(x), bool), np.zeros(len(x), bool)
    for (x1, y1), (x2, y2) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
        side = (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)
        odd ^= ((y1 > y) != (y2 > y)) & ((side > 0) == (y2 > y1))
        within = (x >= min(x1, x2)) & (x <= max(x1, x2)) & (y >= min(y1, y2)) & (y <= max(y1, y2))
        edge |= within & (np.abs(side) <= 1e-12 * max(abs(x2 - x1), abs(y2 - y1), 1e-300))
    return odd, edge
