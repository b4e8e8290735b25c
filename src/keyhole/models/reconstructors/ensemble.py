"""Several networks, and the mean of what they rebuild."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.grid import Grid
from keyhole.data.samples import Samples
from keyhole.models.reconstructors.base import Reconstructor
from keyhole.models.reconstructors.residual import Residual

__all__ = ["Ensemble"]


class Ensemble(Reconstructor):
    """Mean of networks that differ in their first weights and in the order of their samples.

    What they get wrong by chance is not the same, so the mean is right more often than any of them.

    Parameters
    ----------
    members
        How many; each has an equal share of the time.
    settings
        Those of `Residual`.
    """

    name: ClassVar[str] = "ensemble"

    def __init__(self, members: int = 3, **settings: Any) -> None:
        self.count, self.settings = members, settings
        self.members: list[Residual] = []

    @classmethod
    def of(cls, members: Sequence[Residual]) -> Self:
        """Join networks that are fitted already."""
        made = cls(len(members))
        made.members = list(members)
        return made

    def anew(self) -> Self:
        """Give as many networks of the first one's kind and settings."""
        if not self.members:
            return type(self)(self.count, **self.settings)
        first = self.members[0]
        parts: dict[str, Any] = {"inner": first.inner, "linear": first.linear.name}
        return type(self)(len(self.members), **parts, **first.network.settings.model_dump())

    def grown(self, parts: Mapping[str, Any], run: Run) -> Ensemble:
        """Give an ensemble with one more member of the first one's kind; ``parts`` are what `fit` takes."""
        first, place = self.members[0], len(self.members)
        made = Residual(first.inner, label=str(place), **first.network.settings.model_dump()).upon(first.linear)
        return Ensemble.of([*self.members, made.fit(**parts, run=_run_of(place, run))])

    @property
    def history(self) -> list[dict[str, float]]:
        """Figures of each validation of all trainings, one after the other."""
        return [row for member in self.members for row in member.history]

    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Self:
        """Fit one after the other."""
        parts: Any = {"train": train, "sites": sites, "validation": validation}
        self.members = [
            Residual(label=str(place or ""), **self.settings).fit(**parts, run=_run_of(place, run, self.count))
            for place in range(self.count)
        ]
        return self

    def reconstruct(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Give the mean."""
        total = sum(member.reconstruct(readings, covariates) for member in self.members)
        return np.asarray(total / np.float32(len(self.members)), np.float32)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the members' states."""
        states = [member.state() for member in self.members]
        arrays = {f"{place}.{name}": array for place, state in enumerate(states) for name, array in state[1].items()}
        return {"members": [state[0] for state in states]}, arrays

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64]
    ) -> Self:
        """Take the members back."""
        members = []
        for place, own in enumerate(settings["members"]):
            prefix = f"{place}."
            found = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            members.append(Residual.restore(own, found, grid, sites))
        return cls.of(members)

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Whether there are members, and all of them do."""
        return bool(self.members) and all(member.takes(sites, channels, covariates) for member in self.members)


def _run_of(place: int, run: Run, count: int | None = None) -> Run:
    """Give the run of one network of several: the first as it would be alone, each other with a seed of its own.

    Of ``count``, if told, each has an equal share of the time.
    """
    run = run if count is None else run.share(1 / (count - place))
    return replace(run, seed=run.seed_of(f"member {place}")) if place else run
