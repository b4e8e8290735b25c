"""Training, validation and test parts of the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError

__all__ = ["Indices", "Split", "SplitLike", "as_split", "check", "folds"]

Indices = NDArray[np.int64]

_FIFTH = 0.2
_PARTS = ("train", "validation", "test")
_MOST_VALIDATION = 5000  # samples, where they are independent: more are better used for training


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint sample indices of the training, validation and test parts.

    Sites are selected and reconstructors fitted on ``train``; methods and settings are compared on ``validation``;
    ``test`` is used once, by the metrics. Make a split with `Split.blocks` (time series), `Split.random` (independent
    samples) or `Split.given` (your own indices).

    Parameters
    ----------
    train, validation, test : ndarray of int
        Sample numbers, counted from 0 in the order of the data as they were given.
    kind : {"blocks", "random", "given"}
        How the split was made.
    reason : str
        Why this kind of split was chosen, where it was chosen automatically.

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

    @classmethod
    def blocks(
        cls, n: int, *, time: NDArray[Any] | None = None, test: float = _FIFTH, validation: float = _FIFTH
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
        """
        if time is None:
            return cls._from_shares(np.arange(n), test, validation, "blocks")
        if np.shape(time) != (n,):
            raise DataError(f"split: time of shape {np.shape(time)} for {n} samples")
        order = np.argsort(time, kind="stable")
        split = cls._from_shares(order, test, validation, "blocks")
        cuts = _cuts_between_times(np.asarray(time)[order], len(split.train), len(split.test))
        if cuts is None:
            raise DataError(
                "split: blocks of time need samples of at least three different times; leave the time out, or choose "
                "another split (split='random', --split random)"
            )
        parts = np.split(order, cuts)
        return cls(parts[0], parts[1], parts[2], "blocks")

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
        """
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise SettingsError(f"seed={seed!r}: a whole number from 0 on is needed")
        return cls._from_shares(np.random.default_rng(seed).permutation(n), test, validation, "random")

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
        """
        train, test = _indices("train", train), _indices("test", test)
        if validation is None or isinstance(validation, float | int):
            cut = len(train) - _validation_size(len(train), validation)
            train, validation = train[:cut], train[cut:]
        return cls(train, _indices("validation", validation), test)

    @classmethod
    def _from_shares(cls, order: Indices, test: float, validation: float | None, kind: str) -> Split:
        """Split ordered sample numbers into train, validation and test, by shares."""
        n = len(order)
        if n < 4:
            raise DataError(f"{n} sample{'s' * (n != 1)}: at least 4 are needed, 2 to train, 1 to validate, 1 to test")
        first = n - _size(n, "test", test)
        parts = np.split(order, [first - _validation_size(first, validation), first])
        return cls(parts[0], parts[1], parts[2], kind)

    @property
    def development(self) -> Indices:
        """Training and validation samples, in this order: all that a plan may be fitted to."""
        return np.concatenate([self.train, self.validation])

    def in_order(self) -> Split:
        """Return the same parts with their samples in ascending order, as data are read that stay in their file."""
        train, validation, test = map(np.sort, self._parts())
        return replace(self, train=train, validation=validation, test=test)

    def every(self, step: int) -> Split:
        """Return the same parts of every ``step``-th sample, which are numbered anew."""
        train, validation, test = (rows[rows % step == 0] // step for rows in self._parts())
        return replace(self, train=train, validation=validation, test=test)

    def _parts(self) -> tuple[Indices, Indices, Indices]:
        return self.train, self.validation, self.test

    def sizes(self) -> dict[str, int | str]:
        """Return the size of each part, the kind of split and its reason, as stored in a plan's record.

        Returns
        -------
        dict
            The reason only if there is one.
        """
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        sizes: dict[str, int | str] = {name: len(part) for name, part in parts.items()}
        return sizes | {"kind": self.kind} | ({"reason": self.reason} if self.reason else {})


SplitLike = Split | Literal["blocks", "random"] | Mapping[str, Any] | Sequence[Any] | None


def as_split(split: SplitLike, n: int, *, time: NDArray[Any] | None = None, seed: int = 0) -> Split | None:
    """Convert any accepted form of the ``split`` argument to a `Split`.

    Parameters
    ----------
    split : Split, str, mapping, tuple or None
        A `Split`; ``"blocks"`` or ``"random"``; ``{"train": ..., "validation": ..., "test": ...}``,
        ``(train, validation, test)`` or ``(train, test)``, with sample numbers or boolean arrays of length ``n``.
    n : int
        Number of samples.
    time : ndarray of shape (n,), optional
        Time of each sample, for ``"blocks"``.
    seed : int
        Seed, for ``"random"``.

    Returns
    -------
    Split or None
        None where ``split`` is None.

    Raises
    ------
    SettingsError
        If ``split`` has none of these forms.

    Examples
    --------
    >>> as_split((range(6), range(6, 8)), 8).sizes()
    {'train': 4, 'validation': 2, 'test': 2, 'kind': 'given'}
    """
    if split is None:
        return None
    if isinstance(split, Split):
        checked: dict[str, Any] = {name: _indices(name, getattr(split, name)) for name in _PARTS}
        return replace(split, **checked)
    if isinstance(split, str) and split in ("blocks", "random"):
        return Split.blocks(n, time=time) if split == "blocks" else Split.random(n, seed=seed)
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


def _cuts_between_times(times: NDArray[Any], first: int, last: int) -> list[int] | None:
    """Return two cuts of sorted times such that equal times stay in one part, or None if there are too few times.

    Each cut is at the change of time nearest to ``first`` samples in the first part and ``last`` in the third.
    """
    changes = np.flatnonzero(times[1:] != times[:-1]) + 1
    if len(changes) < 2:
        return None
    late = changes[1:]
    second = int(late[np.abs(late - (len(times) - last)).argmin()])
    early = changes[changes < second]
    return [int(early[np.abs(early - first).argmin()]), second]


def _named_parts(split: Any) -> dict[str, Any]:
    """Parts by name, from a mapping or a tuple."""
    if isinstance(split, Mapping) and {"train", "test"} <= set(split) <= {"train", "validation", "test"}:
        return dict(split)
    if isinstance(split, tuple | list) and len(split) in (2, 3):
        names = ("train", "test") if len(split) == 2 else ("train", "validation", "test")
        return dict(zip(names, split, strict=True))
    shown = f"a mapping of {', '.join(map(repr, split)) or 'nothing'}" if isinstance(split, Mapping) else repr(split)
    raise SettingsError(
        f"split: {shown[:80]} is not a split; give 'blocks', 'random', a keyhole.Split, (train, test), "
        "(train, validation, test), or a mapping of these names to sample numbers"
    )


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
