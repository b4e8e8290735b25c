"""Goals: what a law's masks are to be good for, as loss parts of signals seen through them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.errors import SettingsError
from keyhole.data.samples import Samples
from keyhole.data.target import Target
from keyhole.masks import share
from keyhole.models.objectives import adversarial, prediction, reconstruction
from keyhole.models.reconstructors.base import unpack
from keyhole.models.reconstructors.mask_conditional import (
    ConditionalReconstructor,
    DenseConditional,
    ResNetConditional,
    make_decoder,
)
from keyhole.models.reconstructors.patch_discriminator import PatchDiscriminator
from keyhole.placement.settings import LearnedSettings

__all__ = ["AdversarialObjective", "MaskObjective", "PredictionObjective", "ReconstructionObjective", "make_objective"]

_ENOUGH_FOR_A_NETWORK = 5000
_CHUNK = 1024


class MaskObjective(nn.Module, ABC):
    """A network behind the masks, and what its outputs are scored by.

    ``unit`` is the loss of knowing nothing but the mean: what a budget's price is measured in.
    """

    unit: float

    @abstractmethod
    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Give the loss parts of signals ``x``, samples ``batch`` of the training part, seen through masks.

        ``seen`` is ``x`` with the noise that sensors add, or ``x`` itself.
        """

    @abstractmethod
    def through(self, x: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor | None:
        """Rebuild packed cells through one mask ``(1, *grid)``; None where the goal is another."""

    def reconstruct(self, signals: Samples, sites: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rebuild scaled signals from what the sites observe."""
        mask, generator = _mask_of(sites, signals), torch.Generator().manual_seed(0)
        parts = []
        with torch.inference_mode():
            for start in range(0, len(signals), _CHUNK):
                x = torch.from_numpy(signals.values[start : start + _CHUNK])
                parts.append(self.through(x, mask, generator).numpy())  # type: ignore[union-attr]
        return unpack(np.concatenate(parts), signals.channels, signals.grid)


class ReconstructionObjective(MaskObjective):
    """The whole signal, by squared error."""

    def __init__(self, decoder: ConditionalReconstructor, signals: Samples) -> None:
        super().__init__()
        self.decoder, self.unit, self.gaps = decoder, _variance(signals), signals.gaps is not None

    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Score what is rebuilt."""
        truth = self.decoder.pack(x, 2).flatten(1)
        return {"reconstruction": reconstruction(self.decoder(seen, masks), truth, gaps=self.gaps)}

    def through(self, x: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor:
        """Rebuild."""
        return self.decoder(x, mask)  # type: ignore[no-any-return]


class AdversarialObjective(MaskObjective):
    """A signal that passes for true, as pix2pix: a ResNet that also takes noise, against a patch discriminator."""

    def __init__(self, signals: Samples, *, l1_weight: float, mask_channel: bool) -> None:
        super().__init__()
        self.generator = ResNetConditional(signals, mask_channel=mask_channel, noise=True)
        self.discriminator = PatchDiscriminator(2 * signals.channels, signals.grid.shape)
        self.l1_weight = l1_weight
        self.unit = l1_weight * _variance(signals) ** 0.5
        inside = torch.from_numpy(signals.grid.inside)
        self.register_buffer("inside", inside.to(torch.float32), persistent=False)

    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Score both players."""
        reconstructed = self._on_grid(seen, masks, generator)
        observed = seen * share(masks, len(x)).unsqueeze(1)
        return adversarial(self.discriminator, x, reconstructed, observed, l1_weight=self.l1_weight)

    def through(self, x: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor:
        """Rebuild with noise of a fixed seed."""
        return self.generator.pack(self._on_grid(x, mask, generator), 2).flatten(1)

    def _on_grid(self, x: Tensor, masks: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.randn(len(x), 1, *x.shape[2:], generator=generator).to(x.device)
        return self.generator.on_grid(x, masks, noise) * self.get_buffer("inside")


class PredictionObjective(MaskObjective):
    """A target, class or number, by cross-entropy or squared error: the paper's `y != x`."""

    def __init__(self, signals: Samples, target: Target) -> None:
        super().__init__()
        self.is_class = target.is_class
        self.decoder = DenseConditional(signals, len(target.classes) or 1)
        spread = torch.from_numpy(signals.values.std(axis=0, keepdims=True))
        self.register_buffer("spread", torch.where(spread > 0, spread, torch.ones(())), persistent=False)
        self.register_buffer("target", _target_tensor(target), persistent=False)
        self.register_buffer("existing", _mask_of(signals.existing, signals), persistent=False)
        self.unit = _entropy(target) if target.is_class else 1.0

    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Score what is told, from cells that count alike whatever their units; existing sites are always observed."""
        masks = torch.maximum(masks, self.get_buffer("existing").to(masks.dtype))
        told = self.decoder(seen / self.get_buffer("spread"), masks)
        return {"prediction": prediction(told, self.get_buffer("target")[batch], self.is_class)}

    def through(self, x: Tensor, mask: Tensor, generator: torch.Generator) -> None:
        """Rebuild nothing."""
        return


def make_objective(signals: Samples, k: int, settings: LearnedSettings) -> MaskObjective:
    """Give the goal that the signals and the settings ask for."""
    if signals.target is not None:
        if settings.decoder not in ("auto", "dense") or settings.objective != "squared":
            raise SettingsError("a target is told by the dense decoder; leave decoder and objective as they are")
        return PredictionObjective(signals, signals.target)
    if settings.objective == "gan":
        if settings.decoder not in ("auto", "resnet"):
            raise SettingsError(f"decoder={settings.decoder!r}: the gan objective has the resnet's")
        return AdversarialObjective(signals, l1_weight=settings.l1_weight, mask_channel=settings.mask_channel)
    kind = settings.decoder
    if kind == "auto":
        kind = "dense" if signals.taught >= _ENOUGH_FOR_A_NETWORK else "gaussian"
    return ReconstructionObjective(make_decoder(kind, signals, k, mask_channel=settings.mask_channel), signals)


def _mask_of(sites: NDArray[np.int64], signals: Samples) -> Tensor:
    """Mask ``(1, *grid)`` that is open at the sites alone."""
    mask = torch.zeros(1, signals.grid.size)
    mask[0, torch.from_numpy(sites)] = 1
    return mask.reshape(1, *signals.grid.shape)


def _variance(signals: Samples) -> float:
    """Mean square of the cells about their mean."""
    return float(signals.valid_values().var(axis=0, dtype=np.float64).mean())


def _target_tensor(target: Target) -> Tensor:
    if target.is_class:
        return torch.from_numpy(target.values)
    spread = target.values.std() or 1.0
    return torch.from_numpy(((target.values - target.values.mean()) / spread).astype(np.float32))


def _entropy(target: Target) -> float:
    """Cross-entropy of telling classes by how common they are."""
    share_of = np.bincount(target.values, minlength=len(target.classes)) / len(target.values)
    known = share_of[share_of > 0]
    return float(-(known * np.log(known)).sum())
