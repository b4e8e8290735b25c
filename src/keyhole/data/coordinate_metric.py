"""The metric of sites by their coordinates: the great circle, straight distances, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.metric import EARTH_RADIUS_KM, Euclidean, GreatCircle, Metric, NoMetric

if TYPE_CHECKING:
    from keyhole.data.sites import Sites

__all__ = ["metric_of"]


def metric_of(sites: Sites, vertical_scale: float | None) -> Metric:
    """The great circle with latitude and longitude, else straight distances; none for the columns of a table."""
    if sites.names is not None and not sites.auxiliary:
        return NoMetric(len(sites))
    others = [
        name for name in sites.location if name not in (sites.roles.get("latitude"), sites.roles.get("longitude"))
    ]
    latitude, longitude = sites.role("latitude"), sites.role("longitude")
    if latitude is None or longitude is None:
        return _straight(sites, sites.location, vertical_scale)
    if not others:
        return GreatCircle(latitude, longitude)
    columns = np.stack([_numbers(sites, name) for name in others], axis=1)
    if vertical_scale is not None:
        return GreatCircle(latitude, longitude, columns * vertical_scale)
    spread = np.ptp(columns, axis=0)
    scaled = columns * EARTH_RADIUS_KM / np.where(spread > 0, spread, 1.0)
    return GreatCircle(latitude, longitude, scaled, only_horizontal=True)


def _straight(sites: Sites, names: tuple[str, ...], vertical_scale: float | None) -> Metric:
    """Straight distances in units of the coordinates; the extent is that of all data, valid or not."""
    columns, lengths = [], []
    for name in names:
        scale = vertical_scale if vertical_scale is not None and name == sites.roles.get("vertical") else 1.0
        columns.append(scale * _numbers(sites, name))
        whole = sites.auxiliary[name].values if name in sites.auxiliary else sites.axes[name]
        if not _is_number(whole) or (name in sites.axes and not np.isfinite(whole).all()):
            whole = np.arange(whole.size)
        lengths.append(scale * float(np.ptp(whole[~_is_missing(whole)].astype(np.float64))) if whole.size else 0.0)
    return Euclidean(np.stack(columns, axis=1), extent=max(lengths) or 1.0)


def _numbers(sites: Sites, name: str) -> NDArray[np.float64]:
    """A coordinate as numbers: positions along an axis that holds texts or dates, or whose coordinate is incomplete."""
    values = sites.coordinate(name)
    if name not in sites.auxiliary and not (_is_number(values) and np.isfinite(sites.axes[name]).all()):
        return sites.places[sites.dims.index(name)].astype(np.float64)
    return values.astype(np.float64)


def _is_number(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "biuf"


def _is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
