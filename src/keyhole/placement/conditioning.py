"""Samples as selectors see them: residuals given the existing sites, and groups of sites as single sites."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.constraints import Grouping, ResolvedConstraints
from keyhole.data.graph_metric import GraphMetric
from keyhole.data.metric import Euclidean, NoMetric
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.sites import Sites
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
    >>> samples = kh.read(np.eye(4)[[0, 1, 2, 3, 0, 1]]).with_constraints({"groups": [0, 0, 1, 1]}).as_scaled()
    >>> view = SelectionView.of(samples, samples, samples)
    >>> view.train.values.shape, view.sites(np.array([1])).tolist()
    ((6, 2, 2), [2, 3])
    """

    train: ScaledSamples
    validation: ScaledSamples
    development: ScaledSamples
    grouping: Grouping | None = None

    @classmethod
    def of(
        cls, train: ScaledSamples, validation: ScaledSamples, development: ScaledSamples, *, supervised: bool = False
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
        """Return the numbers of the selected sites, or of all members of the selected groups."""
        if self.grouping is None:
            return chosen
        return np.concatenate([self.grouping.members(int(unit)) for unit in chosen])

    def numbers(self, sites: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number in this view of each site, or of each group that they are the members of."""
        if self.grouping is None:
            return sites
        return np.array(list(dict.fromkeys(self.grouping.units[sites].tolist())), np.int64)


def _residual(predictor: Ridge, existing: NDArray[np.int64], part: ScaledSamples) -> ScaledSamples:
    """Subtract the prediction from the readings of the existing sites."""
    prediction = predictor.reconstruct(part.readings(existing), part.covariates)
    return part.with_targets(part.targets - prediction)


@dataclass(frozen=True, eq=False)
class _GroupProjection:
    """Projection of samples to groups of sites, with the principal axes of each group."""

    grouping: Grouping
    channels: int
    axes: dict[int, NDArray[np.float32]]
    resolved: ResolvedConstraints

    @classmethod
    def of(cls, constraints: ResolvedConstraints, grouping: Grouping, train: ScaledSamples) -> _GroupProjection:
        sizes = np.bincount(grouping.units) * train.channels
        channels = int(min(sizes.max(), max(_MAX_GROWTH * sizes.sum() // len(sizes), train.channels)))
        packed = train.targets
        axes = {int(unit): _axes(packed[:, :, grouping.units == unit], channels) for unit in np.flatnonzero(sizes > 1)}
        return cls(grouping, channels, axes, _resolved(constraints, grouping, train.sites))

    def __call__(self, part: ScaledSamples) -> ScaledSamples:
        """Project samples and their measurement noise."""
        noise = None
        if part.noise is not None:
            root = 1.0 if part.root is None else part.root
            drawn = self._projected(part.draw_noise(np.arange(len(part.sites))) * root)
            noise = np.sqrt(np.square(drawn, dtype=np.float64).mean(axis=0))
        return replace(
            part, data=self._projected(part.targets), sites=self.resolved.sites, observable=self.resolved.observable,
            constraints=self.resolved, offset=None, weights=None, root=None, noise=noise, missing=None, imputer=None,
            site_variance=None,
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


def _resolved(constraints: ResolvedConstraints, grouping: Grouping, domain: Sites) -> ResolvedConstraints:
    """Constraints on sites as constraints on groups: at the mean position of their sites, or one node of a graph."""
    count = len(grouping.observable)
    rules, observable = constraints.units()
    sites = replace(Sites.plain((count,)), metric=NoMetric(count))
    if isinstance(domain.metric, Euclidean):
        points = domain.metric.points
        sums = np.stack([np.bincount(grouping.units, column, count) for column in points.T], axis=1)
        centres = sums / np.bincount(grouping.units)[:, np.newaxis]
        sites = replace(sites, metric=Euclidean(centres, extent=domain.metric.extent))
    elif isinstance(domain.metric, GraphMetric):
        sites = replace(sites, metric=domain.metric.contract(grouping.units))
    return ResolvedConstraints(sites, observable, observable, rules)
