"""Which samples choose, which decide and which judge: train, validation, test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError

__all__ = ["Split", "SplitLike", "as_split", "blocks", "given", "random_split"]

Indices = NDArray[np.int64]

_FIFTH = 0.2
_LEAST_CALIBRATION, _MOST_CALIBRATION = 4, 2000
_ENOUGH = 5000  # samples to choose by, where they do not follow each other in time: the rest is better used to learn


@dataclass(frozen=True, eq=False)
class Split:
    """Sample indices of the three parts, disjoint.

    Sites and reconstructors are fitted on ``train``, choices between them are made on ``validation``, bands are
    calibrated on ``calibration``, if there is one, and ``test`` is looked at once, by the metrics. Make one with
    `Split.blocks`, `Split.random` or `Split.given`.

    Parameters
    ----------
    train, validation, test, calibration
        Sample numbers, from 0 on, in the order of the data as they were given.
    kind
        ``"blocks"``, ``"random"`` or ``"given"``.
    reason
        Why the samples were split like that, where Keyhole decided it.

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
    calibration: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    reason: str = ""

    @classmethod
    def blocks(
        cls, n: int, *, time: NDArray[Any] | None = None, test: float = _FIFTH, validation: float = _FIFTH
    ) -> Split:
        """Cut ``n`` samples in contiguous blocks of time: train, then validation, then test, the last.

        Parameters
        ----------
        n
            Number of samples.
        time
            Time of each sample, dates or numbers, in any order; None: they are in order. Samples of the same time stay
            in one part.
        test
            Share of the samples.
        validation
            Share of what ``test`` leaves.
        """
        return blocks(n, time=time, test=test, validation=validation)

    @classmethod
    def random(cls, n: int, *, seed: int = 0, test: float = _FIFTH, validation: float | None = None) -> Split:
        """Cut ``n`` samples at random, for samples that do not follow each other in time.

        Parameters
        ----------
        n
            Number of samples.
        seed
            Of the draw.
        test
            Share of the samples.
        validation
            Share of what ``test`` leaves; by default a fifth, but at most 5000 samples.
        """
        return random_split(n, seed=seed, test=test, validation=validation)

    @classmethod
    def given(
        cls, train: Sequence[int] | Indices, test: Sequence[int] | Indices,
        validation: float | Sequence[int] | Indices | None = None,
    ) -> Split:  # fmt: skip
        """Use these sample numbers.

        Parameters
        ----------
        train, test
            Sample numbers, from 0 on.
        validation
            Sample numbers too, or the share of the end of ``train`` to take; by default a fifth, but at most 5000.
        """
        return given(train, test, validation)

    @property
    def development(self) -> Indices:
        """Everything that a plan may learn from: train, then validation."""
        return np.concatenate([self.train, self.validation])

    def calibrate_intervals(self, time: NDArray[Any] | None = None) -> Split:
        """Hold back the last tenth of train and validation, at most 2000 samples, to calibrate on.

        Validation is as large as it was, train is shorter; blocks are cut where ``time`` changes. One that holds some
        back already stays as it is, and so does one too small to.
        """
        count = min(_MOST_CALIBRATION, len(self.development) // 10)
        if len(self.calibration) or count < _LEAST_CALIBRATION or len(self.train) < 4 * count:
            return self
        cuts: list[int] | None = [len(self.train) - count, len(self.development) - count]
        if time is not None and self.kind == "blocks":
            cuts = _between_times(np.asarray(time)[self.development], len(self.train) - count, count)
        if cuts is None:
            return self
        train, validation, calibration = np.split(self.development, cuts)
        return replace(self, train=train, validation=validation, calibration=calibration)

    def sizes(self) -> dict[str, int | str]:
        """Give the size of each part, and how they were cut, for the record."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        parts |= {"calibration": self.calibration} if len(self.calibration) else {}
        sizes: dict[str, int | str] = {name: len(part) for name, part in parts.items()}
        return sizes | {"kind": self.kind} | ({"reason": self.reason} if self.reason else {})


SplitLike = Split | Literal["blocks", "random"] | Mapping[str, Any] | Sequence[Any] | None


def blocks(n: int, *, time: NDArray[Any] | None = None, test: float = _FIFTH, validation: float = _FIFTH) -> Split:
    """Cut ``n`` samples in contiguous blocks: train, then validation, then test, the last in time.

    ``validation`` is a share of what ``test`` leaves. With ``time``, in any order, samples are ordered by it, and those
    of the same time stay in one part.
    """
    if time is None:
        return _cut(np.arange(n), test, validation, "blocks")
    if np.shape(time) != (n,):
        raise DataError(f"split: time of shape {np.shape(time)} for {n} samples")
    order = np.argsort(time, kind="stable")
    made = _cut(order, test, validation, "blocks")
    cuts = _between_times(np.asarray(time)[order], len(made.train), len(made.test))
    if cuts is None:
        raise DataError(
            "split: blocks of time need samples of at least three different times; leave the time out, or choose "
            "another split (split='random', --split random)"
        )
    train, validation_, test_ = np.split(order.astype(np.int64), cuts)
    return replace(made, train=train, validation=validation_, test=test_)


def random_split(n: int, *, seed: int, test: float = _FIFTH, validation: float | None = None) -> Split:
    """Cut ``n`` samples at random, for samples that do not follow each other in time.

    ``validation`` is a share of what ``test`` leaves; by default a fifth, but no more than is enough (5000).
    """
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise SettingsError(f"seed={seed!r}: a whole number from 0 on is needed")
    return _cut(np.random.default_rng(seed).permutation(n), test, validation, "random")


def given(
    train: Sequence[int] | Indices, test: Sequence[int] | Indices,
    validation: float | Sequence[int] | Indices | None = None,
) -> Split:  # fmt: skip
    """Use the indices given; ``validation`` is indices too, or the share of the end of ``train`` to take.

    By default that is a fifth, but no more than is enough (5000).
    """
    train, test = _indices("train", train), _indices("test", test)
    if validation is None or isinstance(validation, float | int):
        cut = len(train) - _validation(len(train), validation)
        train, validation = train[:cut], train[cut:]
    return Split(train, _indices("validation", validation), test)


def as_split(asked: SplitLike, n: int, *, time: NDArray[Any] | None = None, seed: int = 0) -> Split | None:
    """Give the split that is asked for, of ``n`` samples; None where none is.

    Parameters
    ----------
    asked
        A `Split`; ``"blocks"`` (of time) or ``"random"``; ``{"train": ..., "validation": ..., "test": ...}``,
        ``(train, validation, test)`` or ``(train, test)``, of sample numbers or boolean arrays of all samples.
    """
    if asked is None:
        return None
    if isinstance(asked, Split):
        names = ("train", "validation", "test", "calibration")
        parts: dict[str, Any] = {name: _indices(name, getattr(asked, name)) for name in names}
        return replace(asked, **parts)
    if isinstance(asked, str) and asked in ("blocks", "random"):
        return blocks(n, time=time) if asked == "blocks" else random_split(n, seed=seed)
    found = {name: _numbers(name, part, n) for name, part in _named_parts(asked).items()}
    return given(found["train"], found["test"], found.get("validation"))


def check(split: Split, n: int) -> None:
    """Raise a DataError unless the parts are disjoint, not empty and within ``n`` samples."""
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    for name, part in (parts | {"calibration": split.calibration}).items():
        if len(part) == 0 and name in parts:
            raise DataError(f"split: the {name} part is empty; there are {n} samples")
        if len(part) and (part.min() < 0 or part.max() >= n):
            raise DataError(f"split: the {name} part names samples outside 0 to {n - 1}")
    every = np.concatenate([*parts.values(), split.calibration])
    if len(np.unique(every)) < len(every):
        raise DataError("split: a sample stands in more than one part; train, validation and test must be disjoint")


def _cut(order: Indices, test: float, validation: float | None, kind: str) -> Split:
    n = len(order)
    if n < 4:
        raise DataError(f"{n} sample{'s' * (n != 1)}: at least 4 are needed, 2 to train, 1 to validate, 1 to test")
    first = n - _share(n, "test", test)
    second = first - _validation(first, validation)
    parts = np.split(order.astype(np.int64), [second, first])
    return Split(parts[0], parts[1], parts[2], kind)


def _between_times(times: NDArray[Any], first: int, last: int) -> list[int] | None:
    """Two cuts of ordered times in three parts, as near as can be to ``first`` samples ahead and ``last`` at the end.

    Each is where the time changes, so that no time stands in two parts; None where that makes no three parts.
    """
    changes = np.flatnonzero(times[1:] != times[:-1]) + 1
    if len(changes) < 2:
        return None
    late = changes[1:]
    second = int(late[np.abs(late - (len(times) - last)).argmin()])
    early = changes[changes < second]
    return [int(early[np.abs(early - first).argmin()]), second]


def _named_parts(asked: Any) -> dict[str, Any]:
    """Parts by name, as a mapping or a tuple gives them."""
    if isinstance(asked, Mapping) and {"train", "test"} <= set(asked) <= {"train", "validation", "test"}:
        return dict(asked)
    if isinstance(asked, tuple | list) and len(asked) in (2, 3):
        names = ("train", "test") if len(asked) == 2 else ("train", "validation", "test")
        return dict(zip(names, asked, strict=True))
    shown = f"a mapping of {', '.join(map(repr, asked)) or 'nothing'}" if isinstance(asked, Mapping) else repr(asked)
    raise SettingsError(
        f"split: {shown[:80]} is not a split; give 'blocks', 'random', a keyhole.Split, (train, test), "
        "(train, validation, test), or a mapping of these names to sample numbers"
    )


def _numbers(name: str, part: Any, n: int) -> Indices:
    """Sample numbers of a part that may be given as a boolean array of all samples."""
    try:
        found = np.asarray(part)
    except ValueError as error:
        raise DataError(f"split: {name} must be a list of sample numbers ({error})") from error
    if found.dtype == bool and found.shape != (n,):
        raise DataError(f"split: {name} is a boolean array of shape {found.shape}, and there are {n} samples")
    return np.flatnonzero(found) if found.dtype == bool else _indices(name, found)


def _validation(n: int, fraction: float | None) -> int:
    """How many of ``n`` samples to choose by: a share, or a fifth up to what is enough."""
    return min(_ENOUGH, _share(n, "validation", _FIFTH)) if fraction is None else _share(n, "validation", fraction)


def _share(n: int, part: str, fraction: float) -> int:
    if not 0 < fraction < 1:
        raise SettingsError(f"split: {part}={fraction!r} is not a share; give a number between 0 and 1")
    return min(n - 1, max(1, int(np.ceil(n * fraction - 1e-9))))


def _indices(part: str, given: Sequence[int] | Indices) -> Indices:
    indices = np.asarray(given)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise DataError(f"split: {part} must be a list of sample numbers, whole numbers from 0 on")
    return indices.astype(np.int64)
