"""Data augmentation of images by small affine transformations and reflections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.reconstructors.linear import LinearReconstructor

__all__ = ["Augmentation", "AugmentedBatches", "affine_grid"]

# Maps readings (N, K, channels), covariates and the linear estimate to the network's inputs.
Inputs = Callable[[Tensor, Tensor, Tensor], Tensor]

# Maximum rotation (radians), shear and scaling: half a pixel to one pixel of MNIST's 28.
_ROTATION, _SHEAR, _SCALING = 0.08, 0.08, 0.06
_SHIFT = 0.07  # maximum translation, relative to half the image's side
_PROBABILITY = 0.5  # of each transformation; the other images stay as they are, and sharp
_MAX_ERROR_RATIO = 1.15  # of the linear error on transformed images to that on the original ones
_MIN_EXPLAINED_RATIO = 0.85  # of the share of variance explained on transformed images to that on the original ones
_MIN_EXPLAINED = 0.1  # share of variance explained below which the linear error cannot detect implausible images
_MAX_SCORED = 2000


@dataclass(frozen=True, eq=False)
class Augmentation:
    """Random transformations under which images stay plausible: small affine ones, and reflections.

    Images are transformed before the mean is subtracted, with border values replicated beyond the edges. A network
    trained on them sees more variation than there are samples.

    Parameters
    ----------
    zero
        ``(channels, rows, columns)``, the mean that was subtracted, in the same scale.
    nudged
        Whether to apply an affine transformation (rotation, shear, scaling, translation) to half of the images.
    mirrored
        Whether to reflect half of them top to bottom, and left to right.
    """

    zero: Tensor
    nudged: bool = False
    mirrored: tuple[bool, bool] = (False, False)

    @classmethod
    def found(
        cls, linear: LinearReconstructor, train: ScaledSamples, validation: ScaledSamples, sites: NDArray[np.int64]
    ) -> Self | None:
        """Select the transformations that keep images plausible, as measured by the linear reconstruction.

        A transformation is accepted if validation images are reconstructed about as well after it as before. Samples
        with times, covariates, missing values, sites that are not valid or sensors elsewhere are not treated as images.

        Parameters
        ----------
        linear
            A fitted linear reconstructor.
        train, validation
            Scaled samples.
        sites
            Numbers of the sites it was fitted to.

        Returns
        -------
        Augmentation or None
            None if the samples are not images, or no transformation is accepted.
        """
        if train.sensors is not None or not _are_images(train):
            return None
        identity = cls(_mean_of(train))
        scored = torch.from_numpy(validation.sites.to_grid(validation.targets[:_MAX_SCORED]))
        error, explained = _linear_error(linear, scored, sites)
        if explained < _MIN_EXPLAINED:
            return None

        def is_plausible(kind: Augmentation) -> bool:
            its_error, its_explained = _linear_error(linear, kind.always(scored), sites)
            return its_error <= _MAX_ERROR_RATIO * error and its_explained >= _MIN_EXPLAINED_RATIO * explained

        nudged = is_plausible(replace(identity, nudged=True))
        down, across = (is_plausible(replace(identity, mirrored=(axis == 0, axis == 1))) for axis in (0, 1))
        return replace(identity, nudged=nudged, mirrored=(down, across)) if nudged or down or across else None

    def about(self, samples: ScaledSamples) -> Self:
        """Return the same transformations for images from which another mean was subtracted."""
        return replace(self, zero=_mean_of(samples))

    def always(self, images: Tensor) -> Tensor:
        """Transform all of ``(N, channels, rows, columns)``, each with its own random parameters and a fixed seed."""
        return self(images, torch.Generator().manual_seed(0), share=1.0)

    def __call__(self, images: Tensor, generator: torch.Generator, share: float = _PROBABILITY) -> Tensor:
        """Transform a random share of ``(N, channels, rows, columns)``, each with its own random parameters.

        Interpolation is bicubic, which keeps edges sharp, and clipped to the range of the image: a network trained on
        blurred images would learn that images are smooth.
        """
        maps, zero = (part.to(images.device) for part in (self._maps(len(images), generator, share), self.zero))
        uncentred, positions = images + zero, affine_grid(maps, images.shape[2], images.shape[3])
        moved = functional.grid_sample(uncentred, positions, mode="bicubic", padding_mode="border", align_corners=False)
        return moved.clamp(uncentred.amin((2, 3), keepdim=True), uncentred.amax((2, 3), keepdim=True)) - zero

    def _maps(self, n: int, generator: torch.Generator, share: float) -> Tensor:
        """Draw affine matrices ``(n, 2, 3)`` from output to input coordinates, x before y."""
        nudged = (torch.rand(n, generator=generator) < share) & self.nudged
        rotation, shear, high, wide, across, down = (2 * torch.rand(6, n, generator=generator) - 1) * nudged
        upside, aside = ((torch.rand(2, n, generator=generator) < share) & torch.tensor(self.mirrored)[:, None]).float()
        angle, high = _ROTATION * rotation, (1 + _SCALING * high) * (1 - 2 * upside)
        wide = (1 + _SCALING * wide) * (1 - 2 * aside)
        rows = [
            torch.stack([wide * angle.cos(), _SHEAR * shear - wide * angle.sin(), _SHIFT * across]),
            torch.stack([high * angle.sin(), high * angle.cos(), _SHIFT * down]),
        ]
        return torch.stack(rows).permute(2, 0, 1)


def affine_grid(maps: Tensor, rows: int, columns: int) -> Tensor:
    """Return sampling positions ``(n, rows, columns, 2)``: `functional.affine_grid` as one matrix product.

    The original multiplies image by image, and its thread synchronisation took half of a dense network's step.

    Parameters
    ----------
    maps
        Affine matrices ``(n, 2, 3)`` from output to input coordinates, x before y.
    rows, columns
        Shape of the images.
    """
    down, across = ((2 * torch.arange(count, device=maps.device) + 1) / count - 1 for count in (rows, columns))
    y, x = torch.cartesian_prod(down, across).T
    cells = torch.stack([x, y, torch.ones_like(x)])
    return (maps.reshape(-1, 3) @ cells).reshape(len(maps), 2, rows, columns).permute(0, 2, 3, 1)


def _are_images(samples: ScaledSamples) -> bool:
    """Whether samples are images: a full two-dimensional grid, without time, covariates or missing values."""
    known = samples.covariates is not None and samples.covariates.shape[1] > 0
    full_grid = len(samples.sites.shape) == 2 and len(samples.sites) == samples.sites.size
    return full_grid and samples.offset is not None and samples.time is None and samples.missing is None and not known


def _mean_of(images: ScaledSamples) -> Tensor:
    """The mean that was subtracted, as an image."""
    return torch.from_numpy(np.asarray(images.sites.to_grid(np.asarray(images.offset)), np.float32))


def _linear_error(linear: LinearReconstructor, images: Tensor, sites: NDArray[np.int64]) -> tuple[float, float]:
    """Mean squared error of the linear reconstruction and share of variance explained, at unobserved sites."""
    values = images.numpy()
    readings = values.reshape(len(values), values.shape[1], -1)[:, :, sites].transpose(0, 2, 1)
    unread = np.delete(np.arange(values[0, 0].size), sites)
    truth, reconstructed = (
        part.reshape(*part.shape[:2], -1)[:, :, unread] for part in (values, linear.reconstruct(readings))
    )
    error, variance = (float(np.square(part, dtype=np.float64).mean()) for part in (truth - reconstructed, truth))
    return error, 1 - error / max(variance, np.finfo(float).tiny)


class AugmentedBatches(nn.Module):
    """Batches of randomly transformed images, drawn anew each time, with their linear reconstruction as the estimate.

    Parameters
    ----------
    augmentation
        The random transformations.
    linear
        The fitted linear reconstruction that the network adds to.
    train
        Training samples: images without covariates, all sites valid.
    sites
        Numbers of the K sites.
    inputs
        Maps readings, covariates and estimate to the network's inputs.
    """

    def __init__(
        self, augmentation: Augmentation, linear: LinearReconstructor, train: ScaledSamples, sites: NDArray[np.int64],
        inputs: Inputs,
    ) -> None:  # fmt: skip
        super().__init__()
        self.samples, self.augmentation, self.inputs = len(train), augmentation, inputs
        parts = {
            "images": train.sites.to_grid(train.targets),
            "sites": sites,
            "offset": linear.offset,
            "weights": linear.weights,
        }
        for name, array in parts.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)), persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Transform images, read them at the sites and reconstruct them linearly, in full precision.

        Parameters
        ----------
        batch
            Indices of samples, ``(B,)``.
        generator
            Source of random numbers.

        Returns
        -------
        inputs, estimate, targets : Tensor
            The network's inputs, the linear reconstruction, and the images, ``(B, channels * grid size)``.
        """
        with torch.autocast(batch.device.type, enabled=False):
            images = self.augmentation(self.get_buffer("images")[batch], generator)
            readings = images.flatten(2)[:, :, self.get_buffer("sites")].transpose(1, 2)
            linear = self.get_buffer("offset") + readings.flatten(1) @ self.get_buffer("weights")
        return self.inputs(readings, readings.new_zeros(len(readings), 0), linear), linear, images.flatten(1)
