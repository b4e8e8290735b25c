"""A linear reconstructor, and a network for what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.grid import Grid
from keyhole.reconstructors.base import Reconstructor, flat
from keyhole.reconstructors.dcgan import DCGAN
from keyhole.reconstructors.detail import Detail
from keyhole.reconstructors.kriging import Kriging
from keyhole.reconstructors.lessons import MovedLessons
from keyhole.reconstructors.limits import Limits
from keyhole.reconstructors.linear import LinearReconstructor
from keyhole.reconstructors.moves import Moves
from keyhole.reconstructors.neural import Dense, NetworkReconstructor, ResNetReconstructor, Taught
from keyhole.reconstructors.ridge import Ridge
from keyhole.run import Run
from keyhole.signals import Signals

__all__ = ["Residual"]

_LINEAR: dict[str, type[LinearReconstructor]] = {"ridge": Ridge, "kriging": Kriging}
_INNER: dict[str, type[NetworkReconstructor]] = {
    kind.name: kind for kind in (Dense, Detail, ResNetReconstructor, DCGAN)
}


class Residual(Reconstructor):
    """`x = linear(r) + network(r)`: the network's last layer starts at zero, so the sum starts as the linear part.

    On validation it is never worse than the linear part fitted on the same samples, since that is the first candidate
    for the best weights. Pictures are moved a little while it learns, where moved ones are as likely (`Moves`). Where
    many values stand at the least or the largest of all, no sum goes beyond it (`Limits`).

    Parameters
    ----------
    inner
        The network: ``"dense"``, ``"detail"`` or ``"dcgan"`` on the readings, or ``"resnet"`` on the observed grid.
    linear
        ``"ridge"`` or ``"kriging"``.
    label
        What sets its training's name apart from that of others in the same run.
    """

    name: ClassVar[str] = "residual"

    def __init__(self, inner: str = "dense", linear: str = "ridge", label: str = "", **settings: Any) -> None:
        self.inner, self.label, self.stands = inner, label, False
        self.linear, self.network = _LINEAR[linear](), _INNER[inner](**settings)

    def anew(self) -> Self:
        """Give one with the same kinds of parts and the same settings of its network."""
        return type(self)(self.inner, self.linear.name, **self.network.settings.model_dump())

    def upon(self, linear: LinearReconstructor) -> Self:
        """Take a linear part that is fitted already, to the same samples and sites that `fit` will be given."""
        self.linear, self.stands = linear, True
        return self

    @property
    def history(self) -> list[dict[str, float]]:
        """Figures of each validation of the network's training."""
        return self.network.history

    @property
    def waves(self) -> int:
        """How many waves of each reading the network takes."""
        return getattr(self.network.settings, "waves", 0)

    @property
    def improvement(self) -> float:
        """Validation error of the sum as a share of the linear part's own."""
        errors = [row["validation"] for row in self.history]
        return min(errors) / errors[0] if errors[0] > 0 else 1.0

    def fit(self, train: Signals, sites: NDArray[np.int64], *, validation: Signals, run: Run) -> Self:
        """Fit the linear part on ``train`` in closed form, then the network on what it leaves."""
        if not self.stands:
            self.linear.fit(train, sites, validation=validation, run=run)
        stage = f"refit {self.name} {self.inner} {self.label}".rstrip()
        moves = Moves.found(self.linear, train, validation, sites)
        lessons = None if moves is None else MovedLessons(moves, self.linear, train, sites, self.network.inputs)
        taught, judged = (self._estimated(part, sites) for part in (train, validation))
        self.network.limits = Limits.found(train)
        self.network.fit_targets(taught, judged, sites, run, stage=stage, lessons=lessons)
        return self

    def _estimated(self, part: Signals, sites: NDArray[np.int64]) -> Taught:
        """Give the signals with what the linear part makes of them."""
        return Taught.of(part, flat(self.linear.rebuild_packed(part.readings(sites), part.context)))

    def rebuild(self, readings: NDArray[Any], context: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Let the network add to the linear part."""
        return self.network.rebuild(readings, context, flat(self.linear.rebuild_packed(readings, context)))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give both parts' states."""
        linear, learned = self.linear.state(), self.network.state()
        arrays = {f"linear.{name}": array for name, array in linear[1].items()}
        arrays |= {f"network.{name}": array for name, array in learned[1].items()}
        names = {"inner": self.inner, "linear": self.linear.name}
        return {**names, "linear_state": linear[0], "network_state": learned[0]}, arrays

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64]
    ) -> Self:
        """Take both parts back."""
        made = cls(settings["inner"], settings["linear"])
        parts = {
            part: {n.removeprefix(f"{part}."): a for n, a in arrays.items() if n.startswith(f"{part}.")}
            for part in ("linear", "network")
        }
        made.linear = type(made.linear).restore(settings["linear_state"], parts["linear"], grid, sites)
        made.network = type(made.network).restore(settings["network_state"], parts["network"], grid, sites)
        return made

    def takes(self, sites: int, channels: int, context: int) -> bool:
        """Whether both parts do."""
        return all(part.takes(sites, channels, context) for part in (self.linear, self.network))
