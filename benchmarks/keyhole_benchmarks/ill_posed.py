"""The supplement's remark on l1 penalties, as a check that runs: they can be had for nothing."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from keyhole.masks import CorrelatedLogitNormal
from keyhole.models.objectives import reconstruction
from keyhole.models.reconstructors.networks import ResNet

__all__ = ["Halving", "halve"]


@dataclass(frozen=True)
class Halving:
    """Masks halved ``times`` times, seen by a network that doubles its input as often.

    ``error`` of the reconstruction, ``l1`` of the masks a site, ``shown`` the share of sites that show at all, whose
    mean over masks is the expected L0.

    Parameters
    ----------
    times
        How often the masks were halved.
    error
        Squared error of the reconstruction.
    l1
        Mean absolute value of the masks.
    shown
        Share of open sites, whose mean over masks is the expected L0.
    """

    times: int
    error: float
    l1: float
    shown: float


def halve(times: int = 5, *, seed: int = 0) -> list[Halving]:
    r"""Halve the masks of a distribution and double the input of the network, repeatedly.

    With `S_2 = S / 2` and `G_2(v) = G(2 v)` the reconstruction `G_2(S_2 x) = G(S x)` stays, `l1(S_2) = l1(S) / 2`, and
    the number of sites that show, `#{S > 0}`, stays: so the l1 penalty has no minimum, and the expected L0 cannot be
    cheated that way.

    Parameters
    ----------
    times
        Number of halvings.
    seed
        Seed of masks, network and images.

    Returns
    -------
    list of Halving
        One row for each halving, beginning with none.
    """
    generator = torch.Generator().manual_seed(seed)
    distribution = CorrelatedLogitNormal((28, 28), generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = ResNet(1, 1).eval()
        torch.nn.init.normal_(network.head.weight, std=0.1)
    x = torch.rand(32, 1, 28, 28, generator=generator)
    with torch.no_grad():
        masks = distribution.sample((32,), generator).unsqueeze(1)
        rows = []
        for time in range(times + 1):
            shown = masks / 2**time
            error = reconstruction(network(2**time * (shown * x)), x)
            rows.append(Halving(time, float(error), float(shown.mean()), float((shown > 0).float().mean())))
    return rows
