"""Groups of sites that are selected together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.data.alignment import on_grid
from keyhole.data.constraints.feasible_set import PlacementRules
from keyhole.data.grid import Grid

__all__ = ["Grouping", "labels_of"]

_ALONE = (-1, "", None)


def labels_of(groups: Any, grid: Grid) -> NDArray[np.int64] | None:
    """Return the group of each site.

    Parameters
    ----------
    groups : str, sequence of str, array-like or None
        Names of the axes along which sites form a group, or labels of the grid's shape (-1, NaN and "" for a site of
        its own), or a DataArray or Series of labels, aligned by coordinate or site name.
    grid : Grid
        The grid.

    Returns
    -------
    ndarray of int, shape (size,), or None
        -1 for a site of its own; None without groups.

    Examples
    --------
    >>> labels_of("row", Grid.plain((2, 3))).tolist()
    [0, 1, 2, 0, 1, 2]
    """
    if groups is None:
        return None
    axes = [groups] if isinstance(groups, str) else groups
    if isinstance(axes, list | tuple) and axes and all(isinstance(one, str) and one in grid.dims for one in axes):
        return _along(axes, grid)
    labels = np.asarray(on_grid(groups, grid, "groups"))
    if labels.shape != grid.shape:
        raise SettingsError(
            f"groups: the name of an axis ({', '.join(grid.dims)}), or labels of shape {grid.shape}, are needed"
        )
    return _numbered(labels.ravel())


def _along(axes: list[str] | tuple[str, ...], grid: Grid) -> NDArray[np.int64]:
    """Number the positions along the other axes."""
    together = {grid.dims.index(axis) for axis in axes}
    apart = [length if axis not in together else 1 for axis, length in enumerate(grid.shape)]
    numbers = np.arange(int(np.prod(apart))).reshape(apart)
    return np.broadcast_to(numbers, grid.shape).ravel().astype(np.int64)


def _numbered(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Number the labels from 0; -1 for empty ones."""
    alone = np.array([label in _ALONE or label != label for label in labels.tolist()])
    numbers = np.full(len(labels), -1, np.int64)
    if not alone.all():
        numbers[~alone] = np.unique(labels[~alone].astype(str), return_inverse=True)[1]
    return numbers


@dataclass(frozen=True, eq=False)
class Grouping:
    """Partition of the valid sites into units: groups that are selected together, and single sites.

    Parameters
    ----------
    units : ndarray of int, shape (valid sites,)
        Unit of each valid site, from 0.
    observable : ndarray of bool, shape (units,)
        Units that may be selected.
    grid : Grid
        The grid.
    """

    units: NDArray[np.int64]
    observable: NDArray[np.bool_]
    grid: Grid

    @classmethod
    def of(cls, labels: NDArray[np.int64], grid: Grid, observable: NDArray[np.bool_]) -> Self:
        """Group the observable sites by label.

        Parameters
        ----------
        labels : ndarray of int, shape (size,)
            Group of each site; -1 for a site of its own, see `labels_of`.
        grid : Grid
            The grid.
        observable : ndarray of bool
            Sites that may be selected; every other site is a unit of its own.

        Returns
        -------
        Grouping

        Examples
        --------
        >>> grid = Grid.plain((2, 2))
        >>> Grouping.of(np.array([0, 0, -1, -1]), grid, np.ones(4, bool)).units
        array([0, 0, 1, 2])
        """
        may = observable.ravel()[grid.cells]
        label = np.where(may, labels[grid.cells], -1)
        alone = label < 0
        label[alone] = label.max(initial=-1) + 1 + np.arange(alone.sum())
        _, first, units = np.unique(label, return_index=True, return_inverse=True)
        return cls(units.astype(np.int64), may[first], grid)

    def units_of(self, sites: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the unit of each site, given flat indices."""
        return np.asarray(self.units[np.searchsorted(self.grid.cells, sites)])

    def members(self, unit: int) -> NDArray[np.int64]:
        """Return the flat indices of the sites of a unit."""
        return np.asarray(self.grid.cells[self.units == unit])

    def rules(self, rules: PlacementRules) -> PlacementRules:
        """Convert rules for sites to rules for units.

        Parameters
        ----------
        rules : PlacementRules
            For the sites of the grid.

        Returns
        -------
        PlacementRules
            The distance of two units is the smallest between their sites, the cost of a unit the sum of its sites.
        """
        cells, count = self.grid.cells, len(self.observable)
        costs = None if rules.costs is None else np.bincount(self.units, rules.costs[cells], count).astype(np.float64)
        existing = self.units[np.searchsorted(cells, rules.existing)]  # they may not be chosen, so each is by itself
        points = None if rules.points is None else rules.points[cells]
        return replace(rules, size=count, points=points, owners=self.units, costs=costs, existing=existing)
