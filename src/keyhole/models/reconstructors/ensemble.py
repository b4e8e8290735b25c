"""Ensembles: the mean of several networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.sites import Sites
from keyhole.models.reconstructors.base import Reconstructor
from keyhole.models.reconstructors.residual import Residual, arrays_under
from keyhole.models.settings import EnsembleSettings

__all__ = ["Ensemble"]


class Ensemble(Reconstructor):
    """Mean of `Residual` networks that differ in their initial weights and in the order of their samples.

    Their errors are partly independent, so that the mean is better than any of them on average. Prefer it to one
    network wherever there is time for it.

    Parameters
    ----------
    settings
        Fields of `EnsembleSettings` and settings of the networks, by name. Each member has an equal share of the time.

    References
    ----------
    Lakshminarayanan, Pritzel & Blundell (2017), *Simple and Scalable Predictive Uncertainty Estimation using Deep
    Ensembles*, NeurIPS.

    Examples
    --------
    >>> Ensemble(members=5, inner="dense", width=64).options.members
    5
    """

    name: ClassVar[str] = "ensemble"
    settings_class = EnsembleSettings
    options: EnsembleSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.members: list[Residual] = []
        self.first = Residual(**self.options.model_dump(exclude={"members", "label"}))

    def settings(self) -> dict[str, Any]:
        """Return the number of members, and the settings of the first one, as its training resolved them."""
        return {"members": len(self.members) or self.options.members, **(self.members or [self.first])[0].settings()}

    @classmethod
    def of(cls, members: Sequence[Residual]) -> Self:
        """Return the ensemble of networks that are already fitted."""
        made = cls(members=len(members), **members[0].settings())
        made.members = list(members)
        made.history = [row for member in members for row in member.history]
        return made

    def with_another(
        self, train: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run
    ) -> Ensemble:
        """Return an ensemble with one more network of the first one's kind; parameters as in `fit`."""
        return Ensemble.of([*self.members, self._fit_next(train, sites, validation=validation, run=run)])

    def fit(self, train: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run) -> Self:
        """Fit the members one after the other; see `Reconstructor.fit`."""
        self.members = []
        for count in range(self.options.members, 0, -1):
            self.members.append(self._fit_next(train, sites, validation=validation, run=run.share(1 / count)))
        self.history = [row for member in self.members for row in member.history]
        return self

    @property
    def can_refit(self) -> bool:
        """Whether its members can."""
        return all(member.can_refit for member in self.members)

    def refit(self, samples: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run) -> Self:
        """Fit each member to all samples; see `Model.refit`."""
        seeds = [run.seed, *(run.seed_of(f"member {position}") for position in range(1, len(self.members)))]
        return self.of(
            [
                member.refit(samples, sites, validation=validation, run=replace(run, seed=seed))
                for member, seed in zip(self.members, seeds, strict=True)
            ]
        )

    def _fit_next(
        self, train: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run
    ) -> Residual:
        """Fit one more member: the first as it would be alone, each other with a seed and checkpoint of its own."""
        position = len(self.members)
        if position == 0:
            return self.first.fit(train, sites, validation=validation, run=run)
        member = Residual(label=str(position), **self.members[0].settings()).upon(self.members[0].linear)
        seeded = replace(run, seed=run.seed_of(f"member {position}"))
        return member.fit(train, sites, validation=validation, run=seeded)

    def reconstruct(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Reconstruct by the mean of the members; see `Reconstructor.reconstruct`."""
        total = sum(member.reconstruct(readings, covariates) for member in self.members)
        return np.asarray(total / np.float32(len(self.members)), np.float32)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the states of the members."""
        states = [member.state() for member in self.members]
        arrays = {f"{place}.{name}": array for place, state in enumerate(states) for name, array in state[1].items()}
        return {"members": [state[0] for state in states]}, arrays

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], domain: Sites, sites: NDArray[np.int64]
    ) -> Self:
        """Recover the members; see `Reconstructor.restore`."""
        states = enumerate(settings["members"])
        return cls.of([Residual.restore(one, arrays_under(f"{i}.", arrays), domain, sites) for i, one in states])

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Return whether all members expect these sizes."""
        return all(member.takes(sites, channels, covariates) for member in self.members)
