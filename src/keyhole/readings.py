"""Readings: what the sites observed, brought into rank order and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.align import is_a, same_places
from keyhole.errors import PlanError
from keyhole.grid import Grid
from keyhole.origin import Clock
from keyhole.readers.calendars import from_calendar
from keyhole.readers.tables import TIME, parse_dates

__all__ = ["in_rank_order"]

_CHANNELS = ("variable", "channel")
_KINDS: dict[Clock, str] = {"dates": "M", "numbers": "iuf", "durations": "m"}  # of numpy, for each kind of time
On = tuple[Grid, NDArray[np.int64]] | None


def in_rank_order(
    readings: Any, names: Sequence[str], channels: int, time: Any = None, *, clock: Clock = "dates", on: On = None,
    variables: Sequence[str] = (),
) -> tuple[NDArray[np.float64], NDArray[Any] | None]:  # fmt: skip
    """Give readings as ``(N, K, channels)`` in rank order, NaN where they are missing, and their times if known.

    Parameters
    ----------
    readings
        ``(K,)``, ``(N, K)`` or ``(N, K, channels)`` in rank order; or a mapping, Series or frame labelled by site name,
        in any order, with the time in a column ``time`` or in an index of dates or called ``time`` (one channel alone);
        or a DataArray, of several channels a Dataset or one with a dimension of variables, whose sites go by name or by
        coordinates.
    names
        Names of the sites in rank order.
    channels
        Values that one site gives.
    time
        Time of each reading; outranks the one that the labels give.
    on
        The grid, and the sites' flat index on it in rank order, to know sites by their coordinates.
    variables
        Names of the channels, where they have some.
    clock
        What times are: dates, numbers or durations, as in the data that the plan was made of.
    """
    if is_a(readings, "xarray", "DataArray", "Dataset"):
        readings, found = _from_field(readings, names, channels, on, variables, clock)
        time = found if time is None else time
    elif _is_labelled(readings):
        if channels > 1:
            raise PlanError(f"readings: labelled readings hold one value a site; {_takes(len(names), channels)}")
        readings, found = _from_labels(readings, names)
        time = found if time is None else time
    values = _shaped(_plain(readings), len(names), channels)
    if len(values) == 0:
        raise PlanError("readings: there are none; give one row at least")
    if np.isinf(values).any():
        raise PlanError(f"readings: {int(np.isinf(values).sum())} of {values.size} are infinite")
    return values, None if time is None else _times(time, len(values), clock)


def _is_labelled(readings: Any) -> bool:
    return isinstance(readings, Mapping) or is_a(readings, "pandas", "Series", "DataFrame")


def _plain(readings: Any) -> NDArray[Any]:
    if np.ma.isMaskedArray(readings):
        return np.ma.filled(readings.astype(float), np.nan)
    try:
        return np.asarray(readings)
    except ValueError as error:
        raise PlanError(f"readings: rows of different length ({error})") from error


def _from_labels(readings: Any, names: Sequence[str]) -> tuple[NDArray[Any], Any]:
    import pandas as pd

    if isinstance(readings, Mapping):
        try:
            readings = pd.DataFrame({name: np.atleast_1d(values) for name, values in readings.items()})
        except ValueError as error:
            raise PlanError(f"readings: rows of different length ({error})") from error
    frame = readings.to_frame().T if isinstance(readings, pd.Series) else readings
    time: Any = frame.index if isinstance(frame.index, pd.DatetimeIndex) or frame.index.name == TIME else None
    if TIME in frame.columns and TIME not in names:
        time, frame = frame[TIME], frame.drop(columns=TIME)
    _check_labels([str(column) for column in frame.columns], names)
    frame = frame.set_axis([str(column) for column in frame.columns], axis="columns")
    try:
        return frame[list(names)].to_numpy(dtype=float), time
    except (ValueError, TypeError) as error:
        raise PlanError(f"readings: a value is not a number ({error})") from error


def _from_field(
    readings: Any, names: Sequence[str], channels: int, on: On, variables: Sequence[str], clock: Clock
) -> tuple[NDArray[Any], Any]:
    """Give readings of a DataArray or Dataset as ``(N, K, channels)``, and their times if they have some."""
    array = _one_array(readings, channels, variables)
    site, places = _site_dim(array, names, on)
    array = array.isel({site: places})
    others = [dim for dim in array.dims if dim != site]
    channel = [dim for dim in others if channels > 1 and str(dim) in _CHANNELS][:1]
    samples = [dim for dim in others if dim not in channel]
    if len(samples) > 1 or (channels > 1 and not channel):
        needed = f" and one called {_CHANNELS[0]}" if channels > 1 else ""
        raise PlanError(
            f"readings: dimensions {', '.join(map(str, array.dims))}; one of sites{needed}, and at most one of "
            "samples, is needed"
        )
    if channel and variables and channel[0] in array.coords:
        array = array.isel({channel[0]: _found(array[channel[0]].values, variables, "variable")})
    values = array.transpose(*samples, site, *channel).values
    return values.reshape(-1, len(names), values.shape[-1] if channel else 1), _time_of(array, samples, clock)


def _one_array(readings: Any, channels: int, variables: Sequence[str]) -> Any:
    """Give a Dataset as one array, its variables in the order of the channels."""
    if is_a(readings, "xarray", "DataArray"):
        return readings
    held = [str(name) for name in readings.data_vars]
    wanted = list(variables) if channels > 1 else held
    if (channels == 1 and len(held) != 1) or not wanted or not set(wanted) <= set(held):
        needed = ", ".join(variables) or "one variable"
        raise PlanError(f"readings: a Dataset of {', '.join(held) or 'nothing'}; {needed} is needed")
    return readings[wanted[0]] if channels == 1 else readings[wanted].to_array(_CHANNELS[0])


def _site_dim(array: Any, names: Sequence[str], on: On) -> tuple[Any, list[int]]:
    """Find the dimension of sites, and the positions along it in rank order: by name, by coordinates, or unlabelled."""
    for dim in array.dims:
        if dim in array.coords and not {str(label) for label in array[dim].values}.isdisjoint(names):
            return dim, _found(array[dim].values, names, "site")
    for dim in array.dims if on is not None else ():
        flat = None if on is None else same_places(array, dim, on[0])
        if flat is not None and on is not None:
            return dim, _found(_names_at(flat, dim, on[0]), names, "site")
    bare = [dim for dim in array.dims if array.sizes[dim] == len(names) and not _is_told(array, dim)]
    if len(bare) == 1:
        return bare[0], list(range(len(names)))
    raise PlanError(
        f"readings: no dimension of {', '.join(map(str, array.dims)) or 'none'} is labelled by the plan's sites; give "
        "their names (plan.names) or coordinates along one, or an array in rank order (.values)"
    )


def _names_at(flat: NDArray[np.int64], dim: Any, grid: Grid) -> list[str]:
    beyond = np.flatnonzero(flat < 0)
    if len(beyond):
        raise PlanError(
            f"readings: the place at {dim} {beyond[0]} is no cell of the plan's grid; take the nearest cell, or label "
            "it by site name"
        )
    return [grid.name(int(cell)) for cell in flat]


def _is_told(array: Any, dim: Any) -> bool:
    """Whether anything is said of the places along a dimension."""
    return any(dim in coordinate.dims for coordinate in array.coords.values())


def _found(labels: Any, wanted: Sequence[str], what: str) -> list[int]:
    """Positions of labels; they must be all there, once, and no others."""
    texts = [str(label) for label in labels]
    _check_labels(texts, wanted, what)
    return [texts.index(name) for name in wanted]


def _time_of(array: Any, samples: Sequence[Any], clock: Clock) -> Any:
    """Times along the dimension of samples, or the one time of a single sample; None where they are of another kind."""
    dim = samples[0] if samples else TIME
    if dim not in array.coords:
        return None
    labels = np.atleast_1d(np.asarray(array[dim].values))
    if labels.dtype.kind in _KINDS[clock]:
        return labels
    dated = labels.dtype == object and labels.size and hasattr(labels.flat[0], "calendar")
    return from_calendar(labels) if dated else None


def _check_labels(found: Sequence[str], names: Sequence[str], what: str = "site") -> None:
    repeated = sorted({name for name in found if found.count(name) > 1})
    if repeated:
        raise PlanError(f"readings: {what} {_some(repeated)} stands more than once")
    missing = [name for name in names if name not in set(found)]
    if missing:
        raise PlanError(f"readings: no column for {what} {_some(missing)}; {len(missing)} of {len(names)} are missing")
    unknown = [name for name in found if name not in set(names)]
    if unknown:
        raise PlanError(f"readings: {_some(unknown)} is not a {what} of this plan")


def _shaped(values: NDArray[Any], k: int, channels: int) -> NDArray[np.float64]:
    if values.dtype.kind not in "biuf":
        raise PlanError(f"readings: numbers are needed, not {values.dtype}")
    if channels == 1 and values.shape[-1:] == (k,) and values.ndim in (1, 2):
        return values.reshape(-1, k, 1).astype(float)
    if values.shape[-2:] == (k, channels) and values.ndim in (2, 3):
        return values.reshape(-1, k, channels).astype(float)
    raise PlanError(f"readings: shape {values.shape}; {_takes(k, channels)}")


def _takes(k: int, channels: int) -> str:
    shapes = f"({k},) or (N, {k})" if channels == 1 else f"({k}, {channels}) or (N, {k}, {channels})"
    return f"this plan takes {shapes} in rank order"


def _times(time: Any, n: int, clock: Clock) -> NDArray[Any]:
    try:
        when = parse_dates(time) if clock == "dates" else _parse_numbers(time, clock)
    except (ValueError, TypeError) as error:
        remedy = "write them as 2023-02-01" if clock == "dates" else f"the time of this plan's data is {clock}"
        raise PlanError(f"time: not {clock} ({error}); {remedy}") from error
    if len(when) != n:
        raise PlanError(f"time has {len(when)} entries for {n} readings")
    missing = np.isnat(when) if when.dtype.kind in "mM" else ~np.isfinite(when)
    if missing.any():
        raise PlanError(f"time: {int(missing.sum())} of {n} is missing; each reading needs its own")
    return when


def _parse_numbers(time: Any, clock: Clock) -> NDArray[Any]:
    """Turn what is given into numbers or durations; a ValueError or TypeError where it is neither."""
    found = np.atleast_1d(np.asarray(time))
    if found.ndim > 1 or found.dtype.kind not in ("iufUSO" if clock == "numbers" else "mUSO"):
        raise TypeError(f"{found.dtype} of shape {found.shape}")
    if clock == "numbers":
        return found if found.dtype.kind in "iuf" else found.astype(np.float64)
    import pandas as pd

    return pd.to_timedelta(found).to_numpy()


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")
