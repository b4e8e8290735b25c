"""Errors of candidates with blocks of samples left out in turn, where there are too few for one validation part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.sample_weights import row_keys
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.series import decorrelation_time, features
from keyhole.data.splits import folds
from keyhole.data.target import Target
from keyhole.metrics import Ratio

__all__ = ["BlocksInTurn"]

_SHORT = 600  # samples below which one validation block is left to chance: a few years of months, one El Nino
_FEW_WITH_TARGET = 3000  # below which 600 classes or fewer decide between selectors; every further block costs seconds
_FEWEST = 30  # of fewer, four fifths are too few to fit to
_BLOCKS = 5
_FEWEST_GROUPS = 3  # of two, the half that is left is too little to fit to
_MOST_GAP = 0.05  # share of the samples


@dataclass(frozen=True, eq=False)
class BlocksInTurn:
    """Pairs of samples to fit on and to score on: each block of the samples is left out once.

    Blocks of a series are consecutive, with a gap of its decorrelation time on each side, at most 5 % of the samples;
    independent samples are drawn at random, groups of samples as a whole. The scaling is that of the training part for
    all blocks.

    Parameters
    ----------
    parts
        For each block, the samples to fit on and those left out.
    is_series
        Whether the samples are a time series.
    """

    parts: tuple[tuple[ScaledSamples, ScaledSamples], ...]
    is_series: bool

    @classmethod
    def of(cls, train: ScaledSamples, validation: ScaledSamples, run: Run) -> Self | None:
        """Cut training and validation samples into blocks; None unless they are few (30 to 600), or of few groups.

        Parameters
        ----------
        train, validation
            Scaled samples.
        run
            Its seed orders independent samples.
        """
        parts = (train,) if validation is train else (train, validation)
        if not _FEWEST <= sum(map(len, parts)) < _SHORT or train.is_large:
            return None
        samples = train if validation is train else train.join(validation)
        groups = samples.sample_groups
        if groups is not None and len(np.unique(groups)) < _FEWEST_GROUPS:
            return None
        if samples.is_series and groups is None:
            pairs = _consecutive(samples, _BLOCKS)
        else:
            rows = run.generator("blocks in turn").permutation(len(samples))
            pairs = folds(rows, _BLOCKS, groups=None if groups is None else groups[rows])
        return cls(tuple((samples.take(fit), samples.take(out)) for fit, out in pairs), samples.is_series)

    @classmethod
    def of_training(cls, train: ScaledSamples, validation: ScaledSamples, run: Run) -> Self | None:
        """Cut training samples with a target into four blocks; None unless all are few (30 to 3000).

        The validation samples are fitted to beside the other blocks, so that with errors on these, for which all
        training samples are fitted to, each sample is scored once. Independent samples are dealt to blocks at random,
        class by class, copies of a sample to the same one.

        Parameters
        ----------
        train, validation
            Scaled samples with a target.
        run
            Its seed orders independent samples.
        """
        groups, target, n_blocks = train.sample_groups, train.target, _BLOCKS - 1
        if target is None or validation is train or train.is_large:
            return None
        if not _FEWEST <= len(train) + len(validation) < _FEW_WITH_TARGET:
            return None
        if groups is not None and len(np.unique(groups)) < n_blocks:
            return None
        if train.is_series and groups is None:
            pairs = _consecutive(train, n_blocks)
        else:
            keys = row_keys(train.values.reshape(len(train), -1), run.seed_of("blocks in turn"))
            rows = _dealt(keys, target, n_blocks) if groups is None else np.argsort(keys, kind="stable")
            pairs = folds(rows, n_blocks, groups=(keys if groups is None else groups)[rows])
        parts = tuple((train.take(fit).join(validation), train.take(out)) for fit, out in pairs)
        return cls(parts, train.is_series)

    def error(self, score: Callable[[ScaledSamples, ScaledSamples], Ratio]) -> Ratio:
        """Return the error over all samples, each scored when its block is left out.

        Parameters
        ----------
        score
            From samples to fit on and samples to score on to the error of the latter.
        """
        errors = [score(fit, out) for fit, out in self.parts]
        return Ratio(np.concatenate([one.part for one in errors]), np.concatenate([one.whole for one in errors]))


def _consecutive(samples: ScaledSamples, n_blocks: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rows to fit to and rows left out, in blocks of a series with a gap of its decorrelation time."""
    rows = samples.order_in_time()
    time = decorrelation_time(features(samples.take(rows)))
    return folds(rows, n_blocks, gap=min(time, int(_MOST_GAP * len(rows))))


def _dealt(keys: NDArray[np.uint64], target: Target, n_blocks: int) -> NDArray[np.int64]:
    """Rows in an order in which each of the blocks has its share of each class, and copies of a row are together."""
    _, first, unit = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(target.values[first], kind="stable") if target.is_class else np.arange(len(first))
    block = np.empty(len(first), np.int64)
    block[order] = np.arange(len(first)) % n_blocks
    return np.lexsort((keys, block[unit]))
