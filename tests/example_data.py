"""Small samples of every kind, and quick plans of them."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.preparation import prepare

if TYPE_CHECKING:
    from keyhole import Plan
    from keyhole.data.samples import Samples


@dataclass(frozen=True)
class StopsAfter(Run):
    """A run whose deadline passes after a number of looks at the clock, whatever the time is."""

    looks: Iterator[int] = field(default_factory=lambda: iter(()))

    def seconds_left(self) -> float:
        return 1.0 if next(self.looks, None) is not None else -1.0


def stops_after(looks: int) -> StopsAfter:
    """Return a run whose deadline passes after so many looks at the clock."""
    return StopsAfter(looks=iter(range(looks)))


@contextmanager
def little_memory() -> Iterator[None]:
    """Fail if more than 100 MB are allocated."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


def smooth(samples: int, *grid: int, seed: int = 0) -> np.ndarray:
    """Return samples of three modes and a little noise, which a few sites reconstruct well."""
    rng = np.random.default_rng(seed)
    modes = rng.normal(size=(3, *grid))
    return np.tensordot(rng.normal(size=(samples, 3)), modes, axes=1) + 0.01 * rng.normal(size=(samples, *grid))


def monthly_field(months: int = 60) -> Any:
    """Return a DataArray of monthly temperatures with a yearly cycle and two cells of land."""
    import pandas as pd
    import xarray as xr

    values = smooth(months, 4, 5) + 10 * np.cos(2 * np.pi * np.arange(months) / 12)[:, None, None] + 15
    values[:, 0, 1] = values[:, 3, 4] = np.nan
    axes = {
        "time": pd.date_range("2000-01-01", periods=months, freq="MS"),
        "lat": ("lat", np.linspace(60.0, -60.0, 4), {"units": "degrees_north"}),
        "lon": ("lon", np.arange(0.0, 360.0, 72.0), {"units": "degrees_east"}),
    }
    attributes = {"units": "degC", "long_name": "temperature", "valid_range": np.array([-5.0, 40.0])}
    return xr.DataArray(values.astype(np.float32), axes, ("time", "lat", "lon"), "sst", attributes)


def gridded(samples: Samples) -> np.ndarray:
    """The values in the shape of the data, ``(N, channels, *shape)``; NaN where no valid site is."""
    return samples.sites.to_grid(samples.values)


def quick(source: Any, k: int = 3, **options: Any) -> Plan:
    """Return a plan without training, on deviations from the mean unless other anomalies are named."""
    named = hasattr(source, "climatology") and source.climatology.kind != "auto"
    options = {"anomalies": "auto" if named else "none", **options}
    return kh.select(source, k, method="qr", reconstructor="ridge", **options)


def crossed(n=900, seed=0):
    """Return samples whose sites 0 and 1 determine 2 and 3, which vary more, non-linearly; the rest is noise."""
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(n, 2))
    wave = 2 * np.cos(2 * causes.sum(axis=1, keepdims=True))
    values = np.concatenate([causes, wave, wave, np.zeros((n, 2))], axis=1) + 0.05 * rng.normal(size=(n, 6))
    return prepare(kh.read(values.astype(np.float32)), None, seed=0)


def left_in_file(source: object, **options: object) -> Samples:
    """Samples of a field that stay in their file, since a little less memory is allowed than they need."""
    whole = kh.read(source, **options)
    size = len(whole) * whole.channels * math.prod(whole.sites.shape) * whole.values.dtype.itemsize
    samples = kh.read(source, memory=int(2.9 * size), **options)
    if samples.memory is None:
        raise ValueError("the samples were loaded")
    return samples
