"""Objectives: what a reconstruction is scored by while it is learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

__all__ = ["adversarial", "prediction", "reconstruction"]


def reconstruction(reconstructed: Tensor, truth: Tensor, *, gaps: bool = False) -> Tensor:
    """Mean squared error over samples, channels and cells, packed or not; with gaps, where the truth is not NaN."""
    if not gaps:
        return torch.square(reconstructed - truth).mean()
    known = ~truth.isnan()
    return torch.square(
        reconstructed - torch.where(known, truth, reconstructed.detach())
    ).sum() / known.sum().clamp_min(1)


def prediction(outputs: Tensor, target: Tensor, is_class: bool) -> Tensor:
    """Cross-entropy of class codes, or mean squared error of numbers, ``(N,)``; outputs are ``(N, classes or 1)``."""
    if is_class:
        return functional.cross_entropy(outputs, target)
    return reconstruction(outputs.squeeze(1), target)


def adversarial(
    discriminator: nn.Module, truth: Tensor, reconstructed: Tensor, observed: Tensor, *, l1_weight: float
) -> dict[str, Tensor]:
    r"""Loss parts of a conditional GAN (pix2pix), of both players at once, on ``(N, channels, *grid)``.

    .. math:: \text{gan} = -\log D(G, x^{obs}), \qquad \text{l1} = w\, |x - G|, \qquad
              \text{critic} = -\tfrac12 [\log D(x, x^{obs}) + \log(1 - D(G, x^{obs}))]

    The generator's part sees the discriminator with its weights held, the critic's part sees the rebuilt signals and
    what was observed as given: one backward pass serves both players and neither helps the other.
    """
    seen = observed.detach()
    held = {name: weight.detach() for name, weight in discriminator.named_parameters()}
    fooled = functional_call(discriminator, held, (torch.cat([reconstructed, observed], dim=1),))
    true = discriminator(torch.cat([truth, seen], dim=1))
    false = discriminator(torch.cat([reconstructed.detach(), seen], dim=1))
    return {
        "gan": functional.softplus(-fooled).mean(),
        "l1": l1_weight * torch.abs(reconstructed - truth).mean(),
        "critic": (functional.softplus(-true).mean() + functional.softplus(false).mean()) / 2,
    }
