"""A linear reconstructor, and a network for what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.grid import Grid
from keyhole.data.samples import Samples
from keyhole.models.reconstructors.augmentation import Augmentation
from keyhole.models.reconstructors.base import Reconstructor, flat
from keyhole.models.reconstructors.bounds import ValueBounds
from keyhole.models.reconstructors.dcgan import DCGAN
from keyhole.models.reconstructors.dense_conv import DenseConv
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.reconstructors.neural import Dense, NetworkReconstructor, RegressionData, ResNetReconstructor
from keyhole.models.reconstructors.optimal_interpolation import OptimalInterpolation
from keyhole.models.reconstructors.ridge import Ridge
from keyhole.models.reconstructors.training_batches import AugmentedBatches

__all__ = ["Residual"]

_LINEAR: dict[str, type[LinearReconstructor]] = {"ridge": Ridge, "optimal_interpolation": OptimalInterpolation}
_INNER: dict[str, type[NetworkReconstructor]] = {
    kind.name: kind for kind in (Dense, DenseConv, ResNetReconstructor, DCGAN)
}


class Residual(Reconstructor):
    """`x = linear(r) + network(r)`: the network's last layer starts at zero, so the sum starts as the linear part.

    On validation it is never worse than the linear part fitted on the same samples, since that is the first candidate
    for the best weights. Pictures are moved a little while it learns, where moved ones are as likely (`Augmentation`).
    Where many values stand at the least or the largest of all, no sum goes beyond it (`ValueBounds`).

    Parameters
    ----------
    inner
        The network: ``"dense"``, ``"dense_conv"`` or ``"dcgan"`` on the readings, or ``"resnet"`` on the observed grid.
    linear
        ``"ridge"`` or ``"optimal_interpolation"``.
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
    def n_frequencies(self) -> int:
        """How many waves of each reading the network takes."""
        return getattr(self.network.settings, "n_frequencies", 0)

    @property
    def improvement(self) -> float:
        """Validation error of the sum as a share of the linear part's own."""
        errors = [row["validation"] for row in self.history]
        return min(errors) / errors[0] if errors[0] > 0 else 1.0

    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Self:
        """Fit the linear part on ``train`` in closed form, then the network on what it leaves."""
        if not self.stands:
            self.linear.fit(train, sites, validation=validation, run=run)
        stage = f"refit {self.name} {self.inner} {self.label}".rstrip()
        moves = Augmentation.found(self.linear, train, validation, sites)
        lessons = None if moves is None else AugmentedBatches(moves, self.linear, train, sites, self.network.inputs)
        taught, judged = (self._estimated(part, sites) for part in (train, validation))
        self.network.bounds = ValueBounds.found(train)
        self.network.fit_targets(taught, judged, sites, run, stage=stage, lessons=lessons)
        return self

    def _estimated(self, part: Samples, sites: NDArray[np.int64]) -> RegressionData:
        """Give the signals with what the linear part makes of them."""
        return RegressionData.of(part, flat(self.linear.reconstruct_valid(part.readings(sites), part.covariates)))

    def reconstruct(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Let the network add to the linear part."""
        return self.network.reconstruct(readings, covariates, flat(self.linear.reconstruct_valid(readings, covariates)))

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

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Whether both parts do."""
        return all(part.takes(sites, channels, covariates) for part in (self.linear, self.network))
