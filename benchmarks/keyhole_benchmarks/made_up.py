"""Made-up fields, by seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["autoregressive", "lorenz96", "travelling_wave", "vortex_street"]

Array = NDArray[np.float64]


def autoregressive(n: int, shape: tuple[int, int], seed: int, *, memory: float = 0.8, length: float = 2.0) -> Array:
    """Return fields of Gaussian noise, smooth in space, each of which remembers the one before it: AR(1).

    Parameters
    ----------
    n : int
        Number of samples.
    shape : tuple of int
        Rows and columns of the grid.
    seed : int
        Of the noise.
    memory : float
        Correlation of consecutive samples.
    length : float
        Standard deviation of the smoothing kernel, in cells.

    Returns
    -------
    ndarray of shape (n, rows, columns)
    """
    from scipy.ndimage import gaussian_filter
    from scipy.signal import lfilter

    noise = np.random.default_rng(seed).normal(size=(n, *shape))
    smooth = gaussian_filter(noise, (0, length, length))
    series = lfilter([np.sqrt(1 - memory**2)], [1, -memory], smooth, axis=0)
    return np.asarray(series / series.std())


def travelling_wave(n: int, m: int, seed: int, *, noise: float = 0.1) -> Array:
    """Return two waves that travel along a line with slowly changing amplitudes, and noise.

    Parameters
    ----------
    n, m : int
        Numbers of samples and sites.
    seed : int
        Of amplitudes and noise.
    noise : float
        Standard deviation of the noise at each site; the amplitudes are about one.

    Returns
    -------
    ndarray of shape (n, m)
    """
    rng = np.random.default_rng(seed)
    place, time = np.linspace(0, 2 * np.pi, m, endpoint=False), np.arange(n)[:, np.newaxis]
    slow = 1 + 0.3 * autoregressive(n, (2, 1), seed, memory=0.95, length=0.1)[..., 0]
    waves = slow[:, :1] * np.cos(2 * place - 0.37 * time) + 0.5 * slow[:, 1:] * np.cos(5 * place + 0.11 * time)
    return np.asarray(waves + noise * rng.normal(size=(n, m)))


def lorenz96(n: int, m: int, seed: int, *, forcing: float = 8.0, steps: int = 4) -> Array:
    """Return states of Lorenz's model of 1996, which is chaotic at this forcing.

    Parameters
    ----------
    n, m : int
        Numbers of samples and sites.
    seed : int
        Of the first state.
    forcing : float
        The constant force.
    steps : int
        Steps of 0.05 (six hours of weather) from sample to sample.

    Returns
    -------
    ndarray of shape (n, m)

    References
    ----------
    Lorenz (1996), *Predictability: a problem partly solved*, ECMWF Seminar on Predictability.
    """

    def rate(x: Array) -> Array:
        return np.asarray((np.roll(x, -1) - np.roll(x, 2)) * np.roll(x, 1) - x + forcing)

    x, step, states = forcing + np.random.default_rng(seed).normal(size=m), 0.05, []
    for _ in range((n + 50) * steps):  # fourth-order Runge-Kutta; the first 50 samples are left out
        k1 = rate(x)
        k2 = rate(x + step / 2 * k1)
        k3 = rate(x + step / 2 * k2)
        x = x + step / 6 * (k1 + 2 * k2 + 2 * k3 + rate(x + step * k3))
        states.append(x)
    return np.stack(states[50 * steps :: steps])


def vortex_street(n: int, shape: tuple[int, int], seed: int, *, n_free: int = 3) -> Array:
    """Return the velocities of vortex streets, as behind a cylinder, with free vortices beside them.

    Two rows of vortices of opposite sign move to the right; they grow and weaken on their way. Phase, strength,
    distance and meander of the rows, and strengths and positions of the free vortices, are drawn for each sample.
    Velocities are central differences of the stream function, so that their divergence by central differences is
    zero.

    Parameters
    ----------
    n : int
        Number of samples, independent of each other.
    shape : tuple of int
        Rows and columns of the grid.
    seed : int
        Of all that is drawn.
    n_free : int
        Number of free vortices.

    Returns
    -------
    ndarray of shape (n, 2, rows, columns)
        Velocities to the right (along columns) and down (along rows).
    """
    rng, (rows, columns) = np.random.default_rng(seed), shape
    down, right = np.meshgrid(np.arange(-1.0, rows + 1), np.arange(-1.0, columns + 1), indexing="ij")
    stream = np.zeros((n, *down.shape))

    def add(x: Array, y: Array, strength: Array, radius: Array) -> None:
        square = (right - x[:, None, None]) ** 2 + (down - y[:, None, None]) ** 2
        stream[:] += (strength * radius)[:, None, None] * np.exp(-square / (2 * radius**2)[:, None, None])

    phase, strength = rng.uniform(0, 1, n), rng.uniform(0.7, 1.3, n)
    distance, width = rng.uniform(0.2, 0.3, n) * columns, rng.uniform(0.1, 0.2, n) * rows
    meander, turn = rng.uniform(0, 0.12, n) * rows, rng.uniform(0, 2 * np.pi, n)
    for j in range(-1, 11):
        x = (phase + j / 2) * distance
        sign, age = (-1) ** j, np.clip(x / columns, 0, 1)
        y = rows / 2 + sign * width + meander * age * np.sin(2 * np.pi * x / columns + turn)
        add(x, y, sign * strength * (1 - 0.5 * age), (0.1 + 0.06 * age) * rows)
    for _ in range(n_free):
        x, y = rng.uniform(0, columns, n), rng.uniform(0, rows, n)
        add(x, y, rng.normal(0, 0.3, n), rng.uniform(0.1, 0.2, n) * rows)
    to_right = (stream[:, 2:, 1:-1] - stream[:, :-2, 1:-1]) / 2
    return np.stack([to_right, (stream[:, 1:-1, :-2] - stream[:, 1:-1, 2:]) / 2], axis=1)
