"""Training, validation and test parts of the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.data.split_cuts import cut, draw_units, ranks, separate_spans

__all__ = ["Indices", "Split", "SplitLike", "as_split", "check", "divided_group", "folds"]

Indices = NDArray[np.int64]

_FIFTH = 0.2
_PARTS = ("train", "validation", "test")
_MOST_VALIDATION = 5000  # samples, where they are independent: more are better used for training


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint sample indices of the training, validation and test parts.

    Sites are selected and reconstructors fitted on ``train``; methods and settings are compared on ``validation``;
    ``test`` is used once, by the metrics. Make a split with `Split.blocks` (time series), `Split.random` (independent
    samples), `Split.groups` (samples that belong together, such as those of one subject) or `Split.given` (your own
    indices).

    Parameters
    ----------
    train, validation, test : ndarray of int
        Sample numbers, counted from 0 in the order of the data as they were given.
    kind : {"blocks", "random", "groups", "given"}
        How the split was made.
    reason : str
        Why this kind of split was chosen, where it was chosen automatically.
    left_out : ndarray of int
        Samples in the gaps between the parts, which are in none.
    gap : int
        Number of consecutive samples (of different times) that each gap was to have.
    warning : str
        Why errors on these parts are smaller than those on new samples, where they are.

    Examples
    --------
    >>> split = Split.given(train=range(60), test=range(80, 100), validation=range(60, 80))
    >>> split.sizes()
    {'train': 60, 'validation': 20, 'test': 20, 'kind': 'given'}
    """

    train: Indices
    validation: Indices
    test: Indices
    kind: str = "given"
    reason: str = ""
    left_out: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    gap: int = 0
    warning: str = ""

    @classmethod
    def blocks(
        cls, n: int, *, time: NDArray[Any] | None = None, gap: int = 0, test: float = _FIFTH, validation: float = _FIFTH
    ) -> Split:
        """Split a time series into contiguous blocks: train first, then validation, then test.

        A random split of a time series puts nearly identical neighbours into training and test, so that the test error
        is too low; prefer blocks wherever consecutive samples are correlated.

        Parameters
        ----------
        n : int
            Number of samples.
        time : ndarray of shape (n,), optional
            Time of each sample, dates or numbers, in any order; None: samples are in order. Samples with equal times
            stay in one part.
        gap : int
            Number of consecutive samples (of different times) to leave out before the validation and before the test
            part, since they resemble those behind; fewer where all gaps together would take more than 5 % of the
            samples. ``keyhole.select(..., split="blocks")`` takes the decorrelation time of the samples without their
            climatology.
        test : float
            Share of all samples.
        validation : float
            Share of the samples that are not in ``test``.

        Returns
        -------
        Split

        Raises
        ------
        DataError
            If there are fewer than 4 samples, or fewer than three different times.

        Examples
        --------
        >>> Split.blocks(100).sizes()
        {'train': 64, 'validation': 16, 'test': 20, 'kind': 'blocks'}
        >>> Split.blocks(100, gap=2).left_out
        array([60, 61, 78, 79])
        """
        if time is not None and np.shape(time) != (n,):
            raise DataError(f"split: time of shape {np.shape(time)} for {n} samples")
        sizes = _sizes(n, test, validation)
        steps = np.arange(n) if time is None else ranks(np.asarray(time))
        if steps.max() < 2:
            raise DataError(
                "split: blocks of time need samples of at least three different times; leave the time out, or choose "
                "another split (split='random', --split random)"
            )
        return cls._in_order(steps, steps, sizes, gap, "blocks")

    @classmethod
    def random(cls, n: int, *, seed: int = 0, test: float = _FIFTH, validation: float | None = None) -> Split:
        """Split independent samples at random.

        Parameters
        ----------
        n : int
            Number of samples.
        seed : int
            Seed of the permutation.
        test : float
            Share of all samples.
        validation : float, optional
            Share of the samples that are not in ``test``; by default a fifth, but at most 5000 samples.

        Returns
        -------
        Split

        Raises
        ------
        DataError
            If there are fewer than 4 samples.

        Examples
        --------
        >>> Split.random(100, seed=1).sizes()
        {'train': 64, 'validation': 16, 'test': 20, 'kind': 'random'}
        """
        _check_seed(seed)
        sizes = _sizes(n, test, validation)
        parts = np.split(np.random.default_rng(seed).permutation(n), [n - sum(sizes), n - sizes[1]])
        return cls(parts[0], parts[1], parts[2], "random")

    @classmethod
    def groups(
        cls, labels: Any, *, time: NDArray[Any] | None = None, gap: int = 0, seed: int = 0, test: float = _FIFTH,
        validation: float | None = None,
    ) -> Split:  # fmt: skip
        """Split samples that belong together in groups, such as subjects or stations: no group is in two parts.

        The error is then that of a new subject, which a random split of the samples would not measure: it has samples
        of every subject in training and test.

        Parameters
        ----------
        labels : array-like of shape (n,)
            Label of the group of each sample.
        time : ndarray of shape (n,), optional
            Time of each sample, for groups that are spans of time, such as years or cruises: they are taken in order,
            as in `Split.blocks`. None: groups are drawn at random.
        gap : int
            With ``time``, as in `Split.blocks`.
        seed : int
            Seed of the permutation of the groups.
        test, validation : float, optional
            Shares of the samples, as in `Split.random`; met as nearly as whole groups allow.

        Returns
        -------
        Split

        Raises
        ------
        DataError
            If there are fewer than three groups, or groups overlap in time.

        Examples
        --------
        >>> split = Split.groups(["Ada"] * 6 + ["Bo"] * 2 + ["Cy"] * 2)
        >>> split.train, split.validation, split.test
        (array([0, 1, 2, 3, 4, 5]), array([6, 7]), array([8, 9]))
        """
        _check_seed(seed)
        units = ranks(np.asarray(labels))
        sizes = _sizes(len(units), test, validation)
        if units.max() < 2:
            raise DataError(f"split: {units.max() + 1} groups of samples; at least three are needed, one for each part")
        if time is None:
            return cls._of_drawn_groups(units, sizes, seed)
        if np.shape(time) != np.shape(units):
            raise DataError(f"split: time of shape {np.shape(time)} for {len(units)} labels of groups")
        steps = ranks(np.asarray(time))
        if not separate_spans(units, steps):
            raise DataError("split: groups overlap in time, so that blocks of time would cut them; leave the time out")
        return cls._in_order(units, steps, sizes, gap, "groups")

    @classmethod
    def given(
        cls, train: Sequence[int] | Indices, test: Sequence[int] | Indices,
        validation: float | Sequence[int] | Indices | None = None,
    ) -> Split:  # fmt: skip
        """Make a split from given sample numbers.

        Parameters
        ----------
        train, test : sequence of int
            Sample numbers, counted from 0.
        validation : sequence of int or float, optional
            Sample numbers, or the share to take from the end of ``train``; by default a fifth, but at most 5000
            samples.

        Returns
        -------
        Split

        Examples
        --------
        >>> Split.given(train=range(80), test=range(80, 100), validation=0.25).sizes()
        {'train': 60, 'validation': 20, 'test': 20, 'kind': 'given'}
        """
        train, test = _indices("train", train), _indices("test", test)
        if validation is None or isinstance(validation, float | int):
            cut = len(train) - _validation_size(len(train), validation)
            train, validation = train[:cut], train[cut:]
        return cls(train, _indices("validation", validation), test)

    @classmethod
    def _in_order(cls, units: Indices, steps: Indices, sizes: tuple[int, int], gap: int, kind: str) -> Split:
        """Split samples in the order of ``steps``, between units; sizes are of validation and test part."""
        if not isinstance(gap, int | np.integer) or isinstance(gap, bool) or gap < 0:
            raise SettingsError(f"gap={gap!r}: a whole number of samples from 0 on is needed")
        order = np.lexsort((units, steps))
        cuts = cut(units[order], steps[order], validation=sizes[0], test=sizes[1], gap=int(gap))
        train, validation, test, left_out = cuts.parts(order)
        return cls(train, validation, test, kind, left_out=left_out, gap=int(gap))

    @classmethod
    def _of_drawn_groups(cls, units: Indices, sizes: tuple[int, int], seed: int) -> Split:
        """Split samples in groups that are drawn at random; sizes are of validation and test part."""
        counts = np.bincount(units).tolist()
        drawn = np.random.default_rng(seed).permutation(len(counts)).tolist()
        test = set(draw_units(counts, drawn, sizes[1], keep=2))
        rest = [unit for unit in drawn if unit not in test]
        validation = set(draw_units(counts, rest, sizes[0], keep=1))
        part = np.array([2 if unit in test else int(unit in validation) for unit in range(len(counts))])[units]
        order = np.lexsort((units, part))
        parts = np.split(order, np.searchsorted(part[order], [1, 2]))
        return cls(parts[0], parts[1], parts[2], "groups")

    @property
    def development(self) -> Indices:
        """Training and validation samples, in this order: all that a plan may be fitted to."""
        return np.concatenate([self.train, self.validation])

    def all_rows(self, in_time: Indices | None, n: int) -> Indices:
        """Return all samples, those of no part included, in the order that folds are cut from.

        Parameters
        ----------
        in_time : ndarray of int, optional
            The samples in the order of time; None: they are not a series, and the order of the parts is kept.
        n : int
            Number of samples.
        """
        if in_time is not None:
            return in_time
        parts = np.concatenate(self._parts())
        return np.concatenate([parts, np.setdiff1d(np.arange(n), parts)])

    def in_order(self) -> Split:
        """Return the same parts with their samples in ascending order, as data are read that stay in their file."""
        train, validation, test, left_out = map(np.sort, self._parts())
        return replace(self, train=train, validation=validation, test=test, left_out=left_out)

    def every(self, step: int) -> Split:
        """Return the same parts of every ``step``-th sample, which are numbered anew."""
        train, validation, test, left_out = (rows[rows % step == 0] // step for rows in self._parts())
        return replace(self, train=train, validation=validation, test=test, left_out=left_out)

    def _parts(self) -> tuple[Indices, Indices, Indices, Indices]:
        return self.train, self.validation, self.test, self.left_out

    def sizes(self) -> dict[str, int | str]:
        """Return the size of each part and how the split was made, as stored in a plan's record.

        Returns
        -------
        dict
            The samples left out, the reason and the warning only if there are any.
        """
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        sizes: dict[str, int | str] = {name: len(part) for name, part in parts.items()} | {"kind": self.kind}
        if len(self.left_out):
            sizes |= {"left_out": len(self.left_out), "gap": self.gap}
        texts = {"reason": self.reason, "warning": self.warning}
        return sizes | {name: text for name, text in texts.items() if text}


SplitLike = Split | Literal["blocks", "random", "groups"] | Mapping[str, Any] | Sequence[Any] | None


def as_split(split: Any, n: int) -> Split:
    """Convert a split that names its samples to a `Split`.

    Parameters
    ----------
    split : Split, mapping or tuple
        A `Split`; ``{"train": ..., "validation": ..., "test": ...}``, ``(train, validation, test)`` or ``(train,
        test)``, with sample numbers or boolean arrays of length ``n``.
    n : int
        Number of samples.

    Returns
    -------
    Split

    Raises
    ------
    SettingsError
        If ``split`` has none of these forms.

    Examples
    --------
    >>> as_split((range(6), range(6, 8)), 8).sizes()
    {'train': 4, 'validation': 2, 'test': 2, 'kind': 'given'}
    """
    if isinstance(split, Split):
        checked: dict[str, Any] = {name: _indices(name, getattr(split, name)) for name in _PARTS}
        return replace(split, **checked)
    parts = {name: _indices(name, part, n) for name, part in _named_parts(split).items()}
    return Split.given(parts["train"], parts["test"], parts.get("validation"))


def folds(
    rows: Indices, n_folds: int, *, gap: int = 0, groups: NDArray[Any] | None = None
) -> list[tuple[Indices, Indices]]:
    """Cut samples into consecutive blocks, each of which is left out in turn.

    Parameters
    ----------
    rows : ndarray of int
        Sample numbers, in the order of time where there is one (as `Split.development` has them).
    n_folds : int
        Number of blocks; fewer where there are not enough samples or groups.
    gap : int
        Number of samples on each side of the left-out block that are used for neither.
    groups : ndarray of shape (len(rows),), optional
        Label of each of these samples; those that share one are left out together, and there is no gap.

    Returns
    -------
    list of (ndarray of int, ndarray of int)
        For each block, the samples to fit to and those left out.

    Raises
    ------
    DataError
        If there are fewer than two samples or groups.

    Examples
    --------
    >>> [(fit.tolist(), out.tolist()) for fit, out in folds(np.arange(6), 3, gap=1)]
    [([3, 4, 5], [0, 1]), ([0, 5], [2, 3]), ([0, 1, 2], [4, 5])]
    """
    if groups is None:
        unit = np.arange(len(rows))
    else:
        _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
        unit, gap = np.argsort(np.argsort(first))[inverse], 0
    n_units = int(unit.max()) + 1 if len(rows) else 0
    if n_units < 2:
        raise DataError(f"split: {n_units} samples or groups cannot be left out in turn; at least 2 are needed")
    edges = np.linspace(0, n_units, min(n_folds, n_units) + 1).astype(np.int64)
    found = []
    for start, stop in pairwise(edges.tolist()):
        out = (unit >= start) & (unit < stop)
        near = (unit >= start - gap) & (unit < stop + gap)
        found.append((rows[~(out if near.all() else near)], rows[out]))
    return found


def check(split: Split, n: int) -> None:
    """Raise a DataError unless a split fits the samples.

    Parameters
    ----------
    split : Split
        Parts must be disjoint, and none may be empty.
    n : int
        Number of samples.

    Raises
    ------
    DataError
    """
    parts = {name: getattr(split, name) for name in _PARTS}
    for name, part in parts.items():
        if len(part) == 0:
            raise DataError(f"split: the {name} part is empty; there are {n} samples")
        if part.min() < 0 or part.max() >= n:
            raise DataError(f"split: the {name} part names samples outside 0 to {n - 1}")
    every = np.concatenate(list(parts.values()))
    if len(np.unique(every)) < len(every):
        raise DataError("split: a sample is in more than one part; train, validation and test must be disjoint")


def divided_group(split: Split, groups: NDArray[Any]) -> Any:
    """Return the label of a group that has samples in more than one part, or None.

    Parameters
    ----------
    split : Split
        The parts.
    groups : ndarray of shape (n,)
        Label of the group of each sample.

    Examples
    --------
    >>> divided_group(Split.given([0, 1], [3], [2]), np.array(["a", "a", "b", "b"]))
    'b'
    """
    units, named = ranks(groups), (split.train, split.validation, split.test)
    first, last = np.full(len(units), len(named)), np.full(len(units), -1)
    for number, rows in enumerate(named):
        np.minimum.at(first, units[rows], number)
        np.maximum.at(last, units[rows], number)
    divided = np.flatnonzero(first < last)
    return groups[units == divided[0]][0].item() if len(divided) else None


def _named_parts(split: Any) -> dict[str, Any]:
    """Parts by name, from a mapping or a tuple."""
    if isinstance(split, Mapping) and {"train", "test"} <= set(split) <= {"train", "validation", "test"}:
        return dict(split)
    if isinstance(split, tuple | list) and len(split) in (2, 3):
        names = ("train", "test") if len(split) == 2 else ("train", "validation", "test")
        return dict(zip(names, split, strict=True))
    shown = f"a mapping of {', '.join(map(repr, split)) or 'nothing'}" if isinstance(split, Mapping) else repr(split)
    raise SettingsError(
        f"split: {shown[:80]} is not a split; give 'blocks', 'random', 'groups', a keyhole.Split, (train, test), "
        "(train, validation, test), or a mapping of these names to sample numbers"
    )


def _sizes(n: int, test: float, validation: float | None) -> tuple[int, int]:
    """Numbers of validation and of test samples."""
    if n < 4:
        raise DataError(f"{n} sample{'s' * (n != 1)}: at least 4 are needed, 2 to train, 1 to validate, 1 to test")
    n_test = _size(n, "test", test)
    return _validation_size(n - n_test, validation), n_test


def _check_seed(seed: Any) -> None:
    """Raise a SettingsError unless a seed is a whole number from 0 on."""
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise SettingsError(f"seed={seed!r}: a whole number from 0 on is needed")


def _validation_size(n: int, share: float | None) -> int:
    """Number of validation samples: a share of ``n``, or by default a fifth, at most 5000."""
    if share is None:
        return min(_MOST_VALIDATION, _size(n, "validation", _FIFTH))
    return _size(n, "validation", share)


def _size(n: int, part: str, share: float) -> int:
    """Number of samples of a share, at least 1 and at most ``n - 1``."""
    if not 0 < share < 1:
        raise SettingsError(f"split: {part}={share!r} is not a share; give a number between 0 and 1")
    return min(n - 1, max(1, int(np.ceil(n * share - 1e-9))))


def _indices(part: str, numbers: Any, n: int | None = None) -> Indices:
    """Sample numbers of a part as int64; of ``n`` samples, a boolean array is accepted too."""
    try:
        indices = np.asarray(numbers)
    except ValueError as error:
        raise DataError(f"split: {part} must be a list of sample numbers ({error})") from error
    if n is not None and indices.dtype == bool:
        if indices.shape != (n,):
            raise DataError(f"split: {part} is a boolean array of shape {indices.shape}, and there are {n} samples")
        return np.flatnonzero(indices)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise DataError(f"split: {part} must be a list of sample numbers, whole numbers from 0 on")
    return indices.astype(np.int64)
