"""Ridge, and a network for what ridge leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.grid import Grid
from keyhole.reconstructors.base import Reconstructor, flat
from keyhole.reconstructors.dcgan import DCGAN
from keyhole.reconstructors.neural import Dense, NetworkReconstructor, ResNetReconstructor, Taught
from keyhole.reconstructors.ridge import Ridge
from keyhole.run import Run
from keyhole.signals import Signals

__all__ = ["Residual"]

_INNER: dict[str, type[NetworkReconstructor]] = {"dense": Dense, "resnet": ResNetReconstructor, "dcgan": DCGAN}


class Residual(Reconstructor):
    """`x = ridge(r) + network(r)`: the network's last layer starts at zero, so the sum starts as ridge.

    On validation it is never worse than ridge fitted on the same samples, since that is the first candidate for the
    best weights.

    Parameters
    ----------
    inner
        The network: ``"dense"`` or ``"dcgan"`` on the readings, or ``"resnet"`` on the observed grid.
    """

    name: ClassVar[str] = "residual"

    def __init__(self, inner: str = "dense", **settings: Any) -> None:
        self.inner = inner
        self.ridge, self.network = Ridge(), _INNER[inner](**settings)

    @property
    def history(self) -> list[dict[str, float]]:
        """Figures of each validation of the network's training."""
        return self.network.history

    @property
    def improvement(self) -> float:
        """Validation error of the sum as a share of ridge's own."""
        errors = [row["validation"] for row in self.history]
        return min(errors) / errors[0] if errors[0] > 0 else 1.0

    def fit(self, train: Signals, sites: NDArray[np.int64], *, validation: Signals, run: Run) -> Self:
        """Fit ridge on ``train`` in closed form, then the network on what it leaves."""
        self.ridge.fit(train, sites, validation=validation, run=run)
        stage = f"refit {self.name} {self.inner}"
        self.network.fit_targets(self._left(train, sites), self._left(validation, sites), sites, run, stage=stage)
        return self

    def _left(self, part: Signals, sites: NDArray[np.int64]) -> Taught:
        """Give the signals with their packed cells less what ridge gives."""
        return part, flat(part.packed() - self.ridge.rebuild_packed(part.readings(sites)))

    def rebuild(self, readings: NDArray[Any]) -> NDArray[np.float32]:
        """Add both parts."""
        return self.ridge.rebuild(readings) + self.network.rebuild(readings)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give both parts' states."""
        linear, learned = self.ridge.state(), self.network.state()
        arrays = {f"ridge.{name}": array for name, array in linear[1].items()}
        arrays |= {f"network.{name}": array for name, array in learned[1].items()}
        return {"inner": self.inner, "ridge": linear[0], "network": learned[0]}, arrays

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64]
    ) -> Self:
        """Take both parts back."""
        made = cls(settings["inner"])
        parts = {
            part: {n.removeprefix(f"{part}."): a for n, a in arrays.items() if n.startswith(f"{part}.")}
            for part in ("ridge", "network")
        }
        made.ridge = Ridge.restore(settings["ridge"], parts["ridge"], grid, sites)
        made.network = _INNER[made.inner].restore(settings["network"], parts["network"], grid, sites)
        return made
