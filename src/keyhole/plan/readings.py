"""Readings: what the sites observed, brought into rank order and checked against what they showed in training."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError, ReadingsWarning
from keyhole.data.alignment import is_a, same_places
from keyhole.data.grid import Grid
from keyhole.data.origin import Clock
from keyhole.data.readers.calendars import from_calendar
from keyhole.data.readers.tables import TIME, parse_dates

__all__ = ["check_units", "order_readings", "range_of", "same_units", "warn_beyond"]

_MOST_SHOWN = 3
# Spellings of CF, UDUNITS and everyday files for the same unit.
_SPELLINGS = {
    "degC": "degc deg_c degreec degree_c degrees_c degreesc celsius degree_celsius degrees_celsius °c ℃",
    "K": "k kelvin kelvins degk deg_k degree_k degrees_k degree_kelvin degrees_kelvin",
    "degF": "degf deg_f degree_f degrees_f fahrenheit degree_fahrenheit degrees_fahrenheit °f",
    "%": "percent",
}
_SAME = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings.split()}
_FACTOR = re.compile(r"([^\W\d]+|[%°℃][A-Za-z]?)(?:\^|\*\*)?([+-]?\d+)?")

_CHANNELS = ("variable", "channel")
_KINDS: dict[Clock, str] = {"dates": "M", "numbers": "iuf", "durations": "m"}  # of numpy, for each kind of time
On = tuple[Grid, NDArray[np.int64]] | None


def order_readings(
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
    if is_a(readings, "xarray", "Dataset") and set(names) <= set(readings.data_vars):
        readings = {name: readings[name].values for name in names}  # a variable for each site
    if is_a(readings, "xarray", "Dataset") or (is_a(readings, "xarray", "DataArray") and len(readings.coords)):
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


# Units ----------------------------------------------------------------------------------------------------------------


def check_units(readings: Any, units: Sequence[str]) -> None:
    """Raise a PlanError where readings say that they are in other units than the plan's, one for each channel.

    A DataArray, frame or Series says it by ``attrs["units"]``; of a Dataset, or a mapping of DataArrays, each variable
    does. Whoever says nothing is believed.
    """
    known = list(dict.fromkeys(unit for unit in units if unit.strip()))
    for given in dict.fromkeys(_said(readings)):
        if known and not any(same_units(given, unit) for unit in known):
            needed = ", ".join(map(repr, known))
            raise PlanError(f"readings are in {given!r}, and the plan is in {needed}; convert them first")


def _said(readings: Any) -> list[str]:
    """Units that readings name."""
    parts = [part for name, part in readings.items() if name != TIME] if isinstance(readings, Mapping) else [readings]
    found = [getattr(part, "attrs", {}) for part in parts]
    texts = [str(said["units"]) for said in found if isinstance(said, Mapping) and said.get("units") is not None]
    return [text for text in texts if text.strip()]


def same_units(one: str, other: str) -> bool:
    """Whether two units are the same, as far as spelling goes.

    Examples
    --------
    >>> same_units("degC", "degree_Celsius"), same_units("m s-1", "m/s"), same_units("degC", "K")
    (True, True, False)
    """
    return _factors(one) == _factors(other)


def _factors(unit: str) -> dict[str, int] | str:
    """Powers of the factors of a unit such as ``kg m-2 s-1``; the text itself where it is written in another way."""
    powers: dict[str, int] = {}
    for place, part in enumerate(unit.strip().split("/")):
        for factor in part.replace("**", "^").replace("*", " ").replace(".", " ").replace("·", " ").split():
            found = _FACTOR.fullmatch(factor)
            if found is None:
                return unit.strip()
            name = _SAME.get(found[1].lower(), found[1])
            powers[name] = powers.get(name, 0) + (-1 if place else 1) * int(found[2] or 1)
    return powers


# Ranges ---------------------------------------------------------------------------------------------------------------


def range_of(readings: NDArray[Any]) -> NDArray[np.float64]:
    """Give the least and the largest reading of each site, ``(2, K, channels)``; what is missing does not count."""
    return np.stack([np.nanmin(readings, axis=0), np.nanmax(readings, axis=0)]).astype(np.float64)


def warn_beyond(
    readings: NDArray[np.float64], ranges: NDArray[np.float64], scale: NDArray[np.float64], names: Sequence[str],
    units: Sequence[str], interval: float | None, *, stacklevel: int,
) -> None:  # fmt: skip
    """Warn of readings ``(N, K, channels)`` that are far from all that their sites showed in training.

    A reading is far if it is beyond the range of training by more than that range's own width. New records are thus
    taken as they come: for a normal distribution and a hundred samples, the range is five standard deviations wide, so
    that a reading must be some seven from the mean. Fill values (999, -9999), kelvin for degrees Celsius and sensors
    that broke are beyond that. Where a site hardly varied, its channel's scale stands for the width.

    Parameters
    ----------
    ranges
        Least and largest reading of each site in training, ``(2, K, channels)``.
    scale
        Typical size of an anomaly, of each channel.
    interval
        The share that was asked for, if there was one: what it promises is for readings like those of training.
    """
    low, high = ranges
    room = np.maximum(high - low, scale)
    far = (readings < low - room) | (readings > high + room)  # False where a reading is missing
    if not far.any():
        return
    shown = []
    for site, channel in np.argwhere(far.any(axis=0))[:_MOST_SHOWN]:
        value = readings[far[:, site, channel].argmax(), site, channel]
        unit = f" {units[channel]}" if units[channel] else ""
        which = f"{names[site]!r}" + (f" (channel {channel})" if len(units) > 1 else "")
        shown.append(
            f"site {which} reads {value:g}{unit} where training had "
            f"{low[site, channel]:.4g} to {high[site, channel]:.4g}{unit}"
        )
    samples, sites = int(far.any(axis=(1, 2)).sum()), int(far.any(axis=(0, 2)).sum())
    many = f" (in all, {samples} samples have such readings at {sites} sites)" if far.sum() > 1 else ""
    held = "" if interval is None else f", and the {100 * interval:g} % prediction interval does not hold for them"
    told = "; ".join(shown)
    warnings.warn(
        f"readings: {told}{many}. Check sensors and units; put NaN for a reading that is wrong. What is reconstructed "
        f"from such readings is an extrapolation{held}",
        ReadingsWarning,
        stacklevel=stacklevel + 1,
    )
