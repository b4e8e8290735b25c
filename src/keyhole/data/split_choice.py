"""Which split samples get: the one asked for, the data set's own, or one that suits series, groups and all others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.data.decorrelation import decorrelation_time_of
from keyhole.data.samples import Samples
from keyhole.data.series import Evidence, feature_columns, find_series
from keyhole.data.split_cuts import ranks, separate_spans
from keyhole.data.splits import Split, SplitLike, as_split, check, divided_group

__all__ = ["choose_split"]

_SHARE_AMONG = 0.5  # of the test samples: where more lie among training samples, the parts are interleaved


def choose_split(samples: Samples, split: SplitLike, seed: int) -> Split:
    """Return the split that is asked for, or choose one.

    Samples with groups are split between groups. Others are split in blocks of time where they have a time or look like
    a series, and at random where not; rows of a table, and samples with a target, are a series only if they have a
    time. Blocks have gaps of the decorrelation time of what the calendar does not know (`decorrelation_time_of`), which
    all samples are looked at for.

    Parameters
    ----------
    samples : Samples
        All samples.
    split : Split, str, mapping, tuple or None
        ``"blocks"``, ``"random"``, ``"groups"``, or what `as_split` takes; None: the data set's own split if it has one
        that keeps groups whole, else the default.
    seed : int
        Seed of a random split.

    Returns
    -------
    Split
        With its ``reason`` where it was chosen, and a ``warning`` where a series is not split in blocks.

    Raises
    ------
    DataError
        If parts are empty or overlap, a group of samples is in two, or ``"groups"`` is asked for and there are none.
    """
    choice = _Choice(samples, seed)
    if isinstance(split, str) and split in ("blocks", "random", "groups"):
        found = choice.of_kind(split)
    elif split is not None:
        found = as_split(split, len(samples))
    else:
        found = choice.by_default()
    check(found, len(samples))
    choice.check_groups(found)
    return found if found.warning else replace(found, warning=choice.warning(found))


@dataclass(frozen=True, eq=False)
class _Choice:
    """What decides on a split: time, groups, and how alike neighbouring samples are.

    Parameters
    ----------
    samples : Samples
        All samples.
    seed : int
        Seed of a random split.
    """

    samples: Samples
    seed: int

    @cached_property
    def rows(self) -> NDArray[np.float32]:
        """What stands for each sample, in the order given; NaN where missing."""
        return feature_columns(self.samples)

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """Rank of the time of each sample, or its number."""
        return np.arange(len(self.samples)) if self.samples.time is None else ranks(self.samples.time)

    @cached_property
    def evidence(self) -> Evidence | None:
        """Why samples without a time look like a series."""
        return find_series(np.nan_to_num(self.rows))

    @cached_property
    def gap(self) -> int:
        """Decorrelation time apart from the calendar, as a number of consecutive times."""
        return decorrelation_time_of(self.samples, self.rows)

    def of_kind(self, kind: str) -> Split:
        """Return a split by its name; groups stay whole in any."""
        samples, groups = self.samples, self.samples.sample_groups
        if groups is not None:
            is_ordered = kind == "blocks" or (kind == "groups" and self._groups_are_spans())
            time = self.steps if is_ordered else None
            return Split.groups(groups, time=time, gap=self.gap if is_ordered else 0, seed=self.seed)
        if kind == "groups":
            raise DataError("split='groups': the samples have no groups; name them (groups=, --group-by)")
        if kind == "random":
            return Split.random(len(samples), seed=self.seed)
        return Split.blocks(len(samples), time=samples.time, gap=self.gap)

    def by_default(self) -> Split:
        """Return the data set's own split, or one that suits the samples, with its reason."""
        samples, own = self.samples, self.samples.split
        if own is not None and (samples.sample_groups is None or divided_group(own, samples.sample_groups) is None):
            return own
        if samples.sample_groups is not None:
            by = f" ({samples.groups_name})" if samples.groups_name else ""
            return replace(self.of_kind("groups"), reason=f"{len(np.unique(samples.sample_groups))} groups{by}")
        if samples.time is not None:
            return replace(self.of_kind("blocks"), reason="samples have a time")
        if samples.origin.kind == "table" or samples.target is not None:
            return replace(self.of_kind("random"), reason="samples have no time")
        if self.evidence is None:
            return replace(self.of_kind("random"), reason="samples have no time and do not look like a series")
        return replace(self.of_kind("blocks"), reason=self.evidence.reason)

    def check_groups(self, split: Split) -> None:
        """Raise a DataError if a given split cuts a group of samples."""
        groups = self.samples.sample_groups
        group = None if groups is None else divided_group(split, groups)
        if group is not None:
            raise DataError(
                f"split: samples of group {group!r} are in more than one part; give parts of whole groups, or leave "
                "the split out"
            )

    def warning(self, split: Split) -> str:
        """Return why errors on the test part of a series are smaller than those on later samples, or nothing."""
        if split.kind not in ("random", "given"):
            return ""
        if self.samples.time is not None:
            what = "a time series"
        elif self.evidence is not None:
            what = f"samples that look like a series (neighbours correlate at {self.evidence.correlation:.2f})"
        else:
            return ""
        if split.kind == "given" and not self._is_interleaved(split):
            return ""
        how = "split at random" if split.kind == "random" else "with test samples among the training samples"
        return f"{what}, {how}: errors on later samples are larger; split='blocks' measures them"

    def _groups_are_spans(self) -> bool:
        """Whether groups are spans of time, one after the other."""
        groups = self.samples.sample_groups
        return groups is not None and self.samples.time is not None and separate_spans(ranks(groups), self.steps)

    def _is_interleaved(self, split: Split) -> bool:
        """Whether most test samples lie between training samples, within the decorrelation time of one."""
        known, tested = np.unique(self.steps[split.development]), self.steps[split.test]
        if not len(known) or not len(tested):
            return False
        inside = (tested >= known[0]) & (tested <= known[-1])
        if inside.mean() <= _SHARE_AMONG:
            return False
        behind = known[np.minimum(np.searchsorted(known, tested), len(known) - 1)]
        before = known[np.maximum(np.searchsorted(known, tested, side="right") - 1, 0)]
        near = np.minimum(np.abs(behind - tested), np.abs(tested - before)) <= self.gap
        return bool((inside & near).mean() > _SHARE_AMONG)
