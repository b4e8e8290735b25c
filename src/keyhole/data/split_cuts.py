"""Where a sequence of samples is cut into training, validation and test parts, and what is left out at the cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cuts", "cut", "draw_units", "ranks", "separate_spans"]

Indices = NDArray[np.int64]

_MOST_LEFT_OUT = 0.05  # share of the samples in all gaps together: they are lost to training


@dataclass(frozen=True)
class Cuts:
    """Positions at which a sequence of samples is cut.

    Parameters
    ----------
    train, validation, test : int
        First position behind the training part, of the validation part, and of the test part.
    stop : int
        First position behind the validation part.
    """

    train: int
    validation: int
    stop: int
    test: int

    def parts(self, order: Indices) -> tuple[Indices, Indices, Indices, Indices]:
        """Return the samples of training, validation and test, and those that are left out between them."""
        left_out = np.concatenate([order[self.train : self.validation], order[self.stop : self.test]])
        return order[: self.train], order[self.validation : self.stop], order[self.test :], left_out


def ranks(labels: NDArray[Any]) -> Indices:
    """Return the rank of each label among the distinct ones.

    Examples
    --------
    >>> ranks(np.array([2.5, 7.0, 2.5]))
    array([0, 1, 0])
    """
    return np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)


def cut(units: Indices, steps: Indices, *, validation: int, test: int, gap: int) -> Cuts:
    """Cut a sequence of samples in three, with gaps between the parts.

    Each cut is where the unit changes nearest to the wanted sizes of the validation and the test part. Gaps lie before
    the cuts and take at most 5 % of the samples together, so that the training part shrinks by them.

    Parameters
    ----------
    units : ndarray of int, shape (n,)
        What must not be cut (a time, a group of samples), in at least three runs of equal numbers.
    steps : ndarray of int, shape (n,)
        Rank of the time of each sample, in ascending order.
    validation, test : int
        Numbers of samples wanted.
    gap : int
        Number of steps to leave out before the validation and before the test part.

    Returns
    -------
    Cuts

    Examples
    --------
    >>> every = np.arange(100)
    >>> cut(every, every, validation=16, test=20, gap=2)
    Cuts(train=60, validation=62, stop=78, test=80)
    """
    n, most = len(units), int(_MOST_LEFT_OUT * len(units))
    changes = np.flatnonzero(np.diff(units)) + 1
    second = _nearest(changes[1:], n - test)
    late = _last_steps(steps[:second], gap, min((most + 1) // 2, second - int(changes[0]) - 1))
    first = _nearest(changes[changes < second - late], n - test - validation - late)
    early = _last_steps(steps[:first], gap, min(most // 2, first - 1))
    return Cuts(first - early, first, second - late, second)


def draw_units(sizes: Sequence[int], order: Sequence[int], wanted: int, *, keep: int) -> list[int]:
    """Take units in a given order while that brings their size nearer to the one wanted.

    Parameters
    ----------
    sizes : sequence of int
        Number of samples of each unit.
    order : sequence of int
        The units that may be taken.
    wanted : int
        Number of samples wanted.
    keep : int
        Number of units that must be left.

    Returns
    -------
    list of int
        At least one unit.

    Examples
    --------
    >>> draw_units([50, 4, 3, 3], [0, 1, 2, 3], 8, keep=1)
    [1, 2]
    """
    taken, total = list[int](), 0
    for unit in order:
        if total >= wanted or len(order) - len(taken) <= keep:
            break
        if abs(total + sizes[unit] - wanted) < wanted - total:
            taken.append(unit)
            total += sizes[unit]
    return taken or [min(order, key=sizes.__getitem__)]


def separate_spans(units: Indices, steps: Indices) -> bool:
    """Return whether units are spans of time that do not overlap.

    Parameters
    ----------
    units, steps : ndarray of int, shape (n,)
        Unit of each sample, from 0 without gaps, and the rank of its time.

    Examples
    --------
    >>> separate_spans(np.array([1, 1, 0, 0]), np.arange(4)), separate_spans(np.array([0, 1, 0]), np.arange(3))
    (True, False)
    """
    first, last = np.full(units.max() + 1, np.iinfo(np.int64).max), np.full(units.max() + 1, -1, np.int64)
    np.minimum.at(first, units, steps)
    np.maximum.at(last, units, steps)
    order = np.lexsort((last, first))
    return bool((first[order][1:] > last[order][:-1]).all())


def _nearest(positions: Indices, wanted: int) -> int:
    """Return the position that is nearest to the one wanted."""
    return int(positions[np.abs(positions - wanted).argmin()])


def _last_steps(steps: Indices, count: int, most: int) -> int:
    """Return the number of samples in the last ``count`` steps, or in as many whole steps as hold ``most`` samples."""
    widths = len(steps) - np.searchsorted(steps, steps[-1] - np.arange(max(0, count)))
    return int(widths[widths <= most].max(initial=0))
