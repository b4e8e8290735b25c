"""Which samples choose, which decide and which judge: train, validation, test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from keyhole.errors import DataError, SettingsError

__all__ = ["Split", "blocks", "given", "shuffled"]

Indices = NDArray[np.int64]

_FIFTH = 0.2
_LEAST_CALIBRATION, _MOST_CALIBRATION = 4, 2000
_ENOUGH = 5000  # samples to choose by, where they do not follow each other in time: the rest is better used to learn


@dataclass(frozen=True, eq=False)
class Split:
    """Sample indices of the three parts, disjoint.

    Sites and reconstructors are fitted on ``train``, choices between them are made on ``validation``, bands are
    calibrated on ``calibration``, if there is one, and ``test`` is looked at once, by the metrics.
    """

    train: Indices
    validation: Indices
    test: Indices
    kind: str = "given"
    calibration: Indices = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def development(self) -> Indices:
        """Everything that a plan may learn from: train, then validation."""
        return np.concatenate([self.train, self.validation])

    def calibrating(self) -> Split:
        """Hold back the last tenth of train and validation, at most 2000 samples, to calibrate on.

        Validation is as large as it was, train is shorter. One that holds some back already stays as it is, and so does
        one too small to.
        """
        count = min(_MOST_CALIBRATION, len(self.development) // 10)
        if len(self.calibration) or count < _LEAST_CALIBRATION or len(self.train) < 4 * count:
            return self
        cuts = [len(self.train) - count, len(self.development) - count]
        train, validation, calibration = np.split(self.development, cuts)
        return replace(self, train=train, validation=validation, calibration=calibration)

    def sizes(self) -> dict[str, int | str]:
        """Give the size of each part, and how they were cut, for the record."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        parts |= {"calibration": self.calibration} if len(self.calibration) else {}
        return {name: len(part) for name, part in parts.items()} | {"kind": self.kind}


def blocks(n: int, *, test: float = _FIFTH, validation: float = _FIFTH) -> Split:
    """Cut ``n`` samples in contiguous blocks: train, then validation, then test, the last in time.

    ``validation`` is a share of what ``test`` leaves.
    """
    return _cut(np.arange(n), test, validation, "blocks")


def shuffled(n: int, *, seed: int, test: float = _FIFTH, validation: float | None = None) -> Split:
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


def check(split: Split, n: int) -> None:
    """Raise a DataError unless the parts are disjoint, not empty and within ``n`` samples."""
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    for name, part in parts.items():
        if len(part) == 0:
            raise DataError(f"split: the {name} part is empty; there are {n} samples")
        if part.min() < 0 or part.max() >= n:
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
