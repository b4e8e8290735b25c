"""Losses that networks minimise during training."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from keyhole.core.processes import Processes

__all__ = ["adversarial", "known_share", "prediction", "reconstruction"]


def reconstruction(reconstructed: Tensor, truth: Tensor, *, gaps: bool = False) -> Tensor:
    """Return the mean squared error over samples, channels and sites.

    Parameters
    ----------
    reconstructed, truth
        Tensors of equal shape.
    gaps
        Whether the truth may be NaN, where it is missing; such values do not count.

    Examples
    --------
    >>> reconstruction(torch.tensor([1.0, 2.0]), torch.tensor([3.0, torch.nan]), gaps=True)
    tensor(4.)
    """
    if not gaps:
        return functional.mse_loss(reconstructed, truth)
    known = ~truth.isnan()
    return functional.mse_loss(reconstructed[known], truth[known], reduction="sum") / known.sum().clamp_min(1)


def known_share(truth: Tensor, processes: Processes) -> Tensor:
    """Return the number of known values of this process's samples, relative to the mean over all processes.

    A mean over the known values of one process's samples, multiplied by this, averages over the processes to the mean
    over the known values of the whole batch.

    Parameters
    ----------
    truth
        NaN where it is missing.
    processes
        The processes, all of which must call this.

    Examples
    --------
    >>> known_share(torch.tensor([1.0, torch.nan]), Processes())
    tensor(1.)
    """
    known = (~truth.isnan()).sum().to(truth.dtype)
    return known / processes.mean(known).clamp_min(1)


def prediction(outputs: Tensor, target: Tensor, is_class: bool) -> Tensor:
    """Return the cross-entropy of classes, or the mean squared error of numbers.

    Parameters
    ----------
    outputs
        ``(N, classes)``, logits, or ``(N, 1)``.
    target
        Class codes or numbers, ``(N,)``.
    is_class
        Whether the target is a class.

    Examples
    --------
    >>> prediction(torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 4.0]), is_class=False)
    tensor(2.)
    """
    if is_class:
        return functional.cross_entropy(outputs, target)
    return functional.mse_loss(outputs.squeeze(1), target)


def adversarial(
    discriminator: nn.Module, truth: Tensor, reconstructed: Tensor, observed: Tensor, *, l1_weight: float
) -> dict[str, Tensor]:
    r"""Return the losses of generator and discriminator of a conditional GAN (pix2pix), for one backward pass.

    .. math:: \text{gan} = -\log D(G, x^{obs}), \qquad \text{l1} = w\, |x - G|, \qquad
              \text{critic} = -\tfrac12 [\log D(x, x^{obs}) + \log(1 - D(G, x^{obs}))]

    In the generator's part the weights of the discriminator are constants; in the discriminator's part the
    reconstruction and the observations are. So one backward pass gives both gradients.

    Parameters
    ----------
    discriminator
        Maps reconstruction and observations, concatenated along channels, to logits.
    truth, reconstructed, observed
        ``(N, channels, *grid)``.
    l1_weight
        The weight `w`.

    Returns
    -------
    dict of str to Tensor
        ``gan``, ``l1`` and ``critic``.

    References
    ----------
    Isola, Zhu, Zhou & Efros (2017), *Image-to-Image Translation with Conditional Adversarial Networks*, CVPR.
    """
    observed_only = observed.detach()
    constant = {name: weight.detach() for name, weight in discriminator.named_parameters()}
    fooled = functional_call(discriminator, constant, (torch.cat([reconstructed, observed], dim=1),))
    true = discriminator(torch.cat([truth, observed_only], dim=1))
    false = discriminator(torch.cat([reconstructed.detach(), observed_only], dim=1))
    return {
        "gan": functional.softplus(-fooled).mean(),
        "l1": l1_weight * functional.l1_loss(reconstructed, truth),
        "critic": (functional.softplus(-true).mean() + functional.softplus(false).mean()) / 2,
    }
