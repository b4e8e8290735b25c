"""Numbers, times and settings as words that a reader takes in at a glance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = ["number", "percent", "plain", "quantity", "shorten", "with_units"]

_THIN = "\N{NARROW NO-BREAK SPACE}"
_SMALLEST = 1e-4


def number(value: float) -> str:
    """Give three significant digits, without an exponent where a plain number is short."""
    if not np.isfinite(value):
        return "unknown"
    size = abs(value)
    if size == 0 or 1e-3 <= size < 1e5:
        decimals = 0 if size >= 100 or size == 0 else 2 - int(np.floor(np.log10(size)))
        return f"{value:.{decimals}f}"
    return f"{value:.2e}"


def quantity(value: float, units: str) -> str:
    """Give a number with its units, if it has any."""
    return f"{number(value)} {units}".strip()


def with_units(label: str, units: str) -> str:
    """Give a label with the units in brackets, if there are any."""
    return f"{label} ({units})" if units else label


def percent(share: float) -> str:
    """Give a share in percent; more digits close to nothing and close to all, where they count.

    Examples
    --------
    >>> percent(0.5707).replace(_THIN, " "), percent(0.0042).replace(_THIN, " ")
    ('57 %', '0.4 %')
    """
    if not np.isfinite(share):
        return "unknown"
    if 0 < share < _SMALLEST:
        return f"<{_THIN}{_SMALLEST * 100:g}{_THIN}%"
    if 0 < 1 - share < _SMALLEST:
        return f">{_THIN}{(1 - _SMALLEST) * 100:g}{_THIN}%"
    edge = min(abs(share), abs(1 - share)) * 100
    decimals = 0 if edge >= 1 or edge == 0 else 1 if edge >= 0.1 else 2
    return f"{share * 100:.{decimals}f}{_THIN}%"


def plain(value: Any) -> str:
    """Give a value of any kind as short text: dates as dates, numbers short, mappings as ``name value, ...``."""
    if isinstance(value, np.datetime64):
        return _moment(value)
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_within(one)}" for name, one in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return ", ".join(_within(one) for one in value)
    return "none" if value is None else str(value)


def _within(value: Any) -> str:
    """Give one of several values, in brackets where it is several itself."""
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    return f"({plain(value)})" if several else plain(value)


def shorten(text: str, most: int) -> str:
    """Cut a text that is longer than ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _moment(time: np.datetime64) -> str:
    """Give the day alone where the time is midnight."""
    if np.isnat(time):
        return "unknown"
    day = time.astype("datetime64[D]")
    return str(day if day == time else time.astype("datetime64[m]")).replace("T", " ")
