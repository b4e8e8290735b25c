"""Alignment of labelled values to a grid or to samples: by label, never by position."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.data.grid import FULL_TURN, Grid

__all__ = ["by_time", "is_a", "is_labelled", "match", "on_grid", "same_places", "same_sites", "same_times", "times_of"]

_SHARE_OF_STEP = 1e-3  # of the smallest step between a grid's coordinates: labels that are nearer are the same
_ALONE = 1e-6  # the same for an axis of one cell, as a share of its coordinate
_ROUNDINGS = 4  # units of the last digit that two notations of one coordinate may differ by
_SHOWN = 3

Labels = NDArray[Any]
Positions = NDArray[np.int64]


def is_a(given: Any, module: str, *names: str) -> bool:
    """Return whether an object is an instance of a class, without importing the class's module.

    Parameters
    ----------
    given : object
        Any object.
    module : str
        Name of the module; if it was not imported, there are no instances.
    *names : str
        Names of classes in the module.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_a(np.zeros(3), "numpy", "ndarray"), is_a("text", "pandas", "Series")
    (True, False)
    """
    found = sys.modules.get(module)
    kinds = tuple(kind for kind in (getattr(found, name, None) for name in names) if kind is not None)
    return bool(kinds) and isinstance(given, kinds)


def is_labelled(given: Any) -> bool:
    """Return whether values carry labels: xarray objects, Series, DataFrames and mappings.

    Examples
    --------
    >>> is_labelled({"a": 1.0}), is_labelled([1.0])
    (True, False)
    """
    return (
        isinstance(given, Mapping)
        or is_a(given, "xarray", "DataArray", "Variable", "Dataset")
        or is_a(given, "pandas", "Series", "DataFrame")
    )


def on_grid(given: Any, grid: Grid, what: str) -> Any:
    """Align labelled values to a grid by coordinate or name; values without labels are returned unchanged.

    Parameters
    ----------
    given : object
        A DataArray whose dimensions are axes of the grid, in any order (it is broadcast along others); a Series by site
        name, by the coordinate of a grid with one axis, or with one index level for each axis; a DataFrame of rows and
        columns for a grid with two axes; or a mapping by site name. It may cover more than the grid.
    grid : Grid
        The grid. Coordinates are equal within rounding, longitudes modulo 360 degrees.
    what : str
        Name of the argument in error messages.

    Returns
    -------
    ndarray of the grid's shape

    Raises
    ------
    SettingsError
        If a dimension is not an axis of the grid, or a site has no value, or more than one.

    Examples
    --------
    >>> import pandas as pd
    >>> grid = Grid((3,), ("column",), {"column": np.arange(3)}, np.ones(3, bool), ("a", "b", "c"))
    >>> on_grid(pd.Series({"c": 3.0, "a": 1.0, "b": 2.0}), grid, "costs")
    array([1., 2., 3.])
    """
    if not is_labelled(given):
        return given
    if is_a(given, "xarray", "Dataset"):
        raise SettingsError(f"{what}: a Dataset; give one of its variables")
    if isinstance(given, Mapping):
        return _by_name(given, grid, what)
    if is_a(given, "pandas", "Series", "DataFrame"):
        return _of_table(given, grid, what)
    return _of_field(given, grid, what)


def same_sites(sites: Positions, grid: Grid, other: Grid) -> Positions:
    """Find sites of a grid on another grid with the same axes, by coordinate.

    Parameters
    ----------
    sites : ndarray of int
        Flat indices on ``grid``.
    grid, other : Grid
        The grids.

    Returns
    -------
    ndarray of int
        Flat indices on ``other``; -1 where it has no such site.
    """
    positions = [
        _positions(grid.labels(axis), other, axis, steps=grid.labels(axis))[along]
        for axis, along in enumerate(np.unravel_index(sites, grid.shape))
    ]
    return _flat_indices(positions, other)


def same_places(array: Any, dim: Any, grid: Grid) -> Positions | None:
    """Find the positions along one dimension of a DataArray on a grid, by coordinate.

    Parameters
    ----------
    array : DataArray
        With a coordinate along ``dim`` for each axis of the grid, as fields have that were selected at sites
        (``field.sel(lat=..., lon=..., method="nearest")``).
    dim : str
        The dimension.
    grid : Grid
        The grid.

    Returns
    -------
    ndarray of int or None
        Flat indices on ``grid``, -1 where it has no such site; None without such coordinates.
    """
    coordinates = {grid.axis_named(str(name)): one for name, one in array.coords.items() if one.dims == (dim,)}
    axes = range(len(grid.dims))
    if grid.names is not None or not set(coordinates) >= set(axes):
        return None
    values = [np.asarray(coordinates[axis].values) for axis in axes]
    return _flat_indices([_positions(values[axis], grid, axis, steps=grid.labels(axis)) for axis in axes], grid)


def _positions(labels: Labels, grid: Grid, axis: int, *, steps: Labels) -> Positions:
    """Position of each label along an axis; -1 where there is none, or more than one."""
    own = grid.labels(axis)
    if np.array_equal(labels, own):
        return np.arange(len(own), dtype=np.int64)
    positions, counts = match(labels, own, turn=_turn(grid, axis), steps=steps)
    return np.where(counts == 1, positions, -1)


def _flat_indices(positions: Sequence[Positions], grid: Grid) -> Positions:
    """Flat indices from positions along each axis; -1 where one of them is -1."""
    known = np.all([along >= 0 for along in positions], axis=0)
    return np.where(known, np.ravel_multi_index([np.maximum(along, 0) for along in positions], grid.shape), -1)


def times_of(given: Any) -> NDArray[np.datetime64] | None:
    """Return the times that label values.

    Parameters
    ----------
    given : object
        Any values.

    Returns
    -------
    ndarray of datetime64[ns] or None
        A DatetimeIndex, or dates along the first dimension of a DataArray; None without.
    """
    if is_a(given, "pandas", "Series", "DataFrame") and is_a(given.index, "pandas", "DatetimeIndex"):
        return np.asarray(given.index.to_numpy("datetime64[ns]"))
    if not is_a(given, "xarray", "DataArray") or not given.dims or given.dims[0] not in given.coords:
        return None
    labels = np.asarray(given[given.dims[0]].values)
    return labels.astype("datetime64[ns]") if labels.dtype.kind == "M" else None


def same_times(available: NDArray[np.datetime64], wanted: NDArray[np.datetime64] | None, what: str) -> Positions:
    """Find the times of the samples among the times that label values.

    Parameters
    ----------
    available : ndarray of datetime64
        Times of the values.
    wanted : ndarray of datetime64, optional
        Times of the samples; None: values are taken in order.
    what : str
        Name of the argument in error messages.

    Returns
    -------
    ndarray of int
        Position in ``available`` of each sample.

    Raises
    ------
    DataError
        If a sample has no value, or more than one.
    """
    if wanted is None or np.array_equal(available, wanted):
        return np.arange(len(available), dtype=np.int64)
    positions, counts = match(wanted, available)
    missing, twice = np.flatnonzero(counts == 0), np.flatnonzero(counts > 1)
    if len(missing):
        raise DataError(
            f"{what}: no value at time {wanted[missing[0]]}; {len(missing)} of {len(wanted)} samples have none. "
            "Reindex it to the data, or leave such samples out"
        )
    if len(twice):
        raise DataError(f"{what}: more than one value at time {wanted[twice[0]]}")
    return positions


def by_time(given: Any, time: NDArray[np.datetime64] | None, what: str) -> Any:
    """Bring values that are labelled with times, along their first axis, into the order of the samples.

    Parameters
    ----------
    given : object
        Any values; returned unchanged without times.
    time : ndarray of datetime64, optional
        Times of the samples.
    what : str
        Name of the argument in error messages.

    Returns
    -------
    array-like

    Raises
    ------
    DataError
        If a sample has no value, or more than one.
    """
    available = times_of(given)
    return given if available is None else np.asarray(given)[same_times(available, time, what)]


def match(
    wanted: Labels, available: Labels, *, turn: float | None = None, steps: Labels | None = None
) -> tuple[Positions, Positions]:
    """Find labels among others.

    Parameters
    ----------
    wanted, available : ndarray of shape (n,) and (m,)
        Numbers match within rounding; dates and text match exactly.
    turn : float, optional
        Period of numbers, 360 for longitudes.
    steps : ndarray, optional
        Numbers whose smallest step defines the tolerance; None: those of ``wanted``.

    Returns
    -------
    positions, counts : ndarray of int, shape (n,)
        Position in ``available`` of each wanted label, and how many of ``available`` it matches.

    Examples
    --------
    >>> match(np.array([190.0, 0.0]), np.array([-170.0, 0.0, 20.0]), turn=360.0)
    (array([0, 1]), array([1, 1]))
    """
    kinds = {wanted.dtype.kind, available.dtype.kind}
    if kinds <= set("biuf"):
        within = _tolerance(wanted, available, wanted if steps is None else steps)
        finite = np.where(np.isfinite(wanted), wanted, np.nan).astype(np.float64)
        shifts = (0.0,) if turn is None else (0.0, turn, -turn)  # as they are written, if possible
        return _match_between(available, [(finite + (shift - within), finite + (shift + within)) for shift in shifts])
    if kinds == {"M"}:
        wanted, available = wanted.astype("datetime64[ns]"), available.astype("datetime64[ns]")
    elif "M" in kinds and "U" not in kinds:
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
    else:
        wanted, available = (
            np.array([str(label) for label in part.tolist()], dtype=str) for part in (wanted, available)
        )
    return _match_between(available, [(wanted, wanted)])


def _match_between(available: Labels, bounds: Sequence[tuple[Labels, Labels]]) -> tuple[Positions, Positions]:
    """First label between two bounds, and how many there are; later bounds apply where earlier ones find nothing."""
    order = np.argsort(available, kind="stable")
    line, n = available[order], len(bounds[0][0])
    positions, counts = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for low, high in bounds:
        left, right = np.searchsorted(line, low, side="left"), np.searchsorted(line, high, side="right")
        found = (counts == 0) & (right > left) & (low == low)  # NaN is no label
        positions[found], counts[found] = order[left[found]], (right - left)[found]
    return positions, counts


def _tolerance(wanted: Labels, available: Labels, steps: Labels) -> float:
    """Largest difference between two numbers that are one label: less than half the smallest step."""
    largest = max(float(np.abs(part[np.isfinite(part)]).max(initial=0)) for part in (wanted, available))
    digits = max(
        (float(np.finfo(part.dtype).eps) for part in (wanted, available) if part.dtype.kind == "f"), default=0.0
    )
    rounding = _ROUNDINGS * digits * largest
    gaps = np.diff(np.unique(steps[np.isfinite(steps)].astype(np.float64)))
    if not len(gaps):
        return max(rounding, _ALONE * max(largest, 1.0))
    step = float(gaps.min())
    return min(max(_SHARE_OF_STEP * step, rounding), 0.49 * step)


def _of_field(given: Any, grid: Grid, what: str) -> NDArray[Any]:
    """Align a DataArray."""
    coordinates = getattr(given, "coords", {})
    labels = [np.asarray(coordinates[dim].values) if dim in coordinates else None for dim in given.dims]
    return _aligned(np.asarray(given.values), [str(dim) for dim in given.dims], labels, grid, what)


def _of_table(given: Any, grid: Grid, what: str) -> NDArray[Any]:
    """Align a Series or a DataFrame by its index and columns."""
    if getattr(given.index, "nlevels", 1) > 1 and given.ndim == 1:
        if not given.index.is_unique:
            twice = given.index[given.index.duplicated()][0]
            raise SettingsError(f"{what}: more than one value at {', '.join(map(str, twice))}")
        return _of_field(given.to_xarray(), grid, what)
    indices = [given.index] if given.ndim == 1 else [given.index, given.columns]
    if len(indices) != len(grid.shape):
        raise SettingsError(
            f"{what}: a {type(given).__name__} has {len(indices)} index{'es' * (len(indices) > 1)} for a grid of "
            f"{', '.join(grid.dims)}; give a DataArray, or an array in the grid's order"
        )
    dims = [str(dim if index.name is None else index.name) for index, dim in zip(indices, grid.dims, strict=True)]
    return _aligned(given.to_numpy(), dims, [index.to_numpy() for index in indices], grid, what)


def _by_name(given: Mapping[Any, Any], grid: Grid, what: str) -> NDArray[Any]:
    """Align a mapping by site name."""
    values = {str(name): value for name, value in given.items()}
    names = [grid.name(int(cell)) for cell in grid.cells]
    missing = [name for name in names if name not in values]
    if missing:
        raise SettingsError(f"{what}: no value for site {missing[0]!r}; {len(missing)} of {len(names)} are missing")
    known = np.asarray([values[name] for name in names])
    found = np.full(grid.size, known[0], dtype=known.dtype)
    found[grid.cells] = known
    return found.reshape(grid.shape)


def _aligned(
    values: NDArray[Any], dims: Sequence[str], labels: Sequence[Labels | None], grid: Grid, what: str
) -> NDArray[Any]:
    """Bring dimensions to the grid's axes, and their labels into the order of the axes."""
    axes = [0] if _is_list(grid) and len(dims) == 1 else [grid.axis_named(dim) for dim in dims]
    kept = [(i, axis) for i, axis in enumerate(axes) if axis is not None]
    for dim, axis, length in zip(dims, axes, values.shape, strict=True):
        if axis is None and length != 1:
            raise SettingsError(
                f"{what}: its dimension {dim!r} is no axis of the grid; the grid has {', '.join(grid.dims)}. "
                "Select one position of it, rename it, or give an array in the grid's order (.values)"
            )
    if len({axis for _, axis in kept}) < len(kept):
        raise SettingsError(
            f"{what}: two of its dimensions, {', '.join(dims)}, are the same axis; the grid has {', '.join(grid.dims)}"
        )
    for i, axis in kept:
        values = values.take(_order(labels[i], values.shape[i], grid, axis, what), axis=i)
    values = values.squeeze(tuple(i for i, axis in enumerate(axes) if axis is None))
    values = values.transpose(np.argsort([axis for _, axis in kept]))
    shape = [length if axis in axes else 1 for axis, length in enumerate(grid.shape)]
    return np.broadcast_to(values.reshape(shape), grid.shape)


