"""Sentinels: codes of missing values, such as -9999, that nobody declared and that would be taken as measurements."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import KeyholeWarning
from keyhole.core.text import listed
from keyhole.data.samples import Samples

__all__ = ["Sentinel", "find_sentinels", "warn_of_sentinels"]

# Numbers that mean "missing" in files of all kinds, with either sign; and the smallest integers of two and four bytes.
_NINES = [99, 99.9, 99.99, 999, 999.9, 999.99, 9999, 9999.9, 9999.99, 99999, 999999, 9999999]
_LEAST_INTEGERS = [-32767, -32768, -2147483647, -2147483648]
_HUGE = 1e15  # and beyond: 1e20, 9.96921e36, 3.4e38
# How far from all others a value must lie, as a share of their range, and how often it must stand: a number of the list
# above, and any other. Images, saturated sensors, rain with its zeros and flags are far below both.
_FAR_CODE, _FAR = 0.5, 100.0
_OFTEN_CODE, _OFTEN = 2, 3
_NUMBERS, _FEWEST_ROWS = 1_000_000, 8  # of the samples that are looked at first
_BLOCK = 4096  # sites at a time
_MOST, _SHOWN = 8, 3  # values that are examined, and that the warning names


@dataclass(frozen=True)
class Sentinel:
    """A value that stands far from all others, and often.

    Parameters
    ----------
    value : float
        The value.
    count : int
        How often it stands in the samples that were examined.
    where : tuple of str
        The columns of a table, or names of variables; empty for an array or a field of one variable.
    sites : int
        Number of sites with it.
    low, high : float
        Range of all other values there.
    """

    value: float
    count: int
    where: tuple[str, ...]
    sites: int
    low: float
    high: float


def find_sentinels(samples: Samples, low: NDArray[Any], high: NDArray[Any]) -> list[Sentinel]:
    """Find values that are repeated exactly and lie far outside the rest: of a column of a table, or of a channel.

    Few samples tell which of the extremes are worth a look, so that ordinary data cost no further pass. Data that stay
    in their file are examined only where an extreme is one of the usual codes, and then a subset of the samples.

    Parameters
    ----------
    samples : Samples
        In the user's units, those of the training part.
    low, high : ndarray of shape (channels, m)
        Smallest and largest value of each site.

    Returns
    -------
    list of Sentinel

    Examples
    --------
    >>> import keyhole as kh
    >>> values = np.random.default_rng(0).normal(size=(50, 4))
    >>> values[[3, 8], 1] = -9999
    >>> [(one.value, one.count) for one in find_sentinels(kh.read(values), values.min(0)[None], values.max(0)[None])]
    [(-9999.0, 2)]
    """
    if samples.memory is not None and not (_is_code(low) | _is_code(high)).any():
        return []
    apart = samples.origin.kind == "table"
    step = max(1, min(len(samples) // _FEWEST_ROWS, math.prod(samples.shape) // _NUMBERS))
    suspects = _suspects(samples.panel(np.arange(0, len(samples), step)).values, low, high, apart)
    if not any(suspect.any() for suspect in suspects):
        return []
    values = samples.values if samples.memory is None else samples.subset().values
    found = []
    for channel, (lows, highs) in enumerate(zip(*suspects, strict=True)):
        ends = [(bound[channel], suspect) for bound, suspect in ((low, lows), (high, highs))]
        repeated = _repeated(values[:, channel], ends)
        for value in repeated:
            at = np.flatnonzero(np.logical_or.reduce([suspect & (bound == value) for bound, suspect in ends]))
            one = _examine(values[:, channel], value, at, repeated, apart)
            if one is not None:
                found.append(replace(one, where=_names(samples, channel, at)))
    return found


def warn_of_sentinels(samples: Samples, low: NDArray[Any], high: NDArray[Any]) -> None:
    """Issue a KeyholeWarning that names such values, and says what to do; parameters as in `find_sentinels`."""
    found = find_sentinels(samples, low, high)
    if not found:
        return
    least = "at least " if samples.memory is not None and samples.subset_step > 1 else ""
    warnings.warn(
        f"values: {'; '.join(_sentence(one, least) for one in found[:_SHOWN])}. Missing values are often coded so, and "
        "here it was taken as a measurement. If it means missing, declare it in the file (_FillValue) or replace it by "
        "NaN, and choose missing='model' (--missing model)",
        KeyholeWarning,
        stacklevel=3,
    )


def _suspects(
    few: NDArray[Any], low: NDArray[Any], high: NDArray[Any], apart: bool
) -> list[NDArray[np.bool_]]:  # fmt: skip
    """Which sites have a smallest value, and which a largest one, that is far from the others in a few samples."""
    rest = (few != low) & (few != high) & ~np.isnan(few)
    least, most = few.min(axis=0, where=rest, initial=np.inf), few.max(axis=0, where=rest, initial=-np.inf)
    if not apart:
        least, most = least.min(axis=1, keepdims=True), most.max(axis=1, keepdims=True)
    constant = apart & (low == high)
    return [_is_far(bound, least, most) | (constant & _is_code(bound)) for bound in (low, high)]


def _repeated(values: NDArray[Any], ends: Sequence[tuple[NDArray[Any], NDArray[np.bool_]]]) -> NDArray[Any]:
    """The suspect ends of the sites' ranges that stand there often enough, the most frequent ones."""
    sites = [np.flatnonzero(suspect) for _, suspect in ends]
    found, which = np.unique(
        np.concatenate([bound[at] for (bound, _), at in zip(ends, sites, strict=True)]), return_inverse=True
    )
    counts = [
        np.count_nonzero(values[:, block] == bound[block], axis=0)
        for (bound, _), at in zip(ends, sites, strict=True)
        for block in np.array_split(at, len(at) // _BLOCK + 1)
    ]
    count = np.bincount(which.ravel(), np.concatenate(counts), len(found))
    found, count = (part[count >= np.where(_is_code(found), _OFTEN_CODE, _OFTEN)] for part in (found, count))
    return np.asarray(found[np.argsort(-count, kind="stable")[:_MOST]])


def _examine(
    values: NDArray[Any], value: Any, at: NDArray[np.int64], repeated: NDArray[Any], apart: bool
) -> Sentinel | None:
    """Look at all values of a channel, or of the columns where a value is suspect; None where others are near."""
    block = values[:, at] if apart else values
    same, rest = block == value, ~np.isnan(block)
    for other in repeated:
        rest &= block != other
    axis = 0 if apart else None
    least, most = block.min(axis, where=rest, initial=np.inf), block.max(axis, where=rest, initial=-np.inf)
    # Of a column that holds nothing else, the code itself is all that there is to see.
    if not (_is_far(value, least, most) | (least > most)).all():
        return None
    return Sentinel(
        float(value), int(same.sum()), (), int(same.any(axis=0).sum()), float(np.min(least)), float(np.max(most))
    )


def _is_far(value: Any, least: Any, most: Any) -> NDArray[np.bool_]:
    """Whether a value is far from the range of others, which must not be a single number."""
    share = np.where(_is_code(value), _FAR_CODE, _FAR)
    value, least, most = (np.asarray(one, np.float64) for one in (value, least, most))
    known = least < most
    width = np.where(known, most, 0) - np.where(known, least, 0)
    return np.asarray(known & (np.maximum(least - value, value - most) > share * width))


def _is_code(values: Any) -> NDArray[np.bool_]:
    """Whether numbers are usual codes of missing values, in the precision that they have."""
    values = np.asarray(values)
    nines, integers = (np.array(codes).astype(values.dtype) for codes in (_NINES, _LEAST_INTEGERS))
    size = np.abs(values)
    return np.asarray(np.isin(size, nines) | np.isin(values, integers) | (size >= _HUGE))


def _names(samples: Samples, channel: int, sites: NDArray[np.int64]) -> tuple[str, ...]:
    """Names of the columns of a table, or of the variable if there are several."""
    if samples.origin.kind == "table":
        return tuple(samples.sites.name(int(site)) for site in sites)
    several = samples.channels > 1 and samples.origin.variables
    return (list(samples.origin.variables)[channel],) if several else ()


def _sentence(one: Sentinel, least: str) -> str:
    """What was found of one value."""
    where = f" in {listed([repr(name) for name in one.where], _SHOWN)}" if one.where else f" at {one.sites} sites"
    others = f", far from all others ({one.low:.4g} to {one.high:.4g})" if one.low <= one.high else ""
    return f"{one.value:g} stands {least}{one.count} times{where}{others}"
