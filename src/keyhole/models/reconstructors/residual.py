"""A linear reconstruction plus a network trained on its residuals."""

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
    """Residual learning `x = linear(r) + network(r)`.

    The network's last layer is initialised to zero, so training starts at the linear reconstruction, which is also the
    first candidate for the best weights: on validation the sum is never worse than the linear part fitted on the same
    samples. Images are augmented where that keeps them plausible (`Augmentation`), and predictions clamped where many
    values attain a bound (`ValueBounds`).

    Parameters
    ----------
    inner
        The network: ``"dense"``, ``"dense_conv"`` or ``"dcgan"`` on the readings, or ``"resnet"`` on the observed grid.
    linear
        ``"ridge"`` or ``"optimal_interpolation"``.
    label
        Distinguishes the checkpoints of several trainings in the same run.
    settings
        Those of the network, by name.
    """

    name: ClassVar[str] = "residual"

    def __init__(self, inner: str = "dense", linear: str = "ridge", label: str = "", **settings: Any) -> None:
        self.inner, self.label, self.linear_is_fitted = inner, label, False
        self.linear, self.network = _LINEAR[linear](), _INNER[inner](**settings)

    def anew(self) -> Self:
        """Return an unfitted copy with the same parts and network settings."""
        return type(self)(self.inner, self.linear.name, **self.network.settings.model_dump())

    def upon(self, linear: LinearReconstructor) -> Self:
        """Use a linear reconstructor that is already fitted, to the samples and sites that ``fit`` will be given."""
        self.linear, self.linear_is_fitted = linear, True
        return self

    @property
    def history(self) -> list[dict[str, float]]:
        """Losses and validation errors of the network's training."""
        return self.network.history

    @property
    def n_frequencies(self) -> int:
        """Frequencies of the network's periodic embedding; 0 for none."""
        return getattr(self.network.settings, "n_frequencies", 0)

    @property
    def improvement(self) -> float:
        """Best validation error relative to that of the linear part alone."""
        errors = [row["validation"] for row in self.history]
        return min(errors) / errors[0] if errors[0] > 0 else 1.0

    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Self:
        """Fit the linear part in closed form, then train the network on its residuals; see `Reconstructor.fit`."""
        if not self.linear_is_fitted:
            self.linear.fit(train, sites, validation=validation, run=run)
        stage = f"refit {self.name} {self.inner} {self.label}".rstrip()
        augmentation = Augmentation.found(self.linear, train, validation, sites)
        batches = (
            None
            if augmentation is None
            else AugmentedBatches(augmentation, self.linear, train, sites, self.network.inputs)
        )
        training, scored = (self._estimated(part, sites) for part in (train, validation))
        self.network.bounds = ValueBounds.found(train)
        self.network.fit_targets(training, scored, sites, run, stage=stage, batches=batches)
        return self

    def _estimated(self, part: Samples, sites: NDArray[np.int64]) -> RegressionData:
        """Pair samples with their linear reconstructions."""
        return RegressionData.of(part, flat(self.linear.reconstruct_valid(part.readings(sites), part.covariates)))

    def reconstruct(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Reconstruct by the sum of both parts; see `Reconstructor.reconstruct`."""
        return self.network.reconstruct(readings, covariates, flat(self.linear.reconstruct_valid(readings, covariates)))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the states of both parts."""
        linear, network = self.linear.state(), self.network.state()
        arrays = {f"linear.{name}": array for name, array in linear[1].items()}
        arrays |= {f"network.{name}": array for name, array in network[1].items()}
        names = {"inner": self.inner, "linear": self.linear.name}
        return {**names, "linear_state": linear[0], "network_state": network[0]}, arrays

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64]
    ) -> Self:
        """Recover both parts; see `Reconstructor.restore`."""
        residual = cls(settings["inner"], settings["linear"])
        parts = {
            part: {n.removeprefix(f"{part}."): a for n, a in arrays.items() if n.startswith(f"{part}.")}
            for part in ("linear", "network")
        }
        residual.linear = type(residual.linear).restore(settings["linear_state"], parts["linear"], grid, sites)
        residual.network = type(residual.network).restore(settings["network_state"], parts["network"], grid, sites)
        return residual

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Return whether both parts expect these sizes."""
        return all(part.takes(sites, channels, covariates) for part in (self.linear, self.network))