def _order(labels: Labels | None, length: int, grid: Grid, axis: int, what: str) -> Positions:
    """Positions, along one dimension, of the cells of an axis; without labels, the order of the grid."""
    dim, own = grid.dims[axis], grid.labels(axis)
    if labels is None:
        if length != len(own):
            raise SettingsError(f"{what}: {length} values along {dim!r}, which has {len(own)}, and no labels to go by")
        return np.arange(length, dtype=np.int64)
    if np.array_equal(own, labels):  # in the same order, also where two of them are the same
        return np.arange(length, dtype=np.int64)
    positions, counts = match(own, labels, turn=_turn(grid, axis))
    missing, twice = np.flatnonzero(counts == 0), np.flatnonzero(counts > 1)
    if len(missing):
        some = ", ".join(str(label) for label in own[missing[:_SHOWN]])
        raise SettingsError(
            f"{what}: no value at {dim}={some}{' ...' * (len(missing) > _SHOWN)}, {len(missing)} of {len(own)} along "
            f"{dim!r}; its labels go from {labels[0]} to {labels[-1]}. Reindex it to the data, or give an array in the "
            "grid's order (.values)"
        )
    if len(twice):
        raise SettingsError(f"{what}: more than one value at {dim}={own[twice[0]]}; labels must differ")
    return positions


def _turn(grid: Grid, axis: int) -> float | None:
    """Period of the coordinates of an axis."""
    return FULL_TURN if axis == grid.axis_of_longitude() else None


def _is_list(grid: Grid) -> bool:
    """Whether sites have names of their own along one axis, as the columns of a table do."""
    return grid.names is not None and len(grid.shape) == 1
