"""Objectives of the learned masks: losses of samples observed through masks."""

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

_MIN_SAMPLES_FOR_NETWORK = 5000
_CHUNK = 1024


class MaskObjective(nn.Module, ABC):
    """A network behind the masks, and its loss.

    Attributes
    ----------
    unit
        Loss of predicting the mean, the unit of the budget's price.
    """

    unit: float

    @abstractmethod
    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the loss terms by name.

        Parameters
        ----------
        x
            Samples ``(N, channels, *grid)``.
        seen
            ``x`` with measurement noise, or ``x`` itself.
        masks
            ``(M, *grid)``, each shared by N / M samples.
        batch
            Indices of the samples in the training set.
        generator
            Random numbers of the step.
        """

    @abstractmethod
    def through(self, x: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor | None:
        """Reconstruct the valid sites through one mask ``(1, *grid)``; None where there is no reconstruction."""

    def reconstruct(self, samples: Samples, sites: NDArray[np.int64]) -> NDArray[np.float32]:
        """Reconstruct scaled samples from the readings of the sites.

        Parameters
        ----------
        samples
            Scaled samples.
        sites
            Flat grid indices.

        Returns
        -------
        ndarray
            ``(N, channels, *grid)``, zero at invalid sites.
        """
        mask, generator = _mask_of(sites, samples), torch.Generator().manual_seed(0)
        parts = []
        with torch.inference_mode():
            for start in range(0, len(samples), _CHUNK):
                x = torch.from_numpy(samples.values[start : start + _CHUNK])
                parts.append(self.through(x, mask, generator).numpy())  # type: ignore[union-attr]
        return unpack(np.concatenate(parts), samples.channels, samples.grid)


class ReconstructionObjective(MaskObjective):
    """Squared error of the reconstructed field.

    Parameters
    ----------
    decoder
        Reconstructs the valid sites through any mask.
    samples
        Scaled training samples.
    """

    def __init__(self, decoder: ConditionalReconstructor, samples: Samples) -> None:
        super().__init__()
        self.decoder, self.unit, self.gaps = decoder, _variance(samples), samples.gaps is not None

    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the reconstruction loss."""
        truth = self.decoder.pack(x, 2).flatten(1)
        return {"reconstruction": reconstruction(self.decoder(seen, masks), truth, gaps=self.gaps)}

    def through(self, x: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor:
        """Reconstruct the valid sites."""
        return self.decoder(x, mask)  # type: ignore[no-any-return]


class AdversarialObjective(MaskObjective):
    """Adversarial and L1 loss of pix2pix: a ResNet with a noise channel, against a patch discriminator.

    Parameters
    ----------
    samples
        Scaled training samples, complete, on a grid of two dimensions.
    l1_weight
        Weight of the L1 loss beside the adversarial one.
    mask_channel
        Whether the generator also sees the mask.

    References
    ----------
    Isola, Zhu, Zhou & Efros (2017). Image-to-image translation with conditional adversarial networks. CVPR.
    """

    def __init__(self, samples: Samples, *, l1_weight: float, mask_channel: bool) -> None:
        super().__init__()
        self.generator = ResNetConditional(samples, mask_channel=mask_channel, noise=True)
        self.discriminator = PatchDiscriminator(2 * samples.channels, samples.grid.shape)
        self.l1_weight = l1_weight
        self.unit = l1_weight * _variance(samples) ** 0.5
        valid = torch.from_numpy(samples.grid.inside)
        self.register_buffer("valid", valid.to(torch.float32), persistent=False)

    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the losses of generator and discriminator."""
        reconstructed = self._on_grid(seen, masks, generator)
        observed = seen * share(masks, len(x)).unsqueeze(1)
        return adversarial(self.discriminator, x, reconstructed, observed, l1_weight=self.l1_weight)

    def through(self, x: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor:
        """Reconstruct with noise of a fixed seed."""
        return self.generator.pack(self._on_grid(x, mask, generator), 2).flatten(1)

    def _on_grid(self, x: Tensor, masks: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.randn(len(x), 1, *x.shape[2:], generator=generator).to(x.device)
        return self.generator.on_grid(x, masks, noise) * self.get_buffer("valid")


class PredictionObjective(MaskObjective):
    """Cross-entropy of a class or squared error of a number, predicted through masks.

    Parameters
    ----------
    samples
        Scaled training samples; the existing sites are always observed.
    target
        Their target.
    """

    def __init__(self, samples: Samples, target: Target) -> None:
        super().__init__()
        self.is_class = target.is_class
        self.decoder = DenseConditional(samples, len(target.classes) or 1)
        spread = torch.from_numpy(samples.values.std(axis=0, keepdims=True))
        self.register_buffer("spread", torch.where(spread > 0, spread, torch.ones(())), persistent=False)
        self.register_buffer("target", _target_tensor(target), persistent=False)
        self.register_buffer("existing", _mask_of(samples.existing, samples), persistent=False)
        self.unit = _entropy(target) if target.is_class else 1.0

    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the prediction loss from standardised values; existing sites are always observed."""
        masks = torch.maximum(masks, self.get_buffer("existing").to(masks.dtype))
        predicted = self.decoder(seen / self.get_buffer("spread"), masks)
        return {"prediction": prediction(predicted, self.get_buffer("target")[batch], self.is_class)}

    def through(self, x: Tensor, mask: Tensor, generator: torch.Generator) -> None:
        """Return None: there is no reconstruction."""
        return


def make_objective(samples: Samples, k: int, settings: LearnedSettings) -> MaskObjective:
    """Create the objective for the samples and settings.

    Parameters
    ----------
    samples
        Scaled samples, with a target or without.
    k
        Number of sites.
    settings
        Settings of the learned selector; ``decoder="auto"`` is a dense network from 5000 samples on, else the Gaussian.

    Returns
    -------
    MaskObjective
        With an untrained network.

    Raises
    ------
    SettingsError
        If decoder and objective do not go together.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32))
    >>> type(make_objective(samples, 2, LearnedSettings())).__name__
    'ReconstructionObjective'
    """
    if samples.target is not None:
        if settings.decoder not in ("auto", "dense") or settings.objective != "squared":
            raise SettingsError(
                "a target is predicted by the dense decoder; leave decoder and objective at their defaults"
            )
        return PredictionObjective(samples, samples.target)
    if settings.objective == "gan":
        if settings.decoder not in ("auto", "resnet"):
            raise SettingsError(f"decoder={settings.decoder!r}: the gan objective requires the resnet decoder")
        return AdversarialObjective(samples, l1_weight=settings.l1_weight, mask_channel=settings.mask_channel)
    kind = settings.decoder
    if kind == "auto":
        kind = "dense" if samples.taught >= _MIN_SAMPLES_FOR_NETWORK else "gaussian"
    return ReconstructionObjective(make_decoder(kind, samples, k, mask_channel=settings.mask_channel), samples)


def _mask_of(sites: NDArray[np.int64], samples: Samples) -> Tensor:
    """Mask ``(1, *grid)`` that is open at the sites only."""
    mask = torch.zeros(1, samples.grid.size)
    mask[0, torch.from_numpy(sites)] = 1
    return mask.reshape(1, *samples.grid.shape)


def _variance(samples: Samples) -> float:
    """Mean variance of the valid sites."""
    return float(samples.valid_values().var(axis=0, dtype=np.float64).mean())


def _target_tensor(target: Target) -> Tensor:
    if target.is_class:
        return torch.from_numpy(target.values)
    spread = target.values.std() or 1.0
    return torch.from_numpy(((target.values - target.values.mean()) / spread).astype(np.float32))


def _entropy(target: Target) -> float:
    """Entropy of the class frequencies."""
    share_of = np.bincount(target.values, minlength=len(target.classes)) / len(target.values)
    known = share_of[share_of > 0]
    return float(-(known * np.log(known)).sum())
