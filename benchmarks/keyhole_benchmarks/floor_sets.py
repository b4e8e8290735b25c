"""Samples for the floor: what `select` is given, and later samples that it never sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data import datasets
from keyhole.data.samples import Samples
from keyhole_benchmarks.made_up import autoregressive, lorenz96, travelling_wave

__all__ = ["FLOOR_SETS", "SMALL_SETS", "FloorSet"]

_LATER = 0.2  # of all samples
_MNIST = 3000  # images, of which a few thousand suffice for what is linear

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FloorSet:
    """Samples at the valid sites of a grid, given and later ones.

    Parameters
    ----------
    data
        What `select` is given: an array, a frame or a field with its coordinates.
    given, later : ndarray of shape (n, m)
        Values of the given and of the later samples at the valid sites, in the same units.
    index : ndarray of int, shape (m,)
        Positions of the valid sites in a sample, in C order.
    times, later_times : ndarray of datetime64, optional
        Time of each sample, for fields whose climatology is that of the month.
    weight : ndarray of shape (m,)
        Loss weights of the sites: their area where it is known, for which `select` aims too.
    """

    data: Any
    given: Array
    later: Array
    index: NDArray[np.int64]
    weight: Array
    times: NDArray[Any] | None = None
    later_times: NDArray[Any] | None = None

    @classmethod
    def series(cls, values: NDArray[Any]) -> FloorSet:
        """Cut the last fifth off an array of samples in order of time, ``(n, *grid)``.

        Parameters
        ----------
        values
            All samples.
        """
        cut = len(values) - int(_LATER * len(values))
        return cls._of(values, np.arange(cut), np.arange(cut, len(values)))

    @classmethod
    def independent(cls, values: NDArray[Any]) -> FloorSet:
        """Draw a fifth of independent samples at random, ``(n, *grid)``.

        Parameters
        ----------
        values
            All samples.
        """
        order = np.random.default_rng(0).permutation(len(values))
        cut = len(values) - int(_LATER * len(values))
        return cls._of(values, order[:cut], order[cut:])

    @classmethod
    def _of(cls, values: NDArray[Any], given: NDArray[np.int64], later: NDArray[np.int64]) -> FloorSet:
        flat = values.reshape(len(values), -1).astype(np.float64)
        sites = np.arange(flat.shape[1])
        return cls(values[given], flat[given], flat[later], sites, np.ones(len(sites)))

    @classmethod
    def monthly(cls, samples: Samples, *, step: int = 1) -> FloorSet:
        """Make monthly fields with coordinates, of which the last fifth is cut off.

        Parameters
        ----------
        samples
            A data set on a lattice of latitude and longitude.
        step
            Every so many rows and columns of the grid are kept.
        """
        import xarray as xr

        axes = {name: np.asarray(samples.sites.axes[name])[::step] for name in samples.sites.dims}
        values = samples.sites.to_grid(samples.values)[:, 0, ::step, ::step]
        field = xr.DataArray(values, {"time": samples.time, **axes}, ("time", *axes), samples.origin.name)
        latitude = np.repeat(axes["lat"], len(axes["lon"]))
        index = np.flatnonzero(~np.isnan(values).any(axis=0))
        flat = values.reshape(len(values), -1)[:, index].astype(np.float64)
        cut = len(values) - int(_LATER * len(values))
        weight = np.cos(np.deg2rad(latitude[index].astype(np.float64)))
        times = field["time"].to_numpy()
        return cls(field[:cut], flat[:cut], flat[cut:], index, weight, times[:cut], times[cut:])

    def without_labels(self) -> FloorSet:
        """Return the same samples as a bare array of the valid sites."""
        return FloorSet(
            self.given.astype(np.float32), self.given, self.later, np.arange(len(self.index)), np.ones(len(self.index))
        )

    @property
    def phases(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Calendar month of the given and of the later samples; zeros where there are no dates."""
        if self.times is None or self.later_times is None:
            return np.zeros(len(self.given), np.int64), np.zeros(len(self.later), np.int64)
        return _months(self.times), _months(self.later_times)


def _months(times: NDArray[Any]) -> NDArray[np.int64]:
    """Calendar months, from 0 to 11."""
    return times.astype("datetime64[M]").astype(np.int64) % 12


def _breast_cancer() -> FloorSet:
    """The columns of a table, each in its own standard deviations."""
    import pandas as pd
    from sklearn.datasets import load_breast_cancer

    frame = load_breast_cancer(as_frame=True).data
    found = FloorSet.independent(((frame - frame.mean()) / frame.std()).to_numpy())
    return FloorSet(
        pd.DataFrame(found.data, columns=frame.columns), found.given, found.later, found.index, found.weight
    )


def _values(name: str, n: int | None = None) -> NDArray[Any]:
    """Samples of a data set, ``(n, *grid)``."""
    samples = datasets.load(name)
    return np.asarray(samples.sites.to_grid(samples.values[:n])[:, 0])


FLOOR_SETS: dict[str, tuple[Callable[[], FloorSet], tuple[int, int]]] = {
    "sst": (lambda: FloorSet.monthly(datasets.sst()), (10, 25)),
    "sst_array": (lambda: FloorSet.monthly(datasets.sst()).without_labels(), (10, 25)),
    "water": (lambda: FloorSet.series(_values("water")), (5, 10)),
    "digits": (lambda: FloorSet.independent(_values("digits")), (10, 20)),
    "breast_cancer": (_breast_cancer, (3, 6)),
    "autoregressive": (lambda: FloorSet.series(autoregressive(1000, (12, 16), 0)), (8, 20)),
    "travelling_wave": (lambda: FloorSet.series(travelling_wave(800, 64, 0)), (4, 8)),
    "lorenz96": (lambda: FloorSet.series(lorenz96(1500, 40, 0)), (8, 16)),
    "oisst": (lambda: FloorSet.monthly(datasets.oisst()), (25, 50)),
    "ncep": (lambda: FloorSet.monthly(datasets.ncep()), (25, 50)),
    "ipsl": (lambda: FloorSet.monthly(datasets.ipsl().take(np.arange(1980))), (20, 50)),
    "mnist": (lambda: FloorSet.independent(_values("mnist", _MNIST)), (20, 50)),
}
# The same kinds of samples, so few and at so few sites that each selection takes a second or two.
SMALL_SETS: dict[str, tuple[Callable[[], FloorSet], int]] = {
    "sst": (lambda: FloorSet.monthly(datasets.sst(), step=2), 15),
    "sst_array": (lambda: FloorSet.monthly(datasets.sst(), step=2).without_labels(), 15),
    "water": (lambda: FloorSet.series(_values("water")), 6),
    "digits": (lambda: FloorSet.independent(_values("digits", 500)), 10),
    "breast_cancer": (_breast_cancer, 4),
    "autoregressive": (lambda: FloorSet.series(autoregressive(400, (8, 10), 0)), 6),
    "travelling_wave": (lambda: FloorSet.series(travelling_wave(400, 32, 0)), 6),
    "lorenz96": (lambda: FloorSet.series(lorenz96(600, 24, 0)), 6),
}
