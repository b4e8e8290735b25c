"""Errors of candidates with blocks of samples left out in turn, where there are too few for one validation part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.series import decorrelation_time, features
from keyhole.data.splits import folds
from keyhole.metrics import Ratio

__all__ = ["BlocksInTurn"]

_SHORT = 600  # samples below which one validation block is left to chance: a few years of months, one El Nino
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
            rows = samples.order_in_time()
            time = decorrelation_time(features(samples.take(rows)))
            gap = min(time, int(_MOST_GAP * len(rows)))
        else:
            rows, gap = run.generator("blocks in turn").permutation(len(samples)), 0
        pairs = folds(rows, _BLOCKS, gap=gap, groups=None if groups is None else groups[rows])
        return cls(tuple((samples.take(fit), samples.take(out)) for fit, out in pairs), samples.is_series)

    def error(self, score: Callable[[ScaledSamples, ScaledSamples], Ratio]) -> Ratio:
        """Return the error over all samples, each scored when its block is left out.

        Parameters
        ----------
        score
            From samples to fit on and samples to score on to the error of the latter.
        """
        errors = [score(fit, out) for fit, out in self.parts]
        return Ratio(np.concatenate([one.part for one in errors]), np.concatenate([one.whole for one in errors]))
