"""Networks and losses as users write them."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import keyhole as kh

QUICK = {"steps": 12, "batch_size": 8, "validation_steps": 4, "ema_decay": 0.0}


class FromReadings(nn.Module):
    """Readings to the values at valid sites."""

    def __init__(self, sites=3, outputs=20, width=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(sites, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, outputs))

    def forward(self, x):
        return self.layers(x)


class FromGrid(nn.Module):
    """Observed grid and mask to the whole grid."""

    def __init__(self, channels=1, inputs=None):
        super().__init__()
        self.first = nn.Conv2d(inputs or channels + 1, 4, 3, padding=1)
        self.norm, self.last = nn.BatchNorm2d(4), nn.Conv2d(4, channels, 3, padding=1)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())


class Copied(nn.Module):
    """Returns what is observed, times a weight that is one at first."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x):
        self.seen = x.detach()
        return self.weight * x[:, :1]


def field(n=60, height=4, width=6, channels=1, seed=0):
    """Samples of three causes on a grid whose last column is land: 20 valid sites."""
    rng = np.random.default_rng(seed)
    size = channels * height * width
    values = rng.normal(size=(n, 3)) @ rng.normal(size=(3, size)) + 0.05 * rng.normal(size=(n, size))
    values = values.reshape(n, channels, height, width)
    values[..., -1] = np.nan
    return kh.read(values, channels=1)


def absolute(reconstruction, truth):
    """One number for each sample."""
    return (reconstruction - truth).abs().mean((1, 2, 3))


def first_rows(reconstruction, truth):
    """A region alone: the first two rows."""
    return (reconstruction - truth)[:, :, :2].square().mean()


def last_rows(reconstruction, truth):
    """The other region."""
    return (reconstruction - truth)[:, :, 2:].square().mean()
