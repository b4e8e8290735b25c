"""Fields with so many cells that a search without time sees a sample of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import keyhole as kh
from keyhole.data.preparation import prepare
from keyhole.data.scaled_samples import ScaledSamples


def large_field(*shape: int) -> ScaledSamples:
    """Return samples of a smooth field with more cells than an exchange without time looks at."""
    rng = np.random.default_rng(3)
    rows, columns = (np.fft.fftfreq(size) * size for size in shape)
    fall = (1 + np.hypot(rows[:, None], columns)) ** -3.0
    values = np.fft.ifft2(np.fft.fft2(rng.normal(size=(25, *shape))) * fall).real
    return prepare(kh.read((values / values.std()).astype(np.float32)), None, seed=0).development


def unexplained_variance(data: ScaledSamples, notes: dict[str, Any], sites: np.ndarray) -> float:
    """Return the variance over all cells that sites of equal noise leave unexplained, from the definition."""
    packed = data.targets[:, 0].astype(float)
    values = (packed - packed.mean(axis=0)) / len(packed) ** 0.5
    metric, read = data.sites.metric, values[:, sites]
    own = read.T @ read * metric.taper(sites, sites, notes["length"])
    own += notes["noise"] * np.square(values).sum() / values.shape[1] * np.eye(len(sites))
    cross = values.T @ read * metric.taper(range(len(data.sites)), sites, notes["length"])
    return np.square(values).sum() - np.einsum("ts,su,tu->", cross, np.linalg.inv(own), cross)
