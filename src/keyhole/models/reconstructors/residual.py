"""A linear reconstruction plus a network trained on its residuals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.sites import Sites
from keyhole.models.reconstructors.augmentation import Augmentation
from keyhole.models.reconstructors.base import Reconstructor, flat
from keyhole.models.reconstructors.bounds import ValueBounds
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.reconstructors.neural import NetworkReconstructor
from keyhole.models.reconstructors.registry import RECONSTRUCTORS
from keyhole.models.settings import ResidualSettings

__all__ = ["Residual", "arrays_under"]


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
    settings
        The other fields of `ResidualSettings`, such as ``linear``, and settings of the network, by name.

    Examples
    --------
    >>> import keyhole as kh
    >>> waves = np.sin(np.linspace(0, 6, 80)[:, None] + np.arange(12)).astype(np.float32)
    >>> samples, sites = kh.read(waves).as_scaled(), np.array([0, 3])
    >>> residual = Residual("dense", width=32, train={"steps": 20, "batch_size": 16})
    >>> residual.fit(samples, sites, validation=samples, run=Run()).improvement <= 1
    True
    """

    name: ClassVar[str] = "residual"
    settings_class = ResidualSettings
    options: ResidualSettings

    def __init__(self, inner: str = "dense", **settings: Any) -> None:
        super().__init__(inner=inner, **settings)
        self.linear: LinearReconstructor = RECONSTRUCTORS.make(self.options.linear, {})
        self.linear_is_fitted = False
        self.network: NetworkReconstructor = RECONSTRUCTORS.make(inner, self.options.model_extra or {})
        self.augmentation: Augmentation | None = None

    def settings(self) -> dict[str, Any]:
        """Return the names of both parts, and the settings of the network with the width that was chosen."""
        return {"inner": self.network.name, "linear": self.linear.name, **self.network.settings()}

    def upon(self, linear: LinearReconstructor) -> Self:
        """Use a linear reconstructor that is already fitted, to the samples and sites that ``fit`` will be given."""
        self.linear, self.linear_is_fitted = linear, True
        return self

    @property
    def n_frequencies(self) -> int:
        """Frequencies of the network's periodic embedding; 0 for none."""
        return getattr(self.network.options, "n_frequencies", 0)

    @property
    def improvement(self) -> float:
        """Best validation error relative to that of the linear part alone."""
        errors = [row["validation"] for row in self.history]
        return min(errors) / errors[0] if errors[0] > 0 else 1.0

    def fit(self, train: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run) -> Self:
        """Fit the linear part in closed form, then train the network on its residuals; see `Reconstructor.fit`."""
        if not self.linear_is_fitted:
            self.linear.fit(train, sites, validation=validation, run=run)
        self.augmentation = Augmentation.found(self.linear, train, validation, sites)
        return self._fit_network(train, sites, validation, run, "refit")

    def _fit_network(
        self, train: ScaledSamples, sites: NDArray[np.int64], validation: ScaledSamples | None, run: Run, stage: str
    ) -> Self:
        """Train the network on what the linear part leaves."""
        self.network.bounds = ValueBounds.found(train)
        self.network.fit_residual(
            self.linear, train, sites, validation=validation, run=run,
            stage=f"{stage} {self.name} {self.network.name} {self.options.label}".rstrip(),
            augmentation=self.augmentation,
        )  # fmt: skip
        self.history = self.network.history
        return self

    @property
    def can_refit(self) -> bool:
        """Whether its network can; the linear part is a closed form."""
        return self.network.can_refit

    def refit(self, samples: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run) -> Self:
        """Fit the linear part to all samples, and train the network as long as was best; see `Model.refit`."""
        again = type(self)(self.network.name, linear=self.linear.name, label=self.options.label)
        again.upon(self.linear.refit(samples, sites, validation=validation, run=run)).network = self.network.for_refit()
        again.augmentation = None if self.augmentation is None else self.augmentation.about(samples)
        return again._fit_network(samples, sites, None, run, "final")

    def reconstruct(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Reconstruct by the sum of both parts; see `Reconstructor.reconstruct`."""
        return self.network.reconstruct(readings, covariates, flat(self.linear.reconstruct(readings, covariates)))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the states of both parts."""
        settings: dict[str, Any] = {"inner": self.network.name, "linear": self.linear.name}
        arrays: dict[str, NDArray[Any]] = {}
        for part, fitted in (("linear", self.linear), ("network", self.network)):
            settings[f"{part}_state"], own = fitted.state()
            arrays |= {f"{part}.{name}": array for name, array in own.items()}
        return settings, arrays

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], domain: Sites, sites: NDArray[np.int64]
    ) -> Self:
        """Recover both parts; see `Reconstructor.restore`."""
        made = cls(settings["inner"], linear=settings["linear"])
        linear, network = (arrays_under(f"{part}.", arrays) for part in ("linear", "network"))
        made.linear = made.linear.restore(settings["linear_state"], linear, domain, sites)
        made.network = made.network.restore(settings["network_state"], network, domain, sites)
        return made

    def refusal(self, samples: Samples | ScaledSamples) -> str | None:
        """Return why its network cannot be fitted; see `Reconstructor.refusal`."""
        return self.network.refusal(samples)

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Return whether both parts expect these sizes."""
        return all(part.takes(sites, channels, covariates) for part in (self.linear, self.network))


def arrays_under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names start with a prefix, without it.

    Examples
    --------
    >>> list(arrays_under("linear.", {"linear.weights": np.zeros(2), "other": np.zeros(2)}))
    ['weights']
    """
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
