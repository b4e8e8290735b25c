"""Samples as selectors see them: residuals given the existing sites, and groups of sites as single sites."""

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

_MAX_GROWTH = 4  # largest growth of the data when groups become sites


@dataclass(frozen=True, eq=False)
class SelectionView:
    """Training, validation and development samples in the form that selectors work on.

    Where sites exist already, their linear prediction (ridge) is subtracted, so that selectors see the residual that
    new sites are to explain; for linear reconstruction this is exact conditioning. Selectors for a target get the
    samples unchanged, as an existing site may be informative only together with a new one. Where sites come in groups,
    each group is one site, whose channels are its members' readings, projected on their principal axes where there are
    many.

    Parameters
    ----------
    train, validation, development
        Scaled samples; development is training and validation together.
    grouping
        Groups of sites, if any.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.eye(4)[[0, 1, 2, 3, 0, 1]]).with_constraints({"groups": [0, 0, 1, 1]})
    >>> view = SelectionView.of(samples, samples, samples)
    >>> view.train.values.shape, view.sites(np.array([1])).tolist()
    ((6, 2, 2), [2, 3])
    """

    train: Samples
    validation: Samples
    development: Samples
    grouping: Grouping | None = None

    @classmethod
    def of(
        cls, train: Samples, validation: Samples, development: Samples, *, supervised: bool = False
    ) -> SelectionView:
        """Build the view of scaled samples by their constraints.

        Parameters
        ----------
        train, validation, development
            Scaled samples.
        supervised
            Whether the selector selects for the target.

        Returns
        -------
        SelectionView
            The samples to select on.
        """
        constraints, existing, parts = train.constraints, train.existing, [train, validation, development]
        if constraints is None:
            return cls(train, validation, development)
        if len(existing) and not (supervised and train.target is not None):
            on_train, on_all = (
                Ridge().fit(part, existing, validation=validation, run=Run()) for part in (train, development)
            )
            predictors = (on_train, on_train, on_all)
            parts = [_residual(ridge, existing, part) for ridge, part in zip(predictors, parts, strict=True)]
        if constraints.grouping is not None:
            project = _GroupProjection.of(constraints, constraints.grouping, parts[0])
            parts = [project(part) for part in parts]
        return cls(parts[0], parts[1], parts[2], constraints.grouping)

    def sites(self, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the flat grid indices of the selected sites, or of all members of the selected groups."""
        if self.grouping is None:
            return chosen
        return np.concatenate([self.grouping.members(int(unit)) for unit in chosen])


def _residual(predictor: Ridge, existing: NDArray[np.int64], part: Samples) -> Samples:
    """Subtract the prediction from the readings of the existing sites."""
    prediction = predictor.reconstruct(part.readings(existing), part.covariates)
    return replace(part, values=np.where(part.grid.inside, part.values - prediction, 0).astype(np.float32), zero=None)


@dataclass(frozen=True, eq=False)
class _GroupProjection:
    """Projection of samples to a grid of groups, with the principal axes of each group."""

    grouping: Grouping
    channels: int
    axes: dict[int, NDArray[np.float32]]
    resolved: ResolvedConstraints

    @classmethod
    def of(cls, constraints: ResolvedConstraints, grouping: Grouping, train: Samples) -> _GroupProjection:
        sizes = np.bincount(grouping.units) * train.channels
        channels = int(min(sizes.max(), max(_MAX_GROWTH * sizes.sum() // len(sizes), train.channels)))
        packed = train.valid_values()
        axes = {int(unit): _axes(packed[:, :, grouping.units == unit], channels) for unit in np.flatnonzero(sizes > 1)}
        return cls(grouping, channels, axes, _resolved(constraints, grouping, train.grid))

    def __call__(self, part: Samples) -> Samples:
        """Project samples and their measurement noise."""
        values, noise, noise_draw = self._projected(part.valid_values()), None, None
        if part.noise is not None and part.noise_draw is not None:
            root = 1.0 if part.root is None else part.root
            added = replace(part, values=np.asarray(part.noise_draw * root, np.float32)).valid_values()
            noise_draw = self._projected(added)
            noise = np.sqrt(np.square(noise_draw, dtype=np.float64).mean(axis=0))
        return replace(
            part, values=values, grid=self.resolved.grid, observable=self.resolved.observable,
            constraints=self.resolved, zero=None, weights=None, root=None, noise=noise, noise_draw=noise_draw,
            gaps=None, imputer=None,
        )  # fmt: skip

    def _projected(self, packed: NDArray[Any]) -> NDArray[np.float32]:
        """Project values ``(N, channels, sites)`` on the principal axes of the groups."""
        units = self.grouping.units
        projected = np.zeros((len(packed), self.channels, len(self.grouping.observable)), np.float32)
        alone = np.isin(units, list(self.axes), invert=True)
        projected[:, 0, units[alone]] = packed[:, 0, alone]
        for unit, axes in self.axes.items():
            projected[:, : axes.shape[1], unit] = packed[:, :, units == unit].reshape(len(packed), -1) @ axes
        return projected


def _axes(members: NDArray[Any], most: int) -> NDArray[np.float32]:
    """Principal axes ``(readings, at most most)`` of the readings of a group's members."""
    flat = members.reshape(len(members), -1).astype(np.float64)
    if flat.shape[1] <= most:
        return np.eye(flat.shape[1], dtype=np.float32)
    return np.asarray(np.linalg.eigh(flat.T @ flat)[1][:, ::-1][:, :most], np.float32)


def _resolved(constraints: ResolvedConstraints, grouping: Grouping, grid: Grid) -> ResolvedConstraints:
    """Constraints on sites as constraints on groups, on a grid with the groups' mean coordinates."""
    count = len(grouping.observable)
    coordinates = grid.places[grid.cells]
    centres = np.stack([np.bincount(grouping.units, column, count) for column in coordinates.T], axis=1)
    of_groups = replace(Grid.plain((count,)), spots=centres / np.bincount(grouping.units)[:, np.newaxis])
    rules, observable = constraints.units()
    return ResolvedConstraints(of_groups, observable, observable, rules)
