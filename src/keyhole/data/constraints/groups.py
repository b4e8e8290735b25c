"""Groups of sites that are selected together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.data.alignment import align
from keyhole.data.constraints.feasible_set import PlacementRules
from keyhole.data.sites import Sites

__all__ = ["Grouping", "labels_of"]

_ALONE = (-1, "", None)


def labels_of(groups: Any, sites: Sites) -> NDArray[np.int64] | None:
    """Return the group of each site.

    Parameters
    ----------
    groups : str, sequence of str, array-like or None
        Names of the axes along which sites form a group, or labels of the shape of the data (-1, NaN and "" for a site
        of its own), or a DataArray or Series of labels, aligned by coordinate or site name.
    sites : Sites
        The sites.

    Returns
    -------
    ndarray of int, shape (m,), or None
        -1 for a site of its own; None without groups.

    Examples
    --------
    >>> labels_of("row", Sites.plain((2, 3))).tolist()
    [0, 1, 2, 0, 1, 2]
    """
    if groups is None:
        return None
    axes = [groups] if isinstance(groups, str) else groups
    if isinstance(axes, list | tuple) and axes and all(isinstance(one, str) and one in sites.dims for one in axes):
        return _along(axes, sites)
    if isinstance(groups, str):
        raise SettingsError(f"groups={groups!r}: the name of an axis is needed ({', '.join(sites.dims)}), or labels")
    try:
        labels = align(groups, sites, "groups")
    except SettingsError as error:
        raise SettingsError(f"{error}; or give the name of an axis ({', '.join(sites.dims)})") from error
    return _numbered(labels)


def _along(axes: list[str] | tuple[str, ...], sites: Sites) -> NDArray[np.int64]:
    """Number the positions along the other axes."""
    others = [place for dim, place in zip(sites.dims, sites.places, strict=True) if dim not in axes]
    shape = [length for dim, length in zip(sites.dims, sites.shape, strict=True) if dim not in axes]
    if not others:
        return np.zeros(len(sites), np.int64)
    return np.asarray(np.ravel_multi_index(others, shape), np.int64)


def _numbered(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Number the labels from 0; -1 for empty ones."""
    alone = np.array([label in _ALONE or label != label for label in labels.tolist()])
    numbers = np.full(len(labels), -1, np.int64)
    if not alone.all():
        numbers[~alone] = np.unique(labels[~alone].astype(str), return_inverse=True)[1]
    return numbers


@dataclass(frozen=True, eq=False)
class Grouping:
    """Partition of the sites into units: groups that are selected together, and single sites.

    Parameters
    ----------
    units : ndarray of int, shape (m,)
        Unit of each site, from 0.
    observable : ndarray of bool, shape (units,)
        Units that may be selected.
    """

    units: NDArray[np.int64]
    observable: NDArray[np.bool_]

    @classmethod
    def of(cls, labels: NDArray[np.int64], observable: NDArray[np.bool_]) -> Self:
        """Group the observable sites by label; a site that is not observable is a unit of its own."""
        label = np.where(observable, labels, -1)
        alone = label < 0
        label[alone] = label.max(initial=-1) + 1 + np.arange(alone.sum())
        _, first, units = np.unique(label, return_index=True, return_inverse=True)
        return cls(units.astype(np.int64), observable[first])

    def members(self, unit: int) -> NDArray[np.int64]:
        """Return the numbers of the sites of a unit."""
        return np.flatnonzero(self.units == unit)

    def rules(self, rules: PlacementRules) -> PlacementRules:
        """Convert rules for sites to rules for units: the distance is the smallest, the cost the sum, over sites."""
        count = len(self.observable)
        costs = None if rules.costs is None else np.bincount(self.units, rules.costs, count).astype(np.float64)
        existing = self.units[rules.existing]  # they may not be chosen, so each is by itself
        return replace(rules, size=count, owners=self.units, costs=costs, existing=existing)
