"""Objective of the learned masks whose decoder is kernel ridge regression, in closed form for any mask."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.kernels import LINEAR_WEIGHT
from keyhole.placement.kernel_surrogate import FitScoreSplit, KernelSurrogate, target_columns
from keyhole.placement.learned_objectives import MaskObjective

__all__ = ["KernelObjective"]

_MOST_CLOSED = 16  # open sites that are closed in turn for each mask, each of which takes a matrix inverse
_MIN_SQUARE = 1e-6  # of a distance, so that rounding leaves no negative one


class KernelObjective(MaskObjective):
    r"""Leave-one-out error of kernel ridge regression on the observed sites, within each batch.

    The samples of a batch predict each other: with the kernel matrix `K` of their readings at the open sites and
    :math:`C = (K + a I)^{-1}`, the leave-one-out residual of the outputs `Y` is :math:`(C Y)_i / C_{ii}`. Nothing is
    trained but the masks, and every mask meets its best response. The outputs are the leading principal components of
    the field, or the columns of a target.

    The gradient in a mask is the finite difference of the error by each of its sites, as if all others stayed (a local
    expectation gradient): for an open site the error less that without the site, computed exactly; for a closed one the
    slope as it begins to enter the kernel, divided by `1 + h`, which is about what the error falls by once the site is
    open (`h` is the variance of the site given the open ones, relative to the regularisation). The slope by itself
    would be about `1 + h` times too large for closed sites, and for open sites, whose weight is past what matters,
    close to zero whatever they are worth.

    Parameters
    ----------
    samples
        Scaled training samples, complete, with a target or without.
    sites
        Numbers of the sites for which the hyperparameters of the kernel are chosen.
    run
        Its seed determines the samples by which they are chosen.

    References
    ----------
    Titsias & Lázaro-Gredilla (2015). Local expectation gradients for black box variational inference. NeurIPS.
    """

    reconstructs = False

    def __init__(self, samples: ScaledSamples, sites: NDArray[np.int64], run: Run) -> None:
        super().__init__()
        split = FitScoreSplit.from_samples(samples, None, len(sites), run)
        self.kernel_parameters = KernelSurrogate.fit(split, sites).parameters
        self.unit = 1.0
        root = 1.0 if samples.root is None else samples.root
        arrays = {
            "scale": split.scale(self.kernel_parameters.standardised) * root,
            "mean": samples.targets.mean(axis=0),
        }
        if samples.target is None:
            arrays["basis"] = split.basis
        else:
            arrays["target"] = target_columns(samples)
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.asarray(array, np.float32)), persistent=False)
        self.register_buffer("existing", torch.from_numpy(split.existing), persistent=False)

    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the mean error over the masks, each of which observes the whole batch."""
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            readings = ((seen - self.get_buffer("mean")) / self.get_buffer("scale")).nan_to_num()
            outputs = self._outputs(x, batch)
            parts = [self._differences(readings, outputs, mask, generator) for mask in masks]
        errors, differences = (torch.stack(part) for part in zip(*parts, strict=True))
        along = ((masks - masks.detach()) * differences).sum(dim=1)
        return {"reconstruction" if self._has_field else "prediction": (errors + along).mean()}

    @property
    def _has_field(self) -> bool:
        return "basis" in dict(self.named_buffers())

    def _outputs(self, x: Tensor, batch: Tensor) -> Tensor:
        """What is predicted of the samples of a batch, ``(n, t)``, centred."""
        if not self._has_field:
            outputs = self.get_buffer("target")[batch]
        else:
            outputs = (x - self.get_buffer("mean")).nan_to_num().flatten(1) @ self.get_buffer("basis").T
        return outputs - outputs.mean(dim=0)

    def _differences(
        self, readings: Tensor, outputs: Tensor, mask: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the relative error for one mask, and its difference by each site, ``(m,)``."""
        opened = mask > 0.5
        opened[self.get_buffer("existing")] = True
        among = readings[:, :, opened]
        inner = torch.einsum("ncs,kcs->nk", among, among)
        kernel, slope = self._kernel(inner)
        inverse = self._inverse(kernel)
        total = outputs.square().sum()
        dual, scale = inverse @ outputs, inverse.diagonal().unsqueeze(1)
        residual = dual / scale
        energy = residual.square().sum(dim=1)
        error = energy.sum() / total
        # Gradient by the kernel matrix, then by squared distances and inner products of readings.
        by_kernel = 2 * (inverse * (energy / scale.squeeze(1))) @ inverse - 2 * (inverse @ (residual / scale)) @ dual.T
        by_kernel = (by_kernel + by_kernel.T) / (2 * total)
        by_square, by_inner = by_kernel * slope, by_kernel * (LINEAR_WEIGHT / self.kernel_parameters.level)
        flat_readings = readings.flatten(1)
        slopes = (flat_readings * ((by_inner - 2 * by_square) @ flat_readings)).sum(dim=0)
        slopes += 2 * by_square.sum(dim=0) @ flat_readings.square()
        mean_slope = -2 * slope.mean() + LINEAR_WEIGHT / self.kernel_parameters.level
        added = mean_slope * (flat_readings * (inverse @ flat_readings)).sum(dim=0)
        differences = (slopes / (1 + added)).reshape(readings.shape[1:]).sum(dim=0)
        differences[opened] = 0
        closable = mask.gt(0.5).nonzero().squeeze(1)
        order = torch.randperm(len(closable), generator=generator)[:_MOST_CLOSED].to(closable.device)
        closed = closable[order]
        own = readings[:, :, closed].permute(2, 0, 1)
        without = self._inverse(self._kernel(inner - own @ own.mT)[0])
        left_out = (without @ outputs) / without.diagonal(dim1=1, dim2=2).unsqueeze(2)
        # The sites that are not closed in turn count through those that are.
        differences[closed] = (error - left_out.square().sum(dim=(1, 2)) / total) * (len(closable) / len(closed))
        return error, differences

    def _kernel(self, inner: Tensor) -> tuple[Tensor, Tensor]:
        """Return kernel matrices from inner products ``(..., n, n)``, and their derivatives by squared distances."""
        norms, width = inner.diagonal(dim1=-2, dim2=-1), self.kernel_parameters.width
        distances = (
            (norms.unsqueeze(-1) + norms.unsqueeze(-2) - 2 * inner).clamp_min(_MIN_SQUARE) * (3 / width)
        ).sqrt()
        decay = torch.exp(-distances)
        return (1 + distances) * decay + inner * (LINEAR_WEIGHT / self.kernel_parameters.level), decay * (-1.5 / width)

    def _inverse(self, kernel: Tensor) -> Tensor:
        """Return `(K + a I)^-1`."""
        regularised = kernel + self.kernel_parameters.regularisation * torch.eye(kernel.shape[-1], device=kernel.device)
        inverse: Tensor = torch.cholesky_inverse(torch.linalg.cholesky(regularised.double())).to(kernel.dtype)
        return inverse

    def through(self, x: Tensor, mask: Tensor, generator: torch.Generator) -> None:
        """Return None: fit a reconstructor to the sites instead, such as kernel ridge regression itself."""
        return
