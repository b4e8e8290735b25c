"""Groups: sites that are chosen together, by label."""

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
    """Give the number of the group that each cell is in, ``(size,)``, -1 for one that is alone; None for no groups.

    Parameters
    ----------
    groups
        Names of the axes along which sites come together, or an array of labels of the grid's shape (-1, NaN and ""
        stay alone), or a DataArray or Series of them, which is aligned by coordinate or site name.
    grid
        The grid.

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
    """Number the places along the other axes."""
    together = {grid.dims.index(axis) for axis in axes}
    apart = [length if axis not in together else 1 for axis, length in enumerate(grid.shape)]
    numbers = np.arange(int(np.prod(apart))).reshape(apart)
    return np.broadcast_to(numbers, grid.shape).ravel().astype(np.int64)


def _numbered(labels: NDArray[Any]) -> NDArray[np.int64]:
    alone = np.array([label in _ALONE or label != label for label in labels.tolist()])
    numbers = np.full(len(labels), -1, np.int64)
    if not alone.all():
        numbers[~alone] = np.unique(labels[~alone].astype(str), return_inverse=True)[1]
    return numbers


@dataclass(frozen=True, eq=False)
class Grouping:
    """Cells of a grid as units: groups that are chosen together, and every other cell by itself.

    Parameters
    ----------
    units
        ``(cells,)``, number of the unit that each inside cell is in, from 0 on.
    observable
        ``(units,)``, which units may be chosen.
    grid
        The grid.
    """

    units: NDArray[np.int64]
    observable: NDArray[np.bool_]
    grid: Grid

    @classmethod
    def of(cls, labels: NDArray[np.int64], grid: Grid, observable: NDArray[np.bool_]) -> Self:
        """Group the observable cells by label; a cell that may not be observed is in no group."""
        may = observable.ravel()[grid.cells]
        label = np.where(may, labels[grid.cells], -1)
        alone = label < 0
        label[alone] = label.max(initial=-1) + 1 + np.arange(alone.sum())
        _, first, units = np.unique(label, return_index=True, return_inverse=True)
        return cls(units.astype(np.int64), may[first], grid)

    def units_of(self, sites: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of the unit that each of some cells, by flat index, is in."""
        return np.asarray(self.units[np.searchsorted(self.grid.cells, sites)])

    def members(self, unit: int) -> NDArray[np.int64]:
        """Flat index of the cells of one unit."""
        return np.asarray(self.grid.cells[self.units == unit])

    def rules(self, rules: PlacementRules) -> PlacementRules:
        """Give the rules of sites as rules of units: near if any two of their cells are, as costly as all of them."""
        cells, count = self.grid.cells, len(self.observable)
        costs = None if rules.costs is None else np.bincount(self.units, rules.costs[cells], count).astype(np.float64)
        held = self.units[np.searchsorted(cells, rules.held)]  # they may not be chosen, so each is by itself
        points = None if rules.points is None else rules.points[cells]
        return replace(rules, size=count, points=points, owners=self.units, costs=costs, held=held)
