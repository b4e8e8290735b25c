"""Objectives of the learned masks: losses of samples observed through masks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.errors import SettingsError
from keyhole.core.processes import Processes
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.target import Target
from keyhole.masks import share
from keyhole.models.objectives import adversarial, known_share, prediction, reconstruction
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
    processes
        The processes of distributed training, each with a part of the batch of equal size.
    reconstructs
        Whether there is a decoder that reconstructs the field (`reconstruct`) once training is over.
    """

    unit: float
    reconstructs: bool = True
    processes: Processes = Processes()

    @abstractmethod
    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the loss terms by name.

        Parameters
        ----------
        x
            Targets ``(N, channels, sites)``.
        seen
            ``x`` with measurement noise, or ``x`` itself.
        masks
            ``(M, sites)``, each shared by N / M samples.
        batch
            Indices of the samples in the training set.
        generator
            Random numbers of the step.
        """

    @abstractmethod
    def through(self, x: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor | None:
        """Reconstruct all sites through one mask ``(1, sites)``; None where there is no reconstruction."""

    def reconstruct(self, samples: ScaledSamples, sites: NDArray[np.int64]) -> NDArray[np.float32]:
        """Reconstruct scaled samples from the readings of the sites.

        Parameters
        ----------
        samples
            Scaled samples.
        sites
            Numbers of the sites.

        Returns
        -------
        ndarray
            ``(N, channels, m)``.
        """
        mask, generator = _mask_of(sites, samples), torch.Generator().manual_seed(0)
        parts = []
        with torch.inference_mode():
            for start in range(0, len(samples), _CHUNK):
                x = torch.from_numpy(samples.targets[start : start + _CHUNK])
                parts.append(self.through(x, mask, generator).numpy())  # type: ignore[union-attr]
        return np.concatenate(parts).reshape(len(samples), samples.channels, -1)


class ReconstructionObjective(MaskObjective):
    """Squared error of the reconstructed field.

    Parameters
    ----------
    decoder
        Reconstructs the valid sites through any mask.
    samples
        Scaled training samples.
    """

    def __init__(self, decoder: ConditionalReconstructor, samples: ScaledSamples) -> None:
        super().__init__()
        self.decoder, self.unit, self.missing = decoder, _variance(samples), samples.missing is not None

    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the reconstruction loss."""
        loss = reconstruction(self.decoder(seen, masks, generator), x.flatten(1), gaps=self.missing)
        return {"reconstruction": loss * known_share(x, self.processes) if self.missing else loss}

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
    n_phases
        Phases of the generator's strides that are averaged; see `ResNetConditional`.

    References
    ----------
    Isola, Zhu, Zhou & Efros (2017). Image-to-image translation with conditional adversarial networks. CVPR.
    """

    def __init__(
        self, samples: ScaledSamples, *, l1_weight: float, mask_channel: bool, n_phases: Literal[0, 1, 4, 16] = 0
    ) -> None:
        super().__init__()
        self.generator = ResNetConditional(samples, mask_channel=mask_channel, noise=True, n_phases=n_phases)
        self.discriminator = PatchDiscriminator(2 * samples.channels, samples.sites.shape)
        self.l1_weight = l1_weight
        self.unit = l1_weight * _variance(samples) ** 0.5

    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the losses of generator and discriminator."""
        grid = self.generator.grid
        noise = self._noise(x, generator)
        reconstructed = grid(self.generator(seen, masks, generator, noise).unflatten(1, x.shape[1:]))
        observed = grid(seen * share(masks, len(x)).unsqueeze(1))
        return adversarial(self.discriminator, grid(x), reconstructed, observed, l1_weight=self.l1_weight)

    def through(self, x: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor:
        """Reconstruct with noise of a fixed seed."""
        return self.generator(x, mask, generator, self._noise(x, generator))  # type: ignore[no-any-return]

    def _noise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """One more input of the network, on the grid."""
        return torch.randn(len(x), 1, *self.generator.grid.shape, generator=generator).to(x.device)


class PredictionObjective(MaskObjective):
    """Cross-entropy of a class or squared error of a number, predicted through masks.

    Parameters
    ----------
    samples
        Scaled training samples; the existing sites are always observed.
    target
        Their target.
    """

    def __init__(self, samples: ScaledSamples, target: Target) -> None:
        super().__init__()
        self.is_class = target.is_class
        self.decoder: ConditionalReconstructor = DenseConditional(samples, len(target.classes) or 1)
        spread = torch.from_numpy(samples.targets.std(axis=0, keepdims=True))
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


def make_objective(samples: ScaledSamples, k: int, settings: LearnedSettings) -> MaskObjective:
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
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)).as_scaled()
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
        given = settings.model_dump(include={"l1_weight", "mask_channel", "n_phases"})
        return AdversarialObjective(samples, **given)
    kind = settings.decoder
    if kind == "auto":
        kind = "dense" if len(samples) >= _MIN_SAMPLES_FOR_NETWORK else "gaussian"
    of_resnet = settings.model_dump(include={"mask_channel", "n_phases"})
    return ReconstructionObjective(make_decoder(kind, samples, k, **of_resnet), samples)


def _mask_of(sites: NDArray[np.int64], samples: ScaledSamples) -> Tensor:
    """Mask ``(1, sites)`` that is open at the given sites only."""
    mask = torch.zeros(1, len(samples.sites))
    mask[0, torch.from_numpy(sites)] = 1
    return mask


def _variance(samples: ScaledSamples) -> float:
    """Mean variance of the sites."""
    return float(samples.target_variance().mean())


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
