"""Outliers: readings far beyond what their site showed in the training data are flagged, dropped or trusted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError, ReadingsWarning

__all__ = ["Outliers", "check_outliers", "drop_beyond", "warn_beyond"]

Outliers = Literal["flag", "drop", "trust"]

_MOST_SHOWN = 3  # sites that a message names


def check_outliers(outliers: Any, *, known: bool) -> None:
    """Raise a PlanError unless ``outliers`` is a treatment that the plan can apply.

    Parameters
    ----------
    outliers
        ``"flag"``, ``"drop"`` or ``"trust"``.
    known
        Whether the plan has the range of each site.
    """
    if outliers not in get_args(Outliers):
        raise PlanError(f"outliers={outliers!r}: {', '.join(map(repr, get_args(Outliers)))} is needed")
    if outliers == "drop" and not known:
        raise PlanError("outliers='drop': this plan is from a version that kept no ranges of readings; make it again")


def warn_beyond(
    readings: NDArray[np.float64], ranges: NDArray[np.float64], scale: NDArray[np.float64], names: Sequence[str],
    units: Sequence[str], interval: float | None, *, stacklevel: int,
) -> None:  # fmt: skip
    """Issue a ReadingsWarning for readings far outside the range of their sites in the training data.

    A reading is far outside if it exceeds the range by more than the range's own width (or the channel's scale, if that
    is larger). New records are thus accepted: in a hundred samples of a normal distribution the range is five standard
    deviations wide, so that a reading must be about seven from the mean. Fill values (999, -9999), kelvin for degrees
    Celsius and broken sensors are beyond that.

    Parameters
    ----------
    readings
        ``(N, K, channels)`` in rank order.
    ranges
        ``(2, K, channels)``, from `range_of`.
    scale
        Typical size of an anomaly in each channel.
    names, units
        Names of the sites, and units of the channels.
    interval
        Coverage of the prediction intervals, if they were requested; the warning then says that they do not hold.
    stacklevel
        Of the warning, counted from the caller.
    """
    far = _beyond(readings, ranges, scale)
    if not far.any():
        return
    samples, sites = int(far.any(axis=(1, 2)).sum()), int(far.any(axis=(0, 2)).sum())
    many = f" (in all, {samples} samples have such readings at {sites} sites)" if far.sum() > 1 else ""
    invalid = "" if interval is None else f", and the {100 * interval:g} % prediction interval does not hold for them"
    warnings.warn(
        f"readings: {_examples(readings, far, ranges, names, units)}{many}. Check sensors and units; put NaN for a "
        "reading that is wrong, or have all such readings imputed (outliers='drop', --outliers drop). What is "
        f"reconstructed from them is an extrapolation{invalid}",
        ReadingsWarning,
        stacklevel=stacklevel + 1,
    )


def drop_beyond(
    readings: NDArray[np.float64], ranges: NDArray[np.float64], scale: NDArray[np.float64], names: Sequence[str],
    units: Sequence[str], *, stacklevel: int,
) -> NDArray[np.float64]:  # fmt: skip
    """Return readings with NaN in place of those that `warn_beyond` flags; a ReadingsWarning counts them.

    Parameters
    ----------
    readings, ranges, scale, names, units, stacklevel
        As in `warn_beyond`.
    """
    far = _beyond(readings, ranges, scale)
    if not far.any():
        return readings
    sites = f"{int(far.any(axis=(0, 2)).sum())} of {readings.shape[1]} sites"
    warnings.warn(
        f"readings: {int(far.sum())} of {readings.size} readings, at {sites}, are dropped as missing and imputed from "
        f"the others: {_examples(readings, far, ranges, names, units)}",
        ReadingsWarning,
        stacklevel=stacklevel + 1,
    )
    return np.where(far, np.nan, readings)


def _beyond(
    readings: NDArray[np.float64], ranges: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.bool_]:  # fmt: skip
    """Which readings exceed the range of their site by more than its width; False where a reading is missing."""
    low, high = ranges
    margin = np.maximum(high - low, scale)
    return np.asarray((readings < low - margin) | (readings > high + margin))


def _examples(
    readings: NDArray[np.float64], far: NDArray[np.bool_], ranges: NDArray[np.float64], names: Sequence[str],
    units: Sequence[str],
) -> str:  # fmt: skip
    """Describe the first reading beyond the range of each of the first sites that have one."""
    low, high = ranges
    shown = []
    for site, channel in np.argwhere(far.any(axis=0))[:_MOST_SHOWN]:
        value = readings[far[:, site, channel].argmax(), site, channel]
        unit = f" {units[channel]}" if units[channel] else ""
        which = f"{names[site]!r}" + (f" (channel {channel})" if len(units) > 1 else "")
        shown.append(
            f"site {which} reads {value:g}{unit} where training had "
            f"{low[site, channel]:.4g} to {high[site, channel]:.4g}{unit}"
        )
    return "; ".join(shown)
