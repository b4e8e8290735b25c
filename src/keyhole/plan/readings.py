"""Readings of the sensors: bring them into rank order, and check their units."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError
from keyhole.data.alignment import sites_along
from keyhole.data.dates import parse_dates
from keyhole.data.labels import is_a
from keyhole.data.origin import Clock
from keyhole.data.readers.calendars import from_calendar
from keyhole.data.readers.tables import TIME
from keyhole.data.sites import Sites

__all__ = ["check_labels", "check_units", "order_readings", "same_units"]

_MOST_SHOWN = 3  # sites or labels that a message names
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


def order_readings(
    readings: Any, names: Sequence[str], channels: int, time: Any = None, *, clock: Clock = "dates",
    domain: Sites | None = None, variables: Sequence[str] = (),
) -> tuple[NDArray[np.float64], NDArray[Any] | None]:  # fmt: skip
    """Return readings as ``(N, K, channels)`` in rank order, NaN where missing, and their times if known.

    Parameters
    ----------
    readings
        ``(K,)``, ``(N, K)`` or ``(N, K, channels)`` in rank order; or a mapping, Series or frame labelled by site name,
        in any order, with the time in a column ``time`` or in an index of dates or called ``time`` (one channel only);
        or a DataArray, of several channels a Dataset or one with a dimension of variables, whose sites are labelled by
        name or by coordinates.
    names
        Names of the sites in rank order.
    channels
        Number of values at each site.
    time
        Time of each reading; takes precedence over that of the labels.
    clock
        Kind of times of the data that the plan was made from: dates, numbers or durations.
    domain
        All sites of the data, to recognise some by their coordinates.
    variables
        Names of the channels, if they have any.

    Returns
    -------
    values, time
        Readings, and times or None.

    Raises
    ------
    PlanError
        Readings of the wrong shape, a label that is missing, repeated or unknown, or a value that is not a number.

    Examples
    --------
    >>> order_readings({"south": 2.0, "north": 1.0}, ["north", "south"], 1)[0].tolist()
    [[[1.0], [2.0]]]
    """
    if is_a(readings, "xarray", "Dataset") and set(names) <= set(readings.data_vars):
        readings = {name: readings[name].values for name in names}  # one variable for each site
    labelled_time = None
    if is_a(readings, "xarray", "Dataset") or (is_a(readings, "xarray", "DataArray") and len(readings.coords)):
        readings, labelled_time = _from_xarray(readings, names, channels, domain, variables, clock)
    elif isinstance(readings, Mapping) or is_a(readings, "pandas", "Series", "DataFrame"):
        if channels > 1:
            raise PlanError(f"readings: labelled readings hold one value a site; {_expected(len(names), channels)}")
        readings, labelled_time = _from_frame(readings, names)
    values = _shaped(_plain(readings), len(names), channels)
    if len(values) == 0:
        raise PlanError("readings: there are none; give one row at least")
    if np.isinf(values).any():
        raise PlanError(f"readings: {int(np.isinf(values).sum())} of {values.size} are infinite")
    time = labelled_time if time is None else time
    return values, None if time is None else _times(time, len(values), clock)


def _plain(readings: Any) -> NDArray[Any]:
    """Convert to an array, NaN where masked."""
    if np.ma.isMaskedArray(readings):
        return np.ma.filled(readings.astype(float), np.nan)
    try:
        return np.asarray(readings)
    except ValueError as error:
        raise PlanError(f"readings: rows of different length ({error})") from error


def _from_frame(readings: Any, names: Sequence[str]) -> tuple[NDArray[Any], Any]:
    """Return readings of a mapping, Series or frame as ``(N, K)``, and their times if it has any."""
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
    check_labels([str(column) for column in frame.columns], names)
    frame = frame.set_axis([str(column) for column in frame.columns], axis="columns")
    try:
        return frame[list(names)].to_numpy(dtype=float), time
    except (ValueError, TypeError) as error:
        raise PlanError(f"readings: a value is not a number ({error})") from error


def _from_xarray(
    readings: Any, names: Sequence[str], channels: int, domain: Sites | None, variables: Sequence[str], clock: Clock
) -> tuple[NDArray[Any], Any]:
    """Return readings of a DataArray or Dataset as ``(N, K, channels)``, and their times if it has any."""
    array = _one_array(readings, channels, variables)
    site, order = _site_dim(array, names, domain)
    array = array.isel({site: order})
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
        array = array.isel({channel[0]: _positions(array[channel[0]].values, variables, "variable")})
    values = array.transpose(*samples, site, *channel).values
    return values.reshape(-1, len(names), values.shape[-1] if channel else 1), _time_of(array, samples, clock)


def _one_array(readings: Any, channels: int, variables: Sequence[str]) -> Any:
    """Convert a Dataset to one array, its variables in the order of the channels."""
    if is_a(readings, "xarray", "DataArray"):
        return readings
    present = [str(name) for name in readings.data_vars]
    wanted = list(variables) if channels > 1 else present
    if (channels == 1 and len(present) != 1) or not wanted or not set(wanted) <= set(present):
        needed = ", ".join(variables) or "one variable"
        raise PlanError(f"readings: a Dataset of {', '.join(present) or 'nothing'}; {needed} is needed")
    return readings[wanted[0]] if channels == 1 else readings[wanted].to_array(_CHANNELS[0])


def _site_dim(array: Any, names: Sequence[str], domain: Sites | None) -> tuple[Any, list[int]]:
    """Find the dimension of sites and the positions along it in rank order: by name, coordinates, or unlabelled."""
    for dim in array.dims:
        if dim in array.coords and not {str(label) for label in array[dim].values}.isdisjoint(names):
            return dim, _positions(array[dim].values, names, "site")
    for dim in array.dims if domain is not None else ():
        numbers = None if domain is None else sites_along(array, dim, domain)
        if numbers is not None and domain is not None:
            return dim, _positions(_names_at(numbers, dim, domain), names, "site")
    labelled = {dim for coordinate in array.coords.values() for dim in coordinate.dims}
    bare = [dim for dim in array.dims if array.sizes[dim] == len(names) and dim not in labelled]
    if len(bare) == 1:
        return bare[0], list(range(len(names)))
    raise PlanError(
        f"readings: no dimension of {', '.join(map(str, array.dims)) or 'none'} is labelled by the plan's sites; give "
        "their names (plan.names) or coordinates along one, or an array in rank order (.values)"
    )


def _names_at(numbers: NDArray[np.int64], dim: Any, domain: Sites) -> list[str]:
    """Return the names of sites by their numbers, which are negative where there is none."""
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        raise PlanError(
            f"readings: the position at {dim} {unknown[0]} is no site of the plan's data; take the nearest one, or "
            "label it by site name"
        )
    return [domain.name(int(number)) for number in numbers]


def _positions(labels: Any, wanted: Sequence[str], what: str) -> list[int]:
    """Return the positions of labels, which must all be there, once, and no others."""
    texts = [str(label) for label in labels]
    check_labels(texts, wanted, what)
    return [texts.index(name) for name in wanted]


def _time_of(array: Any, samples: Sequence[Any], clock: Clock) -> Any:
    """Return the times along the sample dimension, or of a single sample; None if they are of another kind."""
    dim = samples[0] if samples else TIME
    if dim not in array.coords:
        return None
    labels = np.atleast_1d(np.asarray(array[dim].values))
    if labels.dtype.kind in _KINDS[clock]:
        return labels
    dated = labels.dtype == object and labels.size and hasattr(labels.flat[0], "calendar")
    return from_calendar(labels) if dated else None


def check_labels(found: Sequence[str], names: Sequence[str], what: str = "site") -> None:
    """Raise a PlanError for labels that are repeated, missing or unknown."""
    repeated = sorted({name for name in found if found.count(name) > 1})
    if repeated:
        raise PlanError(f"readings: {what} {_listed(repeated)} stands more than once")
    missing = [name for name in names if name not in set(found)]
    if missing:
        raise PlanError(
            f"readings: no column for {what} {_listed(missing)}; {len(missing)} of {len(names)} are missing"
        )
    unknown = [name for name in found if name not in set(names)]
    if unknown:
        raise PlanError(f"readings: {_listed(unknown)} is not a {what} of this plan")


def _listed(names: Sequence[str]) -> str:
    """Quote the first names and count the others."""
    shown = ", ".join(repr(name) for name in names[:_MOST_SHOWN])
    return shown + (f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else "")


def _shaped(values: NDArray[Any], k: int, channels: int) -> NDArray[np.float64]:
    """Reshape numbers in rank order to ``(N, K, channels)``."""
    if values.dtype.kind not in "biuf":
        raise PlanError(f"readings: numbers are needed, not {values.dtype}")
    if channels == 1 and values.shape[-1:] == (k,) and values.ndim in (1, 2):
        return values.reshape(-1, k, 1).astype(float)
    if values.shape[-2:] == (k, channels) and values.ndim in (2, 3):
        return values.reshape(-1, k, channels).astype(float)
    raise PlanError(f"readings: shape {values.shape}; {_expected(k, channels)}")


def _expected(k: int, channels: int) -> str:
    """Describe the shapes of readings in rank order."""
    shapes = f"({k},) or (N, {k})" if channels == 1 else f"({k}, {channels}) or (N, {k}, {channels})"
    return f"this plan takes {shapes} in rank order"


def _times(time: Any, n: int, clock: Clock) -> NDArray[Any]:
    """Parse the times of ``n`` readings; a PlanError if they are of another kind, missing or too few."""
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
    """Parse numbers or durations; raise a ValueError or TypeError if they are neither."""
    found = np.atleast_1d(np.asarray(time))
    if found.ndim > 1 or found.dtype.kind not in ("iufUSO" if clock == "numbers" else "mUSO"):
        raise TypeError(f"{found.dtype} of shape {found.shape}")
    if clock == "numbers":
        return found if found.dtype.kind in "iuf" else found.astype(np.float64)
    import pandas as pd

    return pd.to_timedelta(found).to_numpy()


# Units ----------------------------------------------------------------------------------------------------------------


def check_units(readings: Any, units: Sequence[str]) -> None:
    """Raise a PlanError if readings are labelled with other units than the plan's.

    The units of a DataArray, frame or Series are its ``attrs["units"]``; in a Dataset, or a mapping of DataArrays, each
    variable has its own. Readings without units are accepted.

    Parameters
    ----------
    readings
        As `order_readings` takes them.
    units
        Units of each channel; empty if unknown.
    """
    known = list(dict.fromkeys(unit for unit in units if unit.strip()))
    for given in dict.fromkeys(_units_of(readings)):
        if known and not any(same_units(given, unit) for unit in known):
            needed = ", ".join(map(repr, known))
            raise PlanError(f"readings are in {given!r}, and the plan is in {needed}; convert them first")


def _units_of(readings: Any) -> list[str]:
    """Return the units that readings are labelled with."""
    parts = [part for name, part in readings.items() if name != TIME] if isinstance(readings, Mapping) else [readings]
    found = [getattr(part, "attrs", {}) for part in parts]
    texts = [str(said["units"]) for said in found if isinstance(said, Mapping) and said.get("units") is not None]
    return [text for text in texts if text.strip()]


def same_units(one: str, other: str) -> bool:
    """Return whether two units are equal apart from their spelling.

    Examples
    --------
    >>> same_units("degC", "degree_Celsius"), same_units("m s-1", "m/s"), same_units("degC", "K")
    (True, True, False)
    """
    return _factors(one) == _factors(other)


def _factors(unit: str) -> dict[str, int] | str:
    """Return the powers of the factors of a unit such as ``kg m-2 s-1``; the text itself if it cannot be parsed."""
    powers: dict[str, int] = {}
    for place, part in enumerate(unit.strip().split("/")):
        for factor in part.replace("**", "^").replace("*", " ").replace(".", " ").replace("·", " ").split():
            found = _FACTOR.fullmatch(factor)
            if found is None:
                return unit.strip()
            name = _SAME.get(found[1].lower(), found[1])
            powers[name] = powers.get(name, 0) + (-1 if place else 1) * int(found[2] or 1)
    return powers
