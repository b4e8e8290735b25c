"""Weighted sums over the field, such as regional means, with prediction intervals of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError, SettingsError
from keyhole.data.alignment import align
from keyhole.data.constraints.regions import region as sites_of_region
from keyhole.data.sites import Sites
from keyhole.data.weights import holds_numbers
from keyhole.models.reconstructors.base import flat
from keyhole.plan.fitted import FittedModels, check_finite

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["functional_half_widths", "functional_intervals", "functional_weights"]


def functional_weights(given: Any, sites: Sites) -> NDArray[np.float64]:
    """Return the weights of a mean over a region, or of any weighted sum.

    Parameters
    ----------
    given
        A region, as `keyhole.Constraints` takes it (a box, GeoJSON, a boolean mask, a list of these for their union):
        the weights of its mean, by area where the areas of the sites are known. Numbers of the shape of the data, or
        labelled: the weights of a sum, which are taken as they are.
    sites
        The m sites.

    Returns
    -------
    ndarray
        ``(m,)``.

    Examples
    --------
    >>> functional_weights({"column": (1, None)}, Sites.plain((3,)))
    array([0. , 0.5, 0.5])
    >>> functional_weights(np.array([-1.0, 0.0, 1.0]), Sites.plain((3,)))  # a difference
    array([-1.,  0.,  1.])
    """
    if holds_numbers(given):
        weights = align(given, sites, "region").astype(np.float64)
        if not np.isfinite(weights).all():
            raise SettingsError("region: finite weights are needed at all valid sites; put 0 where a site is left out")
        return weights
    weights = sites_of_region(given, sites).astype(np.float64)
    weights *= 1.0 if sites.area is None else sites.area
    if not weights.any():
        raise SettingsError("region: none of the plan's valid sites lies in it")
    return np.asarray(weights / weights.sum())


def functional_half_widths(
    models: FittedModels, weights: NDArray[np.float64], readings: NDArray[Any], time: NDArray[Any] | None, level: float
) -> NDArray[np.float64]:
    """Return half the width of the prediction intervals of a weighted sum over the sites of each channel.

    Parameters
    ----------
    models
        With prediction intervals.
    weights
        ``(m,)``.
    readings, time
        ``(N, K, channels)`` in rank order, and ``(N,)`` if known.
    level
        Nominal coverage.

    Returns
    -------
    ndarray
        ``(N, channels)``.
    """
    intervals = models.need_intervals(level, "level")
    if not intervals.correlated:
        raise PlanError(
            "this plan is from a version that did not keep how errors at different sites are correlated; make it again"
        )
    missing, scaled = models.count_missing(readings), flat(models.scaled(readings, time))
    each = np.kron(np.eye(len(models.scaling.scale)), weights)
    return np.stack([intervals.functional(row, scaled, level, missing) for row in each], axis=1)


def functional_intervals(
    models: FittedModels, region: Any, readings: NDArray[Any], time: NDArray[Any] | None, covariates: Any, level: float
) -> pd.DataFrame:
    """Return estimates and prediction intervals of a weighted sum over the field; see `Plan.interval`.

    Parameters
    ----------
    models
        With prediction intervals.
    region
        See `functional_weights`.
    readings, time
        ``(N, K, channels)`` in rank order, and ``(N,)`` if known.
    covariates
        As `Plan.reconstruct` takes them.
    level
        Nominal coverage.
    """
    import pandas as pd

    weights, channels = functional_weights(region, models.domain), len(models.scaling.scale)
    half = functional_half_widths(models, weights, readings, time, level)
    estimate = np.asarray(models.reconstruct_array(readings, time, covariates), np.float64) @ weights
    columns = {"estimate": estimate, "lower": estimate - half, "upper": estimate + half}
    for name, values in columns.items():
        check_finite(values, name)
    rows = pd.RangeIndex(len(readings), name="sample") if time is None else pd.Index(time, name="time")
    if channels > 1:
        names = list(models.origin.variables) or [f"channel {i}" for i in range(channels)]
        rows = pd.MultiIndex.from_product([rows, names], names=[rows.name, "variable"])
    return pd.DataFrame({name: values.ravel() for name, values in columns.items()}, index=rows)
