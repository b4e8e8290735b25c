"""Signals as selectors see them: what sites that are there already tell is taken off, and groups are sites."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.constraints import Grouping, ResolvedConstraints
from keyhole.data.grid import Grid
from keyhole.data.samples import Samples
from keyhole.models.reconstructors import Ridge

__all__ = ["SelectionView"]

_MOST_GROWTH = 4  # times the size of the data that groups may take as sites


@dataclass(frozen=True, eq=False)
class SelectionView:
    """The parts that sites are chosen on.

    Where sites are there already, what ridge makes of their readings is taken off: what is left is what new sites are
    for, and for a linear reconstruction it makes no difference. A selector that chooses for a target gets the samples
    as they are: what an existing site tells only together with a new one would be lost. Where sites come in groups, a
    group is one site, its members' readings its channels, turned to their principal axes where they are many.
    """

    train: Samples
    validation: Samples
    development: Samples
    grouping: Grouping | None = None

    @classmethod
    def of(
        cls, train: Samples, validation: Samples, development: Samples, *, supervised: bool = False
    ) -> SelectionView:
        """Give scaled parts as their constraints ask; ``supervised`` says that the selector chooses for a target."""
        constraints = train.constraints
        if constraints is None:
            return cls(train, validation, development)
        fixed = train.existing
        if len(fixed) and not (supervised and train.target is not None):
            known = Ridge().fit(train, fixed, validation=validation, run=Run())
            train, validation = _beyond(known, fixed, train), _beyond(known, fixed, validation)
            known = Ridge().fit(development, fixed, validation=validation, run=Run())
            development = _beyond(known, fixed, development)
        if constraints.grouping is None:
            return cls(train, validation, development)
        turn = _Turn.of(constraints.grouping, train)
        return cls(turn(train), turn(validation), turn(development), constraints.grouping)

    def sites(self, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the sites that were chosen, group by group where there are groups."""
        if self.grouping is None:
            return chosen
        return np.concatenate([self.grouping.members(int(unit)) for unit in chosen])


def _beyond(known: Ridge, fixed: NDArray[np.int64], part: Samples) -> Samples:
    """Take off what the readings of sites tell."""
    told = known.reconstruct(part.readings(fixed), part.covariates)
    return replace(part, values=np.where(part.grid.inside, part.values - told, 0).astype(np.float32), zero=None)


@dataclass(frozen=True, eq=False)
class _Turn:
    """Signals on a grid to signals whose sites are groups, ``axes`` being the principal ones of each."""

    grouping: Grouping
    channels: int
    axes: dict[int, NDArray[np.float32]]
    resolved: ResolvedConstraints

    @classmethod
    def of(cls, grouping: Grouping, train: Samples) -> _Turn:
        sizes = np.bincount(grouping.units) * train.channels
        channels = int(min(sizes.max(), max(_MOST_GROWTH * sizes.sum() // len(sizes), train.channels)))
        packed = train.valid_values()
        axes = {int(unit): _axes(packed[:, :, grouping.units == unit], channels) for unit in np.flatnonzero(sizes > 1)}
        return cls(grouping, channels, axes, _resolved(train, grouping))

    def __call__(self, part: Samples) -> Samples:
        """Turn signals, and what sensors add to them."""
        values, noise, noise_draw = self._turned(part.valid_values()), None, None
        if part.noise is not None and part.noise_draw is not None:
            root = 1.0 if part.root is None else part.root
            added = replace(part, values=np.asarray(part.noise_draw * root, np.float32)).valid_values()
            noise_draw = self._turned(added)
            noise = np.sqrt(np.square(noise_draw, dtype=np.float64).mean(axis=0))
        return replace(
            part, values=values, grid=self.resolved.grid, observable=self.resolved.observable,
            constraints=self.resolved, zero=None, weights=None, root=None, noise=noise, noise_draw=noise_draw,
            gaps=None,
            imputer=None,
        )  # fmt: skip

    def _turned(self, packed: NDArray[Any]) -> NDArray[np.float32]:
        """Put packed cells ``(N, channels, cells)`` on the groups, along their axes."""
        units = self.grouping.units
        turned = np.zeros((len(packed), self.channels, len(self.grouping.observable)), np.float32)
        alone = np.isin(units, list(self.axes), invert=True)
        turned[:, 0, units[alone]] = packed[:, 0, alone]
        for unit, axes in self.axes.items():
            turned[:, : axes.shape[1], unit] = packed[:, :, units == unit].reshape(len(packed), -1) @ axes
        return turned


def _axes(members: NDArray[Any], most: int) -> NDArray[np.float32]:
    """Principal axes ``(readings, at most most)`` of what the members of a group read."""
    flat = members.reshape(len(members), -1).astype(np.float64)
    if flat.shape[1] <= most:
        return np.eye(flat.shape[1], dtype=np.float32)
    return np.asarray(np.linalg.eigh(flat.T @ flat)[1][:, ::-1][:, :most], np.float32)


def _resolved(train: Samples, grouping: Grouping) -> ResolvedConstraints:
    """Constraints of sites as constraints of groups, on a grid of groups that knows where they are."""
    if train.constraints is None:
        raise ValueError("groups are constraints")
    count = len(grouping.observable)
    places = train.grid.places[train.grid.cells]
    spots = np.stack([np.bincount(grouping.units, column, count) for column in places.T], axis=1)
    grid = replace(Grid.plain((count,)), spots=spots / np.bincount(grouping.units)[:, np.newaxis])
    rules, observable = train.constraints.units()
    return ResolvedConstraints(grid, observable, observable, rules)
