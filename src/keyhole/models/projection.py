"""Products of the targets with a few rows of numbers for each sample, in one pass over panels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.reduction import reduce
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.values import Panel

__all__ = ["Targets", "in_memory", "probe_columns", "probe_targets", "project", "target_columns"]

Targets = NDArray[np.floating[Any]] | ScaledSamples


def project(left: NDArray[np.floating[Any]], targets: Targets) -> NDArray[np.floating[Any]]:
    """Multiply the targets by the transpose of a matrix from the left, `L'Y`.

    Parameters
    ----------
    left
        ``(N, q)``.
    targets
        ``(N, t)`` in memory, or samples, which are gone through once.

    Returns
    -------
    ndarray of shape (q, t)
        Products are in the precision of the targets, their sums over panels in double precision.
    """
    if isinstance(targets, np.ndarray):
        return np.asarray(left.T.astype(targets.dtype) @ targets)
    return reduce(targets.panels(), _Projection(left.astype(np.float32), targets.channels * len(targets.sites)))


def in_memory(targets: Targets) -> NDArray[np.floating[Any]]:
    """Return all targets in memory, ``(N, t)``."""
    return targets if isinstance(targets, np.ndarray) else targets.targets.reshape(len(targets), -1)


def target_columns(targets: Targets, columns: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
    """Return some of the targets, ``(N, len(columns))``.

    Parameters
    ----------
    targets
        ``(N, t)`` in memory, or samples.
    columns
        Positions among all targets, channel by channel.
    """
    if isinstance(targets, np.ndarray):
        return targets[:, columns]
    channel, site = np.divmod(columns, len(targets.sites))
    among, place = np.unique(site, return_inverse=True)
    return targets.at(among).targets[:, channel, place]


def probe_columns(samples: ScaledSamples) -> NDArray[np.int64]:
    """Return the positions of the targets of `ScaledSamples.probe` among all targets, ``(channels * sites,)``."""
    first = np.arange(samples.channels)[:, np.newaxis] * len(samples.sites)
    return np.asarray((first + samples.probe).ravel())


def probe_targets(samples: ScaledSamples) -> NDArray[np.float32]:
    """Return the targets of all samples at the sites of `ScaledSamples.probe`, ``(N, channels * sites)``."""
    some = samples.at(samples.probe) if samples.is_large else samples
    return some.targets.reshape(len(samples), -1)


@dataclass(frozen=True, eq=False)
class _Projection:
    """The sum of outer products of rows of ``left`` and of targets."""

    stage: ClassVar[str] = "linear reconstruction"
    left: NDArray[np.float32]
    width: int

    def start(self) -> NDArray[np.float64]:
        return np.zeros((self.left.shape[1], self.width))

    def update(self, state: NDArray[np.float64], panel: Panel[ScaledSamples]) -> NDArray[np.float64]:
        rows = panel.samples.targets.reshape(len(panel.samples), -1)
        state += self.left[panel.start : panel.start + len(rows)].T @ rows
        return state

    def merge(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
        one += other
        return one
