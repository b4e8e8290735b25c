"""Alignment of labelled values to sites: by label, never by position; see `align_in_time` for samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.data.coordinates import FULL_TURN
from keyhole.data.labels import Labels, is_a, is_labelled, match
from keyhole.data.metric import on_sphere
from keyhole.data.sites import Sites

__all__ = ["align", "find_positions", "same_sites", "sites_along", "sites_at"]

_SHOWN = 3


def align(given: Any, sites: Sites, what: str) -> NDArray[Any]:
    """Bring values to the sites, by coordinate or name where they are labelled.

    Parameters
    ----------
    given
        An array of the shape of the data, or a number. Or labelled: a DataArray, whose dimensions are coordinates of
        the sites in any order (one that is left out is broadcast), or whose coordinates give the positions along its
        only dimension; a Series by site name, by the coordinate of data of one axis, or with one index level for each
        coordinate; a frame of rows and columns of data of two axes; or a mapping by site name. It may cover more than
        the sites.
    sites
        Coordinates are equal within rounding, longitudes modulo 360 degrees.
    what
        Name of the argument in error messages.

    Returns
    -------
    ndarray of shape (m,)

    Raises
    ------
    SettingsError
        A dimension is no coordinate of the sites, or a site has no value or more than one.

    Examples
    --------
    >>> import pandas as pd
    >>> sites = Sites.build((3,), ("column",), {"column": np.arange(3)}, names=("a", "b", "c"))
    >>> align(pd.Series({"c": 3.0, "a": 1.0, "b": 2.0}), sites, "costs")
    array([1., 2., 3.])
    """
    if is_a(given, "xarray", "Dataset"):
        raise SettingsError(f"{what}: a Dataset; give one of its variables")
    if isinstance(given, Mapping):
        return _by_name(given, sites, what)
    if is_a(given, "pandas", "Series", "DataFrame"):
        return _of_table(given, sites, what)
    if is_labelled(given):
        return _of_field(given, sites, what)
    values = np.asarray(given)
    if values.shape not in ((), sites.shape):
        raise SettingsError(f"{what}: an array of shape {values.shape} for data of shape {sites.shape}")
    return np.asarray(sites.from_grid(np.broadcast_to(values, sites.shape)))


def _by_name(given: Mapping[Any, Any], sites: Sites, what: str) -> NDArray[Any]:
    values = {str(name): value for name, value in given.items()}
    names = [sites.name(site) for site in range(len(sites))]
    missing = [name for name in names if name not in values]
    if missing:
        raise SettingsError(f"{what}: no value for site {missing[0]!r}; {len(missing)} of {len(names)} are missing")
    return np.asarray([values[name] for name in names])


def _of_table(given: Any, sites: Sites, what: str) -> NDArray[Any]:
    """Align a Series or a frame, whose index and columns hold the labels."""
    if getattr(given.index, "nlevels", 1) > 1 and given.ndim == 1:
        if not given.index.is_unique:
            twice = given.index[given.index.duplicated()][0]
            raise SettingsError(f"{what}: more than one value at {', '.join(map(str, twice))}")
        if not set(given.index.names) <= set(sites.dims) and len(given.index.names) == len(sites.location):
            columns = {str(name): given.index.get_level_values(name).to_numpy() for name in given.index.names}
            return _at_positions(given.to_numpy(), columns, sites, what)
        return _of_field(given.to_xarray(), sites, what)
    indices = [given.index] if given.ndim == 1 else [given.index, given.columns]
    if len(indices) != len(sites.shape):
        raise SettingsError(
            f"{what}: a {type(given).__name__} has {len(indices)} index{'es' * (len(indices) > 1)} for data along "
            f"{', '.join(sites.dims)}; give a DataArray, or an array in the order of the data"
        )
    named = sites.names is not None
    dims = [sites.dims[axis] if index.name is None or named else str(index.name) for axis, index in enumerate(indices)]
    return _along_dims(given.to_numpy(), dims, [index.to_numpy() for index in indices], sites, what)


def _of_field(given: Any, sites: Sites, what: str) -> NDArray[Any]:
    """Align a DataArray, by the coordinates of its dimensions or, where it lies along one, of its positions."""
    dims, coordinates = [str(dim) for dim in given.dims], getattr(given, "coords", {})
    columns = {
        str(name): one for name, one in coordinates.items() if sites.find_coordinate(str(name)) in sites.location
    }
    if len(columns) == len(sites.location) > 1 and any(one.ndim != 1 or len(dims) == 1 for one in columns.values()):
        template = given if given.ndim else given.expand_dims("site")
        spread = {name: one.broadcast_like(template).transpose(*template.dims) for name, one in columns.items()}
        positions = {name: sites.labels(name, one).ravel() for name, one in spread.items()}
        return _at_positions(np.asarray(given.values).ravel(), positions, sites, what)
    labels = [sites.labels(dim, coordinates[dim]) if dim in coordinates else None for dim in dims]
    return _along_dims(np.asarray(given.values), dims, labels, sites, what)


def _at_positions(values: NDArray[Any], columns: Mapping[str, Labels], sites: Sites, what: str) -> NDArray[Any]:
    """Align values at positions, one coordinate for each of ``columns``, to the nearest within rounding."""
    found = find_positions({name: sites.coordinate(sites.find_coordinate(name) or name) for name in columns}, columns,
                           longitude=[name for name in columns if _turn(sites, name)])  # fmt: skip
    missing = np.flatnonzero(found < 0)
    if len(missing):
        raise SettingsError(
            f"{what}: no value at {sites.name(int(missing[0]))}, or more than one; so it is for {len(missing)} of "
            f"{len(sites)} sites"
        )
    return np.asarray(values[found])


def find_positions(
    wanted: Mapping[str, Labels], given: Mapping[str, Labels], *, longitude: Sequence[str] = ()
) -> NDArray[np.int64]:
    """Return the number of the given position that is the same as each wanted one, within rounding.

    Parameters
    ----------
    wanted, given
        Coordinates by name, ``(m,)`` and ``(n,)`` each; given ones may be missing (NaN), wanted ones not.
    longitude
        Names of coordinates that are equal modulo 360 degrees.

    Returns
    -------
    ndarray of int, shape (m,)
        -1 where no position is the same, or several are.
    """
    from scipy.spatial import KDTree

    known = np.flatnonzero(np.all([np.isfinite(np.asarray(one, np.float64)) for one in given.values()], axis=0))
    given = {name: one[known] for name, one in given.items()}
    scale = {name: max(1.0, float(np.abs(given[name]).max(initial=0.0))) for name in given}
    one, two = (
        np.concatenate([
            on_sphere(np.zeros(len(part[name])), part[name])[:, :2] if name in longitude
            else np.asarray(part[name], np.float64)[:, np.newaxis] / scale[name] for name in given
        ], axis=1)
        for part in (wanted, given)
    )  # fmt: skip
    tree = KDTree(two)
    distance, nearest = tree.query(one, k=[1, 2])
    rounding = 1e-6 if min(len(one), len(two)) else 0.0
    unique = (distance[:, 0] <= rounding) & (distance[:, 1] > rounding)
    found = np.full(len(one), -1, np.int64)
    found[unique] = known[nearest[unique, 0]]
    return found


def sites_at(columns: Mapping[str, Labels], sites: Sites) -> NDArray[np.int64]:
    """Return the numbers of the sites at some positions, within rounding; -1 where there is none, or several are.

    Parameters
    ----------
    columns
        A coordinate of each position for each name in ``sites.location``.
    sites
        The sites.

    Returns
    -------
    ndarray of int, shape (n,)

    Examples
    --------
    >>> sites_at({"row": np.array([1, 7]), "column": np.array([0, 0])}, Sites.plain((2, 3)))
    array([ 3, -1])
    """
    axes = [name for name in sites.location if name not in sites.auxiliary]
    along = {name: _on_axis(columns[name], sites, name) for name in axes}
    known = np.all([np.ones(len(columns[sites.location[0]]), bool), *(one >= 0 for one in along.values())], axis=0)
    if len(axes) == len(sites.dims):
        index = np.ravel_multi_index([np.maximum(along[dim], 0) for dim in sites.dims], sites.shape)
        return np.where(known, sites.number(index), -1)
    rest = {name: np.asarray(columns[name], np.float64) for name in sites.location if name in sites.auxiliary}
    known &= np.all([np.isfinite(one) for one in rest.values()], axis=0)
    held = {name: sites.places[sites.dims.index(name)] for name in axes}
    held |= {name: sites.coordinate(name) for name in rest}
    found = np.full(len(known), -1, np.int64)
    found[known] = find_positions(
        {name: one[known] for name, one in (along | rest).items()}, held,
        longitude=[name for name in rest if _turn(sites, name)],
    )  # fmt: skip
    return found


def _on_axis(labels: Labels, sites: Sites, dim: str) -> NDArray[np.int64]:
    """Position of each label along an axis; -1 where there is none, or more than one."""
    own = np.asarray(sites.axes[dim])
    positions, counts = match(np.asarray(labels), own, turn=FULL_TURN if _turn(sites, dim) else None, steps=own)
    return np.where(counts == 1, positions, -1)


def sites_along(array: Any, dim: Any, sites: Sites) -> NDArray[np.int64] | None:
    """Return the numbers of the sites that lie along one dimension of a DataArray, by coordinate; see `sites_at`.

    Parameters
    ----------
    array : DataArray
        With a coordinate along ``dim`` for each that says where a site is, as fields have that were selected at sites
        (``field.sel(lat=..., lon=..., method="nearest")``).
    dim
        The dimension.
    sites
        The sites.

    Returns
    -------
    ndarray of int or None
        None without such coordinates.
    """
    named = {sites.find_coordinate(str(name)): one for name, one in array.coords.items() if one.dims == (dim,)}
    if (sites.names is not None and not sites.auxiliary) or not set(named) >= set(sites.location):
        return None
    return sites_at({name: sites.labels(name, named[name]) for name in sites.location}, sites)


def same_sites(numbers: NDArray[np.int64], sites: Sites, other: Sites) -> NDArray[np.int64]:
    """Return the numbers of some sites among other sites, by name where both have names, else by coordinate.

    Parameters
    ----------
    numbers
        Of some of ``sites``.
    sites, other
        The sites that these are of, and those among which they are looked up.

    Returns
    -------
    ndarray of int
        -1 where there is no such site.

    Examples
    --------
    >>> axes = {"x": np.array([0.0, 1.0, 2.0])}
    >>> there, here = (Sites.build((3,), ("x",), {"x": x}) for x in (np.arange(3.0), np.array([2.0, 1.0, 9.0])))
    >>> same_sites(np.array([0, 2]), there, here)
    array([-1,  0])
    """
    if sites.names is not None and other.names is not None:
        places = {name: number for number, name in enumerate(other.names)}
        return np.array([places.get(sites.names[number], -1) for number in numbers], np.int64)
    columns = {other.find_coordinate(name): sites.coordinate(name)[numbers] for name in sites.location}
    if not set(columns) >= set(other.location):
        return np.full(len(numbers), -1, np.int64)
    return sites_at({name: columns[name] for name in other.location}, other)


def _along_dims(
    values: NDArray[Any], dims: Sequence[str], labels: Sequence[Labels | None], sites: Sites, what: str
) -> NDArray[Any]:
    """Align values whose dimensions are coordinates of the sites."""
    has = f"the sites have {', '.join(dict.fromkeys([*sites.location, *sites.dims]))}"
    names = [
        sites.dims[0] if sites.names is not None and len(dims) == 1 else sites.find_coordinate(dim) for dim in dims
    ]
    for dim, name, length in zip(dims, names, values.shape, strict=True):
        if name is None and length != 1:
            raise SettingsError(
                f"{what}: its dimension {dim!r} is no coordinate of the sites; {has}. Choose one position of it, "
                "rename it, or give an array in the order of the data (.values)"
            )
    known = [name for name in names if name is not None]
    if len(set(known)) < len(known):
        raise SettingsError(f"{what}: two of its dimensions, {', '.join(dims)}, are the same coordinate; {has}")
    index = tuple(
        np.zeros(len(sites), np.int64) if name is None else _places(labels[axis], values.shape[axis], sites, name, what)
        for axis, name in enumerate(names)
    )
    return np.asarray(np.broadcast_to(values[index] if index else values, len(sites)))


def _places(labels: Labels | None, length: int, sites: Sites, name: str, what: str) -> NDArray[np.int64]:
    """Position of each site along a dimension; one without labels is in the order of the data."""
    along_axis = name in sites.dims and name not in sites.auxiliary
    own = _labels(sites, name) if along_axis else np.unique(sites.coordinate(name))
    if labels is None:
        if not along_axis or length != sites.shape[sites.dims.index(name)]:
            raise SettingsError(f"{what}: {length} values along {name!r} and no labels to go by")
        return sites.places[sites.dims.index(name)]
    if along_axis and np.array_equal(own, labels):  # in the same order, also where two of them are the same
        return sites.places[sites.dims.index(name)]
    used = sites.places[sites.dims.index(name)] if along_axis else np.searchsorted(own, sites.coordinate(name))
    positions, counts = match(own, labels, turn=FULL_TURN if _turn(sites, name) else None)
    needed = np.zeros(len(own), bool)
    needed[used] = True
    missing, twice = np.flatnonzero(needed & (counts == 0)), np.flatnonzero(needed & (counts > 1))
    if len(missing):
        some = ", ".join(str(label) for label in own[missing[:_SHOWN]])
        raise SettingsError(
            f"{what}: no value at {name}={some}{' ...' * (len(missing) > _SHOWN)}, {len(missing)} of {len(own)} along "
            f"{name!r}; its labels go from {labels[0]} to {labels[-1]}. Reindex it to the data, or give an array in "
            "the order of the data (.values)"
        )
    if len(twice):
        raise SettingsError(f"{what}: more than one value at {name}={own[twice[0]]}; labels must differ")
    return np.asarray(positions[used])


def _labels(sites: Sites, dim: str) -> Labels:
    """Labels along an axis: the sites' own names where they have some, else its coordinate."""
    if sites.names is None or len(sites.shape) > 1:
        return np.asarray(sites.axes[dim])
    names = np.full(sites.size, "", dtype=object)
    names[sites.index] = sites.names
    return names.astype(str)


def _turn(sites: Sites, name: str) -> bool:
    return sites.find_coordinate(name) == sites.roles.get("longitude")
