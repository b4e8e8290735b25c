"""Groups of samples in the estimators: their labels, and a validation part of whole groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, column_or_1d

from keyhole.data.sample_weights import row_keys, validation_count
from keyhole.data.split_cuts import draw_units, ranks
from keyhole.data.splits import Split

__all__ = ["Labels", "held_out", "rows_of", "sample_groups"]

Labels = NDArray[Any] | None

_VALIDATION = 0.2


def sample_groups(groups: Any, count: int) -> Labels:
    """Return the label of the group of each sample, checked; None without groups."""
    if groups is None:
        return None
    labels = column_or_1d(groups)
    check_consistent_length(labels, np.empty(count))
    if len(set(labels.tolist())) < 2:
        raise ValueError("groups: all samples are in one group; at least two are needed, to train and to validate")
    return np.asarray(labels)


def rows_of(groups: Labels, rows: NDArray[np.int64]) -> Labels:
    """Return the labels of some samples."""
    return None if groups is None else groups[rows]


def held_out(values: NDArray[np.floating[Any]], groups: Labels, seed: int) -> Split:
    """Split into training and validation parts at random, without a test part; groups, or copies, stay whole.

    Parameters
    ----------
    values
        ``(n, m)``, samples sorted by their keys (`row_keys`), so that the first of them are a random part.
    groups
        Label of the group of each sample.
    seed
        Seed of the keys, and of the order of the groups.
    """
    none, rows = np.empty(0, np.int64), np.arange(len(values))
    if groups is None:
        wanted = validation_count(row_keys(values, seed), _VALIDATION)
        return Split(rows[wanted:], rows[:wanted], none, "random")
    rng, wanted = np.random.default_rng(seed), max(1, int(np.ceil(_VALIDATION * len(values))))
    units = ranks(groups)
    sizes = np.bincount(units).tolist()
    is_held_out = np.isin(units, draw_units(sizes, rng.permutation(len(sizes)).tolist(), wanted, keep=1))
    return Split(np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out), none, "groups")
