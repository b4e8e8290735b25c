"""Subsets of samples: random ones, and the folds of a cross-validation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

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


def contiguous_folds(count: int, n_folds: int) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Iterate over the folds of a cross-validation, each of consecutive samples (one per sample if there are fewer).

    Parameters
    ----------
    count
        Number of samples.
    n_folds
        Number of folds.

    Yields
    ------
    kept, held_out : ndarray of bool, shape (count,)

    Examples
    --------
    >>> [held_out.nonzero()[0].tolist() for _, held_out in contiguous_folds(5, 2)]
    [[0, 1, 2], [3, 4]]
    """
    fold = np.arange(count) * min(n_folds, count) // count
    for number in range(fold[-1] + 1):
        yield fold != number, fold == number
