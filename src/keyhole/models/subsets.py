"""Subsets of samples: random ones, and the folds of a cross-validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.split_cuts import ranks

__all__ = ["contiguous_folds", "random_subset"]


def random_subset(count: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return sorted indices of a random subset.

    Parameters
    ----------
    count
        How many there are.
    most
        Largest size of the subset; all indices are returned if there are no more.
    rng
        Random generator, used only if a subset is drawn.
    """
    return np.arange(count) if count <= most else np.sort(rng.choice(count, most, replace=False))


def contiguous_folds(
    count: int, n_folds: int, groups: NDArray[Any] | None = None
) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Iterate over the folds of a cross-validation, each of consecutive samples (one per sample if there are fewer).

    Parameters
    ----------
    count
        Number of samples.
    n_folds
        Number of folds.
    groups
        ``(count,)``, label of the group of each sample; folds are of whole groups, if there are at least two.

    Yields
    ------
    kept, held_out : ndarray of bool, shape (count,)

    Examples
    --------
    >>> [held_out.nonzero()[0].tolist() for _, held_out in contiguous_folds(5, 2)]
    [[0, 1, 2], [3, 4]]
    >>> [held_out.nonzero()[0].tolist() for _, held_out in contiguous_folds(4, 2, np.array(["a", "b", "a", "b"]))]
    [[0, 2], [1, 3]]
    """
    units = np.arange(count) if groups is None else ranks(groups)
    units = units if units.max() > 0 else np.arange(count)
    n_units = int(units.max()) + 1
    fold = units * min(n_folds, n_units) // n_units
    for number in range(fold.max() + 1):
        yield fold != number, fold == number
